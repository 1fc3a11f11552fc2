"""Look-ups: columns of a table beside the rows of a frame, found by key.

The keys of a partition become thousands of point queries that are submitted together
and ride on shared scans (RB13 §3.1); nothing is joined by Spark, and nothing of the table
but the rows asked for leaves the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial, reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crescando.client.base import Isolation
from crescando.client.expression import Expr, col, param
from crescando.errors import TypeMismatchError, UnknownColumnError
from crescando.schema import DataType, TableSchema
from crescando.spark.connections import Place, connected
from crescando.spark.options import CLIENT, read_options
from crescando.spark.reading import arrow_schema, look_up
from crescando.spark.types import data_type, spark_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

Key = tuple[Any, ...]

WINDOW = 8192
"""So many queries of a task are on their way at once; scans are shared by far fewer already."""


def lookup(
    df: DataFrame,
    table: str,
    on: str | Iterable[str] | Mapping[str, str],
    *,
    columns: Iterable[str] | Mapping[str, str] | None = None,
    url: str | None = None,
    tls: Path | str | None = None,
    client: str = CLIENT,
    isolation: Isolation = "snapshot",
    timeout_s: float | None = None,
) -> DataFrame:
    """Give a frame with columns of a table beside its rows, found by the table's primary key.

    Rows keep their order within partitions; a key that the table does not have, or NULL, gives NULLs.

    Parameters
    ----------
    df : DataFrame
    table : str
    on : str, iterable of str, or mapping
        The key: columns of the frame that are named as the table's key columns, or
        ``{column of the frame: key column}``.
    columns : iterable of str, or mapping, optional
        Of the table; ``{column: new name}`` renames. By default all but the key.
    url, tls, client
        As for `load`.
    isolation : str
        Of each query; see `Table.select`. Each batch of keys is looked up when it comes by.
    timeout_s : float, optional
        How long the queries of a batch may take.

    Raises
    ------
    TypeMismatchError
        If `on` is not the primary key, a type does not fit it, or a name is taken in the frame.
    UnknownColumnError
        With the nearest name.
    """
    from pyspark.sql.types import StructField, StructType

    options = read_options(
        {
            "url": url,
            "tls": tls,
            "client": client,
            "table": table,
            "timeout_s": timeout_s,
        }
    )
    schema = look_up(options)
    keys = _keys(df.schema, schema, on)
    names = _names(df.schema, schema, columns)
    found = spark_schema(schema, names)
    added = [StructField(names[field.name], field.dataType, True) for field in found.fields]
    task = partial(
        _looked_up, options.place, table, keys, tuple(names), StructType(added), isolation, options.timeout_s
    )
    return df.mapInArrow(task, StructType([*df.schema.fields, *added]))


def _keys(
    frame: StructType, table: TableSchema, on: str | Iterable[str] | Mapping[str, str]
) -> tuple[tuple[str, str], ...]:
    """Give (column of the frame, key column), in the order of the key."""
    if isinstance(on, str):
        pairs = {on: on}
    elif isinstance(on, Mapping):
        pairs = dict(on)
    else:
        pairs = {name: name for name in on}
    names = frame.fieldNames()
    for mine, theirs in pairs.items():
        if mine not in names:
            raise UnknownColumnError(mine, "the frame", tuple(names))
        table.column(theirs)
    if sorted(pairs.values()) != sorted(table.primary_key):
        wanted = ", ".join(table.primary_key) or "there is none"
        raise TypeMismatchError(
            f"a look-up finds rows by the primary key of table {table.name!r} ({wanted}), "
            f"not by {', '.join(pairs.values()) or 'nothing'}; join with an extract instead"
        )
    mine_of = {theirs: mine for mine, theirs in pairs.items()}
    for theirs in table.primary_key:
        kind = data_type(frame[mine_of[theirs]].dataType, mine_of[theirs])
        wanted_kind = table.column(theirs).type
        if not (kind is wanted_kind or (_family(kind) and _family(kind) == _family(wanted_kind))):
            raise TypeMismatchError(
                f"column {mine_of[theirs]!r} of the frame is {kind.value}, and key column {theirs!r} of "
                f"table {table.name!r} is {wanted_kind.value}: cast it"
            )
    return tuple((mine_of[theirs], theirs) for theirs in table.primary_key)


def _family(kind: DataType) -> str:
    """Name types whose values may be compared whatever their widths."""
    return (
        "integer" if kind.is_integer else "decimal" if kind.is_decimal else "float" if kind.is_float else ""
    )


def _names(
    frame: StructType, table: TableSchema, columns: Iterable[str] | Mapping[str, str] | None
) -> dict[str, str]:
    """Give the new name of each column that is looked up."""
    if columns is None:
        names = {name: name for name in table.column_names if name not in table.primary_key}
    elif isinstance(columns, Mapping):
        names = dict(columns)
    else:
        names = {name: name for name in ([columns] if isinstance(columns, str) else columns)}
    if not names:
        raise TypeMismatchError(f"no column of table {table.name!r} is looked up; name some in columns")
    taken = [name.lower() for name in frame.fieldNames()]
    for theirs, mine in names.items():
        table.column(theirs)
        if mine.lower() in taken:
            raise TypeMismatchError(
                f"the frame has a column {mine!r} already: rename it, "
                f"as in columns={{{theirs!r}: 'their_{theirs}'}}"
            )
        taken.append(mine.lower())
    return names


def _looked_up(
    place: Place,
    table: str,
    keys: tuple[tuple[str, str], ...],
    columns: tuple[str, ...],
    added: StructType,
    isolation: Isolation,
    timeout_s: float | None,
    batches: Iterable[Any],
) -> Iterator[Any]:
    """Do a task's part."""
    import pyarrow as pa

    types = arrow_schema(added)
    with connected(place, timeout_s) as store:
        tests: list[Expr] = [col(theirs) == param(number) for number, (_, theirs) in enumerate(keys)]
        where = reduce(lambda left, right: left & right, tests)
        statement = (
            store.table_nowait(table)
            .result(timeout_s)
            .prepare_select(list(columns), where, isolation=isolation)
        )
        for batch in batches:
            wanted = list(zip(*(_values(pa, batch.column(mine)) for mine, _ in keys), strict=True))
            rows = _rows(statement, wanted, timeout_s)
            nothing = (None,) * len(columns)
            found = [rows.get(key, nothing) for key in wanted]
            news = [
                pa.array([row[number] for row in found], field.type) for number, field in enumerate(types)
            ]
            yield pa.RecordBatch.from_arrays(
                [*batch.columns, *news], schema=pa.schema([*batch.schema, *types])
            )


def _values(pa: Any, column: Any) -> list[Any]:
    """Give a key column's values; instants in UTC, whatever zone the session calls them by."""
    if pa.types.is_timestamp(column.type):
        column = column.cast(pa.timestamp("us", "UTC"))
    values: list[Any] = column.to_pylist()
    return values


def _rows(statement: Any, wanted: list[Key], timeout_s: float | None) -> dict[Key, tuple[Any, ...]]:
    """Look distinct keys up; those that are found, with their rows."""
    distinct = [key for key in dict.fromkeys(wanted) if None not in key]
    found: dict[Key, tuple[Any, ...]] = {}
    for start in range(0, len(distinct), WINDOW):
        asked = distinct[start : start + WINDOW]
        for key, handle in zip(asked, statement.many(asked), strict=True):
            for row in handle.result(timeout_s):
                found[key] = row
    return found
