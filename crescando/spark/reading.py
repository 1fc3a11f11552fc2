"""Reads at one position: pinned by the driver, read part by part by tasks.

A read pins its table, which is one ordered message with a position like any other
(RB13 §5.4): all of its tasks see the rows of that position, however long they take
and whatever is written meanwhile. What travels to tasks is words: the place, the
ticket, the predicate. Batches go to Spark as Arrow, in exactly the types it expects.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from inspect import signature
from typing import TYPE_CHECKING, Any

from crescando.client.expression import Expr
from crescando.client.pinned import PinnedPart, PinTicket
from crescando.client.textual import expr
from crescando.schema import TableSchema
from crescando.spark.connections import Place, connected
from crescando.spark.options import ReadOptions

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


@dataclass(frozen=True, slots=True)
class Piece:
    """What one task reads.

    Attributes
    ----------
    place : Place
    ticket, part : bytes
        Of the pinned snapshot.
    columns : tuple of str
    where : Expr or None
    timeout_s : float or None
    """

    place: Place
    ticket: bytes
    part: bytes
    columns: tuple[str, ...]
    where: Expr | None
    timeout_s: float | None

    def batches(self, schema: Any) -> Iterator[Any]:
        """Read, and give record batches of a pyarrow schema."""
        with connected(self.place, self.timeout_s) as store:
            for answer in store.read_pinned(
                PinTicket.decode(self.ticket),
                PinnedPart.decode(self.part),
                columns=list(self.columns),
                where=self.where,
                timeout_s=self.timeout_s,
            ):
                if len(answer):
                    yield from answer.to_arrow().cast(schema).to_batches()


def look_up(options: ReadOptions) -> TableSchema:
    """Ask the cluster for the table of a read.

    Raises
    ------
    UnknownTableError
        With the nearest name.
    """
    with connected(options.place, options.timeout_s) as store:
        return store.table_nowait(options.table).result(options.timeout_s).schema


def condition(where: str | Expr | None) -> Expr | None:
    """Give a predicate that may be text as an expression, so that its faults show on the driver."""
    return expr(where) if isinstance(where, str) else where


def pin(
    options: ReadOptions, columns: Iterable[str], where: Expr | None, n_parts: int | None = None
) -> tuple[Piece, ...]:
    """Pin the table of a read, and give what its tasks are to read.

    Parameters
    ----------
    options : ReadOptions
    columns : iterable of str
    where : Expr or None
        The whole condition.
    n_parts : int, optional
        By default as many as the table's size demands.

    Raises
    ------
    CrescandoError
        If the condition does not fit the table, or the table cannot be pinned; nothing is read then.
    """
    names = tuple(columns)
    with connected(options.place, options.timeout_s) as store:
        # What is wrong with the statement is told here, not by every task.
        store.table_nowait(options.table).result(options.timeout_s).prepare_select(list(names), where)
        # Nobody tells when Spark is done with a read; the lease, which tasks renew, ends what it holds.
        pinned = store.pin(options.table, lease_s=options.lease_s, timeout_s=options.timeout_s)
        ticket = pinned.ticket.encode()
        return tuple(
            Piece(options.place, ticket, part.encode(), names, where, options.timeout_s)
            for part in pinned.parts(options.table, n_parts)
        )


def arrow_schema(schema: StructType) -> Any:
    """Give the Arrow types in which Spark expects the columns of a frame."""
    from pyspark.sql.pandas.types import to_arrow_schema

    # Before Spark 4 instants are in UTC, and nothing else can be said.
    zone: dict[str, Any] = {"timezone": "UTC"} if "timezone" in signature(to_arrow_schema).parameters else {}
    return to_arrow_schema(schema, **zone)
