"""Routers that die, hang and are replaced under load (M7, M8, and the trace of RB13 Fig. 16).

Rules of the file: faults are real (SIGKILL, SIGSTOP) and times are those that a
client sees: the longest silence between acknowledgements from the fault on.
"""

from __future__ import annotations

import asyncio
import importlib
import time
from pathlib import Path
from typing import Any

import crescando
from benchmarks.ordering.fleet import Fleet, Shape
from benchmarks.ordering.load import Stream
from benchmarks.verdicts import Outcome, outcome, spread
from crescando import agg
from crescando.types import ProcessId

SETTLE_S = 0.6
"""Load before and after a fault, so that its effect stands alone."""

INTERVAL_S = 0.1
"""Width of one point of the trace."""


def _lead(fleet: Fleet) -> ProcessId:
    lead = fleet.lead
    if lead is None:
        raise RuntimeError("nobody leads")
    return lead


async def _attempts(fleet: Fleet) -> int:
    reports = await fleet.reports()
    return max(int(told["attempt"]) for process, told in reports.items() if process.role == "router")


async def kills(n_kills: int) -> Outcome:
    """M7: kill the lead router again and again, each time replacing it; then let one hang."""
    silences_ms: list[float] = []
    async with Fleet(Shape()) as fleet:
        for _ in range(n_kills):
            stream = Stream(fleet.sender, in_flight=64)
            await asyncio.sleep(SETTLE_S)
            lead = _lead(fleet)
            killed_s = fleet.kill(lead)
            await asyncio.sleep(2 * SETTLE_S)
            await stream.stop()
            silences_ms.append(1e3 * stream.longest_silence_s(killed_s, killed_s + SETTLE_S))
            await fleet.replace(lead)
        await fleet.check()
        hang_s = await _hang(fleet)
        await fleet.check()
    told = spread(silences_ms)
    embedded = await asyncio.to_thread(embedded_kills, n_kills)
    ok = all(known["median"] <= 50 and known["max"] <= 500 for known in (told, embedded)) and hang_s <= 1.4
    target = "first ack after kill <= 50 ms median, <= 500 ms max; after a hang <= 1.4 s"
    return outcome(
        told["median"],
        target,
        ok,
        kill_ms=told,
        kills_ms=[round(s, 1) for s in silences_ms],
        embedded_ms=embedded,
        hang_s=hang_s,
    )


def embedded_kills(n_kills: int) -> dict[str, Any]:
    """Kill the lead router of an embedded store again and again; gives the time to the next result, in ms.

    The whole store takes part: client, order, storage processes with real scans.
    """
    gaps_ms: list[float] = []
    with crescando.open(routers=3, storages=2, replication=2) as store:
        table = store.create_table("counters", like=[{"k": 1, "v": 0}], primary_key="k")
        table.insert([{"k": 1, "v": 0}]).result()
        add = table.prepare_update("k = ?", "v = v + 1")
        for _ in range(n_kills):
            add((1,)).result()
            lead = store.cluster.status().lead_router
            assert lead is not None
            killed_s = time.perf_counter()
            store.cluster.kill(lead)
            add((1,)).result()
            gaps_ms.append(1e3 * (time.perf_counter() - killed_s))
            store.cluster.restart_router(lead)
        (row,) = table.aggregate(total=agg.sum("v")).rows()
        if row != (2 * n_kills,):
            raise RuntimeError(f"{2 * n_kills} increments were acknowledged, but the sum is {row}")
    return {**spread(gaps_ms), "kills_ms": [round(gap, 1) for gap in gaps_ms]}


async def _hang(fleet: Fleet) -> float:
    stream = Stream(fleet.sender, in_flight=64)
    await asyncio.sleep(SETTLE_S)
    lead = _lead(fleet)
    paused_s = fleet.pause(lead)
    await asyncio.sleep(4 * fleet.shape.election_s)
    fleet.resume(lead)
    await asyncio.sleep(2 * SETTLE_S)
    await stream.stop()
    return round(stream.longest_silence_s(paused_s, paused_s + 3 * fleet.shape.election_s), 3)


async def false_elections(seconds: float) -> Outcome:
    """M8: elections while every process is as busy as it can be, and none fails."""
    async with Fleet(Shape()) as fleet:
        before = await _attempts(fleet)
        stream = Stream(fleet.sender, in_flight=1024)
        begin_s = time.perf_counter()
        await asyncio.sleep(seconds)
        n_acks, silence_s = len(stream.acks_s), stream.longest_silence_s(begin_s, time.perf_counter())
        await stream.stop()
        elections = await _attempts(fleet) - before
        await fleet.check()
    return outcome(
        elections,
        "0 elections",
        elections == 0,
        seconds=seconds,
        puts=n_acks,
        rate_s=round(n_acks / seconds),
        longest_silence_ms=round(1e3 * silence_s, 1),
    )


async def change_under_load(fleet: Fleet, *, in_flight: int) -> dict[str, Any]:
    """Replace a follower while the fleet is loaded; gives the rate around it and the longest silence."""
    stream = Stream(fleet.sender, in_flight=in_flight)
    begin_s = time.perf_counter()
    await asyncio.sleep(SETTLE_S)
    routers = [process for process in await fleet.reports() if process.role == "router"]
    victim = next(router for router in routers if router != fleet.lead)
    fleet.kill(victim)
    await fleet.replace(victim)
    changed_s = time.perf_counter()
    await asyncio.sleep(SETTLE_S)
    end_s = time.perf_counter()
    await stream.stop()
    silence_s = stream.longest_silence_s(begin_s + SETTLE_S / 2, end_s)
    rates = stream.rates_s(begin_s, end_s, SETTLE_S)
    return {
        "replaced": str(victim),
        "seconds": round(changed_s - begin_s - SETTLE_S, 3),
        "rate_before_s": round(rates[0]),
        "rate_during_s": round(min(rates[1:-1], default=rates[-1])),
        "rate_after_s": round(rates[-1]),
        "longest_silence_ms": round(1e3 * silence_s, 1),
    }


async def trace(pause_s: float) -> dict[str, Any]:
    """Kill the leader, replace it, kill a follower, replace it (RB13 Fig. 16)."""
    events: list[tuple[float, str]] = []
    async with Fleet(Shape()) as fleet:
        stream = Stream(fleet.sender, in_flight=256)
        begin_s = time.perf_counter()

        def note(what: str) -> None:
            events.append((round(time.perf_counter() - begin_s, 3), what))

        await asyncio.sleep(pause_s)
        for what in ("leader", "follower"):
            lead = _lead(fleet)
            routers = [process for process in await fleet.reports() if process.role == "router"]
            victim = lead if what == "leader" else next(r for r in routers if r != lead)
            note(f"kill {what}")
            fleet.kill(victim)
            await asyncio.sleep(pause_s)
            note("start new router")
            await fleet.replace(victim)
            note("it is a member")
            await asyncio.sleep(pause_s)
        end_s = time.perf_counter()
        await stream.stop()
        await fleet.check()
    return {
        "interval_s": INTERVAL_S,
        "rates_s": [round(rate) for rate in stream.rates_s(begin_s, end_s, INTERVAL_S)],
        "events": events,
    }


def draw(told: dict[str, Any], path: Path) -> str:
    """Draw a trace; gives why it could not be, or an empty text."""
    try:
        matplotlib = importlib.import_module("matplotlib")
        matplotlib.use("Agg")
        pyplot = importlib.import_module("matplotlib.pyplot")
    except ImportError:
        return "matplotlib is not installed (extra: bench)"
    figure, axes = pyplot.subplots(figsize=(9, 3.5), layout="constrained")
    times = [told["interval_s"] * index for index in range(len(told["rates_s"]))]
    axes.step(times, [rate / 1e3 for rate in told["rates_s"]], where="post", linewidth=1)
    for at, what in told["events"]:
        axes.axvline(at, color="tab:red", linewidth=0.8, linestyle=":")
        axes.annotate(
            what, (at, 1.0), xycoords=("data", "axes fraction"), rotation=90, va="top", ha="right", fontsize=8
        )
    axes.set_xlabel("seconds")
    axes.set_ylabel("thousand stable puts per second")
    axes.set_ylim(bottom=0)
    axes.set_title("Three routers, 256 puts in flight, throughput per 100 ms")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
    return ""
