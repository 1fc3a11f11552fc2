"""The benchmark of loads and extracts judges what it says, and its tickets follow from seed and number."""

from __future__ import annotations

import os

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from benchmarks.exchange.contest import Timing, rotated
from benchmarks.exchange.costs import Process, by_kind, processes
from benchmarks.exchange.postgres_side import _lines
from benchmarks.exchange.targets import GOAL_ROWS, judged
from benchmarks.tickets.spark_job import PIECE_ROWS, drawing, piece


def drawn(n_rows: int, seed: int, *tasks: list[int]) -> pa.Table:
    """Give what tasks draw, each given the numbers of some pieces."""
    draw = drawing(n_rows, seed)
    batches = [
        made
        for numbers in tasks
        for made in draw(iter([pa.RecordBatch.from_pydict({"id": numbers})] if numbers else []))
    ]
    return pa.Table.from_batches(batches).sort_by("ticket_id")


def test_a_ticket_does_not_depend_on_how_many_there_are_nor_on_the_tasks() -> None:
    n_rows = 2 * PIECE_ROWS + 17
    whole = drawn(n_rows, 3, [0, 1, 2])

    assert len(whole) == n_rows
    assert whole.equals(drawn(n_rows, 3, [2], [1, 0], []))
    assert whole.slice(0, PIECE_ROWS + 5).equals(drawn(PIECE_ROWS + 5, 3, [1], [0]))
    assert pc.count_distinct(whole["ticket_id"]).as_py() == n_rows
    assert pc.count_distinct(whole["document"]).as_py() == n_rows


def test_seeds_and_pieces_give_other_tickets() -> None:
    first = piece(0, 100, seed=1)

    for other in (piece(1, 100, seed=1), piece(0, 100, seed=2)):
        assert not pc.any(pc.equal(first["document"], other["document"])).as_py()
        assert (
            pc.count_distinct(pa.chunked_array([*first["rloc"].chunks, *other["rloc"].chunks])).as_py() > 190
        )


def test_sides_take_turns() -> None:
    sides = ["a", "b", "c"]

    firsts = [rotated(sides, trial)[0] for trial in range(3)]  # type: ignore[arg-type]

    assert sorted(firsts) == sides
    assert sorted(rotated(sides, 7)) == sides  # type: ignore[arg-type,type-var]


def test_rates_are_of_the_median_and_costs_of_the_median_trial() -> None:
    timing = Timing(
        [4.0, 1.0, 2.0], [1.0, 1.0, 1.0], [{"Java": 40.0}, {"Java": 10.0}, {"Java": 20.0}], [{}] * 3
    )

    told = timing.told(1_000)

    assert told["load"]["rows_per_s"] == 500
    assert told["load"]["seconds"] == {"median": 2.0, "min": 1.0, "max": 4.0, "trials": 3}
    assert told["load"]["cpu_s"] == {"Java": 20.0}


def side(**cpu_s: float) -> dict[str, object]:
    return {"cpu_s": cpu_s, "seconds": {"median": 2.0}}


@pytest.mark.parametrize(
    ("key", "ours", "rows", "ok"),
    [
        ("L1", 500.0, GOAL_ROWS, True),
        ("L1", 499.0, GOAL_ROWS, False),  # Not five times JDBC.
        ("X1", 300.0, GOAL_ROWS, True),
        ("X1", 299.0, GOAL_ROWS, False),
        ("L1", 5_000.0, GOAL_ROWS - 1, None),
        ("L3", 1.0, GOAL_ROWS, None),
    ],
)
def test_goals_are_judged_at_a_million_rows(key: str, ours: float, rows: int, ok: bool | None) -> None:
    name = f"crescando, f = {key[1]}"
    rates = {name: ours, "JDBC": 100.0, "Parquet": 1_000.0, "COPY": 500.0}

    told = judged(key, rates, rows, sides={name: side(storage=3.0, Java=1.0)})

    assert told["ok"] is ok
    assert told["ratios"]["COPY"] == round(ours / 500, 3)
    assert ("limited_by" in told) == (ok is False)
    if ok is False:
        assert told["limited_by"] == "4.0 s of processor in 2.0 s: storage 3.0 s (75 %), Java 1.0 s (25 %)"


def test_a_rate_far_from_parquets_is_missed_whatever_jdbc_does() -> None:
    rates = {"crescando, f = 1": 290.0, "JDBC": 1.0, "Parquet": 1_000.0}

    told = judged("X1", rates, GOAL_ROWS, sides={"crescando, f = 1": side(Java=1.0)})

    assert told["ok"] is False
    assert "Parquet" in told["missed_by"][0]


def test_a_goal_without_its_peer_is_not_judged() -> None:
    told = judged("L1", {"crescando, f = 1": 900.0, "Parquet": 1_000.0}, GOAL_ROWS, sides={})

    assert told["ok"] is None


def test_time_counts_for_the_next_kind_above_a_process() -> None:
    seen = {
        1: Process(0, 100.0),
        2: Process(1, 1.0),
        3: Process(2, 2.0),
        4: Process(3, 4.0),
        5: Process(1, 8.0),
    }

    assert by_kind(seen, {2: "Java", 4: "workers"}) == {"Java": 3.0, "workers": 4.0}


def test_a_worker_that_ends_keeps_what_it_has_spent_and_its_kind() -> None:
    before = {2: Process(1, 1.0), 3: Process(2, 2.0), 4: Process(3, 4.0)}
    after = {2: Process(1, 1.5, ended_s=7.0)}  # The two have spent one second more, together.

    first = by_kind(before, {2: "Java"}, below={"Java": "workers"})
    then = by_kind(after, {2: "Java"}, below={"Java": "workers"})

    assert (first, then) == ({"Java": 1.0, "workers": 6.0}, {"Java": 1.5, "workers": 7.0})


def test_processes_of_this_machine_are_found_with_their_times() -> None:
    mine = processes()[os.getpid()]

    assert mine.parent == os.getppid()
    assert mine.seconds > 0


def test_what_is_copied_out_comes_in_pieces_of_whole_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.exchange.postgres_side.COPY_BYTES", 5)

    assert list(_lines(iter([b"ab\n", b"cd\n", b"e\n"]))) == [b"ab\ncd\n", b"e\n"]
    assert list(_lines(iter([]))) == []
