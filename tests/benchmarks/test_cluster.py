"""The benchmark of a whole cluster: tiny runs of each measure, and answers that make a run invalid."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator

import pytest

pytest.importorskip("cryptography")

from benchmarks.served.plan import KINDS, WRITES, tiny
from benchmarks.served.rates import LAYERS, Table
from benchmarks.served.world import World
from crescando.metering import Meter


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CRESCANDO_KERNELS", "numpy")
        with World(tiny()) as world:
            yield world


@pytest.mark.slow
def test_every_kind_has_a_rate_a_wait_and_a_cost(world: World) -> None:
    table = Table(world, "tickets", world.plan.rows)
    table.measure_rates()
    table.measure_waits()
    table.check()

    told = [table.c1(), table.c2(), table.c3()]

    json.dumps(told)
    assert told[0]["ok"] is None, "a tiny run is no verdict"
    assert set(told[0]["rates_s"]) == set(KINDS)
    assert all(rate["median"] > 0 for rate in told[0]["rates_s"].values())
    assert all(0 < told[1]["waits_ms"][kind]["p50_ms"]["median"] < float("inf") for kind in KINDS)
    for cost in told[2]["shares"].values():
        assert sum(cost.get(layer, 0.0) for layer in LAYERS) == pytest.approx(1, abs=0.01)
        assert cost["us"] > 0
    assert told[2]["shares"][WRITES]["engine"] > 0
    assert told[2]["shares"][WRITES]["ordering"] > 0


@pytest.mark.slow
def test_a_write_that_is_not_in_the_table_makes_the_run_invalid(world: World) -> None:
    table = Table(world, "lossy", 500)
    table._closed(WRITES, 0.1)
    table._total += 1

    with pytest.raises(AssertionError, match="were changed"):
        table.check()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["basic", WRITES])
def test_an_answer_with_another_number_of_rows_makes_the_run_invalid(world: World, kind: str) -> None:
    table = Table(world, f"wrong_{kind}", 500)
    told = world.folder / f"wrong_{kind}.json"
    told.write_text(json.dumps({key: n + 1 for key, n in json.loads(told.read_text()).items()}))
    world.ask(do="learn", table=table.name, keys=str(told))

    with pytest.raises(RuntimeError, match=r"\w+ has \d+ rows"):
        table._closed(kind, 0.1)


class _Part:
    """Burns time itself, and has another part burn some."""

    def __init__(self, below: _Part | None = None) -> None:
        self.below = below

    def flush(self, now_s: float) -> None:
        _burn()
        if self.below is not None:
            self.below.flush(now_s)

    def on_message(self, peer: str, message: str, now_s: float) -> None:
        raise ValueError(message)


def _burn() -> None:
    end_s = time.thread_time() + 0.02
    while time.thread_time() < end_s:
        pass


def test_a_meter_counts_each_layer_without_those_below_it() -> None:
    below = _Part()
    above = _Part(below)
    meter = Meter()
    meter.watch("roles", above)
    meter.watch("ordering", below)

    for _ in range(3):
        above.flush(0.0)
    with pytest.raises(ValueError, match="bad"):
        above.on_message("p", "bad", 0.0)
    time.sleep(0.1)
    meter.scanning(_burn)()

    # Burning ends a little late, and a meter that counts twice, or waiting, shows twice as much.
    assert 60e6 <= meter.spent_ns["roles"] < 110e6
    assert 60e6 <= meter.spent_ns["ordering"] < 110e6
    assert 20e6 <= meter.spent_ns["engine"] < 38e6
    counters = meter.counters()
    assert counters["cpu_all_ms"] >= counters["cpu_roles_ms"] + counters["cpu_ordering_ms"]
