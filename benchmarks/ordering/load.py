"""Loads on a `Sender`, and what they measure.

Rules of the file: latency is from the moment a put is made (open loop: was due,
so that a stall counts against every put that should have been made in it) to
the moment its awaitable's result is there. Rates count puts that became stable
within the measured time. The first part of every run is not measured.
"""

from __future__ import annotations

import asyncio
import random
import time
from array import array
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from benchmarks.ordering.cores import KEY_BYTES, Sender

WARM_UP_SHARE = 0.2
"""Of the measured time, run before it."""

STOP_S = 30.0
"""How long what is under way at the end of a run may take, and a run that has measured nothing yet."""

_KEYS = 1 << 14
"""Distinct keys made beforehand; drawing one must cost nothing."""


@dataclass(frozen=True, slots=True)
class Sample:
    """One run's result.

    Attributes
    ----------
    rate_s : float
        Puts per second.
    p50_ms, p99_ms, max_ms : float
    n : int
        Puts measured.
    """

    rate_s: float
    p50_ms: float
    p99_ms: float
    max_ms: float
    n: int


@dataclass(slots=True)
class _Record:
    """Latencies as they come in, and how many puts each stands for."""

    begin_s: float
    end_s: float
    waits_s: list[float] = field(default_factory=list)
    n: int = 0

    def is_over(self, now_s: float) -> bool:
        """Whether the measured time has passed; a machine with no time for us makes it longer."""
        if now_s >= self.end_s and not self.waits_s and now_s < self.begin_s + STOP_S:
            self.end_s = now_s
            return False
        return now_s >= self.end_s

    def take(self, made_s: float, done_s: float, n: int) -> None:
        if done_s >= self.begin_s and (done_s <= self.end_s or not self.waits_s):
            self.end_s = max(self.end_s, done_s)
            self.waits_s.append(done_s - made_s)
            self.n += n

    def sample(self) -> Sample:
        if not self.waits_s:
            raise RuntimeError("nothing became stable in the measured time")
        waits_ms = np.array(self.waits_s) * 1e3
        p50, p99 = np.percentile(waits_ms, (50, 99))
        rate = self.n / (self.end_s - self.begin_s)
        return Sample(rate, float(p50), float(p99), float(waits_ms.max()), self.n)


def _record(seconds: float) -> _Record:
    begin_s = time.perf_counter() + WARM_UP_SHARE * seconds
    return _Record(begin_s, begin_s + seconds)


def _keys(seed: int) -> list[int]:
    rng = random.Random(seed)
    return [rng.getrandbits(64) for _ in range(_KEYS)]


async def awaitables(
    senders: list[Sender], *, in_flight: int, payload_bytes: int, seconds: float, seed: int = 1
) -> Sample:
    """Closed loop: `in_flight` tasks, spread over the senders, each awaiting its own put, then the next."""
    record, keys = _record(seconds), _keys(seed)
    value = bytes(payload_bytes - KEY_BYTES)
    loop, clock = asyncio.get_running_loop(), time.perf_counter

    async def work(number: int) -> None:
        sender = senders[number % len(senders)]
        at, take = number * 97, record.take
        made_s = clock()
        while not record.is_over(made_s):
            at = (at + 1) % _KEYS
            done = loop.create_future()
            sender.put(keys[at], value, done)
            await done
            done_s = clock()
            take(made_s, done_s, 1)
            made_s = done_s

    await asyncio.gather(*(work(number) for number in range(in_flight)))
    for sender in senders:
        sender.check()
    return record.sample()


async def blocks(
    sender: Sender, *, block: int, in_flight: int, payload_bytes: int, seconds: float, seed: int = 1
) -> Sample:
    """Closed loop: `in_flight` tasks, each awaiting a block of puts, then the next."""
    record = _record(seconds)
    rng = np.random.default_rng(seed)
    keys = rng.integers(0, 1 << 64, block, dtype=np.uint64)
    columns = np.zeros((block, payload_bytes), np.uint8)
    columns[:, :KEY_BYTES] = keys.view(np.uint8).reshape(block, KEY_BYTES)
    payload = columns.tobytes()
    loop, clock = asyncio.get_running_loop(), time.perf_counter

    async def work() -> None:
        made_s = clock()
        while not record.is_over(made_s):
            done = loop.create_future()
            sender.put_block(keys, payload, done)
            await done
            done_s = clock()
            record.take(made_s, done_s, block)
            made_s = done_s

    await asyncio.gather(*(work() for _ in range(in_flight)))
    sender.check()
    return record.sample()


async def open_loop(
    sender: Sender, *, rate_s: float, payload_bytes: int, seconds: float, tick_s: float = 0.001, seed: int = 1
) -> Sample:
    """Put at a steady rate whatever happens, a few in every tick; latency counts from when each was due."""
    record, keys = _record(seconds), _keys(seed)
    value = bytes(payload_bytes - KEY_BYTES)
    loop, clock = asyncio.get_running_loop(), time.perf_counter
    begin_s = clock()
    n_made, waiting = 0, 0
    idle = asyncio.Event()

    def finished(due_s: float, _: object) -> None:
        nonlocal waiting
        waiting -= 1
        record.take(due_s, clock(), 1)
        if not waiting:
            idle.set()

    while not record.is_over(now_s := clock()):
        n_due = int((now_s - begin_s) * rate_s)
        for number in range(n_made, n_due):
            done = loop.create_future()
            done.add_done_callback(partial(finished, begin_s + number / rate_s))
            sender.put(keys[number % _KEYS], value, done)
            waiting += 1
        n_made = n_due
        await asyncio.sleep(tick_s)
    idle.clear()
    if waiting:
        await asyncio.wait_for(idle.wait(), 30.0)
    sender.check()
    return record.sample()


class Stream:
    """A closed loop that goes on until it is stopped, and remembers when each put became stable.

    Parameters
    ----------
    sender : Sender
    in_flight, payload_bytes : int
    """

    def __init__(self, sender: Sender, *, in_flight: int, payload_bytes: int = 100, seed: int = 1) -> None:
        self._sender = sender
        self._value = bytes(payload_bytes - KEY_BYTES)
        self._keys = _keys(seed)
        self._is_running = True
        self.acks_s: array[float] = array("d")
        self._tasks = [asyncio.ensure_future(self._work(number)) for number in range(in_flight)]

    async def _work(self, number: int) -> None:
        loop, clock, at = asyncio.get_running_loop(), time.perf_counter, number * 97
        while self._is_running:
            at = (at + 1) % _KEYS
            done = loop.create_future()
            self._sender.put(self._keys[at], self._value, done)
            await done
            self.acks_s.append(clock())

    async def stop(self) -> None:
        """Make no more puts, and wait for those that are under way."""
        self._is_running = False
        async with asyncio.timeout(STOP_S):
            await asyncio.gather(*self._tasks)
        self._sender.check()

    def longest_silence_s(self, begin_s: float, end_s: float) -> float:
        """Give the longest time without an acknowledgement that began in an interval."""
        # Looked at first: going through a hundred million times takes seconds itself.
        now_s = time.perf_counter()
        acks = np.array(self.acks_s)
        inside = acks[(acks >= begin_s) & (acks <= end_s)]
        after = acks[acks > end_s]
        edges = np.concatenate(([begin_s], inside, after[:1] if len(after) else [now_s]))
        return float(np.diff(edges).max())

    def rates_s(self, begin_s: float, end_s: float, width_s: float) -> list[float]:
        """Give acknowledgements per second in successive intervals."""
        edges = np.arange(begin_s, end_s, width_s)
        counts, _ = np.histogram(np.array(self.acks_s), edges)
        return [float(count) / width_s for count in counts]
