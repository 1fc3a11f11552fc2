"""An independent, slow Rubberband: what RB13 §6.2–6.4 says, in sets of ranges.

Rules of the file: it takes nothing from the routing code but the vocabulary of
messages. It knows no arc numbers, masks or arrays; a position belongs to whom the
paper's words say, a minimum cover is found by trying all subsets, and a count of
votes is a count of votes. Tests and the cluster simulation compare every
decision with it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations
from typing import Final

from crescando.errors import CrescandoError
from crescando.routing.batch import Message
from crescando.routing.rubberband import (
    AddColumn,
    Contract,
    Copy,
    CreateTable,
    DropChange,
    DropColumn,
    DropTable,
    Expand,
    Join,
    Leave,
    MessageId,
    Pin,
    Ready,
    Rebalance,
    Reconfigure,
    Replace,
    Rubberband,
    Suspect,
    Trust,
    decode_message,
)
from crescando.schema import TableSchema
from crescando.types import KeyRange, MessageKind, ProcessId, Scope

RING_SIZE: Final = 1 << 64
REFUSED: Final = "refused"

Processes = frozenset[ProcessId]
Piece = tuple[int, int]
"""First and last position of a stretch of the ring that all processes own alike."""


Places = tuple[tuple[int, ProcessId], ...]
"""(identifier, process), ascending."""


@dataclass(frozen=True)
class Underway:
    """A change of the keyspace that has begun."""

    id: MessageId
    after: Places
    copies: tuple[Copy, ...]
    arrived: frozenset[int]

    @property
    def parties(self) -> Processes:
        senders = {copy.sender for index, copy in enumerate(self.copies) if index not in self.arrived}
        return frozenset(senders | {copy.receiver for copy in self.copies})


@dataclass(frozen=True)
class View:
    """The facts of a configuration, as plain Python values."""

    clients: Processes
    storages: Processes
    supers: Processes
    votes: frozenset[tuple[ProcessId, ProcessId]]
    ring: tuple[tuple[int, ProcessId], ...]
    """(identifier, process), ascending."""
    replication: int
    tables: tuple[TableSchema, ...] = ()
    changes: tuple[Underway, ...] = ()
    layout: MessageId | None = None

    @property
    def everyone(self) -> Processes:
        return self.clients | self.storages | self.supers


def view_of(config: Rubberband) -> View:
    """Copy the facts of a configuration."""
    ring = tuple(zip(config.ring.ids, config.ring.processes, strict=True))
    changes = []
    target = ring
    for change in config.changes:
        target = moved(target, config.ring.promised, change.transformation)
        changes.append(Underway(change.id, target, change.copies, frozenset(change.ready)))
    return View(
        clients=config.clients,
        storages=config.storages,
        supers=config.supers,
        votes=config.membership.votes,
        ring=ring,
        replication=config.ring.promised,
        tables=config.catalog.tables,
        changes=tuple(changes),
        layout=config.layout,
    )


def moved(ring: Places, f: int, transformation: object) -> Places:
    """Give who is where after a transformation; `ValueError` if it cannot be."""
    places = {process: at for at, process in ring}
    old: ProcessId | None
    new: tuple[ProcessId, int] | None
    match transformation:
        case Expand(process, at):
            old, new = None, (process, at)
        case Contract(process, _):
            old, new = process, None
        case Replace(process, by):
            if by in places:
                raise ValueError
            old, new = process, (by, places.get(process, 0))
        case Rebalance(process, at):
            old, new = process, (process, at)
    if old is not None:
        if old not in places:
            raise ValueError
        # A position is free only if nobody has it, not even who is about to leave it for another.
        taken = set(places.values()) if isinstance(transformation, Rebalance) else set()
        del places[old]
        if new is not None and new[1] in taken:
            raise ValueError
    if new is not None:
        process, at = new
        if process in places or process.role != "storage" or at in places.values() or not 0 <= at < RING_SIZE:
            raise ValueError
        places[process] = at
    if isinstance(transformation, Contract) and len(places) < (1 if transformation.force else f):
        raise ValueError
    return tuple(sorted((at, process) for process, at in places.items()))


@cache
def pieces(ring: tuple[tuple[int, ProcessId], ...]) -> tuple[Piece, ...]:
    """Cut the ring at 0 and at every identifier."""
    cuts = sorted({0} | {at for at, _ in ring})
    return tuple(zip(cuts, [*(cut - 1 for cut in cuts[1:]), RING_SIZE - 1], strict=True))


@cache
def holders(ring: tuple[tuple[int, ProcessId], ...], f: int, piece: Piece) -> tuple[ProcessId, ...]:
    """Give who holds a piece: whose primary partition it is in, then the f - 1 successors."""
    # "s holds the primary replica of all objects with key greater-or-equal k and less-than k'";
    # below every identifier, that is the process with the highest one.
    below = [process for at, process in ring if at <= piece[0]]
    in_order = [process for _, process in ring]
    primary = in_order.index(below[-1]) if below else len(in_order) - 1
    return tuple((in_order * 2)[primary : primary + min(f, len(in_order))])


def twin_destset(view: View, message: Message) -> Mapping[ProcessId, Scope] | str:
    """Give the destinations and scopes of a message, or `REFUSED`."""
    if message.kind is MessageKind.CONFIG:
        return _config_destset(view, message)
    if message.sender not in view.everyone:
        return {}
    if message.sender.role != "client" or all(table.id != message.table for table in view.tables):
        return REFUSED
    if not message.ranges or any(low > high for low, high in message.ranges):
        return REFUSED
    touched = [
        (low, high)
        for low, high in pieces(view.ring)
        if any(low <= r.high and r.low <= high for r in message.ranges)
    ]
    owners = {piece: holders(view.ring, view.replication, piece) for piece in touched}
    silent = convicted(view)
    if message.kind is MessageKind.WRITE:
        written = _write(view, owners, silent)
        if written == REFUSED or isinstance(written, str):
            return REFUSED
        copies = [copy for change in view.changes for copy in change.copies]
        receiving = {
            copy.receiver: ()
            for copy in copies
            if any(low <= r.high and r.low <= high for low, high in touched for r in copy.scope)
        }
        return {**receiving, **written}
    return _read(view, owners, silent, message.replica_offset)


def _write(
    view: View, owners: Mapping[Piece, tuple[ProcessId, ...]], silent: Processes
) -> Mapping[ProcessId, Scope] | str:
    reports: dict[ProcessId, list[Piece]] = {}
    for piece, all_owners in owners.items():
        live = [process for process in all_owners if process in view.storages]
        if not live or any(process in silent for process in live):
            return REFUSED
        for process in live:
            reports.setdefault(process, [])
        reports[live[0]].append(piece)
    return {process: joined(mine) for process, mine in reports.items()}


def _read(
    view: View, owners: Mapping[Piece, tuple[ProcessId, ...]], silent: Processes, offset: int
) -> Mapping[ProcessId, Scope] | str:
    able = view.storages - silent
    answering = {
        piece: tuple(process for process in all_owners if process in able)
        for piece, all_owners in owners.items()
    }
    if not all(answering.values()):
        return REFUSED
    fewest = minimum_cover_size(answering)
    in_order = [process for _, process in view.ring]
    lowest = min(answering)
    first = in_order.index(owners[lowest][0])
    clockwise = in_order[first:] + in_order[:first]
    if {primary for primary, *_ in owners.values()} == set(in_order):
        candidates = [process for process in clockwise if process in able]
    else:
        candidates = [process for process in clockwise if process in answering[lowest]]
    best = [start for start in candidates if len(_answers_from(view, answering, start, 0)) == fewest]
    f = min(view.replication, len(view.ring))
    turn = offset // len(best) % (f * max(1, f - 1))
    answers = _answers_from(view, answering, best[offset % len(best)], turn)
    return {process: joined(mine) for process, mine in answers.items()}


def _answers_from(
    view: View, answering: Mapping[Piece, tuple[ProcessId, ...]], start: ProcessId, turn: int
) -> dict[ProcessId, list[Piece]]:
    """Let `start` answer all it can, then go round clockwise, each time as far as one owner can."""
    identifier = {process: at for at, process in view.ring}[start]
    # Positions just behind the start come first, the start's own identifier comes last.
    around = sorted(answering, key=lambda piece: (piece[0] - identifier - 1) % RING_SIZE)
    answers = {start: [piece for piece in around if start in answering[piece]]}
    rest = [piece for piece in around if start not in answering[piece]]
    while rest:
        runs = {}
        for process in answering[rest[0]]:
            run = 0
            while run < len(rest) and process in answering[rest[run]]:
                run += 1
            runs[process] = run
        longest = max(runs.values())
        equals = [process for process in answering[rest[0]] if runs[process] == longest]
        answers[equals[turn % len(equals)]] = rest[:longest]
        rest = rest[longest:]
    return answers


def minimum_cover_size(answering: Mapping[Piece, tuple[ProcessId, ...]]) -> int:
    """Give the size of the smallest set with an owner of every piece, by trying all of them."""
    return _minimum_cover_size(frozenset(map(frozenset, answering.values())))


@cache
def _minimum_cover_size(groups: frozenset[Processes]) -> int:
    everyone = sorted(frozenset().union(*groups))
    for size in range(1, len(everyone) + 1):
        if any(
            all(group.intersection(chosen) for group in groups) for chosen in combinations(everyone, size)
        ):
            return size
    raise AssertionError("some piece has no owner")


def joined(some: list[Piece]) -> Scope:
    """Give pieces as ranges, neighbours joined."""
    ranges: list[KeyRange] = []
    for low, high in sorted(some):
        if ranges and ranges[-1].high == low - 1:
            ranges[-1] = KeyRange(ranges[-1].low, high)
        else:
            ranges.append(KeyRange(low, high))
    return tuple(ranges)


def convicted(view: View) -> Processes:
    """Give members whom more than half of the supers other than themselves have voted against."""
    found = set()
    for accused in view.everyone:
        electorate = view.supers - {accused}
        votes = [voter for voter in electorate if (accused, voter) in view.votes]
        if len(votes) > len(electorate) / 2:
            found.add(accused)
    return frozenset(found)


def twin_suspects(view: View, message: Message) -> Processes:
    """Give the processes that a message makes fail."""
    return view.everyone - twin_after(view, message).everyone


def twin_after(view: View, message: Message) -> View:
    """Give members, votes, ring and changes after a message; tables are left as they are."""
    if message.kind is not MessageKind.CONFIG or twin_destset(view, message) in ({}, REFUSED):
        return view
    at = MessageId(message.sender, message.number)
    match decode_message(message.payload):
        case Join(process):
            return replace(
                view,
                clients=view.clients | {p for p in (process,) if p.role == "client"},
                storages=view.storages | {p for p in (process,) if p.role == "storage"},
                supers=view.supers | {p for p in (process,) if p.role == "super"},
            )
        case Leave(process):
            view = _gone(view, process)
        case Suspect(accused):
            view = replace(view, votes=view.votes | {(accused, message.sender)})
        case Trust(accused):
            view = replace(view, votes=view.votes - {(accused, message.sender)})
        case Reconfigure(transformation, copies, _):
            target = moved(_last_ring(view), view.replication, transformation)
            begun = Underway(at, target, copies, frozenset())
            view = replace(view, changes=(*view.changes, begun), layout=at)
        case Ready(change, copy):
            view = replace(
                view,
                changes=tuple(
                    replace(each, arrived=each.arrived | {copy}) if each.id == change else each
                    for each in view.changes
                ),
            )
        case DropChange(change, _):
            view = _dropped(view, [each.id for each in view.changes].index(change), at)
    while True:
        due = sorted(process for process in convicted(view) if not _is_last(view, process))
        able = view.storages - convicted(view)
        hopeless = [place for place, each in enumerate(view.changes) if not each.parties <= able]
        if due:
            if due[0] in {process for _, process in view.ring}:
                view = replace(view, layout=at)
            view = _gone(view, due[0])
        elif hopeless:
            view = _dropped(view, hopeless[0], at)
        elif view.changes and len(view.changes[0].arrived) == len(view.changes[0].copies):
            first = view.changes[0]
            if all(
                view.storages & set(holders(first.after, view.replication, piece))
                for piece in pieces(first.after)
            ):
                view = replace(view, ring=first.after, changes=view.changes[1:])
            else:
                view = _dropped(view, 0, at)
        else:
            return view


def _dropped(view: View, place: int, at: MessageId) -> View:
    return replace(view, changes=view.changes[:place], layout=at)


def _last_ring(view: View) -> Places:
    return view.changes[-1].after if view.changes else view.ring


def _begins(view: View, body: Reconfigure) -> bool:
    """Say whether a change may begin: everybody gets exactly what it lacks, from those who have it."""
    f, old = view.replication, _last_ring(view)
    try:
        new = moved(old, f, body.transformation)
    except ValueError:
        return False
    able = view.storages - convicted(view)
    in_ring = {process for _, process in view.ring}
    match body.transformation:
        case Expand(process, _) | Replace(_, process):
            if process in in_ring or process not in view.storages:
                return False
        case Rebalance(process, _):
            if process not in view.storages:
                return False
    cuts = sorted({0, *(at for at, _ in old), *(at for at, _ in new)})
    got: dict[tuple[ProcessId, int], int] = {}
    for copy in body.copies:
        lows = {low for low, _ in copy.scope}
        highs = {high + 1 for _, high in copy.scope}
        is_cut = lows <= set(cuts) and highs <= {*cuts, RING_SIZE} and lows.isdisjoint(highs)
        is_ascending = all(low <= high for low, high in copy.scope) and all(
            a.high < b.low for a, b in zip(copy.scope, copy.scope[1:], strict=False)
        )
        if not (copy.scope and is_cut and is_ascending) or not {copy.sender, copy.receiver} <= able:
            return False
        for cut in cuts:
            if any(low <= cut <= high for low, high in copy.scope):
                if copy.sender not in holders(old, f, (cut, cut)) or copy.sender == copy.receiver:
                    return False
                got[copy.receiver, cut] = got.get((copy.receiver, cut), 0) + 1
    for cut in cuts:
        before, after = holders(old, f, (cut, cut)), holders(new, f, (cut, cut))
        if not view.storages & set(after):
            return False
        is_forced = isinstance(body.transformation, Contract) and body.transformation.force
        if not is_forced and len(view.storages & set(after)) < len(view.storages & set(before)):
            return False
        for process in {*view.storages, *before, *after}:
            lacks = process in after and process not in before and process in view.storages
            if got.pop((process, cut), 0) != lacks:
                return False
    return not got


def _is_last(view: View, process: ProcessId) -> bool:
    for piece in pieces(view.ring):
        live = [owner for owner in holders(view.ring, view.replication, piece) if owner in view.storages]
        if live == [process]:
            return True
    return False


def _gone(view: View, process: ProcessId) -> View:
    return replace(
        view,
        clients=view.clients - {process},
        storages=view.storages - {process},
        supers=view.supers - {process},
        votes=frozenset((a, v) for a, v in view.votes if a != process and v != process),
    )


def _config_destset(view: View, message: Message) -> Mapping[ProcessId, Scope] | str:
    sender = message.sender
    is_member = sender in view.everyone
    in_ring = {process for _, process in view.ring}
    told: dict[ProcessId, Scope] = dict.fromkeys(view.supers | view.storages, ())
    try:
        body = decode_message(message.payload)
    except CrescandoError:
        return REFUSED if is_member else {}
    if isinstance(body, Join):
        is_fresh = message.number == 1 and sender not in in_ring and not is_member
        if body.process != sender or not is_fresh or sender.role not in ("client", "storage", "super"):
            return REFUSED
        return told if sender.role == "client" else {**told, sender: ()}
    if not is_member:
        return {}
    tables = {table.name: table for table in view.tables}
    match body:
        case Leave(process):
            in_part = {party for change in view.changes for party in change.parties}
            is_allowed = process == sender and process not in in_ring | in_part
        case Suspect(accused) | Trust(accused):
            is_allowed = sender.role == "super" and accused != sender and accused in view.everyone
        case CreateTable(schema):
            is_allowed = schema.name not in tables and _is_valid(schema)
        case DropTable(name):
            is_allowed = name in tables
        case AddColumn(name, column):
            is_allowed = (
                name in tables
                and column.nullable
                and _is_valid(replace_columns(tables[name], (*tables[name].columns, column)))
            )
        case DropColumn(name, column_name):
            is_allowed = (
                name in tables
                and column_name in tables[name].column_names
                and column_name not in {tables[name].partition_key, *tables[name].primary_key}
            )
        case Reconfigure(_, _, predecessor):
            is_allowed = sender.role != "storage" and predecessor == view.layout and _begins(view, body)
        case Ready(wanted, place):
            named = [change for change in view.changes if change.id == wanted]
            is_allowed = any(
                0 <= place < len(change.copies) and change.copies[place].receiver == sender
                for change in named
            )
        case DropChange(wanted, _):
            named = [change for change in view.changes if change.id == wanted]
            is_allowed = any(sender.role != "storage" or sender in change.parties for change in named)
        case Pin(pinned, lease_s):
            known = {table.id for table in view.tables}
            is_allowed = sender.role == "client" and 0 < lease_s <= 86_400
            is_allowed = is_allowed and len(set(pinned)) == len(pinned) > 0 and known.issuperset(pinned)
    if isinstance(body, CreateTable | DropTable | AddColumn | DropColumn) and sender.role == "storage":
        is_allowed = False
    return told if is_allowed else REFUSED


def replace_columns(table: TableSchema, columns: tuple[object, ...]) -> TableSchema:
    """Give a table with other columns."""
    return TableSchema(table.name, columns, table.partition_key, table.primary_key, table.partition)  # type: ignore[arg-type]


def _is_valid(schema: TableSchema) -> bool:
    try:
        schema.validate()
    except CrescandoError:
        return False
    return True
