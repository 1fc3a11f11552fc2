"""What an exploration is told: processes, requests, how much may go wrong, and what must hold.

Rules of the file: nothing here runs anything. What must never happen is said
as facts: a key that is given two values (an instance, a ballot, a position) is
a violation, whoever gave them and whenever.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from crescando.process import Output
from crescando.types import ProcessId

Key = tuple[Hashable, ...]
"""What a fact is about: its kind, and which one of that kind."""

Fact = tuple[Key, Hashable]
"""A key and its only value; another value for the same key is a violation."""

Facts = Mapping[Key, Hashable]


class Subject(Protocol):
    """A process that can be explored: what a driver tells a core, less what no scope needs."""

    def on_start(self, now_s: float) -> None: ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None: ...

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None: ...

    def on_refused(self, peer: ProcessId, now_s: float) -> None: ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None: ...

    def flush(self, now_s: float) -> Output: ...


@dataclass(frozen=True, slots=True)
class Ask:
    """A request from outside that may come `times` times, at any moment.

    Attributes
    ----------
    name : str
    of : tuple of ProcessId
        Any one of these is asked.
    can : callable
        Whether a process would take it now.
    do : callable
        Asks; the second argument counts the requests of this kind from 0.
    """

    name: str
    of: tuple[ProcessId, ...]
    can: Callable[[Any], bool]
    do: Callable[[Any, int, float], None]
    times: int = 1


class Left(NamedTuple):
    """How much may still happen, by kind."""

    wake: int = 0
    pause: int = 0
    crash: int = 0
    restart: int = 0
    reset: int = 0
    lose: int = 0
    start: int = 0


@dataclass(frozen=True, slots=True)
class Seen:
    """What one step of a process showed.

    Attributes
    ----------
    facts : tuple of Fact
    demands : tuple of Fact
        What must have become a fact before.
    faults : tuple of str
        What is wrong with the step itself.
    """

    facts: tuple[Fact, ...] = ()
    demands: tuple[Fact, ...] = ()
    faults: tuple[str, ...] = ()


class Scope(Protocol):
    """What is explored, and what must hold."""

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """All of them, those included that start later."""
        ...

    @property
    def late(self) -> tuple[ProcessId, ...]:
        """Those that are not there at the beginning."""
        ...

    @property
    def asks(self) -> tuple[Ask, ...]:
        """What may be asked."""
        ...

    @property
    def pause_s(self) -> float:
        """By how much a paused process misses its timer, seconds."""
        ...

    @property
    def lossy(self) -> tuple[type[Any], ...]:
        """Messages that may be lost without the end of a session."""
        ...

    def make(self, me: ProcessId) -> Subject:
        """Make a process that remembers nothing."""
        ...

    def are_linked(self, a: ProcessId, b: ProcessId) -> bool:
        """Whether two processes keep a session."""
        ...

    def may_wake(self, process: ProcessId) -> bool:
        """Whether this process's timers are of interest."""
        ...

    def may_crash(self, process: ProcessId) -> bool:
        """Whether this process may end."""
        ...

    def observe(self, before: Any, after: Any, message: Any, output: Output) -> Seen:
        """Look at one step; `before` is None at the start, `message` if none came."""
        ...

    def on_lost(self, message: Any) -> Seen:
        """Look at a message that is lost."""
        ...

    def derive(self, facts: Facts) -> Iterable[Fact]:
        """Give what follows from facts."""
        ...

    def at_rest(self, live: Mapping[ProcessId, Any], facts: Facts) -> Iterable[str]:
        """Give what is wrong although every message has arrived and every session is there."""
        ...
