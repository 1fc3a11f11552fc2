"""Decimals from the outside: what goes in, what stands beside them, and what comes out."""

from __future__ import annotations

import decimal
from collections.abc import Iterator
from decimal import Decimal

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

import crescando
from crescando import agg, col, errors, lit
from crescando.client.bind import Binder
from crescando.client.inference import schema_from
from crescando.client.intake import take_in
from crescando.client.table import Table
from crescando.errors import TypeMismatchError
from crescando.schema import ColumnDef, DataType, RangePartition, TableSchema
from crescando.spec import ClusterSpec
from crescando.sql.where import parse_where

PRICE, RATE = DataType.decimal(9, 2), DataType.decimal(18, 6)

ORDERS = TableSchema(
    "orders",
    (
        ColumnDef("id", DataType.INT64, False),
        ColumnDef("price", PRICE),
        ColumnDef("rate", RATE),
        ColumnDef("fare", DataType.FLOAT64),
        ColumnDef("seats", DataType.INT32),
    ),
    "id",
    ("id",),
).with_ids(1)


def prices(rows: object) -> list[int | None]:
    intake = take_in(ORDERS, rows)
    place = [definition.name for definition in intake.definitions].index("price")
    assert intake.columns[place].values.dtype == np.int32
    values: list[int | None] = intake.columns[place].to_list()  # type: ignore[assignment]
    return values


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": 1, "price": Decimal("12.30")}, {"id": 2, "price": -7}, {"id": 3, "price": None}],
        {"id": [1, 2, 3], "price": [Decimal("12.3"), Decimal("-7"), None]},
        {"id": np.arange(3), "price": np.array([Decimal("12.3"), -7, None], object)},
        pd.DataFrame({"id": [1, 2, 3], "price": [Decimal("12.300"), Decimal(-7), None]}),
        pa.table(
            {"id": [1, 2, 3], "price": pa.array([Decimal("12.3"), Decimal(-7), None], pa.decimal128(38, 4))}
        ),
        pa.table(
            {"id": [1, 2, 3], "price": pa.array([Decimal("12.3"), Decimal(-7), None], pa.decimal256(50, 1))}
        ),
        pa.table(
            {
                "id": [0, 1, 2, 3],
                "price": pa.array([None, Decimal("12.3"), Decimal(-7), None], pa.decimal128(5, 2)),
            }
        ).slice(1),
        pd.DataFrame(
            {"id": [1, 2, 3], "price": pd.array(["12.3", "-7", None], pd.ArrowDtype(pa.decimal128(9, 2)))}
        ),
    ],
)
def test_every_form_of_rows_holds_decimals(rows: object) -> None:
    assert prices(rows) == [1230, -700, None]


def test_an_empty_or_missing_array_is_no_rows_or_null() -> None:
    kind = pa.decimal128(5, 1)
    assert prices(pa.table({"id": pa.array([], pa.int64()), "price": pa.array([], kind)})) == []
    assert prices(pa.table({"id": [1, 2], "price": pa.nulls(2, kind)})) == [None, None]


def test_integer_arrays_are_whole_numbers() -> None:
    assert prices({"id": np.arange(2), "price": np.array([3, -4], np.int8)}) == [300, -400]
    assert prices({"id": np.arange(1), "price": np.array([3], np.uint64)}) == [300]


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (Decimal("1.005"), "quantize"),
        (Decimal("10000000"), "out of range"),
        (Decimal("1e500"), "out of range"),
        (1.5, "pass a Decimal"),
        (Decimal("nan"), "not a number of digits"),
        (Decimal("1e999999"), "beyond every column type"),
        ("1.5", "pass a number"),
        (True, "bool"),
    ],
)
def test_what_a_decimal_column_cannot_hold_is_told(value: object, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        prices([{"id": 1, "price": value}])


@pytest.mark.parametrize(
    ("values", "said"),
    [
        (np.array([1.5]), "Decimals"),
        (np.array([10_000_000]), "more digits"),
        (np.array([2**64 - 1], np.uint64), "more digits"),
        (pa.array([Decimal("1.005")], pa.decimal128(9, 3)), r"row 0: 1\.005"),
        (pa.array([Decimal(10) ** 30], pa.decimal128(38, 0)), "more digits"),
        (pa.array([Decimal("1e-20")], pa.decimal128(38, 20)), "cast it"),
    ],
)
def test_arrays_that_do_not_fit_are_told(values: object, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        prices(
            pa.table({"id": [1], "price": values})
            if isinstance(values, pa.Array)
            else {"id": np.arange(1), "price": values}
        )


def test_types_are_inferred_with_the_longest_scale() -> None:
    schema = schema_from(
        "t",
        {"k": [1, 2], "p": [Decimal("1.5"), Decimal("0.125")], "q": [1, Decimal("2.50")]},
        primary_key="k",
    )
    arrow = schema_from(
        "t", pa.table({"k": [1], "p": pa.array([Decimal(1)], pa.decimal128(7, 2))}), primary_key="k"
    )

    assert [column.type for column in schema.columns[1:]] == [
        DataType.decimal(18, 3),
        DataType.decimal(18, 2),
    ]
    assert arrow.column("p").type is DataType.decimal(7, 2)
    with pytest.raises(TypeMismatchError, match="decimal128"):
        schema_from("t", pa.table({"k": [1], "p": pa.array([1], pa.decimal128(38, 2))}), primary_key="k")


@pytest.mark.parametrize(
    ("text", "op", "kind", "stored"),
    [
        ("price = 9.99", "=", DataType.decimal(18, 2), 999),
        ("price = -9.99", "=", DataType.decimal(18, 2), -999),
        ("price < 5", "<", DataType.decimal(18, 2), 500),
        ("price = 9.999", "=", DataType.decimal(18, 3), 9999),
        ("price = 1e2", "=", DataType.FLOAT64, 100.0),
        ("fare = 9.99", "=", DataType.FLOAT64, 9.99),
        ("seats < 2.5", "<", DataType.FLOAT64, 2.5),
        ("price in (1, 2.50, 3.333)", "in", DataType.decimal(18, 2), (100, 250)),
        ("price > 0.00000000000000000001", ">", DataType.decimal(18, 2), 0),
        ("price >= 1.99999999999999999999", ">", DataType.decimal(18, 2), 199),
        (f"price > 1.{'0' * 1050}1", ">", DataType.decimal(18, 2), 100),
        ("cast(fare as decimal(9, 2)) = 3", "=", DataType.decimal(18, 2), 300),
        ("coalesce(price, 0) = 1.5", "=", DataType.decimal(18, 2), 150),
    ],
)
def test_a_constant_takes_its_type_from_what_stands_beside_it(
    text: str, op: str, kind: DataType, stored: object
) -> None:
    binder = Binder(ORDERS, {})

    term = binder.predicate(parse_where(text))

    assert (getattr(term, "op", ""), binder.slots[-1].kind, binder.slots[-1].stored) == (op, kind, stored)


@pytest.mark.parametrize(
    ("text", "truth"),
    [
        ("price < 99999999999999999999.5", True),
        ("price > 99999999999999999999.5", False),
        ("price = 0.00000000000000000001", False),
        ("price <> 0.00000000000000000001", True),
        ("seats < 1e400", None),
    ],
)
def test_a_constant_beyond_every_decimal_is_one_truth_for_all_rows(text: str, truth: bool | None) -> None:
    term = Binder(ORDERS, {}).predicate(parse_where(text))

    if truth is not None:
        assert getattr(term, "op", "") == ("=" if truth else "<>")
        assert len(set(term.args)) == 1  # type: ignore[union-attr]


def test_the_precision_of_the_thread_changes_nothing() -> None:
    with decimal.localcontext() as context:
        context.prec = 2
        binder = Binder(ORDERS, {})
        binder.predicate(col("price") > -lit(Decimal("123.45")))
        assert prices([{"id": 1, "price": Decimal("123.45")}]) == [12345]

    assert binder.slots[-1].stored == -12345


def test_digits_of_a_factor_count_in_the_result() -> None:
    binder = Binder(ORDERS, {})

    assert binder.projection(col("price") * Decimal("1.1")).type is DataType.decimal(18, 3)
    assert binder.projection(parse_where("price * 1.1")).type is DataType.decimal(18, 3)
    assert binder.projection(col("price") * 2).type is DataType.decimal(18, 2)
    assert binder.projection(col("price") / 3).type is DataType.FLOAT64
    assert binder.projection(col("price") * 1.1).type is DataType.FLOAT64
    with pytest.raises(TypeMismatchError, match="cast one of them"):
        binder.projection(col("rate") * col("rate") * Decimal("1.0000000"))


@pytest.mark.parametrize(
    "text", ["cast(fare as decimal)", "cast(fare as decimal(19, 2))", "cast(fare as decimal(5,6))"]
)
def test_a_decimal_type_that_cannot_be_is_refused(text: str) -> None:
    with pytest.raises(errors.PredicateError):
        parse_where(text)


@pytest.fixture(scope="module", params=["scan", "kv"])
def orders(request: pytest.FixtureRequest) -> Iterator[Table]:
    with crescando.open(spec=ClusterSpec(storages=2, engine=request.param)) as store:
        table = store.create_table(
            TableSchema(
                "orders",
                (
                    ColumnDef("price", PRICE, False),
                    ColumnDef("rate", RATE),
                    ColumnDef("seats", DataType.INT32),
                ),
                "price",
                ("price",),
                RangePartition(0, 50),
            )
        )
        table.insert(
            [
                {"price": Decimal(n) / 2, "rate": None if n == 7 else Decimal(n).scaleb(-6), "seats": n}
                for n in range(100)
            ]
        ).result()
        yield table


def test_rows_come_back_as_decimals(orders: Table) -> None:
    with decimal.localcontext() as context:
        context.prec = 2

        (row,) = orders.select(None, "price = 33.5").rows()

    assert row == (Decimal("33.50"), Decimal("0.000067"), 67)
    assert str(row[0]) == "33.50"


def test_a_key_is_found_by_any_number_that_equals_it(orders: Table) -> None:
    for value in (Decimal("3.5"), 3.5, Decimal("3.50000")):
        assert orders.select(["seats"], col("price") == value).rows() == [(7,)]
    assert orders.select(["seats"], col("price") == 4).rows() == [(8,)]
    assert orders.select(["seats"], col("price") == 3.500001).rows() == []
    assert sorted(orders.select(["seats"], "price >= ? and price < ?", (Decimal("48.999"), 49.5)).rows()) == [
        (98,)
    ]


def test_prepared_statements_take_decimals_of_any_scale(orders: Table) -> None:
    read = orders.prepare_select(["seats"], "price = ?")

    answers = [
        read((value,)).result().rows()
        for value in (Decimal("1.5"), Decimal("1.500"), 2, 2.5, Decimal("2.505"))
    ]

    assert answers == [[(3,)], [(3,)], [(4,)], [(5,)], []]


def test_sums_are_exact(orders: Table) -> None:
    row = orders.aggregate(
        total=agg.sum("price"), mean=agg.avg("price"), least=agg.min("rate"), most=agg.max("price")
    ).rows()[0]

    assert row == (Decimal("2475.00"), 24.75, Decimal("0.000000"), Decimal("49.50"))
    assert type(row[0]) is Decimal


def test_groups_are_kept_ordered_and_filtered_as_numbers(orders: Table) -> None:
    half = (col("price") % Decimal("1.5")).alias("rest")

    grouped = orders.aggregate(
        group_by=half, n=agg.count(), total=agg.sum("price"), having="total > 808.50", order_by="rest desc"
    )

    assert grouped.rows() == [
        (Decimal("1.00"), 33, Decimal("825.00")),
        (Decimal("0.00"), 34, Decimal("841.50")),
    ]
    assert orders.select([half], distinct=True, order_by="rest", limit=2).rows() == [
        (Decimal("0.00"),),
        (Decimal("0.50"),),
    ]


def test_updates_take_what_loses_no_digit(orders: Table) -> None:
    result = orders.update("price = 10", {"rate": Decimal("0.25")}).result()
    assert result.affected == 1
    assert orders.select(["rate"], "price = 10").rows() == [(Decimal("0.250000"),)]
    with pytest.raises(TypeMismatchError, match="quantize"):
        orders.update("price = 10", {"rate": Decimal("0.0000001")})
    with pytest.raises(TypeMismatchError, match="cast"):
        orders.update("price = 10", {"rate": col("rate") * Decimal("0.1")})

    orders.update("price = 10", {"rate": (col("rate") * Decimal("0.5")).cast("decimal(18, 6)")}).result()

    assert orders.select(["rate"], "price = 10").rows() == [(Decimal("0.125000"),)]


def test_answers_in_every_form(orders: Table) -> None:
    answer = orders.select(["price", "rate"], "price in (3, 3.5)", order_by="price desc")

    table = answer.to_arrow()
    assert table.schema.types == [pa.decimal128(9, 2), pa.decimal128(18, 6)]
    assert table.column("rate").to_pylist() == [None, Decimal("0.000006")]
    assert answer.to_pandas()["price"].tolist() == [Decimal("3.50"), Decimal("3.00")]
    assert answer.to_numpy()["price"].tolist() == [Decimal("3.50"), Decimal("3.00")]
    assert "3.50" in repr(answer)
    negative = orders.select([(-col("price")).alias("n")], "price = 49.5").to_arrow()
    assert negative.column("n").to_pylist() == [Decimal("-49.50")]


def test_a_rejected_key_is_told_as_a_decimal(orders: Table) -> None:
    with pytest.raises(errors.RowsRejectedError) as caught:
        orders.insert({"price": Decimal("2.50"), "rate": None, "seats": 1}).result()

    assert "2.50" in str(caught.value)
