"""Processes on a simulated network, with the pump of every other way to run, under one seed."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

from crescando.process import ProcessCore
from crescando.pump import Pump
from crescando.testing.conformance.rules import ConformanceError
from crescando.transport.base import Channel, Endpoint, Transport
from crescando.transport.simulated import Event, SimulatedNetwork, VirtualTime
from crescando.types import ProcessId

STEP_S = 0.05
"""Virtual time between two looks at a condition."""

EVENTS_MAX = 400_000
"""More events than this in one trial mean that something goes round in circles."""

KEPT = 12
"""Messages remembered per link, to arrive a second time."""


class Stage:
    """A small world of processes.

    Parameters
    ----------
    seed : int
    """

    def __init__(self, seed: int) -> None:
        self.seed = seed
        self.rng = random.Random(seed)
        self.time = VirtualTime()
        self.network = SimulatedNetwork(self.time, self.rng, delay_s=(0.0002, self.rng.choice((0.001, 0.01))))
        self.cores: dict[ProcessId, ProcessCore] = {}
        self.stopped: dict[ProcessId, str] = {}
        self.arrived: dict[tuple[ProcessId, ProcessId], list[Any]] = {}
        self._pumps: dict[ProcessId, Pump] = {}

    # Scheduler of the pumps.

    def now_s(self) -> float:
        """Give the virtual time."""
        return self.time.now_s()

    def call_soon(self, callback: Callable[[], None]) -> Event:
        """Call back in a moment, so that inputs gather into turns."""
        return self.time.call_at(self.now_s() + self.rng.uniform(0.0, 0.0005), callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Event:
        """Call back at a time."""
        return self.time.call_at(when_s, callback)

    # Processes and faults.

    def add(self, core: ProcessCore, after_turn: Callable[[], None] | None = None) -> None:
        """Start a process."""
        me = core.me
        self.cores[me] = core

        def stopped(reason: str) -> None:
            self.stopped[me] = reason

        pump = Pump(core, _Recorder(self, me), self, after_turn=after_turn, stopped=stopped)
        self._pumps[me] = pump
        pump.start()

    def need_turn(self, me: ProcessId) -> None:
        """Let a process take a turn, since it was asked something."""
        self._pumps[me].need_turn()

    def is_alive(self, me: ProcessId) -> bool:
        """Say whether a process runs."""
        return self._pumps[me].is_running

    def crash(self, me: ProcessId) -> None:
        """End a process without a word."""
        self._pumps[me].stop()

    def isolate(self, me: ProcessId) -> None:
        """Hold everything to and from a process, until `heal`."""
        others = [peer for peer in self.cores if peer != me]
        self.network.faults.cut |= {pair for peer in others for pair in ((me, peer), (peer, me))}

    def heal(self, *, resets: bool) -> None:
        """End all isolation; what was held arrives, or the sessions end."""
        self.network.heal(resets=resets)

    def reset_some(self, n: int) -> None:
        """End up to `n` sessions."""
        sessions = self.network.sessions()
        for one, other in self.rng.sample(sessions, min(n, len(sessions))):
            self.network.reset(one, other)

    def give(self, me: ProcessId, peer: ProcessId, message: Any) -> None:
        """Let a process take a message that nobody sent now.

        Raises
        ------
        ConformanceError
            If it does not bear it.
        """
        if not self.is_alive(me):
            return
        try:
            self.cores[me].on_message(peer, message, self.now_s())
        except Exception as error:
            text = f"{me} raised {error!r} on {message!r} of {peer}"
            raise ConformanceError("noise", text, f"seed {self.seed}") from error
        self.need_turn(me)

    def replay(self, n: int, *, own: bool, strangers: tuple[ProcessId, ...]) -> None:
        """Let messages that have arrived before arrive again.

        Parameters
        ----------
        n : int
        own : bool
            Whether also from those who sent them, which no session does.
        strangers : tuple of ProcessId
            Others from whom they come.
        """
        links = sorted(self.arrived)
        for _ in range(min(n, len(links))):
            peer, me = self.rng.choice(links)
            senders = (peer, *strangers) if own else strangers
            self.give(me, self.rng.choice(senders), self.rng.choice(self.arrived[peer, me]))

    # Time.

    def run(self, seconds: float) -> None:
        """Let time pass."""
        self.time.run_until(self.now_s() + seconds, events_max=EVENTS_MAX)
        if self.time.n_events >= EVENTS_MAX:
            raise ConformanceError(
                "rest", f"{EVENTS_MAX} events by {self.now_s():.1f} s, and no end", f"seed {self.seed}"
            )

    def run_until(self, condition: Callable[[], bool], limit_s: float) -> bool:
        """Let time pass until a condition holds; False if it does not in time."""
        end_s = self.now_s() + limit_s
        while not condition():
            if self.now_s() >= end_s:
                return False
            self.run(STEP_S)
        return True


class _Recorder(Transport, Endpoint):
    """The network as one process sees it, with a memory of what arrived."""

    def __init__(self, stage: Stage, me: ProcessId) -> None:
        self._stage = stage
        self._me = me
        self._inner: Endpoint | None = None

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        self._inner = endpoint
        self._stage.network.attach(process, self)

    def detach(self, process: ProcessId) -> None:
        self._stage.network.detach(process)

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        self._stage.network.connect(process, peer)

    # Endpoint.

    def opened(self, channel: Channel) -> None:
        assert self._inner is not None
        self._inner.opened(channel)

    def received(self, channel: Channel, message: Any) -> None:
        assert self._inner is not None
        known = self._stage.arrived.setdefault((channel.peer, self._me), [])
        known.append(message)
        del known[:-KEPT]
        self._inner.received(channel, message)

    def closed(self, channel: Channel) -> None:
        assert self._inner is not None
        self._inner.closed(channel)

    def refused(self, peer: ProcessId) -> None:
        assert self._inner is not None
        self._inner.refused(peer)
