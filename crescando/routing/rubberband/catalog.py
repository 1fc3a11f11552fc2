"""The catalog: which tables exist, as an immutable value inside the configuration.

Rules of the file: table ids are never used again, nor are column ids within a
table, since statement shapes name both and may be older than the catalog they
meet. Every change of a table's columns raises its version. Equal catalogs
encode to equal bytes. What must not happen is a `Refusal`.
"""

from __future__ import annotations

from bisect import bisect_left

import msgspec

from crescando.errors import CrescandoError, UnknownTableError
from crescando.routing.base import Refusal
from crescando.routing.rubberband.messages import (
    AddColumn,
    CatalogMessage,
    CreateTable,
    DropColumn,
    DropTable,
)
from crescando.schema import RangePartition, TableSchema


class Catalog(msgspec.Struct, frozen=True, array_like=True):
    """Every table, and the next ids to give.

    Attributes
    ----------
    tables : tuple of TableSchema
        Ascending by id.
    next_columns : tuple of int
        The next column id of each table, in the order of `tables`.
    next_table : int
    """

    tables: tuple[TableSchema, ...] = ()
    next_columns: tuple[int, ...] = ()
    next_table: int = 0

    def by_id(self, table_id: int) -> TableSchema | None:
        """Give a table by id, or None if it does not exist (any more)."""
        index = bisect_left(self.tables, table_id, key=_id_of)
        if index < len(self.tables) and self.tables[index].id == table_id:
            return self.tables[index]
        return None

    def table(self, name: str) -> TableSchema:
        """Give a table by name.

        Raises
        ------
        UnknownTableError
            With the nearest name, if there is none.
        """
        for table in self.tables:
            if table.name == name:
                return table
        raise UnknownTableError(name, tuple(table.name for table in self.tables))

    def missing(self, table_id: int) -> Refusal:
        """Say why data messages for an id that `by_id` does not find are refused."""
        if 0 <= table_id < self.next_table:
            return Refusal(f"table was dropped (id {table_id})")
        return Refusal(f"no table has the id {table_id}")

    def after(self, message: CatalogMessage) -> Catalog:
        """Give the catalog that a message makes of this one.

        Raises
        ------
        Refusal
            If the name is taken or unknown, or the resulting schema is invalid.
        """
        match message:
            case CreateTable(schema):
                return self._with_table(schema)
            case DropTable(name):
                return self._without_table(self._known(name))
            case AddColumn(name):
                return self._with_column(self._known(name), message)
            case DropColumn(name):
                return self._without_column(self._known(name), message)

    def _known(self, name: str) -> TableSchema:
        try:
            return self.table(name)
        except UnknownTableError as error:
            raise Refusal(str(error)) from error

    def _with_table(self, schema: TableSchema) -> Catalog:
        if any(table.name == schema.name for table in self.tables):
            raise Refusal(f"a table named {schema.name!r} exists already")
        table = _checked(_canonical(schema.with_ids(self.next_table)))
        return Catalog((*self.tables, table), (*self.next_columns, len(table.columns)), self.next_table + 1)

    def _without_table(self, table: TableSchema) -> Catalog:
        index = self.tables.index(table)
        return Catalog(
            self.tables[:index] + self.tables[index + 1 :],
            self.next_columns[:index] + self.next_columns[index + 1 :],
            self.next_table,
        )

    def _with_column(self, table: TableSchema, message: AddColumn) -> Catalog:
        if not message.column.nullable:
            raise Refusal(
                f"column {message.column.name!r} must be nullable, since existing rows have no value for it"
            )
        index = self.tables.index(table)
        column_id = self.next_columns[index]
        column = msgspec.structs.replace(message.column, id=column_id)
        changed = msgspec.structs.replace(table, columns=(*table.columns, column), version=table.version + 1)
        return self._changed(index, _checked(changed), column_id + 1)

    def _without_column(self, table: TableSchema, message: DropColumn) -> Catalog:
        if message.column in table.key_columns:
            raise Refusal(f"column {message.column!r} is part of a key of table {table.name!r}")
        try:
            gone = table.column(message.column)
        except CrescandoError as error:
            raise Refusal(str(error)) from error
        index = self.tables.index(table)
        columns = tuple(column for column in table.columns if column.id != gone.id)
        changed = msgspec.structs.replace(table, columns=columns, version=table.version + 1)
        return self._changed(index, _checked(changed), self.next_columns[index])

    def _changed(self, index: int, table: TableSchema, next_column: int) -> Catalog:
        return Catalog(
            (*self.tables[:index], table, *self.tables[index + 1 :]),
            (*self.next_columns[:index], next_column, *self.next_columns[index + 1 :]),
            self.next_table,
        )


EMPTY_CATALOG = Catalog()
"""The catalog a cluster begins with."""


def _id_of(table: TableSchema) -> int:
    return table.id


def _checked(schema: TableSchema) -> TableSchema:
    try:
        schema.validate()
    except CrescandoError as error:
        raise Refusal(f"invalid schema: {error}") from error
    return schema


def _canonical(schema: TableSchema) -> TableSchema:
    # 0, 0.0 and -0.0 are equal but encode differently; equal catalogs must not.
    partition = schema.partition
    if not isinstance(partition, RangePartition):
        return schema
    low, high = _canonical_bound(partition.low), _canonical_bound(partition.high)
    return msgspec.structs.replace(schema, partition=RangePartition(low, high, partition.version))


def _canonical_bound(bound: int | float | str) -> int | float | str:
    if isinstance(bound, float) and bound.is_integer() and -(1 << 63) <= bound < 1 << 64:
        return int(bound)
    return bound
