"""What the demo's agents can ask for: plain values, one class per kind of operation.

Rules of the file: an operation knows neither crescando's verbs nor SQL;
`crescando.demo.verbs` says it to the store and `crescando.demo.replay` to
SQLite, so that neither can inherit the other's mistake. Instants are texts, and
every range includes both its ends.
"""

from __future__ import annotations

from dataclasses import dataclass

from crescando.demo.flights import Row

Key = tuple[str, str, int]
"""A flight's `time_hour`, carrier and flight number."""


SHOWN = ("time_hour", "carrier", "flight", "tailnum", "origin", "dest", "departs", "dep_delay", "status")
"""The columns that reads of flights ask for."""

KNOWN_DELAYS = ("n", "n_known", "total", "least", "greatest", "mean")
"""The names under which `ReadDelays` asks for its aggregates."""


@dataclass(frozen=True, slots=True)
class ReadKey:
    """One flight, by its key, with every column."""

    key: Key


@dataclass(frozen=True, slots=True)
class ReadTail:
    """Every flight of one aircraft; tail numbers are no key."""

    tailnum: str


@dataclass(frozen=True, slots=True)
class ReadHours:
    """Flights of one airport in a range of the partition key."""

    origin: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ReadDepartures:
    """Flights in a range of departure times, which are no key."""

    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ReadLate:
    """Flights to one airport that left very late."""

    dest: str
    minutes: int


@dataclass(frozen=True, slots=True)
class ReadCancelled:
    """Cancelled flights of one airport in a range of departure times."""

    origin: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ReadUnknown:
    """Flights of some carriers in a range of departures that never arrived, or of which nobody knows."""

    carriers: tuple[str, ...]
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class ReadDelays:
    """How many flights of a carrier left in a range of departures, and their known delays in figures."""

    carrier: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class CancelEvening:
    """Cancel every departure from one airport in a range of departure times."""

    origin: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class DelayKey:
    """Add minutes to one flight's delay, an unknown delay counting as none."""

    key: Key
    minutes: int


@dataclass(frozen=True, slots=True)
class DelayTail:
    """Add minutes to the delays of one aircraft's flights in some hours; unknown delays stay unknown."""

    tailnum: str
    low: str
    high: str
    minutes: int


@dataclass(frozen=True, slots=True)
class Magnify:
    """Multiply arrival delays; rows whose product does not fit 16 bits are rejected."""

    origin: str
    low: str
    high: str
    factor: int


@dataclass(frozen=True, slots=True)
class Divide:
    """Set air time to distance / arrival delay; rows that arrived on time divide by zero and are rejected."""

    carrier: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class SwapAircraft:
    """Give the flights of one aircraft in some hours to another: changes what later reads look for."""

    old: str
    new: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Delete a carrier's flight number from some hours."""

    carrier: str
    flight: int
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Purge:
    """Delete the cancelled flights of one airport in a range of departure times."""

    origin: str
    low: str
    high: str


@dataclass(frozen=True, slots=True)
class Insert:
    """Add flights; those whose key exists are rejected."""

    rows: tuple[Row, ...]


@dataclass(frozen=True, slots=True)
class Upsert:
    """Add flights, or replace them whole where the key exists."""

    rows: tuple[Row, ...]


Read = ReadKey | ReadTail | ReadHours | ReadDepartures | ReadLate | ReadCancelled | ReadUnknown | ReadDelays
Write = (
    CancelEvening
    | DelayKey
    | DelayTail
    | Magnify
    | Divide
    | SwapAircraft
    | Withdraw
    | Purge
    | Insert
    | Upsert
)
Operation = Read | Write

READS = (
    ReadKey,
    ReadTail,
    ReadHours,
    ReadDepartures,
    ReadLate,
    ReadCancelled,
    ReadUnknown,
    ReadDelays,
)


def is_read(operation: Operation) -> bool:
    """Say whether an operation reads."""
    return isinstance(operation, READS)
