"""Messages of direct channels: results, inquiries, replica reads and signs of life.

Everything that changes data or configuration goes through the order; these do
not (RB13 §3.2: read results and data shuffling are the exceptions).
"""

from __future__ import annotations

from typing import Annotated

import msgspec

from crescando.client.base import Explanation
from crescando.client.pinned import PinAnswer, PinQuestion
from crescando.engine.base import Failed
from crescando.engine.written import Written
from crescando.routing.batch import Delivery
from crescando.routing.rubberband.happenings import Event
from crescando.types import KeyRange, Number, ProcessId, Scope

Numbers = Annotated[tuple[Number, ...], msgspec.Meta(max_length=1 << 20)]
"""Of many more operations than credit lets a client have on their way."""

ColumnIds = Annotated[tuple[int, ...], msgspec.Meta(max_length=1 << 16)]


class Attach(msgspec.Struct, frozen=True, array_like=True, tag="attach"):
    """A client begins a session with a storage process, to which results are sent."""


class Answered(msgspec.Struct, frozen=True, array_like=True, tag="answered"):
    """The client has every outcome up to a number; records of them may be forgotten."""

    upto: Number


class Forget(msgspec.Struct, frozen=True, array_like=True, tag="forget"):
    """Nobody waits any more for the answers of some reads; they need not be executed."""

    numbers: Numbers


class Taken(msgspec.Struct, frozen=True, array_like=True, tag="taken"):
    """The client has taken pieces of long answers (see `roles.outbox`); as many more may come."""

    pieces: int


class Inquire(msgspec.Struct, frozen=True, array_like=True, tag="inquire"):
    """The client lacks outcomes and asks an owner for what it knows of them."""

    inquiry: int
    numbers: Numbers


class Queued(msgspec.Struct, frozen=True, array_like=True):
    """An operation that is delivered here and not executed yet."""

    number: int
    scope: Scope
    is_write: bool


class Inquired(msgspec.Struct, frozen=True, array_like=True, tag="inquired"):
    """What an owner knows: the rest it has answered before, or never had.

    `queued` writes will be reported for every owned range, whatever their
    scope; `queued` reads will be answered for their scope. `failed` are writes
    that were refused here as everywhere.
    """

    inquiry: int
    queued: tuple[Queued, ...]
    written: tuple[Written, ...]
    failed: tuple[Failed, ...] = ()


class ReadReplica(msgspec.Struct, frozen=True, array_like=True, tag="read-replica"):
    """Ask exactly this replica for its rows of a range, as executed so far.

    Answered as `Results` in which the read's number is ``-request``.
    """

    request: Number
    table: int
    key_range: KeyRange
    columns: ColumnIds


class ReadBasic(msgspec.Struct, frozen=True, array_like=True, tag="read-basic"):
    """Basic reads of a client for one storage process, each with the scope for which it is to answer.

    `reads` are numbered as attempts of snapshot reads are, in the same series;
    the positions in it mean nothing.

    Attributes
    ----------
    reads : Delivery
    seen : int
        The highest position that the session was told: nothing older may be shown.
    laid : int
        The position of the configuration by which the client chose this process.
    """

    reads: Delivery
    seen: int
    laid: int


class BasicRefused(msgspec.Struct, frozen=True, array_like=True, tag="basic-refused"):
    """Attempts of basic reads that this storage process will not answer; another one may.

    Attributes
    ----------
    numbers : tuple of int
    reason : str
    is_busy : bool
        Whether it has too much to do, or is behind: others are asked for a while.
    position : int
    layout : bytes
        The configuration after that position if the client's names another owner, else empty.
    """

    numbers: tuple[int, ...]
    reason: str
    is_busy: bool = False
    position: int = -1
    layout: bytes = b""


class Explain(msgspec.Struct, frozen=True, array_like=True, tag="explain"):
    """Ask what a storage process would do with an operation, as encoded in `engine.statement`."""

    request: int
    shape: bytes
    parameters: bytes


class Explains(msgspec.Struct, frozen=True, array_like=True, tag="explains"):
    """The answer to `Explain`."""

    request: int
    explanation: Explanation


RANGES_WEIGHED = 1024
"""Ranges that may be weighed at the end of one cycle; each looks at the rows of an arc."""


class Weigh(msgspec.Struct, frozen=True, array_like=True, tag="weigh"):
    """Ask a storage process how much it holds of some ranges, as executed so far."""

    request: int
    ranges: Scope


class Weighs(msgspec.Struct, frozen=True, array_like=True, tag="weighs"):
    """The answer to `Weigh`: rows and bytes, range by range; none if too much is asked."""

    request: int
    weights: tuple[tuple[int, int], ...]


class AskPinned(msgspec.Struct, frozen=True, array_like=True, tag="ask-pinned"):
    """Ask a storage process about a pinned snapshot; see `roles.pins`."""

    request: int
    question: PinQuestion


class PinAnswered(msgspec.Struct, frozen=True, array_like=True, tag="pin-answered"):
    """The answer to `AskPinned`."""

    request: int
    answer: PinAnswer


class Retire(msgspec.Struct, frozen=True, array_like=True, tag="retire"):
    """Ask a storage process on standby, or a super, to leave the cluster and end.

    `denial` says why whoever asks may not; it is filled in where the message arrives (`crescando.rights`).
    """

    request: int
    denial: str = ""


class Retires(msgspec.Struct, frozen=True, array_like=True, tag="retires"):
    """Why a process does not leave; one that does is not heard again."""

    request: int
    refusal: str


class Watch(msgspec.Struct, frozen=True, array_like=True, tag="watch"):
    """Ask a super what happened behind a position of the order, -1 for everything; see `roles.history`."""

    request: int
    after: int


class Watched(msgspec.Struct, frozen=True, array_like=True, tag="watched"):
    """The answer to `Watch`, as soon as there is one.

    Attributes
    ----------
    since : int
        Of what happened up to here this super knows nothing any more: who asked for what
        is behind a lower position has missed something, and goes on here.
    upto : int
        Nothing is missing up to here: where to go on.
    events : tuple of Event
        Ascending.
    """

    request: int
    since: int
    upto: int
    events: tuple[Event, ...]


class Ping(msgspec.Struct, frozen=True, array_like=True, tag="ping"):
    """A super asks for a sign of life; a client it tells who the supers and storage processes are."""

    sent_s: float
    supers: tuple[ProcessId, ...] = ()
    storages: tuple[ProcessId, ...] = ()


class Pong(msgspec.Struct, frozen=True, array_like=True, tag="pong"):
    """A sign of life; echoes the time of the ping."""

    sent_s: float
    is_full: bool = False
    """Whether a storage process holds more than its watermark allows."""
