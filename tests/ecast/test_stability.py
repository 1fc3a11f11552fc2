"""The send window: who is awaited, what is stable, and what is lost (RB13 Alg. 2; EC11 §4.6)."""

from __future__ import annotations

import pytest

from crescando.routing.base import Config
from crescando.routing.broadcast import Broadcast
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.stability import Entry, Window, entry_of
from crescando.routing.rubberband import CreateTable, Join, Reconfigure, Replace, Suspect
from crescando.routing.rubberband.planner import make_plan
from crescando.types import FULL_RING, KeyRange, ProcessId, position
from tests.ecast.parties import CONFIG, OTHER, S0, S1, S2, U0, batch, configure, of, point, read, write
from tests.routing.worlds import CLIENT, after, schema, storage

S3 = storage(3)

MIDDLE = position(1, 0)


class Learner:
    """An m-seq and its window."""

    def __init__(self, config: Config = CONFIG) -> None:
        self.mseq: MSeq[Config] = MSeq(config)
        self.window: Window[Config] = Window()
        self.instance = 0

    def learn(self, value: Batch) -> Entry[Config]:
        self.instance += 1
        learned = self.mseq.learn(self.instance, value)
        entry = entry_of(self.instance, learned.runs, learned.suspected)
        self.window.add(entry)
        for process in learned.suspected:
            self.window.suspect(process)
        return entry

    def stable(self, sender: ProcessId = CLIENT) -> int:
        return self.window.stable_of(sender, self.mseq.learned_of(sender))


def test_a_message_is_stable_once_every_destination_has_confirmed() -> None:
    learner = Learner()
    entry = learner.learn(batch(of(write(1, point(S0, S1)))))
    assert set(entry.deliveries) == {S0, S1}

    assert learner.window.confirm(S0, MIDDLE) == set()
    assert learner.stable() == 0
    assert learner.window.confirm(S1, MIDDLE) == {CLIENT}
    assert learner.stable() == 1
    assert not learner.window.entries
    assert learner.window.n_bytes == 0


def test_a_message_without_destinations_is_stable_at_once() -> None:
    learner = Learner()

    learner.learn(batch(of(write(1, table=9))))

    assert learner.stable() == 1


def test_an_instance_is_confirmed_as_a_whole() -> None:
    learner = Learner()
    learner.learn(batch(of(read(1, point(S0, S1)), read(2, point(S0, S1)), read(3, point(S0, S1)))))
    (server,) = learner.window.outboxes
    last = learner.window.entries[1].last[server]

    learner.window.confirm(server, last - 1)
    assert learner.stable() == 0

    learner.window.confirm(server, last)
    assert learner.stable() == 3


def test_confirmations_of_strangers_and_repeated_ones_do_nothing() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S0, S1)))))

    for process in (S2, ProcessId("storage", "s9"), S0, S0):
        assert learner.window.confirm(process, position(99, 0)) == set()

    assert learner.stable() == 0


def test_numbers_become_stable_in_the_senders_order() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S0, S1)))))
    learner.learn(batch(of(write(2, point(S1, S2)))))

    learner.window.confirm(S2, position(2, 0))
    learner.window.confirm(S1, position(2, 0))
    assert 2 not in learner.window.entries
    assert learner.stable() == 0

    learner.window.confirm(S0, position(2, 0))
    assert learner.stable() == 2


def test_a_slow_destination_delays_only_the_senders_that_address_it() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S0, S1)))))
    learner.learn(batch(of(write(1, point(S1, S2), sender=OTHER))))
    learner.learn(batch(of(write(2, point(S1, S2)))))

    for fast in (S1, S2):
        learner.window.confirm(fast, position(9, 0))

    assert learner.stable(OTHER) == 1
    assert learner.stable(CLIENT) == 0


def test_a_slow_destination_holds_back_no_sender_that_only_shares_its_instance() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S1, S2), sender=OTHER)), of(write(1, point(S0, S1)))))

    for fast in (S1, S2):
        learner.window.confirm(fast, position(9, 0))

    assert (learner.stable(OTHER), learner.stable(CLIENT)) == (1, 0)
    assert list(learner.window.entries) == [1], "the instance is kept for the slow one"
    learner.window.confirm(S0, position(9, 0))
    assert learner.stable(OTHER) == learner.stable(CLIENT) == 1


def test_a_suspected_process_is_awaited_no_more() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S0, S1)))))
    learner.window.confirm(S1, MIDDLE)

    learner.learn(batch(of(configure(1, Suspect(S0), sender=U0))))

    assert learner.stable() == 1
    assert learner.window.lost == {}


def test_a_suspicion_in_the_same_instance_keeps_the_destset_and_awaits_nobody() -> None:
    learner = Learner()

    entry = learner.learn(batch(of(write(1, point(S0, S1))), of(configure(1, Suspect(S0), sender=U0))))

    assert S0 in entry.deliveries
    assert S0 not in entry.awaited


def test_a_suspicion_changes_no_scope_of_what_was_ordered_before() -> None:
    learner = Learner()
    before = learner.learn(batch(of(write(1, point(S0, S1)))))
    scopes = {p: part.scope_of(0) for p, (part,) in before.deliveries.items()}

    learner.learn(batch(of(configure(1, Suspect(S0), sender=U0))))

    assert {p: part.scope_of(0) for p, (part,) in before.deliveries.items()} == scopes


def test_a_read_is_lost_with_the_process_that_was_to_serve_it() -> None:
    learner = Learner()
    entry = learner.learn(batch(of(read(1, point(S0, S1)))))
    (server,) = entry.deliveries

    learner.learn(batch(of(configure(1, Suspect(server), sender=U0))))

    assert learner.window.lost == {CLIENT: {1}}
    assert learner.stable() == 1


def test_a_read_over_all_is_lost_if_one_of_its_servers_is() -> None:
    learner = Learner()
    entry = learner.learn(batch(of(read(1))))
    victim, *others = sorted(entry.deliveries)
    for process in others:
        learner.window.confirm(process, position(9, 0))

    learner.window.suspect(victim)

    assert learner.window.lost == {CLIENT: {1}}


@pytest.mark.parametrize("survivor", [S0, S1])
def test_a_write_is_not_lost_while_any_owner_has_confirmed(survivor: ProcessId) -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S0, S1)))))
    victim = S1 if survivor == S0 else S0

    learner.window.confirm(survivor, MIDDLE)
    learner.window.suspect(victim)

    assert learner.window.lost == {}
    assert learner.stable() == 1


def test_a_write_that_no_owner_confirmed_is_lost() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1, point(S0, S1)), write(2, point(S1, S2)))))
    learner.window.confirm(S2, position(9, 0))

    learner.window.suspect(S0)
    assert learner.stable() == 0
    learner.window.suspect(S1)

    assert learner.window.lost == {CLIENT: {1}}
    assert learner.stable() == 2


def test_a_write_over_all_is_lost_if_both_owners_of_some_range_are() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1))))
    learner.window.confirm(S2, position(9, 0))

    learner.window.suspect(S0)
    learner.window.suspect(S1)

    assert learner.window.lost == {CLIENT: {1}}


def test_a_write_is_not_lost_that_a_process_has_confirmed_which_was_to_own_its_range() -> None:
    config = after(CONFIG, (S3, Join(S3)))
    plan = make_plan(config.ring, Replace(S1, S3))
    change = configure(1, Reconfigure(Replace(S1, S3), plan.copies, config.layout))
    config = config.apply(change)
    learner = Learner(config)
    entry = learner.learn(batch(of(write(1, point(S0, S1)), write(2, point(S0, S2)))))
    assert set(entry.deliveries) == {S0, S1, S2, S3}

    learner.window.confirm(S3, position(9, 0))
    for process in (S0, S1, S2):
        learner.window.suspect(process)

    # Of the other range it was to hold nothing.
    assert learner.window.lost == {CLIENT: {2}}


def test_without_placement_any_destination_of_a_write_holds_all_of_it() -> None:
    learner = Learner(Broadcast(frozenset({CLIENT, S0, S1, S2})))
    learner.learn(batch(of(write(1))))
    learner.window.confirm(S2, position(9, 0))

    learner.window.suspect(S0)
    learner.window.suspect(S1)

    assert learner.window.lost == {}
    assert learner.stable() == 1


def test_a_configuration_message_is_never_lost() -> None:
    learner = Learner()
    entry = learner.learn(batch(of(configure(1, CreateTable(schema("u"))))))

    for process in list(entry.awaited):
        learner.window.suspect(process)

    assert learner.stable() == 1
    assert learner.window.lost == {}


def test_lost_numbers_are_forgotten_once_told() -> None:
    learner = Learner()
    learner.learn(batch(of(write(1), write(2))))
    for process in (S0, S1, S2):
        learner.window.suspect(process)
    assert learner.window.lost == {CLIENT: {1, 2}}

    learner.window.forget_lost(CLIENT, 1)
    assert learner.window.lost == {CLIENT: {2}}
    learner.window.forget_lost(CLIENT, 2)
    assert learner.window.lost == {}


def test_what_a_leader_calls_stable_is_trimmed_with_its_verdicts() -> None:
    learner = Learner()
    for number in (1, 2, 3):
        learner.learn(batch(of(write(number))))

    touched = learner.window.stabilise(2, [(CLIENT, 2)])

    assert touched == {CLIENT}
    assert list(learner.window.entries) == [3]
    assert learner.stable() == 2
    assert learner.window.lost == {CLIENT: {2}}
    assert {box.trimmed for box in learner.window.outboxes.values()} == {position(2, 0)}
    assert {len(box.entries) for box in learner.window.outboxes.values()} == {1}


def test_a_follower_trims_behind_an_instance_that_stays_unstable() -> None:
    learner = Learner()
    for number in (1, 2, 3):
        learner.learn(batch(of(write(number))))

    learner.window.stabilise(3, [], frozenset({1}))

    assert list(learner.window.entries) == [1]
    assert learner.stable() == 0
    assert {len(box.entries) for box in learner.window.outboxes.values()} == {1}
    learner.window.stabilise(3, [])
    assert learner.stable() == 3
    assert learner.window.n_pending == 0


def test_each_destination_gets_its_part_of_a_batch_in_order() -> None:
    learner = Learner()

    entry = learner.learn(
        batch(
            of(write(1, point(S0, S1)), write(2, point(S1, S2)), write(3)),
            of(write(1, point(S0, S1), sender=OTHER)),
        )
    )

    got = {
        process: [
            (part.sender, n, at) for part in parts for n, at in zip(part.number, part.position, strict=True)
        ]
        for process, parts in entry.deliveries.items()
    }
    p = [position(1, index) for index in range(4)]
    assert got[S0] == [(CLIENT, 1, p[0]), (CLIENT, 3, p[2]), (OTHER, 1, p[3])]
    assert got[S1] == [(CLIENT, 1, p[0]), (CLIENT, 2, p[1]), (CLIENT, 3, p[2]), (OTHER, 1, p[3])]
    assert got[S2] == [(CLIENT, 2, p[1]), (CLIENT, 3, p[2])]
    assert entry.last == {S0: p[3], S1: p[3], S2: p[2]}


def test_the_scopes_of_a_delivered_write_partition_the_ring() -> None:
    learner = Learner()

    entry = learner.learn(batch(of(write(1))))

    scopes = [piece for parts in entry.deliveries.values() for piece in parts[0].scope_of(0)]
    reached = 0
    for low, high in sorted(scopes):
        assert low == reached
        reached = high + 1
    assert KeyRange(0, reached - 1) == FULL_RING
