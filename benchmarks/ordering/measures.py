"""M1 to M6 and M9: rates and latencies of the ordering path, and beside its peers.

Rules of the file: a measure is a coroutine that starts what it needs, checks
that what was acknowledged was applied, and gives one outcome. Destinations
count what they are delivered ("null"), but beside peers they keep it in a
dict, as the peers do ("kv").
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

from benchmarks.ordering.embedded import Embedded
from benchmarks.ordering.failover import change_under_load
from benchmarks.ordering.fleet import Fleet, Shape
from benchmarks.ordering.load import Sample, awaitables, blocks, open_loop
from benchmarks.ordering.verdicts import spread_of
from benchmarks.peers.base import PEERS, PeerError
from benchmarks.verdicts import Outcome, outcome, within

PAYLOAD_BYTES = 100


@dataclass(frozen=True, slots=True)
class Plan:
    """How long and how often.

    Attributes
    ----------
    seconds : float
        Measured time of one run, beside its warm-up.
    trials : int
    kills : int
        Lead routers killed for M7.
    saturation_s : float
        Time under load for M8.
    is_full : bool
        Whether the longer sweeps are run too, and peers' leaders killed.
    """

    seconds: float = 3.0
    trials: int = 5
    kills: int = 20
    saturation_s: float = 600.0
    is_full: bool = True


QUICK = Plan(seconds=1.0, trials=3, kills=5, saturation_s=60.0, is_full=False)

Run = Callable[[], Awaitable[Sample]]


async def _trials(plan: Plan, run: Run) -> dict[str, Any]:
    return spread_of([await run() for _ in range(plan.trials)])


def _closed(fleet: Fleet | Embedded, plan: Plan, in_flight: int) -> Run:
    senders = fleet.senders if isinstance(fleet, Fleet) else [fleet.sender]
    return lambda: awaitables(senders, in_flight=in_flight, payload_bytes=PAYLOAD_BYTES, seconds=plan.seconds)


def _blocks(fleet: Fleet | Embedded, plan: Plan) -> Run:
    return lambda: blocks(
        fleet.sender, block=256, in_flight=8, payload_bytes=PAYLOAD_BYTES, seconds=plan.seconds
    )


def _open(fleet: Fleet, plan: Plan, rate_s: float, payload_bytes: int = PAYLOAD_BYTES) -> Run:
    return lambda: open_loop(fleet.sender, rate_s=rate_s, payload_bytes=payload_bytes, seconds=plan.seconds)


async def secure(plan: Plan) -> dict[str, Outcome]:
    """M1, M3, and the TLS halves of M2, M4 and M5, all on one fleet with mutual TLS."""
    async with Fleet(Shape()) as fleet:
        m1 = await _trials(plan, _closed(fleet, plan, 1024))
        sweep = {n: (await _closed(fleet, plan, n)()).rate_s for n in (1, 4, 16, 64, 256, 1024)}
        m2 = await _trials(plan, _closed(fleet, plan, 64))
        m3 = await _trials(plan, _blocks(fleet, plan))
        m4 = await _trials(plan, _closed(fleet, plan, 1))
        m5 = await _trials(plan, _open(fleet, plan, 20_000))
        payloads = {n: await _open(fleet, plan, 10_000, n)() for n in (16, 100, 256, 1024, 4096)}
        change = await change_under_load(fleet, in_flight=1024)
        await fleet.check()
    rates = [sample.rate_s for size, sample in payloads.items() if size <= 1024]
    is_flat = within(list(sweep.values()), 0.2)
    rate, p99 = m1["rate_s"]["median"], m1["p99_ms"]["median"]
    return {
        "M1": outcome(
            rate,
            ">= 120000/s, p99 <= 20 ms, flat within 20 % up to 1,024 clients",
            rate >= 120_000 and p99 <= 20 and is_flat,
            **m1,
            clients_rate_s={str(n): round(r) for n, r in sweep.items()},
            is_flat=is_flat,
            membership_change=change,
        ),
        "M2": {"tls": m2},
        "M3": outcome(m3["rate_s"]["median"], ">= 350000/s", m3["rate_s"]["median"] >= 350_000, **m3),
        "M4": {"tls": m4},
        "M5": {
            "four": m5,
            "payload_at_10k": {
                str(n): {"rate_s": round(s.rate_s), "p50_ms": round(s.p50_ms, 2)} for n, s in payloads.items()
            },
            "payload_is_flat": min(rates) >= 0.8 * 10_000,
        },
    }


async def m2(plan: Plan, tls: dict[str, Any]) -> Outcome:
    """64 in flight, TLS and TCP; and on TCP, many clients with sessions of their own."""
    async with Fleet(Shape(is_secure=False)) as fleet:
        tcp = await _trials(plan, _closed(fleet, plan, 64))
        await fleet.check()
    n_clients = 256 if plan.is_full else 64
    async with Fleet(Shape(is_secure=False), clients=n_clients) as fleet:
        apart = await _closed(fleet, plan, n_clients)()
        await fleet.check()
    value, other = tls["rate_s"]["median"], tcp["rate_s"]["median"]
    return outcome(
        value,
        ">= 35000/s TLS, 60000/s TCP",
        value >= 35_000 and other >= 60_000,
        tls=tls,
        tcp=tcp,
        own_sessions={"clients": n_clients, "rate_s": round(apart.rate_s), "p50_ms": round(apart.p50_ms, 2)},
    )


async def m5_sixteen(plan: Plan) -> dict[str, Any]:
    """M5 with 16 destinations."""
    async with Fleet(Shape(storages=16)) as fleet:
        told = await _trials(plan, _open(fleet, plan, 20_000))
        await fleet.check()
    return told


def m5(secure_part: dict[str, Any], sixteen: dict[str, Any]) -> Outcome:
    """Put the parts of M5 together."""
    four = secure_part["four"]
    p99, p99_sixteen = four["p99_ms"]["median"], sixteen["p99_ms"]["median"]
    return outcome(
        p99,
        "p99 <= 12 ms (4 destinations), 20 ms (16), at 20000/s; flat for payloads up to 1 KiB at 10000/s",
        p99 <= 12 and p99_sixteen <= 20 and secure_part["payload_is_flat"],
        **secure_part,
        sixteen=sixteen,
    )


async def embedded(plan: Plan, tls_one: dict[str, Any]) -> dict[str, Outcome]:
    """M9, and M4 with its half in process."""
    async with Embedded() as store:
        one = await _trials(plan, _closed(store, plan, 1))
        many = await _trials(plan, _closed(store, plan, 1024))
        bulk = await _trials(plan, _blocks(store, plan))
        await asyncio.sleep(0.05)
        store.check()
    p50, p50_tls = one["p50_ms"]["median"], tls_one["p50_ms"]["median"]
    rate, rate_bulk = many["rate_s"]["median"], bulk["rate_s"]["median"]
    return {
        "M4": outcome(
            p50_tls,
            "p50 <= 1.0 ms TLS, 0.12 ms in process",
            p50_tls <= 1.0 and p50 <= 0.12,
            tls=tls_one,
            in_process=one,
        ),
        "M9": outcome(
            rate,
            ">= 250000/s awaitables, 1500000/s in blocks of 256",
            rate >= 250_000 and rate_bulk >= 1_500_000,
            awaitables=many,
            blocks=bulk,
        ),
    }


RATIOS = {"pysyncobj": 3.0, "etcd": 10.0, "zookeeper": 5.0, "nats": 1.6, "redis": 2.0}
"""What the ordering path over TLS must reach of each peer's plain TCP rate."""


async def m6(plan: Plan) -> Outcome:
    """The same puts, kept in a dict, beside each peer that is installed here.

    Ours is measured anew right before each peer, so that both meet the same
    machine; while a peer runs, our processes are idle.
    """
    told: dict[str, Any] = {}
    met: list[bool | None] = []
    async with Fleet(Shape(keeps=True)) as fleet:
        ours = {n: await _trials(plan, _closed(fleet, plan, n)) for n in (1024, 64, 1)}
        for peer in PEERS:
            why = peer.available()
            if why:
                told[peer.name] = {"skipped": why}
                # What is not there is neither met nor missed.
                met.append(None if any(name in peer.name.lower() for name in RATIOS) else True)
                continue
            rate = (await _closed(fleet, plan, 1024)()).rate_s
            try:
                theirs = await asyncio.to_thread(_against, plan, peer)
            except PeerError as error:
                told[peer.name] = {"failed": str(error)[:500]}
                met.append(False)
                continue
            best = max(theirs["1024"]["rate_s"], theirs["64"]["rate_s"])
            wanted = next((ratio for name, ratio in RATIOS.items() if name in peer.name.lower()), 1.0)
            ratio = round(rate / best, 2)
            told[peer.name] = {**theirs, "ours_rate_s": round(rate), "ratio": ratio, "target": wanted}
            met.append(ratio >= wanted)
        await fleet.check()
    # The smallest share of its target tells how near the nearest peer is.
    shares = [entry["ratio"] / entry["target"] for entry in told.values() if "ratio" in entry]
    return outcome(
        min(shares, default=0.0),
        "ratio to each peer's best rate, as a share of "
        + ", ".join(f"{n} {r:g}x" for n, r in RATIOS.items()),
        False if False in met else None if None in met else bool(met),
        ours={str(n): entry for n, entry in ours.items()},
        peers=told,
    )


def _against(plan: Plan, peer: Any) -> dict[str, Any]:
    peer.start()
    try:
        told: dict[str, Any] = {}
        for in_flight in (1024, 64, 1):
            result = peer.run(in_flight=in_flight, payload_bytes=PAYLOAD_BYTES, seconds=plan.seconds)
            told[str(in_flight)] = {
                "rate_s": round(result.rate_s),
                "p50_ms": round(result.p50_ms, 2),
                "p99_ms": round(result.p99_ms, 2),
                "applied": result.checksum,
            }
            told["version"], told["note"] = result.version, result.note
        if plan.is_full:
            told["kill_leader_gap_ms"] = peer.kill_leader_gap_ms()
        return told
    finally:
        peer.stop()
