"""A small scope over the real cores of E-Cast: routers, and processes that send to each other.

Every storage process is a sender and a destination of every message, so that
each of them must see the whole order: positions ascend, numbers of a sender
follow one another, and what is told stable was delivered by all.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from crescando.consensus.base import AtomicBroadcast, BroadcastOutput
from crescando.consensus.multipaxos.messages import Accept
from crescando.process import Output
from crescando.routing.base import StableEvent
from crescando.routing.batch import Delivery, Message, submission
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.router import Router
from crescando.testing.broadcast_scope import decided, effective_leaders, look_at_order, word_of
from crescando.testing.scope import Ask, Fact, Facts, Seen
from crescando.types import FULL_RING, MessageKind, ProcessId


class Remembering:
    """A broadcast core that remembers what it gave out; an `AtomicBroadcast`."""

    def __init__(self, inner: AtomicBroadcast[Batch]) -> None:
        self.inner = inner
        self.base = 0
        self.given: tuple[tuple[int, Hashable], ...] = ()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def flush(self, now_s: float) -> BroadcastOutput[Batch]:
        """End the turn, and remember."""
        output = self.inner.flush(now_s)
        if output.install is not None:
            self.base, self.given = output.install[0], ()
        self.given += tuple((instance, word_of(batch)) for instance, batch in output.learned)
        return output


class Routing:
    """A router core as a process to look at."""

    def __init__(self, core: Router[Any], memory: Remembering) -> None:
        self.me = core.me
        self.core = core
        self.memory = memory

    @property
    def broadcast(self) -> AtomicBroadcast[Any]:
        """The broadcast core."""
        return self.memory.inner

    @property
    def base(self) -> int:
        """The instance of the snapshot that it began from."""
        return self.memory.base

    @property
    def learned(self) -> tuple[tuple[int, Hashable], ...]:
        """What was learned since."""
        return self.memory.given

    def on_start(self, now_s: float) -> None:
        self.core.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.core.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.core.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.core.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.core.on_message(peer, message, now_s)

    def flush(self, now_s: float) -> Output:
        return self.core.flush(now_s)


class Ending:
    """An application end point as a process to look at: what it delivered and was told."""

    def __init__(self, core: Application) -> None:
        self.me = core.me
        self.core = core
        self.delivered: tuple[tuple[int, ProcessId, int], ...] = ()
        self.stable = 0
        self.unexpected: tuple[str, ...] = ()

    def on_start(self, now_s: float) -> None:
        self.core.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.core.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.core.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.core.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.core.on_message(peer, message, now_s)

    def flush(self, now_s: float) -> Output:
        for event in self.core.take_events():
            if isinstance(event, Delivery):
                positions, numbers = event.position.tolist(), event.number.tolist()
                self.delivered += tuple(
                    (at, event.sender, n) for at, n in zip(positions, numbers, strict=True)
                )
            elif isinstance(event, StableEvent) and not event.exceptions:
                self.stable = event.upto
            else:
                self.unexpected += (repr(event),)
        return self.core.flush(now_s)


def _submit(process: Any, count: int, now_s: float) -> None:
    core: Application = process.core
    number = core.next_number
    core.submit(submission([Message(core.me, number, MessageKind.WRITE, 1, (FULL_RING,), 0, b"%d" % number)]))


def _can_submit(process: Any) -> bool:
    return not process.core.is_expelled


@dataclass(frozen=True)
class ECastScope:
    """Routers, and storage processes that multicast to all of themselves.

    Parameters
    ----------
    routers, ends : tuple of ProcessId
    make_router, make_application : callable
        Make a router's core over a broadcast core, and a process's end point.
    make_broadcast : callable
        Makes a broadcast member that remembers nothing.
    numbers : int
        How many messages each end submits.
    majority : int
    waking, crashing : frozenset of ProcessId, optional
        Whose timers are of interest, and who may crash; all routers by default.
    """

    routers: tuple[ProcessId, ...]
    ends: tuple[ProcessId, ...]
    make_broadcast: Callable[[ProcessId], AtomicBroadcast[Batch]]
    make_router: Callable[[ProcessId, AtomicBroadcast[Batch]], Router[Any]]
    make_application: Callable[[ProcessId], Application]
    numbers: int = 1
    majority: int = 2
    late: tuple[ProcessId, ...] = ()
    waking: frozenset[ProcessId] | None = None
    crashing: frozenset[ProcessId] | None = None
    pause_s: float = 10.0
    lossy: tuple[type[Any], ...] = (Accept,)

    @property
    def processes(self) -> tuple[ProcessId, ...]:
        """Routers first."""
        return (*self.routers, *self.ends)

    @property
    def asks(self) -> tuple[Ask, ...]:
        """One request an end."""
        return tuple(Ask("submit", (end,), _can_submit, _submit, self.numbers) for end in self.ends)

    def make(self, me: ProcessId) -> Routing | Ending:
        """Make a router or an end."""
        if me in self.ends:
            return Ending(self.make_application(me))
        memory = Remembering(self.make_broadcast(me))
        return Routing(self.make_router(me, memory), memory)

    def are_linked(self, a: ProcessId, b: ProcessId) -> bool:
        """Routers keep a session with everybody, ends with routers."""
        return a in self.routers or b in self.routers

    def may_wake(self, process: ProcessId) -> bool:
        """Whether this router's timers are of interest; ends have none that are."""
        return process in self.routers if self.waking is None else process in self.waking

    def may_crash(self, process: ProcessId) -> bool:
        """Whether this process may crash."""
        return process in self.routers if self.crashing is None else process in self.crashing

    def observe(self, before: Any, after: Any, message: Any, output: Output) -> Seen:
        """Look at one step of a router or of an end."""
        if isinstance(after, Ending):
            return self._look_at_end(before, after)
        return look_at_order(before, after, output)

    def _look_at_end(self, before: Ending | None, after: Ending) -> Seen:
        had, told = (len(before.delivered), before.stable) if before is not None else (0, 0)
        facts: list[Fact] = []
        faults = [f"unexpected: {after.me} is told {what}" for what in after.unexpected]
        for index in range(had, len(after.delivered)):
            position, sender, number = after.delivered[index]
            earlier = after.delivered[:index]
            if earlier and position <= earlier[-1][0]:
                faults.append(f"order: {after.me} delivers {position} after {earlier[-1][0]}")
            if number != 1 + sum(1 for _, other, _ in earlier if other == sender):
                faults.append(f"fifo: {after.me} delivers {sender}:{number} after {earlier}")
            facts.append((("position", position), (sender, number)))
            facts.append((("message", sender, number), position))
            facts.append((("delivered", after.me, sender, number), True))
        demands = tuple(
            (("delivered", end, after.me, number), True)
            for number in range(told + 1, after.stable + 1)
            for end in self.ends
        )
        return Seen(tuple(facts), demands, tuple(faults))

    def on_lost(self, message: Any) -> Seen:
        """Remember of which ballot something was lost: its leader need not get on."""
        return Seen(((("lossy", message.ballot), True),))

    def derive(self, facts: Facts) -> Iterable[Fact]:
        """Give what is decided, whether anybody knows it or not."""
        return decided(facts, self.majority)

    def at_rest(self, live: Mapping[ProcessId, Any], facts: Facts) -> Iterable[str]:
        """With a leader, everything submitted was delivered by all, and its sender knows."""
        routers = {me: process for me, process in live.items() if isinstance(process, Routing)}
        for me in effective_leaders(routers, facts, self.majority):
            for end in self.ends:
                process = live.get(end)
                if isinstance(process, Ending) and process.core.n_unstable:
                    yield f"stuck: {end} waits for {process.core.n_unstable} messages although {me} leads"
