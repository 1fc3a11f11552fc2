"""A router's snapshot: whoever takes it over behaves as the original does from there on."""

from __future__ import annotations

import random
from typing import Any

import pytest

from crescando import wire
from crescando.consensus.membership import MembershipsState
from crescando.consensus.multipaxos.messages import Snapshot
from crescando.routing.base import Config
from crescando.routing.batch import submission
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.snapshot import RouterSnapshot, restore, take_snapshot
from crescando.routing.ecast.stability import Window, entry_of
from crescando.routing.rubberband import Rubberband
from crescando.types import MessageKind, ProcessId, position
from tests.ecast.parties import CONFIG, batch, of, write
from tests.ecast.test_stability import Learner
from tests.routing.worlds import CLIENT, random_config_message, random_data_message, random_ring


class Half:
    """The replicated and the local half of a router: what a snapshot holds."""

    def __init__(self, mseq: MSeq[Any], window: Window[Any]) -> None:
        self.mseq, self.window = mseq, window

    def learn(self, instance: int, value: Batch) -> object:
        learned = self.mseq.learn(instance, value)
        entry = entry_of(instance, learned.runs, learned.suspected)
        touched = self.window.add(entry)
        for process in sorted(learned.suspected):
            touched |= self.window.suspect(process)
        deliveries = {p: wire.encode_any(parts) for p, parts in entry.deliveries.items()}
        return deliveries, sorted(entry.awaited), sorted(touched), sorted(learned.gaps), sorted(learned.void)

    def confirm(self, process: ProcessId, upto: int) -> object:
        return sorted(self.window.confirm(process, upto))

    def facts(self, senders: list[ProcessId]) -> object:
        return (
            self.mseq.config.encode(),
            self.mseq.position,
            self.mseq.learned,
            self.mseq.departed,
            self.mseq.refused,
            {p: sorted(n) for p, n in self.window.lost.items()},
            [self.window.stable_of(sender, self.mseq.learned_of(sender)) for sender in senders],
            sorted(self.window.entries),
            self.window.n_bytes,
            {
                p: (box.trimmed, len(box.entries))
                for p, box in self.window.outboxes.items()
                if box.entries or box.trimmed >= 0
            },
        )


MEMBERSHIPS = MembershipsState(8, 1, (), (), ())


def through_the_wire(snapshot: RouterSnapshot) -> RouterSnapshot:
    carried: RouterSnapshot = wire.decode(wire.encode(Snapshot(3, snapshot, MEMBERSHIPS))).state
    return carried


class Script:
    """Random batches and confirmations, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.config = random_ring(self.rng)
        self.senders = sorted(self.config.members())
        self.counts = dict.fromkeys(self.senders, 0)
        self.instance = 0

    def step(self, *halves: Half) -> list[object]:
        """Let every half do the same thing; give what each answered."""
        if self.instance and self.rng.random() < 0.4:
            process = self.rng.choice([s for s in self.senders if s.role != "client"])
            upto = position(self.rng.randint(1, self.instance), self.rng.randrange(4))
            return [half.confirm(process, upto) for half in halves]
        self.instance += 1
        value = batch(*(self._submission() for _ in range(self.rng.randint(1, 3))))
        return [half.learn(self.instance, value) for half in halves]

    def _submission(self) -> Any:
        sender = self.rng.choice(self.senders)
        messages = []
        for _ in range(self.rng.randint(1, 4)):
            self.counts[sender] += 1
            number = self.counts[sender]
            message = random_data_message(self.rng, self.config, sender=sender, number=number)
            if self.rng.random() < 0.2:
                payload = random_config_message(self.rng, self.config, 1).payload
                message = type(message)(sender, number, MessageKind.CONFIG, -1, (), 0, payload)
            messages.append(message)
        return submission(messages, acknowledged=self.rng.randrange(number))


@pytest.mark.parametrize("seed", range(24))
def test_a_restored_router_goes_on_exactly_as_the_original(seed: int) -> None:
    script = Script(seed)
    original = Half(MSeq(script.config), Window())
    for _ in range(script.rng.randint(0, 25)):
        script.step(original)

    copy = Half(*restore(through_the_wire(take_snapshot(original.mseq, original.window)), Rubberband))

    assert copy.facts(script.senders) == original.facts(script.senders), seed
    for _ in range(25):
        mine, yours = script.step(original, copy)
        assert mine == yours, seed
        assert copy.facts(script.senders) == original.facts(script.senders), seed


def test_a_snapshot_of_a_restored_router_is_the_same() -> None:
    script = Script(99)
    original = Half(MSeq(script.config), Window())
    for _ in range(30):
        script.step(original)
    snapshot = take_snapshot(original.mseq, original.window)

    again = take_snapshot(*restore(snapshot, Rubberband))

    assert wire.encode_any(again) == wire.encode_any(snapshot)


def test_the_configs_in_use_are_carried_once_each() -> None:
    learner = Learner()
    for number in range(1, 6):
        learner.learn(batch(of(write(number))))

    snapshot = take_snapshot(learner.mseq, learner.window)

    assert snapshot.configs == (CONFIG.encode(),)
    assert {run.config for entry in snapshot.entries for run in entry.runs} == {0}


def test_a_new_router_s_snapshot_is_restored_as_one() -> None:
    mseq: MSeq[Config] = MSeq(CONFIG)

    restored, window = restore(take_snapshot(mseq, Window()), Rubberband)

    assert restored.config == CONFIG
    assert restored.position == mseq.position
    assert not window.entries
    assert restored.learned_of(CLIENT) == 0
