"""The format of SQL logic tests: records in, answers compared by the format's rules.

A file is a list of records separated by empty lines: ``statement ok|error`` with
SQL, or ``query <types> <sort mode> <label>`` with SQL, ``----`` and the expected
values, one a line, or their number and MD5. ``onlyif`` and ``skipif`` choose
between dialects; ours is closest to SQLite's.
"""

from __future__ import annotations

import gzip
import hashlib
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent.parent / "data" / "sqllogic"


@dataclass(frozen=True)
class Statement:
    """SQL that changes something, or is to be refused."""

    line: int
    sql: str
    is_error: bool


@dataclass(frozen=True)
class Query:
    """SQL that gives rows, and what it is to give.

    Attributes
    ----------
    types : str
        One letter a column: T text, I integer, R real with three decimals.
    sort : str
        ``nosort``, ``rowsort`` or ``valuesort``: what is done to both sides before they are compared.
    label : str
        Queries of one label in one file give the same values; empty for none.
    expected : tuple of str
        The values, or a single line that counts and hashes them.
    """

    line: int
    sql: str
    types: str
    sort: str
    label: str
    expected: tuple[str, ...]


Record = Statement | Query


def read_file(path: Path) -> Iterator[Record]:
    """Give the records of a file, as far as they are for a dialect like SQLite's."""
    with gzip.open(path, "rt", encoding="utf-8") as file:
        lines = file.read().splitlines()
    start = 0
    while start < len(lines):
        if not lines[start].strip():
            start += 1
            continue
        stop = start
        while stop < len(lines) and lines[stop].strip():
            stop += 1
        record = _record(start + 1, [line for line in lines[start:stop] if not line.startswith("#")])
        if record is not None:
            yield record
        start = stop


def _record(line: int, lines: list[str]) -> Record | None:
    """Read one record; None for what is for others, or steers the program the format comes from."""
    while lines and lines[0].split()[0] in ("onlyif", "skipif"):
        verb, dialect = lines[0].split()[:2]
        # What SQLite is exempt from may well be right for us.
        if verb == "onlyif" and dialect != "sqlite":
            return None
        lines = lines[1:]
    if not lines:
        return None
    head = lines[0].split()
    if head[0] == "statement":
        return Statement(line, " ".join(lines[1:]), head[1] == "error")
    if head[0] != "query":
        assert head[0] in ("hash-threshold", "halt"), (line, lines)
        return None
    cut = lines.index("----") if "----" in lines else len(lines)
    sort, label = [*head[2:4], "", ""][:2]
    return Query(line, " ".join(lines[1:cut]), head[1], sort or "nosort", label, tuple(lines[cut + 1 :]))


def is_right(query: Query, rows: Sequence[tuple[Any, ...]]) -> bool:
    """Say whether rows are what a query expects."""
    found = written(query, rows)
    expected = list(query.expected)
    if len(expected) == 1 and " values hashing to " in expected[0]:
        return expected[0] == hashed(found)
    return found == expected


def hashed(values: Sequence[str]) -> str:
    """Count and hash values as the format does."""
    digest = hashlib.md5("".join(f"{value}\n" for value in values).encode(), usedforsecurity=False)
    return f"{len(values)} values hashing to {digest.hexdigest()}"


def written(query: Query, rows: Sequence[tuple[Any, ...]]) -> list[str]:
    """Write rows as the format does: every value by its column's letter, sorted as asked."""
    lines = [[_write(letter, value) for letter, value in zip(query.types, row, strict=True)] for row in rows]
    if query.sort == "rowsort":
        lines.sort()
    values = [value for line in lines for value in line]
    return sorted(values) if query.sort == "valuesort" else values


def _write(letter: str, value: Any) -> str:
    if value is None:
        return "NULL"
    if letter == "I":
        # Of a text the number that it begins with counts.
        found = re.match(r"\s*[+-]?\d+", value) if isinstance(value, str) else None
        return str(int(value if not isinstance(value, str) else found.group() if found else 0))
    if letter == "R":
        return f"{value:.3f}"
    text = str(value)
    return "".join(c if " " <= c <= "~" else "@" for c in text) if text else "(empty)"
