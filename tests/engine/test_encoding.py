"""Columns travel as MessagePack has them, whichever way they are encoded."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from crescando.client.columns import column_from_list
from crescando.engine import statement
from crescando.engine.statement import Column, Kind, Shape, decode_parameters, encode_parameters
from crescando.schema import ColumnDef, DataType

SHAPE = Shape(kind=Kind.INSERT, table=1, schema_version=1, columns=(1, 2, 3, 4))


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
    assert len(msgspec.msgpack.decode(data)) == 4 * times
    found = decode_parameters(SHAPE, data)
    assert [column.to_list() for column in found[:4]] == [column.to_list() for column in columns]
