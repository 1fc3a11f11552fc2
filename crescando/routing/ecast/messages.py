"""The messages of E-Cast between application processes and routers (RB13 §5.3–5.5)."""

from __future__ import annotations

import msgspec

from crescando.consensus.base import Ballot
from crescando.routing.base import NotStable
from crescando.routing.batch import Delivery, Submission
from crescando.routing.ecast.limits import SENDER_BYTES
from crescando.types import ProcessId


class Batch(msgspec.Struct, frozen=True, array_like=True, tag="batch"):
    """The value of one instance: submissions in the order of their positions."""

    submissions: tuple[Submission, ...]

    @property
    def n_bytes(self) -> int:
        """What the batch weighs."""
        return sum(submission.n_bytes for submission in self.submissions)


class Hello(msgspec.Struct, frozen=True, array_like=True, tag="hello"):
    """An application process begins a session with a router, and names the cluster epoch it knows."""

    epoch: int = 0


class Welcome(msgspec.Struct, frozen=True, array_like=True, tag="welcome"):
    """A router states its watermarks for this application process.

    The process sends (again) from ``learned + 1`` if the router leads, and has
    at most `credit` bytes on their way that are not stable.
    """

    ballot: Ballot
    is_leader: bool
    leader: ProcessId | None
    learned: int
    credit: int = SENDER_BYTES


class Resume(msgspec.Struct, frozen=True, array_like=True, tag="resume"):
    """An application process takes a router for the leader and states where it stands.

    A leader sends nothing to a process before it has said this, and goes on
    exactly behind `delivered`. Only what is up to `confirmed` counts as
    confirmed: the process may be withholding confirmations.
    """

    ballot: Ballot
    delivered: int
    confirmed: int


class Routers(msgspec.Struct, frozen=True, array_like=True, tag="routers"):
    """Who the routers are: of two lists the one of the later epoch and membership is right."""

    epoch: int
    number: int
    routers: tuple[ProcessId, ...]


class Route(msgspec.Struct, frozen=True, array_like=True, tag="route"):
    """Consecutive messages on their way into the order."""

    submission: Submission

    @property
    def n_bytes(self) -> int:
        """What it weighs."""
        return self.submission.n_bytes


class Deliver(msgspec.Struct, frozen=True, array_like=True, tag="deliver"):
    """All that one instance holds for one destination.

    `previous` is the position of the message before it that this destination
    was sent in this session, or what the destination stated at its begin: one
    that has delivered less has missed something.
    """

    ballot: Ballot
    instance: int
    previous: int
    last: int
    parts: tuple[Delivery, ...]

    @property
    def n_bytes(self) -> int:
        """What it weighs."""
        return sum(part.n_bytes for part in self.parts)


class Confirm(msgspec.Struct, frozen=True, array_like=True, tag="confirm"):
    """Everything up to this position has been delivered."""

    position: int


class Fenced(msgspec.Struct, frozen=True, array_like=True, tag="fenced"):
    """A destination has seen a higher ballot and delivers nothing of a lower one.

    Clients, to which nothing is delivered, may say so too and are not listened to: whoever reads and
    writes has no say in who leads.
    """

    ballot: Ballot


class Stable(msgspec.Struct, frozen=True, array_like=True, tag="stable"):
    """Every number up to `upto` is decided upon; those not excepted are stable.

    States the sender's credit anew.
    """

    upto: int
    exceptions: tuple[NotStable, ...]
    credit: int = SENDER_BYTES


class Pulse(msgspec.Struct, frozen=True, array_like=True, tag="pulse"):
    """The leader lives, has nothing for this process up to a position, and states its credit anew."""

    ballot: Ballot
    idle: int
    credit: int = SENDER_BYTES


class Expelled(msgspec.Struct, frozen=True, array_like=True, tag="expelled"):
    """The process is no member since a position; its numbers above `learned` are void."""

    position: int
    learned: int


class ConfigRequest(msgspec.Struct, frozen=True, array_like=True, tag="config-request"):
    """Ask for the routing configuration, or only for who lags: whoever follows the order knows it."""

    wants_config: bool = True


class Outdated(msgspec.Struct, frozen=True, array_like=True, tag="outdated"):
    """The process lacks what it has confirmed, up to a position, and nobody can send it again.

    It has lost its state and must end. Until the supers have voted it out it
    is a member, so nothing is said about its own messages.
    """

    position: int


class ConfigState(msgspec.Struct, frozen=True, array_like=True, tag="config-state"):
    """The routing configuration after a position, in its canonical encoding; empty if it is not wanted.

    A leader also names the processes that live, perhaps, but owe confirmations
    for too long: supers vote on them as on silent ones.

    Attributes
    ----------
    position : int
    config : bytes
    lagging : tuple of ProcessId
    storages : tuple of ProcessId
        The members of which a client may be told something, ascending.
    """

    position: int
    config: bytes
    lagging: tuple[ProcessId, ...] = ()
    storages: tuple[ProcessId, ...] = ()


class StableUpTo(msgspec.Struct, frozen=True, array_like=True, tag="stable-up-to"):
    """The leader tells routers that every instance up to `instance` is stable, but some.

    A follower that trims could not find out by itself what is told beside.

    Attributes
    ----------
    lost : tuple of (ProcessId, int)
        Every lost message that its sender has not acknowledged.
    unstable : tuple of int
    refusing : tuple of int
        The instances from `refusing_since` on of which routing refused something.
    trimmed : tuple of (ProcessId, int)
        Per destination, the last position for it that is stable.
    """

    instance: int
    lost: tuple[tuple[ProcessId, int], ...]
    unstable: tuple[int, ...] = ()
    refusing: tuple[int, ...] = ()
    refusing_since: int = 1
    trimmed: tuple[tuple[ProcessId, int], ...] = ()


class Inject(msgspec.Struct, frozen=True, array_like=True, tag="inject"):
    """Snapshot reads of a client, to be run outside the order (RB13 §6.7).

    `reads` are numbered by the client in a series of its own: each number is
    one attempt, sent once to one router, so that answers of two attempts never
    mix. They run at a position not below `seen`, the highest that the session
    has been told, and behind its own messages up to number `written`.
    """

    reads: Submission
    seen: int
    written: int


class DeliverRead(msgspec.Struct, frozen=True, array_like=True, tag="deliver-read"):
    """Snapshot reads for one destination, at a position of the leader's choice.

    Sent after everything at or below `position` for this destination and
    before anything above it; `previous` is as in `Deliver`. Nothing confirms it.
    """

    ballot: Ballot
    position: int
    previous: int
    parts: tuple[Delivery, ...]


class ReadRefused(msgspec.Struct, frozen=True, array_like=True, tag="read-refused"):
    """Attempts of snapshot reads that will not be answered in full.

    Told by a router or by a destination. Unless `is_final`, the client sends
    the whole read again; if it `pauses`, not before a while has passed, and
    nothing else meanwhile.
    """

    numbers: tuple[int, ...]
    reason: str
    is_final: bool = False
    pauses: bool = False


class LeaseRequest(msgspec.Struct, frozen=True, array_like=True, tag="lease-request"):
    """A storage process asks the leader whether it is a member still, and how far the order is."""

    sent_s: float


class Lease(msgspec.Struct, frozen=True, array_like=True, tag="lease"):
    """When the request of this time was sent its sender was no process that had been declared failed.

    Nothing above `position` had been told to anybody by then. The time is the
    asker's own, echoed.
    """

    sent_s: float
    position: int


class Quorum(msgspec.Struct, frozen=True, array_like=True, tag="quorum"):
    """A router says whether it knows of a leader that a majority backs, or for long has not."""

    is_there: bool
