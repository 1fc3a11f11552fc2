"""The embedded store on real threads: sessions, event loops, forks, interrupts and the end."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType
from typing import Any

import pytest

import crescando
from crescando import agg, col, errors
from crescando.roles.asked import Asked
from crescando.roles.client import Client
from tests.integration.stores import COUNTERS, N_COUNTERS, standstill, with_counters


@pytest.fixture
def store() -> Iterator[crescando.Store]:
    with with_counters() as store:
        yield store


def total(store: crescando.Store) -> int:
    (row,) = store.table("counters").aggregate(total=agg.sum("v")).rows()
    return int(row[0])


def crescando_threads() -> set[threading.Thread]:
    """Give the stores' threads; the one that makes kernels ready is the process's, and ends by itself."""
    return {
        thread
        for thread in threading.enumerate()
        if thread.name.startswith("crescando") and thread.name != "crescando-warming"
    }


# Concurrency.


def test_threads_with_sessions_of_their_own_lose_no_increment(store: crescando.Store) -> None:
    faults: list[BaseException] = []

    def work(name: str) -> None:
        try:
            with store.session(name) as session:
                table = session.table("counters")
                for n in range(60):
                    table.update("k = ?", "v = v + 1", (n % 5,)).result()
                    assert table.select(["v"], "k = ?", (n % 5,)).rows()[0][0] >= n // 5 + 1
        except BaseException as error:  # noqa: BLE001  # Told by the test.
            faults.append(error)

    threads = [threading.Thread(target=work, args=(f"t{n}",)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert not faults
    assert total(store) == 360


def test_threads_share_a_session(store: crescando.Store) -> None:
    table = store.table("counters")
    results: list[int] = []

    def work() -> None:
        handles = [table.update("k = 0", "v = v + 1") for _ in range(100)]
        results.extend(handle.result().affected for handle in handles)

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)

    assert results == [1] * 800
    assert total(store) == 800
    assert store.in_flight() == 0


def test_a_session_keeps_the_order_of_single_operations_and_of_those_submitted_together(
    store: crescando.Store,
) -> None:
    table = store.table("counters")
    write, read = table.prepare_update("k = ?", "v = ?"), table.prepare_select(["v"], "k = ?")
    for turn in range(60):
        first, second, third = (3 * turn + step for step in range(3))
        expected: list[tuple[Any, int]] = []
        write((first, 1))
        expected += [(handle, first) for handle in read.many([(1,)] * (2 + turn % 9))]
        write.many([(second, 2), (second, 1)])
        expected.append((read((1,)), second))
        mixed = [read.bind((1,)), write.bind((third, 1)), read.bind((1,))]
        before, _, after = store.submit_many(mixed)
        expected += [(before, second), (after, third), (read((1,)), third)]
        assert [handle.result().rows() for handle, _ in expected] == [[(value,)] for _, value in expected]


def test_a_handle_may_be_waited_for_by_several_threads(store: crescando.Store) -> None:
    results: list[int] = []
    with standstill(store):
        handle = store.table("counters").update("k = 0", "v = v + 1")
        threads = [
            threading.Thread(target=lambda: results.append(handle.result().affected)) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        assert not handle.done()
    for thread in threads:
        thread.join(30)

    assert results == [1] * 5
    assert handle.done()
    handle.stable()


# Event loops.


def test_a_thousand_pending_operations_are_awaited(store: crescando.Store) -> None:
    async def main() -> list[int]:
        table = store.table("counters")
        with standstill(store):
            handles = [table.update("k = ?", "v = v + 1", (n % N_COUNTERS,)) for n in range(1_000)]
            waiting = [asyncio.ensure_future(handle.wait()) for handle in handles]
            await asyncio.sleep(0)
            assert store.in_flight() == 1_000
        return [(await waiter).affected for waiter in waiting]

    assert asyncio.run(main()) == [1] * 1_000
    assert total(store) == 1_000


def test_await_handle_gives_the_result(store: crescando.Store) -> None:
    async def main() -> None:
        table = store.table("counters")
        write = table.update("k = 3", {"v": 7})
        await write.wait_stable()
        assert (await write).affected == 1
        assert (await table.select_nowait(["v"], "k = 3")).rows() == [(7,)]
        assert await table.count_nowait("v = 7") == 1

    asyncio.run(main())


def test_a_blocking_wait_inside_a_running_loop_is_refused_with_its_twin(store: crescando.Store) -> None:
    async def main() -> None:
        table = store.table("counters")
        with standstill(store):
            handle = table.update("k = 3", {"v": 7})
            with pytest.raises(errors.CrescandoError, match="await"):
                handle.result()
        await handle

    asyncio.run(main())
    assert total(store) == 7


def test_a_cancelled_wait_cancels_nothing_else(store: crescando.Store) -> None:
    async def main() -> None:
        table = store.table("counters")
        with standstill(store):
            handle = table.update("k = 3", {"v": 7})
            waiter = asyncio.ensure_future(handle.wait())
            await asyncio.sleep(0)
            waiter.cancel()
            with pytest.raises(asyncio.CancelledError):
                await waiter
        assert (await handle).affected == 1

    asyncio.run(main())
    assert total(store) == 7


def test_an_async_deadline_passes_and_the_operation_goes_on(store: crescando.Store) -> None:
    async def main() -> None:
        with standstill(store):
            handle = store.table("counters").update("k = 3", {"v": 7})
            with pytest.raises(errors.DeadlineError):
                await handle.wait(timeout_s=0.02)
        assert (await handle).affected == 1

    asyncio.run(main())


# What the tasks of an event loop submit.


def let_the_store_run() -> None:
    """Block this thread, and so its event loop, for long enough that the store's loop takes what it can."""
    time.sleep(0.05)


def test_what_tasks_submit_in_one_turn_makes_one_batch(
    store: crescando.Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    take = Client.request_together

    def counted(self: Client, asked: Asked) -> None:
        sizes.append(len(asked))
        take(self, asked)

    monkeypatch.setattr(Client, "request_together", counted)
    read = store.table("counters").prepare_select(["v"], "k = ?")

    async def reader(k: int) -> None:
        handle = read((k,))
        let_the_store_run()
        assert (await handle).rows() == [(0,)]

    async def main() -> None:
        await asyncio.gather(*map(reader, range(5)))

    asyncio.run(main())

    assert sizes == [5]


def test_in_an_event_loop_too_everything_comes_behind_what_was_submitted_before(
    store: crescando.Store,
) -> None:
    async def main() -> None:
        insert = store.table("counters").insert({"k": N_COUNTERS, "v": 7})
        drop = store.drop_table_nowait("counters")
        assert (await insert).affected == 1
        await drop.wait()

    asyncio.run(main())


def test_a_read_is_cancelled_though_its_turn_has_not_ended(store: crescando.Store) -> None:
    read = store.table("counters").prepare_select(["v"], "k = ?")

    async def main() -> None:
        handle = read((1,))
        handle.cancel()
        let_the_store_run()
        with pytest.raises(errors.ReadCancelledError):
            await handle

    asyncio.run(main())


def test_a_thread_that_blocks_does_not_wait_for_the_end_of_a_turn(store: crescando.Store) -> None:
    counters = store.table("counters")
    found: list[object] = []

    async def main() -> None:
        stable, done = counters.update("k = 1", "v = 1"), counters.update("k = 2", "v = 2")
        for wait in (lambda: stable.stable(5), lambda: found.append(done.result(5).affected)):
            thread = threading.Thread(target=wait)
            thread.start()
            # The loop stands still meanwhile.
            thread.join()

    asyncio.run(main())

    assert found == [1]


def test_what_a_stopped_event_loop_has_submitted_can_be_waited_for(store: crescando.Store) -> None:
    counters = store.table("counters")
    loop = asyncio.new_event_loop()
    handles: list[Any] = []

    def submit() -> None:
        loop.stop()
        handles.append(counters.update("k = 1", "v = 1"))

    loop.call_soon(submit)
    loop.run_forever()
    loop.close()

    assert handles[0].result(5).affected == 1


def test_another_thread_s_operation_waits_for_no_turn(store: crescando.Store) -> None:
    counters = store.table("counters")
    found: list[object] = []

    async def main() -> None:
        handle = counters.update("k = 1", "v = v + 1")

        def read() -> None:
            found.extend(counters.select(["v"], "k = 1").rows())

        thread = threading.Thread(target=read)
        thread.start()
        thread.join()
        await handle

    asyncio.run(main())

    assert found == [(1,)]


def test_close_in_an_event_loop_drains_what_was_submitted_in_the_same_turn() -> None:
    with with_counters() as store:

        async def main() -> Any:
            handle = store.table("counters").update("k = 1", "v = 1")
            store.close()
            return await handle

        assert asyncio.run(main()).affected == 1


# The end.


def test_close_drains_what_is_on_its_way() -> None:
    before = crescando_threads()
    store = with_counters(routers=3, storages=3, replication=2)
    table = store.table("counters")
    handles = [table.update("k = ?", "v = v + 1", (n % N_COUNTERS,)) for n in range(500)]
    reads = [table.select_nowait(["v"], "k = 1") for _ in range(20)]

    store.close()

    assert [handle.result(timeout_s=0).affected for handle in handles] == [1] * 500
    assert {read.result(timeout_s=0).rows()[0][0] for read in reads} == {500 // N_COUNTERS + 1}
    assert crescando_threads() == before


def test_close_by_the_context_manager_after_an_error_of_the_user() -> None:
    before = crescando_threads()
    handles = []

    def use() -> None:
        with with_counters() as store:
            handles.append(store.table("counters").update("k = 1", {"v": 5}))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        use()

    (handle,) = handles
    assert handle.result(timeout_s=0).affected == 1
    assert crescando_threads() == before


def test_close_tells_unknown_of_what_had_no_outcome_by_its_deadline() -> None:
    before = crescando_threads()
    store = with_counters(routers=3)
    for router in ("router/r1", "router/r2"):
        store.cluster.kill(router)
    handles = [store.table("counters").update("k = 1", {"v": n}) for n in range(10)]

    store.close(timeout_s=0.3)

    for handle in handles:
        with pytest.raises(errors.DeadlineError) as caught:
            handle.result()
        assert caught.value.applied == "unknown"
    assert crescando_threads() == before


def test_a_session_s_end_leaves_the_others_alone(store: crescando.Store) -> None:
    first, second = store.session("first"), store.session("second")
    first.table("counters").update("k = 1", {"v": 1})

    first.close()

    assert second.table("counters").select(["v"], "k = 1").rows() == [(1,)]
    with pytest.raises(errors.ClosedError):
        first.table("counters")
    assert store.session("first").table("counters").count() == N_COUNTERS


def test_two_stores_of_one_process_are_independent() -> None:
    with with_counters(routers=3, storages=2) as one, crescando.open() as two:
        two.create_table("counters", like={"k": [1], "v": ["text"]}, primary_key="k")
        two.table("counters").insert({"k": 1, "v": "mine"}).result()
        one.table("counters").update(None, {"v": 3}).result()
        lead = one.cluster.status().lead_router
        assert lead is not None
        one.cluster.kill(lead)

        assert two.table("counters").select().rows() == [(1, "mine")]
        assert total(one) == 3 * N_COUNTERS
        one.close()
        assert two.table("counters").insert({"k": 2, "v": "still"}).result().affected == 1


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_is_refused_and_the_parent_goes_on(store: crescando.Store) -> None:
    table = store.table("counters")
    handle = table.update("k = 1", "v = v + 1")

    child = os.fork()
    if child == 0:
        refused = 0
        for call in (table.select, handle.result, store.tables, lambda: table.insert({"k": 99, "v": 1})):
            try:
                call()
            except errors.ClosedError as error:
                refused += "forked" in str(error)
            except BaseException:  # noqa: BLE001  # Counted by its absence.
                pass
        store.close()
        os._exit(0 if refused == 4 else 1)

    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert handle.result().affected == 1
    assert total(store) == 1


FORGETFUL = """
import logging
import crescando
# What asyncio says of callbacks that a busy machine makes slow; what it says of tasks forgotten is an error.
logging.getLogger("asyncio").setLevel(logging.ERROR)
store = crescando.open(routers=3, storages=2, replication=2)
table = store.create_table("t", like={"k": [1], "v": [1]}, primary_key="k")
table.insert({"k": list(range(1000)), "v": [0] * 1000}).result()
handles = [table.update("k = ?", "v = v + 1", (n,)) for n in range(300)]
SESSION
print("end", flush=True)
"""


@pytest.mark.parametrize(
    "rest",
    [
        "",
        "session = store.session('other'); session.table('t')",
        "del store",
        "store.cluster.kill('router/r1')",
    ],
)
def test_an_interpreter_that_ends_without_close_is_silent_and_quick(rest: str) -> None:
    program = FORGETFUL.replace("SESSION", rest)
    with subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", "-c", program],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.readline() == "end\n", process.stderr.read()
        begin_s = time.monotonic()
        out, err = process.communicate(timeout=30)
        seconds = time.monotonic() - begin_s

    assert (process.returncode, out, err) == (0, "", "")
    assert seconds < 3.0


def test_an_interrupt_while_waiting_leaves_the_store_usable(store: crescando.Store) -> None:
    table = store.table("counters")

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        with standstill(store):
            handle = table.update("k = 1", "v = v + 1")
            for wait in (handle.result, handle.stable, table.count):
                signal.setitimer(signal.ITIMER_REAL, 0.05)
                with pytest.raises(KeyboardInterrupt):
                    wait()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)

    assert handle.result().affected == 1
    assert table.update("k = 1", "v = v + 1").result().affected == 1
    assert table.select(["v"], col("k") == 1).rows() == [(2,)]
    assert store.in_flight() == 0


def test_the_default_store_says_that_nothing_is_kept(store: crescando.Store) -> None:
    assert "in memory, nothing kept" in repr(store)
    assert COUNTERS.name in store.tables()
