"""Transactions as programs write them: together or not at all, one result per write."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from random import Random

import pytest

import crescando
from crescando import col, errors
from crescando.client import transaction as module
from crescando.client.loading import ROWS_MAX
from crescando.client.store import Session
from crescando.client.table import Table
from crescando.client.transaction import ROWS_TOGETHER
from crescando.engine.statement import STEPS_MAX
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS

N_ACCOUNTS, EACH = 40, 100


@pytest.fixture
def backend() -> EngineBackend:
    return EngineBackend(3)


@pytest.fixture
def session(backend: EngineBackend) -> Session:
    made = Session(backend)
    made.create_table(FLIGHTS).insert([{"id": n, "delay": n} for n in range(10)]).result()
    return made


def delays(session: Session) -> dict[object, object]:
    return dict(session.table("flights").select(["id", "delay"]).rows())


def test_a_block_is_one_message_and_each_write_has_its_result(
    session: Session, backend: EngineBackend
) -> None:
    before = backend.n_batches
    with session.transaction() as both:
        flights = both.table("flights")
        first = flights.update("id < ?", "delay = delay + 10", (3,))
        second = flights.delete(col("delay") == 12, returning=["id"])
        third = flights.insert({"id": 50, "delay": 5})
        fourth = flights.upsert([{"id": 50, "delay": 6}, {"id": 51, "delay": 7}])
        assert not first.done()
        assert first.number == 0
    assert backend.n_batches == before + 1
    results = both.handle.result()
    assert [each.affected for each in results] == [3, 1, 1, 2]
    assert len({each.position for each in results}) == 1
    assert [handle.result().affected for handle in (first, second, third, fourth)] == [3, 1, 1, 2]
    assert results[1].returned is not None
    assert results[1].returned.rows() == [(2,)]
    assert both.handle.position == fourth.position == results[0].position
    assert both.handle.number == first.number > 0
    both.handle.stable()
    first.stable()
    assert delays(session) == {0: 10, 1: 11, **{n: n for n in range(3, 10)}, 50: 6, 51: 7}


def test_an_exception_in_the_block_sends_nothing(session: Session, backend: EngineBackend) -> None:
    before = backend.n_batches
    never = session.transaction()
    handles = []

    def fail_within() -> None:
        with never:
            handles.append(never.table("flights").delete(None))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail_within()
    (handle,) = handles
    assert backend.n_batches == before
    for ask in (handle.result, handle.stable, lambda: never.handle):
        with pytest.raises(errors.RefusedError, match="ZeroDivisionError") as caught:
            ask()
        assert caught.value.applied == "no"
    assert len(delays(session)) == 10


def test_reads_are_refused_with_the_reason(session: Session) -> None:
    with session.transaction() as writing:
        flights = writing.table("flights")
        flights.update("id = 1", {"delay": -1})
        for read in (flights.count, flights.select, flights.select_nowait, flights.prepare_select()):
            with pytest.raises(errors.StatementError, match=r"writes only.*predicates"):
                read()
    assert [each.affected for each in writing.handle.result()] == [1]
    assert delays(session)[1] == -1


def test_nothing_is_known_or_added_at_the_wrong_time(session: Session) -> None:
    writing = session.transaction()
    with writing:
        handle = writing.table("flights").delete("id = 1")
        assert "not sent" in repr(writing)
        assert "on its way" in repr(handle)
        for ask in (handle.result, handle.stable, lambda: writing.handle):
            with pytest.raises(errors.StatementError, match="when its block ends"):
                ask()
        flights = writing.table("flights")
    with pytest.raises(errors.StatementError, match="has ended"):
        flights.delete("id = 2")
    with pytest.raises(errors.StatementError, match="has ended"), writing:
        pass
    assert handle.result().affected == 1


def test_a_faulty_statement_raises_where_it_stands(session: Session) -> None:
    with session.transaction() as writing:
        flights = writing.table("flights")
        flights.delete("id = 1")
        with pytest.raises(errors.UnknownColumnError):
            flights.delete("idd = 1")
        with pytest.raises(errors.UnknownTableError):
            writing.table("flight")
    assert [each.affected for each in writing.handle.result()] == [1]


def test_no_writes_are_no_message(session: Session, backend: EngineBackend) -> None:
    before = backend.n_batches
    with session.transaction() as nothing:
        pass
    assert nothing.handle.result() == ()
    assert nothing.handle.position is None
    nothing.handle.stable()
    assert backend.n_batches == before


def test_rejected_rows_are_told_and_the_others_written(session: Session) -> None:
    with session.transaction() as writing:
        flights = writing.table("flights")
        flights.insert([{"id": 3}, {"id": 60}])
        flights.update("id = 4", {"delay": 44})
    with pytest.raises(errors.RowsRejectedError) as caught:
        writing.handle.result()
    assert caught.value.applied == "partial"
    results = writing.handle.result(check=False)
    assert [(each.affected, each.rejected) for each in results] == [(1, 1), (1, 0)]
    assert delays(session)[4] == 44


def test_prepared_writes_are_added_or_transacted(session: Session) -> None:
    flights = session.table("flights")
    set_delay = flights.prepare_update("id = ?", "delay = ?")
    with session.transaction() as writing:
        writing.add(set_delay.bind((100, 1)))
        writing.extend([set_delay.bind((200, 2)), set_delay.bind((300, 3))])
    assert [each.affected for each in writing.handle.result()] == [1, 1, 1]
    handle = session.transact([set_delay.bind((n, 9)) for n in range(5)])
    assert [each.affected for each in handle.result()] == [1] * 5
    assert (delays(session)[3], delays(session)[9]) == (300, 4)
    with pytest.raises(errors.StatementError, match="writes only"):
        session.transact([flights.prepare_select().bind()])  # type: ignore[list-item]


def test_a_changed_table_prepares_all_of_it_again(session: Session, backend: EngineBackend) -> None:
    backend.replace_table(FLIGHTS)
    with session.transaction() as writing:
        flights = writing.table("flights")
        flights.insert([{"id": 1, "delay": 1}])
        flights.update(None, {"delay": col("delay") + 1})
    assert [each.affected for each in writing.handle.result()] == [1, 1]
    assert delays(session) == {1: 2}


def test_there_are_bounds(session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    with session.transaction() as writing:
        flights = writing.table("flights")
        for n in range(STEPS_MAX):
            flights.update("id = ?", {"delay": n}, (n % 10,))
        with pytest.raises(errors.StatementError, match=f"at most {STEPS_MAX} writes"):
            flights.delete(None)
    assert len(writing.handle.result()) == STEPS_MAX
    monkeypatch.setattr(module, "ROWS_TOGETHER", 2 * ROWS_MAX)
    with session.transaction() as writing:
        flights = writing.table("flights")
        flights.insert({"id": list(range(100, 100 + ROWS_MAX + 1))})
        with pytest.raises(errors.StatementError, match="at most 16384 rows"):
            flights.insert({"id": list(range(20_000, 20_000 + ROWS_MAX))})
    (result,) = writing.handle.result()
    assert result.affected == ROWS_MAX + 1
    assert ROWS_TOGETHER >= ROWS_MAX


@pytest.fixture(scope="module")
def store() -> Iterator[crescando.Store]:
    with crescando.open(routers=3, storages=4, replication=2) as opened:
        accounts = opened.create_table(
            "accounts", like={"id": [1], "euro": [1]}, partition_key="id", primary_key="id"
        )
        accounts.insert({"id": list(range(N_ACCOUNTS)), "euro": [EACH] * N_ACCOUNTS}).result()
        log = opened.create_table("log", like={"entry": [1]}, partition_key="entry")
        assert log.count() == 0
        yield opened


def transfer(session: Session, source: int, target: int, amount: int) -> crescando.TransactionHandle:
    with session.transaction() as moving:
        accounts: Table = moving.table("accounts")
        accounts.update("id = ?", "euro = euro - ?", (amount, source))
        accounts.update("id = ?", "euro = euro + ?", (amount, target))
        moving.table("log").insert({"entry": amount})
    return moving.handle


def test_every_read_sees_transfers_whole(store: crescando.Store) -> None:
    stop = threading.Event()
    failures: list[str] = []

    def watch(name: str, isolation: str) -> None:
        session = store.session(name)
        accounts = session.table("accounts")
        while not stop.is_set():
            answer = accounts.select(["euro"], isolation=isolation)  # type: ignore[arg-type]
            total = sum(answer.column("euro"))  # type: ignore[arg-type]
            if total != N_ACCOUNTS * EACH:
                failures.append(f"{isolation}: {total}")

    watchers = [
        threading.Thread(target=watch, args=(f"w-{isolation}", isolation))
        for isolation in ("sequential", "snapshot")
    ]
    for watcher in watchers:
        watcher.start()
    random = Random(7)
    handles = []
    for n in range(300):
        source, target = random.sample(range(N_ACCOUNTS), 2)
        handles.append(transfer(store.session(f"s{n % 2}"), source, target, random.randrange(1, 9)))
    for handle in handles:
        assert [each.affected for each in handle.result()] == [1, 1, 1]
    stop.set()
    for watcher in watchers:
        watcher.join()
    assert not failures
    assert store.table("log").count() == 300
    replicas = store.cluster.replicas("accounts")
    rows: dict[object, list[object]] = {}
    for owner, arc in replicas:
        answer = store.cluster.read_replica(owner, arc, "accounts")
        rows.setdefault(arc, []).append(sorted(answer.rows()))
    assert all(copies[0] == copies[1] for copies in rows.values())


def test_transfers_stay_whole_when_an_owner_dies_among_them() -> None:
    with crescando.open(routers=3, storages=4, replication=2) as opened:
        accounts = opened.create_table(
            "accounts", like={"id": [1], "euro": [1]}, partition_key="id", primary_key="id"
        )
        opened.create_table("log", like={"entry": [1]}, partition_key="entry")
        accounts.insert({"id": list(range(N_ACCOUNTS)), "euro": [EACH] * N_ACCOUNTS}).result()
        random = Random(11)
        handles = []
        for n in range(200):
            if n == 100:
                opened.cluster.kill(opened.cluster.replicas("accounts")[0][0])
            source, target = random.sample(range(N_ACCOUNTS), 2)
            handles.append(transfer(opened, source, target, random.randrange(1, 9)))
        for handle in handles:
            try:
                results = handle.result(60)
            except errors.CountUnknownError:
                continue  # It happened, and whoever could count it is gone.
            assert [each.affected for each in results] == [1, 1, 1]
        assert sum(accounts.select(["euro"]).column("euro")) == N_ACCOUNTS * EACH  # type: ignore[arg-type]
        assert opened.table("log").count() == 200


def test_event_loops_await_transactions(store: crescando.Store) -> None:
    async def run() -> list[int]:
        with store.transaction() as writing:
            writing.table("log").insert({"entry": [1, 2, 3]})
            writing.table("log").delete("entry = 2")
        results = await writing.handle
        await writing.handle.wait_stable()
        return [each.affected for each in results]

    assert asyncio.run(run())[0] == 3


def test_a_dropped_table_refuses_the_whole(store: crescando.Store) -> None:
    store.create_table("brief", like={"n": [1]}, partition_key="n")
    before = store.table("log").count()
    session = store.session("late")
    session.table("brief")
    store.drop_table("brief")
    with session.transaction() as writing:
        writing.table("log").insert({"entry": 1})
        writing.table("brief").insert({"n": 1})
    with pytest.raises(errors.CrescandoError):
        writing.handle.result()
    assert store.table("log").count() == before
