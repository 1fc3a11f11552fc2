"""One session's thousands of reads do not hold up another's only one."""

from __future__ import annotations

import crescando
from crescando.roles.limits import StorageLimits
from crescando.spec import ClusterSpec
from tests.integration.stores import COUNTERS, standstill

N_FLOOD = 4_000
CYCLE = 64


def test_a_read_is_answered_long_before_the_thousands_that_were_asked_first() -> None:
    spec = ClusterSpec(storage=StorageLimits(cycle_operations=CYCLE))
    with crescando.open(spec=spec, seed=1) as store:
        table = store.create_table(COUNTERS)
        table.insert({"k": [1, 2, 3], "v": [0, 0, 0]}).result()
        read = table.prepare_select(["k"], "k = ?")
        probe = store.session("probe").table("counters").prepare_select(["k"], "v = ?")
        with standstill(store):
            flood = read.many([(n % 3 + 1,) for n in range(N_FLOOD)])
            late = probe((0,))

            n_answered: list[int] = []
            late._flight.pending.outcome.add_done_callback(
                lambda _: n_answered.append(sum(handle.done() for handle in flood))
            )

        assert len(late.result()) == 3
        assert all(len(handle.result()) == 1 for handle in flood)

        # Behind all that were ordered before it, it would have come after a thousand.
        assert n_answered[0] <= 8 * CYCLE
        (counters,) = (each for name, each in store.cluster.statistics().items() if "storage" in name)
        assert counters["operations_per_scan_max"] <= CYCLE
