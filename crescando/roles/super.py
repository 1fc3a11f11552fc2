"""The super role: looks after storage, client and other super processes, and votes on failures.

Rules of the file: a super never acts alone; it casts a vote, which takes
effect at the position where a majority of the supers has voted (the routing
configuration counts). Silence is measured from the last sign of life on the
monotonic clock. A lost session alone starts a probe; a refused one means that
nobody is there any more, if somebody was: who has never been heard may be about to start.
Clients ask for their sessions themselves, since nobody can reach them over a
network, and learn with each ping which supers there are. One that lives but owes
the leader confirmations for too long is voted upon too, and no sign of life takes
that vote back while it does.

A super follows the order by delivery. From that it knows whom to look after and
what happened (`history`), has the ring healed and evened out (`healing`,
`balancing`), and ends loads that nobody looks after (`orphans`); of the router that leads it
asks only who lags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from crescando.process import Output, earliest
from crescando.roles.balancing import Balancer, Balancing, BalancingPolicy
from crescando.roles.following import Following, configure
from crescando.roles.healing import Healer, Healing, HealingPolicy
from crescando.roles.history import History
from crescando.roles.messages import Ping, Pong, Retire, Watch, Weighs
from crescando.roles.orphans import Configured, Orphans
from crescando.roles.retirement import Retirement
from crescando.routing.base import Config, ExpelledEvent, Multicast, StableEvent
from crescando.routing.batch import CONFIG, Delivery, Message
from crescando.routing.ecast.messages import ConfigRequest, ConfigState
from crescando.routing.rubberband.happenings import Began, Happening
from crescando.routing.rubberband.messages import Suspect, Trust
from crescando.types import ProcessId


@dataclass(frozen=True, slots=True)
class SuperTiming:
    """Times of one super.

    Parameters
    ----------
    suspicion_s : float
        Silence after which a process is suspected.
    ping_s : float
        Spacing of pings.
    refusals : int
        Refused sessions in a row that count as silence, of a process that has been heard.
    probe_s : float
        Spacing of attempts to reach a process that has refused a session.
    """

    suspicion_s: float = 3.0
    ping_s: float = 0.5
    refusals: int = 3
    probe_s: float = 0.1


@dataclass(slots=True)
class _Watched:
    """What is known of one process."""

    heard_s: float
    refusals: int = 0
    is_connected: bool = False
    was_heard: bool = False
    is_accused: bool = False
    is_lagging: bool = False
    is_full: bool = False


class SuperConfig(Config, Configured, Protocol):
    """What a super needs of a configuration beside its routing."""


C = TypeVar("C", bound=SuperConfig)

Observe = Callable[[C, Message, C], tuple[Happening, ...]]
"""Says what a message did, given the configuration before and after it."""


class Super(Generic[C]):
    """One super process's core.

    Parameters
    ----------
    me : ProcessId
    multicast : Multicast
    config : Config or None
        The configuration before the first message; None for one that joins.
    config_type : type
    observe : callable
        Gives what a message did, to be told to whoever asks.
    healer : Healer
    healing : HealingPolicy
    balancer : Balancer
    balancing : BalancingPolicy
    timing : SuperTiming
    """

    def __init__(
        self,
        me: ProcessId,
        *,
        multicast: Multicast,
        config: C | None,
        config_type: type[C],
        observe: Observe[C],
        healer: Healer[C],
        healing: HealingPolicy | None = None,
        balancer: Balancer[C],
        balancing: BalancingPolicy | None = None,
        timing: SuperTiming | None = None,
    ) -> None:
        self.me = me
        self.timing = timing or SuperTiming()
        self.multicast = multicast
        self.suspicions = 0
        self.following = Following(me, config, config_type)
        self.history = History()
        self.healing: Healing[C] = Healing(me, healer, healing or HealingPolicy())
        self.balancing: Balancing[C] = Balancing(me, balancer, balancing or BalancingPolicy())
        self.orphans = Orphans(me, self.healing.policy.delay_s)
        self._retirement = Retirement(self.following, multicast)
        self._observe = observe
        self._has_news = False
        self._watched: dict[ProcessId, _Watched] = {}
        self._sessions: set[ProcessId] = set()
        self._supers: tuple[ProcessId, ...] = ()
        self._storages: tuple[ProcessId, ...] = ()
        self._ping_at_s = 0.0
        self._out = Output()

    @property
    def full(self) -> tuple[ProcessId, ...]:
        """The storage processes that hold more than their watermarks allow, as far as it has heard."""
        return tuple(process for process, watched in self._watched.items() if watched.is_full)

    @property
    def n_watched(self) -> int:
        """How many processes it looks after."""
        return len(self._watched)

    @property
    def n_silent(self) -> int:
        """How many of them have no session with it."""
        return len(self._watched.keys() - self._sessions)

    def has_heard(self, process: ProcessId) -> bool:
        """Say whether a process has ever given a sign of life, since it became a member."""
        return process in self._watched and self._watched[process].was_heard

    # Inputs.

    def on_start(self, now_s: float) -> None:
        self.multicast.on_start(now_s)
        self.following.join(self.multicast)
        if self.following.is_joined:
            self._look_at_members(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._sessions.add(peer)
        if peer in self._watched:
            watched = self._watched[peer]
            watched.is_connected, watched.refusals = True, 0
            # A probe, not a sign of life: only an answer is one.
            self._ping(peer, now_s)
        else:
            self.multicast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._sessions.discard(peer)
        self.history.end_session(peer)
        self._retirement.end_session(peer)
        if peer in self._watched:
            self._watched[peer].is_connected = False
            self._connect(peer)
        else:
            self.multicast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        if peer in self._watched:
            watched = self._watched[peer]
            watched.refusals += 1
            if not watched.is_accused:
                # Nobody answers there: find out soon whether that was a moment's matter.
                self._ping_at_s = min(self._ping_at_s, now_s + self.timing.probe_s)
        else:
            self.multicast.on_refused(peer, now_s)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Supers execute nothing."""

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take a message of a router or a watched process."""
        match message:
            case Ping():
                self._out.send.append((peer, Pong(message.sent_s)))
            case Pong():
                if peer in self._watched:
                    self._watched[peer].is_full = message.is_full
                    self._hear(peer, now_s)
            case ConfigState():
                if peer == self.multicast.lead:
                    self._on_lagging(message.lagging)
            case Weighs():
                move = self.balancing.take(self.following.config, peer, message)
                if move is not None and self.healing.is_idle:
                    self.healing.submitted(configure(self.multicast, self.me, move))
            case Retire():
                self._out.send += self._retirement.take(peer, message)
            case Watch():
                self.history.watch(peer, message)
            case _:
                self.multicast.on_message(peer, message, now_s)

    def flush(self, now_s: float) -> Output:
        """Ping, judge silence, and send."""
        for event in self.multicast.take_events():
            if isinstance(event, ExpelledEvent):
                self._out.stop = self.following.expel(event)
            elif isinstance(event, Delivery):
                self._follow(event, now_s)
            elif isinstance(event, StableEvent):
                refused = [exception.number for exception in event.exceptions]
                self.healing.settle(event.upto, refused, now_s)
                self._out.stop = self._out.stop or self.following.settle(event)
                self._out.send += self._retirement.settle(event)
        is_due = self.healing.wake_at_s is not None and now_s >= self.healing.wake_at_s
        if now_s >= self._ping_at_s:
            self._forgive_own_pause(now_s)
            self._look_after(now_s)
            self._ping_at_s = now_s + self.timing.ping_s
            is_due = True
            if self.following.is_joined:
                self._out.send += self.balancing.look(self.following.config, self._supers, now_s)
        if (is_due or self._has_news) and self.following.is_joined and not self._out.stop:
            self._heal(now_s)
        if self.following.is_joined and not self._out.stop:
            for over in self.orphans.look(self.following.config, self._supers, now_s):
                configure(self.multicast, self.me, over)
        self._out.send.extend(self.history.answers())
        protocol = self.multicast.flush(now_s)
        out, self._out = self._out, Output()
        out.reset += protocol.reset
        out.connect += protocol.connect
        out.send += protocol.send
        out.wake_at_s = earliest(
            protocol.wake_at_s, self._ping_at_s, self.healing.wake_at_s, self.orphans.wake_at_s
        )
        return out

    # Looking after processes.

    def _watch(self, processes: Iterable[ProcessId], now_s: float) -> None:
        for process in processes:
            if process not in self._watched and process != self.me:
                # A client's session may be older than the news that it is a member.
                self._watched[process] = _Watched(now_s, is_connected=process in self._sessions)
                self._connect(process)

    def _connect(self, process: ProcessId) -> None:
        # Of two supers the first in name asks, so that they share one session.
        if process.role != "client" and (process.role != self.me.role or process > self.me):
            self._out.connect.append(process)

    def _ping(self, process: ProcessId, now_s: float) -> None:
        there = (self._supers, self._storages) if process.role == "client" else ()
        self._out.send.append((process, Ping(now_s, *there)))

    def _follow(self, part: Delivery, now_s: float) -> None:
        """Take delivered configuration messages; supers are sent no others."""
        for index in range(len(part)):
            if part.kind.item(index) == CONFIG:
                self._take(part, index)
        self._look_at_members(now_s)

    def _take(self, part: Delivery, index: int) -> None:
        """Follow a configuration message, and remember what it did."""
        message, before = self.following.take(part, index)
        at, self._has_news = self.following.position, True
        if message.sender == self.me:
            self.healing.delivered(message.number)
        if before is None:
            self.history.begin(at)
        else:
            happenings = self._observe(before, message, self.following.config)
            self.history.add(at, happenings)
            for what in happenings:
                if isinstance(what, Began):
                    self.healing.began(what.transformation)

    def _look_at_members(self, now_s: float) -> None:
        members = self.following.config.members()
        for process in [known for known in self._watched if known not in members]:
            del self._watched[process]
        before = self._supers, self._storages
        self._supers = tuple(sorted(process for process in members if process.role == self.me.role))
        self._storages = tuple(sorted(process for process in members if process.role == "storage"))
        self._watch(sorted(members), now_s)
        if (self._supers, self._storages) != before:
            # Clients need sessions with a newcomer before it answers them.
            for process, watched in self._watched.items():
                if process.role == "client" and watched.is_connected:
                    self._ping(process, now_s)

    def _hear(self, peer: ProcessId, now_s: float) -> None:
        watched = self._watched[peer]
        watched.heard_s, watched.refusals, watched.was_heard = now_s, 0, True
        if watched.is_accused and not watched.is_lagging:
            watched.is_accused = False
            configure(self.multicast, self.me, Trust(peer))

    def _on_lagging(self, lagging: tuple[ProcessId, ...]) -> None:
        """Take what the leader says of those that owe it confirmations."""
        for process, watched in self._watched.items():
            watched.is_lagging = process in lagging
            if watched.is_lagging:
                self._accuse(process, watched)

    def _accuse(self, process: ProcessId, watched: _Watched) -> None:
        if not watched.is_accused:
            watched.is_accused = True
            self.suspicions += 1
            configure(self.multicast, self.me, Suspect(process))

    def _forgive_own_pause(self, now_s: float) -> None:
        """Do not hold a pause of this very process against those it watches."""
        overdue_s = now_s - self._ping_at_s if self._ping_at_s else 0.0
        if overdue_s > self.timing.ping_s:
            for watched in self._watched.values():
                watched.heard_s = min(now_s, watched.heard_s + overdue_s)

    def _look_after(self, now_s: float) -> None:
        if self.multicast.lead is not None:
            self._out.send.append((self.multicast.lead, ConfigRequest(wants_config=False)))
        for process, watched in self._watched.items():
            if watched.is_connected:
                self._ping(process, now_s)
            else:
                self._connect(process)
            is_silent = now_s - watched.heard_s > self.timing.suspicion_s
            is_gone = watched.was_heard and watched.refusals >= self.timing.refusals
            if is_silent or is_gone:
                self._accuse(process, watched)

    # Healing.

    def _heal(self, now_s: float) -> None:
        """Have the ring healed, if that is for this super to do now."""
        self._has_news = False
        avoided = frozenset(
            process
            for process, watched in self._watched.items()
            if process.role == "storage" and (watched.is_accused or watched.is_full or not watched.was_heard)
        )
        cure = self.healing.look(self.following.config, self._supers, avoided, now_s)
        if cure is not None and self.multicast.lead is not None:
            self.healing.submitted(configure(self.multicast, self.me, cure))
