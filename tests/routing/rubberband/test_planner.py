"""Plans against a search by brute force that knows rings only as owners of single positions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import chain, combinations, product

import pytest

from crescando.errors import SpecError
from crescando.routing.rubberband.keyspace import (
    Contract,
    Copy,
    Difference,
    Expand,
    Rebalance,
    Replace,
    Transformation,
    transformed,
)
from crescando.routing.rubberband.planner import Plan, make_plan
from crescando.routing.rubberband.ring import Ring
from crescando.types import RING_MAX, KeyRange, ProcessId
from tests.routing.worlds import storage

A, B, C, D, E, F = (ProcessId("storage", name) for name in "abcdef")

Edges = frozenset[tuple[ProcessId, ProcessId]]


class BruteForce:
    """All minimal solutions of a transformation, by trying every set of edges."""

    def __init__(self, before: Ring, after: Ring, failed: frozenset[ProcessId]) -> None:
        self.before = dict(zip(before.ids, before.processes, strict=True))
        self.after = dict(zip(after.ids, after.processes, strict=True))
        self.f = before.replication
        self.failed = failed
        self.points = sorted({0, *self.before, *self.after})

    def owners(self, ring: dict[int, ProcessId], point: int) -> list[ProcessId]:
        ids = sorted(ring)
        below = [at for at in ids if at <= point] or ids
        first = ids.index(below[-1])
        return [ring[ids[(first + r) % len(ids)]] for r in range(self.f)]

    def needs(self) -> dict[ProcessId, set[int]]:
        found: dict[ProcessId, set[int]] = {}
        for point in self.points:
            for process in set(self.owners(self.after, point)) - set(self.owners(self.before, point)):
                if process not in self.failed:
                    found.setdefault(process, set()).add(point)
        return found

    def solutions(self) -> Iterator[Edges]:
        """Give every set of edges by which all get what they need, and no edge of which can be left out."""
        per_receiver = []
        for receiver, points in sorted(self.needs().items()):
            senders = sorted(set(self.before.values()) - self.failed - {receiver})
            useful = [
                sender
                for sender in senders
                if any(sender in self.owners(self.before, point) for point in points)
            ]
            sets = chain.from_iterable(combinations(useful, n) for n in range(len(useful) + 1))
            serving = [set(some) for some in sets if self.serves(set(some), points)]
            minimal = [some for some in serving if not any(self.serves(some - {one}, points) for one in some)]
            per_receiver.append([{(sender, receiver) for sender in some} for some in minimal])
        for parts in product(*per_receiver):
            yield frozenset(chain.from_iterable(parts))

    def serves(self, senders: set[ProcessId], points: set[int]) -> bool:
        return all(senders & set(self.owners(self.before, point)) for point in points)

    def risk(self, edges: Edges) -> tuple[int, ...]:
        ids = sorted(self.after)
        groups = [
            {self.after[ids[(first + r) % len(ids)]] for r in range(self.f)} for first in range(len(ids))
        ]
        counts = dict.fromkeys(range(1, self.f + 1), 0)
        for victim in {*self.before.values(), *self.after.values()} - self.failed:
            fallen = {victim}
            while more := {receiver for sender, receiver in edges if sender in fallen} - fallen:
                fallen |= more
            for group in groups:
                n = len(group & (fallen | self.failed))
                if n:
                    counts[n] += 1
        return tuple(counts[n] for n in range(self.f, 0, -1))


def _edges(plan: Plan) -> Edges:
    return frozenset((copy.sender, copy.receiver) for copy in plan.copies)


def _ring(n: int, f: int, *, first: int) -> Ring:
    step = (1 << 64) // n
    return Ring(tuple(first + step * place for place in range(n)), tuple(map(storage, range(n))), f)


def _transformations(ring: Ring) -> Iterator[Transformation]:
    """Give one of each kind and distance; all others are the same turned around the ring."""
    new, step = storage(99), (1 << 64) // len(ring.ids)
    yield Expand(new, ring.ids[0] + step // 2)
    yield Replace(ring.processes[0], new)
    yield Contract(ring.processes[0])
    for place in range(len(ring.ids)):
        yield Rebalance(ring.processes[0], ring.ids[place] + step // 2)


def _is_possible(ring: Ring, transformation: Transformation) -> bool:
    try:
        transformed(ring, transformation)
    except SpecError:
        return False
    return True


@pytest.mark.parametrize("f", [1, 2, 3, 4])
@pytest.mark.parametrize("n", range(1, 11))
def test_the_best_plan_is_the_one_that_brute_force_finds(n: int, f: int) -> None:
    if n < f:
        return
    rng = random.Random(100 * n + f)
    # At 0 no partition wraps; anywhere else the last one does.
    ring = _ring(n, f, first=rng.choice([0, 12345]))
    for transformation in _transformations(ring):
        if not _is_possible(ring, transformation):
            continue
        for failed in (None, *ring.processes):
            lost = frozenset() if failed is None else frozenset({failed})
            brute = BruteForce(ring, transformed(ring, transformation), lost)
            solutions = {edges: brute.risk(edges) for edges in brute.solutions()}
            if not solutions:
                with pytest.raises(SpecError, match="no replica lives"):
                    make_plan(ring, transformation, failed=lost)
                continue
            plan = make_plan(ring, transformation, failed=lost)
            assert plan.is_complete
            assert plan.risk == min(solutions.values()), (transformation, failed)
            assert solutions[_edges(plan)] == plan.risk
            _check_copies(plan, brute)


def _check_copies(plan: Plan, brute: BruteForce) -> None:
    """Everybody gets what it needs, once, from one who has it, and gives up what it no longer owns."""
    got: dict[ProcessId, list[int]] = {}
    for copy in plan.copies:
        points = [point for point in brute.points if _contains(copy.scope, point)]
        assert all(copy.sender in brute.owners(brute.before, point) for point in points)
        got.setdefault(copy.receiver, []).extend(points)
    assert {receiver: sorted(points) for receiver, points in got.items()} == {
        receiver: sorted(points) for receiver, points in brute.needs().items()
    }
    given_up = dict(plan.deletes)
    for process in set(brute.before.values()) - brute.failed:
        for point in brute.points:
            gave_up = process in brute.owners(brute.before, point) and process not in brute.owners(
                brute.after, point
            )
            assert _contains(given_up.get(process, ()), point) == gave_up


def _contains(scope: tuple[KeyRange, ...], point: int) -> bool:
    return any(low <= point <= high for low, high in scope)


def test_the_example_of_the_paper_chooses_its_second_solution() -> None:
    # RB13 Fig. 6 and 7: e gets identifier 35 while d has failed; f = 3.
    figure = Ring((10, 20, 30, 40, 50), (F, A, B, C, D), 3)

    plan = make_plan(figure, Expand(E, 35), failed=frozenset({D}))

    assert plan.copies == (Copy(B, E, (KeyRange(20, 39),)),)
    assert plan.deletes == ((B, (KeyRange(35, 39),)), (C, (KeyRange(20, 29),)))
    assert plan.risk[0] == 0


def test_without_a_failure_whoever_has_least_to_send_is_asked() -> None:
    figure = Ring((10, 20, 30, 40, 50), (F, A, B, C, D), 3)
    idle = make_plan(figure, Expand(E, 35))
    busy = {copy.sender: RING_MAX for copy in idle.copies}

    relieved = make_plan(figure, Expand(E, 35), load=busy)

    assert relieved.risk == idle.risk
    assert not {copy.sender for copy in relieved.copies} & busy.keys()


def test_weights_say_what_is_much_to_send() -> None:
    # Where both can send, the range with all the rows comes from who has less to send.
    ring = Ring((0, 100, 200, 300), (A, B, C, D), 2)
    plan = make_plan(ring, Contract(B), weight=lambda key_range: int(key_range.low < 100))

    sent = {copy.sender: copy.scope for copy in plan.copies}
    assert all(
        _contains(scope, 0) is (sender in (A, B)) for sender, scope in sent.items() if sender in (A, B)
    )


def test_a_search_that_is_cut_short_says_so_and_still_gives_a_solution() -> None:
    ring = _ring(10, 4, first=7)
    transformation = Rebalance(storage(0), (1 << 63) + 5)

    whole, cut = make_plan(ring, transformation), make_plan(ring, transformation, steps_max=8)

    assert whole.is_complete
    assert not cut.is_complete
    assert cut.risk >= whole.risk
    _check_copies(cut, BruteForce(ring, cut.after, frozenset()))


def test_no_plan_depends_on_the_order_in_which_failures_are_named() -> None:
    ring = _ring(8, 3, first=3)
    some = [storage(1), storage(5)]

    plans = [make_plan(ring, Contract(storage(3)), failed=frozenset(names)) for names in (some, some[::-1])]

    assert plans[0] == plans[1]


@pytest.mark.parametrize(
    ("transformation", "text"),
    [
        (Expand(A, 150), "has a ring position already"),
        (Expand(E, 100), "is taken by"),
        (Expand(E, -1), "does not lie in"),
        (Expand(E, RING_MAX + 1), "does not lie in"),
        (Expand(ProcessId("client", "c"), 150), "no storage process"),
        (Contract(E), "has no ring position"),
        (Contract(A), "replicas need as many processes"),
        (Replace(E, F), "has no ring position"),
        (Replace(A, B), "has a ring position already"),
        (Rebalance(E, 150), "has no ring position"),
        (Rebalance(A, 100), "is taken by"),
    ],
)
def test_impossible_transformations_are_refused_with_their_cause(
    transformation: Transformation, text: str
) -> None:
    ring = Ring((0, 100), (A, B), 2)

    with pytest.raises(SpecError, match=text):
        make_plan(ring, transformation)


def test_pieces_are_cut_where_partitions_of_either_ring_begin() -> None:
    ring = Ring((20, 30), (A, B), 1)
    difference = Difference(ring, transformed(ring, Expand(C, 25)))

    assert difference.pieces == (
        KeyRange(0, 19),
        KeyRange(20, 24),
        KeyRange(25, 29),
        KeyRange(30, RING_MAX),
    )
    assert difference.scope(difference.gained(C)) == (KeyRange(25, 29),)
    assert difference.scope(difference.lost(A)) == (KeyRange(25, 29),)
    assert difference.scope(difference.held(B)) == (KeyRange(0, 19), KeyRange(30, RING_MAX))


def test_one_that_does_not_answer_sends_nothing() -> None:
    ring = Ring((0, 100, 200, 300), (A, B, C, D), 2)
    assert [copy.sender for copy in make_plan(ring, Replace(A, E)).copies] == [A]

    plan = make_plan(ring, Replace(A, E), silent=frozenset({A}))

    assert [copy.sender for copy in plan.copies] == [B, D]
    with pytest.raises(SpecError, match="of which no replica lives"):
        make_plan(ring, Replace(A, E), failed=frozenset({A}), silent=frozenset({B}))


def test_one_that_does_not_answer_cannot_be_given_more() -> None:
    ring = Ring((0, 100, 200, 300), (A, B, C, D), 2)

    with pytest.raises(SpecError, match=f"{C} does not answer, and would have to receive rows"):
        make_plan(ring, Contract(B), silent=frozenset({C}))


@pytest.mark.parametrize("seed", range(60))
def test_nobody_silent_has_a_part_in_any_plan(seed: int) -> None:
    rng = random.Random(seed)
    n = rng.randint(2, 8)
    ring = _ring(n, rng.randint(1, min(4, n)), first=rng.randrange(50))
    silent = frozenset(rng.sample(sorted(ring.processes), rng.randint(1, max(1, n // 2))))
    failed = frozenset(rng.sample(sorted(set(ring.processes) - silent), rng.randint(0, 1)))
    chosen = rng.choice(ring.processes)
    transformation = rng.choice((Contract(chosen), Replace(chosen, E)))
    try:
        plan = make_plan(ring, transformation, failed=failed, silent=silent, steps_max=200)
    except SpecError:
        return

    parties = {process for copy in plan.copies for process in (copy.sender, copy.receiver)}
    assert not parties & (failed | silent)
    gained = Difference(ring, plan.after)
    assert not any(gained.gained(process) for process in silent)
