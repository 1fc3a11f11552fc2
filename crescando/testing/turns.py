"""The turns of single processes, and the facts that they establish, each computed once.

Rules of the file: a core is pure, so a turn depends on the state of one process
and on one input alone; however many states of the whole it occurs in, it is
computed once and then looked up. States, messages and sets of facts become
numbers, equal numbers for equal ones. A process at rest is never changed:
every turn begins with a copy.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple

from crescando.testing.duplicate import duplicate, identity
from crescando.testing.scope import Fact, Key, Scope, Seen
from crescando.types import ProcessId

DOWN, ABSENT = -1, -2
"""Instead of a state's number: a process that has ended, or has not started yet."""

Cause = tuple[Any, ...]
"""The input of a turn: its kind, and peer, message or request by number."""


@dataclass(slots=True)
class Life:
    """A process between two turns, on its own clock."""

    subject: Any
    now_s: float
    wake_at_s: float | None


class Turn(NamedTuple):
    """What one input makes of a process: its next state, and what leaves it.

    Attributes
    ----------
    life : int
    send : tuple of (int, int)
        Process and message, in order.
    connect, reset : tuple of int
    is_over : bool
        The process stops itself.
    seen : Seen
    """

    life: int
    send: tuple[tuple[int, int], ...]
    connect: tuple[int, ...]
    reset: tuple[int, ...]
    is_over: bool
    seen: Seen


class Turns:
    """Turns of a scope's processes.

    Parameters
    ----------
    scope : Scope
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.lives: list[Life] = []
        self.messages: list[Any] = []
        self.fact_sets: list[dict[Key, Hashable]] = [{}]
        self._index = {process: i for i, process in enumerate(scope.processes)}
        self._life_numbers: dict[Hashable, int] = {}
        self._message_numbers: dict[Hashable, int] = {}
        self._fact_numbers: dict[Hashable, int] = {frozenset(): 0}
        self._turns: dict[Hashable, Turn] = {}
        self._folds: dict[tuple[int, Seen], tuple[int, tuple[str, ...]]] = {}

    def __len__(self) -> int:
        return len(self._turns)

    def turn(self, life: int, index: int, cause: Cause) -> Turn:
        """Give what an input makes of a process.

        Parameters
        ----------
        life : int
            The state of the process, or that it is not running.
        index : int
            Which process.
        cause : tuple
            ``("message", peer, message)``, ``("connected" | "disconnected" | "refused", peer)``,
            ``("wake",)``, ``("pause",)``, ``("ask", request, count)``, ``("start",)`` or ``("restart",)``.
        """
        key = (life, index, cause) if life < 0 else (life, cause)
        turn = self._turns.get(key)
        if turn is None:
            turn = self._turns[key] = self._compute(life, index, cause)
        return turn

    def _compute(self, life: int, index: int, cause: Cause) -> Turn:
        before: Any = None
        if life < 0:
            subject, now_s = self.scope.make(self.scope.processes[index]), 0.0
        else:
            known = self.lives[life]
            before, now_s = known.subject, known.now_s
            subject = duplicate(before)
            if cause[0] in ("wake", "pause"):
                now_s = max(now_s, known.wake_at_s or 0.0)
                now_s += self.scope.pause_s if cause[0] == "pause" else 0.0
        try:
            message = self._tell(subject, cause, now_s)
            output = subject.flush(now_s)
            seen = self.scope.observe(before, subject, message, output)
        except (AssertionError, LookupError, TypeError, ValueError) as error:
            # A member that breaks an invariant of its own stops; that is found as well.
            return Turn(DOWN, (), (), (), True, Seen(faults=(f"broke down: {error!r} of {cause}",)))
        send = tuple(
            (self._index[peer], self._number_of(message))
            for peer, message in output.send
            if peer in self._index
        )
        connect, reset = self._known(output.connect), self._known(output.reset)
        number = self._life_of(Life(subject, now_s, output.wake_at_s))
        return Turn(number, send, connect, reset, bool(output.stop), seen)

    def _tell(self, subject: Any, cause: Cause, now_s: float) -> Any:
        """Give a process its input; gives the message, if it is one."""
        match cause:
            case ("start" | "restart",):
                subject.on_start(now_s)
            case ("message", peer, number):
                subject.on_message(self.scope.processes[peer], self.messages[number], now_s)
                return self.messages[number]
            case ("connected", peer):
                subject.on_connected(self.scope.processes[peer], now_s)
            case ("disconnected", peer):
                subject.on_disconnected(self.scope.processes[peer], now_s)
            case ("refused", peer):
                subject.on_refused(self.scope.processes[peer], now_s)
            case ("ask", number, count):
                self.scope.asks[number].do(subject, count, now_s)
        return None

    def _known(self, peers: Iterable[ProcessId]) -> tuple[int, ...]:
        return tuple(self._index[peer] for peer in peers if peer in self._index)

    def _life_of(self, life: Life) -> int:
        key = (identity(life.subject), life.now_s, life.wake_at_s)
        number = self._life_numbers.setdefault(key, len(self.lives))
        if number == len(self.lives):
            self.lives.append(life)
        return number

    def _number_of(self, message: Any) -> int:
        number = self._message_numbers.setdefault(identity(message), len(self.messages))
        if number == len(self.messages):
            self.messages.append(message)
        return number

    def fold(self, facts: int, seen: Seen) -> tuple[int, tuple[str, ...]]:
        """Add what was seen to a set of facts; gives the set's number and what is wrong."""
        if seen == _NOTHING:
            return facts, ()
        known = self._folds.get((facts, seen))
        if known is None:
            known = self._folds[facts, seen] = self._compute_fold(facts, seen)
        return known

    def _compute_fold(self, facts: int, seen: Seen) -> tuple[int, tuple[str, ...]]:
        faults = list(seen.faults)
        after = dict(self.fact_sets[facts])

        def note(new: Iterable[Fact]) -> None:
            for key, value in new:
                if after.setdefault(key, value) != value:
                    faults.append(f"{key[0]}: {key[1:]} is {after[key]}, and then {value}")

        note(seen.facts)
        note(list(self.scope.derive(after)))
        for key, value in seen.demands:
            if after.get(key) != value:
                faults.append(f"{key[0]}: {key[1:]} is not {value}")
        number = self._fact_numbers.setdefault(frozenset(after.items()), len(self.fact_sets))
        if number == len(self.fact_sets):
            self.fact_sets.append(after)
        return number, tuple(faults)


_NOTHING = Seen()
