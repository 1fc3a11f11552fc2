"""Answers: the same rows in every form; merging and ordering pieces."""

from __future__ import annotations

import datetime as dt
import math
import pickle
import random

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest

from crescando import errors
from crescando.client.answer import Answer
from crescando.client.base import Piece, ReadInParts
from crescando.client.columns import column_from_list
from crescando.client.merging import rows_answer
from crescando.client.order import ordered
from crescando.engine.statement import Column
from crescando.errors import UnknownColumnError
from crescando.schema import ColumnDef, DataType
from crescando.types import FULL_RING, Position

UTC = dt.UTC
AT = Position(7 << 20)

VALUES: dict[str, tuple[DataType, list[object]]] = {
    "b": (DataType.BOOL, [True, None, False]),
    "i": (DataType.INT16, [1, None, -3]),
    "f": (DataType.FLOAT64, [0.5, None, math.nan]),
    "g": (DataType.FLOAT32, [0.5, 1.5, math.inf]),
    "s": (DataType.STRING, ["a\0", None, "🜚"]),
    "d": (DataType.DATE, [dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
    "t": (
        DataType.TIMESTAMP,
        [dt.datetime(2013, 7, 4, 18, 0, 0, 1, UTC), None, dt.datetime(1, 1, 1, tzinfo=UTC)],
    ),
    "n": (DataType.INT64, [2**63 - 1, 0, -(2**63)]),
}


def column_of(kind: DataType, values: list[object]) -> Column:
    return column_from_list(values, ColumnDef("x", kind))


def answer_of(values=VALUES) -> Answer:
    return Answer.of(AT, tuple(values), [column_of(kind, listed) for kind, listed in values.values()])


def test_rows_and_dicts_are_python_values() -> None:
    answer = answer_of()

    expected = list(zip(*(listed for _, listed in VALUES.values()), strict=True))
    assert repr(answer.rows()) == repr(expected)
    assert list(map(repr, answer)) == list(map(repr, expected))
    assert repr(answer.dicts()[0]) == repr(dict(zip(VALUES, expected[0], strict=True)))
    assert len(answer) == 3
    assert answer.types == tuple(kind for kind, _ in VALUES.values())
    assert answer.column("t")[0].tzinfo is UTC
    assert [type(value) for value in answer.rows()[0]] == [
        bool,
        int,
        float,
        float,
        str,
        dt.date,
        dt.datetime,
        int,
    ]


def test_unknown_column_has_the_nearest() -> None:
    answer = Answer.of(AT, ("delay",), [column_of(DataType.INT8, [1])])
    with pytest.raises(UnknownColumnError) as caught:
        answer.column("dely")
    assert caught.value.nearest == "delay"


def test_numpy_masks_null_and_keeps_nan() -> None:
    arrays = answer_of().to_numpy()

    assert arrays["i"].dtype == np.int16
    assert isinstance(arrays["i"], np.ma.MaskedArray)
    assert arrays["i"].mask.tolist() == [False, True, False]
    assert np.isnan(arrays["f"][2])
    assert not isinstance(arrays["g"], np.ma.MaskedArray)
    assert arrays["s"].dtype == object
    assert arrays["d"].dtype == np.dtype("datetime64[D]")
    assert arrays["t"].dtype == np.dtype("datetime64[us]")


def test_arrays_belong_to_the_caller() -> None:
    answer = answer_of({"n": VALUES["n"]})
    answer.to_numpy()["n"][:] = 0
    frame = answer.to_pandas()
    frame.iloc[0, 0] = 0

    assert answer.column("n") == VALUES["n"][1]


def test_pandas_has_exact_dtypes() -> None:
    frame = answer_of().to_pandas()

    assert {name: str(dtype) for name, dtype in frame.dtypes.items()} == {
        "b": "boolean",
        "i": "Int16",
        "f": "Float64",
        "g": "float32",
        # Texts are objects before pandas 3, which has a type for them.
        "s": "str" if int(pd.__version__.partition(".")[0]) >= 3 else "object",
        "d": "object",
        "t": "datetime64[us, UTC]",
        "n": "int64",
    }
    assert frame["i"].isna().tolist() == [False, True, False]
    assert frame["d"].tolist() == VALUES["d"][1]
    assert frame["s"].isna().tolist() == [False, True, False]
    assert frame["s"][0] == "a\0"
    assert math.isnan(frame["f"].array._data[2])


def test_arrow_has_exact_types_and_streams() -> None:
    table = pa.table(answer_of())

    assert [str(field.type) for field in table.schema] == [
        "bool",
        "int16",
        "double",
        "float",
        "string",
        "date32[day]",
        "timestamp[us, tz=UTC]",
        "int64",
    ]
    assert repr(table.column("f").to_pylist()) == repr(VALUES["f"][1])
    for name in ("b", "i", "s", "d", "t", "n"):
        assert table.column(name).to_pylist() == VALUES[name][1]


def test_an_answer_of_no_rows_keeps_names_and_types() -> None:
    answer = answer_of({name: (kind, []) for name, (kind, _) in VALUES.items()})

    assert len(answer) == 0
    assert answer.rows() == answer.dicts() == []
    assert list(answer.to_pandas().columns) == list(VALUES)
    assert answer.to_arrow().num_rows == 0
    assert answer.to_numpy()["i"].dtype == np.int16
    assert isinstance(answer.to_pandas(), pd.DataFrame)


def test_repr_shows_a_small_table() -> None:
    answer = Answer.of(
        AT,
        ("id", "name"),
        [column_of(DataType.INT8, list(range(12))), column_of(DataType.STRING, ["x" * 99] * 12)],
    )

    text = repr(answer)

    assert text.splitlines()[0].split() == ["id", "name"]
    assert "… 2 more" in text
    assert "x" * 30 not in text
    assert text.endswith(f"[12 rows at position {AT}]")


def test_pieces_merge_in_any_order_whatever_their_dictionaries() -> None:
    rng = random.Random(20130704)
    texts = [rng.choice(["a", "b", "c", "", None]) for _ in range(200)]
    pieces = []
    for start in range(0, 200, 20):
        part = texts[start : start + 20]
        columns = (
            column_of(DataType.STRING, part),
            column_of(DataType.INT64, list(range(start, start + 20))),
        )
        pieces.append(Piece.of((FULL_RING,), ("s", "n"), columns))
    pieces.append(
        Piece.of((FULL_RING,), ("s", "n"), (column_of(DataType.STRING, []), column_of(DataType.INT64, [])))
    )
    rng.shuffle(pieces)

    answer = rows_answer()(ReadInParts(AT, tuple(pieces)))

    assert sorted(answer.rows(), key=lambda row: row[1]) == [(text, n) for n, text in enumerate(texts)]


def test_codes_where_not_valid_mean_nothing() -> None:
    wild = Column(DataType.STRING, np.array([0, 999, -5], np.int32), np.array([True, False, False]), ("a",))
    other = column_of(DataType.STRING, ["b"])
    pieces = tuple(Piece.of((FULL_RING,), ("s",), (column,)) for column in (other, wild))

    answer = rows_answer(1, [(1, True)])(
        ReadInParts(AT, tuple(Piece.of(p.scope, ("s", "order by 0"), p.columns * 2) for p in pieces))
    )

    assert answer.rows() == [("b",), ("a",), (None,), (None,)]
    assert answer_of({}).rows() == []


@pytest.mark.parametrize("is_descending", [False, True])
def test_order_is_sql_s(is_descending: bool) -> None:
    for kind, ascending in (
        (DataType.FLOAT64, [None, -math.inf, -1.0, 0.0, 2.5, math.inf, math.nan]),
        (DataType.STRING, [None, "", "\0", "B", "a", "a\0", "é", "\uffff", "🜚"]),
        (DataType.INT64, [None, -(2**63), -1, 0, 2**63 - 1]),
        (DataType.BOOL, [None, False, True]),
    ):
        listed = list(ascending)
        random.Random(3).shuffle(listed)
        column = column_of(kind, listed)

        (found,) = ordered([column], [(column, is_descending)], None)

        assert repr(found.to_list()) == repr(ascending[::-1] if is_descending else ascending)


def test_equal_floats_tie_whatever_their_sign_and_later_keys_decide() -> None:
    first = column_of(DataType.FLOAT64, [0.0, -0.0, 0.0, math.nan, math.nan])
    second = column_of(DataType.INT8, [3, 2, 1, 5, 4])

    (found,) = ordered([second], [(first, False), (second, False)], 4)

    assert found.to_list() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    "error",
    [
        errors.UnknownTableError("a", ("b",)),
        errors.PredicateError("m", "t", 3),
        errors.RowsRejectedError(1, 2, (3,), "duplicate key"),
        errors.DeadlineError("late"),
        errors.RefusedError("no"),
    ],
)
def test_errors_survive_pickling(error: Exception) -> None:
    copy = pickle.loads(pickle.dumps(error))

    assert str(copy) == str(error)
    assert vars(copy) == vars(error)


def test_bytes_go_out_as_they_came_in() -> None:
    values = [b"", b"a\0", None, b"\xff"]
    column = column_from_list(values, ColumnDef("b", DataType.BYTES))
    answer = Answer.of(1, ("b",), [column])
    assert [row[0] for row in answer.rows()] == values
    assert answer.to_arrow().column("b").to_pylist() == values
    assert answer.to_pandas()["b"].tolist() == values
    assert answer.to_numpy()["b"].tolist() == values
