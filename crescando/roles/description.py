"""What a node says of itself: which process it runs, how that stands, and where the others are.

Every node answers at the address of its process, beside it and outside the
order, so that whoever knows one address finds the rest, and an operator hears
from a node whose process has stopped. Nothing that anybody decides follows from
such an answer: it is a look, and old when it arrives.
"""

from __future__ import annotations

from collections import deque
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
    lead, and `position` the last one that it has learned or delivered. A router
    `is_standby` if it waits for a place in the ordering group, which it follows no further.
    """

    process: ProcessId
    is_running: bool
    is_ready: bool
    reason: str
    lead: ProcessId | None
    position: int
    counters: dict[str, int]
    is_standby: bool = False


class Described(msgspec.Struct, frozen=True, array_like=True, tag="described"):
    """How a node stands.

    `routers` are the members of the ordering group as far as the node knows;
    `config` is the newest configuration that a router of the node has learned,
    empty without one. `now_s` is the calendar's clock. `request_bytes` is how long one
    request of a client may be, 0 if the node does not say.
    """

    version: str
    pid: int
    now_s: float
    hosts: tuple[Hosts, ...]
    routers: tuple[ProcessId, ...]
    config: bytes
    places: tuple[Place, ...]
    request_bytes: int = 0


NOBODY_LEADS = "no router leads"

PASSING_FAULTS = frozenset({NOBODY_LEADS, "another change is in flight", "the window is full"})
"""Reasons not to change the routers that pass by themselves."""


def may_pass(fault: str, add: ProcessId | None) -> bool:
    """Say whether a reason not to change the routers passes by itself."""
    # A router that has only just started cannot be reached at once.
    return fault in PASSING_FAULTS or (add is not None and fault.endswith("can be reached"))


class ChangeRouters(msgspec.Struct, frozen=True, array_like=True, tag="change-routers"):
    """An administrator wishes that the ordering group grows by a router that stands by, or shrinks by one.

    `denial` says why whoever asks is none; it is filled in where the message arrives (`crescando.rights`).
    """

    add: ProcessId | None = None
    remove: ProcessId | None = None
    denial: str = ""


class RoutersChanged(msgspec.Struct, frozen=True, array_like=True, tag="routers-changed"):
    """The change was proposed, if there is no fault; the group agrees on it."""

    fault: str


Question = Describe | ChangeRouters
Reply = Described | RoutersChanged

Told = Callable[[Any], None]
"""Called with what a node replied, or None if it cannot be asked now."""

Change = Callable[[ChangeRouters], str]
"""Proposes a change of the routers; says why it cannot be, if it cannot."""


_DESCRIBE = Describe()


class Asker:
    """Asks nodes, each as often as somebody wants to know; replies come in the order of the questions.

    Parameters
    ----------
    me : ProcessId
    """

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self._waiting: dict[ProcessId, deque[tuple[Question, Told]]] = {}
        self._open: set[ProcessId] = set()
        self._out = Output()

    def ask(self, node: ProcessId, told: Told, question: Question = _DESCRIBE) -> None:
        """Ask a node; `told` is called once, with None if there is no session, or it ended."""
        self._waiting.setdefault(node, deque()).append((question, told))
        if node in self._open:
            self._out.send.append((node, question))
        else:
            self._out.connect.append(node)

    def on_start(self, now_s: float) -> None:
        """Nobody is asked yet."""

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Ask what waited for the session."""
        self._open.add(peer)
        self._out.send += [(peer, question) for question, _ in self._waiting.get(peer, ())]

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Tell those who wait that no answer comes."""
        self._open.discard(peer)
        self._tell_none(peer)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Tell those who wait that no answer comes."""
        self._tell_none(peer)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Nothing is executed."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Pass an answer on."""
        waiting = self._waiting.get(peer)
        if isinstance(message, Reply) and waiting:
            _, told = waiting.popleft()
            told(message)

    def flush(self, now_s: float) -> Output:
        """Send what is to be sent."""
        out, self._out = self._out, Output()
        return out

    def _tell_none(self, node: ProcessId) -> None:
        for _, told in self._waiting.pop(node, ()):
            told(None)


class Describer(Asker):
    """The process of a node that answers for it, and asks others.

    Parameters
    ----------
    me : ProcessId
    describe : callable
        Gives what is to be said now.
    change : callable
        Proposes a change of the routers.
    """

    def __init__(self, me: ProcessId, describe: Callable[[], Described], change: Change) -> None:
        super().__init__(me)
        self._describe = describe
        self._change = change

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Answer, or pass an answer on."""
        match message:
            case Describe():
                self._out.send.append((peer, self._describe()))
            case ChangeRouters():
                fault = message.denial or self._change(message)
                self._out.send.append((peer, RoutersChanged(fault)))
            case _:
                super().on_message(peer, message, now_s)
