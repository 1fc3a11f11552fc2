"""What is asked of a table of tickets: batches of keys, ranges and changes that meet some rows.

Rules of the file: constants are drawn from the rows themselves, so that every
operation meets about as many rows as the next; each trial has a batch of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa

OUTPUTS = ("ticket_id", "last_name", "flight_no", "origin", "status")
"""The five columns that reads give."""

DAY_US = 86_400_000_000
RANGE_DAYS = 3


@dataclass(frozen=True, slots=True)
class Points:
    """Reads ``column = key``."""

    column: str
    keys: list[str]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Spans:
    """Reads ``origin = key and column between low and high``; days, or microseconds."""

    column: str
    keys: list[str]
    lows: list[int]
    highs: list[int]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Prefixes:
    """Reads ``document like 'prefix%'``."""

    prefixes: list[str]

    def __len__(self) -> int:
        return len(self.prefixes)


@dataclass(frozen=True, slots=True)
class TextSpans:
    """Reads ``document between low and high``."""

    lows: list[str]
    highs: list[str]

    def __len__(self) -> int:
        return len(self.lows)


@dataclass(frozen=True, slots=True)
class Changes:
    """Updates ``miles = miles + delta where rloc = key``; keys are distinct."""

    keys: list[str]
    deltas: list[int]

    def __len__(self) -> int:
        return len(self.keys)


@dataclass(frozen=True, slots=True)
class Mixed:
    """Reads ``rloc = key``, some of them updates ``status = new where rloc = key`` instead, in this order.

    ``statuses[i]`` is None where operation i is a read.
    """

    keys: list[str]
    statuses: list[str | None]

    def __len__(self) -> int:
        return len(self.keys)


class Draw:
    """Batches of operations on a table.

    Parameters
    ----------
    table : pyarrow.Table
    seed : int
    """

    def __init__(self, table: pa.Table, seed: int) -> None:
        self._table = table
        self._chance = np.random.Generator(np.random.PCG64(seed))
        self._sorted_documents: Any = None
        self._locators: list[str] | None = None

    def _rows(self, n: int) -> Any:
        return self._chance.integers(0, len(self._table), n)

    def _values(self, column: str, n: int) -> list[Any]:
        values: list[Any] = self._table.column(column).take(pa.array(self._rows(n))).to_pylist()
        return values

    def points(self, n: int, column: str = "rloc") -> Points:
        """Draw reads of one value each."""
        return Points(column, self._values(column, n))

    def numbers(self, n: int, column: str) -> list[int]:
        """Draw values of a column of numbers."""
        return self._values(column, n)

    def days(self, n: int) -> Spans:
        """Draw reads of an origin on three days."""
        rows = pa.array(self._rows(n))
        days = self._table.column("dep_date").take(rows).cast(pa.int32()).to_numpy()
        lows = days - self._chance.integers(0, RANGE_DAYS, n)
        origins = self._table.column("origin").take(rows).to_pylist()
        return Spans("dep_date", origins, lows.tolist(), (lows + RANGE_DAYS - 1).tolist())

    def instants(self, n: int) -> Spans:
        """Draw reads of an origin in 72 hours from any second on."""
        rows = pa.array(self._rows(n))
        instants = self._table.column("departure").take(rows).cast(pa.int64()).to_numpy()
        lows = instants - self._chance.integers(0, RANGE_DAYS * 86_400, n) * 1_000_000
        origins = self._table.column("origin").take(rows).to_pylist()
        return Spans("departure", origins, lows.tolist(), (lows + RANGE_DAYS * DAY_US).tolist())

    def prefixes(self, n: int) -> Prefixes:
        """Draw reads by the beginning of a document's number; about one row of a million each."""
        n_digits = max(int(np.log(len(self._table)) / np.log(16)), 1)
        documents = self._values("document", n)
        lengths = n_digits + self._chance.integers(0, 2, n)
        return Prefixes([text[:length] for text, length in zip(documents, lengths.tolist(), strict=True)])

    def text_spans(self, n: int) -> TextSpans:
        """Draw reads of documents between two numbers, up to three rows each."""
        if self._sorted_documents is None:
            self._sorted_documents = self._table.column("document").combine_chunks().sort()
        first = self._rows(n)
        last = np.minimum(first + self._chance.integers(0, 3, n), len(self._table) - 1)
        lows = self._sorted_documents.take(pa.array(first)).to_pylist()
        return TextSpans(lows, self._sorted_documents.take(pa.array(last)).to_pylist())

    def changes(self, n: int) -> Changes:
        """Draw updates of distinct bookings."""
        if self._locators is None:
            self._locators = self._table.column("rloc").combine_chunks().unique().to_pylist()
        n = min(n, len(self._locators))
        places = self._chance.permutation(len(self._locators))[:n]
        keys = [self._locators[place] for place in places.tolist()]
        return Changes(keys, self._chance.integers(1, 1000, n).tolist())

    def mixed(self, n: int, share_of_updates: float) -> Mixed:
        """Draw reads with updates between them, some of which concern bookings that are read."""
        keys = self._values("rloc", n)
        is_update = self._chance.random(n) < share_of_updates
        numbers = self._chance.integers(0, 1000, n)
        statuses = [
            f"S{number}" if update else None
            for update, number in zip(is_update.tolist(), numbers.tolist(), strict=True)
        ]
        # Half of the updates hit what was read just before, or will be right after.
        for place in np.flatnonzero(is_update)[::2].tolist():
            keys[place] = keys[max(place - 1, 0)]
        return Mixed(keys, statuses)
