"""Rows of a staged part, cut into chunks that are what they were, whatever pieces they came in."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pyarrow as pa
import pytest

from crescando.client.chunks import Chunks
from crescando.client.inference import schema_from
from crescando.engine.statement import PHYSICAL, Kind, Shape, decode_parameters


@pytest.mark.parametrize("n_batches", [1, 2, 7])
@pytest.mark.parametrize("borders", [(), (1 << 62, 1 << 63)])
def test_chunks_are_the_rows_in_their_physical_types(n_batches: int, borders: tuple[int, ...]) -> None:
    n_rows = 700
    chance = np.random.default_rng(n_batches)
    rows = pa.table(
        {
            "id": np.arange(n_rows),
            # Few texts, which are sent as they are; many, which are cut down; and NULL.
            "few": pa.array([("MR", "MRS", None)[code] for code in chance.integers(0, 3, n_rows)]),
            "many": pa.array([f"text {number}" for number in range(n_rows)]),
            "none": pa.array([None] * n_rows, pa.string()),
        }
    )
    schema = schema_from("t", rows, primary_key="id")
    chunks = Chunks(schema, schema.column_names, "insert")

    cut = [
        chunk
        for batch in rows.to_batches(max_chunksize=n_rows // n_batches)
        for chunk in chunks.add(batch, borders)
    ]
    cut += chunks.rest(borders)

    found: Counter[tuple[object, ...]] = Counter()
    for chunk in cut:
        columns = decode_parameters(Shape(Kind.INSERT, schema.id, schema.version), chunk.payload)
        for column in columns:
            assert column.values.dtype == PHYSICAL[column.type]
        found.update(zip(*(column.to_list() for column in columns), strict=True))
    assert found == Counter(zip(*(column.to_pylist() for column in rows.columns), strict=True))
