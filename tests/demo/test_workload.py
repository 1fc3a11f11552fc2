"""The stream of operations: seeded, mixed as stated, and answered by SQLite as arithmetic says."""

from __future__ import annotations

from collections import Counter

import pytest

from crescando.demo.flights import NAMES, Flights, load_flights
from crescando.demo.operations import (
    DelayKey,
    Divide,
    Insert,
    Magnify,
    Purge,
    ReadDelays,
    ReadKey,
    Upsert,
    is_read,
)
from crescando.demo.replay import Counts, Replay, Rows
from crescando.demo.workload import WEIGHTS, Workload


@pytest.fixture(scope="module")
def flights() -> Flights:
    return load_flights(5_000)


def test_same_seed_gives_the_same_stream_and_another_another(flights: Flights) -> None:
    one = list(Workload(flights, 3).stream(0, 400))

    assert list(Workload(flights, 3).stream(0, 400)) == one
    assert list(Workload(flights, 4).stream(0, 400)) != one
    assert list(Workload(flights, 3).stream(1, 400)) != one


def test_every_kind_occurs_about_as_often_as_stated(flights: Flights) -> None:
    kinds = Counter(type(operation) for operation in Workload(flights, 1).stream(0, 10_000))

    assert sum(WEIGHTS.values()) == 100
    for kind, weight in WEIGHTS.items():
        assert 70 * weight <= kinds[kind] <= 130 * weight, kind
    assert sum(WEIGHTS[kind] for kind in WEIGHTS if kind.__name__.startswith("Read")) == 76


def test_operations_meet_on_rows(flights: Flights) -> None:
    replay = Replay(flights)
    hits = Counter[str]()

    for position, operation in enumerate(Workload(flights, 1).stream(0, 3_000), start=1):
        found = replay.execute(operation, position)
        kind = "read" if is_read(operation) else "write"
        hits[f"{kind} that hit"] += bool(found.rows if isinstance(found, Rows) else found.affected)
        hits["rejected"] += isinstance(found, Counts) and found.rejected > 0

    assert hits["read that hit"] > 1_000
    assert hits["write that hit"] > 300
    assert hits["rejected"] > 20


def row(flight: int, **changes: object) -> tuple[object, ...]:
    """Give a flight's values."""
    values = {
        "time_hour": "2013-07-04T18:00:00Z",
        "carrier": "XX",
        "flight": flight,
        "tailnum": "N1",
        "origin": "JFK",
        "dest": "LAX",
        "departs": "2013-07-04T18:30:00Z",
        "dep_delay": 10,
        "arr_delay": 5,
        "distance": 2475,
        "air_time": 300,
        "cancelled": False,
        "status": "planned",
    }
    return tuple({**values, **changes}.get(name, 0) for name in NAMES)


@pytest.fixture
def replay() -> Replay:
    empty = Flights({name: [] for name in NAMES})
    replay = Replay(empty)
    rows = (row(1), row(2, arr_delay=0), row(3, arr_delay=None, dep_delay=None), row(4, arr_delay=-400))
    assert replay.execute(Insert(rows), 1) == Counts(4, 0)
    return replay


DAY = ("2013-07-04T00:00:00Z", "2013-07-05T00:00:00Z")


def test_insert_rejects_the_keys_that_exist(replay: Replay) -> None:
    assert replay.execute(Insert((row(4), row(5))), 2) == Counts(1, 1)


def test_upsert_replaces(replay: Replay) -> None:
    assert replay.execute(Upsert((row(4, status="new"), row(5))), 2) == Counts(2, 0)

    table = replay.table()

    assert table["2013-07-04T18:00:00Z", "XX", 4][-1] == "new"
    assert replay.writer_of(("2013-07-04T18:00:00Z", "XX", 4)) == 2
    assert replay.writer_of(("2013-07-04T18:00:00Z", "XX", 1)) == 1


def test_division_by_zero_rejects_its_row_only(replay: Replay) -> None:
    assert replay.execute(Divide("XX", *DAY), 2) == Counts(3, 1)

    air_times = {key[2]: found[NAMES.index("air_time")] for key, found in replay.table().items()}

    assert air_times == {1: 495, 2: 300, 3: None, 4: -6}


def test_product_that_does_not_fit_rejects_its_row_only(replay: Replay) -> None:
    assert replay.execute(Magnify("JFK", *DAY, factor=900), 2) == Counts(3, 1)


def test_unknown_delay_counts_as_none_when_one_flight_is_delayed(replay: Replay) -> None:
    key = ("2013-07-04T18:00:00Z", "XX", 3)

    assert replay.execute(DelayKey(key, 25), 2) == Counts(1, 0)
    found = replay.execute(ReadKey(key), 3)

    assert isinstance(found, Rows)
    assert found.rows[0][NAMES.index("dep_delay")] == 25


def test_aggregates_leave_unknown_delays_out(replay: Replay) -> None:
    assert replay.execute(ReadDelays("XX", *DAY), 2) == Rows([(4, 3, 30, 10, 10, 10.0)])


def test_delete_remembers_who_deleted(replay: Replay) -> None:
    replay.execute(Upsert((row(9, cancelled=True),)), 2)

    assert replay.execute(Purge("JFK", *DAY), 3) == Counts(1, 0)
    assert replay.writer_of(("2013-07-04T18:00:00Z", "XX", 9)) == 3
    assert replay.writer_of(("2013-07-04T18:00:00Z", "XX", 10)) == -1
