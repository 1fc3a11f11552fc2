"""The atomic loads under way, and what each job has committed, as a value inside the configuration.

Rules of the file: whether a load is open is decided here and nowhere else, so that it is so at the
same place of the order for all. A job's highest committed epoch is remembered, which makes a
second commit of it a repeat that changes nothing, whoever orders it. Rows and bytes are the
storage processes' matter. What must not happen is a `Refusal`.

=========  =====================  ============================================================
write      rule                   what becomes of staged rows
=========  =====================  ============================================================
insert     keep, replace, fail    of keys that exist the old row stays, or the new one replaces
                                  it, or nothing of the load is shown
upsert                            new rows, or new values in the columns that are given
update                            new values in the columns that are given, of keys that exist
delete                            rows of these keys are removed
overwrite                         the table consists of these rows, and no others
=========  =====================  ============================================================
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, Literal

import msgspec

from crescando.errors import LOAD_GONE, LOAD_PARTLY
from crescando.routing.base import Refusal
from crescando.routing.rubberband.messages import (
    AbortLoad,
    BeginLoad,
    CloseLoad,
    CommitLoad,
    ExpireLoad,
    HaveLoad,
    LoadMessage,
    PublishLoad,
    RenewLoad,
    SealLoad,
    Winner,
)
from crescando.schema import TableSchema
from crescando.types import AT_COMMIT, NAMELESS, LoadId, ProcessId

WRITES = ("insert", "upsert", "update", "delete", "overwrite")
RULES = ("fail", "keep", "replace")

LOADS_MAX = 1024
"""Loads that may be open at once."""

JOBS_MAX = 1024
"""Jobs of which the highest committed epoch is remembered: the one that committed longest ago gives way.
No fewer than engines remember, which must not take for a repeat what is none here."""

NAMELESS_MAX = 256
"""Committed jobs without a name that are remembered beside those: only who has lost the answer to its commit
asks for one, and they must not displace any that can come again."""

NAME_MAX = 200
"""Characters of a job's name."""

PARTITION_MAX = (1 << 20) - 1
ATTEMPT_MAX = (1 << 42) - 1
"""What engines take for partitions and attempts."""

WINNERS_MAX = 1 << 16
"""Partitions of one load."""

LEASE_MS_MAX = 30 * 24 * 3_600_000

_ENCODER = msgspec.msgpack.Encoder()

_SENDERS: dict[type, str] = {ExpireLoad: "super", HaveLoad: "storage"}
"""Which role orders what clients do not."""


class Load(msgspec.Struct, frozen=True, array_like=True):
    """A load that is open.

    Attributes
    ----------
    id : LoadId
    table : int
    job : str
    epoch : int
    write, rule : str
    columns : tuple of int
    lease_ms : int
    renewals : int
        How often the lease began anew.
    sealed : bytes
        The digest of the attempts that a seal has named; empty if it is not sealed.
    is_closed : bool
        Whether nothing more can be staged.
    have : tuple of (ProcessId, bytes)
        Who has said that he has all of which attempts, by their digest.
    """

    id: LoadId
    table: int
    job: str
    epoch: int
    write: str
    rule: str
    columns: tuple[int, ...]
    lease_ms: int
    renewals: int = 0
    sealed: bytes = b""
    is_closed: bool = False
    have: tuple[tuple[ProcessId, bytes], ...] = ()

    @property
    def is_sealed(self) -> bool:
        """Whether its keys are reserved."""
        return bool(self.sealed)


class LoadOrder(msgspec.Struct, frozen=True):
    """What a message does to a load at its place.

    Attributes
    ----------
    kind : str
        ``repeat``: nothing, since it was committed before.
    load : Load
    winners : tuple of Winner
        Of a commit, or a seal.
    """

    kind: Literal["begin", "commit", "seal", "publish", "abort", "repeat"]
    load: Load
    winners: tuple[Winner, ...] = ()


class Loads(msgspec.Struct, frozen=True, array_like=True):
    """Every open load, and what jobs have committed.

    Attributes
    ----------
    open : tuple of Load
        In the order in which they began.
    jobs : tuple of (int, str, int)
        Table, job and highest committed epoch, in the order of their last commits.
    """

    open: tuple[Load, ...] = ()
    jobs: tuple[tuple[int, str, int], ...] = ()

    def find(self, load: LoadId) -> Load | None:
        """Give an open load."""
        return next((each for each in self.open if each.id == load), None)

    def committed(self, table: int, job: str) -> int | None:
        """Give the highest epoch that a job has committed into a table."""
        return next((epoch for t, name, epoch in self.jobs if (t, name) == (table, job)), None)

    def is_repeat(self, table: int, job: str, epoch: int) -> bool:
        """Say whether a job has committed an epoch, or a later one."""
        if epoch == AT_COMMIT:
            return False
        committed = self.committed(table, job)
        return committed is not None and committed >= epoch

    def without_tables(self, tables: tuple[TableSchema, ...]) -> Loads:
        """Give the same for the tables that are left."""
        left = {table.id for table in tables}
        if all(load.table in left for load in self.open) and all(job[0] in left for job in self.jobs):
            return self
        return Loads(
            tuple(load for load in self.open if load.table in left),
            tuple(job for job in self.jobs if job[0] in left),
        )

    def check(self, body: LoadMessage, role: str, tables: tuple[TableSchema, ...]) -> None:
        """Refuse what may not take effect.

        Raises
        ------
        Refusal
            Naming the cause.
        """
        if role != _SENDERS.get(type(body), "client"):
            raise Refusal(f"a {role} may not order {type(body).__name__}")
        known = {table.id: table for table in tables}
        match body:
            case BeginLoad():
                self._check_begin(body, known.get(body.table))
            case CommitLoad() | SealLoad() | PublishLoad():
                if not self.is_repeat(body.table, body.job, body.epoch):
                    self._check_end(body, self._open(body.load), known)
            case ExpireLoad(load, renewals):
                if self._open(load).renewals != renewals:
                    raise Refusal("the load's lease was renewed")
            case HaveLoad(load):
                if not self._open(load).is_closed:
                    raise Refusal(f"load {load} is not closed")
            case RenewLoad(load) | AbortLoad(load) | CloseLoad(load):
                self._open(load)

    def _open(self, load: LoadId) -> Load:
        found = self.find(load)
        if found is None:
            raise Refusal(f"{LOAD_GONE}: {load}")
        return found

    def check_held(self, body: CommitLoad | SealLoad, holders: Iterable[ProcessId]) -> None:
        """Refuse the end of a load of which somebody may lack something.

        So nobody has to wait for bytes where the end is executed: that they are all there was decided in the
        order, for everybody.

        Raises
        ------
        Refusal
            Naming who has not said that he has all of it.
        """
        if self.is_repeat(body.table, body.job, body.epoch):
            return
        wanted = digest_of(winner[:2] for winner in body.winners)
        have = {process for process, attempts in self._open(body.load).have if attempts == wanted}
        lacking = sorted(set(holders) - have)
        if lacking:
            raise Refusal(f"{LOAD_PARTLY}: {', '.join(map(str, lacking))}")

    def _check_begin(self, body: BeginLoad, table: TableSchema | None) -> None:
        if table is None:
            raise Refusal(f"no table has the id {body.table}")
        if body.version != table.version:
            raise Refusal(f"table {table.name!r} has changed since the load was prepared; begin it again")
        if body.write not in WRITES or body.rule not in RULES:
            raise Refusal(f"no load writes {body.write!r} by the rule {body.rule!r}")
        if not 0 < len(body.job) <= NAME_MAX:
            raise Refusal(f"a job's name has 1 to {NAME_MAX} characters")
        if not 0 < body.lease_ms <= LEASE_MS_MAX:
            raise Refusal(f"a lease lasts 1 to {LEASE_MS_MAX} ms")
        if body.write != "insert" and not table.primary_key and body.write != "overwrite":
            raise Refusal(f"table {table.name!r} has no primary key to {body.write} by")
        _check_columns(body.columns, table)
        n_left = sum(not _is_before(load, body) for load in self.open)
        if n_left >= LOADS_MAX and not self.is_repeat(body.table, body.job, body.epoch):
            raise Refusal(f"{LOADS_MAX} loads are open; commit or abort some")

    def _check_end(
        self, body: CommitLoad | SealLoad | PublishLoad, load: Load, tables: dict[int, TableSchema]
    ) -> None:
        if body.epoch == AT_COMMIT or not 0 < len(body.job) <= NAME_MAX:
            raise Refusal(f"the end of load {load.id} must name a job, and an epoch of it")
        named = _named(load, body)
        if (body.table, body.job, body.epoch) != (named.table, named.job, named.epoch):
            raise Refusal(f"load {load.id} is one of another table, job or epoch")
        _check_columns(load.columns, tables[load.table])
        if isinstance(body, PublishLoad):
            if not load.is_sealed:
                raise Refusal(f"load {load.id} is not sealed")
            return
        attempts = digest_of(winner[:2] for winner in body.winners)
        if load.is_sealed and not (isinstance(body, SealLoad) and load.sealed == attempts):
            raise Refusal(f"load {load.id} is sealed, with other attempts; publish or abort it")
        if isinstance(body, SealLoad) != (load.write == "insert" and load.rule == "fail"):
            raise Refusal("loads by the rule 'fail' are sealed and published, all others committed")
        partitions = [winner.partition for winner in body.winners]
        if len(partitions) > WINNERS_MAX or partitions != sorted(set(partitions)):
            raise Refusal(f"a load has at most {WINNERS_MAX} partitions, each named once, in order")
        if any(not _is_attempt(*winner[:2]) for winner in body.winners):
            # An engine would refuse it, and keep for ever what is over here.
            raise Refusal(f"partitions are numbers up to {PARTITION_MAX}, attempts up to {ATTEMPT_MAX}")

    def after(self, body: LoadMessage, at: LoadId) -> Loads:
        """Give the loads after a message that takes effect."""
        match body:
            case BeginLoad():
                if self.is_repeat(body.table, body.job, body.epoch):
                    return self
                load = Load(
                    at, body.table, body.job, body.epoch, body.write, body.rule, body.columns, body.lease_ms
                )
                others = (each for each in self.open if not _is_before(each, body))
                return self._opened(*others, load)
            case RenewLoad(wanted):
                return self._changed(wanted, is_renewed=True)
            case SealLoad(wanted) if not self.is_repeat(body.table, body.job, body.epoch):
                sealed = digest_of(winner[:2] for winner in body.winners)
                return self._changed(wanted, is_renewed=True, sealed=sealed)
            case CloseLoad(wanted):
                return self._changed(wanted, is_closed=True)
            case HaveLoad(wanted, attempts):
                have = self._open(wanted).have
                said = at.sender, attempts
                return self if said in have else self._changed(wanted, have=(*have, said))
            case AbortLoad(wanted) | ExpireLoad(wanted) | SealLoad(wanted):
                return self._opened(*(load for load in self.open if load.id != wanted))
            case CommitLoad() | PublishLoad():
                return self._committed(body)

    def _opened(self, *loads: Load) -> Loads:
        """Give the same with other open loads."""
        return Loads(loads, self.jobs)

    def _changed(self, wanted: LoadId, *, is_renewed: bool = False, **changes: Any) -> Loads:
        """Give the same with one load changed, whose lease may begin anew."""
        return self._opened(
            *(
                load
                if load.id != wanted
                else msgspec.structs.replace(load, renewals=load.renewals + is_renewed, **changes)
                for load in self.open
            )
        )

    def _committed(self, body: CommitLoad | PublishLoad) -> Loads:
        others = self._opened(*(load for load in self.open if load.id != body.load))
        load = self.find(body.load)
        if load is None or self.is_repeat(body.table, body.job, body.epoch):
            return others
        load = _named(load, body)
        job = load.table, load.job, load.epoch
        jobs = (*(known for known in self.jobs if known[:2] != job[:2]), job)
        left = tuple(each for each in others.open if not _is_before(each, load))
        return Loads(left, _remembered(jobs))

    def orders(self, body: object, after: Loads) -> tuple[LoadOrder, ...]:
        """Give what a message did to loads, given those after it."""
        found: list[LoadOrder] = []
        if isinstance(body, (CommitLoad, SealLoad, PublishLoad)) and self.is_repeat(
            body.table, body.job, body.epoch
        ):
            repeated = Load(body.load, body.table, body.job, body.epoch, "", "", (), 0)
            found.append(LoadOrder("repeat", repeated))
            body = None
        left = {load.id: load for load in after.open}
        for load in self.open:
            if isinstance(body, SealLoad) and load.id == body.load and load.id in left:
                found.append(LoadOrder("seal", _named(load, body), body.winners))
            elif load.id in left:
                continue
            elif isinstance(body, CommitLoad) and load.id == body.load:
                found.append(LoadOrder("commit", _named(load, body), body.winners))
            elif isinstance(body, PublishLoad) and load.id == body.load:
                found.append(LoadOrder("publish", _named(load, body)))
            else:
                found.append(LoadOrder("abort", load))
        # Aborts give up reserved keys that a commit may want.
        found.sort(key=lambda order: order.kind != "abort")
        known = {load.id for load in self.open}
        return (*found, *(LoadOrder("begin", load) for load in after.open if load.id not in known))


NO_LOADS = Loads()
"""What a cluster begins with."""


def _named(load: Load, end: CommitLoad | SealLoad | PublishLoad) -> Load:
    """Give a load with the job and epoch that its end names, if it began without."""
    if load.epoch != AT_COMMIT:
        return load
    return msgspec.structs.replace(load, job=end.job, epoch=end.epoch)


def _is_before(load: Load, than: Load | BeginLoad) -> bool:
    """Say whether a load is one of the same job, up to its epoch."""
    return (load.table, load.job) == (than.table, than.job) and load.epoch <= than.epoch


def _remembered(jobs: Sequence[tuple[int, str, int]]) -> tuple[tuple[int, str, int], ...]:
    """Give those of the committed jobs, in the order of their last commits, that are not forgotten yet."""
    nameless = [job for job in jobs if job[1].startswith(NAMELESS)]
    named = [job for job in jobs if not job[1].startswith(NAMELESS)]
    kept = {*named[-JOBS_MAX:], *nameless[-NAMELESS_MAX:]}
    return tuple(job for job in jobs if job in kept)


def _is_attempt(partition: int, attempt: int) -> bool:
    return 0 <= partition <= PARTITION_MAX and 0 <= attempt <= ATTEMPT_MAX


def digest_of(attempts: Iterable[tuple[int, int]]) -> bytes:
    """Give what tells some attempts from others, each a partition and an attempt at it, by partition."""
    return hashlib.blake2b(_ENCODER.encode(list(attempts)), digest_size=16).digest()


def _check_columns(columns: tuple[int, ...], table: TableSchema) -> None:
    known = {column.id for column in table.columns}
    if not columns or len(set(columns)) != len(columns) or not known.issuperset(columns):
        raise Refusal(f"table {table.name!r} lacks a column that the load writes, or it is named twice")
