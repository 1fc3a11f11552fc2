"""The demo with a real store: it passes, and it fails as soon as one replica forgets one write."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from crescando.demo.progress import Silence
from crescando.demo.story import Plan, run
from crescando.engine.base import Cancelled, Results
from crescando.engine.operations import Entry
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Kind, Operation

PLAN = Plan(seed=11, operations=3_000, agents=4, rows=6_000)


@pytest.mark.slow
def test_real_store_passes() -> None:
    report = run(PLAN, Silence())

    assert report.failures() == (), report.verdict.told
    assert report.verdict.n_checked == PLAN.operations
    assert report.verdict.n_replicas == 9


@pytest.mark.slow
def test_one_write_forgotten_by_one_replica_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = ScanEngine.execute
    forgetful: list[ScanEngine] = []
    forgotten: list[Operation] = []

    def execute(
        self: ScanEngine, entries: Sequence[Entry], cancelled: Cancelled | None = None
    ) -> list[Results]:
        # The engine of one storage process leaves out one insert that comes in mid-run.
        if not forgetful:
            forgetful.append(self)
        if self is forgetful[0] and not forgotten:
            # Inserts come one by one, other operations in runs.
            inserts = [
                one
                for one in entries
                if isinstance(one, Operation)
                and one.shape.kind is Kind.INSERT
                and len(one.parameters[0]) == 4
            ]
            forgotten.extend(inserts[:1])
            return whole(
                self, [one for one in entries if not any(one is lost for lost in forgotten)], cancelled
            )
        return whole(self, entries, cancelled)

    monkeypatch.setattr(ScanEngine, "execute", execute)

    report = run(PLAN, Silence())

    assert forgotten
    assert report.failures() != ()
    assert report.verdict.answers_differ or report.verdict.replicas_differ
