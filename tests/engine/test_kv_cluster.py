"""A whole cluster runs on the dictionary engine, and cannot be told from one that scans."""

from __future__ import annotations

import pytest

from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
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
