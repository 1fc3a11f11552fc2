"""What a node says of itself: which process it runs, how that stands, and where the others are.

Every node answers at the address of its process, beside it and outside the
order, so that whoever knows one address finds the rest, and an operator hears
from a node whose process has stopped. Nothing that anybody decides follows from
such an answer: it is a look, and old when it arrives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from crescando.process import Output
from crescando.types import ProcessId

NODE = "node"
"""The role of those who answer."""


def node_of(process: str) -> ProcessId:
    """Name the node that looks after a process of a name, in whichever life."""
    return ProcessId(NODE, process)


class Describe(msgspec.Struct, frozen=True, array_like=True, tag="describe"):
    """Somebody asks a node how its processes stand."""


class Place(msgspec.Struct, frozen=True, array_like=True):
    """Where a process listens, whatever its incarnation."""

    role: str
    node: str
    host: str
    port: int


class Hosts(msgspec.Struct, frozen=True, array_like=True):
    """One process of a node, and how it stands.

    `reason` says why it does not run; `lead` is the router that it believes to
    lead, and `position` the last one that it has learned or delivered.
    """

    process: ProcessId
    is_running: bool
    is_ready: bool
    reason: str
    lead: ProcessId | None
    position: int
    counters: dict[str, int]


class Described(msgspec.Struct, frozen=True, array_like=True, tag="described"):
    """How a node stands.

    `routers` are the members of the ordering group as far as the node knows;
    `config` is the newest configuration that a router of the node has learned,
    empty without one. `now_s` is the calendar's clock.
    """

    version: str
    pid: int
    now_s: float
    hosts: tuple[Hosts, ...]
    routers: tuple[ProcessId, ...]
    config: bytes
    places: tuple[Place, ...]


Told = Callable[[Described | None], None]
"""Called with what a node said of itself, or None if it cannot be asked now."""


class Asker:
    """Asks nodes how they stand, each as often as somebody wants to know.

    Parameters
    ----------
    me : ProcessId
    """

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self._waiting: dict[ProcessId, list[Told]] = {}
        self._open: set[ProcessId] = set()
        self._out = Output()

    def ask(self, node: ProcessId, told: Told) -> None:
        """Ask a node; `told` is called once, with None if there is no session, or it ended."""
        self._waiting.setdefault(node, []).append(told)
        if node in self._open:
            self._out.send.append((node, Describe()))
        else:
            self._out.connect.append(node)

    def on_start(self, now_s: float) -> None:
        """Nobody is asked yet."""

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Ask what waited for the session."""
        self._open.add(peer)
        if peer in self._waiting:
            self._out.send.append((peer, Describe()))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Tell those who wait that no answer comes."""
        self._open.discard(peer)
        self._tell(peer, None)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Tell those who wait that no answer comes."""
        self._tell(peer, None)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Nothing is executed."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Pass an answer on."""
        if isinstance(message, Described):
            self._tell(peer, message)

    def flush(self, now_s: float) -> Output:
        """Send what is to be sent."""
        out, self._out = self._out, Output()
        return out

    def _tell(self, node: ProcessId, described: Described | None) -> None:
        for told in self._waiting.pop(node, ()):
            told(described)


class Describer(Asker):
    """The process of a node that answers for it, and asks others.

    Parameters
    ----------
    me : ProcessId
    describe : callable
        Gives what is to be said now.
    """

    def __init__(self, me: ProcessId, describe: Callable[[], Described]) -> None:
        super().__init__(me)
        self._describe = describe

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Answer, or pass an answer on."""
        if isinstance(message, Describe):
            self._out.send.append((peer, self._describe()))
        else:
            super().on_message(peer, message, now_s)
