"""Which configuration messages may take effect: who may send what, and when.

=====================  ====================================================
message                may be sent by
=====================  ====================================================
read, write            clients
join                   a process that is no member, for itself, as number 1
leave                  any member for itself, if it holds no ring position and has no part in a change
suspect, trust         supers, about another member
create, drop, alter    clients and supers
reconfigure            clients with the right to administer (a router that
                       finds it lacking puts a `Denied` in its place) and
                       supers, planned for the present layout
ready                  the receiver of a copy under way
drop                   such clients, supers, and who sends or receives in a change
steps of loads         clients; that a lease is over supers, that a load is here storage processes
pin                    clients, of tables that exist
=====================  ====================================================

Anything else is refused. Messages of processes that are no members are void:
they have no destinations and no effect. (Data messages are checked where they
are routed, since a run of them is checked at once.)
"""

from __future__ import annotations

from crescando.errors import RemoteProtocolError
from crescando.routing.base import Refusal
from crescando.routing.batch import Message
from crescando.routing.rubberband.catalog import Catalog
from crescando.routing.rubberband.changes import Changes, begun, place_of
from crescando.routing.rubberband.loads import Loads
from crescando.routing.rubberband.membership import ROLES, Membership
from crescando.routing.rubberband.messages import (
    AddColumn,
    ConfigMessage,
    CreateTable,
    Denied,
    DropChange,
    DropColumn,
    DropTable,
    Join,
    Leave,
    MessageId,
    Pin,
    Ready,
    Reconfigure,
    Suspect,
    Trust,
    decode_message,
)
from crescando.routing.rubberband.ring import Ring
from crescando.types import ProcessId

LEASE_S_MAX = 86_400.0
"""A pin lasts for a day at most, unless it is renewed."""


def admitted(
    message: Message,
    membership: Membership,
    ring: Ring,
    catalog: Catalog,
    changes: Changes,
    layout: MessageId | None,
    loads: Loads,
) -> ConfigMessage | None:
    """Decode a configuration message that may take effect; None if it is void.

    Raises
    ------
    Refusal
        If the message must not take effect.
    """
    sender = message.sender
    is_member = sender in membership
    try:
        body = decode_message(message.payload)
    except RemoteProtocolError as error:
        if not is_member:
            return None
        raise Refusal(str(error)) from error
    if isinstance(body, Join):
        _check_join(message, body.process, membership, ring)
        return body
    if not is_member:
        return None
    match body:
        case Leave(process):
            if process != sender:
                raise Refusal(f"{sender} cannot leave for {process}")
            if process in ring.processes:
                raise Refusal(f"{process} cannot leave while it holds a ring position")
            if any(process in change.parties() for change in changes):
                raise Refusal(f"{process} cannot leave while it has a part in a change of the keyspace")
        case Suspect(accused) | Trust(accused):
            _check_voter(sender, accused, membership)
        case CreateTable() | DropTable() | AddColumn() | DropColumn():
            if sender.role == "storage":
                raise Refusal(f"{sender} may not change tables: only clients and supers may")
            catalog.after(body)
        case Reconfigure(_, _, predecessor):
            if sender.role == "storage":
                raise Refusal(f"{sender} may not change the keyspace: only clients and supers may")
            if predecessor != layout:
                raise Refusal("the change was planned for a layout that is not the present one; plan again")
            begun(body, MessageId(sender, message.number), ring, changes, membership)
        case Ready(wanted, copy):
            copies = changes[place_of(changes, wanted)].copies
            if not 0 <= copy < len(copies) or copies[copy].receiver != sender:
                raise Refusal(f"{sender} is not the receiver of copy {copy}")
        case DropChange(wanted, _):
            change = changes[place_of(changes, wanted)]
            if sender.role == "storage" and sender not in change.parties():
                raise Refusal(f"{sender} has no part in that change")
        case Pin():
            _check_pin(sender, body, catalog)
        case Denied(reason):
            raise Refusal(reason)
        case _:
            loads.check(body, sender.role, catalog.tables)
    return body


def _check_pin(sender: ProcessId, body: Pin, catalog: Catalog) -> None:
    if sender.role != "client":
        raise Refusal(f"{sender} is no client, and only clients pin tables")
    if not 0 < len(set(body.tables)) == len(body.tables):
        raise Refusal("a pin names at least one table, and each once")
    if not 0 < body.lease_s <= LEASE_S_MAX:
        raise Refusal(
            f"a pin's lease lasts more than 0 and at most {LEASE_S_MAX:.0f} s, not {body.lease_s} s"
        )
    for table in body.tables:
        if catalog.by_id(table) is None:
            raise catalog.missing(table)


def _check_join(message: Message, process: ProcessId, membership: Membership, ring: Ring) -> None:
    if process != message.sender:
        raise Refusal(f"{message.sender} cannot join for {process}")
    if process in membership:
        raise Refusal(f"{process} is a member already")
    if process.role not in ROLES:
        raise Refusal(f"a process of role {process.role!r} cannot join")
    # Whoever was expelled must not come back as the old member, of which a ring position
    # or a number above 1 is the trace.
    if message.number != 1 or process in ring.processes:
        raise Refusal(f"{process} has been a member; it must join as a new incarnation")


def _check_voter(sender: ProcessId, accused: ProcessId, membership: Membership) -> None:
    if sender.role != "super":
        raise Refusal(f"{sender} is no super, and only supers vote")
    if accused == sender:
        raise Refusal(f"{sender} cannot vote about itself; it may leave")
    if accused not in membership:
        raise Refusal(f"{accused} is no member")
