"""The dictionary engine equals the oracle and the scan: answers, counts, digests, refusals.

What both engines do with the same random batches is judged by the oracle in
`differential`; here the dictionary engine takes part, whole and split.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.engine.base import Results
from crescando.engine.functions import Cause
from crescando.engine.kv import KvEngine, operators, scalar, table
from crescando.engine.statement import (
    Aggregate,
    Assignment,
    Column,
    Kind,
    Operation,
    Parameter,
    Projection,
    Shape,
    Term,
)
from crescando.errors import InvariantError
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.differential import Layout, Play, Shares, split
from tests.engine.reports import reports
from tests.engine.workbench import CLIENT, Bench, apply, par
from tests.engine.workbench import table as declare

BATCHES_PER_SEED = 12


def on_dictionaries(layout: Layout) -> Layout:
    """Give a layout of the same arcs and owners on dictionary engines; its tables are empty."""
    engines = [KvEngine() for _ in layout.engines]
    for engine, arcs in zip(engines, layout.arcs_of, strict=True):
        engine.set_arcs(arcs)
    kept: list[Any] = engines
    return Layout(kept, layout.arcs, layout.owners, False, "dictionaries", layout.arcs_of)


def play(seed: int, n_engines: int, shares: Shares, n_batches: int = BATCHES_PER_SEED) -> None:
    game = Play(seed, plain=False, others=())
    schema = game.world.schema
    layout = on_dictionaries(split(schema, Random(seed), n_engines, min(n_engines, 2), 64))
    for engine in layout.engines:
        engine.create_table(schema)
    game.layouts.append(layout)
    for _ in range(n_batches):
        game.next_batch(shares, 9)
    game.close()


@pytest.mark.differential
@pytest.mark.parametrize("chunk", range(4))
def test_random_batches_equal_the_oracle_and_the_scan(chunk: int) -> None:
    shares = Shares()
    for seed in range(300_000 + 10 * chunk, 300_010 + 10 * chunk):
        play(seed, 1 + seed % 3, shares)
    shares.check()


class Pair:
    """Both engines with one table, asked the same."""

    def __init__(self, schema: TableSchema) -> None:
        self.scan = Bench(schema)
        self.kv = Bench(schema)
        engine: Any = KvEngine()
        engine.set_arcs([FULL_RING])
        engine.create_table(schema)
        self.kv.engine = engine

    def both(self, ask: Callable[[Bench], Any]) -> Any:
        """Ask both and give the one answer."""
        answers = [ask(bench) for bench in (self.scan, self.kv)]
        assert repr(answers[0]) == repr(answers[1])
        return answers[1]


NUMBERS = declare(("i", DataType.INT8), ("f", DataType.FLOAT64), ("s", DataType.STRING), ("d", DataType.DATE))


def test_projections_that_only_outputs_may_have_agree() -> None:
    pair = Pair(NUMBERS)
    rows = [
        (1, 127, 2.5, "a", 0),
        (2, -128, -2.5, "b", 1),
        (3, 15, 1e300, "c", 2),
        (4, None, None, None, None),
    ]
    pair.both(lambda bench: bench.load(*rows))

    def rounded(bench: Bench, name: str, digits: int) -> Any:
        term = apply("round", bench.col(name), par(0, DataType.INT64))
        return bench.compute(term, digits)

    for digits in (-301, -1, 0, 1, 400):
        pair.both(lambda bench, digits=digits: rounded(bench, "f", digits))
    assert pair.both(lambda bench: rounded(bench, "i", 0)) == [127, -128, 15, None]

    def overflowing(bench: Bench) -> Any:
        outputs = (Projection("r", apply("round", bench.col("i"), par(0, DataType.INT64))),)
        return bench.failure(bench.operation(Shape(Kind.READ, 1, 1, None, outputs), -1))

    assert pair.both(overflowing).text == Cause.OVERFLOW.text


@pytest.mark.parametrize("op", ["extract_year", "extract_dow", "trunc_month"])
def test_constants_outside_the_calendar_do_no_harm(op: str) -> None:
    pair = Pair(NUMBERS)
    pair.both(lambda bench: bench.load((1, 1, 1.0, "a", 0)))
    for day in (-(1 << 31), (1 << 31) - 1):
        pair.both(lambda bench, day=day: bench.compute(apply(op, par(0, DataType.DATE)), day))


def test_wide_whole_numbers_are_rounded_once_to_float32() -> None:
    pair = Pair(declare(("w", DataType.INT64)))
    pair.both(lambda bench: bench.load((1, 0x7FFF_FFBF_FFFF_FFFF), (2, -(1 << 63)), (3, (1 << 24) + 1)))

    pair.both(lambda bench: bench.compute(apply("cast", bench.col("w"), to=DataType.FLOAT32)))


def test_text_stays_within_its_limit() -> None:
    pair = Pair(declare(("s", DataType.STRING)))
    pair.both(lambda bench: bench.load((1, "x" * (1 << 20))))

    def doubled(bench: Bench) -> Any:
        term = apply("concat", bench.col("s"), bench.col("s"))
        return bench.write(bench.operation(bench.update_shape(None, s=term)))

    assert pair.both(doubled).counts[0].rejection.cause == Cause.OVERFLOW.text


def test_aggregates_of_nothing_and_of_text_agree() -> None:
    pair = Pair(NUMBERS)

    for function in ("count", "sum", "avg", "min", "max"):
        assert pair.both(lambda bench, f=function: bench.aggregate(f, bench.col("f"))) in (None, 0)
    pair.both(lambda bench: bench.load((1, 1, 0.1, "b", 0), (2, 2, 0.2, "a", 1), (3, 3, None, None, None)))
    assert pair.both(lambda bench: bench.aggregate("min", bench.col("s"))) == "a"
    assert pair.both(lambda bench: bench.aggregate("count")) == 3
    assert pair.both(lambda bench: bench.aggregate("sum", bench.col("f"))) == 0.1 + 0.2


def test_columns_come_and_go_in_both_alike() -> None:
    pair = Pair(NUMBERS)
    pair.both(lambda bench: bench.load((1, 1, 0.5, "a", 0), (2, 2, 1.5, "b", 1)))
    text = NUMBERS.column("s")
    kept = tuple(column for column in NUMBERS.columns if column is not text)
    added = ColumnDef("n", DataType.INT16, True, 5)
    changed = msgspec.structs.replace(NUMBERS, columns=(*kept, added), version=2)

    def counted(bench: Bench) -> Any:
        bench.engine.alter_table(changed)
        bench.schema = changed
        bench.write(bench.insert((3, 3, 2.5, 2, 7)))
        return sorted(bench.read(None), key=repr), bench.engine.digest(1, FULL_RING)

    rows, _ = pair.both(counted)
    assert rows == [(1, 1, 0.5, 0, None), (2, 2, 1.5, 1, None), (3, 3, 2.5, 2, 7)]


def test_operations_that_cannot_be_executed_fail_alike() -> None:
    pair = Pair(NUMBERS)

    def failures(bench: Bench) -> Any:
        good = bench.read_shape(apply("=", bench.col("k"), par(0, DataType.INT64)))
        ghost = Shape(Kind.READ, 9, 1, None, good.projections)
        stale = Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(99, par(0, DataType.INT8)),))
        key = Shape(
            Kind.UPDATE, 1, 1, None, assignments=(Assignment(bench.col("k").column, par(0, DataType.INT64)),)
        )
        wrong = Operation(5, CLIENT, 5, good, ("x",), (FULL_RING,))
        missing = Operation(6, CLIENT, 6, good, (), (FULL_RING,))
        lengths = bench.insert((1, 1, 1.0, "a", 0))
        short = Column(DataType.INT64, np.zeros(2, np.int64))
        ragged = Operation(7, CLIENT, 7, lengths.shape, (short, *lengths.parameters[1:]), (FULL_RING,))
        operations = [
            *(
                Operation(at, CLIENT, at, shape, (1,), (FULL_RING,))
                for at, shape in enumerate((ghost, stale, key), 2)
            ),
            wrong,
            missing,
            ragged,
        ]
        results: list[Results] = bench.engine.execute(operations)
        (told,) = results
        return sorted((f.position, f.kind, f.text) for f in told.failed), reports(told.written)

    failed, written = pair.both(failures)
    assert [kind for _, kind, _ in failed] == ["schema", "schema", "invalid", "invalid", "invalid", "invalid"]
    assert not written


def test_tables_are_stated_once() -> None:
    engine = KvEngine()
    engine.create_table(NUMBERS)

    with pytest.raises(InvariantError):
        engine.create_table(NUMBERS)


def test_an_engine_without_arcs_keeps_nothing() -> None:
    pair = Pair(NUMBERS)
    for bench in (pair.scan, pair.kv):
        fresh: Any = type(bench.engine)()
        fresh.set_arcs([])
        fresh.create_table(NUMBERS)
        bench.engine = fresh

    written = pair.both(lambda bench: bench.write(bench.insert((1, 1, 1.0, "a", 0))))

    assert written.counts == ()
    assert pair.kv.engine.statistics()["rows"] == 0


def test_reads_see_their_scope_only_and_writes_everything() -> None:
    half = KeyRange(0, RING_MAX // 2)
    pair = Pair(NUMBERS)
    pair.both(lambda bench: bench.load(*((k, 1, 1.0, "a", 0) for k in range(50))))

    def counted(bench: Bench) -> Any:
        shape = Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate("count", None, "n"),))
        bench.position += 2
        read = Operation(bench.position - 1, CLIENT, 1, shape, (), (half,))
        write = Operation(bench.position, CLIENT, 2, Shape(Kind.DELETE, 1, 1, None), (), ())
        return bench.run(read, write)

    results = pair.both(counted)
    assert reports(results.written)[0].counts[0].affected == 50
    assert results.partials[0].scopes == ((half,),)


Plant = Callable[[pytest.MonkeyPatch], None]


def null_in_list_is_ignored(patch: pytest.MonkeyPatch) -> None:
    membership = scalar._membership
    patch.setattr(
        scalar,
        "_membership",
        lambda subject, items: membership(subject, tuple(i for i in items if i is not None)),
    )


def errors_match_nothing(patch: pytest.MonkeyPatch) -> None:
    matching = table.KvTable._matching
    patch.setattr(
        table.KvTable, "_matching", lambda self, *a: [(row, t) for row, t in matching(self, *a) if t is True]
    )


def nan_is_lowest(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(operators, "order", lambda a, b: -1 if a < b else int(a > b))


def keys_looked_up_by_their_first_column(patch: pytest.MonkeyPatch) -> None:
    def planted(self: Any, plan: Any) -> tuple[Parameter, ...] | None:
        points = [a.comparisons[0][1] for a in plan.accesses if a.is_point and a.comparisons[0][0] == "="]
        return tuple(points[:1]) * len(self._key_ids) if points else None

    patch.setattr(table.KvTable, "_wanted_key", planted)


def rows_half_updated(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(table, "smallest_cause", lambda values: None)


@pytest.mark.parametrize(
    "plant",
    [
        null_in_list_is_ignored,
        errors_match_nothing,
        nan_is_lowest,
        keys_looked_up_by_their_first_column,
        rows_half_updated,
    ],
)
def test_a_planted_bug_is_found(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    for seed in range(310_000, 310_030):
        try:
            play(seed, 1, Shares(), 6)
        except Exception:  # noqa: BLE001  # A planted bug may also make the engine raise.
            return
    pytest.fail("the checker found nothing")


def test_a_term_is_a_function_of_the_row() -> None:
    term: Term = apply("+", par(0, DataType.INT64), par(1, DataType.INT64))

    assert scalar.compile_term(term, {}, (2, 3))(()) == 5
    assert scalar.compile_term(term, {}, (None, 3))(()) is None
    assert scalar.compile_term(term, {}, ((1 << 63) - 1, 1))(()) is Cause.OVERFLOW
