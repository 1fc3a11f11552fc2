"""Load on a store that changes its shape, and what the load saw of it.

Rules of the file: each stream is a thread with a session of its own, in a
closed loop: a batch of operations, then the next. Nothing is hidden: whatever
raises is kept with its time, and a latency runs from the call to the result,
for writes to the moment at which every owner that reports has executed them.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from benchmarks.moves.model import Model

SESSION_TIMEOUT_S = 30.0


class Stream:
    """One closed loop in a thread of its own.

    Parameters
    ----------
    name : str
    step : callable
        Does one batch; gives how many operations it was.

    Attributes
    ----------
    done_s, took_s, counts : list
        When each batch had its results, how long it took, and how many operations it was.
    failures : list of (float, str)
        When something raised, and what.
    """

    def __init__(self, name: str, step: Callable[[], int]) -> None:
        self.name = name
        self._step = step
        self._stop = threading.Event()
        self.done_s: list[float] = []
        self.took_s: list[float] = []
        self.counts: list[int] = []
        self.failures: list[tuple[float, str]] = []
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def once(self) -> int:
        """Do one batch here and now; gives how many operations it was."""
        return self._step()

    def start(self) -> None:
        """Begin."""
        self._thread.start()

    def stop(self) -> None:
        """End when the present batch has its results."""
        self._stop.set()
        self._thread.join(2 * SESSION_TIMEOUT_S)
        if self._thread.is_alive():
            raise RuntimeError(f"{self.name} hangs")

    def _run(self) -> None:
        while not self._stop.is_set():
            began_s = time.perf_counter()
            try:
                n = self._step()
            except Exception as error:  # noqa: BLE001  # Whatever it is, it is a finding.
                self.failures.append((time.perf_counter(), f"{type(error).__name__}: {error}"))
                continue
            now_s = time.perf_counter()
            self.done_s.append(now_s)
            self.took_s.append(now_s - began_s)
            self.counts.append(n)

    def rate_s(self, begin_s: float, end_s: float) -> float:
        """Give operations per second whose results came in an interval."""
        done, counts = np.array(self.done_s), np.array(self.counts)
        inside = (done >= begin_s) & (done < end_s)
        return float(counts[inside].sum()) / (end_s - begin_s) if len(done) else 0.0

    def longest_s(self, begin_s: float, end_s: float) -> float:
        """Give the longest batch that was under way at some moment of an interval."""
        done, took = np.array(self.done_s), np.array(self.took_s)
        touched = (done >= begin_s) & (done - took < end_s)
        return float(took[touched].max()) if touched.any() else float("inf")

    def longest_failing_s(self) -> float:
        """Give the longest time from a failure to the next success."""
        done = np.array(self.done_s)
        longest = 0.0
        for at_s, _ in self.failures:
            later = done[done > at_s]
            longest = max(longest, (float(later[0]) if len(later) else time.perf_counter()) - at_s)
        return longest

    def rates(self, begin_s: float, end_s: float, width_s: float) -> list[float]:
        """Give operations per second in successive intervals."""
        edges = np.arange(begin_s, end_s, width_s)
        counts, _ = np.histogram(self.done_s, edges, weights=self.counts)
        return [float(count) / width_s for count in counts]


class Streams:
    """Some streams that run as long as the block."""

    def __init__(self, *streams: Stream) -> None:
        self.streams = streams

    def __enter__(self) -> Streams:
        for stream in self.streams:
            stream.start()
        return self

    def __exit__(self, *_: object) -> None:
        for stream in self.streams:
            stream.stop()

    @property
    def failures(self) -> list[str]:
        """What was raised, by whom."""
        return [f"{stream.name}: {what}" for stream in self.streams for _, what in stream.failures]


def point_reads(store: Any, model: Model, level: str, batch: int, seed: int = 1) -> Stream:
    """Read tickets by their number, a batch at a time; none is ever missing unless it was deleted."""
    session = store.session(f"reader-{level}-{seed}", timeout_s=SESSION_TIMEOUT_S)
    read = session.table("tickets").prepare_select(
        ["ticket_id", "last_name", "miles"], "ticket_id = ?", isolation=level
    )
    chance = np.random.default_rng(seed)

    def step() -> int:
        keys = model.ids[chance.integers(0, len(model.ids), batch)].tolist()
        for key, handle in zip(keys, read.many([(key,) for key in keys]), strict=True):
            rows = handle.result().rows()
            is_missing = not rows and key not in model.doomed
            if is_missing or len(rows) > 1 or any(row[0] != key for row in rows):
                raise AssertionError(f"ticket {key} was asked for, and {rows} came")
        return batch

    return Stream(f"{level} reads", step)


def global_reads(store: Any, level: str, batch: int, keys: list[str], seed: int = 1) -> Stream:
    """Read bookings by their locator, which is no key: every range takes part."""
    session = store.session(f"searcher-{level}-{seed}", timeout_s=SESSION_TIMEOUT_S)
    read = session.table("tickets").prepare_select(["ticket_id", "rloc"], "rloc = ?", isolation=level)
    chance = np.random.default_rng(seed)

    def step() -> int:
        some = [keys[place] for place in chance.integers(0, len(keys), batch).tolist()]
        for handle in read.many([(key,) for key in some]):
            if not handle.result().rows():
                raise AssertionError("a booking was not found")
        return batch

    return Stream(f"{level} searches", step)


def point_writes(store: Any, model: Model, batch: int, seed: int = 2) -> Stream:
    """Change tickets by their number, a batch at a time."""
    session = store.session(f"writer-{seed}", timeout_s=SESSION_TIMEOUT_S)
    add = session.table("tickets").prepare_update("ticket_id = ?", "miles = miles + ?")
    chance = np.random.default_rng(seed)

    def step() -> int:
        keys = model.ids[chance.integers(0, len(model.ids), batch)].tolist()
        amounts = chance.integers(1, 100, batch).tolist()
        handles = add.many(list(zip(amounts, keys, strict=True)))
        for handle in handles:
            handle.result()
        model.note(
            [
                (handle.position, "add", key, amount)
                for handle, key, amount in zip(handles, keys, amounts, strict=True)
            ]
        )
        return batch

    return Stream("writes", step)


def mixed_writes(store: Any, model: Model, batch: int, seed: int = 3) -> Stream:
    """Change by number, by locator (a write that every process executes), and delete."""
    session = store.session(f"mixed-{seed}", timeout_s=SESSION_TIMEOUT_S)
    table = session.table("tickets")
    add = table.prepare_update("ticket_id = ?", "miles = miles + ?")
    change = table.prepare_update("rloc = ?", "status = ?")
    delete = table.prepare_delete("ticket_id = ?")
    chance = np.random.default_rng(seed)
    locators = list(model.rows_of)
    states = ("OPEN", "USED", "VOID", "RFND")

    def step() -> int:
        operations, notes = [], []
        for place in range(batch):
            key = int(model.ids[chance.integers(0, len(model.ids))])
            if place % 16 == 0:
                locator = locators[chance.integers(0, len(locators))]
                state = states[chance.integers(0, len(states))]
                operations.append(change.bind((state, locator)))
                notes.append(("set", locator, state))
            elif place % 61 == 7:
                model.doomed.add(key)
                operations.append(delete.bind((key,)))
                notes.append(("delete", key, None))
            else:
                amount = int(chance.integers(1, 100))
                operations.append(add.bind((amount, key)))
                notes.append(("add", key, amount))
        handles = session.submit_many(operations)
        for handle in handles:
            handle.result()
        model.note([(handle.position, *note) for handle, note in zip(handles, notes, strict=True)])
        return batch

    return Stream("mixed writes", step)


def single_writes(store: Any, model: Model, seed: int = 4) -> Stream:
    """One write at a time: how long each takes."""
    stream = point_writes(store, model, 1, seed)
    stream.name = "single writes"
    return stream
