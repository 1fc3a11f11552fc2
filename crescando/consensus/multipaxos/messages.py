"""The messages of Multi-Paxos, named as in Lamport 2001, "Paxos Made Simple"."""

from __future__ import annotations

from typing import Generic, TypeVar

import msgspec

from crescando.consensus.base import Ballot

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
    value: V | None
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
    value: V | None
    chosen: int


class Accepted(msgspec.Struct, frozen=True, array_like=True, tag="accepted"):
    """Phase 2b."""

    ballot: Ballot
    instance: int


class Nack(msgspec.Struct, frozen=True, array_like=True, tag="nack"):
    """A higher ballot has been promised."""

    promised: Ballot


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat"):
    """The leader lives; decided up to `chosen`; values up to `trim` may be forgotten."""

    ballot: Ballot
    chosen: int
    trim: int
    sent_s: float


class HeartbeatReply(msgspec.Struct, frozen=True, array_like=True, tag="heartbeat-reply"):
    """A member follows the leader; echoes the time so that the leader can count from sending."""

    ballot: Ballot
    learned: int
    sent_s: float


class Fetch(msgspec.Struct, frozen=True, array_like=True, tag="fetch"):
    """Ask for decided values from `first` on."""

    first: int


class Decided(msgspec.Struct, Generic[V], frozen=True, array_like=True, tag="decided"):
    """Decided values of consecutive instances from `first` on."""

    first: int
    values: tuple[V | None, ...]
    learned: int


class Snapshot(msgspec.Struct, Generic[S], frozen=True, array_like=True, tag="snapshot"):
    """The state machine after `instance`, for a member that is too far behind."""

    instance: int
    state: S
