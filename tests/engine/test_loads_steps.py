"""Steps of loads one by one: what is refused, what is told, what it takes, and what a move takes along."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from crescando.engine.base import Failed, Piece
from crescando.engine.kv import KvEngine
from crescando.engine.loads import (
    ATTEMPT_MAX,
    JOBS_MAX,
    NO_EPOCH,
    NUMBER_MAX,
    PARTITION_MAX,
    Abort,
    Begin,
    Commit,
    LoadCount,
    LoadRecords,
    LoadRule,
    LoadStep,
    LoadWork,
    LoadWrite,
    Publish,
    Seal,
    Stage,
)
from crescando.engine.records import Records, Refused
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Column, Kind, Operation, Shape
from crescando.engine.written import Rejection, Written
from crescando.errors import InvariantError
from crescando.schema import DataType, TableSchema
from crescando.types import AT_COMMIT, FULL_RING, RING_MAX, KeyRange
from tests.engine.generator import as_column
from tests.engine.moves import travelled
from tests.engine.workbench import CLIENT
from tests.engine.workbench import table as declare

INT64, STRING = DataType.INT64, DataType.STRING
LOW, HIGH = KeyRange(0, RING_MAX // 2), KeyRange(RING_MAX // 2 + 1, RING_MAX)
SCHEMA = declare(("s", STRING), ("n", INT64))

MAKERS: dict[str, Callable[[], Any]] = {"scan": lambda: ScanEngine(64), "kv": KvEngine}


class Loader:
    """An engine with one table, and a position that counts up."""

    def __init__(
        self, kind: str, schema: TableSchema = SCHEMA, arcs: tuple[KeyRange, ...] = (LOW, HIGH)
    ) -> None:
        self.engine = MAKERS[kind]()
        self.engine.set_arcs(arcs)
        self.engine.create_table(schema)
        self.schema = schema
        self.position = 0

    def step(self, work: LoadWork) -> Written | Failed:
        self.position += 1
        step = LoadStep(self.position, CLIENT, self.position, (FULL_RING,), work)
        (results,) = self.engine.execute([step])
        (outcome,) = (*results.written, *results.failed)
        assert outcome.number == self.position if isinstance(outcome, Failed) else True
        return outcome

    def told(self, work: LoadWork) -> dict[LoadCount, int]:
        """Execute a step that must be possible; gives what was affected, and rejected rows below zero."""
        written = self.step(work)
        assert isinstance(written, Written), written
        sums = written.matrix().sum(axis=1).tolist()
        told = {
            LoadCount(step): count for step, count in zip(written.step.tolist(), sums, strict=True) if count
        }
        for remark in written.remarks:
            count = LoadCount(int(written.step[remark.write]))
            told[count] = told.get(count, 0) - remark.rejected
        return told

    def refused(self, work: LoadWork) -> str:
        failed = self.step(work)
        assert isinstance(failed, Failed), failed
        return failed.kind

    def begin(self, load: str, write: LoadWrite, rule: LoadRule = LoadRule.KEEP, *columns: int) -> None:
        assert self.told(Begin(load, 1, write, rule, columns or (0, 1, 2), load)) == {}

    def stage(
        self, load: str, *rows: tuple[Any, ...], at: tuple[int, int, int] = (0, 0, 0)
    ) -> dict[LoadCount, int]:
        kinds = (INT64, STRING, INT64)[: len(rows[0])]
        columns = (as_column(kind, [row[n] for row in rows]) for n, kind in enumerate(kinds))
        return self.told(Stage(load, *at, tuple(columns)))

    def commit(self, load: str, *winners: tuple[int, int]) -> dict[LoadCount, int]:
        return self.told(Commit(load, load, NO_EPOCH, winners or ((0, 0),)))

    def insert(self, *rows: tuple[Any, ...], kind: Kind = Kind.INSERT) -> Written:
        self.position += 1
        columns = (as_column(t, [row[n] for row in rows]) for n, t in enumerate((INT64, STRING, INT64)))
        shape = Shape(kind, 1, 1, columns=(0, 1, 2))
        operation = Operation(self.position, CLIENT, self.position, shape, tuple(columns), (FULL_RING,))
        (results,) = self.engine.execute([operation])
        (written,) = results.written
        return written

    def rows(self) -> list[tuple[Any, ...]]:
        columns = self.engine.export(1, FULL_RING)
        return sorted(zip(*(column.to_list() for column in columns), strict=True), key=repr)


@pytest.fixture(params=["scan", "kv"])
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def test_nothing_shows_before_the_commit_and_everything_after_it(kind: str) -> None:
    loader = Loader(kind)
    loader.insert((1, "old", 1))
    loader.begin("a", LoadWrite.OVERWRITE)
    before = loader.engine.digest(1, FULL_RING)
    loader.stage("a", (1, "new", 1), (2, "new", 2))
    loader.stage("a", (3, "lost", 1), at=(0, 1, 0))
    assert loader.engine.digest(1, FULL_RING) == before
    assert loader.rows() == [(1, "old", 1)]
    assert loader.commit("a") == {LoadCount.INSERTED: 2, LoadCount.DELETED: 1}
    assert loader.rows() == [(1, "new", 1), (2, "new", 2)]
    assert loader.engine.statistics()["staged_rows"] == loader.engine.statistics()["loads"] == 0


OVERWRITTEN = {LoadCount.INSERTED: 2, LoadCount.REPLACED: 2, LoadCount.DELETED: 1}


@pytest.mark.parametrize(
    ("write", "rule", "told", "rows"),
    [
        (LoadWrite.INSERT, LoadRule.KEEP, {LoadCount.INSERTED: 1, LoadCount.KEPT: 3}, ["0 b", "1 c"]),
        (LoadWrite.INSERT, LoadRule.REPLACE, {LoadCount.INSERTED: 1, LoadCount.REPLACED: 3}, ["0 d", "1 e"]),
        (LoadWrite.UPSERT, LoadRule.KEEP, {LoadCount.INSERTED: 1, LoadCount.UPDATED: 3}, ["0 d", "1 e"]),
        (LoadWrite.UPDATE, LoadRule.KEEP, {LoadCount.MISSING: 2, LoadCount.UPDATED: 2}, ["0 d"]),
        (LoadWrite.OVERWRITE, LoadRule.KEEP, OVERWRITTEN, ["0 d", "1 e"]),
    ],
)
def test_of_keys_that_come_twice_the_places_decide_and_not_the_arrival(
    kind: str, write: LoadWrite, rule: LoadRule, told: dict[LoadCount, int], rows: list[str]
) -> None:
    loader = Loader(kind)
    loader.insert((0, "b", None))
    loader.begin("a", write, rule, 0, 1)
    # The last partition comes first, and its second chunk before the first.
    loader.stage("a", (0, "d"), (1, "e"), at=(7, 1, 1))
    loader.stage("a", (0, "x"), at=(7, 1, 0))
    loader.stage("a", (1, "c"), at=(2, 0, 0))
    assert loader.commit("a", (7, 1), (2, 0)) == told
    assert [f"{key} {text}" for key, text, _ in loader.rows()] == rows


def test_columns_that_a_load_does_not_give_are_null_if_replaced_and_stay_if_upserted(kind: str) -> None:
    loader = Loader(kind)
    loader.insert((1, "old", 1), (2, "old", 2))
    loader.begin("a", LoadWrite.UPSERT, LoadRule.KEEP, 0, 1)
    loader.stage("a", (1, "new"))
    loader.commit("a")
    loader.begin("b", LoadWrite.INSERT, LoadRule.REPLACE, 0, 1)
    loader.stage("b", (2, "new"))
    loader.commit("b")
    assert loader.rows() == [(1, "new", 1), (2, "new", None)]


def test_what_is_sealed_cannot_be_born_elsewhere_until_the_load_ends(kind: str) -> None:
    loader = Loader(kind)
    loader.insert((1, "old", 1))
    loader.begin("a", LoadWrite.INSERT, LoadRule.FAIL)
    loader.stage("a", (1, "a", 1), (2, "a", 2), (3, "a", 3), (3, "again", 3))
    told = loader.told(Seal("a", "a", NO_EPOCH, ((0, 0),)))
    assert told == {LoadCount.RESERVED: 2, LoadCount.CLASHING: -1, LoadCount.DUPLICATE: -1}
    assert loader.told(Seal("a", "a", NO_EPOCH, ((0, 0),))) == {LoadCount.RESERVED: 2}, (
        "whoever was not told asks"
    )
    for write in (Kind.INSERT, Kind.UPSERT):
        written = loader.insert((2, "b", 2), (1, "b", 1), (4, f"{write}", 4), kind=write)
        causes = {remark.rejection for remark in written.remarks}
        assert Rejection((2,), "key reserved by a load under way") in causes
    for load, rule in (("b", LoadRule.KEEP), ("c", LoadRule.REPLACE)):
        loader.begin(load, LoadWrite.INSERT, rule)
        loader.stage(load, (2, load, 2), (3, load, 3))
        assert loader.commit(load) == {LoadCount.INSERTED: -2}
    loader.begin("d", LoadWrite.INSERT, LoadRule.FAIL)
    loader.stage("d", (2, "d", 2), (5, "d", 5))
    told = loader.told(Seal("d", "d", NO_EPOCH, ((0, 0),)))
    assert told == {LoadCount.RESERVED: 1, LoadCount.CLASHING: -1}
    assert loader.told(Publish("a", "a", NO_EPOCH)) == {LoadCount.INSERTED: 2}
    assert loader.told(Abort("d")) == {LoadCount.DISCARDED: 1}
    assert not loader.insert((5, "now", 5)).remarks
    assert [key for key, _, _ in loader.rows()] == [1, 2, 3, 4, 5]
    assert loader.rows()[1] == (2, "a", 2)


def test_a_chunk_that_comes_twice_is_kept_once_and_told_twice(kind: str) -> None:
    loader = Loader(kind, declare(("s", STRING), ("n", INT64), primary_key=()))
    loader.begin("a", LoadWrite.INSERT)
    for _ in range(2):
        assert loader.stage("a", (1, "a", 1), (1, "a", 1)) == {LoadCount.STAGED: 2}
    assert loader.stage("a", (1, "a", 1), at=(0, 0, 1)) == {LoadCount.STAGED: 1}
    assert loader.commit("a") == {LoadCount.INSERTED: 3}


def test_a_row_that_no_table_could_hold_is_refused_alone_when_it_is_staged(kind: str) -> None:
    loader = Loader(kind)
    loader.begin("a", LoadWrite.INSERT)
    columns = (
        as_column(INT64, [1, None, 3]),
        as_column(STRING, ["a", "b", None]),
        as_column(INT64, [1, 2, 3]),
    )
    assert loader.told(Stage("a", 0, 0, 0, columns)) == {LoadCount.STAGED: 1}  # Two, and one rejected.
    assert loader.commit("a") == {LoadCount.INSERTED: 2}


def test_births_without_a_value_that_must_be_there_are_rejected_and_the_others_done(kind: str) -> None:
    loader = Loader(kind, declare(("s", STRING, False), ("n", INT64)))
    loader.insert((1, "old", 1))
    loader.begin("a", LoadWrite.UPSERT, LoadRule.KEEP, 0, 2)
    columns = (as_column(INT64, [1, 2, 2]), as_column(INT64, [7, 8, 9]))
    loader.told(Stage("a", 0, 0, 0, columns))
    assert loader.commit("a") == {LoadCount.INSERTED: -2, LoadCount.UPDATED: 1}
    assert loader.rows() == [(1, "old", 7)]


ROW = (as_column(INT64, [1]), as_column(STRING, ["a"]), as_column(INT64, [1]))
WRONG_HEAP = Column(STRING, np.array([3], np.int32), None, ("a",))


@pytest.mark.parametrize(
    "work",
    [
        Begin("", 1, LoadWrite.INSERT, LoadRule.KEEP, (0,), "j"),
        Begin("b", 1, LoadWrite.INSERT, LoadRule.KEEP, (0,), "j" * 300),
        Begin("b", 1, LoadWrite.INSERT, LoadRule.KEEP, (0,), "j", AT_COMMIT - 1),
        Begin("b", 1, LoadWrite.INSERT, LoadRule.KEEP, (0, 0), "j"),
        Begin("b", 1, LoadWrite.INSERT, LoadRule.KEEP, (1,), "j"),
        Begin("b", 1, LoadWrite.DELETE, LoadRule.KEEP, (0, 1), "j"),
        Begin("b", 1, LoadWrite.UPDATE, LoadRule.KEEP, (0,), "j"),
        Stage("a", 0, 0, 0, ()),
        Stage("a", -1, 0, 0, ROW),
        Stage("a", 0, ATTEMPT_MAX + 1, 0, ROW),
        Stage("a", PARTITION_MAX + 1, 0, 0, ROW),
        Stage("a", 0, 0, NUMBER_MAX + 1, ROW),
        Stage("a", 0, 0, 0, (ROW[1], ROW[0], ROW[2])),
        Stage("a", 0, 0, 0, (ROW[0], WRONG_HEAP, ROW[2])),
        Stage("a", 0, 0, 0, (as_column(INT64, [1, 2]), *ROW[1:])),
        Commit("a", "other", NO_EPOCH, ((0, 0),)),
        Commit("a", "a", NO_EPOCH, ((0, 0), (0, 1))),
        Commit("a", "a", NO_EPOCH, ((-1, 0),)),
    ],
)
def test_what_no_honest_client_sends_changes_nothing(kind: str, work: LoadWork) -> None:
    loader = Loader(kind)
    loader.begin("a", LoadWrite.INSERT)
    loader.stage("a", (1, "a", 1))
    before = loader.engine.digest_loads(FULL_RING)
    assert loader.refused(work) == "invalid"
    assert loader.engine.digest_loads(FULL_RING) == before
    assert loader.commit("a") == {LoadCount.INSERTED: 1}


def test_a_step_at_the_wrong_time_says_so(kind: str) -> None:
    loader = Loader(kind)
    assert loader.refused(Stage("a", 0, 0, 0, ROW)) == "load"
    assert loader.refused(Begin("a", 2, LoadWrite.INSERT, LoadRule.KEEP, (0,), "j")) == "schema"
    assert loader.refused(Begin("a", 1, LoadWrite.INSERT, LoadRule.KEEP, (0, 9), "j")) == "schema"
    loader.begin("a", LoadWrite.INSERT, LoadRule.FAIL)
    assert loader.refused(Commit("a", "a", NO_EPOCH, ())) == "load"
    assert loader.refused(Publish("a", "a", NO_EPOCH)) == "load"
    loader.told(Seal("a", "a", NO_EPOCH, ()))
    assert loader.refused(Stage("a", 0, 0, 0, ROW)) == "load"
    assert loader.told(Seal("a", "a", NO_EPOCH, ())) == {}
    assert loader.told(Publish("a", "a", NO_EPOCH)) == {}
    assert loader.refused(Publish("a", "a", NO_EPOCH)) == "repeat"
    assert loader.refused(Begin("b", 1, LoadWrite.INSERT, LoadRule.FAIL, (0,), "a")) == "repeat"
    assert loader.told(Abort("never begun")) == {}


def test_a_load_may_be_named_by_whoever_shows_it(kind: str) -> None:
    loader = Loader(kind)
    for name, epoch in (("a", 3), ("b", 4), ("c", 4)):
        loader.told(Begin(name, 1, LoadWrite.INSERT, LoadRule.KEEP, (0, 1, 2), "?", AT_COMMIT))
        loader.stage(name, (epoch, name, 0))
        end = Commit(name, "job", epoch, ((0, 0),))
        if name == "c":
            assert loader.refused(end) == "repeat"
        else:
            assert loader.told(end) == {LoadCount.INSERTED: 1}
    assert loader.told(Abort("c")) == {LoadCount.DISCARDED: 1}
    assert [key for key, _, _ in loader.rows()] == [3, 4]


def test_tables_and_columns_that_go_take_loads_with_them(kind: str) -> None:
    loader = Loader(kind)
    loader.begin("a", LoadWrite.INSERT)
    loader.begin("b", LoadWrite.INSERT, LoadRule.KEEP, 0, 1)
    loader.stage("a", (1, "a", 1))
    loader.stage("b", (2, "b"))
    left = TableSchema("t", SCHEMA.columns[:2], "k", ("k",), id=1, version=2)
    loader.engine.alter_table(left)
    assert loader.refused(Commit("a", "a", NO_EPOCH, ((0, 0),))) == "schema"
    assert loader.commit("b") == {LoadCount.INSERTED: 1}
    loader.engine.drop_table(1)
    assert loader.refused(Stage("a", 0, 0, 0, ROW)) == "schema"
    assert loader.told(Abort("a")) == {}
    assert loader.engine.statistics()["loads"] == 0


@pytest.mark.parametrize("other", ["scan", "kv"])
def test_a_range_takes_its_staged_rows_its_seals_and_the_records_along(kind: str, other: str) -> None:
    sender, receiver = Loader(kind), Loader(other, arcs=())
    for name, rule in (("a", LoadRule.FAIL), ("b", LoadRule.KEEP), ("done", LoadRule.KEEP)):
        sender.begin(name, LoadWrite.INSERT, rule)
        first = 100 if name == "a" else 0
        sender.stage(name, *((key, name, key) for key in range(first, first + 40)))
    sender.commit("done")
    sender.told(Seal("a", "a", NO_EPOCH, ((0, 0),)))
    image = sender.engine.image((LOW,))
    sender.commit("b")
    beside = receiver.engine.beside([LOW])
    for index in range(image.n_pieces):
        beside.take_in(travelled(image.piece(index)))
    image.close()
    work = Commit("b", "b", NO_EPOCH, ((0, 0),))
    beside.execute([LoadStep(sender.position, CLIENT, sender.position, (LOW,), work)])
    receiver.engine.adopt(beside)
    for engine in (sender.engine, receiver.engine):
        engine.set_arcs([LOW])
    assert receiver.engine.digest_loads(LOW) == sender.engine.digest_loads(LOW)
    assert receiver.engine.digest(1, LOW) == sender.engine.digest(1, LOW)
    assert receiver.engine.statistics()["loads"] == 1
    for loader in (sender, receiver):
        told = loader.engine.statistics()
        assert told["staged_rows"] + told["rows"] == loader.engine.weigh((LOW,))[0]
    receiver.position = sender.position
    written = receiver.insert(*((key, "late", 0) for key in range(100, 140)))
    causes = {remark.rejection.cause for remark in written.remarks if remark.rejection is not None}
    assert causes == {"key reserved by a load under way"}
    assert receiver.refused(Begin("c", 1, LoadWrite.INSERT, LoadRule.KEEP, (0,), "b")) == "repeat"
    # Whoever has no arc left forgets; a receiver that knows other loads has not caught up.
    receiver.engine.set_arcs([])
    assert receiver.engine.statistics()["loads"] == 0
    behind = sender.engine.beside([HIGH])
    with pytest.raises(InvariantError, match="knows other loads"):
        sender.engine.adopt(behind)


def test_rows_of_a_load_that_is_not_known_are_not_taken_in(kind: str) -> None:
    sender, receiver = Loader(kind), Loader(kind)
    sender.begin("a", LoadWrite.INSERT)
    sender.stage("a", (1, "a", 1))
    image = sender.engine.image((LOW, HIGH))
    records, rows = (image.piece(index) for index in range(image.n_pieces))
    with pytest.raises(InvariantError, match="which is not open"):
        receiver.engine.take_in(rows)
    receiver.engine.take_in(records)
    with pytest.raises(InvariantError, match="columns"):
        receiver.engine.take_in(Piece(rows.table, rows.version, rows.position, rows.columns[1:], rows.load))
    receiver.engine.take_in(rows)
    assert receiver.engine.digest_loads(FULL_RING) == sender.engine.digest_loads(FULL_RING)
    assert receiver.engine.weigh((FULL_RING,)) == (1, receiver.engine.weigh((FULL_RING,))[1])
    assert receiver.engine.statistics()["bytes"] > 0


def test_what_an_abort_leaves_behind_is_nothing_not_even_texts() -> None:
    loader = Loader("scan")
    loader.insert((-1, "kept", 0))
    loader.begin("a", LoadWrite.INSERT)
    for chunk in range(4):
        loader.stage("a", *((key, f"text {chunk} {key}", 0) for key in range(2_000)), at=(0, 0, chunk))
    full = loader.engine.statistics()["bytes"]
    loader.told(Abort("a"))
    for key in range(5_000, 5_003):
        loader.insert((key, "kept", 0))
    assert loader.engine.statistics()["bytes"] < full // 50


def test_a_large_commit_hangs_segments_over_and_copies_none() -> None:
    loader = Loader("scan", arcs=(FULL_RING,))
    loader.begin("a", LoadWrite.INSERT)
    n_rows = 1 << 17
    keys = np.arange(n_rows)
    columns = (Column(INT64, keys), as_column(STRING, [None] * n_rows), Column(INT64, keys))
    loader.told(Stage("a", 0, 0, 0, columns))
    hidden = loader.engine._tables[1].hidden["a"]
    arrays = [segment.data[0] for segment in hidden.all_segments()]
    assert loader.commit("a") == {LoadCount.INSERTED: n_rows}
    shown = [segment.data[0] for segment in loader.engine._tables[1].all_segments()]
    assert [id(array) for array in shown] == [id(array) for array in arrays]


def test_jobs_are_forgotten_in_the_order_of_their_commits() -> None:
    records = Records()
    for number in range(JOBS_MAX + 1):
        begin = Begin(f"load {number}", 1, LoadWrite.INSERT, LoadRule.KEEP, (0, 1, 2), f"job {number}", 5)
        records.begin(begin, number, SCHEMA)
        records.commit(Commit(begin.load, begin.job, begin.epoch, ()), number)
    records.check_new("job 0", 1)
    for epoch in (NO_EPOCH, 4, 5):
        with pytest.raises(Refused, match="epoch 5 of job 'job 1' was committed at position 1"):
            records.check_new("job 1", epoch)
    records.check_new("job 1", 6)
    copied = Records()
    copied.take(records.state())
    assert copied.state() == records.state()
    assert LoadRecords().is_empty
