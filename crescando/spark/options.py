"""What a read or a write is told: options of Spark as one checked value.

Rules of the file: text in, values out, and nothing is asked of a cluster. An
option that nobody knows is an error with the nearest name, since a misspelt one
would be ignored in silence; an option of the other direction is one too.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from crescando.errors import SpecError, nearest_name
from crescando.spark.connections import Place

Write = Literal["insert", "upsert", "update", "delete", "overwrite"]
Rule = Literal["fail", "keep", "replace"]

LOAD_LEASE_S = 3600.0
READ_LEASE_S = 600.0

CLIENT = "app"

ENVIRONMENT = {"url": "CRESCANDO_URL", "tls": "CRESCANDO_TLS"}
"""Where the driver finds what no option says."""

_CHECKPOINT = "checkpointlocation"
_SPARKS_OWN = frozenset({_CHECKPOINT, "queryname", "outputmode"})
"""Of a stream; Spark hands them to every sink."""


@dataclass(frozen=True, slots=True)
class ReadOptions:
    """What a read is told.

    Attributes
    ----------
    place : Place
        The cluster, and as whom it is asked.
    table : str
    where : str or None
        A predicate as text; what Spark pushes down is added to it.
    columns : tuple of str or None
        None for all, or those of the schema that the read is given.
    lease_s : float
        How long the rows are kept as of the read's position, from when any task has read them last.
    timeout_s : float or None
        How long each step may take.
    """

    place: Place
    table: str
    where: str | None = None
    columns: tuple[str, ...] | None = None
    lease_s: float = READ_LEASE_S
    timeout_s: float | None = None


@dataclass(frozen=True, slots=True)
class WriteOptions:
    """What a write is told.

    Attributes
    ----------
    place : Place
    table : str
    write : str
        What becomes of each row: ``insert``, ``upsert``, ``update``, ``delete``; ``overwrite`` puts the rows
        in the place of all that the table has.
    rule : str
        Of ``insert``: what becomes of a row whose key the table has already.
    columns : tuple of str or None
        None for all that the kind of write needs.
    job : str or None
        The name under which a write takes effect once, however often it is tried.
    lease_s : float
        After how long without progress of any task the rows are dropped.
    timeout_s : float or None
        How long each step may take.
    checkpoint : str or None
        Of a stream: where Spark keeps how far it is, which is the same at every start.
    """

    place: Place
    table: str
    write: Write = "insert"
    rule: Rule = "fail"
    columns: tuple[str, ...] | None = None
    job: str | None = None
    lease_s: float = LOAD_LEASE_S
    timeout_s: float | None = None
    checkpoint: str | None = None


def _seconds(name: str, text: object) -> float:
    try:
        seconds = float(text)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        seconds = -1.0
    if not 0 < seconds < float("inf"):
        raise SpecError(f"option {name} is a number of seconds above 0, not {text!r}")
    return seconds


def _names(name: str, given: object) -> tuple[str, ...]:
    parts = given.split(",") if isinstance(given, str) else given
    if not isinstance(parts, Iterable):
        raise SpecError(f"option {name} is a list of column names with commas between them, not {given!r}")
    listed = tuple(str(part).strip() for part in parts)
    if not all(listed):
        raise SpecError(f"option {name} is a list of column names with commas between them, not {given!r}")
    for each in listed:
        if listed.count(each) > 1:
            raise SpecError(f"option {name} names column {each!r} twice")
    return listed


def _text(name: str, given: object) -> str:
    if not isinstance(given, (str, os.PathLike)) or not str(given).strip():
        raise SpecError(f"option {name} is a text, not {given!r}")
    return str(given).strip()


def _one_of(known: tuple[str, ...]) -> Callable[[str, object], str]:
    def checked(name: str, given: object) -> str:
        text = _text(name, given).lower()
        if text not in known:
            near = nearest_name(text, known)
            hint = f"; did you mean {near!r}?" if near else ""
            raise SpecError(f"option {name} is one of {', '.join(known)}, not {given!r}{hint}")
        return text

    return checked


_COMMON: dict[str, Callable[[str, object], Any]] = {
    "url": _text,
    "tls": _text,
    "client": _text,
    "table": _text,
    "columns": _names,
    "lease_s": _seconds,
    "timeout_s": _seconds,
}
_READ = {**_COMMON, "where": _text}
_WRITE = {
    **_COMMON,
    "write": _one_of(get_args(Write)),
    "rule": _one_of(get_args(Rule)),
    "job": _text,
    "confirm_overwrite": _text,
}


def read_options(given: Mapping[str, object]) -> ReadOptions:
    """Check the options of a read.

    Raises
    ------
    SpecError
        Naming the first that is wrong, unknown or missing.
    """
    parsed = _parsed(given, _READ, "a read", _WRITE)
    return ReadOptions(_place(parsed), **parsed)


def write_options(given: Mapping[str, object], *, overwrites: bool = False) -> WriteOptions:
    """Check the options of a write.

    Parameters
    ----------
    given : mapping
    overwrites : bool
        Whether Spark's mode is ``overwrite``.

    Raises
    ------
    SpecError
        Naming the first that is wrong, unknown or missing.
    """
    parsed = _parsed(given, _WRITE, "a write", _READ)
    confirmed = parsed.pop("confirm_overwrite", None)
    place = _place(parsed)
    write = parsed.setdefault("write", "overwrite" if overwrites else "insert")
    if overwrites and write != "overwrite":
        raise SpecError(f"mode overwrite replaces all rows, and option write says {write!r}; use mode append")
    table = parsed["table"]
    if write == "overwrite" and confirmed != table:
        said = "" if confirmed is None else f", and not {confirmed!r}"
        raise SpecError(
            f"overwrite replaces every row of table {table!r}: confirm it by the option "
            f"confirm_overwrite={table!r}{said}"
        )
    if write != "overwrite" and confirmed is not None:
        raise SpecError(f"option confirm_overwrite goes with an overwrite, and this is {write!r}")
    if write != "insert" and "rule" in parsed:
        raise SpecError(f"option rule goes with write 'insert', and this is {write!r}")
    checkpoint = next((str(value) for name, value in given.items() if name.lower() == _CHECKPOINT), None)
    return WriteOptions(place, **parsed, checkpoint=checkpoint)


def _parsed(
    given: Mapping[str, object],
    known: Mapping[str, Callable[[str, object], Any]],
    what: str,
    others: Mapping[str, object],
) -> dict[str, Any]:
    parsed: dict[str, Any] = {}
    for name, value in given.items():
        lower = name.lower()
        if lower in _SPARKS_OWN or value is None:
            continue
        if lower == "path":
            raise SpecError(f"a table is no path: say option table={value!r}, and call load() or save() bare")
        reader = known.get(lower)
        if reader is None:
            if lower in others:
                raise SpecError(f"option {name!r} is not one of {what}")
            near = nearest_name(lower, tuple(known))
            hint = f"; did you mean {near!r}?" if near else f"; there are {', '.join(sorted(known))}"
            raise SpecError(f"no option is named {name!r}{hint}")
        parsed[lower] = reader(lower, value)
    for name, variable in ENVIRONMENT.items():
        if name not in parsed and os.environ.get(variable):
            parsed[name] = os.environ[variable]
    for name in ("url", "tls", "table"):
        if name not in parsed:
            instead = f", or the driver's {ENVIRONMENT[name]}" if name in ENVIRONMENT else ""
            raise SpecError(f"{what} needs the option {name}{instead}")
    return parsed


def _place(parsed: dict[str, Any]) -> Place:
    # Workers have folders of their own.
    return Place(parsed.pop("url"), os.path.abspath(parsed.pop("tls")), parsed.pop("client", CLIENT))
