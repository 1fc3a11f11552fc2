"""The copies under way as one process sees them: what it sends, what it receives, and from when on.

Rules of the file: both sides of a copy judge by the configuration alone, so that they agree.
A copy begins at the message that ordered its change, if its sender holds everything then. One
that is still to receive some of it, in a change before, begins to send at the message by which
the last of that has arrived: at that place in the order the sender's rows are copied, and from
that place on the receiver keeps what it will have to execute on them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from crescando.routing.rubberband.changes import Changes
from crescando.routing.rubberband.messages import MessageId
from crescando.routing.rubberband.ring import Ring
from crescando.scopes import merged, subtract
from crescando.types import ProcessId, Scope


class Transfer(NamedTuple):
    """One copy under way.

    Attributes
    ----------
    change : MessageId
    number : int
        Which copy of the change it is.
    sender, receiver : ProcessId
    scope : Scope
        What the receiver is to hold.
    missing : Scope
        What it neither holds, nor is to receive by an earlier copy. Asked for when the change
        begins: it holds more later.
    awaited : Scope
        What the sender is still to receive in changes before; it may overlap.
    is_ready : bool
        Whether it has arrived.
    """

    change: MessageId
    number: int
    sender: ProcessId
    receiver: ProcessId
    scope: Scope
    missing: Scope
    awaited: Scope
    is_ready: bool


def transfers(ring: Ring, changes: Changes, process: ProcessId) -> Iterator[Transfer]:
    """Give the copies that a process sends or receives, in the order of their changes."""
    for place, change in enumerate(changes):
        for index, copy in enumerate(change.copies):
            if process not in (copy.sender, copy.receiver):
                continue
            held = ring.owned_arcs(copy.receiver) + _incoming(changes[:place], copy.receiver)
            missing = tuple(subtract(copy.scope, held))
            awaited = _incoming(changes[:place], copy.sender, unready=True)
            parties = copy.sender, copy.receiver
            yield Transfer(change.id, index, *parties, copy.scope, missing, awaited, index in change.ready)


def wanted(ring: Ring, changes: Changes, process: ProcessId) -> Scope:
    """Give what a process must keep, as soon as it holds it: what it owns, and what it is to own."""
    return merged(ring.owned_arcs(process) + _incoming(changes, process))


def borders(ring: Ring, changes: Changes) -> tuple[int, ...]:
    """Give where arcs begin on the ring, or are to begin while some change lasts; ascending."""
    return tuple(sorted(set(ring.ids).union(*(change.cuts for change in changes))))


def _incoming(changes: Changes, receiver: ProcessId, *, unready: bool = False) -> Scope:
    """Give what a process receives, or is still to receive, in some changes; it may overlap."""
    return tuple(
        key_range
        for change in changes
        for index, copy in enumerate(change.copies)
        if copy.receiver == receiver and not (unready and index in change.ready)
        for key_range in copy.scope
    )
