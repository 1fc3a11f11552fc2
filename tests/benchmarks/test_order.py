"""The ordering benchmark measures what it says: small runs of each kind, and what makes a run invalid."""

from __future__ import annotations

import asyncio
import time

import pytest

from benchmarks.ordering.embedded import Embedded
from benchmarks.ordering.load import Sample, Stream, awaitables, blocks, open_loop
from benchmarks.ordering.verdicts import spread_of
from benchmarks.verdicts import outcome, within


async def _embedded(keeps: bool) -> tuple[list[Sample], Embedded]:
    async with Embedded(keeps=keeps) as store:
        samples = [
            await awaitables([store.sender], in_flight=8, payload_bytes=100, seconds=0.5),
            await blocks(store.sender, block=16, in_flight=4, payload_bytes=40, seconds=0.5),
            await open_loop(store.sender, rate_s=500, payload_bytes=20, seconds=0.5),
        ]
        await asyncio.sleep(0.02)
    return samples, store


def test_every_put_is_applied_by_three_destinations() -> None:
    samples, store = asyncio.run(_embedded(keeps=True))

    store.check()
    assert all(sample.n > 0 and 0 < sample.p50_ms <= sample.p99_ms <= sample.max_ms for sample in samples)
    applied = [destination.n_applied for destination in store.destinations]
    assert sum(applied) == 3 * store.sender.n_put
    assert len(set().union(*(destination.map for destination in store.destinations))) > 1


def test_a_put_that_was_not_applied_makes_the_run_invalid() -> None:
    _, store = asyncio.run(_embedded(keeps=False))
    store.destinations[0].n_applied -= 1

    with pytest.raises(RuntimeError, match="were applied"):
        store.check()


def test_a_run_for_which_the_machine_had_no_time_lasts_until_something_was_measured() -> None:
    async def starved() -> list[Sample]:
        async with Embedded(keeps=False) as store:
            samples = []
            for load in (
                awaitables([store.sender], in_flight=2, payload_bytes=100, seconds=0.01),
                blocks(store.sender, block=4, in_flight=2, payload_bytes=40, seconds=0.01),
                open_loop(store.sender, rate_s=5000, payload_bytes=20, seconds=0.01),
            ):
                asyncio.get_running_loop().call_later(0.001, time.sleep, 0.1)
                samples.append(await load)
        return samples

    assert all(sample.n > 0 and sample.rate_s > 0 for sample in asyncio.run(starved()))


def test_a_silence_counts_from_the_fault_to_the_next_acknowledgement() -> None:
    stream = Stream.__new__(Stream)
    stream.acks_s = [1.0, 1.1, 1.2, 3.0, 3.1]  # type: ignore[assignment]

    assert stream.longest_silence_s(1.15, 2.0) == pytest.approx(1.8)
    assert stream.longest_silence_s(2.9, 3.05) == pytest.approx(0.1)


def test_medians_and_verdicts() -> None:
    samples = [Sample(rate, 1.0, 2.0, 3.0, 10) for rate in (10.0, 30.0, 20.0)]

    assert spread_of(samples)["rate_s"] == {"median": 20.0, "min": 10.0, "max": 30.0, "trials": 3}
    assert within([50, 100, 81], 0.2)
    assert not within([50, 100, 79], 0.2)
    assert outcome(1.0, "t", True, more=2) == {"value": 1.0, "target": "t", "ok": True, "more": 2}


@pytest.mark.slow
def test_processes_over_tls_survive_the_loss_and_return_of_a_router() -> None:
    pytest.importorskip("cryptography")
    from benchmarks.ordering.failover import change_under_load
    from benchmarks.ordering.fleet import Fleet, Shape

    async def main() -> None:
        async with Fleet(Shape(storages=3)) as fleet:
            changed = await change_under_load(fleet, in_flight=16)
            assert changed["rate_after_s"] > 0
            stream = Stream(fleet.sender, in_flight=4)
            lead = fleet.lead
            assert lead is not None
            fleet.kill(lead)
            await asyncio.sleep(0.2)
            await stream.stop()
            await fleet.check()

    asyncio.run(main())
