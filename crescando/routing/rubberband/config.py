"""The Rubberband configuration: members, ring, votes and catalog as one value.

Rules of the file: a `Rubberband` never changes; `apply` gives the next one, and
every decision is a function of the value and one message at its prefix (RB13
§6.3, Alg. 3). What a value remembers beside its fields (its routing tables, its
encoding) follows from them and is no part of it. Iteration over sets is always
sorted, since their order differs between processes.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Self

import msgspec
import numpy as np

from crescando.errors import RemoteProtocolError, SpecError
from crescando.routing.base import Refusal, Route, Routes
from crescando.routing.batch import Message, Submission
from crescando.routing.rubberband.admission import admitted
from crescando.routing.rubberband.catalog import EMPTY_CATALOG, Catalog
from crescando.routing.rubberband.changes import Changes, begun, place_of, receivers, settled, target_of
from crescando.routing.rubberband.cover import NOWHERE, Cover
from crescando.routing.rubberband.loads import NO_LOADS, LoadOrder, Loads
from crescando.routing.rubberband.membership import Membership, Vote
from crescando.routing.rubberband.messages import (
    AddColumn,
    CommitLoad,
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
    PublishLoad,
    Ready,
    Reconfigure,
    SealLoad,
    Suspect,
    Trust,
    decode_message,
)
from crescando.routing.rubberband.ring import Ring, spread_ids
from crescando.routing.rubberband.run import MALFORMED, route_run
from crescando.routing.rubberband.transfers import Transfer, borders, transfers, wanted
from crescando.schema import TableSchema
from crescando.types import FULL_RING, KeyRange, LoadId, MessageKind, ProcessId, Scope


class _Encoded(msgspec.Struct, frozen=True, array_like=True, tag="rubberband/6"):
    """The canonical form of a configuration: sets as sorted tuples."""

    clients: tuple[ProcessId, ...]
    storages: tuple[ProcessId, ...]
    supers: tuple[ProcessId, ...]
    votes: tuple[Vote, ...]
    ids: tuple[int, ...]
    processes: tuple[ProcessId, ...]
    replication: int
    promised: int
    catalog: Catalog
    layout: MessageId | None
    changes: Changes
    loads: Loads


# An enumeration's member costs ten times a name of the module.
_CONFIG, _READ = MessageKind.CONFIG, MessageKind.READ
_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(_Encoded)


class _Memo:
    """What a configuration has worked out about itself so far."""

    __slots__ = ("cover", "encoded")

    def __init__(self) -> None:
        self.cover: Cover | None = None
        self.encoded: bytes | None = None


@dataclass(frozen=True, slots=True)
class Rubberband:
    """A routing configuration with successor replication on a ring (RB13 §6).

    Parameters
    ----------
    ring : Ring
    membership : Membership
    catalog : Catalog
    layout : MessageId or None
        The message that last changed who serves which range, or is to; None from genesis.
    changes : tuple of Change
        The changes of the keyspace under way, in the order in which they end.
    loads : Loads
        The atomic loads under way, and what jobs have committed.

    Notes
    -----
    `genesis` makes the first one; all others come from `apply` and `decode`.
    """

    ring: Ring
    membership: Membership
    catalog: Catalog = EMPTY_CATALOG
    layout: MessageId | None = None
    changes: Changes = ()
    loads: Loads = NO_LOADS
    _memo: _Memo = field(init=False, compare=False, repr=False, default_factory=_Memo)

    @classmethod
    def genesis(
        cls,
        *,
        storages: Sequence[ProcessId],
        replication: int,
        supers: Iterable[ProcessId] = (),
        clients: Iterable[ProcessId] = (),
        ring_ids: Sequence[int] | None = None,
    ) -> Self:
        """Give the configuration a cluster begins with.

        Parameters
        ----------
        storages : sequence of ProcessId
            The ring members.
        replication : int
        supers, clients : iterable of ProcessId, optional
        ring_ids : sequence of int, optional
            The identifier of each storage process, in their order; evenly
            spaced from 0 by default.

        Raises
        ------
        SpecError
            If a process has another role than its place says, or there is no
            such ring (more replicas than storage processes, identifiers not
            distinct, …).
        """
        members = {"client": frozenset(clients), "storage": frozenset(storages), "super": frozenset(supers)}
        for role, processes in members.items():
            for process in sorted(processes):
                if process.role != role:
                    raise SpecError(f"{process} cannot be a {role} process")
        ids = spread_ids(len(storages)) if ring_ids is None else tuple(map(int, ring_ids))
        if len(ids) != len(storages):
            raise SpecError(f"{len(ids)} ring ids were given for {len(storages)} processes")
        placed = sorted(zip(ids, storages, strict=True))
        ring = Ring(tuple(at for at, _ in placed), tuple(process for _, process in placed), replication)
        return cls(ring, Membership(members["client"], members["storage"], members["super"]))

    @property
    def clients(self) -> frozenset[ProcessId]:
        """The member clients."""
        return self.membership.clients

    @property
    def storages(self) -> frozenset[ProcessId]:
        """The member storage processes: unsuspected, in the ring or on standby."""
        return self.membership.storages

    @property
    def supers(self) -> frozenset[ProcessId]:
        """The member supers."""
        return self.membership.supers

    @property
    def failed(self) -> frozenset[ProcessId]:
        """Suspected processes that still hold a ring position."""
        return frozenset(self.ring.processes) - self.membership.storages

    @property
    def pending(self) -> frozenset[ProcessId]:
        """Ring members that a majority suspects and that are a last live replica; see `membership`."""
        return frozenset(self.membership.convicted())

    @property
    def standbys(self) -> tuple[ProcessId, ...]:
        """The storage processes that answer, hold no ring position and are promised none, in order."""
        taken = {*self.ring.processes, *self.target.processes}
        return tuple(sorted(self.storages - self.pending - taken))

    @property
    def target(self) -> Ring:
        """The ring after all changes that are under way."""
        return target_of(self.ring, self.changes)

    @property
    def tables(self) -> tuple[TableSchema, ...]:
        """Every table, by ascending catalog id."""
        return self.catalog.tables

    def table(self, name: str) -> TableSchema:
        """Give a table by name; raises `UnknownTableError`."""
        return self.catalog.table(name)

    def owned_arcs(self, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give the arcs of a ring member, ascending, failed or not; none for others."""
        return self.ring.owned_arcs(process)

    def holders(self, scope: Scope) -> frozenset[ProcessId]:
        """Give the ring members that hold anything of some ranges, failed or not."""
        touched = self.ring.mask(scope)
        arcs = [arc for arc in range(len(self.ring.arcs)) if touched >> arc & 1]
        return frozenset(process for arc in arcs for process in self.ring.owners(arc))

    def transfers(self, process: ProcessId) -> tuple[Transfer, ...]:
        """Give the copies under way that a process sends or receives, in the order of their changes."""
        return tuple(transfers(self.ring, self.changes, process))

    def wanted(self, process: ProcessId) -> Scope:
        """Give what a process must keep as soon as it holds it: what it owns, and what it is to own."""
        return wanted(self.ring, self.changes, process)

    def load_orders(self, message: Message, after: Self) -> tuple[LoadOrder, ...]:
        """Give what a message that was delivered did to loads, given the configuration after it."""
        if self.loads == after.loads and not self.loads.jobs:
            return ()
        return self.loads.orders(decode_message(message.payload), after.loads)

    def borders(self) -> tuple[int, ...]:
        """Give where arcs begin on the ring, or are to begin while some change lasts; ascending."""
        return borders(self.ring, self.changes)

    def live_owners(self, key_range: KeyRange) -> tuple[ProcessId, ...]:
        """Give the unsuspected owners of *all* of a range, in successor order of its first arc."""
        touched = self.ring.mask((key_range,))
        arcs = [arc for arc in range(len(self.ring.arcs)) if touched >> arc & 1]
        others = [set(self.ring.owners(arc)) for arc in arcs[1:]]
        return tuple(
            process
            for process in self.ring.owners(arcs[0])
            if process in self.storages and all(process in owners for owners in others)
        )

    def is_member(self, process: ProcessId) -> bool:
        """Say whether messages of `process` have effect."""
        return process in self.membership

    def members(self) -> frozenset[ProcessId]:
        """Give every unsuspected process."""
        return self.clients | self.storages | self.supers

    def destset(self, message: Message) -> Mapping[ProcessId, Scope]:
        """Give the destinations of a message, each with its scope (RB13 Alg. 3).

        Raises
        ------
        Refusal
            If the message must not take effect; `admission` and `cover` say when.
        """
        if message.kind is not _CONFIG:
            return self._data_destset(message)
        body = self._admitted(message)
        if body is None:
            return NOWHERE
        destinations = self.storages | self.supers
        if isinstance(body, Join) and body.process.role != "client":
            destinations |= {body.process}
        return MappingProxyType(dict.fromkeys(sorted(destinations), ()))

    def apply(self, message: Message) -> Self:
        """Give the configuration after a message; `self` if it changes nothing."""
        after, _ = self._transition(message)
        return after

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        """Give the processes that a message, at this prefix, declares failed.

        A leave declares its sender failed; a vote, or the leave of a super,
        whomever a majority has voted against by then.
        """
        _, gone = self._transition(message)
        return gone

    def route(self, batch: Submission, start: int, stop: int) -> Routes:
        """Route data messages ``start:stop``; equal to `destset` on each of them.

        Raises
        ------
        ValueError
            If one of them is no data message.
        """
        outcome = self._unroutable(batch.sender)
        if outcome is not None:
            n = stop - start
            return Routes(np.zeros(n, np.int64), (outcome,) if n else ())
        return route_run(self._cover(), self.catalog, batch, start, stop)

    def encode(self) -> bytes:
        """Give the canonical encoding."""
        if self._memo.encoded is None:
            self._memo.encoded = _ENCODER.encode(
                _Encoded(
                    tuple(sorted(self.clients)),
                    tuple(sorted(self.storages)),
                    tuple(sorted(self.supers)),
                    tuple(sorted(self.membership.votes)),
                    self.ring.ids,
                    self.ring.processes,
                    self.ring.replication,
                    self.ring.promised,
                    self.catalog,
                    self.layout,
                    self.changes,
                    self.loads,
                )
            )
        return self._memo.encoded

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Give the configuration that `encode` wrote.

        Raises
        ------
        RemoteProtocolError
            If `data` is not such an encoding.
        """
        try:
            encoded = _DECODER.decode(data)
            ring = Ring(encoded.ids, encoded.processes, encoded.replication, encoded.promised)
            target_of(ring, encoded.changes)
        except (msgspec.MsgspecError, SpecError, ValueError, RecursionError) as error:
            raise RemoteProtocolError(f"malformed configuration: {error}") from error
        membership = Membership(
            frozenset(encoded.clients),
            frozenset(encoded.storages),
            frozenset(encoded.supers),
            frozenset(encoded.votes),
        )
        return cls(ring, membership, encoded.catalog, encoded.layout, encoded.changes, encoded.loads)

    def digest(self) -> bytes:
        """Give the 16-byte digest of the canonical encoding."""
        return hashlib.blake2b(self.encode(), digest_size=16).digest()

    def _data_destset(self, message: Message) -> Mapping[ProcessId, Scope]:
        outcome = self._unroutable(message.sender)
        if outcome is None:
            outcome = self._data_route(message)
        if isinstance(outcome, Refusal):
            # A fresh one, since raising would hang a traceback on a remembered value.
            raise Refusal(outcome.reason)
        return outcome

    def _data_route(self, message: Message) -> Route:
        if self.catalog.by_id(message.table) is None:
            return self.catalog.missing(message.table)
        if not message.ranges or any(low > high for low, high in message.ranges):
            return Refusal(MALFORMED)
        arcs = self.ring.mask(message.ranges)
        if message.kind is _READ:
            return self._cover().read(arcs, message.replica_offset)
        return self._cover().write(arcs)

    def _unroutable(self, sender: ProcessId) -> Route | None:
        """Say where all data messages of a sender go alike, or None if each has its own route."""
        if not self.is_member(sender):
            return NOWHERE
        if sender.role != "client":
            return Refusal(f"{sender} is no client, and only clients read and write")
        return None

    def _cover(self) -> Cover:
        if self._memo.cover is None:
            self._memo.cover = Cover(self.ring, self.storages, self.pending, self._receiving())
        return self._memo.cover

    def _receiving(self) -> dict[ProcessId, int]:
        """Give the arcs whose writes processes are sent since they are to hold some of them."""
        found: dict[ProcessId, int] = {}
        for copy in receivers(self.changes):
            found[copy.receiver] = found.get(copy.receiver, 0) | self.ring.mask(copy.scope)
        return found

    def _admitted(self, message: Message) -> ConfigMessage | None:
        body = admitted(
            message, self.membership, self.ring, self.catalog, self.changes, self.layout, self.loads
        )
        if isinstance(body, CommitLoad | SealLoad | PublishLoad):
            outcome = self._cover().write(self.ring.mask((FULL_RING,)))
            if isinstance(outcome, Refusal):
                # Some owner may come back without whatever it is sent now.
                raise Refusal(outcome.reason)
            if not isinstance(body, PublishLoad):
                self.loads.check_held(body, outcome)
        return body

    def _transition(self, message: Message) -> tuple[Self, frozenset[ProcessId]]:
        """Give the next configuration and whom the message makes fail."""
        if message.kind is not _CONFIG:
            return self, frozenset()
        try:
            body = self._admitted(message)
        except Refusal:
            return self, frozenset()
        membership, changes, layout = self.membership, self.changes, self.layout
        at = MessageId(message.sender, message.number)
        match body:
            case None | Pin() | Denied():
                return self, frozenset()
            case Join(process):
                membership = membership.joined(process)
            case Leave(process):
                membership = membership.without(process)
            case Suspect(accused):
                membership = membership.voted(accused, message.sender)
            case Trust(accused):
                membership = membership.withdrawn(accused, message.sender)
            case CreateTable() | DropTable() | AddColumn() | DropColumn():
                catalog = self.catalog.after(body)
                loads = self.loads.without_tables(catalog.tables)
                return self._sharing(replace(self, catalog=catalog, loads=loads)), frozenset()
            case Reconfigure():
                changes, layout = begun(body, at, self.ring, changes, membership), at
            case Ready(wanted, copy):
                place = place_of(changes, wanted)
                changes = (*changes[:place], changes[place].readied(copy), *changes[place + 1 :])
            case DropChange(wanted, _):
                changes = changes[: place_of(changes, wanted)]
            case _:
                loads = self.loads.after(body, LoadId(*at))
                return (
                    self if loads == self.loads else self._sharing(replace(self, loads=loads))
                ), frozenset()
        return self._settled(changes, membership, layout, at)

    def _settled(
        self, changes: Changes, membership: Membership, layout: MessageId | None, at: MessageId
    ) -> tuple[Self, frozenset[ProcessId]]:
        """Give the configuration with all consequences of a message at a place, and whom it makes fail."""
        ring, left, membership, is_new_layout = settled(self.ring, changes, membership)
        gone = frozenset(process for process in self.members() if process not in membership)
        if is_new_layout or len(changes) < len(self.changes):
            layout = at
        after = replace(self, ring=ring, membership=membership, layout=layout, changes=left)
        return (self if after == self else self._sharing(after)), gone

    def _sharing(self, after: Self) -> Self:
        """Let the next configuration keep this one's routing tables if the same hold for it."""
        if (
            after.storages == self.storages
            and after.pending == self.pending
            and after.ring == self.ring
            and after.changes == self.changes
        ):
            # Worked out now, if need be: routers that begin with the same value then share it.
            after._memo.cover = self._cover()
        return after
