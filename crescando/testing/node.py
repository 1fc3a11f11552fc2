"""One simulated process: a core, its pump, its clock, and whether it is paused.

Rules of the file: a paused process gets nothing, and all that was due happens
when it resumes. A process's monotonic clock is its own: it may run fast or
slow and may jump ahead, and the core sees no other.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from crescando.process import ProcessCore
from crescando.pump import Pump
from crescando.transport.base import Channel, Endpoint, Transport
from crescando.transport.simulated import Event, SimulatedNetwork, VirtualTime
from crescando.types import ProcessId

ROUNDING_S = 1e-6
"""More than what converting between two clocks can lose."""


class Surroundings(Protocol):
    """What a node needs of its world.

    Attributes
    ----------
    turn_s : float
        How long a turn may wait, so that inputs gather into batches.
    cycle_s : tuple of float
        Least and greatest time that slow work takes.
    """

    time: VirtualTime
    rng: random.Random
    network: SimulatedNetwork
    turn_s: float
    cycle_s: tuple[float, float]

    def after_turn(self, core: ProcessCore) -> None:
        """Look at a core after each of its turns."""
        ...

    def after_stop(self, node: Node) -> None:
        """Learn that a process has stopped itself, or failed."""
        ...


class Node:
    """One simulated process.

    Parameters
    ----------
    world : Surroundings
    core : ProcessCore
    engine : Any
        What `Output.execute` works on, if the core asks for slow work.
    """

    def __init__(self, world: Surroundings, core: ProcessCore, engine: Any = None) -> None:
        self.world = world
        self.core = core
        self.engine = engine
        self.is_alive = True
        self.stopped = ""
        self.pump = Pump(
            core,
            _Gate(self),
            self,
            execute=self._execute,
            after_turn=lambda: world.after_turn(core),
            stopped=self._stopped,
        )
        self._paused: list[Callable[[], None]] | None = None
        self._ahead_s = 0.0
        self._rate = 1.0
        self._rate_since_s = 0.0

    # Scheduler of the pump.

    def now_s(self) -> float:
        """Give this process's monotonic time."""
        now_s = self.world.time.now_s()
        if self._rate == 1.0:
            return now_s + self._ahead_s
        return now_s + self._ahead_s + (now_s - self._rate_since_s) * (self._rate - 1.0)

    def call_soon(self, callback: Callable[[], None]) -> Event:
        # A turn does not follow at once, so that inputs gather into batches.
        world = self.world
        return self._call_at(world.time.now_s() + world.rng.uniform(0.0, world.turn_s), callback)

    def call_at(self, when_s: float, callback: Callable[[], None]) -> Event:
        if self._rate == 1.0 and self._ahead_s == 0.0:
            return self._call_at(when_s, callback)
        # Never too soon by a rounding error, or the core would ask for the same moment for ever.
        due_s = self.world.time.now_s() + (when_s - self.now_s()) / self._rate
        return self._call_at(due_s + ROUNDING_S, callback)

    def _call_at(self, when_s: float, callback: Callable[[], None]) -> Event:
        event = self.world.time.call_at(when_s, callback)

        def due() -> None:
            if self._paused is None:
                callback()
            else:
                self._paused.append(lambda: None if event.is_cancelled else callback())

        event.callback = due
        return event

    def when_running(self, callback: Callable[[], None]) -> None:
        """Call now, or on resumption."""
        if self._paused is None:
            callback()
        else:
            self._paused.append(callback)

    # Faults.

    @property
    def is_paused(self) -> bool:
        """Whether nothing reaches it now."""
        return self._paused is not None

    def pause(self) -> None:
        """Let nothing reach the process."""
        if self._paused is None:
            self._paused = []
            self.world.network.stall(self.core.me)

    def resume(self) -> None:
        """Let everything happen that was due meanwhile."""
        waiting, self._paused = self._paused, None
        self.world.network.wake(self.core.me)
        for callback in waiting or ():
            self.when_running(callback)

    def crash(self) -> None:
        """End the process for ever, without a word."""
        if self.is_alive:
            self.is_alive = False
            self._paused = None
            self.pump.stop()

    def run_clock(self, rate: float) -> None:
        """Let the clock run `rate` times as fast as the others from now on."""
        self._ahead_s = self.now_s() - self.world.time.now_s()
        self._rate, self._rate_since_s = rate, self.world.time.now_s()

    def jump_clock(self, ahead_s: float) -> None:
        """Let the clock jump ahead; timers that were set fire no sooner for it."""
        self._ahead_s += ahead_s

    def _stopped(self, reason: str) -> None:
        self.is_alive = False
        self.stopped = reason
        self.world.after_stop(self)

    def _execute(self, work: Any) -> None:
        def complete() -> None:
            if not self.is_alive or self.engine is None:
                return
            try:
                result = work.run(self.engine)
            except Exception as error:  # noqa: BLE001  # As in a scanning thread: this process stops.
                self.pump.fail(error)
            else:
                self.pump.executed(result)

        world = self.world
        self._call_at(world.time.now_s() + world.rng.uniform(*world.cycle_s), complete)


class _Gate(Transport):
    """The network as one node sees it: what arrives at a paused node waits."""

    def __init__(self, node: Node) -> None:
        self.node = node

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        self.node.world.network.attach(process, _GatedEndpoint(self.node, endpoint))

    def detach(self, process: ProcessId) -> None:
        self.node.world.network.detach(process)

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        self.node.world.network.connect(process, peer)


@dataclass(slots=True)
class _GatedEndpoint(Endpoint):
    node: Node
    inner: Endpoint

    def opened(self, channel: Channel) -> None:
        self.node.when_running(lambda: self.inner.opened(channel))

    def received(self, channel: Channel, message: Any) -> None:
        if self.node.is_paused:
            self.node.when_running(lambda: self.inner.received(channel, message))
        else:
            self.inner.received(channel, message)

    def closed(self, channel: Channel) -> None:
        self.node.when_running(lambda: self.inner.closed(channel))

    def refused(self, peer: ProcessId) -> None:
        self.node.when_running(lambda: self.inner.refused(peer))
