"""Columns travel as MessagePack has them, whichever way they are encoded."""

from __future__ import annotations

from random import Random

import msgspec
import numpy as np
import pytest

from crescando.client.columns import column_from_list
from crescando.engine import statement
from crescando.engine.heap import Texts
from crescando.engine.statement import (
    Column,
    Kind,
    Shape,
    decode_parameters,
    encode_in_pieces,
    encode_parameters,
)
from crescando.schema import ColumnDef, DataType

SHAPE = Shape(kind=Kind.INSERT, table=1, schema_version=1, columns=(1, 2, 3, 4))


def test_a_bool_that_is_neither_0_nor_1_does_not_enter() -> None:
    """Else a scan that looks at the byte and one that looks whether it is 0 would disagree."""
    raw = np.frombuffer(b"\0\1\2", np.bool_)
    for columns in (
        (Column(DataType.BOOL, raw),),
        (Column(DataType.INT8, np.arange(3, dtype=np.int8), raw),),
    ):
        with pytest.raises(ValueError, match="a bool"):
            decode_parameters(SHAPE, encode_parameters(SHAPE, columns))


def test_an_array_of_any_other_name_is_refused_and_not_looked_into() -> None:
    """NumPy takes a name such as ``(`` for a program, and says so by a SyntaxError."""
    random = Random(3)
    names = [b"(", b"[", b"{", b"O", b"i4,i4", b"<U4", b"M8", b""]
    names += [
        bytes(random.choices(b"<>=|iufbOVM0148,()[]{}:' ", k=random.randrange(8))) for _ in range(2_000)
    ]
    for name in names:
        array = msgspec.msgpack.Ext(1, bytes([len(name)]) + name + bytes(16))
        data = msgspec.msgpack.encode(
            [["int64", array, None, msgspec.msgpack.Ext(2, Texts.of(()).to_wire())]]
        )
        try:
            (column,) = decode_parameters(SHAPE, data)
        except (msgspec.MsgspecError, ValueError):
            continue
        assert column.values.dtype.kind in "biuf"


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 6, 12, 13, 14, 30, 60, 250, 300, 66_000])
@pytest.mark.parametrize("times", [1, 3, 4, 70])
def test_columns_are_encoded_as_any_encoder_would(n: int, times: int) -> None:
    if n * times > 1_000_000:
        return
    texts = [None if i % 3 == 0 else "é\0"[: i % 3] * (i % 5) for i in range(n)]
    columns = (
        Column(DataType.INT8, np.arange(n).astype(np.int8)),
        Column(DataType.INT64, np.arange(2 * n)[::2], np.arange(n) % 2 == 0),
        column_from_list(texts, ColumnDef("c", DataType.STRING)),
        Column(DataType.decimal(9, 2), np.arange(n).astype(np.int32)),
    )
    data = encode_parameters(SHAPE, columns * times)
    assert data == statement._ENCODER.encode(columns * times)
    assert b"".join(encode_in_pieces(SHAPE, columns * times)) == data
    assert len(msgspec.msgpack.decode(data)) == 4 * times
    found = decode_parameters(SHAPE, data)
    assert [column.to_list() for column in found[:4]] == [column.to_list() for column in columns]
