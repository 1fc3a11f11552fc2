"""Changes of the keyspace under way: what was ordered, and what is still to be copied (RB13 §6.4).

Rules of the file: a change is ordered twice. At its first position p it begins:
from there on its receivers are sent the writes of the ranges they are to hold,
and its senders copy these as of p. Each receiver says in the order that a copy
has arrived; with the last one, at q, the ring of the change becomes the ring,
and who owns a range no more gives it up. Between p and q reads, reports and
ownership are those of the ring before, so that whatever goes wrong changes
nothing: a change is *dropped*, and all behind it, as soon as one who still has
to send or who receives is out or answers no more, or somebody concerned says so.
Changes are queued: each builds on the ring that the one before it will give.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from crescando.errors import SpecError
from crescando.routing.base import Refusal
from crescando.routing.rubberband.keyspace import (
    Contract,
    Copy,
    Difference,
    Expand,
    Rebalance,
    Replace,
    Transformation,
    transformed,
)
from crescando.routing.rubberband.membership import Membership
from crescando.routing.rubberband.messages import MessageId, Reconfigure
from crescando.routing.rubberband.ring import Ring
from crescando.types import ProcessId


class Change(msgspec.Struct, frozen=True, array_like=True):
    """A transformation that has begun and not ended.

    Attributes
    ----------
    id : MessageId
        The message that began it.
    transformation : Transformation
    copies : tuple of Copy
    ready : tuple of int
        Indices of the copies that have arrived, ascending.
    cuts : tuple of int
        Where arcs begin on the ring as it was when this began and on those that the changes until
        this one give, ascending. What is to be copied begins and ends there, so arcs do as well while
        it lasts, also when an identifier has gone.
    """

    id: MessageId
    transformation: Transformation
    copies: tuple[Copy, ...]
    ready: tuple[int, ...] = ()
    cuts: tuple[int, ...] = ()

    @property
    def is_complete(self) -> bool:
        """Whether everything has arrived."""
        return len(self.ready) == len(self.copies)

    def parties(self) -> frozenset[ProcessId]:
        """Give the processes without which it cannot end: all receivers, and who still has to send."""
        return frozenset(
            process
            for index, copy in enumerate(self.copies)
            for process in ((copy.receiver,) if index in self.ready else (copy.receiver, copy.sender))
        )

    def readied(self, copy: int) -> Change:
        """Give the change with one more copy arrived."""
        return msgspec.structs.replace(self, ready=tuple(sorted({*self.ready, copy})))


Changes = tuple[Change, ...]
"""In the order in which they end."""


def target_of(ring: Ring, changes: Changes) -> Ring:
    """Give the ring after all changes."""
    for change in changes:
        ring = transformed(ring, change.transformation)
    return ring


def place_of(changes: Changes, wanted: MessageId) -> int:
    """Give the index of a change.

    Raises
    ------
    Refusal
        If it is not under way.
    """
    for index, change in enumerate(changes):
        if change.id == wanted:
            return index
    raise Refusal(f"change {wanted.number} of {wanted.sender} is not under way: it has ended or was dropped")


def begun(body: Reconfigure, at: MessageId, ring: Ring, changes: Changes, membership: Membership) -> Changes:
    """Give the changes with one more at their end.

    Raises
    ------
    Refusal
        If there is no such ring, the processes cannot take part, the copies are not
        exactly what the receivers need from processes that hold it, or fewer copies
        of some range would live than without the change, and it is not forced.
    """
    target = target_of(ring, changes)
    try:
        difference = Difference(target, transformed(target, body.transformation))
    except SpecError as error:
        raise Refusal(str(error)) from error
    _check_newcomer(body.transformation, ring, membership)
    able = membership.storages.difference(membership.convicted())
    _check_copies(body.copies, difference, membership.storages, able)
    orphan = unowned(difference.after, membership)
    if orphan is not None:
        raise Refusal(f"{orphan} would hold nobody who lives")
    _check_lives(body.transformation, difference, membership.storages)
    rings = (target_of(ring, changes[:n]) for n in range(len(changes) + 1))
    cuts = tuple(sorted({border for each in (*rings, difference.after) for border in each.ids}))
    return (*changes, Change(at, body.transformation, body.copies, cuts=cuts))


def _check_newcomer(transformation: Transformation, ring: Ring, membership: Membership) -> None:
    match transformation:
        case Expand(process, _) | Replace(_, process):
            if process in ring.processes:
                raise Refusal(f"{process} still holds a ring position")
        case Rebalance(process, _):
            pass
        case _:
            return
    if process not in membership.storages:
        raise Refusal(f"{process} is no member; start it, and it joins on standby")


def _check_copies(
    copies: tuple[Copy, ...],
    difference: Difference,
    storages: frozenset[ProcessId],
    able: frozenset[ProcessId],
) -> None:
    wanted = {
        process: difference.gained(process) for process in difference.after.processes if process in storages
    }
    for sender, receiver, scope in map(msgspec.structs.astuple, copies):
        pieces = difference.pieces_of(scope)
        told = f"the copy of {len(scope)} ranges from {sender} to {receiver}"
        if not pieces or difference.scope(pieces) != scope:
            raise Refusal(f"{told} is not cut where partitions begin")
        if not {sender, receiver} <= able:
            raise Refusal(f"{told} is between processes of which one has failed or answers no more")
        if sender == receiver or pieces & ~difference.held(sender):
            raise Refusal(f"{told} is not the sender's to give")
        if pieces & ~wanted.get(receiver, 0):
            raise Refusal(f"{told} is more than the receiver needs, or was told before")
        wanted[receiver] &= ~pieces
    for process, missing in wanted.items():
        if missing:
            low, high = difference.scope(missing)[0]
            raise Refusal(f"nobody copies ring range [{low}, {high}] to {process}; plan again")


def _check_lives(
    transformation: Transformation, difference: Difference, storages: frozenset[ProcessId]
) -> None:
    """See that of no range fewer copies live afterwards, unless that is wished for."""
    mend = "replace what has failed first"
    if isinstance(transformation, Contract):
        if transformation.force:
            return
        mend += ", or force it"
    if storages.issuperset({*difference.before.processes, *difference.after.processes}):
        # All copies live that there are, and are as many as before.
        return
    before = [difference.held(each) for each in difference.before.processes if each in storages]
    after = [difference.to_hold(each) for each in difference.after.processes if each in storages]
    for place, (low, high) in enumerate(difference.pieces):
        now = sum(mask >> place & 1 for mask in before)
        then = sum(mask >> place & 1 for mask in after)
        if then < now:
            raise Refusal(
                f"ring range [{low}, {high}] would have {then} copies that live instead of {now}, "
                f"since others that are to hold it have failed; {mend}"
            )


def unowned(ring: Ring, membership: Membership) -> str | None:
    """Name a range of which no owner lives; None if there is none."""
    for arc, (low, high) in enumerate(ring.arcs):
        if membership.storages.isdisjoint(ring.owners(arc)):
            return f"ring range [{low}, {high}]"
    return None


class Settled(NamedTuple):
    """What is left when every consequence of a message has been drawn."""

    ring: Ring
    changes: Changes
    membership: Membership
    is_new_layout: bool
    """Whether a change was dropped, or one who held a position is out."""


def settled(ring: Ring, changes: Changes, membership: Membership) -> Settled:
    """Let suspicions that are due take effect, drop changes that cannot end, and end those that can.

    A process is kept from suspicion while it is the last of its range that lives;
    when a change has ended another one may be the last, so all is looked at anew.
    """
    is_new_layout = False
    while True:
        before, membership = membership, membership.settled(ring)
        is_new_layout |= not before.storages.difference(membership.storages).isdisjoint(ring.processes)
        kept = _kept(changes, membership)
        is_new_layout |= len(kept) < len(changes)
        changes = kept
        if not (changes and changes[0].is_complete):
            return Settled(ring, changes, membership, is_new_layout)
        after = transformed(ring, changes[0].transformation)
        if unowned(after, membership) is None:
            ring, changes = after, changes[1:]
        else:
            # All who were to keep a range have died since; who was to give it up may live.
            changes, is_new_layout = (), True


def _kept(changes: Changes, membership: Membership) -> Changes:
    """Give the changes before the first one of which a party is out, or answers no more."""
    able = membership.storages.difference(membership.convicted())
    for index, change in enumerate(changes):
        if not change.parties() <= able:
            return changes[:index]
    return changes


def receivers(changes: Changes) -> Iterator[Copy]:
    """Give every copy whose receiver is sent the writes of its range already."""
    for change in changes:
        yield from change.copies
