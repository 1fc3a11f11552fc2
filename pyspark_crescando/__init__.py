"""What Spark imports to learn of ``format("crescando")``: it looks into every package ``pyspark_*``.

Rules of the file: classes that Spark calls, and nothing else; what they do is in
`crescando.spark`. Each is made, sent and used in another process: options, columns
and predicates travel with them, connections do not.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pyspark.sql.datasource import (
    DataSource,
    DataSourceArrowWriter,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    Filter,
    InputPartition,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from crescando.client.expression import Expr
from crescando.client.tickets import LoadTicket
from crescando.schema import TableSchema
from crescando.spark.filters import both, predicate
from crescando.spark.options import ReadOptions, WriteOptions, read_options, write_options
from crescando.spark.reading import Piece, arrow_schema, condition, look_up, pin
from crescando.spark.streaming import Epoch, abort_epoch, begin_stream, commit_epoch, stage_epoch
from crescando.spark.types import check_read, spark_schema
from crescando.spark.writing import Staged, abort, begin, commit, stage

__all__ = ["DefaultSource"]


class DefaultSource(DataSource):
    """Tables of a crescando cluster: read at one position, written as one."""

    @classmethod
    def name(cls) -> str:
        """Give what users pass to ``format``."""
        return "crescando"

    def schema(self) -> StructType:
        """Give the columns that a read has if the user gives no schema."""
        options = read_options(self.options)
        return spark_schema(look_up(options), options.columns)

    def reader(self, schema: StructType) -> Reader:
        """Give what plans and does a read of these columns."""
        options = read_options(self.options)
        table = look_up(options)
        check_read(schema, table)
        return Reader(options, table, schema)

    def writer(self, schema: StructType, overwrite: bool) -> Writer:
        """Begin the load of a frame with these columns."""
        return Writer(write_options(self.options, overwrites=overwrite), schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:  # noqa: N802  # Spark's name.
        """Give what writes the epochs of a stream; output mode ``complete`` is an overwrite of each."""
        return StreamWriter(write_options(self.options, overwrites=overwrite), schema)


class _Taken:
    """`pushFilters` of a reader.

    With the setting off, Spark refuses readers that have such a method of their own,
    though their rows would be the same. It looks at ``__func__``; so this is the base
    class's as far as it can see, and takes filters if it is handed some.
    """

    __func__ = staticmethod(DataSourceReader.pushFilters)

    def __init__(self, reader: Reader) -> None:
        self._reader = reader

    def __call__(self, filters: list[Filter]) -> Iterable[Filter]:
        return self._reader.take(filters)


class Reader(DataSourceReader):
    """A read of some columns, at the position at which it is planned."""

    def __init__(self, options: ReadOptions, table: TableSchema, schema: StructType) -> None:
        self.options = options
        self.table = table
        self.asked = schema
        self.where = condition(options.where)
        self.taken: list[Expr] = []

    @property
    def pushFilters(self) -> _Taken:  # noqa: N802  # Spark's name.
        """What Spark calls with the filters of a query, if it is told to push them."""
        return _Taken(self)

    def take(self, filters: list[Filter]) -> Iterator[Filter]:
        """Add the filters that mean here what they mean in Spark, and give back the others."""
        for each in filters:
            found = predicate(each, self.table)
            if found is None:
                yield each
            else:
                self.taken.append(found)

    def partitions(self) -> Sequence[InputPartition]:
        """Pin the table, and give what each task is to read."""
        where = both([self.where, *self.taken])
        return [InputPartition(piece) for piece in pin(self.options, self.asked.fieldNames(), where)]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """Read one task's part."""
        piece: Piece = partition.value
        return piece.batches(arrow_schema(self.asked))


@dataclass
class Message(WriterCommitMessage):
    """What a task of a write ends with."""

    staged: Staged


class Writer(DataSourceArrowWriter):
    """A write of a frame: one load, committed as one."""

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options = options
        self.ticket = begin(options, schema).encode()

    def write(self, iterator: Iterator[Any]) -> Message:
        """Stage one task's rows."""
        options = self.options
        return Message(stage(options.place, LoadTicket.decode(self.ticket), iterator, options.timeout_s))

    def commit(self, messages: list[Any]) -> None:
        """Show what the tasks staged whose messages Spark has kept."""
        commit(self.options, LoadTicket.decode(self.ticket), (each and each.staged for each in messages))

    def abort(self, messages: list[Any]) -> None:
        """End the load of a job that failed."""
        abort(self.options, LoadTicket.decode(self.ticket))


@dataclass
class EpochMessage(WriterCommitMessage):
    """What a task of an epoch ends with."""

    epoch: Epoch


class StreamWriter(DataSourceStreamArrowWriter):
    """What writes one epoch of a stream.

    Spark makes one for each epoch, which it sends to the tasks, and another one to commit
    it, and does not say which is which. So the load begins when it is sent.
    """

    def __init__(self, options: WriteOptions, schema: StructType) -> None:
        self.options = options
        self.asked = schema
        self.ticket = b""

    def __getstate__(self) -> dict[str, Any]:
        if not self.ticket:
            self.ticket = begin_stream(self.options, self.asked).encode()
        return self.__dict__

    def write(self, iterator: Iterator[Any]) -> EpochMessage:
        """Stage one task's rows."""
        return EpochMessage(stage_epoch(self.options, LoadTicket.decode(self.ticket), iterator))

    def commit(self, messages: list[Any], batchId: int) -> None:  # noqa: N803  # Spark's name.
        """Show the epoch's rows; if it was shown before, nothing changes."""
        commit_epoch(self.options, [each.epoch for each in messages if each is not None], batchId)

    def abort(self, messages: list[Any], batchId: int) -> None:  # noqa: N803
        """End the load of an epoch that failed; Spark tries it again."""
        abort_epoch(self.options, [each.epoch for each in messages if each is not None])
