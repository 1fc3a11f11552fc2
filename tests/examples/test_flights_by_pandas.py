"""The check of the pipeline with Spark finds what is planted, and nothing where nothing is."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from examples.flights_by_pandas import announce, changes, check, differences, flights, judged

RAW = """\
year,month,day,dep_time,sched_dep_time,dep_delay,arr_time,sched_arr_time,arr_delay,carrier,flight,tailnum,\
origin,dest,air_time,distance,hour,minute,time_hour
2013,1,1,517,515,2,830,819,11,UA,1545,N14228,EWR,ATL,227,1400,5,15,2013-01-01T10:00:00Z
2013,1,1,630,515,75,830,819,11,AA,1,NA,LGA,BOS,180,1416,5,15,2013-01-01T10:00:00Z
2013,1,2,535,515,20,NA,819,NA,AA,2,N3,LGA,BOS,NA,1416,5,59,2013-01-02T10:00:00Z
2013,12,31,NA,515,NA,NA,819,NA,B6,3,N4,JFK,ATL,NA,765,5,0,2013-12-31T10:00:00Z
"""
CLAIMS = """\
claim,time_hour,carrier,flight,claimed_delay
0,2013-01-01T10:00:00Z,UA,1545,30
1,2013-01-01T10:00:00Z,UA,11545,30
"""


@pytest.fixture
def raw(tmp_path: Path) -> tuple[Path, Path]:
    paths = tmp_path / "flights.csv", tmp_path / "claims.csv"
    for path, text in zip(paths, (RAW, CLAIMS), strict=True):
        path.write_text(text, encoding="utf-8")
    return paths


def test_raw_flights_are_cleaned_and_completed(raw: tuple[Path, Path]) -> None:
    made = flights(raw[0])

    assert list(made["status"]) == ["on time", "very late", "late", "cancelled"]
    assert list(made["route"]) == ["EWR-ATL", "LGA-BOS", "LGA-BOS", "JFK-ATL"]
    assert made["departs"][2] == pd.Timestamp("2013-01-02T10:59:00Z")
    assert made["mph"][1] == 1416 * 60 / 180
    assert list(made["mph"].isna()) == [False, False, True, True]
    assert list(made["tailnum"].isna()) == [False, True, False, False]


def test_live_updates_have_their_effect_in_their_order(raw: tuple[Path, Path]) -> None:
    made = flights(raw[0])
    to_atlanta = [each for each in changes() if (each.dest, each.month) == ("ATL", 1)][:2]

    announce(made, to_atlanta)

    assert made["told_delay"][0] == 2 + sum(each.minutes for each in to_atlanta)
    assert made["revision"].tolist() == [to_atlanta[1].number, 0, 0, 0]
    assert made["told_delay"].isna()[3]
    assert changes(50) == changes(200)[:50]


def came(raw: tuple[Path, Path], n_changes: int) -> tuple[Path, Path]:
    """Write what a pipeline without a fault gives, in another sequence of rows."""
    made = flights(raw[0])
    found = judged(made, raw[1])
    announce(made, changes(n_changes))
    folder = raw[0].parent
    for name, frame in (("flights", made), ("claims", found)):
        (folder / name).mkdir()
        frame = frame.iloc[::-1].reset_index(drop=True)
        pq.write_table(pa.Table.from_pandas(frame, preserve_index=False), folder / name / "part.parquet")
    return folder / "flights", folder / "claims"


def met(raw: tuple[Path, Path], n_changes: int) -> list[int]:
    made = flights(raw[0])
    return [
        int(((made["dest"] == each.dest) & (made["month"] == each.month)).sum())
        for each in changes(n_changes)
    ]


def test_a_pipeline_without_a_fault_has_no_difference_however_far_its_extract_came(
    raw: tuple[Path, Path],
) -> None:
    extracted, enriched = came(raw, 300)

    # More updates than the extract has seen: it is of an earlier position.
    assert check(*raw, extracted, enriched, met(raw, 400)) == []


def test_an_update_that_met_other_rows_than_it_should_is_told(raw: tuple[Path, Path]) -> None:
    extracted, enriched = came(raw, 300)
    affected = met(raw, 300)
    affected[7] += 1

    (told,) = check(*raw, extracted, enriched, affected)

    assert told.startswith("live update 8 ")


def test_an_extract_of_no_one_position_is_told(raw: tuple[Path, Path]) -> None:
    extracted, enriched = came(raw, 300)
    path = extracted / "part.parquet"
    torn = pq.read_table(path).to_pandas()
    newest = torn["revision"].idxmax()
    older = torn.index[(torn["revision"] > 0) & (torn.index != newest)][0]
    torn.loc[older, "told_delay"] -= 1
    pq.write_table(pa.Table.from_pandas(torn, preserve_index=False), path)

    (told,) = check(*raw, extracted, enriched, met(raw, 300))

    assert told.startswith("flights: told_delay of row ")


def frame() -> pd.DataFrame:
    return pd.DataFrame(
        {
            "key": [1, 2, 2, 3],
            "text": pd.array(["a", "b", None, "ü"], "string"),
            "number": pd.array([1.5, None, 0.1 + 0.2, -0.0], "Float64"),
            "at": pd.to_datetime(["2013-01-01T00:00:00.000001Z"] * 4, format="ISO8601", utc=True),
        }
    )


def test_the_sequence_of_rows_is_no_difference() -> None:
    assert differences(frame(), frame().iloc[[3, 2, 0, 1]], ["key"]) == []


@pytest.mark.parametrize(
    ("row", "column", "value"),
    [
        (0, "text", "A"),
        (0, "text", None),
        (2, "text", ""),
        (2, "number", 0.3),
        (1, "number", 0.0),
        (3, "number", None),
        (3, "at", pd.Timestamp("2013-01-01T00:00:00.000002Z")),
    ],
)
def test_one_other_value_is_told(row: int, column: str, value: object) -> None:
    whole = frame().assign(key=range(4))
    other = whole.copy()
    other.loc[row, column] = value

    told = differences(whole, other, ["key"])

    assert told
    assert all(text.startswith(f"{column} of row ") for text in told)


def test_rows_too_many_and_too_few_are_told() -> None:
    assert differences(frame(), frame().iloc[[0, 1, 3]], ["key"]) == ["row 2 is missing"]
    assert differences(frame(), frame().iloc[[0, 1, 2, 3, 3]], ["key"]) == ["row 3 should not be there"]
    assert differences(frame(), frame().iloc[:0], ["key"])[-1] == "row 3 is missing"
    assert differences(frame(), frame().drop(columns="at"), ["key"]) == [
        "column at is in one of the two only"
    ]
