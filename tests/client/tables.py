"""The table that the client's tests use, and rows for it."""

from __future__ import annotations

from crescando.schema import ColumnDef, DataType, TableSchema

FLIGHTS = TableSchema(
    "flights",
    (
        ColumnDef("id", DataType.INT32, nullable=False),
        ColumnDef("origin", DataType.STRING),
        ColumnDef("delay", DataType.INT16),
        ColumnDef("seats", DataType.INT64),
        ColumnDef("fare", DataType.FLOAT64),
        ColumnDef("weight", DataType.FLOAT32),
        ColumnDef("day", DataType.DATE),
        ColumnDef("departs", DataType.TIMESTAMP),
        ColumnDef("cancelled", DataType.BOOL),
    ),
    partition_key="id",
    primary_key=("id",),
)
"""One column of every kind of type."""

BOUND = FLIGHTS.with_ids(3)
"""The same as the catalog keeps it."""
