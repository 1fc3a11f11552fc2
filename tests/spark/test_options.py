"""Options: what is wrong, unknown or missing is told in one line, before anything happens."""

from __future__ import annotations

from pathlib import Path

import pytest

from crescando.errors import SpecError
from crescando.spark.connections import Place
from crescando.spark.options import LOAD_LEASE_S, ReadOptions, WriteOptions, read_options, write_options

NEEDED = {"url": "crescando://127.0.0.1:1", "tls": "/certs", "table": "flights"}
PLACE = Place("crescando://127.0.0.1:1", "/certs", "app")


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CRESCANDO_URL", raising=False)
    monkeypatch.delenv("CRESCANDO_TLS", raising=False)


def test_a_read_is_told_what_it_needs() -> None:
    assert read_options(NEEDED) == ReadOptions(PLACE, "flights")
    told = read_options(
        {
            **NEEDED,
            "Columns": "id, origin",
            "WHERE": "id > 5",
            "lease_s": "30",
            "timeout_s": "2.5",
            "client": "etl",
        }
    )
    assert told == ReadOptions(
        Place(PLACE.url, PLACE.tls, "etl"), "flights", "id > 5", ("id", "origin"), 30.0, 2.5
    )


def test_a_write_is_told_what_it_needs() -> None:
    assert write_options(NEEDED) == WriteOptions(PLACE, "flights", lease_s=LOAD_LEASE_S)
    assert write_options({**NEEDED, "write": "Upsert", "job": "nightly"}).write == "upsert"
    assert write_options({**NEEDED, "rule": "keep"}).rule == "keep"
    assert write_options({**NEEDED, "confirm_overwrite": "flights"}, overwrites=True).write == "overwrite"
    # A stream's own settings come along; and a path is one for all processes.
    assert write_options({**NEEDED, "tls": "certs"}).place.tls == str(Path("certs").absolute())
    assert write_options({**NEEDED, "checkpointLocation": "/tmp/x", "queryName": "q"})


def test_the_driver_may_say_where_the_cluster_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CRESCANDO_URL", "crescando://elsewhere:2")
    monkeypatch.setenv("CRESCANDO_TLS", "/certs")
    assert read_options({"table": "flights"}).place == Place("crescando://elsewhere:2", "/certs", "app")
    assert read_options(NEEDED).place == PLACE


@pytest.mark.parametrize(
    ("extra", "text"),
    [
        ({"wher": "id > 5"}, "no option is named 'wher'; did you mean 'where'"),
        ({"frobnicate": "1"}, "no option is named 'frobnicate'; there are client, columns"),
        ({"write": "insert"}, "option 'write' is not one of a read"),
        ({"lease_s": "soon"}, "option lease_s is a number of seconds above 0, not 'soon'"),
        ({"timeout_s": "-1"}, "option timeout_s is a number of seconds above 0"),
        ({"timeout_s": "inf"}, "option timeout_s is a number of seconds above 0"),
        ({"columns": "a,,b"}, "list of column names"),
        ({"columns": "a,a"}, "names column 'a' twice"),
        ({"where": " "}, "option where is a text"),
        ({"path": "flights"}, "a table is no path: say option table='flights'"),
    ],
)
def test_a_read_that_is_told_nonsense_says_so(extra: dict[str, str], text: str) -> None:
    with pytest.raises(SpecError, match=text) as told:
        read_options({**NEEDED, **extra})
    assert "\n" not in str(told.value)


@pytest.mark.parametrize("missing", ["url", "tls", "table"])
def test_what_is_missing_is_named(missing: str) -> None:
    with pytest.raises(SpecError, match=f"a read needs the option {missing}"):
        read_options({name: value for name, value in NEEDED.items() if name != missing})


@pytest.mark.parametrize(
    ("extra", "overwrites", "text"),
    [
        ({"write": "insrt"}, False, "did you mean 'insert'"),
        ({"where": "id > 5"}, False, "option 'where' is not one of a write"),
        ({"rule": "skip"}, False, "option rule is one of fail, keep, replace"),
        ({"write": "upsert", "rule": "keep"}, False, "option rule goes with write 'insert'"),
        ({}, True, "confirm it by the option confirm_overwrite='flights'"),
        ({"confirm_overwrite": "yes"}, True, "and not 'yes'"),
        ({"write": "overwrite"}, False, "confirm it by the option"),
        ({"confirm_overwrite": "flights"}, False, "goes with an overwrite, and this is 'insert'"),
        ({"write": "upsert", "confirm_overwrite": "flights"}, True, "use mode append"),
    ],
)
def test_a_write_that_is_told_nonsense_says_so(extra: dict[str, str], overwrites: bool, text: str) -> None:
    with pytest.raises(SpecError, match=text) as told:
        write_options({**NEEDED, **extra}, overwrites=overwrites)
    assert "\n" not in str(told.value)
