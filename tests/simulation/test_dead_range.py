"""What was ordered for a range before its only owner fell silent ends, and so does all behind it."""

from __future__ import annotations

import pytest

from crescando.client.base import WriteOutcome
from crescando.errors import OperationError, ReadLostError, RefusedError
from crescando.routing.rubberband.messages import AddColumn
from crescando.schema import ColumnDef, DataType
from crescando.spec import ClusterSpec
from crescando.testing.workload import SCHEMA
from crescando.types import ProcessId
from tests.simulation.test_lost_outcomes import Story

pytestmark = pytest.mark.simulation

SEEDS = range(5)
SPEC = ClusterSpec(routers=3, storages=3, supers=3, replication=1)
END_S = 20.0


def owners(story: Story) -> dict[ProcessId, int]:
    """Give a key of each storage process."""
    found: dict[ProcessId, int] = {}
    for key in range(200):
        (arc,) = story.add(key).ranges
        for process, storage in story.world.storages().items():
            if any(low <= arc.low <= high for low, high in storage.config.owned_arcs(process)):
                found.setdefault(process, key)
    assert len(found) == SPEC.storages
    return found


@pytest.mark.parametrize("how", ["dies", "hangs"])
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_ordered_before_anybody_knew_is_unknown_and_the_session_goes_on(seed: int, how: str) -> None:
    story = Story(seed, SPEC)
    keys = owners(story)
    victim, other = sorted(keys)[:2]
    node = story.world.nodes[victim]
    node.crash() if how == "dies" else node.pause()

    write = story.ask(story.add(keys[victim]))
    read = story.ask(story.read())
    behind = story.ask(story.add(keys[other]))
    story.world.configure(story.script, AddColumn(SCHEMA.name, ColumnDef("late", DataType.INT64)))
    begin_s = story.world.time.now_s()

    unknown = story.ends(write, END_S)
    assert isinstance(unknown, OperationError)
    assert unknown.applied == "unknown"
    assert str(victim) in str(unknown)
    assert isinstance(story.ends(read, END_S), ReadLostError | RefusedError)
    assert story.ends(behind, END_S) is not None
    story.run(begin_s + END_S - story.world.time.now_s())
    assert not story.client._operations
    assert not story.client._configurations
    assert story.client.n_in_flight == 0
    # By now the owner is known to be unavailable.
    assert isinstance(story.ends(story.ask(story.add(keys[victim])), END_S), RefusedError)


@pytest.mark.parametrize("seed", SEEDS)
def test_what_is_only_held_up_for_a_while_has_its_true_outcome(seed: int) -> None:
    story = Story(seed, SPEC)
    keys = owners(story)
    victim = min(keys)
    story.world.nodes[victim].pause()
    write = story.ask(story.add(keys[victim]))
    story.run(6.0)
    assert story.outcome(write) is None

    story.world.nodes[victim].resume()

    assert isinstance(story.ends(write, END_S), WriteOutcome)
