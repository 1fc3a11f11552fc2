"""How the demo's operations are said to crescando.

Rules of the file: only the public API. Expressions and WHERE texts are used
side by side, since applications use both and they must mean the same.
"""

from __future__ import annotations

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando import (
    Answer,
    ColumnDef,
    DataType,
    Expr,
    RangePartition,
    ReadHandle,
    Table,
    TableSchema,
    WriteHandle,
    agg,
    col,
    functions,
)
from crescando.demo.flights import FIELDS, KEY, NAMES, Flights, Row, Value
from crescando.demo.operations import (
    SHOWN,
    CancelEvening,
    DelayKey,
    DelayTail,
    Divide,
    Insert,
    Magnify,
    Operation,
    Purge,
    ReadCancelled,
    ReadDelays,
    ReadDepartures,
    ReadHours,
    ReadKey,
    ReadLate,
    ReadTail,
    ReadUnknown,
    SwapAircraft,
    Upsert,
    Withdraw,
)
from crescando.demo.workload import INSTANT

TABLE = "flights"

YEAR = (datetime(2013, 1, 1, tzinfo=UTC), datetime(2014, 1, 1, tzinfo=UTC))
"""What the ring is spread over; the last hours of the year lie beyond it, in UTC, and are clamped."""

ROWS_AS_ARRAYS_MIN = 1_000

INSTANT_NAMES = frozenset(field.name for field in FIELDS if field.type == "timestamp")


def table_schema() -> TableSchema:
    """Give the table of flights: unique by scheduled hour, carrier and number, spread by hour."""
    low, high = (int(bound.timestamp()) * 1_000_000 for bound in YEAR)
    return TableSchema(
        TABLE,
        tuple(ColumnDef(field.name, DataType(field.type), field.nullable) for field in FIELDS),
        partition_key="time_hour",
        primary_key=KEY,
        partition=RangePartition(low, high),
    )


@lru_cache(maxsize=1 << 20)
def instant(text: str) -> datetime:
    """Give the instant that a text names."""
    return datetime.strptime(text, INSTANT).replace(tzinfo=UTC)


def batch_of(flights: Flights) -> dict[str, Any]:
    """Give flights as a dict of columns: lists, and for instants NumPy's, which are UTC."""
    return {
        field.name: _instants(flights.columns[field.name])
        if field.type == "timestamp"
        else flights.columns[field.name]
        for field in FIELDS
    }


def _instants(values: list[Value]) -> NDArray[np.datetime64]:
    return np.array([str(value).removesuffix("Z") for value in values], "datetime64[us]")


def dicts_of(rows: tuple[Row, ...]) -> list[dict[str, Any]]:
    """Give rows as dicts."""
    return [
        {
            name: instant(str(value)) if name in INSTANT_NAMES else value
            for name, value in zip(NAMES, row, strict=True)
        }
        for row in rows
    ]


def plain_rows(answer: Answer) -> list[tuple[Any, ...]]:
    """Give an answer's rows with instants as text, as SQLite has them.

    Small answers are taken as rows and large ones as arrays: two forms of the API, one truth.
    """
    if len(answer) < ROWS_AS_ARRAYS_MIN:
        columns: list[Any] = list(zip(*answer.rows(), strict=True)) or [() for _ in answer.names]
        for index, name in enumerate(answer.names):
            if name in INSTANT_NAMES:
                columns[index] = [_text(value) for value in columns[index]]
    else:
        columns = [_plain_column(values) for values in answer.to_numpy().values()]
    return list(zip(*columns, strict=True))


@lru_cache(maxsize=1 << 20)
def _text(value: datetime) -> str:
    # Not INSTANT, which would hide a fraction of a second that must not be there.
    return value.isoformat().replace("+00:00", "Z")


def _plain_column(values: NDArray[Any]) -> list[Any]:
    if values.dtype.kind != "M":
        return list(values.tolist())
    distinct, inverse = np.unique(values, return_inverse=True)
    texts = [
        f"{text.removesuffix('.000000')}Z" for text in np.datetime_as_string(distinct, unit="us").tolist()
    ]
    return [texts[index] for index in inverse.tolist()]


def submit(table: Table, operation: Operation) -> ReadHandle[Answer] | WriteHandle:
    """Submit one operation without waiting; give its handle."""
    match operation:
        case Insert(rows):
            return table.insert(dicts_of(rows))
        case Upsert(rows):
            return table.upsert(dicts_of(rows))
        case Withdraw(carrier, flight, low, high):
            where = "carrier = ? AND flight = ? AND time_hour BETWEEN ? AND ?"
            return table.delete(where, params=(carrier, flight, instant(low), instant(high)))
        case Purge(origin, low, high):
            return table.delete((col("origin") == origin) & _departing(low, high) & col("cancelled"))
        case CancelEvening() | DelayKey() | DelayTail() | Magnify() | Divide() | SwapAircraft():
            return _update(table, operation)
        case ReadDelays(carrier, low, high):
            delay = "dep_delay"
            return table.aggregate_nowait(
                where=(col("carrier") == carrier) & _departing(low, high),
                n=agg.count(),
                n_known=agg.count(delay),
                total=agg.sum(delay),
                least=agg.min(delay),
                greatest=agg.max(delay),
                mean=agg.avg(delay),
            )
        case _:
            return _select(table, operation)


def _departing(low: str, high: str) -> Expr:
    return col("departs").between(instant(low), instant(high))


def _update(table: Table, operation: Operation) -> WriteHandle:
    match operation:
        case CancelEvening(origin, low, high):
            change = {"cancelled": True, "status": "cancelled", "dep_time": None, "arr_time": None}
            return table.update((col("origin") == origin) & _departing(low, high), set=change)
        case DelayKey((hour, carrier, flight), minutes):
            return table.update(
                "time_hour = :hour AND carrier = :carrier AND flight = :flight",
                set={"dep_delay": functions.coalesce(col("dep_delay"), 0) + minutes, "status": "delayed"},
                params={"hour": instant(hour), "carrier": carrier, "flight": flight},
            )
        case DelayTail(tailnum, low, high, minutes):
            hours = col("time_hour").between(instant(low), instant(high))
            return table.update(
                (col("tailnum") == tailnum) & hours, set={"dep_delay": col("dep_delay") + minutes}
            )
        case Magnify(origin, low, high, factor):
            return table.update(
                (col("origin") == origin) & _departing(low, high),
                set={"arr_delay": col("arr_delay") * factor},
            )
        case Divide(carrier, low, high):
            return table.update(
                (col("carrier") == carrier) & _departing(low, high),
                set={"air_time": functions.div(col("distance"), col("arr_delay"))},
            )
        case SwapAircraft(old, new, low, high):
            return table.update(
                "tailnum = ? AND time_hour >= ? AND time_hour <= ?",
                set={"tailnum": new},
                params=(old, instant(low), instant(high)),
            )
    raise TypeError(f"{operation!r} is not an update")


def _select(table: Table, operation: Operation) -> ReadHandle[Answer]:
    match operation:
        case ReadKey((hour, carrier, flight)):
            where = (
                (col("time_hour") == instant(hour)) & (col("carrier") == carrier) & (col("flight") == flight)
            )
            return table.select_nowait(where=where)
        case ReadTail(tailnum):
            return table.select_nowait(SHOWN, "tailnum = ?", params=(tailnum,))
        case ReadHours(origin, low, high):
            text = "origin = ? AND time_hour BETWEEN ? AND ?"
            return table.select_nowait(SHOWN, text, params=(origin, instant(low), instant(high)))
        case ReadDepartures(low, high):
            return table.select_nowait(SHOWN, _departing(low, high))
        case ReadLate(dest, minutes):
            gained = (col("arr_delay") - col("dep_delay")).alias("lost_on_the_way")
            return table.select_nowait(
                (*SHOWN, gained), "dest = ? AND dep_delay >= ?", params=(dest, minutes)
            )
        case ReadCancelled(origin, low, high):
            where = (col("origin") == origin) & col("cancelled") & _departing(low, high)
            return table.select_nowait(SHOWN, where)
        case ReadUnknown(carriers, low, high):
            unknown = col("arr_time").is_null() | ~(col("arr_delay") < 120)
            where = col("carrier").isin(carriers) & _departing(low, high) & unknown
            return table.select_nowait(SHOWN, where)
    raise TypeError(f"{operation!r} is not a read of rows")
