"""The pipeline of `spark_flights.py` once more, by pandas alone, and where the two differ.

Rules of the file: nothing here knows Spark or crescando. It begins with the raw files
and ends with a list of differences; live updates are replayed as far as the extract
has come, which its newest revision tells.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow.parquet as pq

KEY = ["time_hour", "carrier", "flight"]
DESTS = ("ATL", "ORD", "LAX", "BOS", "MCO", "CLT", "SFO", "FLL", "MIA", "DCA")
SHOWN = 5
"""Differences of one column that are told in full."""


@dataclass(frozen=True, slots=True)
class Change:
    """One live update: all flights to a place in a month are announced to be later."""

    number: int
    dest: str
    month: int
    minutes: int


def changes(n_changes: int = 100_000, seed: int = 2013) -> list[Change]:
    """Give the changes that a client makes, from number 1, for as long as it is let."""
    chance = random.Random(seed)
    return [
        Change(number, chance.choice(DESTS), chance.randint(1, 12), chance.randint(-5, 30))
        for number in range(1, n_changes + 1)
    ]


def flights(path: Path) -> pd.DataFrame:
    """Clean and complete the raw flights."""
    raw = pd.read_csv(path, na_values="NA", keep_default_na=False, dtype={"tailnum": "string"})
    whole = ("dep_time", "dep_delay", "arr_time", "arr_delay", "air_time")
    made = raw.drop(columns="year").astype(dict.fromkeys(whole, "Int64"))
    made["time_hour"] = pd.to_datetime(made["time_hour"], utc=True)
    made["departs"] = made["time_hour"] + pd.to_timedelta(made["minute"], unit="min")
    made["route"] = made["origin"] + "-" + made["dest"]
    made["mph"] = made["distance"] * 60 / made["air_time"].astype("Float64")
    delay = made["dep_delay"].fillna(0)
    made["status"] = np.select(
        [made["dep_time"].isna(), delay >= 60, delay >= 15], ["cancelled", "very late", "late"], "on time"
    )
    made["told_delay"] = made["dep_delay"]
    made["revision"] = 0
    return made


def judged(made: pd.DataFrame, claims: Path) -> pd.DataFrame:
    """Give the claims with what is known of their flights."""
    raw = pd.read_csv(claims)
    raw["time_hour"] = pd.to_datetime(raw["time_hour"], utc=True)
    return raw.merge(made[[*KEY, "dest", "dep_delay", "arr_delay", "status"]], on=KEY, how="left")


def announce(made: pd.DataFrame, done: Sequence[Change]) -> None:
    """Make changes, in their order, in place."""
    groups = made.groupby(["dest", "month"]).indices
    delay, revision = made["told_delay"].to_numpy(float, na_value=np.nan), made["revision"].to_numpy().copy()
    for change in done:
        rows = groups.get((change.dest, change.month), np.empty(0, np.int64))
        delay[rows] += change.minutes  # A delay that is not known stays so.
        revision[rows] = change.number
    made["told_delay"], made["revision"] = pd.Series(delay, made.index).astype("Int64"), revision


def check(
    flights_csv: Path, claims_csv: Path, extracted: Path, enriched: Path, affected: Sequence[int]
) -> list[str]:
    """Compare what came out with what pandas makes of the raw files.

    Parameters
    ----------
    flights_csv, claims_csv : Path
    extracted, enriched : Path
        Folders of Parquet files.
    affected : sequence of int
        How many rows each live update has changed, as the store says.

    Returns
    -------
    list of str
        The differences.
    """
    got = read(extracted)
    newest = int(got["revision"].max()) if len(got) else 0
    made = flights(flights_csv)
    sizes = made.groupby(["dest", "month"]).size().to_dict()
    told = []
    for change, said in zip(changes(len(affected)), affected, strict=True):
        met = sizes.get((change.dest, change.month), 0)
        if said != met:
            told.append(f"live update {change.number} is said to have met {said:,} flights, not {met:,}")
    told += [f"claims: {text}" for text in differences(judged(made, claims_csv), read(enriched), ["claim"])]
    announce(made, changes(newest))
    return told + [f"flights: {text}" for text in differences(made, got, KEY)]


def read(folder: Path) -> pd.DataFrame:
    """Read Parquet as it is: NULL stays apart from NaN, instants are in UTC."""
    return pq.read_table(folder).to_pandas(types_mapper=pd.ArrowDtype)


def differences(expected: pd.DataFrame, got: pd.DataFrame, key: Sequence[str]) -> list[str]:
    """Compare two frames in every row and column, whatever the sequence of their rows; values are exact.

    Parameters
    ----------
    expected, got : DataFrame
    key : sequence of str
        Tells which rows are to be compared; several rows may share one.
    """
    told = [f"column {name} is in one of the two only" for name in sorted({*expected} ^ {*got})]
    both = [name for name in expected if name in got]
    joined = _numbered(expected[both], key).merge(
        _numbered(got[both], key),
        on=[*key, _NTH],
        how="outer",
        suffixes=("", _GOT),
        indicator=True,
        validate="one_to_one",
    )
    for side, text in (("left_only", "is missing"), ("right_only", "should not be there")):
        rows = joined[joined["_merge"] == side]
        told += [f"row {_shown(row, key)} {text}" for _, row in rows.head(SHOWN).iterrows()]
        told += [f"and {len(rows) - SHOWN:,} more rows, each of which {text}"] * (len(rows) > SHOWN)
    shared = joined[joined["_merge"] == "both"]
    for name in both:
        if name in key:
            continue
        ours, theirs = shared[name], shared[name + _GOT]
        differ = (ours.isna() != theirs.isna()) | (ours != theirs).fillna(False)
        rows = shared[differ]
        told += [
            f"{name} of row {_shown(row, key)} is {row[name + _GOT]!r} and not {row[name]!r}"
            for _, row in rows.head(SHOWN).iterrows()
        ]
        told += [f"and {name} of {len(rows) - SHOWN:,} more rows"] * (len(rows) > SHOWN)
    return told


_NTH, _GOT = "nth of its key", " as it came"


def _numbered(frame: pd.DataFrame, key: Sequence[str]) -> pd.DataFrame:
    """Give a frame with comparable types, whose rows of one key are told apart by a number."""
    made = frame.apply(_comparable).sort_values([*key, *(name for name in frame if name not in key)])
    return made.assign(**{_NTH: made.groupby(list(key), dropna=False).cumcount()})


def _comparable(column: pd.Series) -> pd.Series:
    """Give a column in the one type in which both sides can have it: instants in microseconds."""
    kind = pd.api.types
    if kind.is_datetime64_any_dtype(column.dtype):
        return column.astype("datetime64[us, UTC]").astype("int64").astype("Int64")
    if kind.is_bool_dtype(column.dtype):
        return column.astype("boolean")
    if kind.is_integer_dtype(column.dtype):
        return column.astype("Int64")
    if kind.is_float_dtype(column.dtype):
        return column.astype("Float64")
    return column.astype("string")


def _shown(row: pd.Series, key: Sequence[str]) -> str:
    return " ".join(str(row[name]) for name in key)
