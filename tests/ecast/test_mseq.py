"""The m-seq: what every router computes from the learned batches alone (INV-5, INV-6)."""

from __future__ import annotations

import random

import pytest

from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Message
from crescando.routing.broadcast import Broadcast
from crescando.routing.ecast import mseq as module
from crescando.routing.ecast.mseq import Departure, Learned, MSeq
from crescando.routing.rubberband import CreateTable, DropTable, Join, Leave, Rubberband, Suspect
from crescando.types import NO_POSITION, MessageKind, ProcessId, position
from tests.ecast.parties import CONFIG, OTHER, S0, U0, batch, configure, of, read, write
from tests.routing.worlds import (
    CLIENT,
    OUTSIDER,
    random_config_message,
    random_data_message,
    random_ring,
    schema,
    super_,
)


def mseq(config: Config = CONFIG) -> MSeq[Config]:
    return MSeq(config)


def numbers(learned: Learned[Config]) -> list[tuple[ProcessId, int]]:
    """Give what was appended, in order."""
    return [
        (run.submission.sender, run.submission.first + index)
        for run in learned.runs
        for index in range(run.start, run.stop)
    ]


def routes(learned: Learned[Config]) -> list[object]:
    """Give where each appended message went."""
    targets = [run.routes.routes[group] for run in learned.runs for group in run.routes.group]
    return [target.reason if isinstance(target, Refusal) else dict(target) for target in targets]


def test_the_next_number_is_appended() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(write(1), write(2)), of(write(1, sender=OTHER))))

    assert numbers(learned) == [(CLIENT, 1), (CLIENT, 2), (OTHER, 1)]
    assert q.learned == {CLIENT: 2, OTHER: 1}
    assert [run.base for run in learned.runs] == [0, 2]
    assert q.position == position(1, 2)


def test_a_number_at_or_below_the_watermark_is_a_duplicate_and_leaves_a_hole() -> None:
    q = mseq()
    q.learn(1, batch(of(write(1), write(2))))

    learned = q.learn(2, batch(of(write(1), write(2))))

    assert numbers(learned) == []
    assert not learned.gaps
    assert q.learned_of(CLIENT) == 2
    assert q.position == position(2, 1)


def test_the_new_part_of_an_overlapping_submission_keeps_its_own_positions() -> None:
    q = mseq()
    q.learn(1, batch(of(write(1), write(2))))

    learned = q.learn(2, batch(of(write(2), write(3), write(4))))

    assert numbers(learned) == [(CLIENT, 3), (CLIENT, 4)]
    (run,) = learned.runs
    assert (run.base, run.start, run.stop) == (0, 1, 3)


def test_a_number_beyond_the_next_is_skipped_until_the_sender_fills_the_gap() -> None:
    q = mseq()
    q.learn(1, batch(of(write(1))))

    learned = q.learn(2, batch(of(write(3), write(4))))

    assert numbers(learned) == []
    assert learned.gaps == {CLIENT}
    assert q.learned_of(CLIENT) == 1
    assert numbers(q.learn(3, batch(of(write(2), write(3), write(4))))) == [(CLIENT, n) for n in (2, 3, 4)]


def test_a_gap_of_one_sender_does_not_touch_another() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(write(7)), of(write(1, sender=OTHER))))

    assert numbers(learned) == [(OTHER, 1)]
    assert learned.runs[0].base == 1


def test_runs_are_cut_at_configuration_messages_and_each_has_its_own_prefix() -> None:
    q = mseq()

    learned = q.learn(
        1,
        batch(of(write(1), read(2), configure(3, CreateTable(schema("u"))), write(4, table=1), write(5))),
    )

    assert [(run.start, run.stop) for run in learned.runs] == [(0, 2), (2, 3), (3, 5)]
    before, at, after = (run.config for run in learned.runs)
    assert before is CONFIG
    assert at is CONFIG
    assert after is q.config
    assert [table.name for table in after.tables] == ["t", "u"]
    assert not q.refused


def test_a_change_by_one_sender_holds_for_what_follows_of_another() -> None:
    q = mseq()
    drop = configure(1, DropTable("t"), sender=OTHER)

    q.learn(1, batch(of(write(1)), of(drop), of(write(2))))

    assert list(q.refused[CLIENT]) == [2]


def test_refused_messages_are_appended_with_their_reason() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(write(1, table=9), write(2), configure(3, DropTable("nothing")))))

    assert numbers(learned) == [(CLIENT, 1), (CLIENT, 2), (CLIENT, 3)]
    assert sorted(q.refused[CLIENT]) == [1, 3]
    assert "9" in q.refused[CLIENT][1]
    assert "nothing" in q.refused[CLIENT][3]
    assert q.config is CONFIG


def test_refusals_are_forgotten_once_acknowledged() -> None:
    q = mseq()
    q.learn(1, batch(of(write(1, table=9), write(2, table=9))))

    q.learn(2, batch(of(write(3), acknowledged=1)))
    assert list(q.refused[CLIENT]) == [2]

    q.learn(3, batch(of(write(4), acknowledged=2)))
    assert q.refused == {}


def test_what_a_stranger_sends_is_void() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(write(1, sender=OUTSIDER), write(2, sender=OUTSIDER)), of(write(1))))

    assert learned.void == {OUTSIDER}
    assert numbers(learned) == [(CLIENT, 1)]
    assert learned.runs[0].base == 2
    assert OUTSIDER not in q.learned


def test_what_follows_a_join_that_fell_into_a_hole_is_a_gap() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(write(2, sender=OUTSIDER), write(3, sender=OUTSIDER))))

    assert learned.gaps == {OUTSIDER}
    assert learned.runs == []


def test_a_join_makes_what_follows_it_count() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(configure(1, Join(OUTSIDER), sender=OUTSIDER), write(2, sender=OUTSIDER))))

    assert numbers(learned) == [(OUTSIDER, 1), (OUTSIDER, 2)]
    assert q.config.is_member(OUTSIDER)


@pytest.mark.parametrize("body", [Join(CLIENT), Leave(OUTSIDER), CreateTable(schema("u"))])
def test_only_a_join_for_itself_is_taken_from_a_stranger(body: Join | Leave | CreateTable) -> None:
    q = mseq()

    learned = q.learn(1, batch(of(configure(1, body, sender=OUTSIDER), write(2, sender=OUTSIDER))))

    assert learned.void == {OUTSIDER}
    assert learned.runs == []
    assert q.config is CONFIG
    assert q.learned == {}


def test_a_suspected_sender_departs_with_its_last_number() -> None:
    q = mseq()
    q.learn(1, batch(of(write(1, sender=OTHER), write(2, sender=OTHER))))

    learned = q.learn(
        2, batch(of(configure(1, Suspect(OTHER), sender=U0)), of(write(3, sender=OTHER)), of(write(1)))
    )

    assert learned.suspected == {OTHER}
    assert learned.void == {OTHER}
    assert q.departed == {OTHER: Departure(position(2, 0), 2)}
    assert q.learned_of(OTHER) == 2
    assert numbers(learned) == [(U0, 1), (CLIENT, 1)]


def test_a_departed_process_does_not_come_back_under_its_name() -> None:
    q = mseq()
    q.learn(1, batch(of(configure(1, Leave(OTHER), sender=OTHER))))

    learned = q.learn(2, batch(of(configure(1, Join(OTHER), sender=OTHER))))

    assert learned.void == {OTHER}
    assert not q.config.is_member(OTHER)


def test_what_follows_an_own_leave_is_void() -> None:
    q = mseq()

    learned = q.learn(1, batch(of(write(1), configure(2, Leave(CLIENT)), write(3))))

    assert numbers(learned) == [(CLIENT, 1), (CLIENT, 2)]
    assert learned.void == {CLIENT}
    assert q.learned_of(CLIENT) == 2


def test_refusals_of_a_departed_sender_stay_known() -> None:
    q = mseq()

    q.learn(1, batch(of(write(1, table=9), configure(2, Leave(CLIENT)))))

    assert list(q.refused[CLIENT]) == [1]


def test_only_so_many_departures_are_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "DEPARTED_MAX", 2)
    q = mseq()
    strangers = [ProcessId("client", f"x{n}") for n in range(4)]

    for instance, me in enumerate(strangers, 1):
        parts = (
            configure(1, Join(me), sender=me),
            write(2, sender=me, table=9),
            configure(3, Leave(me), sender=me),
        )
        q.learn(instance, batch(of(*parts)))

    assert list(q.departed) == strangers[2:]
    assert list(q.refused) == strangers[2:]


class Faulty(Broadcast):
    """A plug-in with a bug in one of its methods."""

    def apply(self, message: object) -> Faulty:
        raise ZeroDivisionError("a bug")


def test_a_plug_in_that_fails_refuses_and_the_order_goes_on() -> None:
    q = mseq(Faulty(frozenset({CLIENT, S0, U0})))

    learned = q.learn(1, batch(of(write(1), configure(2, Leave(CLIENT)), write(3))))

    assert numbers(learned) == [(CLIENT, 1), (CLIENT, 2), (CLIENT, 3)]
    assert "Faulty" in q.refused[CLIENT][2]
    assert "a bug" in q.refused[CLIENT][2]
    assert not learned.suspected


@pytest.mark.parametrize("seed", range(8))
def test_how_messages_are_cut_into_batches_does_not_matter(seed: int) -> None:
    rng = random.Random(seed)
    config = random_ring(rng)
    senders = sorted(config.members())
    counts = dict.fromkeys(senders, 0)
    messages = []
    for _ in range(60):
        sender = rng.choice(senders)
        counts[sender] += 1
        message = random_data_message(rng, config, sender=sender, number=counts[sender])
        if rng.random() < 0.3:
            payload = random_config_message(rng, config, 1).payload
            message = Message(sender, counts[sender], MessageKind.CONFIG, -1, (), 0, payload)
        messages.append(message)

    together, apart = mseq(config), mseq(config)
    in_one = together.learn(1, batch(*map(of, messages)))
    in_many = [apart.learn(instance, batch(of(message))) for instance, message in enumerate(messages, 1)]

    assert numbers(in_one) == [number for learned in in_many for number in numbers(learned)], seed
    assert together.learned == apart.learned
    assert together.refused == apart.refused
    assert together.config.encode() == apart.config.encode()
    assert list(together.departed) == list(apart.departed)
    assert routes(in_one) == [route for learned in in_many for route in routes(learned)]


def test_a_new_m_seq_stands_below_every_position() -> None:
    q = mseq()

    assert q.position == NO_POSITION
    assert q.learned_of(CLIENT) == 0
    assert isinstance(q.config, Rubberband)
    assert super_(0) in q.config.members()
