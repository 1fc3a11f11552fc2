"""The simulated network: faults end sessions, hold messages or delay them, and nothing else."""

from __future__ import annotations

import random
from typing import Any

from crescando.transport.simulated import SimulatedNetwork, VirtualTime
from tests.transport.witness import A, B, Witness, World


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
    net = Net(codec=(lambda message: repr(message).encode(), lambda data: data.decode()))
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
