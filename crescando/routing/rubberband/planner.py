"""Which process copies what to whom: the instruction list with the least risk (RB13 §6.5).

Rules of the file: a *solution* is a graph with an edge from every sender to
every receiver of data. It is minimal if without any edge some receiver would
lack something; only minimal ones are looked at, since every edge more is one
way more to fail. A solution is judged by what every single further failure
would do: whoever receives from a failed process has failed too, and so on along
the edges. Better is what leaves fewer failed processes in the groups of f
successive ones: first fewer groups in which all have failed, then fewer in which
all but one have, and so on, over all single failures; then less to send for the
busiest sender. What is found depends on nothing but the arguments, also if the
search is stopped early: it counts its steps and looks at no clock.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations

from crescando.errors import SpecError
from crescando.routing.rubberband.keyspace import Copy, Difference, Transformation, transformed
from crescando.routing.rubberband.ring import Ring
from crescando.types import KeyRange, ProcessId, Scope

STEPS_MAX = 50_000
"""Partial solutions that are looked at before the best one so far is taken; about two seconds."""

Risk = tuple[int, ...]
"""Over every single further failure: groups of f successive processes in which f have failed, f - 1, … 1."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to do for a transformation, and what that risks.

    Attributes
    ----------
    before, after : Ring
    copies : tuple of Copy
        By receiver, then sender; each receiver gets each range once.
    deletes : tuple of (ProcessId, Scope)
        What processes give up when the data has moved, by process.
    risk : Risk
    is_complete : bool
        Whether every minimal solution was considered; else this is the best of those that were.
    """

    before: Ring
    after: Ring
    copies: tuple[Copy, ...]
    deletes: tuple[tuple[ProcessId, Scope], ...]
    risk: Risk
    is_complete: bool


def make_plan(
    ring: Ring,
    transformation: Transformation,
    *,
    failed: frozenset[ProcessId] = frozenset(),
    silent: frozenset[ProcessId] = frozenset(),
    load: Mapping[ProcessId, int] | None = None,
    weight: Callable[[KeyRange], int] | None = None,
    steps_max: int = STEPS_MAX,
) -> Plan:
    """Give the best instruction list for a transformation.

    Parameters
    ----------
    ring : Ring
    transformation : Transformation
    failed : frozenset of ProcessId, optional
        Processes that hold a ring position and take no part in anything.
    silent : frozenset of ProcessId, optional
        Processes that are no failed ones and can neither send nor receive: what they hold
        counts as lost, and there is no plan by which they would have to hold more.
    load : mapping, optional
        What processes have to send already, in the unit of `weight`; nothing by default.
    weight : callable, optional
        What sending a range costs, such as its rows; by default its share of the ring.
    steps_max : int

    Raises
    ------
    SpecError
        If there is no such ring, nobody who answers holds what a receiver needs, or one that
        does not answer would have to receive something.

    References
    ----------
    RB13 §6.5; Fig. 7 is the case of one expansion beside a failed process.
    """
    difference = Difference(ring, transformed(ring, transformation))
    receivers = _receivers(difference, failed, silent)
    search = _Search(difference, failed | silent, receivers, load or {}, weight or _width, steps_max)
    chosen = search.run()
    copies = tuple(
        Copy(sender, receiver, difference.scope(pieces))
        for (receiver, _), senders in zip(receivers, chosen, strict=True)
        for sender, pieces in sorted(senders.items())
    )
    deletes = tuple(
        (process, difference.scope(lost))
        for process in sorted(ring.processes)
        if process not in failed and (lost := difference.lost(process))
    )
    return Plan(ring, difference.after, copies, deletes, search.risk, search.is_complete)


def _width(key_range: KeyRange) -> int:
    return key_range.high - key_range.low + 1


def _receivers(
    difference: Difference, failed: frozenset[ProcessId], silent: frozenset[ProcessId]
) -> list[tuple[ProcessId, list[frozenset[ProcessId]]]]:
    """Give every process that gains data, and its minimal sets of senders."""
    receivers = []
    live = [process for process in sorted(difference.before.processes) if process not in failed | silent]
    for process in sorted(difference.after.processes):
        gained = difference.gained(process)
        if process in failed or not gained:
            continue
        if process in silent:
            raise SpecError(
                f"{process} does not answer, and would have to receive rows; "
                "wait until it answers, or choose another change"
            )
        held = {sender: difference.held(sender) & gained for sender in live if sender != process}
        held = {sender: pieces for sender, pieces in held.items() if pieces}
        missing = gained
        for pieces in held.values():
            missing &= ~pieces
        if missing:
            low, high = difference.scope(missing)[0]
            raise SpecError(
                f"{process} needs ring range [{low}, {high}], of which no replica lives; "
                "wait until one of its owners answers"
            )
        receivers.append((process, list(minimal_covers(gained, held))))
    return receivers


def minimal_covers(wanted: int, held: Mapping[ProcessId, int]) -> Iterator[frozenset[ProcessId]]:
    """Give every set of processes that together hold what is wanted, and none of which can be left out."""
    found: list[frozenset[ProcessId]] = []
    for size in range(1, len(held) + 1):
        for some in combinations(sorted(held), size):
            chosen = frozenset(some)
            if any(smaller <= chosen for smaller in found):
                continue
            together = 0
            for process in some:
                together |= held[process]
            if together & wanted == wanted:
                found.append(chosen)
                yield chosen


class _Simulation:
    """What single failures would do to a solution.

    Processes are bits of masks here: bit i for the i-th of `_processes`.
    """

    def __init__(self, difference: Difference, failed: frozenset[ProcessId]) -> None:
        before, after = difference.before, difference.after
        processes = sorted({*before.processes, *after.processes})
        self.bit = {process: 1 << place for place, process in enumerate(processes)}
        self._failed = self.mask(failed & self.bit.keys())
        self._live = [bit for bit in self.bit.values() if not bit & self._failed]
        self._f = after.replication
        n = len(after.processes)
        self._groups = [
            self.mask(after.processes[(first + r) % n] for r in range(self._f)) for first in range(n)
        ]

    def mask(self, processes: Iterable[ProcessId]) -> int:
        """Give a set of processes as bits."""
        mask = 0
        for process in processes:
            mask |= self.bit[process]
        return mask

    def risk(self, receivers_of: Mapping[int, int]) -> Risk:
        """Judge a solution: to whom each sender sends, as masks by its bit."""
        counts = [0] * (self._f + 1)
        for victim in self._live:
            fallen = self._failed | self._flood(victim, receivers_of)
            for group in self._groups:
                counts[(fallen & group).bit_count()] += 1
        return tuple(reversed(counts[1:]))

    @staticmethod
    def _flood(victim: int, receivers_of: Mapping[int, int]) -> int:
        """Give whoever fails with a process, itself included."""
        fallen = fresh = victim
        while fresh:
            bit = fresh & -fresh
            fresh &= fresh - 1
            new = receivers_of.get(bit, 0) & ~fallen
            fallen |= new
            fresh |= new
        return fallen


Senders = dict[ProcessId, int]
"""What each sender sends to one receiver, as pieces."""


class _Search:
    """Depth first over the receivers, leaving out what can only become worse than the best so far."""

    def __init__(
        self,
        difference: Difference,
        failed: frozenset[ProcessId],
        receivers: list[tuple[ProcessId, list[frozenset[ProcessId]]]],
        load: Mapping[ProcessId, int],
        weight: Callable[[KeyRange], int],
        steps_max: int,
    ) -> None:
        self._simulation = _Simulation(difference, failed)
        self._weights = [weight(piece) for piece in difference.pieces]
        self._load = load
        self._steps_left = steps_max
        self._best: tuple[Risk, tuple[int, ...]] | None = None
        self._best_choice: list[Senders] = []
        self._choices = [
            (self._simulation.bit[process], self._ranked(difference, process, covers))
            for process, covers in receivers
        ]
        self.is_complete = True

    @property
    def risk(self) -> Risk:
        """The risk of the best solution."""
        assert self._best is not None
        return self._best[0]

    def run(self) -> list[Senders]:
        """Give the best solution: what each receiver is sent by whom."""
        self._descend(0, {}, dict(self._load), [])
        return self._best_choice

    def _ranked(
        self, difference: Difference, receiver: ProcessId, covers: list[frozenset[ProcessId]]
    ) -> list[Senders]:
        """Give each minimal set of senders with what they send, in order of promise."""
        gained = difference.gained(receiver)
        bit = self._simulation.bit
        options = []
        for cover in covers:
            senders = self._divided(gained, {sender: difference.held(sender) for sender in cover})
            risk = self._simulation.risk(dict.fromkeys(map(bit.__getitem__, cover), bit[receiver]))
            options.append((risk, sorted(cover), senders))
        return [senders for _, _, senders in sorted(options, key=lambda option: option[:2])]

    def _divided(self, gained: int, held: Mapping[ProcessId, int]) -> Senders:
        """Let each piece come from the one of its holders who has least to send so far."""
        senders = dict.fromkeys(sorted(held), 0)
        amount = {sender: self._load.get(sender, 0) for sender in senders}
        pieces = [place for place in range(len(self._weights)) if gained >> place & 1]
        # What only one can send is decided first.
        pieces.sort(key=lambda place: sum(held[sender] >> place & 1 for sender in senders))
        for place in pieces:
            able = [sender for sender in senders if held[sender] >> place & 1]
            sender = min(able, key=lambda each: (amount[each], each))
            senders[sender] |= 1 << place
            amount[sender] += self._weights[place]
        return senders

    def _descend(
        self, depth: int, receivers_of: dict[int, int], amounts: dict[ProcessId, int], chosen: list[Senders]
    ) -> None:
        if self._best is not None and self._steps_left <= 0:
            self.is_complete = False
            return
        self._steps_left -= 1
        # Both grow with every edge, so what is no better now will not become so.
        score = self._simulation.risk(receivers_of), tuple(sorted(amounts.values(), reverse=True))
        if self._best is not None and score >= self._best:
            return
        if depth == len(self._choices):
            self._best, self._best_choice = score, list(chosen)
            return
        receiver, options = self._choices[depth]
        for senders in options:
            further, sums = dict(receivers_of), dict(amounts)
            for sender, pieces in senders.items():
                bit = self._simulation.bit[sender]
                further[bit] = further.get(bit, 0) | receiver
                sums[sender] = sums.get(sender, 0) + self._weight(pieces)
            self._descend(depth + 1, further, sums, [*chosen, senders])

    def _weight(self, pieces: int) -> int:
        return sum(weight for place, weight in enumerate(self._weights) if pieces >> place & 1)
