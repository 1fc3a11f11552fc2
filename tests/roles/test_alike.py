"""Operations of one shape that are asked for together: what is sent is what they would send one by one."""

from __future__ import annotations

import random
from collections import deque

import msgspec
import pytest

from crescando.client.base import Alike, Isolation, LoadEnd, Request
from crescando.engine.statement import decode_call, decode_shapes, encode_alike, encode_calls
from crescando.errors import ClosedError
from crescando.roles.asked import Asked, Waiting
from crescando.roles.behind import Behind
from crescando.roles.direct import DirectReads
from crescando.roles.flight import READ
from crescando.roles.payload import TOGETHER, Packing, Spread
from crescando.roles.requests import Requests
from crescando.routing.batch import Submission
from crescando.types import FULL_RING, KeyRange, LoadId
from tests.roles.test_client import ME, S0, Desk, rows, wrote
from tests.roles.test_storage import add, insert, read_all

RANGES: tuple[tuple[KeyRange, ...], ...] = ((FULL_RING,), (KeyRange(3, 3),), (KeyRange(1, 4), KeyRange(8, 9)))


def alike(rng: random.Random, n: int, isolation: Isolation = "sequential") -> Alike:
    """Give n updates, or n reads, of constants of any length."""
    if rng.random() < 0.5:
        request = read_all()
        parameters: list[tuple[object, ...]] = [request.parameters] * n
    else:
        request = add(1, 1)
        parameters = [(rng.randrange(9), rng.choice((1, 200, 70_000, 1 << 40))) for _ in range(n)]
    ranges = [rng.choice(RANGES) for _ in range(n)] if rng.random() < 0.5 else [RANGES[0]] * n
    return Alike(request.shape, parameters, ranges, isolation)


def asked(rng: random.Random) -> list[Waiting | Asked]:
    """Give single operations of all kinds, and operations of one shape, as they come."""
    found: list[Waiting | Asked] = []
    token = 0
    for _ in range(rng.randrange(1, 12)):
        n = rng.choice((2, 5, 60, 300, 700)) if rng.random() < 0.6 else 1
        if n > 1:
            kinds = (add(1, 1), read_all(), insert(3)) if rng.random() < 0.2 else (add(1, 1), read_all())
            mixed = [rng.choice(kinds) for _ in range(n)]
            found.append(Asked(range(token, token + n), alike(rng, n) if rng.random() < 0.6 else mixed))
        else:
            found.append((token, rng.choice((add(1, 1), read_all(), insert(3)))))
        token += n
    return found


def singles(some: list[Waiting | Asked]) -> list[Waiting]:
    return [one for each in some for one in (each.each() if isinstance(each, Asked) else [each])]


def test_each_is_the_request_that_it_stands_for() -> None:
    some = alike(random.Random(1), 9)
    made = [
        Request(some.shape, parameters, ranges)
        for parameters, ranges in zip(some.parameters, some.ranges, strict=True)
    ]

    assert list(some) == made
    assert list(some[2:7]) == made[2:7]
    snapshot = alike(random.Random(1), 9, "snapshot")[3:]
    assert {snapshot.isolation, snapshot[0].isolation, snapshot[1:][0].isolation} == {"snapshot"}
    assert some[-1] == made[-1]
    assert len(some[2:7]) == 5
    with pytest.raises(IndexError):
        some[9]


@pytest.mark.parametrize("seed", range(8))
def test_payloads_end_to_end_are_those_made_one_by_one(seed: int) -> None:
    some = alike(random.Random(seed), 40)

    payload, lengths = encode_alike(seed, some.parameters)

    payloads = encode_calls([seed] * len(some), some.parameters)
    assert payload == b"".join(payloads)
    assert lengths == list(map(len, payloads))


def told(sent: Submission) -> list[tuple[object, ...]]:
    """Give what the messages of a submission say; it may hold shapes that none of them has."""
    shapes = decode_shapes(sent.shared)
    found: list[tuple[object, ...]] = []
    for place in range(len(sent)):
        call = decode_call(sent.payload_of(place))
        header = sent.kind[place], sent.table[place], sent.replica_offset[place]
        found.append((*header, sent.ranges_of(place), shapes[call.shape], call.parameters, call.then))
    return found


@pytest.mark.parametrize("seed", range(120))
def test_submissions_hold_what_single_requests_would(seed: int) -> None:
    rng = random.Random(seed)
    some = asked(rng)
    n_max, bytes_max = rng.choice((7, 64, 512, 512)), rng.choice((60, 700, 2_500, 1 << 20))
    waiting = deque(some)
    expected = singles(some)

    while waiting:
        packing = Packing(waiting, n_max, bytes_max)
        n = len(packing)
        assert 0 < n <= n_max
        sent_bytes = list(map(len, map(packing.submission(ME, 7, 0, Spread(seed)).payload_of, range(n))))
        assert sum(sent_bytes[:-1]) < bytes_max, "it was full before"
        mine, expected = expected[:n], expected[n:]
        assert list(packing.tokens) == [token for token, _ in mine]
        assert list(packing.requests) == [request for _, request in mine]
        alone = Packing(deque(mine), n_max, 1 << 40)
        sent, same = (told(each.submission(ME, 7, 0, Spread(seed))) for each in (packing, alone))
        assert sent == same
        run, other = packing.run(7), alone.run(7)
        assert (run.states, run.ranges, list(run.tokens)) == (other.states, other.ranges, list(other.tokens))
    assert not expected


def test_what_is_alike_is_no_longer_than_a_submission_and_stays_together() -> None:
    some = alike(random.Random(3), 100)
    waiting: deque[Waiting | Asked] = deque([(0, read_all()), Asked(range(1, 101), some)])

    sizes = []
    while waiting:
        packing = Packing(waiting, 70, 1 << 20)
        sizes.append((len(packing), isinstance(packing.requests, Alike)))

    assert sizes == [(1, False), (70, True), (30, True)]


def test_no_more_is_encoded_than_a_stretch_beyond_what_fits(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[int] = []

    def counted(shape: int, parameters: list[tuple[object, ...]]) -> tuple[bytes, list[int]]:
        encoded.append(len(parameters))
        return encode_alike(shape, parameters)

    monkeypatch.setattr("crescando.roles.payload.encode_alike", counted)
    write = add(1, 1)
    long = Alike(write.shape, [(1, "x" * 1_000)] * 2_000, [write.ranges] * 2_000, "sequential")

    packing = Packing(deque([Asked(range(2_000), long)]), 4_096, 10_000)

    assert len(packing) == 10
    assert sum(encoded) <= len(packing) + TOGETHER


def requests_of(*some: Waiting | Asked, direct: DirectReads | None = None) -> Requests:
    requests = Requests(direct)  # type: ignore[arg-type]
    for each in some:
        if isinstance(each, Asked):
            assert requests.take_together(each)
        else:
            requests.take([each])
    return requests


@pytest.mark.parametrize("seed", range(40))
def test_what_waits_is_counted_called_off_and_forgotten_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    some = asked(rng)
    expected = singles(some)
    requests = requests_of(*some)
    assert len(requests) == len(expected)

    unwanted = {token for token, _ in expected if rng.random() < 0.3}
    gone = [token for token, request in expected if token in unwanted and request.shape.kind is READ]
    assert requests.call_off(unwanted) == gone
    left = [token for token, _ in expected if token not in gone]
    assert len(requests) == len(left)
    packed: list[int] = []
    while requests and rng.random() < 0.5:
        packed += requests.pack(len(packed) + 2, 50, 1 << 20)[1].tokens
        assert len(requests) == len(left) - len(packed)
    assert packed + requests.clear() == left
    assert len(requests) == 0


def test_reads_behind_alike_writes_wait_for_the_last_of_them() -> None:
    seen: list[Behind] = []

    class Direct:
        def request(self, _: object, behind: Behind) -> None:
            seen.append(behind)

    write = add(1, 1)
    writes = Asked(range(3), Alike(write.shape, [write.parameters] * 3, [write.ranges] * 3, "sequential"))
    snapshot = msgspec.structs.replace(read_all(), isolation="snapshot")
    requests = requests_of(writes, (3, snapshot), direct=Direct())  # type: ignore[arg-type]
    assert seen[0].written is None

    requests.pack(10, 100, 1 << 20)

    assert seen[0].written == 12
    assert requests.last_write == 12


def reads(tokens: range, isolation: Isolation) -> Asked:
    """Give reads of everything."""
    n = len(tokens)
    return Asked(tokens, Alike(read_all().shape, [()] * n, [(FULL_RING,)] * n, isolation))


@pytest.mark.parametrize("n_writes", [0, 2])
def test_reads_submitted_together_are_no_writes_to_wait_for(n_writes: int) -> None:
    seen: list[Behind] = []

    class Direct:
        def request(self, _: object, behind: Behind) -> None:
            seen.append(behind)

    mixed = Asked(range(3, 7), [read_all()] * (4 - n_writes) + [add(1, 1)] * n_writes)
    snapshot = msgspec.structs.replace(read_all(), isolation="snapshot")
    requests = requests_of(reads(range(3), "sequential"), mixed, (7, snapshot), direct=Direct())  # type: ignore[arg-type]

    requests.pack(10, 100, 1 << 20)

    assert requests.last_write == (16 if n_writes else 0)
    assert seen[0].written == requests.last_write


@pytest.mark.parametrize(
    "odd", [{"isolation": "snapshot"}, {"load": LoadEnd("publish", LoadId(ME, 1), 1, "job", 1)}]
)
def test_what_does_not_all_go_through_the_order_is_not_taken_together(odd: dict[str, object]) -> None:
    other = msgspec.structs.replace(read_all(), **odd)
    requests = requests_of()

    assert not requests.take_together(Asked(range(3), [read_all(), other, read_all()]))
    assert len(requests) == 0


def test_a_client_submits_what_is_alike_and_tells_of_each() -> None:
    desk = Desk(connected=(S0,))
    desk.core.request_together(reads(range(2, 5), "sequential"))
    desk.core.request(5, msgspec.structs.replace(add(1, 1), ranges=(FULL_RING,)))
    desk.flush()
    assert desk.core.n_in_flight == 4
    assert desk.core.numbers() == {2: 2, 3: 3, 4: 4, 5: 5}

    desk.tell(S0, rows(3, (FULL_RING,), 7, at=10))
    desk.tell(S0, wrote(5, FULL_RING, at=12))
    desk.stable(5)

    assert [desk.outcome(token) is not None for token in range(2, 6)] == [False, True, False, True]
    assert desk.outcome(3).latest == 10
    assert desk.core.n_in_flight == 2


@pytest.mark.parametrize("isolation", ["snapshot", "basic"])
def test_reads_around_the_order_are_looked_at_one_by_one(isolation: Isolation) -> None:
    desk = Desk(connected=(S0,))
    desk.core.request_together(reads(range(2, 5), isolation))

    assert desk.core.n_in_flight == 3
    assert not desk.core._requests
    assert len(desk.core._direct) == 3


def test_who_takes_nothing_more_refuses_what_is_alike_one_by_one() -> None:
    desk = Desk(connected=(S0,))
    desk.core._closed = "it is over"
    desk.core.request_together(reads(range(2, 4), "sequential"))
    desk.flush()

    assert [isinstance(desk.outcome(token), ClosedError) for token in (2, 3)] == [True, True]
