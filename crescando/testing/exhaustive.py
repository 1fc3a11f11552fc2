"""Every interleaving of a small scope: explicit states over the real cores, to a depth.

What is explored is every order of message deliveries, timers, requests, crashes,
session ends and message losses that a scope allows. A state that was met before
is not expanded again; schedules are counted as the paths of the graph of states,
so that none is left out of the count, and every step of every schedule has been
looked at.

Why it is fast enough: inputs at different processes commute, since each takes
from its own queues and appends to those of others. Both orders end in equal
states, so recognising states merges what a partial-order reduction would have
to prove equal first; and a single process's turn is computed only once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from crescando.testing.scope import Left, Scope
from crescando.testing.whole import SETTLE, Action, State, Whole


@dataclass(frozen=True, slots=True)
class Violation:
    """What went wrong, and the shortest schedule that shows it."""

    text: str
    schedule: tuple[str, ...]

    def __str__(self) -> str:
        return "\n  ".join([self.text, *self.schedule])


@dataclass(slots=True)
class Exploration:
    """What an exploration gave.

    Attributes
    ----------
    depth : int
        Every schedule of so many actions was explored (or of fewer, if nothing can follow).
    is_whole : bool
        No schedule is longer than `depth`.
    states, transitions, turns : int
        States of the whole, actions taken between them, and different turns of one process.
    schedules, with_leader_change : int
        Distinct schedules, and those in which another leadership began.
    at_rest : int
        States in which everything had arrived.
    violations : dict of str to Violation
        By kind, the text before the first colon.
    """

    depth: int = 0
    is_whole: bool = False
    states: int = 0
    transitions: int = 0
    turns: int = 0
    schedules: int = 0
    with_leader_change: int = 0
    at_rest: int = 0
    violations: dict[str, Violation] = field(default_factory=dict)

    def __str__(self) -> str:
        reach = "to their ends" if self.is_whole else f"of {self.depth} actions"
        return (
            f"{self.schedules:,} schedules {reach}, {self.with_leader_change:,} with a leader change; "
            f"{self.states:,} states, {self.transitions:,} transitions, {self.turns:,} turns, "
            f"{self.at_rest:,} states at rest, {len(self.violations)} kinds of violation"
        )


class Explorer:
    """Explores one scope.

    Parameters
    ----------
    scope : Scope
    left : Left
        What may happen in all, beside deliveries and requests.
    script : sequence of Action
        What happens first, once.
    """

    def __init__(self, scope: Scope, left: Left, script: Sequence[Action] = (SETTLE,)) -> None:
        self.scope = scope
        self.whole = Whole(scope)
        self.first = self.whole.first(left, script)
        self._states = [self.first]
        self._origin: list[tuple[int, Action]] = [(-1, ())]
        self._after: list[tuple[int, ...]] = []

    def explore(
        self, depth: int, *, states_max: int = 1 << 30, until: frozenset[str] = frozenset()
    ) -> Exploration:
        """Explore every schedule of `depth` actions; call it once.

        Parameters
        ----------
        depth : int
        states_max : int
            With more states, the exploration ends with the last depth that it finished.
        until : frozenset of str
            Go on after a violation until one of these kinds was found.
        """
        found = Exploration()
        numbers = {self.first: 0}
        while found.depth < depth and not found.is_whole:
            end = len(self._states)
            for number in range(len(self._after), end):
                self._expand(number, numbers, found)
                is_found = found.violations and (not until or until & found.violations.keys())
                if is_found or len(self._states) > states_max:
                    self._count(found)
                    return found
            found.depth += 1
            found.is_whole = len(self._states) == end
        self._count(found)
        return found

    def _expand(self, number: int, numbers: dict[State, int], found: Exploration) -> None:
        whole, states = self.whole, self._states
        state = states[number]
        following: list[int] = []
        for action in whole.actions(state):
            after, faults = whole.act(state, action)
            reached = numbers.setdefault(after, len(states))
            if reached == len(states):
                states.append(after)
                self._origin.append((number, action))
                if whole.is_at_rest(after):
                    found.at_rest += 1
                    faults += tuple(self.scope.at_rest(whole.live(after), whole.facts(after)))
            following.append(reached)
            for fault in faults:
                kind = fault.partition(":")[0]
                if kind not in found.violations:
                    found.violations[kind] = Violation(fault, self._schedule(number, action))
        found.transitions += len(following)
        self._after.append(tuple(following))

    def resting(self) -> Iterator[tuple[State, tuple[str, ...]]]:
        """Give every state met in which everything had arrived, and a shortest schedule to it."""
        for number, state in enumerate(self._states):
            if number and self.whole.is_at_rest(state):
                yield state, self._schedule(*self._origin[number])

    def _schedule(self, number: int, action: Action) -> tuple[str, ...]:
        words = [self.whole.describe(self._states[number], action)]
        while number:
            number, action = self._origin[number]
            words.append(self.whole.describe(self._states[number], action))
        return tuple(reversed(words))

    def _count(self, found: Exploration) -> None:
        """Count paths, level by level; one that ends early is a schedule too.

        Of a graph that is known to its ends, all paths are followed to theirs: the
        same state may be reached by schedules of different lengths.
        """
        found.states, found.turns = len(self._states), len(self.whole.turns)
        level: Counter[int] = Counter({0: 1})
        ended: Counter[int] = Counter()
        longest = found.states if found.is_whole else found.depth
        for length in range(longest):
            following: Counter[int] = Counter()
            for number, n in level.items():
                if not self._after[number]:
                    ended[number] += n
                for reached in self._after[number]:
                    following[reached] += n
            level = following
            if not level:
                found.depth = length
                break
        leaders = self.whole.n_leaders(self.first)
        for number, n in (level + ended).items():
            found.schedules += n
            found.with_leader_change += n if self.whole.n_leaders(self._states[number]) > leaders else 0

    def carry_out(self, depth: int) -> tuple[int, list[str]]:
        """Carry out every schedule of `depth` actions one by one, recognising nothing.

        What `explore` counts and finds, done in the plainest way, to check it by.

        Returns
        -------
        schedules : int
        faults : list of str
        """
        return self._carry_out(self.first, depth)

    def _carry_out(self, state: State, depth: int) -> tuple[int, list[str]]:
        actions = self.whole.actions(state) if depth else []
        if not actions:
            return 1, []
        schedules, faults = 0, list[str]()
        for action in actions:
            after, wrong = self.whole.act(state, action)
            faults.extend(wrong)
            n, more = self._carry_out(after, depth - 1)
            schedules += n
            faults.extend(more)
        return schedules, faults
