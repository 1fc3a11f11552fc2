"""Expressions: building, showing, and refusing what needs a truth value."""

from __future__ import annotations

import datetime as dt
import decimal
from functools import reduce

import numpy as np
import pytest

from crescando.client import functions as f
from crescando.client.expression import DEPTH_MAX, Call, Expr, Literal, col, lit, param
from crescando.errors import PredicateError, TypeMismatchError

a, b = col("a"), col("b")


@pytest.mark.parametrize(
    ("built", "shown"),
    [
        (a == 1, "col('a') == 1"),
        (a > 1, "col('a') > 1"),
        ((a > 1) & (b < 2) & ~col("c"), "(col('a') > 1) & (col('b') < 2) & (~col('c'))"),
        ((a > 1) | (b < 2), "(col('a') > 1) | (col('b') < 2)"),
        (a + 1 - 2 * b, "(col('a') + 1) - (2 * col('b'))"),
        (7 / a, "7 / col('a')"),
        (7 // a % 2, "(7 // col('a')) % 2"),
        (-a, "-col('a')"),
        (abs(a), "abs(col('a'))"),
        (a.isin([1, None]), "col('a').isin([1, None])"),
        (a.between(1, 2), "(col('a') >= 1) & (col('a') <= 2)"),
        (a.like("x%"), "like(col('a'), 'x%')"),
        (a.cast("int8"), "col('a').cast('int8')"),
        (a.trunc("Month"), "trunc_month(col('a'))"),
        (a.extract("dow"), "extract_dow(col('a'))"),
        (a.alias("x"), "col('a').alias('x')"),
        (f.when(a > 1, "x").when(a > 0, "y").end(), "case(col('a') > 1, 'x', col('a') > 0, 'y', None)"),
        (f.concat("x", a, "y"), "concat(concat('x', col('a')), 'y')"),
        (f.all_of([]), "True"),
        (f.any_of([a == 1]), "col('a') == 1"),
        (param("k") == a, "param('k') == col('a')"),
    ],
)
def test_operators_build_trees_that_read_well(built: Expr, shown: str) -> None:
    assert repr(built) == shown


@pytest.mark.parametrize(
    "mistake",
    [
        lambda: (a == 1) and (b == 2),
        lambda: (a == 1) or (b == 2),
        lambda: not a.is_null(),
        lambda: 1 < a < 3,
        lambda: a in [1, 2],
        lambda: 1 if a == 1 else 2,
        lambda: "x" in a,
    ],
)
def test_what_python_would_evaluate_is_refused_with_the_mend(mistake) -> None:
    with pytest.raises(PredicateError) as caught:
        mistake()

    assert ".isin([...])" in str(caught.value)


def test_truth_value_message_names_every_operator() -> None:
    with pytest.raises(PredicateError, match=r"& for 'and', \| for 'or', ~ for 'not'"):
        bool(a == 1)


def test_expressions_can_be_kept_in_sets_and_as_keys() -> None:
    kept = {a: 1, b: 2}

    assert kept[a] == 1
    assert kept[b] == 2
    assert a.same_as(col("a"))
    assert not a.same_as(b)


def test_iterating_is_refused() -> None:
    with pytest.raises(TypeError):
        list(a)


def test_numpy_scalars_on_either_side_become_literals() -> None:
    assert repr(np.int64(3) + a) == "3 + col('a')"
    assert repr(np.float32(0.5) < a) == "col('a') > 0.5"
    assert repr(a == np.str_("x")) == "col('a') == 'x'"


def test_long_chains_stay_shallow() -> None:
    chain = f.any_of(a == n for n in range(5_000))
    by_operator = a == 0
    for n in range(1, 5_000):
        by_operator = by_operator | (a == n)

    assert isinstance(chain, Call)
    assert isinstance(by_operator, Call)
    assert chain.depth == by_operator.depth == 3
    assert len(by_operator.args) == 5_000


def test_deep_nesting_is_refused_when_built() -> None:
    deep = reduce(lambda tree, _: tree + 1, range(DEPTH_MAX - 1), a)

    with pytest.raises(PredicateError, match="nested"):
        deep + 1


@pytest.mark.parametrize(
    ("value", "fix"),
    [
        (decimal.Decimal("nan"), "float"),
        (dt.time(1), "datetime"),
        (dt.timedelta(1), "date_add"),
        ([1], "isin"),
        ({"a": 1}, "column"),
        (object(), "datetime with a zone"),
    ],
)
def test_values_of_no_column_type_are_refused_with_the_substitute(value: object, fix: str) -> None:
    with pytest.raises(TypeMismatchError, match=fix):
        lit(value)


def test_naive_datetime_is_refused_with_the_fix() -> None:
    with pytest.raises(TypeMismatchError, match=r"naive.*timezone\.utc"):
        assert a > dt.datetime(2013, 1, 1)


def test_numpy_instants_are_utc() -> None:
    moment = lit(np.datetime64("2013-01-01T05:00:00", "us"))
    day = lit(np.datetime64("2013-01-01", "D"))

    assert isinstance(moment, Literal)
    assert moment.value == dt.datetime(2013, 1, 1, 5, tzinfo=dt.UTC)
    assert isinstance(day, Literal)
    assert day.value == dt.date(2013, 1, 1)


@pytest.mark.parametrize("unit", ["week", ""])
def test_unknown_units_are_refused(unit: str) -> None:
    with pytest.raises(PredicateError, match="year, month"):
        a.trunc(unit)


def test_isin_of_text_or_an_expression_is_refused() -> None:
    with pytest.raises(TypeMismatchError, match=r"isin\(\['JFK'\]\)"):
        a.isin("JFK")
    with pytest.raises(TypeMismatchError, match="constants"):
        a.isin([b])


def test_unknown_type_names_the_types() -> None:
    with pytest.raises(TypeMismatchError, match="int8, int16"):
        a.cast("decimal")


def test_a_tree_that_holds_itself_over_and_over_is_refused_when_built() -> None:
    with pytest.raises(PredicateError, match="at most 20000 nodes"):
        reduce(lambda tree, _: tree + tree, range(40), a)
    with pytest.raises(PredicateError, match="at most 20000 nodes"):
        reduce(lambda tree, _: tree.between(1, 2), range(40), a)


def test_chains_know_their_size_and_depth() -> None:
    chain = (a == 1) & ((a == 2) & (a + 1 == 3)) & ~(a == 4)

    assert (chain.depth, chain.size) == (4, 1 + 3 + 3 + 5 + 4)


def test_integers_that_python_does_not_write_out_are_refused() -> None:
    with pytest.raises(TypeMismatchError, match="beyond every column type"):
        a + 10**5_000
