"""Promises, and waiting for them in threads and on event loops."""

from __future__ import annotations

import asyncio
import gc
import random
import threading
from collections.abc import Generator
from functools import partial
from typing import Any

import pytest

from crescando.client.base import Pending
from crescando.client.eventloop import LoopWaits, waits_here
from crescando.client.expression import Placeholder
from crescando.client.promise import Promise, Waitable
from crescando.client.quick import quick_fill
from crescando.client.slot import Slot, bindings, fill
from crescando.client.waiting import Awaited, Steps, wait, wait_async
from crescando.errors import DeadlineError, RefusedError
from crescando.schema import DataType


def test_whoever_asks_is_told_once_in_the_order_of_asking() -> None:
    promise: Promise[int] = Promise()
    told: list[str] = []
    promise.add_done_callback(lambda _: told.append("first"))
    promise.add_done_callback(lambda _: promise.add_done_callback(lambda _: told.append("last")))
    promise.keep(7)
    assert (promise.done(), promise.result(), told) == (True, 7, [])

    promise.tell()
    promise.tell()

    assert told == ["first", "last"]


def test_callbacks_of_many_threads_are_each_called_once() -> None:
    for _ in range(50):
        promise: Promise[None] = Promise()
        called: list[int] = []
        threads = [
            threading.Thread(target=promise.add_done_callback, args=(partial(_note, called, n),))
            for n in range(4)
        ]
        threads.insert(2, threading.Thread(target=promise.set_result, args=(None,)))
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(called) == [0, 1, 2, 3]


def _note(called: list[int], number: int, _: object) -> None:
    called.append(number)


@pytest.mark.parametrize("asked_first", [True, False])
def test_an_operation_with_an_outcome_is_stable_and_a_failed_one_only_if_it_was(asked_first: bool) -> None:
    error = RefusedError("no")
    for is_stable, fails in ((False, False), (True, True), (False, True)):
        pending = Pending(1)
        promise = pending.stable if asked_first else None
        if is_stable:
            pending.settle_stable()
        if fails:
            pending.set_exception(error)
        else:
            pending.set_result("outcome")
        stable = promise or pending.stable
        assert stable.done()
        assert stable.exception() is (error if fails and not is_stable else None)


def test_waiting_gives_the_collector_nothing_but_the_event_loops_own_future() -> None:
    n = 500

    async def main() -> tuple[int, list[bool]]:
        waits, promises = waits_here(), [Promise[None]() for _ in range(n)]
        waiters: list[Any] = [None] * n
        before = gc.get_count()[0]
        for place, promise in enumerate(promises):
            waiters[place] = waits.begin(promise, 30.0)
        made = gc.get_count()[0] - before
        for promise in promises:
            promise.set_result(None)
        return made, await asyncio.gather(*waiters)

    gc.disable()
    try:
        made, kept = asyncio.run(main())
    finally:
        gc.enable()
    assert kept == [True] * n
    assert made < 1.5 * n


def steps(*promises: Waitable) -> Steps[str]:
    yield from promises
    return "all of them"


def awaited(*promises: Waitable, timeout_s: float) -> Awaited[str]:
    return Awaited(wait_async(steps(*promises), timeout_s, what=lambda: "it"))


def test_a_deadline_ends_a_wait_and_nothing_else() -> None:
    promise: Promise[None] = Promise()
    with pytest.raises(DeadlineError):
        wait(steps(promise), 0.0, what="it", twin="that")

    async def main() -> str:
        for timeout_s in (0.0, 0.01):
            with pytest.raises(DeadlineError, match="it was not answered"):
                await awaited(promise, timeout_s=timeout_s)
        asyncio.get_running_loop().call_soon(promise.set_result, None)
        return await awaited(promise, timeout_s=5.0)

    assert asyncio.run(main()) == "all of them"


def test_waits_of_many_lengths_end_each_in_its_time_and_leave_nothing_behind() -> None:
    rng = random.Random(5)
    never: Promise[None] = Promise()

    async def one(timeout_s: float) -> float:
        loop = asyncio.get_running_loop()
        begin_s = loop.time()
        with pytest.raises(DeadlineError):
            await awaited(never, timeout_s=timeout_s)
        return loop.time() - begin_s - timeout_s

    async def main() -> tuple[list[float], LoopWaits]:
        tasks = []
        for _ in range(50):
            tasks.append(asyncio.ensure_future(one(rng.choice((0.0, 0.01, 0.02)))))
            await asyncio.sleep(0)
        return list(await asyncio.gather(*tasks)), waits_here()

    late_s, waits = asyncio.run(main())
    assert min(late_s) > -0.001
    assert not any(waits._by_timeout.values())


def test_a_cancelled_wait_cancels_nothing() -> None:
    promise: Promise[None] = Promise()

    async def main() -> str:
        first = asyncio.ensure_future(_as_coroutine(awaited(promise, timeout_s=5.0)))
        second = asyncio.ensure_future(_as_coroutine(awaited(promise, timeout_s=5.0)))
        await asyncio.sleep(0)
        first.cancel()
        threading.Thread(target=promise.set_result, args=(None,)).start()
        with pytest.raises(asyncio.CancelledError):
            await first
        assert not any(waits_here()._by_timeout.values()) or not second.done()
        return await second

    assert asyncio.run(main()) == "all of them"


async def _as_coroutine(what: Awaited[str]) -> str:
    return await what


def test_a_loop_that_has_ended_keeps_nobody_from_telling() -> None:
    promise: Promise[None] = Promise()

    async def main() -> Generator[Any, None, str]:
        steps = awaited(promise, timeout_s=5.0).__await__()
        next(steps)
        return steps

    kept = asyncio.run(main())
    promise.set_result(None)
    assert promise.done()
    kept.close()


INT, TEXT, REAL = DataType.INT64, DataType.STRING, DataType.FLOAT64


@pytest.mark.parametrize("seed", range(10))
def test_values_are_filled_quickly_as_they_are_slowly(seed: int) -> None:
    rng = random.Random(seed)
    values: dict[type, list[Any]] = {
        int: [0, -(2**63), 2**63 - 1, 2**63],
        str: ["", "a", "ä"],
        float: [0.5],
        bool: [True],
    }
    signature = tuple(rng.choices(list(values), k=rng.randint(1, 4)))
    kinds = {int: INT, str: TEXT, float: REAL, bool: DataType.BOOL}
    slots = [
        Slot(kinds[given], rng.choice((None, kinds[given])), None, Placeholder(place), False, False, None)
        for place, given in enumerate(signature)
    ]
    rng.shuffle(slots)
    slots.append(Slot(INT, None, None, None, False, True, 42))
    quick = quick_fill(slots, signature, len(signature))
    assert quick is not None
    batch = [tuple(rng.choice(values[given]) for given in signature) for _ in range(20)]
    slow: list[Any] = []
    for params in batch:
        try:
            slow.append(fill(slots, bindings(range(len(params)), params)))
        except Exception as error:  # noqa: BLE001  # Whatever it is must be the same.
            slow.append(type(error))
    for params, expected in zip(batch, slow, strict=True):
        if isinstance(expected, type):
            with pytest.raises(expected):
                quick.fill(params)
        else:
            assert quick.fill(params) == expected
    whole = [
        (params, expected)
        for params, expected in zip(batch, slow, strict=True)
        if not isinstance(expected, type)
    ]
    columns = list(zip(*[params for params, _ in whole], strict=True))
    assert not whole or list(zip(*quick.fill_all(columns), strict=True)) == [given for _, given in whole]
