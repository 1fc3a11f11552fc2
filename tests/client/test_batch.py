"""Operations submitted together: told of many at a time, one by one where somebody waits for one."""

from __future__ import annotations

import asyncio
import random
import threading
from collections import deque
from typing import Any

import pytest

import crescando
from crescando.client import stretches
from crescando.client.base import Batch, Pending, ReadInParts, SchemaChanged, WriteOutcome
from crescando.client.batch import spans_of
from crescando.client.store import Session
from crescando.errors import ClosedError, LostError, RefusedError
from crescando.types import Position
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS

DONE = [ReadInParts(Position(at)) for at in range(8)]


def ignored(batch: Batch, place: int) -> None:
    """Be told of a failure, and do nothing."""


@pytest.mark.parametrize("places", [range(2, 6), (2, 3, 4, 5), (5, 2, 3), (0, 7), (7, 0, 1)])
def test_outcomes_come_to_their_places(places: tuple[int, ...]) -> None:
    batch = Batch(11, 8, ignored)
    tokens = range(13, 17) if isinstance(places, range) else [11 + place for place in places]

    told = batch.settle(tokens, [DONE[place] for place in places])
    batch.settle_stable(tokens)

    assert not told
    assert [place for place, each in enumerate(batch.outcomes) if each is not None] == sorted(places)
    assert all(batch.outcomes[place] is DONE[place] for place in places)
    assert sorted({*range(8)} - set(places)) == list(batch.open())
    assert [batch.pending(place).stable.done() for place in range(8)] == [p in places for p in range(8)]


def test_a_waiter_is_told_whether_he_comes_before_or_after() -> None:
    batch = Batch(1, 3, ignored)
    told: list[Pending] = []
    early = batch.pending(1)
    early.add_done_callback(told.append)

    assert batch.pending(1) is early
    for pending in batch.settle((1, 2, 3), DONE[:3]):
        pending.tell()

    assert told == [early]
    assert batch.pending(1).result() is early.result() is DONE[1]
    batch.pending(2).add_done_callback(told.append)
    assert told[1].result() is DONE[2]


def test_a_failure_is_told_to_who_sent_and_who_waits() -> None:
    failed: list[tuple[Batch, int]] = []
    batch = Batch(5, 2, lambda *each: failed.append(each))
    waiting = batch.pending(1)

    assert batch.fail(6, LostError("gone")) == [waiting]

    assert failed == [(batch, 1)]
    assert isinstance(waiting.exception(), LostError)
    assert isinstance(batch.pending(1).exception(), LostError)
    assert batch.outcomes == [None, None]
    assert list(batch.open()) == [0]


def test_no_wait_is_lost_between_two_threads() -> None:
    n = 400
    for _ in range(20):
        batch = Batch(1, n, ignored)
        woken = threading.Semaphore(0)

        def wait(batch: Batch = batch, woken: threading.Semaphore = woken) -> None:
            for place in range(n):
                batch.pending(place).add_done_callback(lambda _: woken.release())

        waiter = threading.Thread(target=wait)
        waiter.start()
        for start in range(0, n, 40):
            tokens = range(start + 1, start + 41)
            Pending.tell_all(batch.settle(tokens, [DONE[0]] * 40))
        waiter.join()
        assert all(woken.acquire(timeout=5) for _ in range(n))


@pytest.mark.parametrize("stretch", [1, 2, 3, 4, 100])
def test_refused_ones_are_sent_again_unasked(stretch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STRETCH", stretch)
    backend = EngineBackend()
    flights = Session(backend).create_table(FLIGHTS)
    insert = flights.prepare_update("id = ?", "origin = ?")
    flights.insert([{"id": n} for n in range(4)]).result()
    backend.hold()
    handles = insert.many([(f"c{n}"[:2], n) for n in range(4)])
    backend.fail_next.extend([None, None, None, SchemaChanged("it changed")])
    backend.release()

    assert [row[0] for row in flights.select(["origin"], order_by="id").rows()] == ["c0", "c1", "c2", "c3"]
    assert [handle.result().affected for handle in handles] == [1, 1, 1, 1]


def test_a_session_that_closes_between_two_stretches_loses_no_handle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stretches, "STRETCH", 2)
    backend = EngineBackend()
    flights = Session(backend).create_table(FLIGHTS)
    flights.insert([{"id": n} for n in range(5)]).result()
    submit, n_batches = backend.submit_batch, 0

    def closes(*arguments: Any) -> Batch:
        nonlocal n_batches
        n_batches += 1
        if n_batches > 1:
            raise ClosedError("the session is closed")
        return submit(*arguments)

    monkeypatch.setattr(backend, "submit_batch", closes)
    update = flights.prepare_update("id = ?", "origin = ?")
    handles = update.many(deque([("c", n) for n in range(5)]))

    assert [handle.result().affected for handle in handles[:2]] == [1, 1]
    for handle in handles[2:]:
        with pytest.raises(ClosedError):
            handle.result()
    with pytest.raises(ClosedError):
        update.many([("d", 0), ("d", 1)])


def test_everything_one_handle_can_do_a_handle_of_many_can() -> None:
    with crescando.open() as store:
        table = store.create_table("t", like={"id": [1], "n": [0]}, primary_key="id")
        table.insert([{"id": n, "n": n} for n in range(50)]).result()
        read = table.prepare_select(["n"], "id = ?")
        add = table.prepare_update("id = ?", "n = n + ?")

        writes = add.many([(1, n) if n % 2 else (2, n) for n in range(50)])
        reads = read.many([(n,) for n in range(50)])

        writes[7].stable()
        assert [handle.result().affected for handle in writes] == [1] * 50
        assert [handle.number for handle in reads] == list(range(reads[0].number, reads[0].number + 50))
        assert all(handle.done() for handle in writes)
        assert writes[3].position == writes[3].result().position
        reads[9].cancel()
        assert [handle.result().rows() for handle in reversed(reads[10:])] == [
            [(n + 2 - n % 2,)] for n in reversed(range(10, 50))
        ]

        async def awaited() -> list[object]:
            return [each.rows() for each in await asyncio.gather(*read.many([(1,), (2,), (3,)]))]

        assert asyncio.run(awaited()) == [[(2,)], [(4,)], [(4,)]]
        mixed = store.submit_many([read.bind((1,)), add.bind((5, 1)), read.bind((1,))])
        assert [mixed[0].result().rows(), mixed[2].result().rows()] == [[(2,)], [(7,)]]
        assert isinstance(mixed[1]._flights[0].taken(), WriteOutcome)


def test_a_batch_that_is_refused_whole_sends_nothing() -> None:
    backend = EngineBackend()
    flights = Session(backend).create_table(FLIGHTS)
    flights.insert({"id": 1}).result()
    read = flights.prepare_select(["id"], "id = ?")
    backend.hold()
    handles = read.many([(1,), (2,)])
    backend.fail_next.extend([RefusedError("no"), LostError("gone")])
    backend.release()

    with pytest.raises(RefusedError):
        handles[0].result()
    with pytest.raises(LostError):
        handles[1].result()


def test_what_is_told_together_is_cut_where_another_batch_begins() -> None:
    """Whatever the order, and also where somebody has taken an operation away."""
    rng = random.Random(11)
    left, right = (Batch(first, 4, lambda _, __: None) for first in (2, 10))
    alone = [Pending(number) for number in (7, 8)]
    operations: dict[int, Any] = {
        **dict.fromkeys(range(2, 6), left),
        **dict(zip((7, 8), alone, strict=True)),
        **dict.fromkeys(range(10, 14), right),
    }
    for _ in range(200):
        tokens = rng.sample(range(2, 14), rng.randrange(1, 12))
        if rng.random() < 0.6:
            tokens.sort()
        found = [operations.get(token) for token in tokens]

        spans = list(spans_of(tokens, found))

        assert [place for start, stop in spans for place in range(start, stop)] == list(range(len(tokens)))
        for start, stop in spans:
            if isinstance(found[start], Batch):
                assert all(each is found[start] for each in found[start:stop])
            else:
                assert {type(each) for each in found[start:stop]} == {type(found[start])}
    assert list(spans_of(range(2, 6), [left] * 4)) == [(0, 4)]
    assert list(spans_of([4, 5, 10], [left, left, right])) == [(0, 2), (2, 3)]
