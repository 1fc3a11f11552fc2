"""The engine's benchmark measures what it says: tickets, contests, verdicts, and every row at a tiny size."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks import engine
from benchmarks.report import table
from benchmarks.rivals.base import Rival, exploded, hex_buckets
from benchmarks.scans.contest import (
    DisagreementError,
    arrow_checksum,
    contest,
    fastest,
    rows_checksum,
)
from benchmarks.scans.engine_side import EngineSide
from benchmarks.scans.plan import GOAL_ROWS, QUICK, Plan
from benchmarks.tickets.generate import tickets, value_bytes
from benchmarks.tickets.work import Draw
from benchmarks.verdicts import Goal, judge


def test_tickets_are_47_columns_of_350_bytes_and_the_same_for_a_seed() -> None:
    drawn = tickets(20_000, seed=3)

    assert drawn.num_columns == 47
    assert 330 <= value_bytes(drawn) / len(drawn) <= 370
    assert drawn.equals(tickets(20_000, seed=3))
    assert not drawn.equals(tickets(20_000, seed=4))


def test_long_texts_of_tickets_are_mostly_distinct_and_bookings_have_some_rows_each() -> None:
    drawn = tickets(20_000)

    distinct = {name: pc.count_distinct(drawn[name]).as_py() for name in drawn.column_names}
    assert all(distinct[name] >= 0.5 * len(drawn) for name in ("document", "email", "remarks", "phone"))
    assert distinct["ticket_id"] == distinct["document"] == len(drawn)
    assert 3 <= len(drawn) / distinct["rloc"] <= 4
    assert {name for name in drawn.column_names if drawn[name].null_count} >= {"passport", "remarks"}


def test_pieces_of_a_large_table_share_no_ticket() -> None:
    first, second = tickets(1_000, 1, 0), tickets(1_000, 2, 1_000)

    ids = pa.concat_tables([first, second])["ticket_id"]
    assert pc.count_distinct(ids).as_py() == 2_000


@pytest.mark.parametrize(("threads", "arcs"), [(1, 1), (2, 1), (1, 3)])
def test_our_side_answers_what_the_rows_say(threads: int, arcs: int) -> None:
    rows = tickets(2_000)
    side = EngineSide(rows, threads, arcs)
    work = Draw(rows, 9).points(50)

    answer = side.points(work)

    by_key = {key: [] for key in work.keys}  # type: ignore[var-annotated]
    for ticket, key in zip(rows["ticket_id"].to_pylist(), rows["rloc"].to_pylist(), strict=True):
        if key in by_key:
            by_key[key].append(ticket)
    expected = [(op, ticket) for op, key in enumerate(work.keys) for ticket in by_key[key]]
    found = sorted(zip(answer["op"].to_pylist(), answer["ticket_id"].to_pylist(), strict=True))
    assert found == sorted(expected)


def _answer(ops: list[int], tickets_: list[int], names: list[str | None]) -> pa.Table:
    return pa.table({"op": ops, "ticket_id": tickets_, "name": pa.array(names, pa.large_string())})


def test_equal_rows_have_equal_checksums_whatever_their_order_and_type_of_text() -> None:
    one = _answer([0, 0, 1], [7, 8, 9], ["a", None, "b"])
    other = _answer([0, 0, 1], [8, 7, 9], [None, "a", "b"])
    coded = one.set_column(2, "name", one["name"].cast(pa.string()).dictionary_encode())

    assert arrow_checksum(one) == arrow_checksum(other) == arrow_checksum(coded)
    assert rows_checksum([[(1, "a"), (2, "b")]]) == rows_checksum([[(2, "b"), (1, "a")]])


@pytest.mark.parametrize(
    "other",
    [
        _answer([0, 0, 1], [7, 8, 9], ["a", "", "b"]),
        _answer([0, 1, 1], [7, 8, 9], ["a", None, "b"]),
        _answer([0, 0], [7, 8], ["a", None]),
    ],
    ids=["null", "operation", "rows"],
)
def test_different_rows_have_different_checksums(other: pa.Table) -> None:
    assert arrow_checksum(_answer([0, 0, 1], [7, 8, 9], ["a", None, "b"])) != arrow_checksum(other)


def test_answers_out_of_the_operations_order_do_not_count() -> None:
    with pytest.raises(DisagreementError, match="order"):
        arrow_checksum(_answer([1, 0], [7, 8], ["a", "b"]))


def test_sides_that_disagree_have_no_figures() -> None:
    with pytest.raises(DisagreementError, match="theirs answers 7"):
        contest({"ours": len, "theirs": lambda batch: len(batch) - (batch[0] == 1)}, [[0] * 8, [1] * 8], int)
    with pytest.raises(DisagreementError):
        fastest({"a": len, "b": sum}, [[0] * 8, [1] * 8], int)


def test_a_way_that_is_hopeless_on_a_small_batch_is_not_tried_on_the_whole() -> None:
    tried: list[int] = []

    def slow(batch: list[int]) -> int:
        tried.append(len(batch))
        return sum(i % 2 for i in range(200_000)) * 0 + len(batch)

    assert fastest({"slow": slow, "quick": len}, [[1] * 2, [1] * 4], int) == "quick"
    assert set(tried) == {2}


def test_a_contest_counts_every_batch_but_the_first() -> None:
    seen: list[int] = []

    timings = contest({"a": lambda batch: seen.append(batch[0]) or 0, "b": sum}, [[0], [0], [0]], lambda _: 0)

    assert len(seen) == 3
    assert len(timings["a"].seconds) == len(timings["b"].seconds) == 2
    assert timings["b"].rate_s == pytest.approx(1 / timings["b"].median_s)


def test_a_missed_goal_says_by_how_much_and_one_that_cannot_be_judged_why() -> None:
    met, missed = Goal("a", 3.0, 2.0, 4.0), Goal("b", 60.0, 50.0, 30.0, "ms", is_ceiling=True)
    absent = Goal("c", None, 2.0, 4.0, unjudged="not installed")

    assert judge([met])["ok"] is True
    assert judge([met, absent])["ok"] is None
    told = judge([met, missed, absent])
    assert told["ok"] is False
    assert told["missed_by"] == ["b: 60 ms, 83 % of the target"]
    assert told["value"] == pytest.approx(50 / 60, abs=1e-3)
    assert told["goals"]["c"]["not_judged"] == "not installed"
    assert "b: 60 ms" in table({"E1": told})


def test_only_the_size_that_a_goal_is_about_is_judged() -> None:
    assert Plan().unjudged() == QUICK.unjudged() == ""
    assert Plan().unjudged(6_000_000, Plan().large_rows) == ""
    assert "1,000,000" in QUICK.unjudged(6_000_000, QUICK.large_rows)
    assert Plan(rows=GOAL_ROWS - 1).unjudged()


def test_ranges_are_cut_into_keys_that_cover_them() -> None:
    assert exploded(["x", "y"], [1, 5], [3, 5]) == ([0, 0, 0, 1], ["x", "x", "x", "y"], [1, 2, 3, 5])
    assert hex_buckets(["00fe1", "ab000"], ["0101f", "ab0ff"], 3) == ([0, 0, 1], ["00f", "010", "ab0"])


def test_drawn_ranges_meet_rows() -> None:
    rows = tickets(2_000)
    draw = Draw(rows, 4)

    spans, texts = draw.text_spans(40), draw.prefixes(40)
    documents = np.array(sorted(rows["document"].to_pylist()))
    for low, high in zip(spans.lows, spans.highs, strict=True):
        assert 1 <= np.searchsorted(documents, high, "right") - np.searchsorted(documents, low) <= 3
    assert all(any(document.startswith(text) for document in documents) for text in texts.prefixes)
    assert len(set(draw.changes(40).keys)) == 40


def test_peers_that_are_missing_are_skipped_by_name_and_not_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for rival in Rival.__subclasses__():
        monkeypatch.setattr(rival, "available", lambda self: f"no {self.name} here")

    engine.main(["--rows", "500", "--only", "E1", "E5", "--out", str(tmp_path / "engine.json")])

    told = json.loads((tmp_path / "engine.json").read_text(encoding="utf-8"))
    assert "polars is skipped: no polars here" in capsys.readouterr().err
    for key in ("E1", "E5"):
        assert told[key]["ok"] is None
        assert told[key]["skipped"]["duckdb"] == "no duckdb here"
        assert any(goal["not_judged"] == "no duckdb here" for goal in told[key]["goals"].values())


@pytest.mark.slow
def test_every_row_runs_at_a_tiny_size(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "engine.json"

    assert engine.main(["--rows", "3000", "--json", "--out", str(out)]) == 0

    told: dict[str, Any] = json.loads(out.read_text(encoding="utf-8"))
    assert told == json.loads(capsys.readouterr().out)
    assert list(told) == [*engine.KEYS, "setting"]
    for key in engine.KEYS:
        assert "failed" not in told[key], (key, told[key]["failed"])
        assert {"value", "target", "ok"} <= told[key].keys()
        assert told[key]["ok"] is not True, f"{key} claims a goal at a size that proves nothing"
