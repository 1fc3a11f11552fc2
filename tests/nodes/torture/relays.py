"""A fault proxy: TCP relays between processes, one per address, that spoil what they carry.

Rules of the file: a relay listens where the cluster file says that a process
does, and carries every connection on to where it really is. What is to be
spoiled, of which share of the connections and for how long, is said from
outside; chance comes from the relay's own source. TCP loses nothing in the
middle of a stream, and neither does a relay: bytes that it swallowed end the
connection, at the latest when the fault is over.
"""

from __future__ import annotations

import asyncio
import random
import sys
from collections import deque
from collections.abc import Iterable
from functools import partial
from typing import cast

from crescando.loop import LoopThread, new_event_loop

Address = tuple[str, int]

KINDS = ("drop", "delay", "half_close", "truncate", "garbage", "blackhole", "freeze")
"""*drop*: connections end at once, and new ones while it lasts. *delay*: every piece comes later.
*half_close*: one direction ends, the other one goes on. *truncate*: a piece is cut in the middle, then the
connection ends. *garbage*: some bytes of a piece are others. *blackhole*: everything is swallowed.
*freeze*: everything is held, and comes when it is over."""

GARBAGE_BYTES_MAX = 64


class _End(asyncio.Protocol):
    """One end of a relayed connection."""

    def __init__(self, pair: _Pair) -> None:
        self.pair = pair
        self.other: _End
        self.transport: asyncio.Transport | None = None
        self.is_cut = False
        """Whether what comes here goes nowhere any more."""
        self.is_done = False
        """Whether nothing more will go out here."""
        self._waiting: deque[tuple[float, bytes | None]] = deque()
        """What is to go out here, and when; None for the end of the stream."""
        self._timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)
        self.pair.begin(self)

    def data_received(self, data: bytes) -> None:
        self.pair.carry(self, data)

    def eof_received(self) -> bool:
        if not self.is_cut:
            self.other.put(None, self.pair.delay_s)
        return True

    def connection_lost(self, error: Exception | None) -> None:
        self.pair.end()

    def pause_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.pause_reading()

    def resume_writing(self) -> None:
        if self.other.transport is not None and not self.other.transport.is_closing():
            self.other.transport.resume_reading()

    def put(self, data: bytes | None, delay_s: float) -> None:
        """Have data go out here, behind everything before it."""
        loop = self.pair.relay.loop
        self._waiting.append((loop.time() + delay_s, data))
        if len(self._waiting) == 1:
            self.release()

    def hurry(self) -> None:
        """Let everything go that waits."""
        self._waiting = deque((0.0, data) for _, data in self._waiting)
        self.release()

    def release(self) -> None:
        """Let go what is due."""
        loop = self.pair.relay.loop
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting and self.transport is not None and not self.transport.is_closing():
            due_s, data = self._waiting[0]
            if due_s > loop.time():
                self._timer = loop.call_at(due_s, self.release)
                return
            self._waiting.popleft()
            if data is not None:
                self.transport.write(data)
            else:
                self.is_done = True
                self.transport.write_eof()
                if self.other.is_done:
                    self.pair.finish()


class _Pair:
    """A relayed connection: the end at which it was asked for, and the one to the process."""

    def __init__(self, relay: Relay) -> None:
        self.relay = relay
        self.near, self.far = _End(self), _End(self)
        self.near.other, self.far.other = self.far, self.near
        self.fault = ""
        self.is_over = False
        self._is_bitten = False
        """Whether a fault that happens once has happened, or bytes were swallowed."""

    @property
    def delay_s(self) -> float:
        """How much later than it comes what comes now goes on."""
        if self.fault == "freeze":
            return 1e6
        return self.relay.delay_s if self.fault == "delay" else 0.0

    def begin(self, end: _End) -> None:
        """Learn that one end is there: of the near one first."""
        if end is self.near:
            self.relay.pairs.add(self)
            self.relay.visit(self)
            if not self.is_over:
                task = self.relay.loop.create_task(self._reach())
                self.relay.tasks.add(task)
                task.add_done_callback(self.relay.tasks.discard)
        elif self.is_over:
            assert end.transport is not None
            end.transport.abort()
        else:
            # What came meanwhile.
            end.release()

    async def _reach(self) -> None:
        try:
            await self.relay.loop.create_connection(lambda: self.far, *self.relay.inner)
        except OSError:
            # Nobody listens there: whoever dials is to notice that as without a relay.
            self.end()

    def afflict(self, fault: str) -> None:
        """Begin a fault."""
        self.fault, self._is_bitten = fault, False
        if fault == "drop":
            self.end()
        elif fault == "half_close":
            end = self.relay.rng.choice((self.near, self.far))
            end.is_cut = True
            end.other.put(None, 0.0)

    def relieve(self) -> None:
        """End the fault; what cannot be as if nothing had been ends."""
        fault, self.fault = self.fault, ""
        if (fault == "blackhole" and self._is_bitten) or fault == "half_close":
            self.end()
        elif fault in ("freeze", "delay"):
            for end in (self.near, self.far):
                end.hurry()

    def carry(self, end: _End, data: bytes) -> None:
        """Take data that came at one end to the other one, or what is left of it."""
        if end.is_cut:
            return
        if self.fault == "blackhole":
            self._is_bitten = True
            return
        rng = self.relay.rng
        if self.fault == "garbage" and not self._is_bitten:
            self._is_bitten = True
            at = rng.randrange(len(data))
            spoiled = rng.randbytes(min(len(data) - at, rng.randint(1, GARBAGE_BYTES_MAX)))
            data = data[:at] + spoiled + data[at + len(spoiled) :]
        if self.fault == "truncate" and not self._is_bitten and end.other.transport is not None:
            self._is_bitten = True
            end.other.transport.write(data[: rng.randrange(len(data))])
            # Not by abort: what was written is to arrive.
            end.other.transport.close()
            self.end()
            return
        end.other.put(data, self.delay_s)

    def finish(self) -> None:
        """End the connection, behind what is still to be written."""
        self.is_over = True
        self.relay.pairs.discard(self)
        for end in (self.near, self.far):
            if end.transport is not None:
                end.transport.close()

    def end(self) -> None:
        """End the connection at both ends, at once."""
        if not self.is_over:
            self.is_over = True
            self.relay.pairs.discard(self)
            for end in (self.near, self.far):
                if end.transport is not None and not end.transport.is_closing():
                    end.transport.abort()


class Relay:
    """Carries what is sent to one address.

    Parameters
    ----------
    outer, inner : (host, port)
        Where it listens, and where the process does.
    seed : str
        Of what is drawn here.
    """

    def __init__(self, outer: Address, inner: Address, seed: str) -> None:
        self.outer, self.inner = outer, inner
        self.rng = random.Random(seed)
        self.delay_s = 0.0
        self.pairs: set[_Pair] = set()
        self.tasks: set[asyncio.Task[None]] = set()
        self.loop: asyncio.AbstractEventLoop
        self._fault, self._share = "", 0.0
        self._server: asyncio.Server | None = None

    async def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to carry."""
        self.loop = loop
        self._server = await loop.create_server(lambda: _Pair(self).near, *self.outer, backlog=512)

    def afflict(self, fault: str, share: float, delay_s: float) -> None:
        """Begin a fault that meets each connection, and each new one, with a probability."""
        self.relieve()
        self._fault, self._share, self.delay_s = fault, share, delay_s
        for pair in list(self.pairs):
            self.visit(pair)

    def visit(self, pair: _Pair) -> None:
        """Let the present fault meet a connection, perhaps."""
        if self._fault and self.rng.random() < self._share:
            pair.afflict(self._fault)

    def relieve(self) -> None:
        """End the present fault."""
        self._fault = ""
        for pair in list(self.pairs):
            pair.relieve()

    def close(self) -> None:
        """Carry nothing any more."""
        if self._server is not None:
            self._server.close()
        for pair in list(self.pairs):
            pair.end()


class Relays:
    """Relays by the names of the nodes behind them, in a thread of their own."""

    def __init__(self, addresses: Iterable[tuple[str, Address, Address]], seed: int) -> None:
        self._relays = {node: Relay(outer, inner, f"{seed}/{node}/relay") for node, outer, inner in addresses}
        self._thread = LoopThread("torture-relays", new_event_loop())
        loop = self._thread.loop
        for relay in self._relays.values():
            asyncio.run_coroutine_threadsafe(relay.listen(loop), loop).result(10.0)

    def afflict(self, node: str, fault: str, *, share: float = 1.0, delay_s: float = 0.0) -> None:
        """Begin a fault at a node's address."""
        self._thread.call(partial(self._relays[node].afflict, fault, share, delay_s))

    def relieve(self, node: str) -> None:
        """End a node's fault."""
        self._thread.call(self._relays[node].relieve)

    def n_connections(self, node: str) -> int:
        """Give how many connections are carried to a node."""
        return self._thread.call(lambda: len(self._relays[node].pairs))

    def close(self) -> None:
        """End every connection and the thread."""

        def close() -> None:
            for relay in self._relays.values():
                relay.close()

        self._thread.call(close)
        self._thread.stop(5.0)


def main() -> int:
    """Delay what comes to some ports, until standard input ends: ``… DELAY_S OUTER INNER PORT PORT …``."""
    delay_s, outer, inner, *ports = sys.argv[1:]
    relays = Relays([(port, (outer, int(port)), (inner, int(port))) for port in ports], 0)
    for port in ports:
        relays.afflict(port, "delay", delay_s=float(delay_s))
    print("listens", flush=True)
    sys.stdin.read()
    relays.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
