"""What may happen to a cluster, as values that travel: its members, its ring, its tables."""

from __future__ import annotations

from typing import Literal

import msgspec

from crescando.routing.rubberband.keyspace import Copy, Transformation
from crescando.routing.rubberband.messages import MessageId
from crescando.types import ProcessId, Scope


class Joined(msgspec.Struct, frozen=True, array_like=True, tag="joined"):
    """A super joined, or a storage process, on standby."""

    process: ProcessId


class Left(msgspec.Struct, frozen=True, array_like=True, tag="left"):
    """A process left by its own will."""

    process: ProcessId


class Failed(msgspec.Struct, frozen=True, array_like=True, tag="failed"):
    """A majority of the supers has voted a process out."""

    process: ProcessId


class Unavailable(msgspec.Struct, frozen=True, array_like=True, tag="unavailable"):
    """A process does not answer, and is the last of some ranges that lives.

    It stays a member; reads of `scope` are refused, and so are writes of
    whatever it holds, until it answers.
    """

    process: ProcessId
    scope: Scope


class Available(msgspec.Struct, frozen=True, array_like=True, tag="available"):
    """A process that did not answer does so again, or is needed no more."""

    process: ProcessId


class Began(msgspec.Struct, frozen=True, array_like=True, tag="began"):
    """A change of the keyspace has begun: its receivers are sent what is written from here on."""

    change: MessageId
    transformation: Transformation
    copies: tuple[Copy, ...]


class Readied(msgspec.Struct, frozen=True, array_like=True, tag="readied"):
    """One copy of a change has arrived."""

    change: MessageId
    copy: int


class Ended(msgspec.Struct, frozen=True, array_like=True, tag="ended"):
    """A change of the keyspace is done: its ring is the ring."""

    change: MessageId


class Dropped(msgspec.Struct, frozen=True, array_like=True, tag="dropped"):
    """A change of the keyspace will not be: the ring stays as it was."""

    change: MessageId
    reason: str


class TableChanged(msgspec.Struct, frozen=True, array_like=True, tag="table"):
    """A table was created, altered or dropped."""

    name: str
    how: Literal["created", "altered", "dropped"]


Happening = (
    Joined | Left | Failed | Unavailable | Available | Began | Readied | Ended | Dropped | TableChanged
)


class Event(msgspec.Struct, frozen=True, array_like=True):
    """Something that happened, and at which position of the order."""

    position: int
    what: Happening
