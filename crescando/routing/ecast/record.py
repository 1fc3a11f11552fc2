"""The order as one router holds it: what it has learned, what is not stable, and what is not routed.

Rules of the file: a leader routes what it learns, at once; a follower keeps it
unrouted, and drops it when its leader says that it is stable. One that is to
lead, or to give a snapshot, makes up for that in slices of bounded work, so
that between them it hears and says what the others wait for: a destination that
confirms nothing may have left a hundred thousand instances. Till then it does
not lead. Nothing is known here of sessions, and nothing is sent.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from crescando.routing.base import Config
from crescando.routing.ecast.backlog import Backlog, Refusing
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import Batch, StableUpTo
from crescando.routing.ecast.mseq import Learned, MSeq, Run
from crescando.routing.ecast.notices import notice_of
from crescando.routing.ecast.snapshot import RouterSnapshot, restore, take_snapshot
from crescando.routing.ecast.stability import Window, entry_of
from crescando.types import ProcessId

C = TypeVar("C", bound=Config)


class Record(Generic[C]):
    """What one router holds of the order.

    Parameters
    ----------
    config : Config
        The configuration before the first message.
    limits : RouterLimits

    Attributes
    ----------
    mseq : MSeq
    window : Window
        What is routed and not stable.
    due : dict of ProcessId to None
        Destinations for which there may be something to send.
    settled : dict of ProcessId to None
        Senders for which there may be something to answer.
    hint : StableUpTo or None
        What the leader has said last, if it tells of more than is learned.
    """

    def __init__(self, config: C, limits: RouterLimits) -> None:
        self.mseq: MSeq[C] = MSeq(config)
        self.window: Window[C] = Window(limits.lag_bytes)
        self.due: dict[ProcessId, None] = {}
        self.settled: dict[ProcessId, None] = {}
        self.hint: StableUpTo | None = None
        self._limits = limits
        self._config_type = type(config)
        self._backlog: Backlog[C] = Backlog()
        self._refusing = Refusing()
        self._hinted = 0

    @property
    def n_pending(self) -> int:
        """How much is not stable, as far as this router knows; 0 when all is at rest."""
        return self.window.n_pending + len(self._backlog)

    # Learning.

    def learn(self, instance: int, batch: Batch, *, routes: bool) -> Learned[C]:
        """Take a decided instance in, and route it now or later."""
        window = self.window
        if window.lost:
            window.take_acknowledged(batch.submissions)
        learned = self.mseq.learn(instance, batch, defers=True)
        if routes:
            self._admit(instance, learned)
        else:
            self._backlog.keep(instance, learned)
            if learned.suspected:
                self._await_no_more(learned.suspected)
        return learned

    def _admit(self, instance: int, learned: Learned[C]) -> None:
        """Route an instance, and take it into the send window."""
        self._enter_refusals(instance, learned.runs)
        entry = entry_of(instance, learned.runs, learned.suspected)
        self.due |= dict.fromkeys(entry.last)
        settled = self.window.add(entry)
        if settled:
            self.settle(settled)
        if learned.suspected:
            self._await_no_more(learned.suspected)

    def _enter_refusals(self, instance: int, runs: list[Run[C]]) -> None:
        if self.mseq.enter_refusals(runs):
            self._refusing.note(instance)

    def _await_no_more(self, suspected: set[ProcessId]) -> None:
        for process in sorted(suspected):
            self.settle(self.window.suspect(process))

    def settle(self, senders: set[ProcessId]) -> None:
        """Note that something has become of messages of some senders."""
        for sender in sorted(senders):
            self.settled[sender] = None

    # What was not routed.

    @property
    def is_routed(self) -> bool:
        """Whether all that was learned is in the window, or stable."""
        return not self._backlog

    def route_slice(self) -> None:
        """Make up for some of what was not routed."""
        limits = self._limits
        for instance, learned in self._backlog.take(limits.slice_instances, limits.slice_messages):
            self._admit(instance, learned)
        if self.is_routed:
            # What declared a process failed may have been dropped before what awaits it.
            self.settle(self.window.await_members(self.mseq.config.is_member))

    # Stability.

    def hear(self, hint: StableUpTo) -> None:
        """Remember what the leader says is stable."""
        self.hint, self._hinted = hint, 0

    def take_hint(self, learned: int) -> bool:
        """Drop what the leader has said is stable, up to what is learned; True if there is anything new."""
        hint = self.hint
        if hint is None:
            return False
        upto = min(hint.instance, learned)
        if upto == hint.instance:
            self.hint = None
        if upto <= self._hinted:
            return False
        self._hinted = upto
        self.settle(self.window.stabilise(upto, hint.lost, frozenset(hint.unstable), hint.trimmed))
        for instance, runs in self._backlog.drop(upto, hint):
            self._enter_refusals(instance, runs)
        return True

    def notice(self, learned: int) -> StableUpTo:
        """Give what followers must know to drop what they have learned."""
        return notice_of(learned, self.window, self._refusing)

    # Snapshots.

    def snapshot(self) -> RouterSnapshot:
        """Give all of this as a value; everything must be routed."""
        return take_snapshot(self.mseq, self.window)

    def install(self, instance: int, snapshot: RouterSnapshot) -> None:
        """Hold what another router held after an instance; the outboxes are new and closed."""
        self.mseq, self.window = restore(snapshot, self._config_type, Window(self._limits.lag_bytes))
        self._backlog = Backlog()
        self._refusing.begin(instance + 1)
