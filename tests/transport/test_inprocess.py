"""What only the in-process transport does: hand over the very object, within a bound."""

from __future__ import annotations

import pytest

from crescando.transport import inprocess
from crescando.transport.inprocess import InProcessHub
from tests.transport.witness import A, Agenda, B, Witness, World, pair
from tests.transport.witness import inprocess as world_of


def test_the_object_itself_is_handed_over() -> None:
    world = world_of()
    a, b = pair(world)
    message = object()

    a.channel.send(message)
    world.settle()

    assert b.messages()[0] is message


def test_a_receiver_that_does_not_keep_up_has_its_session_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "UNWEIGHED", 1)
    monkeypatch.setattr(inprocess, "QUEUE_MAX", 10)
    world = world_of()
    a, b = pair(world)

    for n in range(25):
        a.channel.send(n)
    world.settle()

    # The first, which waits behind none, is not weighed.
    assert b.messages() == list(range(1 + 10))
    assert (a.told("closed"), b.told("closed")) == ([B], [A])


def test_a_session_is_closed_when_too_many_bytes_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "UNWEIGHED", 1)
    monkeypatch.setattr(inprocess, "QUEUE_BYTES", 3_000)
    world = world_of()
    a, b = pair(world)

    for _ in range(9):
        a.channel.send(b"x" * 1_000)
    world.settle()

    # The first is not weighed; the bound holds beside the longest that waits.
    assert [len(message) for message in b.messages()] == [1_000] * (1 + 4)
    assert (a.told("closed"), b.told("closed")) == ([B], [A])


def test_one_message_of_any_size_passes_and_what_is_read_counts_no_more(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(inprocess, "UNWEIGHED", 1)
    monkeypatch.setattr(inprocess, "QUEUE_BYTES", 3_000)
    world = world_of()
    a, b = pair(world)

    for _ in range(4):
        a.channel.send(b"behind this one all are weighed")
        a.channel.send(b"x" * 10_000)
        a.channel.send(b"and what follows it")
        world.settle()

    assert len(b.messages()) == 12
    assert a.told("closed") == []


def test_what_arrived_before_the_end_is_still_received() -> None:
    world = world_of()
    a, b = pair(world)

    a.channel.send("last words")
    a.channel.close()
    world.settle()

    assert b.log[1:] == [("received", A, "last words"), ("closed", A)]


def test_nothing_is_delivered_inside_send() -> None:
    world = world_of()
    a, b = pair(world)

    a.channel.send("x")

    assert b.messages() == []


def test_two_hubs_know_nothing_of_each_other() -> None:
    first, second = world_of(), world_of()
    a = Witness(first, A)
    Witness(second, B)

    first.transport.connect(A, B)
    first.settle()

    assert a.told("refused") == [B]


def test_refusal_is_told_to_nobody_who_is_gone() -> None:
    agenda = Agenda()
    world = World(InProcessHub(agenda), agenda.run_until, agenda.now_s)
    a = Witness(world, A)
    world.transport.connect(A, B)

    world.transport.detach(A)
    world.settle()

    assert a.log == []


def test_what_waited_is_weighed_anew_once_it_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(inprocess, "UNWEIGHED", 2)
    monkeypatch.setattr(inprocess, "QUEUE_BYTES", 3_000)
    world = world_of()
    a, b = pair(world)

    for _ in range(5):
        for _ in range(5):
            a.channel.send(b"x" * 1_000)
        world.settle()

    assert len(b.messages()) == 25
    assert (a.told("closed"), b.told("closed")) == ([], [])
