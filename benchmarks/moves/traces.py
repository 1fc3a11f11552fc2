"""A store that grows, shrinks, loses processes and heals under load (RB13 Figs. 11 to 15).

Rules of the file: the load goes on through everything; each event is noted with
its time. What a figure shows is what the streams saw, in intervals of `WIDTH_S`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from benchmarks.moves.load import Stream, Streams, mixed_writes, point_reads, point_writes, single_writes
from benchmarks.moves.model import Model, differences
from benchmarks.moves.plan import LEVELS, Plan
from benchmarks.moves.scaling import opened
from benchmarks.report import progress
from benchmarks.verdicts import Outcome, outcome
from crescando.roles.super import SuperTiming

WIDTH_S = 0.2
MOVE_S_MAX = 300.0

STALL_S_MAX = 1.0
"""The longest that a write may take while rows move."""

SHARE_MIN = 0.5
"""What must be left of the throughput while rows move."""


@dataclass(slots=True)
class Trace:
    """What happened when, in seconds from the begin of the load.

    Attributes
    ----------
    events : list of (float, str)
    spans : list of (float, float)
        Begin and end of each change of the keyspace.
    """

    begin_s: float = field(default_factory=time.perf_counter)
    events: list[tuple[float, str]] = field(default_factory=list)
    spans: list[tuple[float, float]] = field(default_factory=list)

    def mark(self, what: str) -> float:
        """Note an event; gives its time."""
        now_s = time.perf_counter() - self.begin_s
        self.events.append((round(now_s, 3), what))
        return now_s

    @contextmanager
    def change(self, what: str) -> Iterator[None]:
        """Note a change that lasts as long as the block."""
        progress(f"  {what}")
        begin_s = self.mark(what)
        yield
        self.spans.append((begin_s, self.mark(f"{what}: done")))


def grow_and_shrink(store: Any, trace: Trace, to: int, back_to: int, calm_s: float) -> None:
    """Expand step by step to a number of storage processes, then contract to another."""
    time.sleep(calm_s)
    while len(store.cluster.config().ring.processes) < to:
        store.cluster.start_storage()
        with trace.change("expand"):
            store.cluster.expand().result(MOVE_S_MAX)
        time.sleep(calm_s)
    while len(store.cluster.config().ring.processes) > back_to:
        leaver = store.cluster.config().ring.processes[-1]
        with trace.change("contract"):
            store.cluster.contract(leaver).result(MOVE_S_MAX)
        time.sleep(calm_s)


def elastic_throughput(plan: Plan, table: pa.Table) -> Outcome:
    """R11: throughput while 1 storage process becomes `most` and 1 again, once for each kind of load."""
    shown: dict[str, Any] = {}
    failures: list[str] = []
    for what in ("writes", *LEVELS):
        progress(f"R11 {what}")
        with opened(1, 1, table) as store:
            model = Model(table)
            stream = (
                point_writes(store, model, 256) if what == "writes" else point_reads(store, model, what, 256)
            )
            with Streams(stream) as streams:
                trace = Trace()
                grow_and_shrink(store, trace, plan.most, 1, plan.calm_s / 3)
                end_s = time.perf_counter()
            failures += streams.failures
            shown[what] = {
                "rates_s": stream.rates(trace.begin_s, end_s, WIDTH_S),
                "events": trace.events,
                "longest_s": round(stream.longest_s(trace.begin_s, end_s), 3),
            }
    return outcome(
        len(failures),
        "no operation fails while 1 process becomes many and many become 1 (RB13 §7.6.1)",
        not failures,
        width_s=WIDTH_S,
        traces=shown,
        failures=failures[:5],
    )


def elastic_latency(plan: Plan, table: pa.Table) -> Outcome:
    """R12, R13: how long single writes and snapshot reads take meanwhile, beside steady writes."""
    progress("R12 and R13")
    with opened(1, 1, table) as store:
        model = Model(table)
        background = point_writes(store, model, 64)
        write = single_writes(store, model)
        read = point_reads(store, model, "snapshot", 1, seed=5)
        with Streams(background, write, read) as streams:
            trace = Trace()
            grow_and_shrink(store, trace, plan.most, 1, plan.calm_s / 3)
    told = {
        name: [
            (round(done_s - trace.begin_s, 4), round(1e3 * took_s, 3))
            for done_s, took_s in zip(stream.done_s, stream.took_s, strict=True)
            if done_s >= trace.begin_s
        ]
        for name, stream in (("writes", write), ("snapshot reads", read))
    }
    longest_s = max(took_ms for each in told.values() for _, took_ms in each) / 1e3
    return outcome(
        longest_s,
        "no single write or snapshot read fails or takes more than 1 s (RB13 §7.6.2: up to 160 s)",
        not streams.failures and longest_s <= STALL_S_MAX,
        points_s_ms=told,
        events=trace.events,
        failures=streams.failures[:5],
    )


def promise(plan: Plan, table: pa.Table, f: int) -> Outcome:
    """A1, A2: under a full mixed load 4 storage processes become 5 and 4 again, or at f = 1 too."""
    progress(f"4 -> 5 -> 4 storage processes, f = {f}, {len(table):,} rows")
    with opened(4, f, table) as store:
        model = Model(table)
        writes = mixed_writes(store, model, 256)
        single = single_writes(store, model)
        reads = [point_reads(store, model, level, 256, seed) for seed, level in enumerate(LEVELS, 10)]
        with Streams(writes, single, *reads) as streams:
            time.sleep(plan.calm_s)
            trace = Trace()
            grow_and_shrink(store, trace, 5, 4, plan.calm_s)
            end_s = time.perf_counter()
        wrong, n_replicas = differences(model, store)
    moves = [(trace.begin_s + begin_s, trace.begin_s + done_s) for begin_s, done_s in trace.spans]
    calm = (trace.begin_s, moves[0][0])
    before_s = sum(stream.rate_s(*calm) for stream in streams.streams)
    shares = [
        sum(stream.rate_s(begin_s, done_s) for stream in streams.streams) / before_s
        for begin_s, done_s in moves
    ]
    stall_s = max(
        stream.longest_s(begin_s, done_s) for stream in (writes, single) for begin_s, done_s in moves
    )
    ok = not streams.failures and not wrong and stall_s <= STALL_S_MAX and min(shares) >= SHARE_MIN
    return outcome(
        min(shares),
        f"reads never fail; no write takes more than {STALL_S_MAX:g} s; at least {SHARE_MIN:.0%} of the "
        "throughput; equal to the serial oracle on every replica",
        ok,
        failures=streams.failures[:5],
        longest_write_s=round(stall_s, 3),
        moves_s=[round(done_s - begin_s, 2) for begin_s, done_s in moves],
        share_during_moves=[round(share, 3) for share in shares],
        rate_before_s=round(before_s),
        rates_s={stream.name: round(stream.rate_s(*calm)) for stream in streams.streams},
        writes=model.n_writes,
        rows_wrong=wrong,
        replicas_compared=n_replicas,
        trace=_drawn(streams.streams, trace, end_s),
    )


def two_of_six(plan: Plan, table: pa.Table) -> Outcome:
    """A3, R14, R15: one of six processes is killed, then two at once; standbys take their places."""
    progress(f"six storage processes, one and then two killed, {len(table):,} rows")
    with opened(6, 3, table) as store:
        model = Model(table)
        reads = [point_reads(store, model, level, 128, seed) for seed, level in enumerate(LEVELS, 20)]
        latency = point_reads(store, model, "snapshot", 1, seed=30)
        writes = point_writes(store, model, 128)
        with Streams(writes, latency, *reads) as streams:
            trace = Trace()
            time.sleep(plan.calm_s)
            for victims in (1, 2):
                for _ in range(victims):
                    store.cluster.start_storage()
                members = store.cluster.config().ring.processes
                trace.mark(f"{victims} killed")
                for victim in members[2 : 2 + victims]:
                    store.cluster.kill(victim)
                _until(lambda gone=set(members[2 : 2 + victims]): _is_whole(store, gone), MOVE_S_MAX)
                trace.mark("full replication again")
                time.sleep(plan.calm_s)
            end_s = time.perf_counter()
        wrong, n_replicas = differences(model, store)
    allowed_s = SuperTiming().suspicion_s + 1.0
    silence_s = max(
        max(stream.longest_failing_s(), stream.longest_s(trace.begin_s, end_s))
        for stream in (*reads, latency)
    )
    return outcome(
        silence_s,
        f"no read fails or waits for more than {allowed_s:g} s; full replication comes back (RB13 §7.7)",
        silence_s <= allowed_s and not wrong,
        failures=streams.failures[:5],
        rows_wrong=wrong,
        replicas_compared=n_replicas,
        events=trace.events,
        trace=_drawn(streams.streams, trace, end_s),
        points_s_ms={
            "snapshot reads": [
                (round(done_s - trace.begin_s, 4), round(1e3 * took_s, 3))
                for done_s, took_s in zip(latency.done_s, latency.took_s, strict=True)
            ]
        },
    )


def _is_whole(store: Any, gone: set[Any]) -> bool:
    """Whether nobody who is gone holds a position, all others live and no change is under way."""
    config = store.cluster.config()
    return not (gone & set(config.ring.processes)) and not config.failed and not config.changes


def _until(condition: Callable[[], bool], timeout_s: float) -> None:
    end_s = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > end_s:
            raise RuntimeError(f"not within {timeout_s:g} s")
        time.sleep(0.02)


def _drawn(streams: tuple[Stream, ...], trace: Trace, end_s: float) -> dict[str, Any]:
    return {
        "width_s": WIDTH_S,
        "events": trace.events,
        "rates_s": {stream.name: stream.rates(trace.begin_s, end_s, WIDTH_S) for stream in streams},
    }
