"""The state of several processes and what is on its way between them, and what may happen next.

Rules of the file: cores are driven as any driver drives them. Each process has
a clock of its own that moves by its timers alone, so that no order of time-outs
is left out. Sessions are FIFO; the end of one takes everything with it that is
on its way, and either end is told of it whenever it comes to that. (That a part
had arrived before is the schedule in which that part was delivered before: the
two ends do not see each other in between.)
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, NamedTuple

from crescando.testing.scope import Key, Left, Scope
from crescando.testing.turns import ABSENT, DOWN, Turn, Turns
from crescando.types import ProcessId

Action = tuple[str | int, ...]
"""``deliver`` or ``lose`` from, to; ``wake``, ``pause``, ``crash``, ``restart`` or ``start`` which;
``reset`` one, other; ``ask`` which, request."""

SETTLE: Action = ("settle",)
"""In a script only: deliver everything there is."""

END, BEGIN, REFUSED = -1, -2, -3
"""In a queue beside numbers of messages: a session ends, one begins, or none can be had."""

Queues = Sequence[tuple[int, ...]]


class State(NamedTuple):
    """The whole: plain numbers, so that it is cheap to compare.

    Attributes
    ----------
    lives : tuple of int
        Each process's state; negative if it is not running.
    queues : tuple of tuple of int
        What is on its way, by directed link.
    told : int
        Bit per directed link: its receiver was told that the session began.
    left : Left
    asked : tuple of int
        How often each request was made.
    facts : int
    """

    lives: tuple[int, ...]
    queues: tuple[tuple[int, ...], ...]
    told: int
    left: Left
    asked: tuple[int, ...]
    facts: int


class Whole:
    """The processes of a scope together.

    Parameters
    ----------
    scope : Scope
    """

    def __init__(self, scope: Scope) -> None:
        self.scope = scope
        self.processes = scope.processes
        self.turns = Turns(scope)
        n = range(len(self.processes))
        self.links = [
            (i, j) for i in n for j in n if i != j and scope.are_linked(self.processes[i], self.processes[j])
        ]
        self._index = {process: i for i, process in enumerate(self.processes)}
        self._link = {pair: k for k, pair in enumerate(self.links)}
        self._asks = scope.asks
        self._shared: dict[Any, Any] = {}

    # Where to begin.

    def first(self, left: Left, script: Sequence[Action] = (SETTLE,)) -> State:
        """Give the state after a script, with this much left to happen.

        Parameters
        ----------
        left : Left
        script : sequence of Action
            What happens once every present process has started, before everything is open.

        Raises
        ------
        AssertionError
            If the script itself shows a violation.
        """
        plenty = Left(*[1 << 20] * len(Left._fields))
        nobody = (ABSENT,) * len(self.processes)
        state = State(nobody, ((),) * len(self.links), 0, plenty, (0,) * len(self._asks), 0)
        for i, process in enumerate(self.processes):
            if process not in self.scope.late:
                state = self._follow(state, ("start", i))
        for action in script:
            if action != SETTLE:
                state = self._follow(state, action)
                continue
            while waiting := [k for k, queue in enumerate(state.queues) if queue]:
                state = self._follow(state, ("deliver", *self.links[waiting[0]]))
        return state._replace(left=left)

    def _follow(self, state: State, action: Action) -> State:
        after, faults = self.act(state, action)
        assert not faults, f"the script itself shows a violation at {self.describe(state, action)}: {faults}"
        return after

    # What may happen.

    def actions(self, state: State) -> list[Action]:
        """Give everything that may happen next."""
        found: list[Action] = []
        lives, left = state.lives, state.left
        for k, queue in enumerate(state.queues):
            if queue and lives[self.links[k][1]] >= 0:
                found.append(("deliver", *self.links[k]))
                if left.lose and self._may_be_lost(queue[0]):
                    found.append(("lose", *self.links[k]))
        for i, life in enumerate(lives):
            if life < 0:
                if left.restart and life == DOWN:
                    found.append(("restart", i))
                elif left.start and life == ABSENT:
                    found.append(("start", i))
                continue
            process = self.processes[i]
            if self.turns.lives[life].wake_at_s is not None and self.scope.may_wake(process):
                found += [(kind, i) for kind in ("wake", "pause") if getattr(left, kind)]
            if left.crash and self.scope.may_crash(process):
                found.append(("crash", i))
        for number, ask in enumerate(self._asks):
            if state.asked[number] < ask.times:
                for process in ask.of:
                    i = self._index[process]
                    if lives[i] >= 0 and ask.can(self.turns.lives[lives[i]].subject):
                        found.append(("ask", i, number))
        if left.reset:
            found += [("reset", i, j) for i, j in self.links if i < j and self._is_session(state, i, j)]
        return found

    def _may_be_lost(self, head: int) -> bool:
        return head >= 0 and isinstance(self.turns.messages[head], self.scope.lossy)

    def act(self, state: State, action: Action) -> tuple[State, tuple[str, ...]]:
        """Let one thing happen; gives the state after it and what was wrong."""
        kind, i = str(action[0]), int(action[1])
        queues = list(state.queues)
        if kind == "deliver":
            j = int(action[2])
            link = self._link[i, j]
            head, *waiting = queues[link]
            queues[link] = self._share(tuple(waiting))
            told = state.told
            if head == BEGIN:
                return self._take_turn(state, queues, told | 1 << link, j, ("connected", i))
            if head == END:
                return self._take_turn(state, queues, told & ~(1 << link), j, ("disconnected", i))
            cause = ("refused", i) if head == REFUSED else ("message", i, head)
            return self._take_turn(state, queues, told, j, cause)
        if kind == "ask":
            which = int(action[2])
            count = state.asked[which]
            asked = (*state.asked[:which], count + 1, *state.asked[which + 1 :])
            state = state._replace(asked=self._share(asked))
            return self._take_turn(state, queues, state.told, i, ("ask", which, count))
        left = state.left._replace(**{kind: getattr(state.left, kind) - 1})
        state = state._replace(left=self._share(left))
        if kind == "lose":
            link = self._link[i, int(action[2])]
            head, *waiting = queues[link]
            queues[link] = self._share(tuple(waiting))
            facts, faults = self.turns.fold(state.facts, self.scope.on_lost(self.turns.messages[head]))
            return state._replace(queues=tuple(queues), facts=facts), faults
        if kind == "reset":
            self._reset(queues, state.told, i, int(action[2]))
            return state._replace(queues=tuple(queues)), ()
        if kind == "crash":
            return self._go_down(state._replace(queues=tuple(queues)), i), ()
        return self._take_turn(state, queues, state.told, i, (kind,))

    def _take_turn(
        self, state: State, queues: list[tuple[int, ...]], told: int, i: int, cause: tuple[Any, ...]
    ) -> tuple[State, tuple[str, ...]]:
        turn = self.turns.turn(state.lives[i], i, cause)
        if state.lives[i] < 0:
            self._come_up(queues, state.lives, i)
        lives = self._share((*state.lives[:i], turn.life, *state.lives[i + 1 :]))
        self._carry_out(turn, queues, lives, told, i)
        facts, faults = self.turns.fold(state.facts, turn.seen)
        after = State(lives, tuple(queues), told, state.left, state.asked, facts)
        return self._go_down(after, i) if turn.is_over else after, faults

    def _carry_out(
        self, turn: Turn, queues: list[tuple[int, ...]], lives: Sequence[int], told: int, i: int
    ) -> None:
        for j in turn.reset:
            if told >> self._link[i, j] & 1 or told >> self._link[j, i] & 1:
                self._reset(queues, told, i, j)
        for j in turn.connect:
            back = self._link[j, i]
            if lives[j] == DOWN and REFUSED not in queues[back]:
                queues[back] = self._share((*queues[back], REFUSED))
        for j, message in turn.send:
            back = self._link[j, i]
            if told >> back & 1 and self._is_open(queues, back):
                out = self._link[i, j]
                queues[out] = self._share((*queues[out], message))

    def _share(self, value: Any) -> Any:
        return self._shared.setdefault(value, value)

    # Sessions.

    def _is_session(self, state: State, i: int, j: int) -> bool:
        links = self._link[i, j], self._link[j, i]
        return all(state.told >> link & 1 and self._is_open(state.queues, link) for link in links)

    def _is_open(self, queues: Queues, link: int) -> bool:
        """Whether the end of the session is not already on its way."""
        return not queues[link] or queues[link][0] != END

    def _reset(self, queues: list[tuple[int, ...]], told: int, i: int, j: int) -> None:
        for link in (self._link[i, j], self._link[j, i]):
            queues[link] = (END, BEGIN) if told >> link & 1 else (BEGIN,)

    def _go_down(self, state: State, i: int) -> State:
        queues, told = list(state.queues), state.told
        for j in range(len(self.processes)):
            if (i, j) in self._link:
                there, here = self._link[i, j], self._link[j, i]
                queues[there] = (END,) if told >> there & 1 else ()
                queues[here] = ()
                told &= ~(1 << here)
        lives = self._share((*state.lives[:i], DOWN, *state.lives[i + 1 :]))
        return state._replace(lives=lives, queues=tuple(queues), told=told)

    def _come_up(self, queues: list[tuple[int, ...]], lives: Sequence[int], i: int) -> None:
        for j, life in enumerate(lives):
            if (i, j) in self._link and life >= 0:
                queues[self._link[i, j]] += (BEGIN,)
                queues[self._link[j, i]] = (BEGIN,)

    # What is there to be looked at.

    def facts(self, state: State) -> Mapping[Key, Hashable]:
        """Give what has been established so far."""
        return self.turns.fact_sets[state.facts]

    def n_leaders(self, state: State) -> int:
        """Give how many leaderships there have been."""
        return sum(1 for key in self.facts(state) if key[0] == "leader")

    def live(self, state: State) -> dict[ProcessId, Any]:
        """Give the running processes, not to be changed."""
        lives = zip(self.processes, state.lives, strict=True)
        return {process: self.turns.lives[life].subject for process, life in lives if life >= 0}

    def is_at_rest(self, state: State) -> bool:
        """Whether all has arrived, and every two running processes have their session."""
        lives = state.lives
        return not any(state.queues) and all(
            state.told >> k & 1 for k, (i, j) in enumerate(self.links) if lives[i] >= 0 and lives[j] >= 0
        )

    def describe(self, state: State, action: Action) -> str:
        """Give an action in words."""
        kind, names = action[0], [self.processes[int(i)].node for i in action[1:]]
        if kind == "ask":
            return f"{names[0]} is asked to {self._asks[int(action[2])].name}"
        if kind not in ("deliver", "lose"):
            return " ".join([str(kind), *names])
        head = state.queues[self._link[int(action[1]), int(action[2])]][0]
        events = {END: "the session ends", BEGIN: "a session begins", REFUSED: "no session is to be had"}
        return f"{kind} {names[0]}→{names[1]}: {events.get(head) or self.turns.messages[head]}"
