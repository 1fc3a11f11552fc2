"""Schemas from data that is there already."""

from __future__ import annotations

import datetime as dt

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crescando.client.inference import schema_from
from crescando.errors import SpecError, TypeMismatchError
from crescando.schema import DataType, RangePartition

UTC = dt.UTC


def types_of(frame) -> dict[str, str]:
    return {column.name: column.type.value for column in schema_from("t", frame, partition_key="k").columns}


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([True, None], "bool"),
        ([1, None], "int64"),
        ([1, 2.5], "float64"),
        (["a"], "string"),
        ([b"a", None], "bytes"),
        (pa.array([b"a"]), "bytes"),
        ([dt.date(2013, 1, 1)], "date"),
        ([dt.datetime(2013, 1, 1, tzinfo=UTC)], "timestamp"),
        ([np.int8(1)], "int64"),
        (np.array([1], np.int8), "int8"),
        (np.array([1], np.uint8), "int16"),
        (np.array([1], np.uint64), "int64"),
        (np.array([1], np.float16), "float32"),
        (np.array(["a"]), "string"),
        (np.array(["a", None], object), "string"),
        (np.array(["2013-01-01"], "datetime64[D]"), "date"),
        (np.array(["2013-01-01"], "datetime64[ns]"), "timestamp"),
        (pd.Series([1.0, np.nan]), "float64"),
        (pd.Series(["a", None]), "string"),
        (pd.Series(["a", None], dtype=object), "string"),
        (pd.Series(["a", None], dtype="category"), "string"),
        (pd.array([1, None], dtype="Int32"), "int32"),
        (pd.array([True, None], dtype="boolean"), "bool"),
        (pd.Series(pd.to_datetime(["2013-01-01"])).dt.tz_localize("Asia/Tokyo"), "timestamp"),
        (pd.Series([1], dtype="int16[pyarrow]"), "int16"),
        (pa.array(["a"]).dictionary_encode(), "string"),
        (pa.array([dt.date(2013, 1, 1)]), "date"),
        (pa.array([0], pa.timestamp("s", tz="UTC")), "timestamp"),
        (pa.array([1.0], pa.float32()), "float32"),
        (pa.chunked_array([[1], [2]]), "int64"),
    ],
)
def test_types_come_from_the_data_s_own_types(values, kind: str) -> None:
    assert types_of({"k": [1], "x": values})["x"] == kind


def test_whole_tables_and_rows() -> None:
    expected = {"k": "int64", "x": "string"}
    assert types_of([{"k": 1}, {"k": 2, "x": "a"}]) == expected
    assert types_of({"k": 1, "x": "a"}) == expected
    assert types_of(pa.table({"k": [1], "x": ["a"]})) == expected
    assert types_of(pd.DataFrame({"k": [1], "x": ["a"]})) == expected
    assert types_of(np.array([(1, "a")], dtype=[("k", "i8"), ("x", "U3")])) == expected


def test_keys_are_not_nullable_and_the_rest_is() -> None:
    schema = schema_from(
        "t", {"a": [1], "b": [2], "c": [3]}, primary_key=("a", "b"), partition=RangePartition(0, 9)
    )

    assert [column.nullable for column in schema.columns] == [False, False, True]
    assert schema.partition_key == "a"
    assert schema.primary_key == ("a", "b")
    assert schema.partition == RangePartition(0, 9)
    assert schema_from("t", {"a": [1]}, primary_key="a").columns[0].type is DataType.INT64


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ([None], "only NULL"),
        ([], "only NULL"),
        ([1, "a"], "int64, string"),
        ([True, 1], "bool, int64"),
        ([dt.datetime(2013, 1, 1)], "naive"),
        (np.array([1j]), "complex"),
        (np.array([b"x"]), r"\|S1"),
        (pd.Series(pd.to_datetime(["2013-01-01"])), "tz_localize"),
        (pa.array([0], pa.timestamp("us")), "naive"),
    ],
)
def test_what_cannot_be_told_is_refused_with_the_column(values, said: str) -> None:
    with pytest.raises(TypeMismatchError, match=said):
        types_of({"k": [1], "x": values})


@pytest.mark.parametrize(
    ("keys", "said"),
    [({}, "name the partition key"), ({"primary_key": "x", "partition_key": "k"}, "must contain")],
)
def test_keys_are_checked(keys, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        schema_from("t", {"k": [1], "x": [1]}, **keys)
