"""One of three replicas reaches its limit under load: it stops itself, and no answer shows it."""

from __future__ import annotations

import pytest

from crescando.client.base import ReadOutcome, WriteOutcome
from crescando.engine.match import BLOCK_ROWS
from crescando.roles.memory import UNLIMITED, Memory
from crescando.roles.super import Super
from crescando.spec import ClusterSpec
from crescando.types import FULL_RING, ProcessId
from tests.simulation.test_lost_outcomes import Story

pytestmark = pytest.mark.simulation

SPEC = ClusterSpec(routers=3, storages=3, supers=3, replication=3)
MIB = 1 << 20
N_ROWS, N_WRITES = 2048, 24


def limit(story: Story, process: ProcessId, n_bytes: int) -> None:
    story.world.storages()[process].memory = Memory(n_bytes, 0.5)
    story.world.nodes[process].engine._block_rows = BLOCK_ROWS


@pytest.mark.parametrize("seed", range(3))
def test_the_smallest_stops_itself_and_no_acknowledged_write_is_lost(seed: int) -> None:
    story = Story(seed, SPEC)
    small, *others = sorted(story.world.storages())
    for process, n_bytes in zip((small, *others), (MIB // 8, 64 * MIB, 256 * MIB), strict=True):
        limit(story, process, n_bytes)
    written: dict[int, object] = {}
    watched_full: set[ProcessId] = set()

    for first in range(0, N_WRITES * N_ROWS, N_ROWS):
        keys = list(range(first, first + N_ROWS))
        written[first] = story.ask(story.world.workload._put("upsert", keys, keys, 1))
        supers = [node.core for node in story.world.nodes.values() if isinstance(node.core, Super)]
        watched_full |= {process for core in supers for process in core.full}

    assert not story.world.nodes[small].is_alive
    assert "memory is exhausted" in story.world.nodes[small].stopped
    assert watched_full == {small}, "it said that it was getting full before it stopped"
    assert sorted(story.world.storages()) == others
    for first, token in written.items():
        outcome = story.ends(token, 60.0)  # type: ignore[arg-type]
        assert isinstance(outcome, WriteOutcome), (first, outcome)
        assert sum(count.affected for count in outcome.counts) == N_ROWS

    read = story.ends(story.ask(story.read()), 60.0)
    assert isinstance(read, ReadOutcome)
    found = sorted(key for piece in read.pieces for key in piece.columns[0].values.tolist())
    assert found == list(range(N_WRITES * N_ROWS))
    digests = {story.world.nodes[process].engine.digest(0, FULL_RING) for process in others}
    assert len(digests) == 1


def test_a_limit_that_is_not_reached_changes_nothing() -> None:
    memory = Memory(100, 0.5)
    assert memory.look(50) == ""
    assert not memory.is_full
    assert memory.look(100) == ""
    assert memory.is_full
    assert "exhausted" in memory.look(101)
    assert Memory(UNLIMITED, 0.5).look(1 << 60) == ""
