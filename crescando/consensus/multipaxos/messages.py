"""The messages of Multi-Paxos, named as in Lamport 2001, "Paxos Made Simple".

`V` is the type of values; a value may also be a `Change` of the membership, or
None for a no-op.
"""

from __future__ import annotations

from typing import Any, Generic, TypeVar

import msgspec

from crescando.consensus.base import EPOCH_SHIFT, Ballot
from crescando.consensus.membership import Change, MembershipsState

V = TypeVar("V")
S = TypeVar("S")


class Canvass(msgspec.Struct, frozen=True, array_like=True, tag="canvass"):
    """Pre-vote: would you promise this attempt, were it opened? Binds nobody."""

    attempt: int
    learned: int


class CanvassReply(msgspec.Struct, frozen=True, array_like=True, tag="canvass-reply"):
    """Answer to a pre-vote."""

    attempt: int
    is_granted: bool
    promised: Ballot
    learned: int


class Prepare(msgspec.Struct, frozen=True, array_like=True, tag="prepare"):
    """Phase 1a for every instance from `first` on."""

    ballot: Ballot
    first: int


class Vote(msgspec.Struct, Generic[V], frozen=True, array_like=True):
    """What an acceptor accepted in one instance; `is_chosen` if it knows it decided."""

    instance: int
    ballot: Ballot
    value: V | Change | None
    is_chosen: bool = False


class Promise(msgspec.Struct, Generic[V], frozen=True, array_like=True, tag="promise"):
    """Phase 1b: the votes from `Prepare.first` on, complete above `trimmed`."""

    ballot: Ballot
    votes: tuple[Vote[V], ...]
    learned: int
    trimmed: int


class Accept(msgspec.Struct, Generic[V], frozen=True, array_like=True, tag="accept"):
    """Phase 2a. `chosen` tells that every instance up to it is decided."""

    ballot: Ballot
    instance: int
    value: V | Change | None
    chosen: int


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="accepted"):
    """Phase 2b."""

    ballot: Ballot
    instance: int


class Nack(msgspec.Struct, frozen=True, array_like=True, tag="nack"):
    """A higher ballot has been promised."""

    promised: Ballot


class Attestation(msgspec.Struct, frozen=True, array_like=True):
    """The digest of a state machine after an instance."""

    instance: int
    digest: bytes


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """The leader lives; decided up to `chosen`; values up to `trim` may be forgotten.

    `agreed` is what a majority of the members attest to; `round` is the last
    one that the leader had begun.
    """

    ballot: Ballot
    chosen: int
    trim: int
    sent_s: float
    agreed: Attestation | None = None
    round: int = 0


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat-reply"):
    """A member follows the leader; echoes time and round, so that the leader can count from sending."""

    ballot: Ballot
    learned: int
    sent_s: float
    attested: Attestation | None = None
    round: int = 0


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Ask for decided values from `first` on."""

    first: int
    epoch: int = 0


class Decided(msgspec.Struct, Generic[V], frozen=True, array_like=True, tag="decided"):
    """Decided values of consecutive instances from `first` on."""

    first: int
    values: tuple[V | Change | None, ...]
    learned: int


class Snapshot(msgspec.Struct, Generic[S], frozen=True, array_like=True, tag="snapshot"):
    """The state machine after `instance`, for a member that is too far behind."""

    instance: int
    state: S
    memberships: MembershipsState


class Petition(msgspec.Struct, frozen=True, array_like=True, tag="petition"):
    """A router that is no member wishes to be one, or to stand by until a place is free."""

    epoch: int


class Removed(msgspec.Struct, frozen=True, array_like=True, tag="removed"):
    """The receiver is no member any more, or belongs to an epoch that has ended."""

    epoch: int
    number: int


def epoch_of(message: Any) -> int | None:
    """Give the cluster epoch that a message names, if it names one."""
    match message:
        case Canvass() | CanvassReply():
            return message.attempt >> EPOCH_SHIFT
        case Fetch() | Petition() | Removed():
            return message.epoch
        case Nack():
            return message.promised.epoch
        case Prepare() | Promise() | Accept() | Accepted() | Heartbeat() | HeartbeatReply():
            return message.ballot.epoch
    return None
