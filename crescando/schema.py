"""Tables as values: types, columns, keys and partition functions.

Rules of the file: schemas are immutable values that travel inside the routing
configuration (the catalog), so every class here encodes canonically and none
of them touches data. What a partition function *does* lives in
`crescando.engine.partition`.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from crescando.errors import SpecError, UnknownColumnError

COLUMNS_MAX = 4_096
"""Columns of a table: as many outputs as a statement may have."""

PARTITION_VERSION = 1
"""Of the partition functions that there are."""

DIGITS_MAX = 18
"""The most digits of a decimal: every one of them, with its sign, fits int64."""


class DataType(Enum):
    """A column type. The value is its name in text and on the wire.

    The decimals are a family with one member per precision and scale, named
    ``decimal(9,2)`` and made by `decimal`. They are members like any other
    (one object each, found by name), but iteration leaves them out.
    """

    BOOL = "bool"
    INT8 = "int8"
    INT16 = "int16"
    INT32 = "int32"
    INT64 = "int64"
    FLOAT32 = "float32"
    FLOAT64 = "float64"
    STRING = "string"
    BYTES = "bytes"
    DATE = "date"
    """Days since 1970-01-01, stored as int32."""
    TIMESTAMP = "timestamp"
    """Microseconds since 1970-01-01T00:00:00 UTC, stored as int64."""

    # Each is one object, and equal to nothing else; an enumeration's own hash is one of its name, in Python.
    __hash__ = object.__hash__

    @property
    def is_integer(self) -> bool:
        """Whether values are whole numbers (dates and timestamps are not numbers)."""
        return self in _INTEGERS

    @property
    def is_float(self) -> bool:
        """Whether values are binary floating point."""
        return self in (DataType.FLOAT32, DataType.FLOAT64)

    @property
    def is_textual(self) -> bool:
        """Whether values are strings or bytes, which are kept as codes of a pool."""
        return self in (DataType.STRING, DataType.BYTES)

    @property
    def is_decimal(self) -> bool:
        """Whether values are whole numbers of units of ``10**-scale``."""
        return self in _DIGITS

    @property
    def is_exact(self) -> bool:
        """Whether values are integers or decimals, on which arithmetic is exact."""
        return self in _INTEGERS or self in _DIGITS

    @property
    def is_number(self) -> bool:
        """Whether arithmetic is defined on values."""
        return self.is_exact or self.is_float

    @property
    def precision(self) -> int:
        """How many digits a decimal has; 0 for other types."""
        return _DIGITS.get(self, (0, 0))[0]

    @property
    def scale(self) -> int:
        """How many of a decimal's digits stand after the point; 0 for other types."""
        return _DIGITS.get(self, (0, 0))[1]

    @classmethod
    def decimal(cls, precision: int, scale: int = 0) -> DataType:
        """Give the type of exact numbers of so many digits, `scale` of them after the point.

        Raises
        ------
        SpecError
            Unless ``1 <= precision <= 18`` and ``0 <= scale <= precision``.
        """
        found = _DECIMALS.get((precision, scale))
        if found is None:
            raise SpecError(
                f"decimal({precision},{scale}) does not exist: it has 1 to {DIGITS_MAX} digits, "
                "of which 0 to all stand after the point"
            )
        return found


_INTEGERS = frozenset({DataType.INT8, DataType.INT16, DataType.INT32, DataType.INT64})


def _make_decimal(precision: int, scale: int) -> DataType:
    """Make one member of the family, which whoever looks a type up by its name will find."""
    made = object.__new__(DataType)
    made._name_, made._value_ = f"DECIMAL_{precision}_{scale}", f"decimal({precision},{scale})"
    DataType._value2member_map_[made._value_] = made
    return made


_DECIMALS = {(p, s): _make_decimal(p, s) for p in range(1, DIGITS_MAX + 1) for s in range(p + 1)}
_DIGITS = {kind: digits for digits, kind in _DECIMALS.items()}

DECIMALS: tuple[DataType, ...] = tuple(_DIGITS)
"""Every decimal type there is."""


class ColumnDef(msgspec.Struct, frozen=True, array_like=True):
    """One column of a table.

    `id` is given by the catalog, is never used again in the same table, and is
    what statement shapes refer to.
    """

    name: str
    type: DataType
    nullable: bool = True
    id: int = -1


class HashPartition(msgspec.Struct, frozen=True, array_like=True, tag="hash"):
    """Spread keys by a salted 64-bit mix over their canonical bytes."""

    salt: int = 0
    version: int = 1


class RangePartition(msgspec.Struct, frozen=True, array_like=True, tag="range"):
    """Spread keys linearly between two declared bounds, clamped outside them.

    Bounds are in the column's physical unit: integers and floats as they are,
    dates in days, timestamps in microseconds, strings as text. Bounds of a decimal
    key are plain numbers, not units of its scale.
    """

    low: int | float | str
    high: int | float | str
    version: int = 1


Partition = HashPartition | RangePartition


class TableSchema(msgspec.Struct, frozen=True, array_like=True):
    """A table: its columns, its keys and how keys are spread over the ring.

    Parameters
    ----------
    name : str
    columns : tuple of ColumnDef
    partition_key : str
        A NOT NULL column that decides a row's ring position.
    primary_key : tuple of str
        Unique key, or empty for a table whose rows have only a hidden key. If
        not empty it contains the partition key and its columns are NOT NULL.
    partition : HashPartition or RangePartition
    id, version : int
        Given by the catalog; -1 and 0 before that.
    """

    name: str
    columns: tuple[ColumnDef, ...]
    partition_key: str
    primary_key: tuple[str, ...] = ()
    partition: HashPartition | RangePartition = HashPartition()
    id: int = -1
    version: int = 0

    @property
    def column_names(self) -> tuple[str, ...]:
        """The columns' names, in order."""
        return tuple(column.name for column in self.columns)

    def column(self, name: str) -> ColumnDef:
        """Give a column by name.

        Raises
        ------
        UnknownColumnError
            With the nearest name, if there is none.
        """
        for column in self.columns:
            if column.name == name:
                return column
        raise UnknownColumnError(name, self.name, self.column_names)

    def column_by_id(self, column_id: int) -> ColumnDef | None:
        """Give a column by its catalog id, or None if it does not exist (any more)."""
        for column in self.columns:
            if column.id == column_id:
                return column
        return None

    @property
    def key_columns(self) -> frozenset[str]:
        """Columns that no UPDATE may assign."""
        return frozenset({self.partition_key, *self.primary_key})

    def with_ids(self, table_id: int) -> TableSchema:
        """Give the schema as the catalog keeps it: ids set, version 1."""
        columns = tuple(
            ColumnDef(column.name, column.type, column.nullable, index)
            for index, column in enumerate(self.columns)
        )
        return msgspec.structs.replace(self, columns=columns, id=table_id, version=1)

    def validate(self) -> None:
        """Check what a schema alone can tell.

        Raises
        ------
        SpecError
            Naming the first fault and its mend.
        """
        if not self.name.isidentifier():
            raise SpecError(f"table name {self.name!r} is not an identifier")
        if not self.columns:
            raise SpecError(f"table {self.name!r} has no columns")
        if len(self.columns) > COLUMNS_MAX:
            raise SpecError(f"table {self.name!r} has {len(self.columns)} columns; at most {COLUMNS_MAX}")
        known: set[str] = set()
        for name in self.column_names:
            if not name.isidentifier():
                raise SpecError(f"column name {name!r} is not an identifier")
            if name in known:
                raise SpecError(f"column {name!r} is declared twice")
            known.add(name)
        if len(set(self.primary_key)) < len(self.primary_key):
            raise SpecError(f"the primary key {self.primary_key!r:.200} names a column twice")
        for key in (self.partition_key, *self.primary_key):
            column = self.column(key)
            if column.nullable:
                raise SpecError(f"key column {key!r} must be declared nullable=False")
        if self.primary_key and self.partition_key not in self.primary_key:
            raise SpecError(
                f"the primary key {self.primary_key!r} must contain the partition key "
                f"{self.partition_key!r}, so that equal keys meet on one process"
            )
        if self.partition.version != PARTITION_VERSION:
            raise SpecError(f"partition function version {self.partition.version} is not known")
        if isinstance(self.partition, RangePartition):
            self._validate_range(self.partition)

    def _validate_range(self, partition: RangePartition) -> None:
        kind = self.column(self.partition_key).type
        if kind is DataType.BOOL:
            raise SpecError("a bool column cannot be range partitioned; use HashPartition")
        if kind is DataType.BYTES:
            raise SpecError("a bytes column cannot be range partitioned; use HashPartition")
        textual = isinstance(partition.low, str), isinstance(partition.high, str)
        if textual != (kind is DataType.STRING, kind is DataType.STRING):
            raise SpecError(f"range bounds {partition!r} do not fit the type {kind.value}")
        if not partition.low < partition.high:  # type: ignore[operator]
            raise SpecError(f"range bounds must be ascending, not {partition!r}")
