"""The same operations in SQLite, one at a time: what every answer must equal.

Rules of the file: everything said to SQLite is written here by hand; nothing
of crescando but the demo's own vocabulary is imported. Each row carries the
position of the acknowledged write that wrote it last, so that a difference at
the end can be laid at one write's door.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crescando.demo.flights import FIELDS, KEY, NAMES, Flights, Row
from crescando.demo.operations import (
    SHOWN,
    CancelEvening,
    DelayKey,
    DelayTail,
    Divide,
    Insert,
    Key,
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

LOADED = 0
"""The writer of rows that no operation has written since they were loaded."""

KEY_IS = "time_hour = :hour AND carrier = :carrier AND flight = :flight"

INDEXES = (
    ("tailnum",),
    ("departs",),
    ("origin", "departs"),
    ("carrier", "departs"),
    ("dest", "dep_delay"),
)
"""SQLite is given what it needs to keep up; crescando has no index at all."""


@dataclass(frozen=True, slots=True)
class Rows:
    """What a read gives, in no order."""

    rows: list[tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Counts:
    """What a write does."""

    affected: int
    rejected: int


class Replay:
    """SQLite with the flights in it.

    Parameters
    ----------
    flights : Flights
        What the table holds before the first operation.
    """

    def __init__(self, flights: Flights) -> None:
        self._connection = sqlite3.connect(":memory:", isolation_level=None)
        self._deleted_by: dict[Key, int] = {}
        declared = ", ".join(f"{f.name} {'' if f.nullable else 'NOT NULL'}" for f in FIELDS)
        self._run(
            f"CREATE TABLE flights ({declared}, writer INTEGER NOT NULL, PRIMARY KEY ({', '.join(KEY)}))"
        )
        self._run("BEGIN")
        slots = ", ".join("?" * len(NAMES))
        self._connection.executemany(f"INSERT INTO flights VALUES ({slots}, {LOADED})", flights.rows())
        for columns in INDEXES:
            self._run(f"CREATE INDEX by_{'_'.join(columns)} ON flights ({', '.join(columns)})")
        self._run("ANALYZE")

    def _run(self, text: str, values: Mapping[str, Any] | tuple[Any, ...] = ()) -> sqlite3.Cursor:
        return self._connection.execute(text, values)

    def execute(self, operation: Operation, position: int) -> Rows | Counts:
        """Execute one operation; they come in ascending position."""
        match operation:
            case Insert(rows):
                return self._insert(rows, position)
            case Upsert(rows):
                return self._upsert(rows, position)
            case Withdraw(carrier, flight, low, high):
                where = "carrier = :carrier AND flight = :flight AND time_hour BETWEEN :low AND :high"
                values = {"carrier": carrier, "flight": flight, "low": low, "high": high}
                return self._delete(where, values, position)
            case Purge(origin, low, high):
                where = "origin = :origin AND departs BETWEEN :low AND :high AND cancelled"
                return self._delete(where, {"origin": origin, "low": low, "high": high}, position)
            case CancelEvening() | DelayKey() | DelayTail() | Magnify() | Divide() | SwapAircraft():
                return self._update(operation, position)
            case _:
                return self._read(operation)

    def _read(self, operation: Operation) -> Rows:
        shown = ", ".join(SHOWN)
        match operation:
            case ReadKey((hour, carrier, flight)):
                text = f"SELECT {', '.join(NAMES)} FROM flights WHERE {KEY_IS}"
                return self._rows(text, {"hour": hour, "carrier": carrier, "flight": flight})
            case ReadTail(tailnum):
                return self._rows(f"SELECT {shown} FROM flights WHERE tailnum = ?", (tailnum,))
            case ReadHours(origin, low, high):
                text = f"SELECT {shown} FROM flights WHERE origin = ? AND time_hour BETWEEN ? AND ?"
                return self._rows(text, (origin, low, high))
            case ReadDepartures(low, high):
                text = f"SELECT {shown} FROM flights WHERE departs BETWEEN ? AND ?"
                return self._rows(text, (low, high))
            case ReadLate(dest, minutes):
                text = f"SELECT {shown}, arr_delay - dep_delay FROM flights WHERE dest = ? AND dep_delay >= ?"
                return self._rows(text, (dest, minutes))
            case ReadCancelled(origin, low, high):
                text = (
                    f"SELECT {shown} FROM flights WHERE origin = ? AND departs BETWEEN ? AND ? AND cancelled"
                )
                return self._rows(text, (origin, low, high))
            case ReadUnknown(carriers, low, high):
                text = (
                    f"SELECT {shown} FROM flights WHERE carrier IN ({', '.join('?' * len(carriers))})"
                    " AND departs BETWEEN ? AND ? AND (arr_time IS NULL OR NOT arr_delay < 120)"
                )
                return self._rows(text, (*carriers, low, high))
            case ReadDelays(carrier, low, high):
                text = (
                    "SELECT count(*), count(dep_delay), sum(dep_delay), min(dep_delay), max(dep_delay),"
                    " avg(dep_delay) FROM flights WHERE carrier = ? AND departs BETWEEN ? AND ?"
                )
                return self._rows(text, (carrier, low, high))
        raise TypeError(f"{operation!r} is not a read")

    def _rows(self, text: str, values: Mapping[str, Any] | tuple[Any, ...]) -> Rows:
        return Rows(self._run(text, values).fetchall())

    def _update(self, operation: Operation, position: int) -> Counts:
        small = "BETWEEN -32768 AND 32767"
        match operation:
            case CancelEvening(origin, low, high):
                change = "cancelled = 1, status = 'cancelled', dep_time = NULL, arr_time = NULL"
                where = "origin = :origin AND departs BETWEEN :low AND :high"
                fails = "0"
                values: dict[str, Any] = {"origin": origin, "low": low, "high": high}
            case DelayKey((hour, carrier, flight), minutes):
                change = "dep_delay = coalesce(dep_delay, 0) + :minutes, status = 'delayed'"
                where = KEY_IS
                fails = f"coalesce(dep_delay, 0) + :minutes NOT {small}"
                values = {"hour": hour, "carrier": carrier, "flight": flight, "minutes": minutes}
            case DelayTail(tailnum, low, high, minutes):
                change = "dep_delay = dep_delay + :minutes"
                where = "tailnum = :tailnum AND time_hour BETWEEN :low AND :high"
                fails = f"dep_delay + :minutes NOT {small}"
                values = {"tailnum": tailnum, "low": low, "high": high, "minutes": minutes}
            case Magnify(origin, low, high, factor):
                change = "arr_delay = arr_delay * :factor"
                where = "origin = :origin AND departs BETWEEN :low AND :high"
                fails = f"arr_delay * :factor NOT {small}"
                values = {"origin": origin, "low": low, "high": high, "factor": factor}
            case Divide(carrier, low, high):
                change = "air_time = distance / arr_delay"
                where = "carrier = :carrier AND departs BETWEEN :low AND :high"
                fails = f"arr_delay = 0 OR distance / arr_delay NOT {small}"
                values = {"carrier": carrier, "low": low, "high": high}
            case SwapAircraft(old, new, low, high):
                change = "tailnum = :new"
                where = "tailnum = :old AND time_hour BETWEEN :low AND :high"
                fails = "0"
                values = {"old": old, "new": new, "low": low, "high": high}
            case _:
                raise TypeError(f"{operation!r} is not an update")
        # `fails` is NULL where an operand is: then the assignment gives NULL, which is no failure.
        (rejected,) = self._run(
            f"SELECT count(*) FROM flights WHERE ({where}) AND coalesce({fails}, 0)", values
        ).fetchone()
        affected = self._run(
            f"UPDATE flights SET {change}, writer = :writer WHERE ({where}) AND NOT coalesce({fails}, 0)",
            {**values, "writer": position},
        ).rowcount
        return Counts(affected, rejected)

    def _insert(self, rows: tuple[Row, ...], position: int) -> Counts:
        slots = ", ".join("?" * (len(NAMES) + 1))
        written = sum(
            self._run(
                f"INSERT INTO flights VALUES ({slots}) ON CONFLICT DO NOTHING", (*row, position)
            ).rowcount
            for row in rows
        )
        return Counts(written, len(rows) - written)

    def _upsert(self, rows: tuple[Row, ...], position: int) -> Counts:
        slots = ", ".join("?" * (len(NAMES) + 1))
        changed = ", ".join(f"{name} = excluded.{name}" for name in (*NAMES, "writer") if name not in KEY)
        clash = f"ON CONFLICT ({', '.join(KEY)}) DO UPDATE SET {changed}"
        for row in rows:
            self._run(f"INSERT INTO flights VALUES ({slots}) {clash}", (*row, position))
        return Counts(len(rows), 0)

    def _delete(self, where: str, values: Mapping[str, Any], position: int) -> Counts:
        gone = self._run(f"DELETE FROM flights WHERE {where} RETURNING {', '.join(KEY)}", values).fetchall()
        self._deleted_by.update(dict.fromkeys(gone, position))
        return Counts(len(gone), 0)

    def table(self) -> dict[Key, Row]:
        """Give every row by its key."""
        rows = self._run(f"SELECT {', '.join(NAMES)} FROM flights")
        return {row[:3]: row for row in rows}

    def writer_of(self, key: Key) -> int:
        """Give the position of the last write to a row, also if that deleted it; -1 if there is none."""
        hour, carrier, flight = key
        values = {"hour": hour, "carrier": carrier, "flight": flight}
        found = self._run(f"SELECT writer FROM flights WHERE {KEY_IS}", values).fetchone()
        return self._deleted_by.get(key, -1) if found is None else int(found[0])
