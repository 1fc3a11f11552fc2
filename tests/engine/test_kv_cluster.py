"""A whole cluster runs on the dictionary engine, and cannot be told from one that scans."""

from __future__ import annotations

import pytest

import crescando
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.errors import SpecError
from crescando.spec import ClusterSpec
from crescando.testing.simulation import run_seed

pytestmark = pytest.mark.simulation


def test_seeds_with_faults_are_correct_on_dictionaries() -> None:
    outcomes = 0
    for seed in range(6):
        verdict = run_seed(seed, engine=KvEngine)
        assert verdict.is_correct, (seed, verdict.violations[:3])
        outcomes += verdict.counted["outcomes"]
    assert outcomes > 300


def test_scan_and_dictionary_leave_the_same_trace() -> None:
    scan, kv = (run_seed(11, engine=engine) for engine in (ScanEngine, KvEngine))

    assert scan.is_correct
    assert kv.trace_digest == scan.trace_digest


def test_a_store_may_keep_its_rows_in_dictionaries() -> None:
    spec = ClusterSpec(storages=2, replication=2, engine="kv")

    with crescando.open(spec=spec) as store:
        rows = [{"k": k, "v": "ab"[k % 2]} for k in range(10)]
        table = store.create_table("t", like=rows, primary_key="k")
        table.insert(rows).result()

        assert table.count(crescando.col("v") == "a") == 5
        assert all(held["compactions"] == 0 and held["rows"] == 10 for held in held_by_storages(store))


def held_by_storages(store: crescando.Store) -> list[dict[str, int]]:
    found = store.cluster.statistics()
    return [counters for name, counters in found.items() if name.startswith("storage/")]


def test_an_unknown_engine_is_refused_by_its_name() -> None:
    with pytest.raises(SpecError, match="kv, scan"):
        ClusterSpec(engine="memcached")
