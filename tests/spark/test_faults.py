"""Loads under failures: of tasks, workers, storage processes and moves; all rows once, or none."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.errors import PySparkException

import crescando
from crescando import Store, Table
from crescando.client.tickets import LoadTicket
from crescando.cluster import Cluster
from crescando.errors import CrescandoError, LoadGoneError
from crescando.routing.rubberband.loads import Load
from crescando.spark import load
from crescando.spark.frames import _staged
from crescando.spark.options import write_options
from crescando.spark.writing import Staged, begin, commit, kept_alive, stage
from tests.spark.conftest import PATIENCE_S
from tests.spark.tables import fresh, keyed

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SCHEMA = "id bigint, amount bigint, note string"
N, PARTS = 4_000, 4

Batches = Iterable[Any]


@pytest.fixture
def table(store: Store[Cluster]) -> Table:
    return store.create_table(keyed(fresh("fault")))


def frame(spark: SparkSession, through: Callable[[Batches], Iterator[Any]] | None = None) -> DataFrame:
    """Give N rows in PARTS partitions, several batches each, which pass through a function."""
    rows = spark.range(0, N, 1, PARTS).selectExpr("id", "id % 7 as amount", "concat('n', id) as note")
    return rows if through is None else rows.mapInArrow(through, SCHEMA)


def ids(table: Table) -> list[int]:
    return sorted(table.select(["id"]).column("id"))


def save(df: DataFrame, at: dict[str, str], table: Table, way: str) -> None:
    """Load a frame, by the data source or by the function."""
    if way == "source":
        df.write.format("crescando").mode("append").options(**at, table=table.name).save()
    else:
        load(df, table.name, **at)


WAYS = ("source", "function")


def once(marker: str, act: Callable[[], None]) -> None:
    """Do something in the first process that comes by."""
    try:
        os.close(os.open(marker, os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return
    act()


def _fail() -> None:
    raise RuntimeError("a task that fails")


def fails_once(marker: str, batches: Batches) -> Iterator[Any]:
    """Give some batches, then fail, the first time."""
    for number, batch in enumerate(batches):
        if number == 2:
            once(marker, _fail)
        yield batch


def always_fails(batches: Batches) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        yield batch
        if number == 2:
            _fail()


def _kill_the_others() -> None:
    """Kill the Python workers beside this one: among them is who stages this task's rows."""
    me = os.getpid()
    for path in Path("/proc").iterdir():
        if path.name.isdigit() and int(path.name) != me:
            try:
                parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            except (OSError, ValueError):
                continue
            if parent == os.getppid():
                os.kill(int(path.name), signal.SIGKILL)


def kills_once(marker: str, batches: Batches) -> Iterator[Any]:
    """Give some batches, then kill who takes them, the first time."""
    for number, batch in enumerate(batches):
        yield batch
        if number == 1:
            once(marker, _kill_the_others)


def waits(here: str, go: str, batches: Batches) -> Iterator[Any]:
    """Give some batches, say so, and go on when told to."""
    for number, batch in enumerate(batches):
        yield batch
        if number == 2:
            Path(here).touch()
            while not Path(go).exists():
                time.sleep(0.02)


@pytest.fixture(autouse=True)
def small_batches(spark: SparkSession) -> Iterator[None]:
    setting = "spark.sql.execution.arrow.maxRecordsPerBatch"
    spark.conf.set(setting, "100")
    yield
    spark.conf.unset(setting)


@pytest.mark.parametrize("way", WAYS)
def test_a_task_that_fails_and_is_tried_again_counts_once(
    spark: SparkSession, at: dict[str, str], table: Table, tmp_path: Path, way: str
) -> None:
    marker = tmp_path / "failed"
    save(frame(spark, partial(fails_once, str(marker))), at, table, way)
    assert marker.exists()
    assert ids(table) == list(range(N))


@pytest.mark.parametrize("way", WAYS)
def test_a_job_that_fails_loads_nothing(
    spark: SparkSession, at: dict[str, str], table: Table, way: str
) -> None:
    with pytest.raises(PySparkException, match="a task that fails"):
        save(frame(spark, always_fails), at, table, way)
    assert ids(table) == []
    # Nothing is left of it either.
    assert load(frame(spark), table.name, **at).inserted == N


@pytest.mark.parametrize("way", WAYS)
def test_workers_that_are_killed_count_once(
    spark: SparkSession, at: dict[str, str], table: Table, tmp_path: Path, way: str
) -> None:
    marker = tmp_path / "killed"
    save(frame(spark, partial(kills_once, str(marker))), at, table, way)
    assert marker.exists()
    assert ids(table) == list(range(N))


def last_waits(go: str, batches: Batches) -> Iterator[Any]:
    """Give batches, those of the last partition when told to."""
    from pyspark import TaskContext

    context = TaskContext.get()
    while context is not None and context.partitionId() == PARTS - 1 and not Path(go).exists():
        time.sleep(0.02)
    yield from batches


def test_tasks_that_stage_rows_keep_their_load(
    spark: SparkSession, store: Store[Cluster], at: dict[str, str], table: Table, tmp_path: Path
) -> None:
    go, end_s = tmp_path / "go", time.monotonic() + PATIENCE_S
    with ThreadPoolExecutor(1) as pool:
        done = pool.submit(load, frame(spark, partial(last_waits, str(go))), table.name, **at)
        try:
            while not any(each.renewals for each in _loads(store, table)):
                assert not done.done(), "nobody has renewed it"
                assert time.monotonic() < end_s, "nobody renews it"
                time.sleep(0.05)
        finally:
            go.touch()
        assert done.result().inserted == N


def test_a_driver_that_waits_for_its_tasks_keeps_its_load_and_one_that_is_gone_does_not(
    spark: SparkSession, store: Store[Cluster], at: dict[str, str], table: Table
) -> None:
    options = write_options({**at, "table": table.name, "lease_s": 6.0})
    ticket = begin(options, frame(spark).schema)
    with kept_alive(options, ticket):
        while _loads(store, table)[0].renewals < 5:
            time.sleep(0.05)
    end_s = time.monotonic() + PATIENCE_S
    while _loads(store, table):
        assert time.monotonic() < end_s, "it does not end"
        time.sleep(0.05)


def _loads(store: Store[Cluster], table: Table) -> list[Load]:
    return [each for each in store.cluster.config().loads.open if each.table == table.schema.id]


def staged_twice(place: Any, ticket: bytes, batches: Batches) -> Iterator[Any]:
    """Stage a task's rows as two attempts that both finish, as speculation does; tell of one."""
    kept = list(batches)
    stage(place, LoadTicket.decode(ticket), kept[: len(kept) // 2], PATIENCE_S)
    stage(place, LoadTicket.decode(ticket), kept, PATIENCE_S)
    yield from _staged(place, ticket, PATIENCE_S, kept)


def test_attempts_that_spark_does_not_name_do_not_count(
    spark: SparkSession, at: dict[str, str], table: Table
) -> None:
    options = write_options({**at, "table": table.name})
    ticket = begin(options, frame(spark).schema)
    task = partial(staged_twice, options.place, ticket.encode())
    rows = frame(spark).mapInArrow(task, "partition int, receipt binary, fault string").collect()
    assert len(rows) == PARTS
    outcome = commit(options, ticket, [Staged(row[0], bytes(row[1]), row[2]) for row in rows])
    assert outcome.inserted == N
    assert ids(table) == list(range(N))


def test_an_attempt_that_ends_after_the_commit_changes_nothing(
    spark: SparkSession, at: dict[str, str], table: Table, store: Store[Cluster]
) -> None:
    options = write_options({**at, "table": table.name})
    ticket = begin(options, frame(spark).schema)
    late = store.stage(ticket, 0, 1)
    late.write([{"id": -1, "amount": 0, "note": "late"}])
    rows = frame(spark).mapInArrow(
        partial(_staged, options.place, ticket.encode(), PATIENCE_S),
        "partition int, receipt binary, fault string",
    )
    commit(options, ticket, [Staged(row[0], bytes(row[1]), row[2]) for row in rows.collect()])
    with pytest.raises(LoadGoneError):
        late.finish()
    assert ids(table) == list(range(N))


def during(
    job: Callable[[], object], here: Path, go: Path, act: Callable[[], object]
) -> BaseException | None:
    """Do something while a job is in the middle of staging; gives what the job failed with."""
    is_over = threading.Event()

    def interfere() -> None:
        try:
            while not here.exists() and not is_over.is_set():
                time.sleep(0.02)
            act()
        finally:
            go.touch()

    # The job keeps the main thread: others have no active session, and find no data source of Python.
    with ThreadPoolExecutor(1) as pool:
        interfering = pool.submit(interfere)
        try:
            job()
        except Exception as error:  # noqa: BLE001  # It is told to the test.
            return error
        finally:
            is_over.set()
            interfering.result()
    return None


@pytest.fixture
def own(certs: Path) -> Iterator[tuple[Store[Cluster], dict[str, str], Table]]:
    """A store that may be harmed: any row is kept twice."""
    with crescando.open(routers=3, storages=3, supers=3, replication=2, timeout_s=PATIENCE_S) as store:
        at = {"url": store.serve(tls=certs), "tls": str(certs)}
        yield store, at, store.create_table(keyed("t"))


def test_moves_and_deaths_while_a_load_is_staged(
    spark: SparkSession, own: tuple[Store[Cluster], dict[str, str], Table], tmp_path: Path
) -> None:
    """A range moves before the commit; a storage process dies; at last the quorum is lost."""
    store, at, table = own
    options = write_options({**at, "table": "t"})
    ticket = begin(options, frame(spark).schema)
    rows = frame(spark).mapInArrow(
        partial(_staged, options.place, ticket.encode(), PATIENCE_S),
        "partition int, receipt binary, fault string",
    )
    staged = [Staged(row[0], bytes(row[1]), row[2]) for row in rows.collect()]
    store.cluster.start_storage(timeout_s=PATIENCE_S)
    store.cluster.expand().result(PATIENCE_S)
    assert ids(table) == []
    assert commit(options, ticket, staged).inserted == N
    assert ids(table) == list(range(N))

    here, go = tmp_path / "here", tmp_path / "go"
    slow = frame(spark, partial(waits, str(here), str(go)))
    doubled = slow.selectExpr("id", "-1L as amount", "note")

    def replace() -> None:
        doubled.write.format("crescando").mode("append").options(**at, table="t", rule="replace").save()

    error = during(replace, here, go, lambda: store.cluster.kill("storage/s1"))
    assert error is None, error
    assert sorted(table.select(["id", "amount"]).rows()) == [(number, -1) for number in range(N)]

    here.unlink()
    go.unlink()
    more = slow.selectExpr(f"id + {N} as id", "amount", "note")

    def lose_the_quorum() -> None:
        for router in ("router/r1", "router/r2"):
            store.cluster.kill(router)

    error = during(lambda: load(more, "t", timeout_s=3, **at), here, go, lose_the_quorum)
    assert isinstance(error, CrescandoError), error
    assert "\n" not in str(error)
