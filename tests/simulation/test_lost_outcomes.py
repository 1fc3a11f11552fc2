"""Every write ends, though whoever knew its outcome is gone: whole clusters under virtual time.

What storage processes say to the client is cut off, so that a write becomes
durable and nobody has told its count. Then the count's keepers go, one way or
another.
"""

from __future__ import annotations

import random
from collections.abc import Iterable

import pytest

from crescando.client.base import Request, WriteOutcome
from crescando.errors import CountUnknownError, ReadLostError, RefusedError
from crescando.roles.client import Client
from crescando.roles.limits import StorageLimits
from crescando.spec import ClusterSpec
from crescando.testing.cluster import ClientScript, Outcome, SimulatedCluster
from crescando.testing.workload import counts_of
from crescando.types import ProcessId
from tests.simulation.runs import small_engine

pytestmark = pytest.mark.simulation

SEEDS = range(5)
SPEC = ClusterSpec(routers=3, storages=3, supers=3, replication=2)
LONG_S = 60.0


class Story:
    """A cluster, one client that is a member, and what is cut between them."""

    def __init__(self, seed: int, spec: ClusterSpec = SPEC) -> None:
        print("seed", seed)
        self.world = SimulatedCluster(seed, engine=small_engine, spec=spec)
        self.script: ClientScript = self.world.add_client("c1")
        self.client: Client = self.script.core
        self.me = self.client.me
        self.world.time.run_until(1.0)
        assert self.outcome(self.ask(self.add(7))) is not None, "the client is a member"

    def add(self, key: int) -> Request:
        """Give a write that inserts or replaces one row."""
        return self.world.workload._put("upsert", [key], [1], 1)

    def read(self) -> Request:
        return self.world.workload._where("read_all", ())

    def ask(self, request: Request) -> int:
        """Request something and give it a moment; gives its token."""
        token, self.script.next_token = self.script.next_token, self.script.next_token + 1
        self.client.request(token, request)
        self.world.nodes[self.me].pump.need_turn()
        self.run(0.5)
        return token

    def run(self, seconds: float) -> None:
        time = self.world.time
        time.run_until(time.now_s() + seconds, events_max=200_000)

    def outcome(self, token: int) -> Outcome | None:
        return self.world.outcomes.get((self.me, token))

    def is_stable(self, token: int) -> bool:
        return (self.me, token) in self.world.stable

    def ends(self, token: int, within_s: float) -> Outcome:
        """Give what an operation ends with."""
        end_s = self.world.time.now_s() + within_s
        while self.outcome(token) is None:
            assert self.world.time.now_s() < end_s, f"waits for ever: {self.client._operations}"
            self.run(0.1)
        found = self.outcome(token)
        assert found is not None
        return found

    def processes(self, role: str) -> list[ProcessId]:
        return self.world.alive(role)

    def deafen(self, speakers: Iterable[ProcessId]) -> None:
        """Let nothing that these say reach the client."""
        self.world.network.faults.cut |= {(speaker, self.me) for speaker in speakers}

    def cut_off(self) -> None:
        """Let nothing reach the client, nor anything of it anybody."""
        others = [process for process in self.world.nodes if process != self.me]
        self.deafen(others)
        self.world.network.faults.cut |= {(self.me, other) for other in others}

    def heal(self) -> None:
        """End the cuts; what was on its way is gone with its sessions."""
        self.world.network.heal(resets=True)

    def wait_until_expelled(self) -> None:
        for _ in range(200):
            if self.me in self.world.suspected():
                return
            self.run(0.1)
        raise AssertionError("the client was never voted out")


@pytest.mark.parametrize("seed", SEEDS)
def test_a_client_that_was_expelled_while_it_was_cut_off_gets_the_true_answer(seed: int) -> None:
    story = Story(seed)
    story.deafen(story.processes("storage"))
    told = story.ask(story.add(1))
    story.deafen(story.processes("router"))
    untold = story.ask(story.add(2))
    read = story.ask(story.read())
    assert story.is_stable(told)
    assert not story.is_stable(untold)
    story.cut_off()
    never_sent = story.ask(story.add(3))
    story.wait_until_expelled()
    story.run(20.0)

    story.heal()

    for token in (told, untold):
        outcome = story.ends(token, LONG_S)
        assert isinstance(outcome, WriteOutcome)
        assert counts_of(outcome) == (1, 0)
    assert isinstance(story.ends(read, LONG_S), ReadLostError)
    assert isinstance(story.ends(never_sent, LONG_S), RefusedError)
    assert story.client.n_in_flight == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_what_the_storages_do_not_keep_any_more_of_an_expelled_client_is_durable(seed: int) -> None:
    spec = ClusterSpec(routers=3, storages=3, supers=3, replication=2, storage=StorageLimits(gone_s=1.0))
    story = Story(seed, spec)
    story.deafen(story.processes("storage"))
    told = story.ask(story.add(1))
    assert story.is_stable(told)
    story.cut_off()
    story.wait_until_expelled()
    story.run(3.0)

    story.heal()

    assert isinstance(story.ends(told, LONG_S), CountUnknownError)
    assert story.client.n_in_flight == 0


@pytest.mark.parametrize("seed", SEEDS)
def test_a_write_whose_only_owner_died_before_it_told_is_durable(seed: int) -> None:
    story = Story(seed, ClusterSpec(routers=3, storages=3, supers=3, replication=1))
    story.deafen(story.processes("storage"))
    keys = random.Random(seed).sample(range(100, 200), 3)
    tokens = [story.ask(story.add(key)) for key in keys]
    assert all(map(story.is_stable, tokens))
    (arc,) = story.add(keys[0]).ranges
    (owner,) = (p for p, s in story.world.storages().items() if _owns(s.config.owned_arcs(p), arc.low))

    story.world.crash(owner, "crash_storage")
    story.heal()

    outcomes = [story.ends(token, LONG_S) for token in tokens]
    assert isinstance(outcomes[0], CountUnknownError)
    assert outcomes[0].applied == "yes"
    assert all(isinstance(outcome, WriteOutcome | CountUnknownError) for outcome in outcomes)
    # The range is gone, and says so.
    assert isinstance(story.ends(story.ask(story.add(keys[0])), LONG_S), RefusedError)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_write_whose_record_was_evicted_is_durable(seed: int) -> None:
    spec = ClusterSpec(routers=3, storages=3, supers=3, replication=2, storage=StorageLimits(records=1))
    story = Story(seed, spec)
    story.deafen(story.processes("storage"))
    first, last = (story.ask(story.add(1)) for _ in range(2))
    assert story.is_stable(first)
    assert story.is_stable(last)

    story.heal()

    # Every storage process answers, so that nothing need be waited for.
    assert isinstance(story.ends(first, 2.0), CountUnknownError)
    outcome = story.ends(last, 2.0)
    assert isinstance(outcome, WriteOutcome)
    assert counts_of(outcome) == (1, 0)


def _owns(arcs: Iterable[tuple[int, int]], at: int) -> bool:
    return any(low <= at <= high for low, high in arcs)
