"""Groups, first rows and returned rows at their edges, and shapes that ask for them wrongly."""

from __future__ import annotations

import math
from typing import Any

import msgspec
import pytest

from crescando.engine.aggregate import finish
from crescando.engine.grouping import merge_groups
from crescando.engine.statement import (
    Aggregate,
    Assignment,
    Kind,
    Operation,
    Projection,
    Returned,
    Shape,
    Sort,
)
from crescando.engine.validate import StaleShape, validate_shape
from crescando.errors import StatementError, TypeMismatchError
from crescando.schema import DataType
from crescando.types import RING_MAX, KeyRange, ProcessId
from tests.engine.reports import reports
from tests.engine.workbench import CLIENT, Bench, apply, par, table

INT64, STRING, FLOAT64 = DataType.INT64, DataType.STRING, DataType.FLOAT64
SCHEMA = table(("s", STRING), ("f", FLOAT64), ("n", INT64))
NAN = math.nan

ROWS = [
    (1, "a", 0.0, 5),
    (2, "a\0", -0.0, None),
    (3, "", NAN, 7),
    (4, None, -NAN, 7),
    (5, "a", None, -(2**63)),
    (6, "a", 0.1, 2**63 - 1),
]


@pytest.fixture
def bench() -> Bench:
    made = Bench(SCHEMA)
    made.load(*ROWS)
    return made


def groups(bench: Bench, keys: list[Any], *aggregates: tuple[str, Any]) -> list[tuple[Any, ...]]:
    """Give the groups of a read, each half of the ring read by itself and merged."""
    named = tuple(Aggregate(function, term, function) for function, term in aggregates)
    shape = Shape(Kind.READ, 1, 1, None, aggregates=named, group_by=tuple(keys))
    halves = (KeyRange(0, RING_MAX // 2), KeyRange(RING_MAX // 2 + 1, RING_MAX))
    pieces = []
    for half in halves:
        bench.position += 1
        operation = Operation(bench.position, CLIENT, bench.position, shape, (), (half,))
        (partials,) = bench.run(operation).partials
        assert partials.scopes == ((half,),)
        pieces.append(partials.of_read(0))
    n_groups, merged, states = merge_groups(pieces)
    columns = [*merged, *(finish(each, n_groups) for each in states)]
    return sorted(zip(*(column.to_list() for column in columns), strict=True), key=repr)


def test_texts_with_nul_null_zeros_and_nan_are_grouped_by_value(bench: Bench) -> None:
    assert groups(bench, [bench.col("s")], ("count", None)) == [("", 1), ("a", 3), ("a\0", 1), (None, 1)]
    found = groups(bench, [bench.col("f")], ("count", None))
    assert repr(found) == repr([(0.0, 2), (0.1, 1), (None, 1), (NAN, 2)])


def test_groups_by_computed_texts_meet_although_their_pools_differ(bench: Bench) -> None:
    upper = apply("upper", bench.col("s"))
    assert groups(bench, [upper, bench.col("n")], ("count", None))[0] == ("", 7, 1)
    assert len(groups(bench, [upper])) == 4


def test_exact_sums_of_groups(bench: Bench) -> None:
    found = groups(bench, [bench.col("s")], ("sum", bench.col("n")), ("count_distinct", bench.col("n")))
    assert found == [("", 7, 1), ("a", 4, 3), ("a\0", None, 0), (None, 7, 1)]


def test_keys_of_many_wide_columns_do_not_run_over() -> None:
    names = [f"c{place}" for place in range(9)]
    bench = Bench(table(*((name, INT64) for name in names)))
    ends = (-(2**63), 2**63 - 1, 0)
    rows = [(k, *(ends[(k * (place + 1)) % 3] for place in range(9))) for k in range(60)]
    bench.load(*rows)
    found = groups(bench, [bench.col(name) for name in names], ("count", None))
    expected: dict[Any, int] = {}
    for row in rows:
        expected[row[1:]] = expected.get(row[1:], 0) + 1
    assert {row[:-1]: row[-1] for row in found} == expected


@pytest.mark.parametrize("is_grouped", [False, True])
def test_each_answer_names_the_scope_that_was_asked(bench: Bench, is_grouped: bool) -> None:
    third = RING_MAX // 3
    scopes = (
        (KeyRange(0, third),),
        (KeyRange(third + 1, 2 * third),),
        (KeyRange(2 * third + 1, RING_MAX), KeyRange(0, third)),
    )
    shape = bench.read_shape(None, "k")
    if is_grouped:
        shape = Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate("count", None, "n"),))
    asked = [("one", 2), ("one", 0), ("other", 1), ("one", 2), ("third", 1), ("third", 2), ("other", 1)]
    batch = []
    for name, scope in asked:
        bench.position += 1
        sender = ProcessId("client", name)
        batch.append(Operation(bench.position, sender, bench.position, shape, (), scopes[scope]))
    wanted = {each.position: (each.sender, each.scope) for each in batch}

    told = {}
    for results in bench.engine.execute(batch):
        (answer,) = results.partials if is_grouped else results.rows
        for position, scope in zip(answer.position.tolist(), answer.scope.tolist(), strict=True):
            told[position] = results.to, answer.scopes[scope]
        assert len(set(answer.scopes)) == len(answer.scopes)

    assert told == wanted


def test_groups_see_the_writes_before_them_only(bench: Bench) -> None:
    one = Shape(
        Kind.READ, 1, 1, None, aggregates=(Aggregate("count", None, "n"),), group_by=(bench.col("s"),)
    )
    change = bench.update_shape(apply("=", bench.col("k"), par(0, INT64)), s=par(1, STRING))
    batch = [bench.operation(one), bench.operation(change, 3, "a"), bench.operation(one)]
    (partials,) = bench.run(*batch).partials
    tables = []
    for read in range(2):
        n_groups, keys, states = partials.of_read(read)
        tables.append(dict(zip(keys[0].to_list(), finish(states[0], n_groups).to_list(), strict=True)))
    assert tables == [{"a": 3, "a\0": 1, "": 1, None: 1}, {"a": 4, "a\0": 1, None: 1}]


def first(bench: Bench, limit: int, *order: Sort) -> list[Any]:
    outputs = (
        Projection("s", bench.col("s")),
        Projection("f", bench.col("f")),
        Projection("k", bench.col("k")),
    )
    shape = Shape(Kind.READ, 1, 1, None, outputs, order=order, limit=par(0, INT64))
    return [row[2] for row in bench.answer(bench.operation(shape, limit))]


def test_first_rows_put_null_first_and_nan_last(bench: Bench) -> None:
    assert first(bench, 6, Sort(1, False)) == [5, 1, 2, 6, 4, 3]
    assert first(bench, 6, Sort(1, True)) == [4, 3, 6, 1, 2, 5]
    assert first(bench, 3) == [4, 3, 5]
    assert first(bench, 2, Sort(0, True), Sort(2, True)) == [2, 6]
    assert first(bench, 0, Sort(0, True)) == []
    assert first(bench, 2**63 - 1, Sort(2, False)) == [1, 2, 3, 4, 5, 6]


def test_an_error_beyond_the_first_rows_fails_the_read(bench: Bench) -> None:
    ratio = apply("div", par(1, FLOAT64), bench.col("f"))
    outputs = (Projection("k", bench.col("k")), Projection("r", ratio))
    shape = Shape(Kind.READ, 1, 1, None, outputs, order=(Sort(0, True),), limit=par(0, INT64))
    assert bench.failure(bench.operation(shape, 1, 1.0)).key == (1,)


def test_a_limit_of_no_rows_at_all_is_refused_alone(bench: Bench) -> None:
    shape = Shape(Kind.READ, 1, 1, None, (Projection("k", bench.col("k")),), limit=par(0, INT64))
    results = bench.run(*(bench.operation(shape, limit) for limit in (-1, 2, None, "x")))
    assert [failed.kind for failed in results.failed] == ["invalid"] * 3
    assert [rows.offsets.tolist() for rows in results.rows] == [[0, 2]]


def test_returned_rows_are_those_of_their_moment(bench: Bench) -> None:
    where = apply("=", bench.col("k"), par(0, INT64))
    outputs = (Returned("old", bench.col("n"), True), Returned("new", bench.col("n"), False))
    add = Shape(
        Kind.UPDATE,
        1,
        1,
        where,
        assignments=(Assignment(bench.col("n").column, apply("+", bench.col("n"), par(1, INT64))),),
        returning=outputs,
    )
    gone = Shape(Kind.DELETE, 1, 1, where, returning=outputs)
    back = bench.insert((1, "z", 1.0, 50))
    back = msgspec.structs.replace(back, shape=msgspec.structs.replace(back.shape, returning=outputs))
    batch = [bench.operation(add, 1, n) for n in (1, 2)] + [bench.operation(gone, 1), back]
    batch += [bench.operation(add, 1, 3), bench.operation(add, 6, 1), bench.operation(add, 99, 1)]
    places = range(len(batch))
    batch = [msgspec.structs.replace(each, position=900 + p, number=900 + p) for p, each in enumerate(batch)]
    written = {each.number: each.counts[0] for each in reports(bench.run(*batch).written)}
    found = [list(zip(*(c.to_list() for c in written[900 + p].returned), strict=True)) for p in places]
    assert found == [[(5, 6)], [(6, 8)], [(8, None)], [(None, 50)], [(50, 53)], [], []]
    assert written[905].rejected == 1


KEY = Bench(SCHEMA).col("k")
OUTPUT = (Projection("k", KEY),)
COUNT = (Aggregate("count", None, "n"),)
LIMIT = par(0, INT64)


@pytest.mark.parametrize(
    ("shape", "error"),
    [
        (Shape(Kind.READ, 1, 1, None, OUTPUT, group_by=(KEY,)), StatementError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, order=(Sort(0, False),)), StatementError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, order=(Sort(1, False),), limit=LIMIT), StatementError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, order=(Sort(-1, False),), limit=LIMIT), StatementError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, limit=par(0, FLOAT64)), TypeMismatchError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, limit=par(-1, INT64)), StatementError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, limit=par(0, INT64, True)), StatementError),
        (Shape(Kind.READ, 1, 1, None, aggregates=COUNT, limit=LIMIT), StatementError),
        (Shape(Kind.READ, 1, 1, None, OUTPUT, returning=(Returned("k", KEY, True),)), StatementError),
        (Shape(Kind.DELETE, 1, 1, None, limit=LIMIT), StatementError),
        (Shape(Kind.DELETE, 1, 1, None, group_by=(KEY,)), StatementError),
        (Shape(Kind.DELETE, 1, 1, None, returning=(Returned("k", KEY, True),) * 5_000), StatementError),
        (
            Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate("count_distinct", None, "n"),)),
            TypeMismatchError,
        ),
        (
            Shape(Kind.DELETE, 1, 1, None, returning=(Returned("k", type(KEY)(KEY.column, STRING), True),)),
            StaleShape,
        ),
    ],
)
def test_shapes_that_ask_for_it_wrongly_are_refused(shape: Shape, error: type[Exception]) -> None:
    with pytest.raises(error):
        validate_shape(Shape.decode(shape.encode()), SCHEMA)


def test_rows_that_wait_in_the_table_are_given_as_they_were_read() -> None:
    """Other rows of the batch make the columns wider, give them NULLs, die and are born meanwhile."""
    bench = Bench(SCHEMA, block_rows=16)
    rows = [(k, f"text {k % 200}", float(k), k % 7) for k in range(1_000)]
    bench.load(*rows)
    key = bench.col("k")
    read = bench.read_shape(apply(">=", key, par(0, INT64)))
    computed = Shape(
        Kind.READ,
        1,
        1,
        apply(">=", key, par(0, INT64)),
        (*read.projections[:2], Projection("f2", apply("+", bench.col("f"), bench.col("f")))),
    )
    text = bench.update_shape(apply("<", key, par(0, INT64)), s=par(1, STRING))
    nothing = bench.update_shape(apply("<", key, par(0, INT64)), n=par(1, INT64))
    results = bench.run(
        bench.operation(read, 100),
        *(bench.operation(text, 50, f"new {place}") for place in range(100)),
        bench.operation(nothing, 40, None),
        bench.operation(Shape(Kind.DELETE, 1, 1, apply("<", key, par(0, INT64))), 20),
        bench.insert((2_000, "born", 1.0, 1)),
        bench.operation(computed, 990),
    )
    assert not results.failed
    whole, sums = results.rows
    assert sorted(zip(*(column.to_list() for column in whole.columns), strict=True)) == rows[100:]
    expected = [(k, s, 2 * f) for k, s, f, _ in [*rows[990:], (2_000, "born", 1.0, 1)]]
    assert sorted(zip(*(column.to_list() for column in sums.columns), strict=True)) == expected
    assert len(bench.read(None)) == 981
