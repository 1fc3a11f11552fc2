"""Rows of every form become exactly typed columns, or one clear error."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crescando.client.columns import take, unite
from crescando.client.intake import take_in
from crescando.engine.functions import DATE_MAX, DATE_MIN, TIMESTAMP_MAX, TIMESTAMP_MIN
from crescando.engine.rowset import sort_keys
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import from_column
from crescando.errors import TypeMismatchError, UnknownColumnError
from crescando.schema import ColumnDef, DataType, TableSchema
from tests.client.tables import BOUND

UTC = dt.UTC
DAY = (dt.date(2013, 7, 4) - dt.date(1970, 1, 1)).days
MOMENT = int(dt.datetime(2013, 7, 4, 18, tzinfo=UTC).timestamp()) * 1_000_000


def taken(rows, **options):
    """Take rows in and give them back as physical values by column."""
    intake = take_in(BOUND, rows, **options)
    for definition, column in zip(intake.definitions, intake.columns, strict=True):
        assert column.type is definition.type
        assert column.values.dtype == PHYSICAL[definition.type]
        assert len(column) == intake.n_rows
    return {
        definition.name: column.to_list()
        for definition, column in zip(intake.definitions, intake.columns, strict=True)
    }


EXPECTED = {
    "id": [1, 2],
    "origin": ["JFK", None],
    "delay": [5, None],
    "fare": [1.5, None],
    "day": [DAY, None],
    "departs": [MOMENT, None],
    "cancelled": [True, None],
}

ROWS = [
    {
        "id": 1,
        "origin": "JFK",
        "delay": 5,
        "fare": 1.5,
        "day": dt.date(2013, 7, 4),
        "departs": dt.datetime(2013, 7, 4, 18, tzinfo=UTC),
        "cancelled": True,
    },
    {"id": 2, "origin": None, "delay": None, "fare": None, "day": None, "departs": None, "cancelled": None},
]

FRAME = pd.DataFrame(
    {
        "id": [1, 2],
        "origin": ["JFK", None],
        "delay": [5.0, np.nan],
        "fare": pd.array([1.5, None], dtype="Float64"),
        "day": pd.Series([dt.date(2013, 7, 4), None], dtype=object),
        "departs": pd.to_datetime(["2013-07-04T14:00", None]).tz_localize("America/New_York"),
        "cancelled": pd.array([True, None], dtype="boolean"),
    }
)

ARROW = pa.table(
    {
        "id": pa.array([1, 2], pa.int64()),
        "origin": pa.array(["JFK", None]).dictionary_encode(),
        "delay": pa.array([5, None], pa.int8()),
        "fare": pa.array([1.5, None], pa.float64()),
        "day": pa.array([dt.date(2013, 7, 4), None], pa.date32()),
        "departs": pa.array(
            [dt.datetime(2013, 7, 4, 18, tzinfo=UTC), None], pa.timestamp("ms", tz="Asia/Tokyo")
        ),
        "cancelled": pa.array([True, None]),
    }
)


class Stream:
    """Anything that only speaks the Arrow stream protocol."""

    def __init__(self, table: pa.Table) -> None:
        self._table = table

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._table.__arrow_c_stream__(requested_schema)


MASK = [False, True]
ARRAYS = {
    "id": np.array([1, 2], np.uint8),
    "origin": np.ma.MaskedArray(np.array(["JFK", ""], object), MASK),
    "delay": np.ma.MaskedArray(np.array([5, 0], np.int64), MASK),
    "fare": np.ma.MaskedArray(np.array([1.5, 0.0], np.float32), MASK),
    "day": np.array(["2013-07-04", "NaT"], "datetime64[D]"),
    "departs": np.array(["2013-07-04T18:00", "NaT"], "datetime64[ns]"),
    "cancelled": np.array([True, None], object),
}


@pytest.mark.parametrize(
    "rows",
    [
        ROWS,
        iter(ROWS),
        {name: [row[name] for row in ROWS] for name in ROWS[0]},
        ARRAYS,
        FRAME,
        FRAME.convert_dtypes(dtype_backend="pyarrow"),
        {name: FRAME[name] for name in FRAME},
        ARROW,
        ARROW.to_batches()[0],
        Stream(ARROW),
        pa.concat_tables([ARROW.slice(0, 1), ARROW.slice(1, 1)]),
    ],
    ids=[
        "dicts",
        "iterator",
        "columns",
        "numpy",
        "pandas",
        "pandas-arrow",
        "series",
        "arrow",
        "batch",
        "stream",
        "chunks",
    ],
)
def test_every_form_gives_the_same_columns(rows) -> None:
    assert taken(rows) == EXPECTED


def test_one_dict_is_one_row() -> None:
    assert taken(ROWS[0]) == {name: values[:1] for name, values in EXPECTED.items()}


def test_structured_array() -> None:
    rows = np.array([(1, 2.5), (2, 3.5)], dtype=[("id", "i2"), ("fare", "f4")])

    assert taken(rows) == {"id": [1, 2], "fare": [2.5, 3.5]}


def test_text_is_read_as_a_date_or_timestamp_like_in_predicates() -> None:
    assert taken({"id": 1, "day": "2013-07-04", "departs": "2013-07-04T14:00-04:00"}) == {
        "id": [1],
        "day": [DAY],
        "departs": [MOMENT],
    }


def test_no_rows_at_all() -> None:
    assert taken([]) == {name: [] for name in BOUND.column_names}
    assert taken({"id": [], "delay": np.array([], np.int16)}) == {"id": [], "delay": []}
    assert taken(FRAME.iloc[:0]) == {name: [] for name in EXPECTED}


def test_dicts_that_lack_a_column_give_null() -> None:
    assert taken([{"id": 1, "delay": 3}, {"id": 2, "origin": "x"}]) == {
        "id": [1, 2],
        "origin": [None, "x"],
        "delay": [3, None],
    }


def test_nan_is_a_number_unless_pandas_or_the_caller_says_otherwise() -> None:
    plain = {"id": [1], "fare": np.array([np.nan])}
    assert np.isnan(taken(plain)["fare"][0])
    assert np.isnan(taken(pd.DataFrame(plain))["fare"][0])
    assert np.isnan(taken({"id": 1, "fare": float("nan")})["fare"][0])
    assert np.isnan(taken(pa.table({"id": [1], "fare": [float("nan")]}))["fare"][0])
    for rows in (plain, pd.DataFrame(plain), {"id": 1, "fare": float("nan")}):
        assert taken(rows, nan_is_null=True)["fare"] == [None]
    objects = pd.DataFrame({"id": [1, 2], "fare": pd.Series([np.nan, 2.0], dtype=object)})
    assert taken(objects)["fare"] == [None, 2.0]


def test_strings_keep_every_character() -> None:
    texts = ["", "\0", "a", "a\0", "\0a", "🜚", "a"]
    for rows in ({"id": range(7), "origin": texts}, pa.table({"id": range(7), "origin": texts})):
        assert taken(dict(rows, id=list(range(7))) if isinstance(rows, dict) else rows)["origin"] == texts


@pytest.mark.parametrize("n_distinct", [0, 1, 40, 100_000])
@pytest.mark.parametrize("kind", [pa.string(), pa.large_string(), pa.string_view()])
def test_texts_of_arrow_are_the_same_whether_they_repeat_or_not(kind: pa.DataType, n_distinct: int) -> None:
    rng = np.random.default_rng(n_distinct)
    numbers = rng.integers(0, max(n_distinct, 1), 5_000).tolist()
    texts = [f"{'text' * (each % 4)} é{each}" if n_distinct and each % 9 else None for each in numbers]
    array = pa.array(texts, pa.string()).cast(kind)
    for start, stop in ((0, 5_000), (7, 4_999), (100, 103), (0, 0)):
        rows = pa.table({"id": pa.array(range(stop - start), pa.int64()), "origin": array[start:stop]})
        assert taken(rows)["origin"] == texts[start:stop]
    column = take_in(BOUND, pa.table({"id": range(5_000), "origin": array})).columns[1]
    assert len(column.texts) == (5_000 if n_distinct > 5_000 else len(set(texts) - {None}))


@pytest.mark.parametrize(
    ("name", "kind", "wide", "low", "high"),
    [
        ("day", pa.date32(), pa.int32(), DATE_MIN, DATE_MAX),
        ("departs", pa.timestamp("us", tz="UTC"), pa.int64(), TIMESTAMP_MIN, TIMESTAMP_MAX),
    ],
)
def test_moments_of_arrow_end_with_the_calendar(
    name: str, kind: pa.DataType, wide: pa.DataType, low: int, high: int
) -> None:
    def table(*moments: int | None) -> pa.Table:
        return pa.table({"id": range(len(moments)), name: pa.array(moments, wide).cast(kind)})

    assert taken(table(low, None, high))[name] == [low, None, high]
    assert taken(table(None, 5).slice(1))[name] == [5]
    assert taken(table())[name] == []
    for beyond in (low - 1, high + 1):
        with pytest.raises(TypeMismatchError, match=r"row 1.*9999"):
            taken(table(0, beyond))
    with pytest.raises(TypeMismatchError, match="is bool and cannot take"):
        taken(table(0).rename_columns(["id", "cancelled"]))


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ({"id": [1, 2], "delay": [1]}, "'delay' has 1 values"),
        ({"id": [1, 2], "delay": 1}, "either one row"),
        ({"delay": [1]}, "'id'.*not given"),
        ({"id": [1, None]}, "row 1 has NULL"),
        ([{"id": 1}, {"delay": 1}], "row 1 does not give it"),
        ({"id": np.ma.MaskedArray([1, 2], [True, False])}, "row 0 has NULL"),
        (pd.DataFrame({"id": [1.0, np.nan]}), "row 1 has NULL"),
        (pa.table({"id": pa.array([None, 1])}), "row 0 has NULL"),
        ({"id": [1, 2], "delay": [1, 40_000]}, "'delay', row 1: 40000 is out of range"),
        ({"id": [1, 2], "delay": np.array([1, -40_000])}, "row 1: -40000 is out of range"),
        ({"id": [1, 2**70]}, "row 1"),
        ({"id": np.array([2**63], np.uint64)}, "row 0"),
        (pd.DataFrame({"id": [1], "delay": [1e9]}), "out of range"),
        (pd.DataFrame({"id": [1], "delay": [1.5]}), "not a whole number"),
        ({"id": 1, "delay": 1.0}, "pass an int"),
        ({"id": 1, "delay": True}, "bool"),
        ({"id": 1, "delay": "5"}, "pass a number"),
        ({"id": 1, "origin": 5}, r"str\(value\)"),
        ({"id": 1, "origin": b"x"}, "decode"),
        ({"id": [1], "origin": np.array([b"x"])}, "decode"),
        ({"id": 1, "cancelled": 1}, "bool"),
        ({"id": [1], "cancelled": np.array([1])}, "bool"),
        ({"id": [1], "delay": np.array([1.0])}, "astype"),
        ({"id": 1, "departs": dt.datetime(2013, 7, 4)}, "naive"),
        ({"id": 1, "departs": "2013-07-04T18:00"}, "naive"),
        (pd.DataFrame({"id": [1], "departs": pd.to_datetime(["2013-07-04"])}), "tz_localize"),
        (pa.table({"id": [1], "departs": pa.array([0], pa.timestamp("us"))}), "naive"),
        ({"id": 1, "departs": dt.date(2013, 7, 4)}, "zone"),
        ({"id": 1, "day": dt.datetime(2013, 7, 4, tzinfo=UTC)}, r"value\.date\(\)"),
        ({"id": [1], "day": np.array(["2013-07-04T01"], "datetime64[h]")}, "time of day"),
        ({"id": [1], "departs": np.array([1], "datetime64[ns]")}, "microsecond"),
        ({"id": [1], "departs": np.array(["12013-01-01"], "datetime64[D]")}, "9999"),
        ({"id": 1, "weight": 1e39}, "float32"),
        ({"id": [1], "weight": np.array([1e39])}, "float32"),
        ({"id": 1, "fare": 2**53 + 1}, "exact"),
        ({"id": [1], "fare": np.array([2**53 + 1])}, "exact"),
        ({"id": 1, "origin": "\ud800"}, "surrogate"),
        (pa.table({"id": [1], "fare": pa.array(["0.1"]).cast(pa.decimal128(4, 2))}), "no exact form"),
        (pa.table({"id": [1], "origin": pa.array([b"x"])}), "binary"),
        ({"id": [[1], [2]]}, "list"),
        ({"id": np.zeros((2, 2), np.int32)}, "dimension"),
        (np.zeros(2), "structured"),
        ("abc", "str"),
        (5, "int"),
        ([(1, 2)], "row 0 is a tuple"),
        ({}, "empty"),
        ({1: [1]}, "column name"),
        (pd.DataFrame({0: [1]}), "column name"),
        (pd.DataFrame([[1, 2]], columns=["id", "id"]), "two columns"),
    ],
)
def test_what_does_not_fit_is_told_with_column_row_and_fix(rows, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        take_in(BOUND, rows)


def test_surplus_column_has_the_nearest_name() -> None:
    with pytest.raises(UnknownColumnError) as caught:
        take_in(BOUND, {"id": 1, "orign": "JFK"})

    assert caught.value.nearest == "origin"


def test_upsert_needs_keys_only_but_the_same_columns_in_every_row() -> None:
    columns = (
        ColumnDef("k", DataType.INT8, False),
        ColumnDef("x", DataType.INT8, False),
        ColumnDef("y", DataType.INT8),
    )
    schema = TableSchema("t", columns, "k", ("k",)).with_ids(1)

    assert take_in(schema, {"k": 1, "y": 2}, fills_missing=False).n_rows == 1
    with pytest.raises(TypeMismatchError, match="'x'"):
        take_in(schema, {"k": 1, "y": 2})
    with pytest.raises(TypeMismatchError, match="row 1 does not name column 'y'"):
        take_in(schema, [{"k": 1, "y": 2}, {"k": 2}], fills_missing=False)


def test_nan_in_the_partition_key_is_refused() -> None:
    schema = TableSchema("t", (ColumnDef("k", DataType.FLOAT64, False),), "k").with_ids(1)
    with pytest.raises(TypeMismatchError, match="row 1 has NaN"):
        take_in(schema, {"k": [0.0, float("nan")]})


@pytest.mark.parametrize("n_texts", [10, 50])
def test_taking_and_uniting_columns_keeps_values(n_texts: int) -> None:
    rng = np.random.default_rng(7)
    texts = [None if rng.random() < 0.2 else f"t{rng.integers(n_texts)}" for _ in range(300)]
    column = take_in(BOUND, {"id": list(range(300)), "origin": texts}).columns[1]
    order = rng.permutation(300)

    pieces = [take(column, order[start : start + 100]) for start in (0, 100, 200)]

    assert [value for piece in pieces for value in piece.to_list()] == [texts[row] for row in order]
    assert all(len(piece.dictionary) <= 50 for piece in pieces)
    assert unite(pieces).to_list() == [texts[row] for row in order]
    united = unite(pieces)
    assert (len(set(united.dictionary)) == len(united.dictionary)) is (n_texts == 10)
    # Whoever sorts or compares them has them interned.
    keys = sort_keys(from_column(united), is_descending=False)
    ordered = [united.to_list()[row] for row in np.lexsort(keys[::-1])]
    assert ordered == sorted(united.to_list(), key=lambda text: text or "")


def test_values_are_never_kept_by_reference() -> None:
    arrays = {
        "id": np.array([1, 2], np.int32),
        "fare": np.array([0.5, 1.5]),
        "cancelled": np.array([True, False]),
        "departs": np.array([1, 2], "datetime64[us]"),
    }
    before = taken(arrays)
    intake = take_in(BOUND, arrays)

    for array in arrays.values():
        array[0] = array[1]

    assert [column.to_list() for column in intake.columns] == list(before.values())
