"""Transactions in one engine: one place in the order, all or nothing of what may be refused.

What random transactions do among random neighbours is judged by `differential`.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from crescando.engine.base import Engine, Results
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import (
    STEPS_MAX,
    Call,
    Column,
    ColumnRef,
    Kind,
    Operation,
    Returned,
    Shape,
    decode_call,
    encode_call,
)
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.reports import reports
from tests.engine.workbench import Bench, apply, par, table

INT64 = DataType.INT64

MAKERS: list[Callable[[], Engine]] = [ScanEngine, KvEngine]


@pytest.fixture(params=MAKERS, ids=["scan", "dictionaries"])
def bench(request: pytest.FixtureRequest) -> Bench:
    made = Bench(table(("v", INT64)))
    made.engine = request.param()
    made.engine.set_arcs([FULL_RING])
    made.engine.create_table(made.schema)
    return made


def together(bench: Bench, *steps: Operation) -> list[Operation]:
    """Give operations as the steps of one transaction."""
    bench.position += 1
    at = bench.position
    return [
        msgspec.structs.replace(step, position=at, number=at, step=place) for place, step in enumerate(steps)
    ]


def add(bench: Bench, key: int, amount: int) -> Operation:
    where = apply("=", bench.col("k"), par(0, INT64))
    shape = bench.update_shape(where, v=apply("+", bench.col("v"), par(1, INT64)))
    return bench.operation(shape, key, amount)


def execute(bench: Bench, *operations: Operation) -> Results:
    (results,) = bench.engine.execute(operations)
    return results


def read_all(bench: Bench) -> Operation:
    return bench.operation(bench.read_shape(None))


def rows_of(results: Results) -> list[list[tuple[Any, ...]]]:
    """Give the rows that each read of one shape saw."""
    (rows,) = results.rows
    tuples = list(zip(*(column.to_list() for column in rows.columns), strict=True))
    offsets = rows.offsets.tolist()
    return [sorted(tuples[start:stop]) for start, stop in pairwise(offsets)]


def test_steps_see_those_before_them_and_are_told_as_one(bench: Bench) -> None:
    bench.load((1, 10), (2, 20))
    steps = together(bench, add(bench, 1, -5), bench.insert((3, 5)), add(bench, 3, 1), add(bench, 3, 1))
    results = execute(bench, *steps)
    (written,) = reports(results.written)
    assert (written.number, written.position) == (steps[0].number, steps[0].position)
    assert [(count.step, count.affected) for count in written.counts] == [(0, 1), (1, 1), (2, 1), (3, 1)]
    assert rows_of(execute(bench, read_all(bench))) == [[(1, 5), (2, 20), (3, 7)]]


def test_reads_beside_it_see_all_of_it_or_nothing(bench: Bench) -> None:
    bench.load((1, 10), (2, 20))
    before = read_all(bench)
    steps = together(bench, add(bench, 1, -5), add(bench, 2, 5))
    after = read_all(bench)
    assert rows_of(execute(bench, before, *steps, after)) == [[(1, 10), (2, 20)], [(1, 5), (2, 25)]]


def test_a_rejected_row_hinders_no_other_step(bench: Bench) -> None:
    bench.load((1, 10), (2, 20))
    steps = together(bench, add(bench, 1, (1 << 63) - 1), bench.insert((2, 0), (4, 4)), add(bench, 2, 1))
    (written,) = reports(execute(bench, *steps).written)
    assert [(c.step, c.affected, c.rejected) for c in written.counts] == [(0, 0, 1), (1, 1, 1), (2, 1, 0)]
    assert rows_of(execute(bench, read_all(bench))) == [[(1, 10), (2, 21), (4, 4)]]


def stale(bench: Bench) -> Operation:
    return bench.operation(Shape(Kind.DELETE, 1, 1, apply("=", ColumnRef(9, INT64), par(0, INT64))), 1)


def of_no_table(bench: Bench) -> Operation:
    return bench.operation(Shape(Kind.DELETE, 77, 1, None))


def with_wrong_constants(bench: Bench) -> Operation:
    return msgspec.structs.replace(add(bench, 1, 1), parameters=("one", 1))


@pytest.mark.parametrize(
    ("bad", "kind"), [(stale, "schema"), (of_no_table, "schema"), (with_wrong_constants, "invalid")]
)
@pytest.mark.parametrize("place", [0, 1, 2])
def test_a_step_that_cannot_be_executed_refuses_the_whole(
    bench: Bench, bad: Callable[[Bench], Operation], kind: str, place: int
) -> None:
    bench.load((1, 10), (2, 20))
    steps = [add(bench, 1, 1), bench.insert((3, 3))]
    steps.insert(place, bad(bench))
    alone = add(bench, 2, 1)
    refused = together(bench, *steps)
    also = add(bench, 1, 100)
    results = execute(bench, alone, *refused, also)
    (failed,) = results.failed
    assert (failed.number, failed.position, failed.kind) == (refused[0].number, refused[0].position, kind)
    assert failed.text.startswith(f"write {place + 1} of the transaction: ")
    assert [written.number for written in reports(results.written)] == [alone.number, also.number]
    assert rows_of(execute(bench, read_all(bench))) == [[(1, 110), (2, 21)]]


def test_the_first_step_that_cannot_be_executed_is_told(bench: Bench) -> None:
    results = execute(bench, *together(bench, of_no_table(bench), with_wrong_constants(bench)))
    assert [failed.kind for failed in results.failed] == ["schema"]


def test_transactions_span_tables(bench: Bench) -> None:
    other = table(("v", INT64)).with_ids(2)
    bench.engine.create_table(other)
    shape = Shape(Kind.INSERT, 2, 1, columns=tuple(column.id for column in other.columns))
    one = bench.insert((1, 1))
    two = bench.operation(shape, *one.parameters)
    (written,) = reports(execute(bench, *together(bench, one, two)).written)
    assert [(count.step, count.affected) for count in written.counts] == [(0, 1), (1, 1)]
    assert bench.engine.digest(1, FULL_RING) == bench.engine.digest(2, FULL_RING)


def test_rows_without_a_key_that_steps_bring_are_told_apart() -> None:
    keyless = table(("v", DataType.INT8), primary_key=())
    for make in MAKERS:
        bench = Bench(keyless)
        engine: Any = make()
        engine.set_arcs([FULL_RING])
        engine.create_table(keyless)
        bench.engine = engine
        steps = together(bench, bench.insert((1, 1), (1, 1)), bench.insert((1, 1)))
        execute(bench, *steps)
        change = bench.update_shape(None, v=apply("+", bench.col("v"), par(0, INT64)))
        (written,) = reports(execute(bench, bench.operation(change, 1000)).written)
        (count,) = written.counts
        assert count.rejection is not None
        assert (count.rejected, count.rejection.key) == (3, (steps[0].position, 0))


def test_returned_rows_are_those_of_their_step(bench: Bench) -> None:
    bench.load((1, 10))
    where = apply("=", bench.col("k"), par(0, INT64))
    plain = bench.update_shape(where, v=apply("+", bench.col("v"), par(1, INT64)))
    shape = msgspec.structs.replace(plain, returning=(Returned("v", bench.col("v"), False),))
    steps = together(bench, *(bench.operation(shape, 1, amount) for amount in (1, 2, 4)))
    (written,) = reports(execute(bench, *steps).written)
    returned: list[tuple[Column, ...]] = [count.returned for count in written.counts]
    assert [column.to_list() for (column,) in returned] == [[11], [13], [17]]


def test_payloads_hold_steps_in_order_and_no_transactions_in_transactions() -> None:
    steps = tuple(Call(place, bytes([place])) for place in range(3))
    call = decode_call(encode_call(7, b"first", steps))
    assert (call.shape, call.parameters, call.then) == (7, b"first", steps)
    assert [step.shape for step in call.steps] == [7, 0, 1, 2]
    assert len(decode_call(encode_call(0, b"", (Call(0, b""),) * (STEPS_MAX - 1))).steps) == STEPS_MAX
    for bad in ((Call(0, b"", (Call(0, b""),)),), (Call(0, b""),) * STEPS_MAX):
        with pytest.raises(msgspec.DecodeError):
            decode_call(encode_call(0, b"", bad))
