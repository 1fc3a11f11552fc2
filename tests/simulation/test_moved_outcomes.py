"""What writes did is told to whoever asked, though their range has moved and one side of the move has died.

What storage processes say to the client is cut off while the range moves, so that nobody has told it
what its writes did: those before the change began, those while it lasted, and those after.
"""

from __future__ import annotations

import pytest

from crescando.client.base import WriteOutcome
from crescando.roles.healing import HealingPolicy
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Inquire
from crescando.roles.reporting import Reporter
from crescando.routing.rubberband import Replace
from crescando.spec import ClusterSpec
from crescando.testing.elastic import ElasticCluster
from crescando.testing.workload import counts_of
from crescando.types import ProcessId
from tests.simulation.runs import small_engine
from tests.simulation.test_lost_outcomes import LONG_S, Story

pytestmark = pytest.mark.simulation

SPEC = ClusterSpec(
    routers=3,
    storages=1,
    supers=3,
    replication=1,
    storage=StorageLimits(copy_window_bytes=1),
    healing=HealingPolicy(action="wait"),
)
OLD, NEW = ProcessId("storage", "s1", 1), ProcessId("storage", "s2", 1)


class MovingStory(Story):
    """A store on one process, whose place another one takes while the client is deaf to both."""

    def __init__(self, seed: int) -> None:
        print("seed", seed)
        self.elastic = self.world = ElasticCluster(seed, engine=small_engine, spec=SPEC, n_standbys=1)
        self.script = self.world.add_client("c1")
        self.client = self.script.core
        self.me = self.client.me
        self.run(2.0)
        assert isinstance(self.ends(self.ask(self.add(7)), LONG_S), WriteOutcome)
        self.run(3.0)
        assert NEW in self.client.reachable, "the client knows who stands by"

    def move(self) -> list[int]:
        """Move the range with writes before, in the midst and after; gives these."""
        self.deafen([OLD, NEW])
        writes = [self.ask(self.add(1))]
        assert self.elastic.begin(self.script, self.elastic.newest(), Replace(OLD, NEW)) is not None
        for key in range(2, 6):
            self.client.request(self.script.next_token, self.add(key))
            writes.append(self.script.next_token)
            self.script.next_token += 1
            self.run(0.01)
        for _ in range(200):
            if self.elastic.newest().ring.processes == (NEW,):
                break
            self.run(0.1)
        assert self.elastic.newest().owned_arcs(OLD) == ()
        writes.append(self.ask(self.add(6)))
        self.run(1.0)
        assert all(self.outcome(token) is None for token in writes)
        return writes

    def executed_by_old(self, writes: list[int]) -> list[int]:
        """Give those of some writes that the old owner has executed."""
        numbers = self.client.numbers()
        ledger = self.world.storages()[OLD].reporter.ledger(self.me)
        return [token for token in writes if ledger.answer(Inquire(1, (numbers[token],))).written]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("victim", [OLD, NEW])
def test_outcomes_are_told_whichever_side_of_the_move_dies(seed: int, victim: ProcessId) -> None:
    story = MovingStory(seed)
    writes = story.move()

    # The new owner must be able to tell everything, the old one what came before the end of the change.
    known = writes if victim == OLD else story.executed_by_old(writes)
    assert writes[0] in known
    story.world.nodes[victim].crash()
    story.heal()

    for token in known:
        outcome = story.ends(token, LONG_S)
        assert isinstance(outcome, WriteOutcome), outcome
        assert counts_of(outcome) == (1, 0)


def test_without_the_outcomes_that_go_along_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Reporter, "keep_moved", lambda self, outcomes, now_s: None)
    story = MovingStory(0)
    writes = story.move()

    story.world.nodes[OLD].crash()
    story.heal()

    assert not isinstance(story.ends(writes[0], 2 * LONG_S), WriteOutcome)
