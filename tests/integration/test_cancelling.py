"""Reads that are called off end at once, and nothing of them is left anywhere."""

from __future__ import annotations

import pytest

from crescando import errors
from tests.integration.stores import N_COUNTERS, standstill, with_counters
from tests.integration.test_failures import wait_for


@pytest.mark.parametrize("isolation", ["sequential", "snapshot", "basic"])
def test_a_cancelled_read_ends_and_the_session_goes_on(isolation: str) -> None:
    with with_counters(routers=3, storages=2, replication=2, supers=1) as store:
        table = store.table("counters")
        with standstill(store):
            handles = [table.select_nowait(["k"], isolation=isolation) for _ in range(200)]  # type: ignore[arg-type]
            write = table.update("k = 1", "v = v + 1")
            for handle in handles[::2]:
                handle.cancel()

        for place, handle in enumerate(handles):
            if place % 2:
                assert len(handle.result()) == N_COUNTERS
            else:
                with pytest.raises(errors.ReadCancelledError):
                    handle.result()
        assert write.result().affected == 1
        assert store.in_flight() == 0


def test_a_call_whose_deadline_passes_cancels_its_read() -> None:
    with with_counters() as store:
        table = store.table("counters")
        client = store.cluster.default.core
        with standstill(store):
            with pytest.raises(errors.DeadlineError):
                table.select(["k"], timeout_s=0.01)
            with pytest.raises(errors.DeadlineError):
                table.count(timeout_s=0.01)

        wait_for(lambda: store.in_flight() == 0, "the reads end")
        wait_for(lambda: client.n_in_flight == 0, "the client knows of none")
        assert table.count() == N_COUNTERS


def test_what_has_its_result_keeps_it() -> None:
    with with_counters() as store:
        handle = store.table("counters").count_nowait()
        assert handle.result() == N_COUNTERS
        handle.cancel()
        assert handle.result() == N_COUNTERS
