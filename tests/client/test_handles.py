"""Waiting: deadlines, event loops, changed schemas, failures."""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
import time
from concurrent.futures import Future

import pytest

from crescando.client.base import SchemaChanged
from crescando.client.expression import col
from crescando.client.store import Session
from crescando.client.table import Table
from crescando.errors import (
    CrescandoError,
    DeadlineError,
    LostError,
    ReadLostError,
    RefusedError,
    TypeMismatchError,
    UnknownTableError,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS


@pytest.fixture
def backend() -> EngineBackend:
    return EngineBackend()


@pytest.fixture
def session(backend: EngineBackend) -> Session:
    return Session(backend)


@pytest.fixture
def flights(session: Session) -> Table:
    return session.create_table(FLIGHTS)


def test_writes_return_at_once_and_are_counted_until_answered(
    session: Session, flights: Table, backend: EngineBackend
) -> None:
    backend.hold()

    handles = [flights.insert({"id": n}) for n in range(5)]

    assert session.in_flight() == 5
    assert not any(handle.done() for handle in handles)
    assert handles[0].position is None
    assert "on its way" in repr(handles[0])
    backend.release()
    assert session.in_flight() == 0
    assert all(handle.done() for handle in handles)
    positions = [handle.result().position for handle in handles]
    assert positions == sorted(set(positions))
    assert [handle.number for handle in handles] == [1, 2, 3, 4, 5]


def test_a_passed_deadline_is_unknown_and_the_store_stays_usable(
    flights: Table, backend: EngineBackend
) -> None:
    backend.hold()
    handle = flights.insert({"id": 1})

    for wait in (handle.result, handle.stable, flights.select_nowait().result):
        with pytest.raises(DeadlineError, match=r"not answered within 0\.01 s") as caught:
            wait(0.01)
        assert caught.value.applied == "unknown"
    with pytest.raises(DeadlineError):
        flights.select(timeout_s=0.01)

    backend.release()
    assert handle.result().affected == 1
    assert flights.count() == 1


def test_the_session_s_default_deadline_applies_everywhere(backend: EngineBackend) -> None:
    session = Session(backend, timeout_s=0.01)
    flights = session.create_table(FLIGHTS)
    backend.hold()

    for call in (
        flights.select,
        flights.count,
        flights.insert({"id": 1}).result,
        flights.insert({"id": 1}).stable,
        session.tables,
        lambda: session.table("other"),
        lambda: session.drop_table("flights"),
        lambda: session.create_table(TableSchema("b", FLIGHTS.columns, "id")),
    ):
        with pytest.raises(DeadlineError):
            call()


def test_a_deadline_while_awaiting_cancels_nothing(flights: Table, backend: EngineBackend) -> None:
    async def main() -> None:
        backend.hold()
        handle = flights.insert({"id": 1})
        with pytest.raises(DeadlineError):
            await handle.wait(0.01)
        task = asyncio.create_task(handle.wait())
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        backend.release()
        assert (await handle).affected == 1

    asyncio.run(main())


def test_another_thread_wakes_waiters_and_awaiters(flights: Table, backend: EngineBackend) -> None:
    backend.hold()
    handle = flights.insert({"id": 1})
    waiting = threading.Event()
    found: list[int] = []

    def wait() -> None:
        waiting.set()
        found.append(handle.result(20).affected)

    async def main() -> None:
        asyncio.get_running_loop().call_soon(releaser.start)
        assert (await handle.wait(20)).affected == 1

    waiter = threading.Thread(target=wait)
    releaser = threading.Thread(target=backend.release)
    waiter.start()
    assert waiting.wait(20)
    asyncio.run(main())
    waiter.join(20)
    releaser.join(20)
    assert found == [1]


def test_a_thousand_awaitables_at_once(flights: Table, backend: EngineBackend) -> None:
    async def main() -> None:
        backend.hold()
        handles = flights.prepare_update("id = ?", "delay = ?").many([(n, n) for n in range(1000)])
        tasks = [asyncio.create_task(handle.wait()) for handle in handles]
        await asyncio.sleep(0)
        backend.release()
        assert len(await asyncio.gather(*tasks)) == 1000

    asyncio.run(main())


def test_blocking_inside_an_event_loop_names_the_twin(
    session: Session, flights: Table, backend: EngineBackend
) -> None:
    async def main() -> None:
        done = flights.insert({"id": 1})
        assert done.result().affected == 1, "what is known needs no wait"
        backend.hold()
        for call, twin in (
            (flights.insert({"id": 2}).result, "await handle"),
            (flights.insert({"id": 3}).stable, r"await handle\.wait_stable\(\)"),
            (flights.select, "await"),
            (session.tables, "await"),
        ):
            with pytest.raises(CrescandoError, match=twin):
                call()

    asyncio.run(main())
    backend.release()
    assert flights.count() == 3


@pytest.mark.parametrize(
    ("error", "applied"),
    [(RefusedError("no"), "no"), (LostError("gone"), "unknown"), (ReadLostError("gone"), "no")],
)
def test_failures_are_told_as_they_are(
    flights: Table, backend: EngineBackend, error: Exception, applied: str
) -> None:
    backend.fail_next.append(error)
    handle = flights.insert({"id": 1})

    with pytest.raises(type(error)) as caught:
        handle.result()
    with pytest.raises(type(error)):
        handle.stable()

    assert caught.value.applied == applied  # type: ignore[attr-defined]
    assert handle.done()
    assert handle.position is None


def test_a_changed_schema_is_prepared_again_once(flights: Table, backend: EngineBackend) -> None:
    widened = TableSchema(
        "flights", (ColumnDef("note", DataType.STRING), *reversed(FLIGHTS.columns)), "id", ("id",)
    )
    backend.replace_table(widened)

    handle = flights.insert({"id": 2, "origin": "LGA"})

    handle.stable()
    assert handle.result().affected == 1
    assert flights.select(["id", "note", "origin"]).rows() == [(2, None, "LGA")]


def test_every_kind_of_statement_survives_a_changed_schema(flights: Table, backend: EngineBackend) -> None:
    statements = (
        lambda: flights.select_nowait(["id"]),
        lambda: flights.count_nowait(),
        lambda: flights.update(col("id") == 1, {"delay": 1}),
        lambda: flights.delete("id = ?", (1,)),
        lambda: flights.upsert({"id": 5}),
    )
    for statement in statements:
        backend.replace_table(FLIGHTS)
        statement().result()


def test_a_refusal_is_final_only_if_the_table_is_what_it_was(flights: Table, backend: EngineBackend) -> None:
    refusal = RefusedError("no live owner")
    backend.fail_next.append(refusal)
    with pytest.raises(RefusedError, match="no live owner"):
        flights.insert({"id": 1}).result()
    assert flights.count() == 0

    backend.replace_table(FLIGHTS)
    backend.fail_next.append(RefusedError("table was dropped"))
    handle = flights.insert({"id": 1})
    handle.stable()
    assert handle.result().affected == 1


def test_a_held_back_retry_is_waited_for(flights: Table, backend: EngineBackend) -> None:
    backend.replace_table(FLIGHTS)
    backend.hold()
    handle = flights.insert({"id": 1})

    assert not handle.done()
    backend.release()
    assert handle.done()
    assert handle.result().affected == 1


@pytest.mark.parametrize("is_ordered", [True, False])
def test_stable_means_the_second_sending(flights: Table, backend: EngineBackend, is_ordered: bool) -> None:
    backend.changed_is_stable = is_ordered
    backend.fail_next.append(SchemaChanged("one"))
    flights.insert({"id": 1}).stable()
    assert flights.count() == 1

    backend.fail_next.extend([SchemaChanged("one"), SchemaChanged("two")])
    handle = flights.insert({"id": 2})
    if not is_ordered:
        with pytest.raises(RefusedError):
            handle.stable()
    with pytest.raises(RefusedError):
        handle.result()


def test_a_schema_that_changes_twice_is_refused(flights: Table, backend: EngineBackend) -> None:
    backend.fail_next.extend([SchemaChanged("one"), SchemaChanged("two")])

    with pytest.raises(RefusedError, match="changed twice"):
        flights.insert({"id": 1}).result()

    assert flights.count() == 0


def test_a_table_that_is_gone_or_different_is_told(flights: Table, backend: EngineBackend) -> None:
    backend.replace_table(TableSchema("flights", (ColumnDef("id", DataType.STRING, False),), "id", ("id",)))
    with pytest.raises(TypeMismatchError, match="was int32 and is string now"):
        flights.insert({"id": 1}).result()

    backend.hold()
    handle = flights.insert({"id": "a"})
    backend._drop("flights")
    backend.release()
    with pytest.raises(UnknownTableError):
        handle.result()


def test_a_backend_that_cannot_refresh_is_told_to_the_waiter(
    flights: Table, backend: EngineBackend, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: Future[dict[str, TableSchema]] = Future()
    failed.set_exception(LostError("no router"))
    monkeypatch.setattr(backend, "refresh_catalog", lambda: failed)
    backend.fail_next.append(SchemaChanged("one"))

    with pytest.raises(LostError):
        flights.insert({"id": 1}).result()


def interrupt_when_it_waits(thread: int) -> None:
    """Send a real interrupt to a thread that blocks for an answer: only that wakes a wait for a lock."""
    while sys._current_frames()[thread].f_code.co_name != "_block":
        time.sleep(0.01)
    time.sleep(0.05)
    signal.pthread_kill(thread, signal.SIGINT)


def test_an_interrupt_ends_the_wait_only(flights: Table, backend: EngineBackend) -> None:
    backend.hold()
    handle = flights.insert({"id": 1})
    interrupter = threading.Thread(target=interrupt_when_it_waits, args=(threading.get_ident(),), daemon=True)

    # Whoever started the tests may have interrupts ignored.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        interrupter.start()
        with pytest.raises(KeyboardInterrupt):
            handle.result(20)
        interrupter.join(20)
    finally:
        signal.signal(signal.SIGINT, before)

    backend.release()
    assert handle.result().affected == 1
    assert flights.count() == 1
