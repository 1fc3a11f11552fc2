"""The operations of a client, together and one by one: both ways tell the same."""

from __future__ import annotations

import random
from collections import deque

import msgspec
import numpy as np
import pytest

from crescando.client.base import ReadOutcome, Request, WriteOutcome
from crescando.engine.base import Results, Rows
from crescando.engine.statement import Column, encode_call, encode_parameters
from crescando.engine.written import Written, join_written
from crescando.roles.completion import Executed, Stable
from crescando.roles.payload import Packing, Spread
from crescando.roles.runs import READ, WRITE, Run, Runs
from crescando.schema import DataType
from crescando.types import FULL_RING, KeyRange
from tests.roles.test_client import ME, S0, Desk, keys_of, rows, written, wrote
from tests.roles.test_storage import add, insert, read_all

ALONE = (KeyRange(0, 5), KeyRange(9, 9))


def desk_with(*requests: Request, is_alone: bool) -> Desk:
    """Give a desk that was asked; `is_alone` has a record made of each operation."""
    desk = Desk(connected=(S0,))
    desk.core.request_all([(2 + place, request) for place, request in enumerate(requests)])
    desk.flush()
    if is_alone:
        desk.core._operations.values()
    return desk


def story(seed: int, *, is_alone: bool) -> tuple[object, ...]:
    """Let answers and stability come in any order, now and then twice; give what was told."""
    rng = random.Random(seed)
    kinds = [rng.random() < 0.5 for _ in range(12)]
    # All name the whole ring: only operations that name the same ranges are told of together.
    write = msgspec.structs.replace(add(1, 1), ranges=(FULL_RING,))
    desk = desk_with(*(read_all() if is_read else write for is_read in kinds), is_alone=is_alone)
    upto = 1
    steps = []
    for _ in range(40):
        number = rng.randrange(2, 14)
        if rng.random() < 0.3:
            upto = max(upto, rng.randrange(1, 14))
            desk.stable(upto)
        elif kinds[number - 2]:
            desk.tell(S0, rows(number, (FULL_RING,), number, at=10 + number))
        else:
            desk.tell(S0, wrote(number, FULL_RING, at=10 + number))
        if is_alone:
            desk.core._operations.values()
        # Not only at the end: nothing may be told before its time.
        steps.append([(desk.outcome(token) is None, desk.is_stable(token)) for token in range(2, 14)])
    ends = {token: desk.outcome(token) for token in range(2, 14)}
    shown = {
        token: None if end is None else (end.position, len(getattr(end, "counts", ())))
        for token, end in ends.items()
    }
    stable = [desk.is_stable(token) for token in range(2, 14)]
    return shown, stable, steps, list(desk.core._operations), desk.core._operations.lowest(0), desk.core._seen


@pytest.mark.parametrize("seed", range(60))
def test_together_is_as_one_by_one(seed: int) -> None:
    assert story(seed, is_alone=False) == story(seed, is_alone=True)


ARCS = (KeyRange(0, 33), KeyRange(34, 66), KeyRange(67, 99))


def reach(rng: random.Random) -> tuple[KeyRange, ...]:
    """Give what an operation touches: a point mostly, a short range, or two points."""
    low = rng.randrange(90)
    found = [KeyRange(low, low)] * 5
    found += [KeyRange(low, low + rng.randrange(10))]
    if rng.random() < 0.1:
        return KeyRange(low, low), KeyRange(low + 5, low + 5)
    return (rng.choice(found),)


def answers(rng: random.Random, numbers: list[int]) -> Results:
    """Give answers to several reads, for any scopes, right or wrong."""
    scopes = tuple(tuple(sorted(rng.sample(ARCS, rng.randrange(1, 4)))) for _ in range(rng.randrange(1, 3)))
    n = len(numbers)
    keys = Column(DataType.INT64, np.array(numbers, np.int64))
    places = np.array([rng.randrange(len(scopes)) for _ in numbers])
    columns = np.array(numbers), 10 + np.array(numbers), places
    return Results(S0, ME, 50, rows=(Rows(*columns, scopes, np.arange(n + 1), ("k",), (keys,)),))


def doings(rng: random.Random, numbers: list[int]) -> Results:
    """Give what several writes did in some arcs, which some of them do not touch."""
    arcs = tuple(sorted(rng.sample(ARCS, rng.choice((1, 1, 1, 2)))))
    n = len(numbers)
    affected = np.array([rng.randrange(3) for _ in range(n * len(arcs))])
    steps = np.zeros(n, np.int64)
    did = Written(np.array(numbers), 10 + np.array(numbers), steps, arcs, affected)
    return Results(S0, ME, 50, written=(did,))


def story_of_keys(seed: int, *, is_alone: bool) -> tuple[object, ...]:
    """As `story`, of operations that touch little, told of together by owners of some arcs."""
    rng = random.Random(seed)
    kinds = [rng.random() < 0.5 for _ in range(12)]
    asked = [
        msgspec.structs.replace(read_all() if is_read else add(1, 1), ranges=reach(rng)) for is_read in kinds
    ]
    desk = desk_with(*asked, is_alone=is_alone)
    upto = 1
    steps = []
    for _ in range(40):
        if rng.random() < 0.3:
            upto = max(upto, rng.randrange(1, 14))
            desk.stable(upto)
        else:
            is_read = rng.random() < 0.5
            numbers = [place + 2 for place, kind in enumerate(kinds) if kind == is_read]
            some = sorted(rng.sample(numbers, rng.randrange(1, len(numbers) + 1))) if numbers else []
            if rng.random() < 0.1:
                rng.shuffle(some)
            if some:
                desk.tell(S0, (answers if is_read else doings)(rng, some))
        if is_alone:
            desk.core._operations.values()
        steps.append([(desk.outcome(token) is None, desk.is_stable(token)) for token in range(2, 14)])
    ends = {token: desk.outcome(token) for token in range(2, 14)}
    shown = {token: None if end is None else _told(end) for token, end in ends.items()}
    return shown, steps, list(desk.core._operations), desk.core._operations.lowest(0), desk.core._seen


def _told(end: object) -> object:
    if isinstance(end, ReadOutcome):
        return end.position, [(piece.scope, keys_of(end)) for piece in end.pieces]
    assert isinstance(end, WriteOutcome)
    return end.position, [(count.key_range, count.affected) for count in end.counts]


@pytest.mark.parametrize("seed", range(80))
def test_keyed_operations_together_are_as_one_by_one(seed: int) -> None:
    together = story_of_keys(seed, is_alone=False)

    assert together == story_of_keys(seed, is_alone=True)


def test_keyed_operations_get_no_records_where_one_answer_is_all(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [(KeyRange(at, at),) for at in (3, 40, 12, 99)]
    reads = [msgspec.structs.replace(read_all(), ranges=ranges) for ranges in points]
    writes = [msgspec.structs.replace(add(1, 1), ranges=ranges) for ranges in points]
    desk = desk_with(*reads, *writes, is_alone=False)
    keys = Column(DataType.INT64, np.arange(4))
    columns = np.arange(2, 6), np.arange(12, 16), np.array([0, 1, 0, 1])
    rows_ = Rows(*columns, (ARCS[:1], ARCS[1:]), np.arange(5), ("k",), (keys,))
    zeros = np.zeros(2, np.int64)
    made: list[int] = []
    monkeypatch.setattr(Runs, "_record", lambda _, run, place: made.append(place))

    desk.tell(S0, Results(S0, ME, 50, rows=(rows_,)))
    desk.tell(
        S0,
        Results(
            S0,
            ME,
            50,
            written=(Written(np.array([6, 8]), np.array([16, 18]), zeros, ARCS[:1], np.array([1, 2])),),
        ),
    )

    assert made == []
    assert list(desk.core._operations) == [6, 7, 8, 9], "writes lack to be stable"
    desk.stable(9)
    assert list(desk.core._operations) == [7, 9]
    assert [desk.outcome(token) is not None for token in range(2, 10)] == [True] * 5 + [False, True, False]


def test_a_write_that_is_told_with_others_waits_until_it_is_stable() -> None:
    runs = Runs()
    request = msgspec.structs.replace(add(1, 1), ranges=(FULL_RING,))
    runs.add(Run(2, [0, 1, 2], [request] * 3, bytearray((WRITE,) * 3), request.ranges))
    assert runs.on_stable(2, 0.0) == ([Stable([0])], [])

    told, others = runs.on_written(join_written([written(number, FULL_RING) for number in (2, 3, 4)]))

    assert others == []
    assert [each.tokens for each in told] == [[0]]
    (stable, executed), _ = runs.on_stable(3, 0.0)
    assert stable == Stable([1])
    assert isinstance(executed, Executed)
    assert executed.tokens == [1]
    assert list(runs) == [4]


def test_a_read_that_is_answered_before_it_is_stable_is_told_stable_first() -> None:
    runs = Runs()
    request = read_all()
    runs.add(Run(2, [0, 1], [request] * 2, bytearray((READ,) * 2), request.ranges))

    (stable, executed), others = runs.on_rows(rows(2, (FULL_RING,), 7, at=10).rows[0])

    assert (stable, others) == (Stable([0]), [])
    assert isinstance(executed, Executed)
    assert executed.tokens == [0]


def test_a_run_is_found_by_number_and_forgotten_when_it_is_over() -> None:
    runs = Runs()
    request = read_all()
    for first in (2, 5, 9):
        tokens = range(first * 10, first * 10 + 3)
        runs.add(Run(first, tokens, [request] * 3, bytearray((READ, WRITE, READ)), request.ranges))

    assert list(runs) == [2, 3, 4, 5, 6, 7, 9, 10, 11]
    assert runs.get(8) is None
    assert runs.get(1) is None
    assert runs.get(12) is None
    assert runs[6].token == 51
    assert runs[6] is runs.get(6)
    for number in (2, 3, 4):
        del runs[number]
    assert runs.lowest(0) == 5
    assert len(runs) == 6
    with pytest.raises(KeyError):
        del runs[3]
    assert [each.token for each in runs.called({50, 92, 77})] == [50, 92]


def test_messages_made_together_are_those_made_one_by_one() -> None:
    requests = [add(1, 1), read_all(), insert(3), add(3, 3), read_all(), add(4, 70_000)] * 3
    requests[4] = msgspec.structs.replace(requests[4], ranges=ALONE)
    packing = Packing(deque(enumerate(requests)), 100, 1 << 20)
    sent = packing.submission(ME, 7, 0, Spread(1))

    shapes: dict[bytes, int] = {}
    for place, request in enumerate(requests):
        code = shapes.setdefault(request.shape.encode(), len(shapes))
        assert sent.payload_of(place) == encode_call(
            code, encode_parameters(request.shape, request.parameters)
        )
        assert sent.ranges_of(place) == request.ranges
    assert packing.run(7).states == bytes((WRITE, READ, WRITE, WRITE, READ, WRITE)) * 3
    assert packing.run(7).ranges is None


@pytest.mark.parametrize("bytes_max", [1, 40, 200, 10_000])
def test_a_submission_is_full_after_the_message_that_fills_it(bytes_max: int) -> None:
    waiting = deque(enumerate([add(n, n) for n in range(700)]))
    sizes = [len(encode_call(0, encode_parameters(r.shape, r.parameters))) for _, r in waiting]
    expected, so_far = 0, 0
    while so_far < bytes_max and expected < 650:
        so_far += sizes[expected]
        expected += 1

    packing = Packing(waiting, 650, bytes_max)

    assert list(packing.tokens) == list(range(expected))
    assert [token for token, _ in waiting] == list(range(expected, 700))


@pytest.mark.parametrize("counts", [(1, 9, 1, 300), (4096, 2)])
def test_offsets_do_not_depend_on_how_many_are_taken_at_once(counts: tuple[int, ...]) -> None:
    one, many = Spread(5), Spread(5)

    taken = np.concatenate([many.take(n) for n in counts])

    assert taken.tolist() == [next(one) for _ in range(sum(counts))]


def test_writes_told_with_arcs_that_are_not_theirs_are_looked_at_one_by_one() -> None:
    runs = Runs()
    request = add(1, 1)
    runs.add(Run(2, (2, 3), (request, request), bytearray((WRITE, WRITE)), request.ranges))

    told, others = runs.on_written(written(2, KeyRange(0, 5)))

    assert not told
    assert [report.number for report in others] == [2]
