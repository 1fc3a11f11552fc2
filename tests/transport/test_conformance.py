"""What every transport promises (RB13 §5.2): the same tests over each."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest

from tests.transport import socket_worlds
from tests.transport.witness import WORLDS, A, B, C, Witness, World, pair

ALL_WORLDS = WORLDS | {
    "tcp": socket_worlds.tcp,
    "unix": socket_worlds.unix,
    "tls": socket_worlds.tls,
    "uvloop": socket_worlds.uvloop_tls,
}


@pytest.fixture(params=ALL_WORLDS)
def world(request: pytest.FixtureRequest) -> Iterator[World]:
    if request.param in ("tls", "uvloop"):
        pytest.importorskip("cryptography")
    world = ALL_WORLDS[request.param]()
    yield world
    world.close()


def test_both_ends_are_told_of_a_new_session_once(world: World) -> None:
    a, b = pair(world)

    assert a.log == [("opened", B)]
    assert b.log == [("opened", A)]
    assert (a.channel.peer, b.channel.peer) == (B, A)


def test_messages_arrive_once_and_in_order_both_ways(world: World) -> None:
    a, b = pair(world)

    for n in range(200):
        a.channel.send(n)
        b.channel.send(-n)
        if n % 17 == 0:
            world.settle()
    world.settle()

    assert b.messages() == list(range(200))
    assert a.messages() == [-n for n in range(200)]


def test_nothing_arrives_before_the_session_is_opened(world: World) -> None:
    a = Witness(world, A)
    b = Witness(world, B)
    world.transport.connect(A, B)
    world.settle()
    a.channel.send("x")
    world.settle()

    assert b.log == [("opened", A), ("received", A, "x")]


def test_what_is_sent_in_answer_arrives(world: World) -> None:
    a = Witness(world, A)
    Witness(world, B, reply=lambda channel, message: channel.send(message + 1))
    world.transport.connect(A, B)
    world.settle()

    a.channel.send(41)
    world.settle()

    assert a.messages() == [42]


def test_each_end_is_told_once_that_a_session_is_over(world: World) -> None:
    a, b = pair(world)

    a.channel.close()
    a.channel.close()
    b.channel.close()
    world.settle()

    assert a.told("closed") == [B]
    assert b.told("closed") == [A]


def test_ends_that_close_at_the_same_time_are_told_once_each(world: World) -> None:
    a, b = pair(world)

    for end in (a, b):
        end.channel.send("bye")
        end.channel.close()
    world.settle()

    assert (a.told("closed"), b.told("closed")) == ([B], [A])


def test_nothing_arrives_after_the_end(world: World) -> None:
    a, b = pair(world)
    a.channel.close()
    world.settle()

    a.channel.send("late")
    b.channel.send("late")
    world.settle()

    assert a.messages() == []
    assert b.messages() == []
    assert (a.log[-1], b.log[-1]) == (("closed", B), ("closed", A))


def test_nothing_of_an_old_session_arrives_in_the_next(world: World) -> None:
    a, b = pair(world)
    a.channel.send("old")
    a.channel.close()
    world.transport.connect(A, B)
    world.settle()
    a.channel.send("new")
    world.settle()

    assert b.messages()[-1] == "new"
    assert b.messages() in (["new"], ["old", "new"])
    if "old" in b.messages():
        assert b.log.index(("received", A, "old")) < b.log.index(("closed", A))
    assert len(b.told("opened")) == 2
    assert len(b.told("closed")) == 1


def test_a_session_with_nobody_is_refused(world: World) -> None:
    a = Witness(world, A)

    world.transport.connect(A, B)
    world.settle()

    assert a.log == [("refused", B)]


def test_asking_for_a_session_again_is_harmless(world: World) -> None:
    a, b = pair(world)

    world.transport.connect(A, B)
    world.transport.connect(B, A)
    world.settle()

    assert (a.told("opened"), b.told("opened")) == ([B], [A])


def test_both_asking_at_once_gives_one_session(world: World) -> None:
    a, b = Witness(world, A), Witness(world, B)

    world.transport.connect(A, B)
    world.transport.connect(B, A)
    world.settle()

    assert (a.told("opened"), b.told("opened")) == ([B], [A])


def test_a_process_that_goes_is_missed_by_its_peers_and_told_nothing_itself(world: World) -> None:
    a, b = pair(world)

    world.transport.detach(A)
    world.settle()

    assert b.told("closed") == [A]
    assert a.told("closed") == []
    b.channel.send("x")
    world.settle()
    assert a.messages() == []


def test_a_process_that_is_gone_refuses_and_is_refused(world: World) -> None:
    a, b = pair(world)
    world.transport.detach(A)
    world.settle()

    world.transport.connect(B, A)
    world.transport.connect(A, B)
    world.settle()

    assert b.told("refused") == [A]
    assert a.log == [("opened", B)]
    world.transport.detach(A)


def test_a_process_is_attached_once(world: World) -> None:
    Witness(world, A)

    with pytest.raises(ValueError, match="attached already"):
        Witness(world, A)


def test_a_name_may_be_attached_again_after_it_was_detached(world: World) -> None:
    _, b = pair(world)
    world.transport.detach(A)
    world.settle()

    again = Witness(world, A)
    world.transport.connect(A, B)
    world.settle()
    again.channel.send("x")
    world.settle()

    assert b.messages() == ["x"]


def test_sessions_do_not_touch_each_other(world: World) -> None:
    a, b = pair(world)
    c = Witness(world, C)
    world.transport.connect(A, C)
    world.settle()

    a.channels[0].close()
    a.channels[1].send("x")
    world.settle()

    assert c.messages() == ["x"]
    assert c.told("closed") == []
    assert b.told("closed") == [A]


@pytest.mark.parametrize("seed", range(10))
def test_whatever_happens_each_session_is_fifo_and_ends_once(world: World, seed: int) -> None:
    rng = random.Random(seed)
    a, b = Witness(world, A), Witness(world, B)
    sent = 0
    for _ in range(200):
        match rng.choices(("send", "settle", "close", "connect"), (60, 20, 5, 15))[0]:
            case "send" if a.channels:
                sent += 1
                a.channel.send(sent)
            case "settle":
                world.settle()
            case "close" if a.channels:
                rng.choice((a, b)).channel.close() if b.channels else a.channel.close()
            case "connect":
                world.transport.connect(A, B)
    world.settle()

    got = b.messages()
    assert got == sorted(set(got)), seed
    for witness in (a, b):
        is_open = False
        for what, *_ in witness.log:
            # The end of a session may be noticed after the begin of the next one.
            is_open = is_open or what == "opened"
            assert is_open or what == "refused", seed
        assert len(witness.told("opened")) - len(witness.told("closed")) in (0, 1), seed
    assert len(a.told("opened")) == len(b.told("opened")), seed
