"""A thread that submits very much waits for the store's loop; an event loop's tasks do not."""

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import Iterator
from typing import Any

import pytest

import crescando
from crescando import Store
from crescando.client.stretches import STRETCH
from crescando.submitted import AHEAD
from tests.integration.test_failures import wait_for

MANY = AHEAD + 3 * STRETCH


@pytest.fixture
def store() -> Iterator[Store[Any]]:
    with crescando.open() as opened:
        table = opened.create_table("numbers", like={"n": [1]}, primary_key="n")
        table.insert([{"n": n} for n in range(10)]).result()
        yield opened


@pytest.fixture
def stuck(store: Store[Any]) -> Iterator[threading.Event]:
    """Its loop does nothing until this is set."""
    goes_on, is_stuck, gave_up = threading.Event(), threading.Event(), threading.Event()

    def wait() -> None:
        is_stuck.set()
        if not goes_on.wait(60):
            gave_up.set()

    store.cluster._loop.hand_over(wait)
    assert is_stuck.wait(10)
    yield goes_on
    goes_on.set()
    # Whoever waits for the loop, and must not, would go on when it does.
    assert not gave_up.is_set()


def _wait_until_far_ahead(store: Store[Any], thread: threading.Thread) -> None:
    """See a thread submit as much as may wait, and no more."""
    wait_for(lambda: store.in_flight() >= AHEAD, "it submits", 60)
    thread.join(0.5)
    assert thread.is_alive()
    assert store.in_flight() == AHEAD


def test_a_thread_waits_for_the_loop_and_all_is_answered(store: Store[Any], stuck: threading.Event) -> None:
    read = store.table("numbers").prepare_select(["n"], "n = ?")
    handles: list[Any] = []
    thread = threading.Thread(target=lambda: handles.extend(read.many([(n % 10,) for n in range(MANY)])))
    thread.start()
    _wait_until_far_ahead(store, thread)
    stuck.set()
    thread.join(60)
    assert not thread.is_alive()
    assert [handle.result().rows() for handle in handles] == [[(n % 10,)] for n in range(MANY)]


def test_less_than_that_waits_for_nobody(store: Store[Any], stuck: threading.Event) -> None:
    read = store.table("numbers").prepare_select(["n"], "n = ?")
    handles = read.many([(3,)] * AHEAD)
    stuck.set()
    assert {tuple(handle.result().rows()) for handle in handles} == {((3,),)}


def test_an_event_loop_is_never_held_up(store: Store[Any], stuck: threading.Event) -> None:
    read = store.table("numbers").prepare_select(["n"], "n = ?")

    async def submit() -> int:
        handles = read.many([(4,)] * MANY)
        stuck.set()
        return sum([len((await handle).rows()) for handle in handles])

    assert asyncio.run(submit()) == MANY


def test_a_store_that_is_closed_meanwhile_ends_the_wait(store: Store[Any], stuck: threading.Event) -> None:
    read = store.table("numbers").prepare_select(["n"], "n = ?")
    handles: list[Any] = []
    thread = threading.Thread(target=lambda: handles.extend(read.many([(1,)] * MANY)))
    thread.start()
    _wait_until_far_ahead(store, thread)
    closing = threading.Thread(target=lambda: store.close(timeout_s=0.1))
    closing.start()
    stuck.set()
    closing.join(60)
    thread.join(60)
    assert not thread.is_alive()
    assert len(handles) == MANY
    with pytest.raises(crescando.errors.CrescandoError, match="closed"):
        handles[-1].result()


def test_a_store_is_closed_while_operations_end(store: Store[Any], stuck: threading.Event) -> None:
    """Whoever looks for one to wait for may be interrupted, by the collector too."""
    read = store.table("numbers").prepare_select(["n"], "n = ?")
    read.many([(1,)] * AHEAD)
    operations = store._desk.backend._operations._by_number  # type: ignore[attr-defined]
    ending = list(operations)[AHEAD // 2 :]
    thresholds = gc.get_threshold()

    def end_one(*_: object) -> None:
        operations.pop(ending.pop(), None) if ending else None

    threading.Timer(0.5, stuck.set).start()
    gc.callbacks.append(end_one)
    gc.set_threshold(300)
    try:
        store.close(timeout_s=0.1)
    finally:
        gc.set_threshold(*thresholds)
        gc.callbacks.remove(end_one)
    assert store.in_flight() == 0
