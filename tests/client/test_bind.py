"""Binding: names, types, literals and parameters."""

from __future__ import annotations

import datetime as dt
import math
import random

import pytest

from crescando.client import functions as f
from crescando.client.base import Alike, Request
from crescando.client.expression import Expr, col, lit, param
from crescando.client.sizes import are_all_short, are_short
from crescando.client.template import AggregateCall, Prepared, Template
from crescando.engine.ranges import key_ranges
from crescando.engine.statement import Apply, ColumnRef, Kind, Parameter
from crescando.errors import (
    KeyUpdateError,
    PredicateError,
    StatementError,
    TypeMismatchError,
    UnknownColumnError,
)
from crescando.schema import DataType
from tests.client.tables import BOUND

UTC = dt.UTC
JULY = dt.datetime(2013, 7, 4, 18, tzinfo=UTC)


def bound(where: Expr | None, params=()):
    return Prepared(Template(Kind.READ, where), BOUND).requests([params])[0]


def where_of(where: Expr, params=()):
    request = bound(where, params)
    return request.shape.where, request.parameters


def test_constants_become_parameters_in_the_order_of_the_tree() -> None:
    first = bound((col("origin") == "JFK") & (col("delay") > 5))
    second = bound((col("origin") == "LGA") & (col("delay") > 9))

    assert first.parameters == ("JFK", 5)
    assert second.parameters == ("LGA", 9)
    assert first.shape.digest() == second.shape.digest()


def test_equal_constants_are_not_merged() -> None:
    assert bound((col("delay") == 5) | (col("seats") == 5)).parameters == (5, 5)


def test_in_list_is_one_parameter() -> None:
    assert bound(col("delay").isin([1, 2])).shape == bound(col("delay").isin([3])).shape
    assert bound(col("delay").isin([1, None, 2])).parameters == ((1, None, 2),)


def test_a_constant_on_the_left_changes_sides() -> None:
    assert bound(lit(5) < col("delay")).shape == bound(col("delay") > 5).shape
    assert bound(lit(5) >= col("delay")).shape == bound(col("delay") <= 5).shape


def test_text_beside_dates_is_converted_once_for_every_operator() -> None:
    day = dt.date(2013, 7, 4).toordinal() - dt.date(1970, 1, 1).toordinal()
    column = col("day")
    for comparison in (
        column == "2013-07-04",
        column != "2013-07-04",
        column < "2013-07-04",
        column >= "2013-07-04",
        f.coalesce(column, "2013-07-04") == column,
        f.when(column > "2013-07-04", "2013-07-04").otherwise(column) == column,
    ):
        assert day in bound(comparison).parameters
    assert bound(column.isin(["2013-07-04", dt.date(2013, 7, 4)])).parameters == ((day, day),)
    assert bound(column.between("2013-07-04", "2013-07-04")).parameters == (day, day)


def test_instants_are_utc_microseconds_whatever_their_zone() -> None:
    zone = dt.timezone(dt.timedelta(hours=-4))
    here = dt.datetime(2013, 7, 4, 14, tzinfo=zone)

    expected = (int(JULY.timestamp()) * 1_000_000,)
    for value in (JULY, here, "2013-07-04T18:00:00Z", "2013-07-04 14:00:00-04:00"):
        assert bound(col("departs") == value).parameters == expected


@pytest.mark.parametrize(
    ("where", "said"),
    [
        (col("day") == "2013-7-4", "YYYY-MM-DD"),
        (col("day") == "2013-02-30", "YYYY-MM-DD"),
        (col("day").isin(["x"]), "YYYY-MM-DD"),
        (col("departs") > "2013-07-04 18:00:00", "naive"),
        (col("departs") > dt.date(2013, 7, 4), "timestamp"),
        (col("day") > JULY, "date"),
        (col("origin") == 5, "string"),
        (col("delay") == "5", "int16"),
        (col("delay") == lit(True), "bool"),
        (col("cancelled") == 1, "bool"),
        (col("origin").isin([1]), "string"),
        (col("origin") == col("delay"), "cast"),
        (col("delay") + "x" > 1, "numbers"),
        (col("delay"), "predicate"),
        (~col("delay"), "bool"),
        (col("delay").like("x"), "string"),
        (col("fare").cast("date") == "2013-07-04", "cast"),
        (col("day") + 1.5 == "2013-07-04", "integer"),
        (col("seats") + 2**63 > 1, "int64"),
    ],
)
def test_types_that_do_not_fit_are_refused(where: Expr, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        bound(where)


def test_a_mismatch_names_both_sides_and_where_it_is() -> None:
    with pytest.raises(TypeMismatchError) as caught:
        bound((col("delay") > 1) & (col("origin") == 5))

    text = str(caught.value)
    assert "col('origin') is string" in text
    assert "5, which is int" in text
    assert text.count("(in ") == 1


def test_unknown_column_has_the_nearest() -> None:
    with pytest.raises(UnknownColumnError) as caught:
        bound(col("orign") == "JFK")

    assert caught.value.nearest == "origin"


def _holds(op: str, left: float, right: int) -> bool:
    return {
        "=": left == right,
        "<>": left != right,
        "<": left < right,
        "<=": left <= right,
        ">": left > right,
        ">=": left >= right,
    }[op]


BEYOND = [2**63, -(2**63) - 1, 2**63 + 1, 10**20 + 1, -(10**20) - 1, 10**400, -(10**400), 2**100]
FLOATS = [
    0.0,
    1e20,
    math.nextafter(1e20, math.inf),
    math.nextafter(1e20, 0),
    -1e20,
    float(2**63),
    float(2**100),
    math.inf,
    -math.inf,
    -float(2**63),
]


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
def test_integers_beyond_int64_compare_exactly_with_floats(op: str, value: int) -> None:
    comparison = {
        "=": col("fare") == value,
        "<>": col("fare") != value,
        "<": col("fare") < value,
        "<=": col("fare") <= value,
        ">": col("fare") > value,
        ">=": col("fare") >= value,
    }[op]
    term, parameters = where_of(comparison)

    assert isinstance(term, Apply)
    for fare in FLOATS:
        if isinstance(term.args[1], Parameter):
            found = _holds(term.op, fare, parameters[0])
        else:
            found = _holds(term.op, fare, fare)  # type: ignore[arg-type]
        assert found == _holds(op, fare, value), (fare, term)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 10**30])
def test_integers_beyond_int64_fold_to_a_truth_value_that_respects_null(value: int) -> None:
    for comparison, truth in (
        (col("seats") == value, False),
        (col("seats") != value, True),
        (col("seats") < value, value > 0),
        (col("seats") >= value, value < 0),
    ):
        term, parameters = where_of(comparison)
        column = ColumnRef(3, DataType.INT64)
        assert term == Apply("=" if truth else "<>", (column, column), DataType.BOOL)
        assert parameters == ()


def test_an_in_list_keeps_only_what_can_be_equal() -> None:
    assert bound(col("delay").isin([1, 2.0, 2.5, math.nan, 10**30])).parameters == ((1, 2),)
    assert bound(col("fare").isin([1, 2**53 + 1, 0.5])).parameters == ((1.0, 0.5),)
    column = ColumnRef(2, DataType.INT16)
    assert where_of(col("delay").isin([2.5]))[0] == Apply("<>", (column, column), DataType.BOOL)
    assert bound(col("delay").isin([])).parameters == ((),)
    assert bound(col("origin").isin([])).parameters == ((),)


def test_negative_int64_minimum_is_one_literal() -> None:
    assert bound(col("seats") == -lit(2**63)).parameters == (-(2**63),)


def test_null_takes_the_type_of_the_other_side() -> None:
    for column, kind in (("day", DataType.DATE), ("delay", DataType.INT64), ("origin", DataType.STRING)):
        term, parameters = where_of(col(column) == None)  # noqa: E711
        assert isinstance(term, Apply)
        assert term.args[1] == Parameter(0, kind)
        assert parameters == (None,)


def test_dates_take_days() -> None:
    for where, op in (
        (col("day") + 3 == "2013-07-04", "date_add"),
        (3 + col("day") == "2013-07-04", "date_add"),
        (col("day") - 3 == "2013-07-04", "date_add"),
        (col("day") - "2013-07-01" == 3, "date_diff"),
        (col("day") - dt.date(2013, 7, 1) == 3, "date_diff"),
        (dt.date(2013, 7, 9) - col("day") == 3, "date_diff"),
        (col("day") - col("day") == 0, "date_diff"),
    ):
        term, _ = where_of(where)
        assert isinstance(term, Apply)
        assert isinstance(term.args[0], Apply)
        assert term.args[0].op == op


def test_python_and_sql_division_are_different_operators() -> None:
    for where, op in (
        (col("delay") / 2 > 1, "truediv"),
        (col("delay") // 2 > 1, "floordiv"),
        (f.div(col("delay"), 2) > 1, "div"),
    ):
        term, _ = where_of(where)
        assert isinstance(term, Apply)
        assert isinstance(term.args[0], Apply)
        assert term.args[0].op == op


def test_round_is_for_output_only() -> None:
    with pytest.raises(PredicateError, match="selected columns"):
        bound(col("fare").round(2) == 1.0)

    template = Template(Kind.READ, None, (("fare", col("fare").round(2)),))
    assert Prepared(template, BOUND).requests([()])[0].shape.projections[0].term.type is DataType.FLOAT64


def update(**assignments) -> Template:
    return Template(
        Kind.UPDATE, None, assignments=tuple((name, lit(value)) for name, value in assignments.items())
    )


@pytest.mark.parametrize(
    ("assignments", "said"),
    [
        ({"delay": 40_000}, "out of range for int16"),
        ({"delay": 1.5}, "pass an int"),
        ({"delay": col("fare")}, r"\.cast\('int16'\)"),
        ({"delay": "x"}, "pass a number"),
        ({"origin": 5}, r"str\(value\)"),
        ({"day": "2013-7-4"}, "YYYY-MM-DD"),
        ({"departs": "2013-07-04T18:00:00"}, "naive"),
        ({"weight": 1e39}, "float32"),
        ({"fare": 2**53 + 1}, "exact"),
        ({"cancelled": 1}, "bool"),
    ],
)
def test_assigned_constants_must_fit(assignments, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        Prepared(update(**assignments), BOUND)


def test_assignments_are_typed_and_kept() -> None:
    shape = (
        Prepared(update(delay=5, day="2013-07-04", fare=1, seats=col("delay") + 1), BOUND)
        .requests([()])[0]
        .shape
    )

    assert [each.term.type for each in shape.assignments] == [
        DataType.INT16,
        DataType.DATE,
        DataType.FLOAT64,
        DataType.INT64,
    ]


def test_key_columns_are_not_updated() -> None:
    with pytest.raises(KeyUpdateError, match="'id'"):
        Prepared(update(id=1), BOUND)


def test_null_is_refused_for_a_column_that_is_not_nullable() -> None:
    from crescando.schema import ColumnDef, TableSchema

    schema = TableSchema(
        "t", (ColumnDef("k", DataType.INT8, False), ColumnDef("x", DataType.INT8, False)), "k"
    ).with_ids(1)
    with pytest.raises(TypeMismatchError, match="'x' is not nullable"):
        Prepared(update(x=None), schema)
    with pytest.raises(TypeMismatchError, match="'x' is not nullable"):
        Prepared(update(x=param(0)), schema).requests([(None,)])


def test_prepared_values_share_a_shape_as_long_as_their_types_do() -> None:
    prepared = Prepared(Template(Kind.READ, (col("fare") > param(0)) & (col("origin") == param(1))), BOUND)

    requests = prepared.requests([(1, "a"), (2.5, "b"), (3, None)])

    assert [request.parameters for request in requests] == [(1.0, "a"), (2.5, "b"), (3.0, None)]
    assert len({request.shape.digest() for request in requests}) == 1


def test_values_that_need_their_own_shape_get_it_and_do_not_keep_it() -> None:
    prepared = Prepared(Template(Kind.READ, col("seats") < param(0)), BOUND)

    requests = prepared.requests([(10**30,), (5,), (-(10**30),), (6,)])

    assert [request.parameters for request in requests] == [(), (5,), (), (6,)]
    assert requests[1].shape == requests[3].shape
    assert requests[0].shape != requests[2].shape


def test_a_list_may_be_bound_to_in() -> None:
    prepared = Prepared(Template(Kind.READ, col("delay").isin(param("list"))), BOUND)

    requests = prepared.requests([{"list": [1, 2]}, {"list": ()}, {"list": [0.5]}, {"list": [3.0]}])

    assert [request.parameters for request in requests] == [((1, 2),), ((),), (), ((3,),)]


@pytest.mark.parametrize(
    ("params", "said"),
    [
        ((), "no value for 0"),
        ((1, 2), "a value for 1"),
        ({"x": 1}, "no value for 0"),
        ("1", r"write \('1',\)"),
        (([1],), "list"),
    ],
)
def test_missing_and_surplus_values_are_told(params, said: str) -> None:
    prepared = Prepared(Template(Kind.READ, col("delay") == param(0)), BOUND)
    with pytest.raises(StatementError, match=said):
        prepared.requests([params])


def test_names_and_types_are_checked_when_preparing() -> None:
    with pytest.raises(UnknownColumnError):
        Prepared(Template(Kind.READ, col("nope") == param(0)), BOUND)
    with pytest.raises(TypeMismatchError):
        Prepared(Template(Kind.READ, (col("origin") == 5) & (col("delay") == param(0))), BOUND)


def test_a_guessed_type_is_no_reason_to_refuse() -> None:
    prepared = Prepared(Template(Kind.READ, f.coalesce(param(0), param(1)) == col("origin")), BOUND)

    assert prepared.requests([("a", "b")])[0].parameters == ("a", "b")


def test_swapped_mapping_order_does_not_mix_types_up() -> None:
    prepared = Prepared(
        Template(Kind.READ, (col("delay") == param("d")) & (col("origin") == param("o"))), BOUND
    )

    requests = prepared.requests([{"d": 1, "o": "x"}, {"o": "y", "d": 2}])

    assert [request.parameters for request in requests] == [(1, "x"), (2, "y")]


def test_many_key_lookups_find_the_ranges_that_single_ones_do() -> None:
    where = (col("id") == param(0)) & (col("delay") > 3)
    prepared = Prepared(Template(Kind.READ, where), BOUND)
    params = [(n,) for n in (*range(50), 7, 2**40, 2.5, None)]

    for request in prepared.requests(params):
        assert request.ranges == key_ranges(BOUND, request.shape.where, request.parameters)


def test_aggregates_are_typed() -> None:
    template = Template(Kind.READ, None, aggregates=(("n", AggregateCall("sum", col("origin"))),))
    with pytest.raises(TypeMismatchError, match="numbers"):
        Prepared(template, BOUND)


def test_wide_predicates_bind() -> None:
    where = f.any_of((col("delay") == n) & (col("origin") == str(n)) for n in range(1_500))

    assert len(bound(where).parameters) == 3_000


def test_predicates_beyond_the_engine_s_limits_are_refused_here() -> None:
    with pytest.raises(PredicateError, match="nodes"):
        bound(f.any_of(col("delay") == n for n in range(20_000)))


SAMPLES = (True, 1, 2.5, "x", "2013-07-04", "2013-07-04T18:00:00Z", dt.date(2013, 7, 4), JULY)


@pytest.mark.parametrize("name", BOUND.column_names)
@pytest.mark.parametrize("value", SAMPLES, ids=repr)
def test_a_literal_fits_a_column_for_every_operator_or_for_none(name: str, value: object) -> None:
    """K32: no operator quietly finds nothing where another one refuses."""
    column = col(name)
    outcomes = set()
    for where in (
        column == value,
        column != value,
        column < value,
        column <= value,
        column > value,
        column >= value,
        lit(value) == column,
        column.isin([value]),
        column.between(value, value),
    ):
        try:
            bound(where)
            outcomes.add(None)
        except StatementError as error:
            outcomes.add(type(error))

    assert len(outcomes) == 1
    assert outcomes <= {None, TypeMismatchError}


def test_null_in_a_list_of_texts() -> None:
    prepared = Prepared(Template(Kind.READ, param(0).isin(param(1))), BOUND)

    requests = prepared.requests([(None, ["a"]), (None, [1]), ("a", ["a"]), (None, [None]), (5, [2.5])])

    assert [request.parameters for request in requests] == [
        (None, ("a",)),
        (None, (1,)),
        ("a", ("a",)),
        (None, (None,)),
        (5.0, (2.5,)),
    ]
    with pytest.raises(TypeMismatchError, match="IN compares"):
        prepared.requests([("a", [1])])
    assert bound(f.nullif(None, "a") == "b").parameters == (None, "a", "b")


@pytest.mark.parametrize("seed", range(60))
def test_many_requests_are_those_made_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    where = rng.choice(
        (
            (col("origin") == param(0)) & (col("delay") > param(1)),
            (col("seats") + param(1) > 3.5) | col("origin").isin(param(0)),
        )
    )
    texts = ["JFK", "x" * 2000, "ä", "", None, ["JFK", "LGA"], ("x",), b"JFK", 5]
    numbers = [1, 2.5, None, True, 1 << 70, "1"]
    kinds = rng.choice(
        ((texts[:1], numbers[:1]), (texts[:4], numbers[:1]), (texts[:6], numbers[:3]), (texts, numbers))
    )
    params = [tuple(map(rng.choice, kinds)) for _ in range(rng.choice((1, 2, 30, 3000)))]
    together, alone = Prepared(Template(Kind.READ, where), BOUND), Prepared(Template(Kind.READ, where), BOUND)

    def made(prepared: Prepared, *some: tuple[object, ...]) -> list[Request] | type[Exception]:
        try:
            return [prepared.request(each) for each in some]
        except StatementError as error:
            return type(error)

    expected = made(alone, *params)
    if isinstance(expected, type):
        with pytest.raises(StatementError):
            together.requests(params)
        return
    assert list(together.requests(params)) == expected


@pytest.mark.parametrize("seed", range(200))
def test_many_are_short_where_each_is(seed: int) -> None:
    rng = random.Random(seed)
    values = ["", "x" * 1024, b"y" * 1024, 5, None, 2.5, "x" * 1025, b"y" * 1025, (), (1, 2)][
        : rng.randrange(5, 11)
    ]
    width = rng.choice((1, 2, 3, 1024, 1025))
    rows = [
        tuple(rng.choices(values, [30] * 5 + [5] * (len(values) - 5), k=width))
        for _ in range(rng.randrange(1, 4))
    ]

    assert are_all_short(list(zip(*rows, strict=True))) == all(map(are_short, rows))


def test_one_of_many_that_is_too_long_is_refused() -> None:
    prepared = Prepared(Template(Kind.READ, col("origin") == param(0)), BOUND, 5_000)
    assert len(prepared.requests([("x" * 4_000,)] * 3)) == 3
    with pytest.raises(StatementError, match="nothing was sent"):
        prepared.requests([("x",), ("x" * 6_000,), ("y",)])


def test_many_of_one_plan_stay_together_and_many_of_two_do_not() -> None:
    prepared = Prepared(Template(Kind.READ, col("origin") == param(0)), BOUND)
    for n in (3, 5_000):
        found = prepared.requests([(str(each),) for each in range(n)])
        assert isinstance(found, Alike)
        assert [found[0].parameters, found[n - 1].parameters] == [("0",), (str(n - 1),)]
    dated = Prepared(Template(Kind.READ, col("delay") == param(0)), BOUND)
    assert not isinstance(dated.requests([(1,), (2.5,)]), Alike)
