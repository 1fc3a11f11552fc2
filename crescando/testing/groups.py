"""A small Config for simulations of the order alone: processes, in groups that change.

The least that still makes every rule of the order matter: destinations and
scopes depend on all earlier configuration messages, some messages are refused,
processes join, leave, move and are declared failed.
"""

from __future__ import annotations

import hashlib
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Message
from crescando.testing.groups_judge import GroupsTwin, View, view_of
from crescando.testing.scenario import Draft
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId, Scope


class Enter(msgspec.Struct, frozen=True, array_like=True, tag="enter"):
    """The sender joins, into the smallest group."""


class Leave(msgspec.Struct, frozen=True, array_like=True, tag="leave"):
    """The sender leaves."""


class Accuse(msgspec.Struct, frozen=True, array_like=True, tag="accuse"):
    """Another process has failed; one word is enough."""

    accused: ProcessId


class Move(msgspec.Struct, frozen=True, array_like=True, tag="move"):
    """A process changes its group."""

    process: ProcessId
    group: int


_DECODER = msgspec.msgpack.Decoder(Enter | Leave | Accuse | Move)
_STATE = msgspec.msgpack.Decoder(tuple[tuple[tuple[ProcessId, ...], ...], bool])


@dataclass(frozen=True, slots=True)
class Groups:
    """Route a write to all of one group, and a read to one of it.

    Parameters
    ----------
    groups : tuple of tuple of ProcessId
        Each ascending; a data message's `table` names one by its index. The
        members of a group of n hold the n-ths of the ring, in order.
    tells_all : bool
        Whether everyone is told of every change; else only the members, before and
        after, of the groups that it changes: others may lag far behind it.
    """

    groups: tuple[tuple[ProcessId, ...], ...]
    tells_all: bool = True

    @classmethod
    def of(cls, processes: Sequence[ProcessId], n_groups: int, *, tells_all: bool = True) -> Self:
        """Deal processes out to groups."""
        dealt: list[list[ProcessId]] = [[] for _ in range(n_groups)]
        for index, process in enumerate(sorted(processes)):
            dealt[index % n_groups].append(process)
        return cls(tuple(tuple(group) for group in dealt), tells_all)

    def is_member(self, process: ProcessId) -> bool:
        """Say whether a process is in some group."""
        return any(process in group for group in self.groups)

    def members(self) -> frozenset[ProcessId]:
        """Give everyone."""
        return frozenset(process for group in self.groups for process in group)

    def destset(self, message: Message) -> Mapping[ProcessId, Scope]:
        """Give the group's members, or those who are told of a configuration message.

        Raises
        ------
        Refusal
            If the group is empty or unknown, or the change makes no sense.
        """
        if message.kind is MessageKind.CONFIG:
            return dict.fromkeys(sorted(self._told(self._after(message))), ())
        if not 0 <= message.table < len(self.groups) or not self.groups[message.table]:
            raise Refusal(f"there is nobody in group {message.table}")
        group = self.groups[message.table]
        if message.kind is MessageKind.READ:
            return {group[message.replica_offset % len(group)]: message.ranges}
        return {
            process: tuple(_overlap(message.ranges, index, len(group))) for index, process in enumerate(group)
        }

    def apply(self, message: Message) -> Self:
        """Give the groups after a configuration message."""
        return self._after(message)

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        """Give the leaver or the accused."""
        return self.members() - self._after(message).members()

    def encode(self) -> bytes:
        """Give the canonical encoding."""
        return msgspec.msgpack.encode((self.groups, self.tells_all))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Give what `encode` wrote."""
        return cls(*_STATE.decode(data))

    def digest(self) -> bytes:
        """Give a digest of the encoding."""
        return hashlib.blake2b(self.encode(), digest_size=16).digest()

    def _told(self, after: Self) -> set[ProcessId]:
        pairs = zip(self.groups, after.groups, strict=True)
        concerned = [pair for pair in pairs if self.tells_all or pair[0] != pair[1]]
        return {process for pair in concerned for group in pair for process in group}

    def _after(self, message: Message) -> Self:
        sender, members = message.sender, self.members()
        try:
            body = _DECODER.decode(message.payload)
        except msgspec.MsgspecError:
            raise Refusal("this is no change of groups") from None
        match body:
            case Enter() if sender not in members and message.number == 1:
                smallest = min(range(len(self.groups)), key=lambda index: (len(self.groups[index]), index))
                return self._moved(sender, smallest)
            case _ if sender not in members:
                return self
            case Leave() if len(members) > 1:
                return self._moved(sender, None)
            case Accuse(accused) if accused in members and accused != sender:
                return self._moved(accused, None)
            case Move(process, group) if process in members and 0 <= group < len(self.groups):
                return self._moved(process, group)
        raise Refusal(f"{body} makes no sense now")

    def _moved(self, process: ProcessId, into: int | None) -> Self:
        groups = [{member for member in group if member != process} for group in self.groups]
        if into is not None:
            groups[into].add(process)
        return replace(self, groups=tuple(tuple(sorted(group)) for group in groups))


def _overlap(ranges: Scope, index: int, n: int) -> Scope:
    """Give what the `index`-th of `n` equal parts of the ring has of some ranges."""
    first, last = index * (RING_MAX + 1) // n, (index + 1) * (RING_MAX + 1) // n - 1
    cut = (KeyRange(max(low, first), min(high, last)) for low, high in ranges)
    return tuple(piece for piece in cut if piece.low <= piece.high)


class GroupsScenario:
    """Processes that send each other small messages, and move about; a `Scenario`."""

    judge = GroupsTwin()

    def founders(self, rng: random.Random) -> tuple[ProcessId, ...]:
        return tuple(ProcessId("member", f"m{n}", 1) for n in range(1, rng.randint(3, 6) + 1))

    def genesis(self, rng: random.Random, founders: Sequence[ProcessId]) -> Config:
        n_groups = rng.randint(1, 3)
        return Groups.of(founders, n_groups, tells_all=n_groups < 3)

    def view(self, config: Config) -> View:
        assert isinstance(config, Groups)
        return view_of(config.groups, tells_all=config.tells_all)

    def join(self, process: ProcessId) -> bytes:
        return msgspec.msgpack.encode(Enter())

    def suspect(self, process: ProcessId) -> bytes:
        return msgspec.msgpack.encode(Accuse(process))

    def draw(self, rng: random.Random, me: ProcessId, processes: Sequence[ProcessId]) -> Draft:
        roll = rng.random()
        if roll < 0.12:
            return Draft(MessageKind.CONFIG, -1, (), self._change(rng, processes))
        kind = MessageKind.WRITE if roll < 0.7 else MessageKind.READ
        table = rng.choice((0, 0, 0, 1, 1, 2)) if rng.random() < 0.95 else rng.choice((-1, 7))
        low, high = sorted((rng.getrandbits(64), rng.getrandbits(64)))
        ranges = rng.choice(((FULL_RING,), (KeyRange(low, high),), (KeyRange(low, low),)))
        return Draft(kind, table, ranges, rng.randbytes(rng.choice((0, 3, 40))))

    def _change(self, rng: random.Random, processes: Sequence[ProcessId]) -> bytes:
        roll = rng.random()
        if roll < 0.05:
            return b"\xc1 is no message"
        if roll < 0.09:
            return msgspec.msgpack.encode(Leave())
        if roll < 0.12:
            return msgspec.msgpack.encode(Enter())
        return msgspec.msgpack.encode(Move(rng.choice(processes), rng.randrange(4)))
