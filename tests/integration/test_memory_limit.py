"""A replica with too little memory stops itself; the store goes on, with every acknowledged write."""

from __future__ import annotations

import crescando
from crescando import agg
from crescando.roles.memory import Memory
from tests.integration.stores import COUNTERS
from tests.integration.test_failures import replicas_agree, wait_for

MIB = 1 << 20
N_ROWS, N_WRITES = 4_096, 30


def test_the_smallest_of_three_replicas_stops_and_nothing_is_lost() -> None:
    with crescando.open(routers=1, storages=3, replication=3, supers=1, seed=1) as store:
        table = store.create_table(COUNTERS)
        small, *others = store.cluster.status().storages
        store.cluster._processes[small.process].core.memory = Memory(MIB // 2, 0.8)
        for other, n_bytes in zip(others, (64 * MIB, 256 * MIB), strict=True):
            store.cluster._processes[other.process].core.memory = Memory(n_bytes, 0.8)

        writes = []
        for first in range(0, N_WRITES * N_ROWS, N_ROWS):
            keys = list(range(first, first + N_ROWS))
            writes.append(table.insert({"k": keys, "v": keys}))
        assert [write.result().affected for write in writes] == [N_ROWS] * N_WRITES

        wait_for(lambda: not store.cluster.status().storages[0].is_alive, "the smallest stops")
        assert "memory is exhausted" in store.cluster.status().storages[0].reason
        assert [status.is_alive for status in store.cluster.status().storages] == [False, True, True]
        n = N_WRITES * N_ROWS
        assert table.aggregate(n=agg.count(), total=agg.sum("v")).rows() == [(n, n * (n - 1) // 2)]
        replicas_agree(store)
        found = store.cluster.statistics()
        assert [found[str(other.process)]["is_full"] for other in others] == [0, 0]
