"""Every decision of Rubberband against the brute-force twin, scalar and vectorised."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import pairwise

import pytest

from crescando.routing.base import Refusal, Routes, destset
from crescando.routing.batch import Message, submission
from crescando.routing.rubberband import Join, Rubberband, cover, run
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId
from tests.routing.twin import (
    REFUSED,
    convicted,
    holders,
    minimum_cover_size,
    pieces,
    twin_after,
    twin_destset,
    twin_suspects,
    view_of,
)
from tests.routing.worlds import (
    CLIENT,
    OUTSIDER,
    config_message,
    data_message,
    random_config,
    random_config_message,
    random_data_message,
    random_keyspace_message,
    random_ring,
    storage,
)

SEEDS = range(150)
MESSAGES = 40


def plain(route: object) -> object:
    """Give a route as the twin gives it."""
    return REFUSED if isinstance(route, Refusal) else dict(route)  # type: ignore[call-overload]


def messages_of(rng: random.Random, config: Rubberband, n: int) -> list[Message]:
    sender = rng.choices([CLIENT, storage(0), OUTSIDER], [20, 1, 1])[0]
    return [random_data_message(rng, config, sender=sender, number=5 + i) for i in range(n)]


def outcomes(routes: Routes) -> list[object]:
    return [routes.routes[group] for group in routes.group.tolist()]


@pytest.mark.parametrize("seed", SEEDS)
def test_scalar_and_vectorised_routes_are_those_of_the_twin(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    messages = messages_of(rng, config, MESSAGES)

    scalar = [destset(config, message) for message in messages]
    batch = submission(messages)
    vectorised = outcomes(config.route(batch, 0, len(messages)))
    start, stop = sorted((rng.randrange(MESSAGES + 1), rng.randrange(MESSAGES + 1)))
    part = config.route(batch, start, stop)

    view = view_of(config)
    assert [plain(route) for route in scalar] == [twin_destset(view, m) for m in messages], f"seed {seed}"
    for one, other in zip(scalar, vectorised, strict=True):
        assert plain(one) == plain(other), f"seed {seed}"
        if isinstance(one, Refusal):
            assert isinstance(other, Refusal)
            assert one.reason == other.reason
    assert list(map(plain, outcomes(part))) == list(map(plain, scalar[start:stop]))
    assert set(part.group.tolist()) == set(range(len(part.routes)))


@pytest.mark.parametrize("seed", range(20))
def test_bounds_on_memory_change_no_route(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    messages = messages_of(rng, config, 200)
    expected = [twin_destset(view_of(config), message) for message in messages]

    monkeypatch.setattr(run, "ROWS_MAX", 7)
    monkeypatch.setattr(cover, "ROUTES_KEPT_MAX", 3)

    assert list(map(plain, outcomes(config.route(submission(messages), 0, 200)))) == expected
    assert [plain(destset(config, message)) for message in messages] == expected


def test_random_worlds_meet_the_hard_cases() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        rng = random.Random(seed)
        config = random_config(rng)
        met["failed"] += bool(config.failed)
        met["pending"] += bool(config.pending)
        met["wraps"] += config.ring.wraps
        met["client"] += CLIENT in config.clients
        for message in messages_of(rng, config, MESSAGES):
            route = destset(config, message)
            if isinstance(route, Refusal):
                met[route.reason.partition(":")[0].split()[0]] += 1
            else:
                met["several"] += message.kind is MessageKind.READ and len(route) > 2
                met["silent"] += () in route.values()

    assert met["client"] > 100
    assert met["failed"] > 50
    assert met["pending"] > 20
    assert met["wraps"] > 50
    assert met["several"] > 100
    assert met["silent"] > 100
    assert min(met["ring"], met["table"] + met["no"], met["a"]) > 20, met


@pytest.mark.parametrize("seed", range(120))
def test_configuration_messages_do_what_the_twin_does(seed: int) -> None:
    rng = random.Random(seed)
    config = random_ring(rng)
    for number in range(2, 60):
        config = _step(rng, config, random_config_message(rng, config, number))


@pytest.mark.parametrize("seed", SEEDS)
def test_changes_of_the_keyspace_do_what_the_twin_does(seed: int) -> None:
    for _ in _walk_of_changes(random.Random(seed)):
        """Each step is compared with the twin's."""


def _walk_of_changes(rng: random.Random) -> Iterator[tuple[Rubberband, Message, Rubberband]]:
    """Go on from a ring with processes on standby, mostly by messages about its keyspace."""
    config = random_ring(rng)
    for place in range(4):
        process = ProcessId("storage", f"n{place}")
        config = config.apply(config_message(process, Join(process)))
    for number in range(2, 40):
        message = random_keyspace_message(rng, config, number)
        if message is None or rng.random() < 0.15:
            message = random_config_message(rng, config, number)
        before, config = config, _step(rng, config, message)
        yield before, message, config


def _step(rng: random.Random, config: Rubberband, message: Message) -> Rubberband:
    """Apply a message; the twin must say the same of it, and of a data message behind it."""
    view = view_of(config)
    before = config.encode()

    route, suspects, after = destset(config, message), config.suspects(message), config.apply(message)

    assert plain(route) == twin_destset(view, message)
    assert suspects == twin_suspects(view, message)
    expected, seen = twin_after(view, message), view_of(after)
    assert replace(seen, tables=()) == replace(expected, tables=())
    assert after.pending == convicted(seen)
    if isinstance(route, Refusal) or not route:
        assert after.encode() == before
    data = random_data_message(rng, after)
    assert plain(destset(after, data)) == twin_destset(seen, data)
    return after


def test_random_changes_meet_the_hard_cases() -> None:
    met: Counter[str] = Counter()
    for seed in SEEDS:
        for before, message, after in _walk_of_changes(random.Random(seed)):
            n_ended = before.ring != after.ring
            n_left = len(after.changes) - len(before.changes)
            if n_left == 1:
                met[f"begins as {min(len(after.changes), 3)}"] += 1
            met["refused"] += isinstance(destset(before, message), Refusal)
            met["ends"] += n_ended
            met["ends with others"] += n_ended and n_left < -1
            met["dropped"] += not n_ended and n_left < 0
            met["one of several dropped"] += not n_ended and n_left < 0 < len(after.changes)
            met["goes on beside a failure"] += bool(after.changes) and len(after.storages) < len(
                before.storages
            )
            met["waits for one it builds on"] += any(change.is_complete for change in after.changes)

    assert min(met.values()) >= 15, met
    assert min(met["begins as 1"], met["refused"], met["ends"], met["dropped"]) > 150, met


@pytest.mark.parametrize("seed", SEEDS)
def test_scopes_partition_the_touched_arcs_among_owners(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    view = view_of(config)
    for message in messages_of(rng, config, MESSAGES):
        route = destset(config, message)
        if isinstance(route, Refusal) or not route:
            continue
        touched = [
            piece
            for piece in pieces(view.ring)
            if any(r.low <= piece[1] and piece[0] <= r.high for r in message.ranges)
        ]
        owners = {piece: holders(view.ring, view.replication, piece) for piece in touched}
        answered = []
        for process, scope in route.items():
            assert process in config.storages
            assert list(scope) == sorted(scope)
            assert all(a.high + 1 < b.low for a, b in pairwise(scope)), "not maximal"
            for key_range in scope:
                inside = [p for p in touched if key_range.low <= p[0] and p[1] <= key_range.high]
                assert (inside[0][0], inside[-1][1]) == key_range, "scope bounds are arc bounds"
                assert all(process in owners[piece] for piece in inside)
                answered += inside
        assert sorted(answered) == touched, "every touched arc is answered exactly once"
        if message.kind is MessageKind.READ:
            assert all(route.values())
        else:
            writers = {process for piece in touched for process in owners[piece]} & config.storages
            copies = [copy for change in config.changes for copy in change.copies]
            arcs = [KeyRange(*piece) for piece in touched]
            receiving = {copy.receiver for copy in copies if _overlap(copy.scope, arcs)}
            assert set(route) == writers | receiving


def _overlap(some: Sequence[KeyRange], others: Sequence[KeyRange]) -> bool:
    return any(a.low <= b.high and b.low <= a.high for a in some for b in others)


@pytest.mark.parametrize("seed", SEEDS)
def test_reads_use_as_few_processes_as_any_subset_could(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    view = view_of(config)
    able = config.storages - config.pending
    for message in messages_of(rng, config, MESSAGES):
        route = destset(config, message)
        if isinstance(route, Refusal) or not route or message.kind is not MessageKind.READ:
            continue
        answering = {
            piece: tuple(p for p in holders(view.ring, view.replication, piece) if p in able)
            for piece in pieces(view.ring)
            if any(r.low <= piece[1] and piece[0] <= r.high for r in message.ranges)
        }
        assert len(route) == minimum_cover_size(answering)


@pytest.mark.parametrize(("n", "f"), [(1, 1), (4, 1), (4, 3), (5, 5), (12, 5), (7, 2)])
def test_point_reads_go_to_one_process_and_point_writes_to_f(n: int, f: int) -> None:
    rng = random.Random(n * 10 + f)
    config = random_ring(rng)
    while (len(config.ring.ids), config.ring.replication) != (n, f):
        config = random_ring(rng)
    for at in (0, config.ring.ids[-1], (1 << 64) - 1):
        point = [KeyRange(at, at)]

        assert len(config.destset(data_message(MessageKind.READ, point, 3))) == 1
        assert len(config.destset(data_message(MessageKind.WRITE, point))) == f
    whole = config.destset(data_message(MessageKind.READ, [FULL_RING]))
    assert len(whole) == -(-n // f)


@pytest.mark.parametrize("seed", range(20))
def test_routes_that_are_remembered_are_those_that_would_be_found(seed: int) -> None:
    rng = random.Random(seed)
    config = random_config(rng)
    batches = [submission(messages_of(rng, config, MESSAGES)) for _ in range(cover.RUNS_KEPT_MAX + 2)]
    first = [outcomes(config.route(batch, 0, MESSAGES)) for batch in batches]

    for _ in range(60):
        index = rng.randrange(len(batches))
        start = rng.choice((0, 0, 7))
        again = outcomes(config.route(batches[index], start, MESSAGES))
        assert list(map(plain, again)) == list(map(plain, first[index][start:])), seed
