"""The engine from outside: writes, rejections, refusals, layout, determinism, speed of the hot cases."""

from __future__ import annotations

import math
import os
import subprocess
import sys
import time
from random import Random
from typing import Any

import numpy as np
import pytest

from crescando.engine import holding, index, match, order
from crescando.engine.functions import DATE_MAX, TEXT_MAX
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import (
    Apply,
    Assignment,
    ColumnRef,
    Kind,
    Operation,
    Parameter,
    Projection,
    Shape,
)
from crescando.engine.written import Count
from crescando.errors import InvariantError
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange, ProcessId
from tests.engine.differential import Shares
from tests.engine.reports import reports
from tests.engine.test_differential import play
from tests.engine.workbench import CLIENT, Bench, apply, par, table

INT64, FLOAT64, STRING, DATE = DataType.INT64, DataType.FLOAT64, DataType.STRING, DataType.DATE
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


def counts(written: Any) -> tuple[int, int, Any, str | None]:
    (count,) = written.counts
    rejection = count.rejection
    key, cause = (None, None) if rejection is None else (rejection.key, rejection.cause)
    return count.affected, count.rejected, key, cause


class TestInsertAndUpsert:
    def test_an_existing_key_is_rejected_and_the_rest_written(self) -> None:
        bench = Bench(table(("x", INT64)))
        bench.load((1, 10), (2, 20))
        assert counts(bench.write(bench.insert((3, 30), (2, 21), (1, 11)))) == (1, 2, (1,), "duplicate key")
        assert bench.read(None) == [(1, 10), (2, 20), (3, 30)]

    def test_the_first_of_two_equal_keys_wins(self) -> None:
        bench = Bench(table(("x", INT64)))
        assert counts(bench.write(bench.insert((1, 10), (1, 11)))) == (1, 1, (1,), "duplicate key")
        assert bench.read(None) == [(1, 10)]

    def test_a_refused_row_makes_way_for_the_next_of_its_key(self) -> None:
        bench = Bench(table(("x", INT64, False)))
        written = bench.write(bench.insert((1, None), (1, 11)))
        assert counts(written) == (1, 1, (1,), "NULL in a column that is not nullable")
        assert bench.read(None) == [(1, 11)]

    def test_upsert_replaces_given_columns_and_keeps_the_others(self) -> None:
        bench = Bench(table(("x", INT64), ("y", INT64)))
        bench.load((1, 10, 100))
        written = bench.write(bench.insert((1, 11), (2, 22), (2, 23), kind=Kind.UPSERT, names=("k", "x")))
        assert counts(written) == (3, 0, None, None)
        assert bench.read(None) == [(1, 11, 100), (2, 23, None)]

    def test_upsert_that_lacks_a_column_replaces_but_cannot_be_born(self) -> None:
        bench = Bench(table(("x", INT64), ("y", INT64, False)))
        bench.load((1, 10, 100))
        written = bench.write(bench.insert((1, 11), (2, 22), kind=Kind.UPSERT, names=("k", "x")))
        assert counts(written) == (1, 1, (2,), "NULL in a column that is not nullable")
        assert bench.read(None) == [(1, 11, 100)]

    def test_a_row_is_born_changed_killed_and_born_again_in_one_batch(self) -> None:
        bench = Bench(table(("x", INT64)))
        one = apply("=", bench.col("k"), par(0, INT64))
        read = bench.read_shape(one, "x")
        change = bench.update_shape(one, x=apply("+", bench.col("x"), par(1, INT64)))
        kill = Shape(Kind.DELETE, 1, 1, one)
        steps = [
            bench.operation(read, 1),
            bench.insert((1, 10)),
            bench.operation(read, 1),
            bench.operation(change, 1, 5),
            bench.operation(read, 1),
            bench.operation(kill, 1),
            bench.operation(read, 1),
            bench.insert((1, 20), (1, 21)),
            bench.operation(read, 1),
        ]
        results = bench.run(*steps)
        (rows,) = results.rows
        assert rows.offsets.tolist() == [0, 0, 1, 2, 2, 3]
        assert rows.columns[0].to_list() == [10, 15, 20]
        told = {written.position: counts(written)[:2] for written in reports(results.written)}
        assert told == {
            steps[1].position: (1, 0),
            steps[3].position: (1, 0),
            steps[5].position: (1, 0),
            steps[7].position: (1, 1),
        }
        assert bench.read(None) == [(1, 20)]

    def test_without_a_primary_key_equal_rows_live_side_by_side(self) -> None:
        bench = Bench(table(("x", DataType.INT8), primary_key=()))
        insert = bench.insert((1, 10), (1, 10), (1, 127))
        assert counts(bench.write(insert))[:2] == (3, 0)
        change = bench.update_shape(None, x=apply("+", bench.col("x"), par(0, INT64)))
        affected, rejected, key, cause = counts(bench.write(bench.operation(change, 1)))
        assert (affected, rejected, cause) == (2, 1, "value out of range for the column's type")
        assert key == (insert.position, 2)
        assert sorted(bench.read(None)) == [(1, 11), (1, 11), (1, 127)]

    def test_keys_that_no_row_may_have(self) -> None:
        schema = TableSchema(
            "t", (ColumnDef("k", FLOAT64, False), ColumnDef("d", DATE)), "k", ("k",)
        ).with_ids(1)
        bench = Bench(schema)
        assert counts(bench.write(bench.insert((math.nan, 1), (1.0, 1))))[:2] == (1, 1)
        written = bench.write(bench.insert((None, 1), (2.0, DATE_MAX + 1), (-0.0, 5)))
        assert counts(written) == (1, 2, (None,), "NULL in a column that is not nullable")
        assert counts(bench.write(bench.insert((0.0, 7)))) == (0, 1, (0.0,), "duplicate key")

    def test_which_of_two_equal_zeros_a_key_came_as_never_shows(self) -> None:
        """Whether rows of one key meet in a batch is each replica's own affair."""
        schema = TableSchema("t", (ColumnDef("k", FLOAT64, False), ColumnDef("x", INT64)), "k", ("k",))
        shown = set()
        for alone in (True, False):
            bench = Bench(schema.with_ids(1))
            bench.load((0.0, 1))
            operations = [bench.operation(Shape(Kind.DELETE, 1, 1)), bench.insert((-0.0, 2))]
            operations += [bench.insert((5.0,), names=("k",)), bench.insert((0.0, 3))]
            for batch in ([each] for each in operations) if alone else [operations]:
                bench.run(*batch)
            shown.add(repr(sorted(bench.read(None))))
        assert shown == {"[(0.0, 2), (5.0, None)]"}

    def test_rows_of_other_arcs_are_ignored(self) -> None:
        engine = ScanEngine(64)
        arcs = [KeyRange(0, RING_MAX // 4), KeyRange(RING_MAX // 2, RING_MAX)]
        engine.set_arcs(arcs)
        engine.create_table(table(("s", STRING)))
        bench = Bench(table(("s", STRING)))
        bench.engine = engine
        written = bench.write(bench.insert(*((key, f"text {key}") for key in range(1_000))))
        assert [count.key_range for count in written.counts] == arcs
        assert sum(count.affected for count in written.counts) == engine.statistics()["rows"]
        assert 600 < engine.statistics()["rows"] < 900
        # Texts of rows that live elsewhere take no memory here.
        texts = engine._tables[1].pools[1].texts
        assert len(texts) <= engine.statistics()["rows"] + 1


class TestRefusals:
    def test_operations_on_what_is_gone_are_refused_and_the_others_run(self) -> None:
        bench = Bench(table(("x", INT64)))
        bench.load((1, 10))
        gone = ColumnRef(9, INT64)
        stale = Shape(Kind.READ, 1, 1, None, (Projection("g", gone),))
        retyped = Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(1, ColumnRef(1, FLOAT64)),))
        nowhere = Shape(Kind.DELETE, 77, 1)
        newer = Shape(Kind.READ, 1, 5, None, (Projection("x", bench.col("x")),))
        operations = [bench.operation(shape) for shape in (stale, retyped, nowhere, newer)]
        results = bench.run(*operations)
        assert {failed.number: failed.kind for failed in results.failed} == {
            operation.number: "schema" for operation in operations[:3]
        }
        assert results.rows[0].number.tolist() == [operations[3].number]

    def test_a_faulty_operation_fails_alone(self) -> None:
        bench = Bench(table(("x", INT64)))
        bench.load((1, 10))
        shape = bench.read_shape(apply("=", bench.col("x"), par(0, INT64)), "k")
        hostile = Shape(Kind.READ, 1, 1, Apply("eval", (), DataType.BOOL), shape.projections)
        operations = [bench.operation(shape, value) for value in (10, "10", 1 << 70, 10)]
        operations += [bench.operation(shape), bench.operation(hostile), bench.operation(shape, [10])]
        results = bench.run(*operations)
        assert [failed.kind for failed in results.failed] == ["invalid"] * 5
        assert results.rows[0].number.tolist() == [operations[0].number, operations[3].number]
        assert results.rows[0].offsets.tolist() == [0, 1, 2]

    def test_commands_that_fail_leave_the_order_going_on(self) -> None:
        """Division by zero, overflow, NULL and range violations reject rows and stop nothing."""
        benches = [Bench(table(("x", INT64), ("y", DataType.INT8, False)), rows) for rows in (64, 256)]
        for bench in benches:
            bench.load(*((key, key % 7, 1) for key in range(200)))
        x = benches[0].col("x")
        shapes = [
            benches[0].update_shape(None, x=apply("div", par(0, INT64), x)),
            benches[0].update_shape(None, x=apply("*", x, par(0, INT64))),
            benches[0].update_shape(None, y=apply("nullif", par(0, INT64), x)),
            benches[0].update_shape(apply("=", apply("%", par(0, INT64), x), par(0, INT64)), y=par(0, INT64)),
        ]
        for round_number in range(3):
            for constant in (1, (1 << 63) - 1, -(1 << 63), 3 + round_number):
                told = [
                    [bench.write(bench.operation(shape, constant)).counts for shape in shapes]
                    for bench in benches
                ]
                assert told[0] == told[1]
        digests = {bench.engine.digest(1, FULL_RING) for bench in benches}
        assert len(digests) == 1
        assert benches[0].engine.statistics()["rows"] == 200


def test_a_read_fails_as_a_whole_and_alone() -> None:
    bench = Bench(table(("x", INT64)))
    bench.load((5, 1), (3, 0), (4, 0), (9, 2))
    inverse = apply("div", par(0, INT64), bench.col("x"))
    outputs = (Projection("v", inverse),)
    failing = Shape(Kind.READ, 1, 1, None, outputs)
    guarded = Shape(Kind.READ, 1, 1, apply("<>", bench.col("x"), par(1, INT64)), outputs)
    results = bench.run(bench.operation(failing, 6, 0), bench.operation(guarded, 6, 0))
    (failed,) = results.failed
    assert (failed.kind, failed.key, failed.text) == ("read", (3,), "division by zero")
    assert sorted(results.rows[0].columns[0].to_list()) == [3, 6]


def test_every_arc_is_reported_also_with_nothing() -> None:
    bench = Bench(table(("x", INT64)))
    shape = Shape(Kind.DELETE, 1, 1, apply("=", bench.col("k"), par(0, INT64)))
    assert bench.write(bench.operation(shape, 1)).counts == (Count(FULL_RING, 0, 0),)


def test_a_scope_may_cut_an_arc() -> None:
    bench = Bench(table())
    bench.load(*((key,) for key in range(500)))
    shape = bench.read_shape(None)
    middle = RING_MAX // 3
    answers = []
    for scope in ((KeyRange(0, middle),), (KeyRange(middle + 1, RING_MAX),), (), (FULL_RING,)):
        bench.position += 1
        (rows,) = bench.run(Operation(bench.position, CLIENT, 1, shape, (), scope)).rows
        answers.append(set(rows.columns[0].to_list()))
    assert answers[0] | answers[1] == set(range(500))
    assert not answers[0] & answers[1]
    assert answers[2:] == [set(), set(range(500))]


def test_senders_get_their_own_results_in_order() -> None:
    bench = Bench(table(("x", INT64)))
    bench.load(*((key, key % 3) for key in range(30)))
    shape = bench.read_shape(apply("=", bench.col("x"), par(0, INT64)), "k")
    clients = [ProcessId("client", name) for name in "abc"]
    operations = [
        Operation(100 + place, clients[place % 3], place, shape, (place % 4,), (FULL_RING,))
        for place in range(12)
    ]
    results = bench.engine.execute(operations)
    assert [result.to for result in results] == clients
    for number, result in enumerate(results):
        (rows,) = result.rows
        assert result.executed == 111
        assert rows.number.tolist() == [place for place in range(12) if place % 3 == number]
        sizes = np.diff(rows.offsets).tolist()
        assert sizes == [10 if place % 4 < 3 else 0 for place in rows.number.tolist()]


def test_a_text_cannot_double_for_ever() -> None:
    bench = Bench(table(("s", STRING)))
    bench.load((1, "ab"), (2, ""))
    double = bench.update_shape(None, s=apply("concat", bench.col("s"), bench.col("s")))
    results = bench.run(*(bench.operation(double) for _ in range(25)))
    told = [counts(written) for written in reports(results.written)]
    assert told[:19] == [(2, 0, None, None)] * 19
    assert told[19:] == [(1, 1, (1,), "overflow")] * 6
    (length,) = {len(text) for text in bench.read(None, names=("s",)) if text}
    assert length == TEXT_MAX


def test_statistics_and_compaction() -> None:
    bench = Bench(table(("x", INT64)))
    bench.load(*((key, key) for key in range(1_000)))
    shape = Shape(Kind.DELETE, 1, 1, apply("<", bench.col("k"), par(0, INT64)))
    bench.run(*(bench.operation(shape, bound) for bound in (100, 200, 600)))
    bench.read(None)
    told = bench.engine.statistics()
    assert told["rows"] == 400
    assert told["compactions"] >= 1
    assert told["cycles"] == 3
    assert told["operations"] == 5
    assert told["operations_per_scan_max"] == 3
    assert told["operations_per_scan_last"] == 1
    assert told["dirty_rows"] == 600
    assert told["bytes"] > 0
    assert sorted(bench.read(None, names=("k",))) == list(range(600, 1_000))
    bench.engine.drop_table(1)
    assert bench.engine.statistics()["rows"] == 0


def test_rows_that_outlive_their_neighbours_do_not_keep_their_segments(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One row in a hundred stays for ever: memory goes with the rows, not with all there ever were."""
    monkeypatch.setattr(holding, "SEGMENT_ROWS_MAX", 1_024)
    bench = Bench(table(("x", INT64), ("s", STRING)), block_rows=512)
    k = bench.col("k")
    passing = apply("<>", apply("%", k, par(0, INT64)), par(1, INT64))
    leave = Shape(Kind.DELETE, 1, 1, apply("and", passing, apply("<", k, par(2, INT64))))

    def row(key: int) -> tuple[Any, ...]:
        return key, None if key % 3 else key, f"s{key % 50}"

    for first in range(0, 100_000, 1_000):
        bench.load(*map(row, range(first, first + 1_000)))
        bench.run(bench.operation(leave, 100, 0, first - 5_000))
    assert sorted(bench.read(None)) == [row(k) for k in range(100_000) if k % 100 == 0 or k >= 94_000]
    (segments,) = bench.engine._tables[1].segments
    assert len(segments) <= 20
    assert sum(segment.capacity for segment in segments) <= 2 * bench.engine.statistics()["rows"]


def test_a_table_takes_its_next_schema() -> None:
    bench = Bench(table(("x", INT64), ("s", STRING)))
    bench.load((1, 10, "a"), (2, 20, "b"))
    old_text = bench.read_shape(apply("=", bench.col("s"), par(0, STRING)), "k")
    k, x, _ = bench.schema.columns
    added = (ColumnDef("t", STRING, True, 3), ColumnDef("n", DataType.INT8, True, 4))
    bench.schema = TableSchema("t", (k, x, *added), "k", ("k",), id=1, version=2)
    bench.engine.alter_table(bench.schema)

    assert bench.failure(bench.operation(old_text, "a")).kind == "schema"
    assert bench.read(None) == [(1, 10, None, None), (2, 20, None, None)]
    bench.load((3, 30, "c", 3))
    rename = bench.update_shape(apply("is_null", bench.col("t")), t=par(0, STRING), n=par(1, INT64))
    assert counts(bench.write(bench.operation(rename, "z", 9)))[:2] == (2, 0)
    assert bench.read(apply("=", bench.col("t"), par(0, STRING)), "z", names=("k", "n")) == [(1, 9), (2, 9)]
    assert bench.read(apply("=", bench.col("n"), par(0, INT64)), 3, names=("t",)) == ["c"]


def test_tables_are_stated_once_and_arcs_in_order() -> None:
    bench = Bench(table())
    with pytest.raises(InvariantError, match="exists already"):
        bench.engine.create_table(table())
    for arcs in ([(0, 5), (5, 9)], [(6, 9), (0, 5)], [(3, 2)], [(0, RING_MAX + 1)]):
        with pytest.raises(InvariantError, match="arc"):
            bench.engine.set_arcs([KeyRange(*arc) for arc in arcs])
    assert ScanEngine().execute([]) == []


def test_a_text_made_by_an_update_is_found_by_later_predicates_of_the_batch() -> None:
    """It moves the ranks of constants, and may itself be a constant."""
    bench = Bench(table(("s", STRING)))
    bench.load((1, "b"), (2, "d"), (3, "f"))
    s = bench.col("s")
    rename = bench.update_shape(apply("=", s, par(0, STRING)), s=apply("concat", par(1, STRING), s))
    equal = bench.read_shape(apply("=", s, par(0, STRING)), "k")
    below = bench.read_shape(apply("<", s, par(0, STRING)), "k")
    results = bench.run(
        bench.operation(rename, "f", "a"),
        bench.operation(below, "b"),
        bench.operation(rename, "af", "c"),
        bench.operation(equal, "caf"),
        bench.operation(below, "d"),
    )
    found = {int(n): set() for rows in results.rows for n in rows.number}  # type: ignore[var-annotated]
    for rows in results.rows:
        for place, number in enumerate(rows.number.tolist()):
            start, stop = rows.offsets[place : place + 2].tolist()
            found[number] = set(rows.columns[0].to_list()[start:stop])
    assert list(dict(sorted(found.items())).values()) == [{3}, {3}, {1, 3}]


def test_small_windows_and_pieces_change_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "WINDOW_PAIRS", 40)
    monkeypatch.setattr(order, "WINDOW_OPERATIONS", 3)
    monkeypatch.setattr(order, "PAIRS_MAX", 30)
    monkeypatch.setattr(index, "PIECE_PAIRS", 16)
    monkeypatch.setattr(match, "PIECE_PAIRS", 16)
    monkeypatch.setattr(match, "_CROSS_ROWS_MAX", 8)
    for seed in range(400_000, 400_030):
        play(seed, Shares(), (), 6)


def test_wide_evaluation_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(match, "_CROSS_ROWS_MAX", 0)
    for seed in range(600_000, 600_030):
        play(seed, Shares(), (), 6)


def test_windows_that_overflow_are_replayed_in_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(order, "PAIRS_MAX", 60)
    for seed in range(500_000, 500_030):
        play(seed, Shares(), (), 6)


def test_replicas_with_other_hash_seeds_agree_byte_for_byte() -> None:
    """The same order gives equal results and digests whatever Python's hash seed is."""
    program = (
        "import hashlib, msgspec, sys\n"
        "from tests.engine.differential import Play, Shares\n"
        "from crescando.types import FULL_RING\n"
        "from crescando.engine.statement import _encode_array\n"
        "told = hashlib.sha256()\n"
        "encode = msgspec.msgpack.Encoder(enc_hook=_encode_array).encode\n"
        "for seed in range(6):\n"
        "    game = Play(seed, plain=False, others=())\n"
        "    engine = game.layouts[0].engines[0]\n"
        "    execute = engine.execute\n"
        "    def spy(operations, execute=execute, engine=engine):\n"
        "        results = execute(operations)\n"
        "        told.update(encode(results)); told.update(engine.digest(7, FULL_RING))\n"
        "        return results\n"
        "    engine.execute = spy\n"
        "    for _ in range(6): game.next_batch(Shares(), 9)\n"
        "print(told.hexdigest())\n"
    )
    digests = set()
    for hash_seed in ("0", "1", "4242"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": ROOT}
        done = subprocess.run(
            [sys.executable, "-c", program],
            capture_output=True,
            text=True,
            env=environment,
            cwd=ROOT,
            check=True,
        )
        digests.add(done.stdout.strip())
    assert len(digests) == 1


def random_mix(bench: Bench, n: int, seed: int) -> list[Operation]:
    """Give half point reads and half updates of about four rows each."""
    random = Random(seed)
    x = bench.col("x")
    test = Apply("=", (x, Parameter(0, INT64)), DataType.BOOL)
    read = bench.read_shape(test, "k", "x")
    change = bench.update_shape(test, y=apply("+", bench.col("y"), par(1, INT64)))
    shapes = (read, change)
    return [bench.operation(shapes[place % 2], random.randrange(5_000), 1) for place in range(n)]


def test_large_batches_share_one_scan_in_bounded_time() -> None:
    """Bounds are far above what is measured; a quadratic replay would miss them by far."""
    bench = Bench(table(("x", INT64), ("y", INT64)), 1 << 16)
    for start in range(0, 20_000, 5_000):
        bench.load(*((key, key % 5_000, 0) for key in range(start, start + 5_000)))
    started = time.monotonic()
    bench.run(*random_mix(bench, 10_000, 1))
    assert time.monotonic() - started < 5

    hot = bench.update_shape(
        apply("=", bench.col("k"), par(0, INT64)), y=apply("+", bench.col("y"), par(1, INT64))
    )
    started = time.monotonic()
    results = bench.run(*(bench.operation(hot, 7, 1) for _ in range(10_000)))
    assert time.monotonic() - started < 10
    assert sum(written.counts[0].affected for written in reports(results.written)) == 10_000

    moving = bench.update_shape(
        apply("=", bench.col("y"), par(0, INT64)), y=apply("+", bench.col("y"), par(1, INT64))
    )
    value = bench.read(apply("=", bench.col("k"), par(0, INT64)), 7, names=("y",))[0]
    started = time.monotonic()
    results = bench.run(*(bench.operation(moving, value + step, 1) for step in range(2_000)))
    assert time.monotonic() - started < 10
    assert all(written.counts[0].affected >= 1 for written in reports(results.written))
