"""How every process core meets its driver: inputs in, one `Output` a turn out.

A core is a state machine over batches. A driver calls ``on_*`` for each input
of a turn and then ``flush`` once; the record that `flush` gives is all that the
driver may act on, in the order of its fields. The same core runs embedded,
over a network and in the simulator.
"""

from __future__ import annotations

from typing import Any, Protocol

import msgspec

from crescando.types import ProcessId


class Output(msgspec.Struct, kw_only=True, eq=False):
    """What a driver must do after one turn; the fields are in the order of carrying out.

    Attributes
    ----------
    reset : list of ProcessId
        Sessions to end: the peer broke the protocol or must start afresh.
    connect : list of ProcessId
        Peers with which a session is wanted; asking twice is harmless.
    send : list of (ProcessId, message)
        Messages in order. One to a peer without a session is dropped: the
        core states its watermarks anew when the session is back.
    execute : Any or None
        Slow work for the driver's worker; its completion returns as an input.
    wake_at_s : float or None
        When to call again if nothing arrives before.
    stop : str
        Not empty: the process must stop, and why.
    """

    # Every turn of every process makes one: a dataclass takes many times as long.
    reset: list[ProcessId] = []
    connect: list[ProcessId] = []
    send: list[tuple[ProcessId, Any]] = []
    execute: Any = None
    wake_at_s: float | None = None
    stop: str = ""


class ProcessCore(Protocol):
    """What a driver can tell a process. Times are monotonic seconds."""

    @property
    def me(self) -> ProcessId:
        """Who this process is."""
        ...

    def on_start(self, now_s: float) -> None:
        """Begin; called once, before anything else."""
        ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session with `peer` has begun."""
        ...

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Learn that the session with `peer` has ended; told once a session."""
        ...

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Learn that no session with `peer` can be had now."""
        ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take one message of the session with `peer`."""
        ...

    def on_executed(self, result: Any, now_s: float) -> None:
        """Take the completion of `Output.execute`."""
        ...

    def flush(self, now_s: float) -> Output:
        """End the turn: give everything to be done, and time's own consequences."""
        ...


def earliest(*times_s: float | None) -> float | None:
    """Give the first of some wake-up times, None standing for never."""
    first: float | None = None
    for time_s in times_s:
        if time_s is not None and (first is None or time_s < first):
            first = time_s
    return first
