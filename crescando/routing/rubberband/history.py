"""What happened to a cluster, message by message: the order's own account of it.

Rules of the file: what happened follows from the configuration before a message,
the message and the configuration after it, so that every process that follows
the order tells the same. Clients come and go without being mentioned.
"""

from __future__ import annotations

from collections.abc import Iterator

from crescando.routing.batch import Message
from crescando.routing.rubberband.changes import Change, Changes, target_of
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.happenings import (
    Available,
    Began,
    Dropped,
    Ended,
    Failed,
    Happening,
    Joined,
    Left,
    Readied,
    TableChanged,
    Unavailable,
)
from crescando.routing.rubberband.messages import (
    DropChange,
    Leave,
    MessageId,
    Ready,
    Reconfigure,
    decode_message,
)
from crescando.types import ProcessId, Scope

AFTERWARDS = "it was planned behind a change that was dropped"
"""Why a change is dropped although nothing is wrong with it."""


def happenings_of(before: Rubberband, message: Message, after: Rubberband) -> tuple[Happening, ...]:
    """Give what a delivered configuration message did, in the order in which it came about."""
    if after == before:
        return ()
    body = decode_message(message.payload)
    return (
        *_members(before, after, leaver=message.sender if isinstance(body, Leave) else None),
        *_availability(before, after),
        *_changes(before, MessageId(message.sender, message.number), body, after),
        *_tables(before, after),
    )


def _members(before: Rubberband, after: Rubberband, *, leaver: ProcessId | None) -> Iterator[Happening]:
    known, left = before.storages | before.supers, after.storages | after.supers
    for process in sorted(known - left):
        yield Left(process) if process == leaver else Failed(process)
    for process in sorted(left - known):
        yield Joined(process)


def _availability(before: Rubberband, after: Rubberband) -> Iterator[Happening]:
    for process in sorted(before.pending - after.pending):
        yield Available(process)
    for process in sorted(after.pending - before.pending):
        yield Unavailable(process, unanswered(after, process))


def unanswered(config: Rubberband, process: ProcessId) -> Scope:
    """Give the ranges of a pending process that nobody else answers for."""
    able = config.storages - config.pending
    ring = config.ring
    mask = 0
    for arc in range(len(ring.arcs)):
        owners = ring.owners(arc)
        if process in owners and able.isdisjoint(owners):
            mask |= 1 << arc
    return ring.merged(mask)


def _changes(before: Rubberband, at: MessageId, body: object, after: Rubberband) -> Iterator[Happening]:
    changes = before.changes
    match body:
        case Reconfigure(transformation, copies):
            changes = (*changes, Change(at, transformation, copies))
            yield Began(at, transformation, copies)
        case Ready(wanted, copy):
            changes = tuple(change.readied(copy) if change.id == wanted else change for change in changes)
            yield Readied(wanted, copy)
    ended = _n_ended(before, changes, after)
    for change in changes[:ended]:
        yield Ended(change.id)
    dropped = changes[ended + len(after.changes) :]
    for change in dropped:
        yield Dropped(change.id, _reason(change, body, after) if change is dropped[0] else AFTERWARDS)


def _n_ended(before: Rubberband, changes: Changes, after: Rubberband) -> int:
    """Give how many of the changes have ended; they do from the front, and are dropped from the back."""
    if after.changes:
        return [change.id for change in changes].index(after.changes[0].id)
    n = next((place for place, change in enumerate(changes) if not change.is_complete), len(changes))
    # One that all have arrived of is dropped yet if nobody who lives would hold some range.
    while n and target_of(before.ring, changes[:n]) != after.ring:
        n -= 1
    return n


def _reason(change: Change, body: object, after: Rubberband) -> str:
    """Say why a change was dropped."""
    if isinstance(body, DropChange) and body.change == change.id:
        return body.reason
    gone = sorted(change.parties() - after.storages)
    if gone:
        return f"{gone[0]} is out"
    mute = sorted(change.parties() & after.pending)
    if mute:
        return f"{mute[0]} does not answer"
    return "all who were to keep some range have failed"


def _tables(before: Rubberband, after: Rubberband) -> Iterator[Happening]:
    known = {table.id: table for table in before.tables}
    left = {table.id: table for table in after.tables}
    for table in sorted(known.keys() | left.keys()):
        if table not in left:
            yield TableChanged(known[table].name, "dropped")
        elif table not in known:
            yield TableChanged(left[table].name, "created")
        elif known[table] != left[table]:
            yield TableChanged(left[table].name, "altered")
