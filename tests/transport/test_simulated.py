"""The simulated network: faults end sessions, hold messages or delay them, and nothing else."""

from __future__ import annotations

import random
from typing import Any

from crescando.transport.simulated import SimulatedNetwork, VirtualTime
from tests.transport.witness import A, B, C, Witness, World


class Net(World):
    def __init__(self, seed: int = 3, **arguments: Any) -> None:
        self.time = VirtualTime()
        self.network = SimulatedNetwork(self.time, random.Random(seed), **arguments)
        super().__init__(self.network, self.time.run_until, self.time.now_s)

    def pair(self) -> tuple[Witness, Witness]:
        a, b = Witness(self, A), Witness(self, B)
        self.network.connect(A, B)
        self.settle()
        return a, b


def test_virtual_time_calls_in_order_of_time_and_then_of_scheduling() -> None:
    time, calls = VirtualTime(), []
    time.call_at(2.0, lambda: calls.append(("b", time.now_s())))
    time.call_at(1.0, lambda: calls.append(("a", time.now_s())))
    time.call_at(2.0, lambda: calls.append(("c", time.now_s())))
    time.call_at(3.0, lambda: calls.append(("never", 0.0))).cancel()

    time.run_until(2.5)
    time.call_at(1.0, lambda: calls.append(("late", time.now_s())))
    time.run_until(9.0)

    assert calls == [("a", 1.0), ("b", 2.0), ("c", 2.0), ("late", 2.5)]
    assert time.now_s() == 9.0


def test_a_run_that_goes_round_in_circles_is_broken_off() -> None:
    time = VirtualTime()

    def again() -> None:
        time.call_soon(again)

    again()
    time.run_until(1.0, events_max=50)

    assert time.n_events == 50


def test_messages_to_a_cut_off_process_are_held_and_arrive_in_order_after_healing() -> None:
    net = Net()
    a, b = net.pair()
    a.channel.send(1)
    net.settle()
    net.network.faults.cut.add((A, B))
    for n in (2, 3):
        a.channel.send(n)
    b.channel.send("other way")
    net.settle()
    assert (b.messages(), a.messages()) == ([1], ["other way"])

    net.network.heal(resets=False)
    net.settle()

    assert b.messages() == [1, 2, 3]


def test_healing_by_reset_ends_sessions_that_held_something_and_no_other() -> None:
    net = Net()
    a, b = net.pair()
    net.network.faults.cut.add((A, B))
    net.network.heal(resets=True)
    net.settle()
    assert a.told("closed") == []

    net.network.faults.cut.add((A, B))
    a.channel.send(1)
    net.network.heal(resets=True)
    net.settle()

    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    assert b.messages() == []


def test_no_session_can_be_had_across_a_cut() -> None:
    net = Net()
    a = Witness(net, A)
    Witness(net, B)
    net.network.faults.cut.add((B, A))

    net.network.connect(A, B)
    net.settle()

    assert a.told("refused") == [B]


def test_a_slow_link_delays_and_keeps_the_order() -> None:
    net = Net(delay_s=(0.01, 0.02))
    a, b = net.pair()
    net.network.faults.slow[A, B] = 1000.0
    a.channel.send(1)
    net.network.faults.slow.clear()
    a.channel.send(2)

    net.time.run_until(net.time.now_s() + 5.0)
    assert b.messages() == []
    net.time.run_until(net.time.now_s() + 20.0)

    assert b.messages() == [1, 2]


def test_a_reset_may_lose_what_is_on_its_way_and_tells_both_ends() -> None:
    net = Net()
    a, b = net.pair()
    a.channel.send(1)

    assert net.network.reset(A, B)
    assert not net.network.reset(A, B)
    net.settle()

    assert b.messages() == []
    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    assert net.network.sessions() == []


def test_with_a_codec_no_two_processes_share_an_object() -> None:
    net = Net(
        codec=(
            lambda message: repr(message).encode(),
            lambda sender, receiver, denial: lambda data: bytes(data).decode(),
        )
    )
    a, b = net.pair()

    a.channel.send(["x"])
    net.settle()

    assert b.messages() == ["['x']"]
    assert net.network.n_messages == 1


def test_the_same_seed_gives_the_same_delays() -> None:
    arrivals = []
    for seed in (5, 5, 6):
        net, times = Net(seed), []
        Witness(net, A, reply=lambda *_, net=net, times=times: times.append(net.time.now_s()))
        b = Witness(net, B)
        net.network.connect(B, A)
        net.settle()
        for n in range(5):
            b.channel.send(n)
            net.settle()
        arrivals.append(times)

    assert arrivals[0] == arrivals[1]
    assert arrivals[0] != arrivals[2]


def test_a_stalled_process_reads_when_it_wakes_what_still_stands() -> None:
    net = Net()
    a, b = net.pair()
    net.network.stall(B)
    for n in range(3):
        a.channel.send(n)
    net.settle()
    assert b.messages() == []
    assert net.network.unread_bytes > 0

    net.network.wake(B)
    net.settle()

    assert b.messages() == [0, 1, 2]
    assert net.network.unread_bytes == 0


def test_a_session_with_one_that_reads_nothing_is_closed_at_its_bound() -> None:
    net = Net(queue_bytes=3_000)
    a, b = net.pair()
    net.network.stall(B)

    for _ in range(99):
        a.channel.send(b"x" * 1_000)
        net.settle()
        assert net.network.unread_bytes < 5_000

    assert a.told("closed") == [B]
    net.network.wake(B)
    net.settle()
    assert b.told("closed") == [A]


# Sessions that die unnoticed.


def test_one_end_of_a_half_open_session_goes_on_sending_into_the_void() -> None:
    net = Net()
    a, b = net.pair()
    a.channel.send("before")
    net.settle()

    notice = net.network.half_open(A, B, both=False)
    assert notice is not None
    a.channel.send("into the void")
    b.channel.send("as well")
    net.settle()

    assert (a.told("closed"), b.told("closed")) == ([], [A])
    assert (b.messages(), a.messages()) == (["before"], [])
    assert net.network.unread_bytes == 0, "what vanishes takes no room"

    notice()
    net.settle()
    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    notice()
    net.settle()
    assert (a.told("closed"), b.told("closed")) == ([B], [A])


def test_both_ends_of_a_half_open_session_take_it_for_open_until_they_are_told() -> None:
    net = Net()
    a, b = net.pair()

    notice = net.network.half_open(B, A, both=True)
    assert notice is not None
    a.channel.send(1)
    b.channel.send(2)
    net.settle()
    assert (a.told("closed"), b.told("closed"), a.messages(), b.messages()) == ([], [], [], [])

    notice()
    net.settle()
    assert (a.told("closed"), b.told("closed")) == ([B], [A])


def test_what_was_on_its_way_arrives_where_the_end_of_the_session_is_not_noticed() -> None:
    net = Net()
    a, b = net.pair()
    a.channel.send("to b")
    b.channel.send("to a")
    net.network.half_open(A, B, both=False)
    net.settle()

    assert (a.messages(), b.messages()) == (["to a"], [])


def test_the_end_that_noticed_gets_a_new_session_and_the_old_one_is_over_everywhere() -> None:
    net = Net()
    a, b = net.pair()
    old = a.channel
    notice = net.network.half_open(A, B, both=False)
    assert notice is not None
    net.settle()

    net.network.connect(B, A)
    net.settle()
    assert (a.told("opened"), b.told("opened")) == ([B, B], [A, A])
    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    notice()
    old.close()
    old.send("on the old one")
    a.channel.send("on the new one")
    net.settle()

    assert b.messages() == ["on the new one"]
    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    assert net.network.sessions() == [(A, B)]


def test_only_a_session_that_stands_can_be_half_open() -> None:
    net = Net()
    net.pair()

    assert net.network.half_open(A, C, both=True) is None
    assert net.network.half_open(A, B, both=False) is not None
    assert net.network.half_open(A, B, both=False) is None
    assert net.network.half_open(B, A, both=True) is None


# Messages that arrive twice.


def test_what_arrived_last_arrives_again_at_the_begin_of_the_next_session_alone() -> None:
    net = Net(keep_arrived=3)
    a, b = net.pair()
    for n in range(6):
        a.channel.send(n)
    b.channel.send("not asked about")
    net.settle()

    assert net.network.repeat(B, A, lambda message: message != 4)
    net.settle()
    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    assert b.messages() == [0, 1, 2, 3, 4, 5]

    net.network.connect(B, A)
    net.settle()
    a.channel.send(6)
    net.settle()
    assert b.messages() == [0, 1, 2, 3, 4, 5, 3, 5, 6]
    assert [entry[0] for entry in b.log[-4:]] == ["opened", "received", "received", "received"]
    assert a.messages() == ["not asked about"]

    net.network.reset(A, B)
    net.settle()
    net.network.connect(A, B)
    net.settle()
    assert b.messages() == [0, 1, 2, 3, 4, 5, 3, 5, 6], "twice is not three times"


def test_nothing_arrives_again_that_has_not_arrived() -> None:
    net = Net(keep_arrived=3)
    a, b = net.pair()
    assert not net.network.repeat(B, A, lambda _: True)
    a.channel.send(1)
    assert not net.network.repeat(B, A, lambda _: True), "it is on its way"
    net.settle()
    assert not net.network.repeat(B, A, lambda message: message == 2)
    assert not net.network.repeat(B, C, lambda _: True)
    assert not net.network.repeat(A, B, lambda _: True)
    net.settle()

    assert (a.told("closed"), b.told("closed"), b.messages()) == ([], [], [1])


def test_nothing_arrives_again_unless_it_is_kept() -> None:
    net = Net()
    a, _ = net.pair()
    a.channel.send(1)
    net.settle()

    assert not net.network.repeat(B, A, lambda _: True)


# Healing in part.


def test_healing_some_pairs_leaves_everything_else_as_it_is() -> None:
    net = Net()
    a, b = net.pair()
    c = Witness(net, C)
    net.network.connect(A, C)
    net.settle()
    to_b, to_c = a.channels
    net.network.faults.cut |= {(A, B), (A, C)}
    net.network.faults.slow[C, A] = 2.0
    to_b.send(1)
    to_c.send(2)

    net.network.heal(resets=False, cut={(A, B), (B, A)})
    net.settle()
    assert (b.messages(), c.messages()) == ([1], [])
    assert net.network.faults.cut == {(A, C)}
    assert net.network.faults.slow == {(C, A): 2.0}

    net.network.heal(resets=False)
    net.settle()
    assert c.messages() == [2]
    assert not net.network.faults.cut
    assert not net.network.faults.slow
    assert net.network.unread_bytes == 0


def test_healing_some_pairs_by_reset_ends_only_theirs() -> None:
    net = Net()
    a, b = net.pair()
    c = Witness(net, C)
    net.network.connect(A, C)
    net.settle()
    net.network.faults.cut |= {(A, B), (A, C)}
    for channel in a.channels:
        channel.send("held")

    net.network.heal(resets=True, cut={(A, B)})
    net.settle()
    assert (a.told("closed"), b.told("closed"), c.told("closed")) == ([B], [A], [])

    net.network.heal(resets=False)
    net.settle()
    assert (b.messages(), c.messages()) == ([], ["held"])


def test_what_was_held_of_a_session_that_ended_meanwhile_does_not_arrive_in_the_next() -> None:
    net = Net()
    a, b = net.pair()
    net.network.faults.cut.add((A, B))
    a.channel.send("old")
    net.network.reset(A, B)
    net.network.heal(resets=False)
    net.network.connect(A, B)
    net.settle()
    a.channel.send("new")
    net.settle()

    assert b.messages() == ["new"]


# Processes that read nothing for a while.


def test_one_that_wakes_reads_what_came_meanwhile_before_what_comes_now() -> None:
    net = Net()
    a, b = net.pair()
    net.network.stall(B)
    a.channel.send(1)
    a.channel.send(2)
    net.settle()
    net.network.wake(B)
    assert b.messages() == [1, 2], "at once"
    a.channel.send(3)
    net.settle()

    assert b.messages() == [1, 2, 3]
    net.network.wake(B)
    assert b.messages() == [1, 2, 3]


def test_one_that_stops_reading_again_while_it_wakes_loses_and_reorders_nothing() -> None:
    net = Net()
    a = Witness(net, A)
    b = Witness(net, B, reply=lambda _, message: net.network.stall(B) if message == 1 else None)
    net.network.connect(A, B)
    net.settle()
    net.network.stall(B)
    for n in range(4):
        a.channel.send(n)
    net.settle()

    net.network.wake(B)
    assert b.messages() == [0, 1]
    a.channel.send(4)
    net.settle()
    assert b.messages() == [0, 1]
    net.network.wake(B)
    net.settle()

    assert b.messages() == [0, 1, 2, 3, 4]


def test_a_stalled_process_sends_and_learns_of_the_end_of_a_session_when_it_wakes() -> None:
    net = Net()
    a, b = net.pair()
    net.network.stall(B)
    b.channel.send("still here")
    a.channel.send("lost")
    net.settle()
    assert a.messages() == ["still here"]
    a.channel.close()
    net.settle()
    assert (a.told("closed"), b.told("closed")) == ([B], [])

    net.network.wake(B)

    assert b.told("closed") == [A]
    assert b.messages() == [], "what was not read when the session ended is lost"


def test_a_session_with_a_stalled_process_begins_and_its_end_knows_when_it_wakes() -> None:
    net = Net()
    a, b = Witness(net, A), Witness(net, B)
    net.network.stall(B)
    net.network.connect(A, B)
    net.settle()
    a.channel.send(1)
    net.settle()
    assert (a.told("opened"), b.log) == ([B], [])

    net.network.wake(B)

    assert b.log == [("opened", A), ("received", A, 1)]


def test_a_stalled_process_learns_when_it_wakes_that_it_was_refused() -> None:
    net = Net()
    a = Witness(net, A)
    net.network.connect(A, B)
    net.network.stall(A)
    net.settle()
    assert a.log == []

    net.network.wake(A)

    assert a.log == [("refused", B)]


def test_of_a_stalled_process_that_is_detached_nothing_is_kept() -> None:
    net = Net()
    a, b = net.pair()
    net.network.stall(B)
    a.channel.send("lost")
    net.settle()
    net.network.detach(B)
    net.settle()
    assert a.told("closed") == [B]
    assert net.network.unread_bytes == 0

    net.network.wake(B)
    again = Witness(net, B)
    net.network.connect(A, B)
    net.settle()
    a.channel.send("new")
    net.settle()

    assert b.told("closed") == b.messages() == []
    assert again.log == [("opened", A), ("received", A, "new")]


# Sessions that end before their ends know of them.


def test_a_session_that_ends_before_its_opener_hears_of_it_is_answered_refused() -> None:
    refused_first = opened_first = 0
    for seed in range(40):
        net = Net(seed, delay_s=(0.001, 0.01))
        a, b = Witness(net, A), Witness(net, B)
        net.network.connect(A, B)
        while not net.network.sessions():
            net.time.run_until(net.time.now_s() + 0.0005)
        net.time.run_until(net.time.now_s() + 0.004)
        net.network.reset(A, B)
        net.settle()

        # Whoever asked gets one answer; and nobody hears of the end of what it never had.
        told = [entry[0] for entry in a.log]
        assert told in (["refused"], ["opened", "closed"]), f"seed {seed}"
        assert [entry[0] for entry in b.log] in ([], ["opened", "closed"]), f"seed {seed}"
        refused_first += told == ["refused"]
        opened_first += told != ["refused"]
    assert refused_first
    assert opened_first


def test_the_opener_of_a_session_that_dies_unnoticed_at_the_other_end_is_answered_too() -> None:
    net = Net(delay_s=(0.01, 0.01))
    a, b = Witness(net, A), Witness(net, B)
    net.network.connect(A, B)
    net.time.run_until(0.015)
    assert net.network.sessions() == [(A, B)]
    assert a.log == b.log == []

    assert net.network.half_open(B, A, both=False) is not None
    net.settle()

    assert a.log == [("refused", B)]
    assert b.log == [("opened", A)]


# Looking on.


def test_a_witness_sees_every_message_as_it_is_sent_whatever_becomes_of_it() -> None:
    net = Net(queue_bytes=500)
    a, b = net.pair()
    seen: list[tuple[Any, ...]] = []
    net.network.witness = lambda *sent: seen.append((*sent, net.time.now_s()))
    sent_s = net.time.now_s()

    a.channel.send("arrives")
    b.channel.send("other way")
    net.network.faults.cut.add((A, B))
    a.channel.send("held")
    net.network.half_open(A, B, both=True)
    a.channel.send("vanishes")
    a.channel.close()
    a.channel.send("not sent: there is no session")

    assert seen == [
        (A, B, "arrives", sent_s),
        (B, A, "other way", sent_s),
        (A, B, "held", sent_s),
        (A, B, "vanishes", sent_s),
    ]


def test_a_witness_changes_no_delay() -> None:
    arrivals = []
    for is_watched in (False, True):
        net, times = Net(9), []
        a = Witness(net, A)
        Witness(net, B, reply=lambda *_, net=net, times=times: times.append(net.time.now_s()))
        net.network.connect(A, B)
        net.settle()
        net.network.witness = (lambda *_: None) if is_watched else None
        for n in range(5):
            a.channel.send(n)
            net.settle()
        arrivals.append(times)

    assert arrivals[0] == arrivals[1]
