"""Sessions and stores: tables, closing, forks."""

from __future__ import annotations

import asyncio
import os
import threading

import numpy as np
import pandas as pd
import pytest

from crescando.client.store import Session, Store
from crescando.errors import (
    ClosedError,
    RefusedError,
    SpecError,
    StatementError,
    UnknownColumnError,
    UnknownTableError,
)
from crescando.schema import ColumnDef, DataType, RangePartition, TableSchema
from tests.client.backend import EngineBackend
from tests.client.tables import FLIGHTS


class Opened:
    """A store over fakes, and what became of them."""

    def __init__(self) -> None:
        self.backends: list[EngineBackend] = [EngineBackend()]
        self.shut_down: list[float] = []
        self.store: Store[dict[str, int]] = Store(
            self.backends[0],
            connect=self._connect,
            cluster={"routers": 1},
            shutdown=self.shut_down.append,
            description="1 router, 1 storage; in memory, nothing kept",
        )

    def _connect(self, name: str) -> EngineBackend:
        self.backends.append(EngineBackend())
        return self.backends[-1]


def test_tables_are_made_listed_found_and_dropped() -> None:
    session = Session(EngineBackend())
    session.create_table(FLIGHTS)
    session.create_table("seats", like={"flight": [1], "seat": ["1A"]}, primary_key=["flight", "seat"])

    assert session.tables() == ("flights", "seats")
    assert session.table("seats").schema.primary_key == ("flight", "seat")
    session.drop_table("seats")
    assert session.tables() == ("flights",)
    with pytest.raises(UnknownTableError):
        session.drop_table("seats")
    with pytest.raises(RefusedError, match="exists"):
        session.create_table(FLIGHTS)


def test_unknown_table_has_the_nearest() -> None:
    session = Session(EngineBackend())
    flights = session.create_table(FLIGHTS)
    with pytest.raises(UnknownTableError) as caught:
        session.table("flihgts")
    assert caught.value.nearest == "flights"

    session.drop_table("flights")
    with pytest.raises(UnknownTableError):
        flights.select()


def test_a_table_that_another_session_made_is_found() -> None:
    backend = EngineBackend()
    backend._create(FLIGHTS)

    assert Session(backend).table("flights").count() == 0


@pytest.mark.parametrize(
    "arguments",
    [
        {"schema": "t"},
        {"schema": "t", "like": {"a": [1]}},
        {"schema": "t", "like": {"a": [1]}, "primary_key": "a", "partition_key": "b"},
        {"schema": "not a name", "like": {"a": [1]}, "primary_key": "a"},
        {"schema": FLIGHTS, "like": {"a": [1]}},
        {"schema": TableSchema("t", (ColumnDef("a", DataType.INT8),), "a")},
        {"schema": "t", "like": {"a": ["x"]}, "primary_key": "a", "partition": RangePartition(0, 9)},
    ],
)
def test_impossible_tables_are_refused(arguments) -> None:
    with pytest.raises((SpecError, UnknownColumnError)):
        Session(EngineBackend()).create_table(**arguments)


def test_catalog_changes_can_be_awaited() -> None:
    async def main() -> None:
        async with Session(EngineBackend()) as session:
            flights = await session.create_table_nowait(FLIGHTS)
            assert (await flights.insert({"id": 1})).affected == 1
            assert await session.tables_nowait() == ("flights",)
            assert await (await session.table_nowait("flights")).count_nowait() == 1
            await session.drop_table_nowait("flights")
            assert await session.tables_nowait() == ()
        with pytest.raises(ClosedError):
            session.tables_nowait()

    asyncio.run(main())


def test_a_store_is_a_session_and_makes_others() -> None:
    opened = Opened()
    with opened.store as store:
        store.create_table(FLIGHTS)
        assert store.tables() == ("flights",)
        first = store.session("agent-1")
        assert store.session("agent-1") is first
        assert store.session("agent-2") is not first
        assert store.cluster == {"routers": 1}
        assert "in memory, nothing kept" in repr(store)

    assert [backend.n_closed for backend in opened.backends] == [1, 1, 1]
    assert len(opened.shut_down) == 1
    assert repr(store).endswith("closed>")
    assert first.is_closed
    for call in (lambda: store.session("agent-1"), lambda: store.table("flights"), first.tables):
        with pytest.raises(ClosedError):
            call()
    store.close()
    assert len(opened.shut_down) == 1


def test_a_closed_session_s_name_can_be_used_again() -> None:
    opened = Opened()
    first = opened.store.session("a")
    first.close()

    assert opened.store.session("a") is not first


def test_threads_share_a_session() -> None:
    session = Session(EngineBackend())
    table = session.create_table("t", like={"k": [1], "v": [1]}, primary_key="k")
    lock = threading.Lock()  # The backend of these tests is not thread-safe; the session is.

    def work(start: int) -> None:
        for key in range(start, start + 25):
            with lock:
                handle = table.insert({"k": key, "v": 0})
            assert handle.result().affected == 1

    threads = [threading.Thread(target=work, args=(100 * n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert table.count() == 100
    assert session.in_flight() == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused() -> None:
    opened = Opened()
    table = opened.store.create_table(FLIGHTS)
    handle = table.insert({"id": 1})
    child = os.fork()
    if child == 0:
        refused = 0
        for call in (
            lambda: table.insert({"id": 2}),
            handle.result,
            handle.stable,
            table.select,
            opened.store.tables,
        ):
            try:
                call()
            except ClosedError as error:
                refused += "forked" in str(error)
        opened.store.close()
        os._exit(0 if refused == 5 and not opened.shut_down else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert table.count() == 1


@pytest.mark.parametrize("wanted", [-1, float("nan"), float("inf"), 1e9])
def test_no_wait_is_for_ever(wanted: float) -> None:
    with pytest.raises(StatementError, match="timeout_s"):
        Session(EngineBackend(), timeout_s=wanted)
    with pytest.raises(StatementError, match="timeout_s"):
        Session(EngineBackend()).close(wanted)


def test_a_frame_s_types_become_the_schema() -> None:
    frame = pd.DataFrame(
        {
            "id": np.array([1], np.int32),
            "name": ["x"],
            "n": pd.array([1], dtype="Int8"),
            "x": [0.5],
            "ok": [True],
            "at": pd.to_datetime(["2013-07-04"]).tz_localize("UTC"),
        }
    )
    schema = Session(EngineBackend()).create_table("t", like=frame, primary_key="id").schema

    assert [(c.name, c.type, c.nullable) for c in schema.columns] == [
        ("id", DataType.INT32, False),
        ("name", DataType.STRING, True),
        ("n", DataType.INT8, True),
        ("x", DataType.FLOAT64, True),
        ("ok", DataType.BOOL, True),
        ("at", DataType.TIMESTAMP, True),
    ]
