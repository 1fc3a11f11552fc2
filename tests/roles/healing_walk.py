"""Random failures of a cluster that is nothing but its configuration, and supers that have it healed.

Rules of the file: there is an order and no network. Every super follows the
order at a pace of its own, its messages are ordered in turn after a while, and
receivers are ready after a while, unless somebody dies. What the judge knows it
has seen ordered: it shares no rule with what is tried, beside the configuration.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

from crescando.roles.healing import Healer, Healing, HealingPolicy
from crescando.routing.base import Refusal
from crescando.routing.batch import Message
from crescando.routing.rubberband import (
    Contract,
    DropChange,
    Join,
    MessageId,
    Ready,
    Reconfigure,
    Replace,
    Rubberband,
    Suspect,
    Trust,
    decode_message,
)
from crescando.routing.rubberband.healing import RingHealer
from crescando.types import ProcessId
from tests.routing.worlds import config_message, storage, super_

STEP_S = 0.05


@dataclass
class Voter:
    """A super: what it has delivered and submitted, and when it dies."""

    me: ProcessId
    healing: Healing[Rubberband]
    n_delivered: int = 0
    next_number: int = 1
    sent: deque[Message] = field(default_factory=deque)
    accused: set[ProcessId] = field(default_factory=set)


class Walk:
    """One cluster from its first failure until nothing happens any more.

    Parameters
    ----------
    seed : int
    policy : HealingPolicy, optional
    healer : Healer, optional
        What is wrong with a ring and how it is cured; the real one by default.
    """

    def __init__(
        self, seed: int, policy: HealingPolicy | None = None, healer: Healer[Rubberband] | None = None
    ) -> None:
        self.rng = rng = random.Random(seed)
        n = rng.randint(3, 8)
        self.f = rng.randint(1, min(4, n))
        ids = sorted({rng.getrandbits(64) for _ in range(n)})
        self.config = Rubberband.genesis(
            storages=[storage(i) for i in range(n)],
            replication=self.f,
            supers=[super_(i) for i in range(3)],
            ring_ids=ids,
        )
        self.policy = policy or HealingPolicy("replace")
        self.configs = [self.config]
        self.ordered: list[Message] = []
        self.voters = [
            Voter(super_(i), Healing(super_(i), healer or RingHealer(), self.policy)) for i in range(3)
        ]
        self.dead: set[ProcessId] = set()
        self.mute: set[ProcessId] = set()
        self.now_s = 0.0
        self.n_storages = n
        self.violations: list[str] = []
        self.votes: dict[ProcessId, set[ProcessId]] = {}
        self.n_begun = self.n_dropped = self.n_wounds = 0
        self._due: list[tuple[float, Message]] = []
        self._numbers: dict[ProcessId, int] = {}
        self._promised: set[tuple[MessageId, int]] = set()
        self.cramped: set[ProcessId] = set()
        """Those that give up whatever they receive."""

    # What happens.

    def crash(self) -> bool:
        """Let a storage process die of which no range is the last to live; True if one could."""
        able = [p for p in sorted(self.config.storages - self.dead) if self._is_expendable(p)]
        if not able:
            return False
        self.dead.add(self.rng.choice(able))
        return True

    def hush(self) -> None:
        """Let a storage process keep silent for some seconds, also if a range has nobody else."""
        able = sorted(self.config.storages - self.dead - self.mute)
        if able:
            self.mute.add(self.rng.choice(able))

    def crash_super(self) -> None:
        """Let a super die, of which others are left to vote it out."""
        alive = [voter.me for voter in self.voters if voter.me not in self.dead]
        if len(alive) == 3:
            self.dead.add(self.rng.choice(alive))

    def join(self) -> None:
        """Let a storage process join, on standby."""
        me = storage(self.n_storages)
        self.n_storages += 1
        self._submit(me, Join(me))

    def _is_expendable(self, process: ProcessId) -> bool:
        gone = self.dead | self.mute | {process}
        rings = [self.config.ring]
        for ring in rings:
            if any(set(ring.owners(arc)) & self.config.storages <= gone for arc in range(len(ring.arcs))):
                return False
        return True

    # Time.

    def run(self, seconds: float) -> None:
        """Let time pass."""
        for _ in range(round(seconds / STEP_S)):
            self.now_s += STEP_S
            for voter in self.voters:
                if voter.me not in self.dead and voter.me in self.config.supers:
                    self._vote(voter)
                    self._heal(voter)
            self._promise()
            due = [item for item in self._due if item[0] <= self.now_s]
            self._due = [item for item in self._due if item[0] > self.now_s]
            for _, message in sorted(due, key=lambda item: (item[0], item[1].sender, item[1].number)):
                self._order(message)

    def _vote(self, voter: Voter) -> None:
        config = self.configs[voter.n_delivered]
        for process in sorted(config.members()):
            is_silent = process in self.dead | self.mute
            if process == voter.me or is_silent == (process in voter.accused):
                continue
            voter.accused ^= {process}
            self._submit(voter.me, Suspect(process) if is_silent else Trust(process))

    def _heal(self, voter: Voter) -> None:
        reach = min(len(self.ordered), voter.n_delivered + self.rng.choice((0, 1, 1, 5)))
        while voter.n_delivered < reach:
            message = self.ordered[voter.n_delivered]
            voter.n_delivered += 1
            if message.sender == voter.me:
                voter.healing.delivered(message.number)
            body = decode_message(message.payload)
            if isinstance(body, Reconfigure):
                voter.healing.began(body.transformation)
        config = self.configs[voter.n_delivered]
        avoided = frozenset(voter.accused)
        cure = voter.healing.look(config, config.supers, avoided, self.now_s)
        if cure is not None:
            voter.healing.submitted(self._submit(voter.me, cure))

    def _promise(self) -> None:
        """Let receivers be ready some time after their change has begun."""
        for change in self.config.changes:
            for index, copy in enumerate(change.copies):
                if index not in change.ready and (change.id, index) not in self._promised:
                    self._promised.add((change.id, index))
                    body: Ready | DropChange = Ready(change.id, index)
                    if copy.receiver in self.cramped:
                        body = DropChange(change.id, "it is too much")
                    self._submit(copy.receiver, body, self.rng.uniform(0.1, 3.0))

    def _submit(self, sender: ProcessId, body: object, after_s: float | None = None) -> int:
        number = self._numbers[sender] = self._numbers.get(sender, 0) + 1
        delay_s = self.rng.choice((0.05, 0.05, 0.2, 1.0)) if after_s is None else after_s
        waiting = [at_s for at_s, message in self._due if message.sender == sender]
        # A sender's messages are ordered as they were sent.
        at_s = max([self.now_s + delay_s, *waiting])
        message = config_message(sender, body, number)  # type: ignore[arg-type]
        self._due.append((at_s, message))
        return number

    # The order.

    def _order(self, message: Message) -> None:
        body = decode_message(message.payload)
        if message.sender in self.dead | self.mute and isinstance(body, Ready | DropChange):
            if message.sender in self.mute:
                self._due.append((self.now_s + 1.0, message))
            return
        before = self.config
        try:
            before.destset(message)
        except Refusal:
            for voter in self.voters:
                if voter.me == message.sender:
                    voter.healing.settle(message.number - 1, (message.number,), self.now_s)
            return
        if not before.is_member(message.sender) and not isinstance(body, Join):
            return
        after = before.apply(message)
        self._judge(before, message.sender, body, after)
        self.config = after
        self.configs.append(after)
        self.ordered.append(message)

    def _judge(self, before: Rubberband, sender: ProcessId, body: object, after: Rubberband) -> None:
        if isinstance(body, Suspect):
            self.votes.setdefault(body.accused, set()).add(sender)
        elif isinstance(body, Trust):
            self.votes.setdefault(body.accused, set()).discard(sender)
        for process in before.members() - after.members():
            electorate = before.supers - {process}
            if 2 * len(self.votes.get(process, set()) & electorate) <= len(electorate):
                self.violations.append(f"{process} is out, and no majority has voted")
            self.n_wounds += process in before.ring.processes
        if isinstance(body, Reconfigure):
            self.n_begun += 1
            victim = body.transformation.process
            if not isinstance(body.transformation, Replace | Contract):
                self.violations.append(f"{body.transformation} heals nothing")
            elif victim in before.storages or victim not in before.target.processes:
                self.violations.append(f"{body.transformation} replaces one that is whole, or replaced")
        n_gone = len(before.changes) + isinstance(body, Reconfigure) - len(after.changes)
        if n_gone and after.ring == before.ring:
            self.n_dropped += n_gone
        if any(after.storages.isdisjoint(after.ring.owners(arc)) for arc in range(len(after.ring.arcs))):
            self.violations.append("a range has no live owner")
        if after.ring.replication != self.f:
            self.violations.append(f"replication is {after.ring.replication}, not {self.f}")

    # The end.

    @property
    def open_wounds(self) -> frozenset[ProcessId]:
        """The failed processes that hold a position."""
        return frozenset(self.config.ring.processes) - self.config.storages

    @property
    def n_proposed(self) -> int:
        """How many cures all supers have submitted."""
        return sum(voter.healing.proposed for voter in self.voters)
