"""Configs with one bug each, importable by a second process.

All of them are `Broadcast` but for the bug, so that whatever is found is the bug.
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Self

import msgspec
import numpy as np

from crescando.routing.base import Refusal, Routes
from crescando.routing.batch import Message, Submission
from crescando.routing.broadcast import Broadcast
from crescando.routing.rubberband.messages import Suspect, decode_message
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId, Scope

MEMBERS = frozenset(
    {
        *(ProcessId("client", f"c{i}", 1) for i in range(2)),
        *(ProcessId("storage", f"s{i}", 1) for i in range(4)),
        *(ProcessId("super", f"u{i}", 1) for i in range(2)),
    }
)
GHOST = ProcessId("storage", "ghost", 1)

Destinations = Mapping[ProcessId, Scope]


def storages(config: Broadcast) -> list[ProcessId]:
    return sorted(process for process in config.processes if process.role == "storage")


@dataclass(frozen=True)
class ReadsChange(Broadcast):
    """A base for bugs in where reads go."""

    def destset(self, message: Message) -> Destinations:
        found = super().destset(message)
        return self.read(message) if found and message.kind is MessageKind.READ else found

    def read(self, message: Message) -> Destinations:
        raise NotImplementedError


@dataclass(frozen=True)
class WritesChange(Broadcast):
    """A base for bugs in where writes go."""

    def destset(self, message: Message) -> Destinations:
        found = super().destset(message)
        return self.write(message) if len(found) > 1 and message.kind is MessageKind.WRITE else found

    def write(self, message: Message) -> Destinations:
        raise NotImplementedError


class Random(ReadsChange):
    def read(self, message: Message) -> Destinations:
        return {random.choice(storages(self)): (FULL_RING,)}


class Clock(ReadsChange):
    def read(self, message: Message) -> Destinations:
        here = storages(self)
        return {here[time.monotonic_ns() // 64 % len(here)]: (FULL_RING,)}


class Hashing(ReadsChange):
    def read(self, message: Message) -> Destinations:
        here = storages(self)
        return {here[hash((message.sender, message.number)) % len(here)]: (FULL_RING,)}


class UnsortedEncoding(Broadcast):
    def encode(self) -> bytes:
        return msgspec.msgpack.encode(list(self.processes))


class Mutating:
    """Keeps a set and changes it in place."""

    def __init__(self, processes: set[ProcessId]) -> None:
        self.processes = processes

    @property
    def _inner(self) -> Broadcast:
        return Broadcast(frozenset(self.processes))

    def is_member(self, process: ProcessId) -> bool:
        return process in self.processes

    def members(self) -> frozenset[ProcessId]:
        return frozenset(self.processes)

    def destset(self, message: Message) -> Destinations:
        return self._inner.destset(message)

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        return self._inner.suspects(message)

    def apply(self, message: Message) -> Self:
        after = self._inner.apply(message).processes
        self.processes &= after
        self.processes |= after
        return self

    def encode(self) -> bytes:
        return self._inner.encode()

    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(set(Broadcast.decode(data).processes))

    def digest(self) -> bytes:
        return self._inner.digest()


class Stranger(WritesChange):
    def write(self, message: Message) -> Destinations:
        return {**super(WritesChange, self).destset(message), GHOST: ()}


class SuspectsStranger(Broadcast):
    def suspects(self, message: Message) -> frozenset[ProcessId]:
        found = super().suspects(message)
        return found | {GHOST} if found else found


class Overlapping(WritesChange):
    def write(self, message: Message) -> Destinations:
        half = KeyRange(0, RING_MAX // 2)
        first, second = storages(self)[:2]
        return {first: (FULL_RING,), second: (half,)}


class Missing(WritesChange):
    def write(self, message: Message) -> Destinations:
        middle = RING_MAX // 2
        first, second = storages(self)[:2]
        # One position too few, at the very end.
        return {first: (KeyRange(0, middle),), second: (KeyRange(middle + 1, RING_MAX - 1),)}


class UnscopedRead(ReadsChange):
    def read(self, message: Message) -> Destinations:
        return {process: (FULL_RING,) if i == 0 else () for i, process in enumerate(storages(self))}


class ScopedConfiguration(Broadcast):
    def destset(self, message: Message) -> Destinations:
        found = super().destset(message)
        return dict.fromkeys(found, (FULL_RING,)) if message.kind is MessageKind.CONFIG else found


@dataclass(frozen=True)
class LosesState(ReadsChange):
    """Moves reads with each suspicion, and forgets to encode how often."""

    turns: int = 0

    def read(self, message: Message) -> Destinations:
        here = storages(self)
        return {here[self.turns % len(here)]: (FULL_RING,)}

    def apply(self, message: Message) -> Self:
        after = super().apply(message)
        return after if after is self else replace(after, turns=self.turns + 1)


class LatestFailed(ReadsChange):
    """Looks at what failed since, instead of at its own prefix."""

    failed: ClassVar[set[ProcessId]] = set()

    def read(self, message: Message) -> Destinations:
        live = [process for process in storages(self) if process not in self.failed]
        if not live:
            raise Refusal("no storage process is left")
        return {live[0]: (FULL_RING,)}

    def apply(self, message: Message) -> Self:
        after = super().apply(message)
        self.failed.update(self.processes - after.processes)
        return after


@dataclass(frozen=True)
class Forgetful(Broadcast):
    """Keeps the last suspicion only: whoever failed before it is back."""

    failed: frozenset[ProcessId] = frozenset()
    everyone: frozenset[ProcessId] = MEMBERS

    def apply(self, message: Message) -> Self:
        after = super().apply(message)
        gone = self.processes - after.processes
        if not gone:
            return after
        return replace(after, processes=(after.processes | self.failed) - gone, failed=gone)

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((sorted(self.processes), sorted(self.failed)))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        processes, failed = msgspec.msgpack.decode(
            data, type=tuple[tuple[ProcessId, ...], tuple[ProcessId, ...]]
        )
        return cls(frozenset(processes), frozenset(failed))


class SuspectsTooFew(Broadcast):
    """Does not tell that who leaves is gone."""

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        return super().suspects(message) - {message.sender}


class Raising(Broadcast):
    def destset(self, message: Message) -> Destinations:
        if message.kind is MessageKind.CONFIG:
            decode_message(message.payload)
        return super().destset(message)


class RefusesLate(Broadcast):
    def apply(self, message: Message) -> Self:
        match decode_message(message.payload):
            case Suspect(accused) if accused.role == "super":
                raise Refusal("supers do not fail")
        return super().apply(message)


class Slow(ReadsChange):
    def read(self, message: Message) -> Destinations:
        return {storages(self)[sum(range(400_000)) * 0]: (FULL_RING,)}


class Copying(Broadcast):
    def _after(self, message: Message) -> frozenset[ProcessId]:
        try:
            return super()._after(message)
        except Refusal:
            return self.processes

    def apply(self, message: Message) -> Self:
        return replace(super().apply(message))


class OtherType(Broadcast):
    def apply(self, message: Message) -> Any:
        return Broadcast(super().apply(message).processes)


class ConstantDigest(Broadcast):
    def digest(self) -> bytes:
        return bytes(16)


class ShortDigest(Broadcast):
    def digest(self) -> bytes:
        return super().digest()[:8]


class Disagreeing(Broadcast):
    def is_member(self, process: ProcessId) -> bool:
        return super().is_member(process) or process == GHOST or process.node == "s0"


class WrongRuns(Broadcast):
    """Routes a run by its first message."""

    def route(self, batch: Submission, start: int, stop: int) -> Routes:
        return Routes(np.zeros(stop - start, np.int64), (self.destset(batch.message(start)),))


class CannotDecode(Broadcast):
    @classmethod
    def decode(cls, data: bytes) -> Self:
        return cls(frozenset(msgspec.msgpack.decode(data, type=list[str])))  # type: ignore[arg-type]


@dataclass(frozen=True)
class Numbered(Broadcast):
    """Differs from one genesis to the next."""

    counter: ClassVar[Any] = itertools.count()
    number: int = field(default_factory=lambda: next(Numbered.counter))

    def encode(self) -> bytes:
        return msgspec.msgpack.encode((sorted(self.processes), self.number))


def genesis_of(kind: Callable[..., Any]) -> Callable[[], Any]:
    """Give the maker of a plug-in's first Config."""
    return lambda: kind(set(MEMBERS) if kind is Mutating else MEMBERS)
