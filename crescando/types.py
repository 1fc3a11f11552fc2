"""Words shared by every layer: processes, positions, ring ranges, verdicts.

Nothing here behaves; nothing here imports another module of the package.
"""

from __future__ import annotations

from enum import Enum, IntEnum
from typing import Annotated, NamedTuple, NewType

import msgspec

Number = Annotated[int, msgspec.Meta(ge=-(1 << 63) + 1, le=(1 << 63) - 1)]
"""A number from outside that goes into a column of 64 bits, or is negated before."""

Position = NewType("Position", int)
"""A place in the one global order: ``instance << 20 | index`` (RB13 §5.4, "timestamp")."""

INDEX_BITS = 20
"""Low bits of a position that number the messages of one instance."""

MESSAGES_PER_INSTANCE_MAX = 1 << INDEX_BITS
"""More messages than this do not fit one instance, since positions would collide."""

NO_POSITION = Position(-1)
"""Below every position; what a process has delivered before its first message."""

RING_MAX = (1 << 64) - 1
"""The highest ring position; the ring is all of ``uint64``."""


class ProcessId(NamedTuple):
    """The identity of one life of a process.

    A restarted process is a new incarnation and never the old member again:
    a diskless acceptor must not forget a promise.
    """

    role: str
    node: str
    incarnation: int = 0

    def __str__(self) -> str:
        return f"{self.role}/{self.node}#{self.incarnation}"


AT_COMMIT = -2
"""The epoch of a load whose commit says of which job and epoch it is; it is no repeat before that."""

NAMELESS = "~"
"""How names of jobs begin that nobody gave: nobody can come again with one."""


class LoadId(NamedTuple):
    """Which atomic load: the process and number of the message that began it; unique for ever."""

    sender: ProcessId
    number: int

    def __str__(self) -> str:
        return f"{self.sender}:{self.number}"


class KeyRange(NamedTuple):
    """A *closed* range ``[low, high]`` of ring positions, never wrapping around."""

    low: Annotated[int, msgspec.Meta(ge=0)]
    high: Annotated[int, msgspec.Meta(ge=0)]


FULL_RING = KeyRange(0, RING_MAX)
"""Every ring position."""

Scope = tuple[KeyRange, ...]
"""Disjoint ring ranges, ascending, for which one destination answers or reports."""


class MessageKind(IntEnum):
    """What a routed message is, as the routing header carries it."""

    READ = 1
    WRITE = 2
    CONFIG = 3


class Verdict(Enum):
    """What became of a message that did not simply become stable.

    Void and refused mean *applied no*; lost means *unknown*.
    """

    VOID = "void"
    """The sender was not a member at the message's position."""
    REFUSED = "refused"
    """The plug-in, catalog or layout refused it, alike at every router."""
    LOST = "lost"
    """Some scope was confirmed by no process before all of its owners were suspected."""


def position(instance: int, index: int) -> Position:
    """Give the position of the `index`-th message of an instance."""
    return Position(instance << INDEX_BITS | index)


def instance_of(at: int) -> int:
    """Give the instance a position lies in."""
    return at >> INDEX_BITS
