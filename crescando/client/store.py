"""Sessions and stores: what applications open, use and close.

Rules of the file: a session is one ordered stream of operations over one
`Backend`; it may be used by many threads. A store has a default session, makes
further ones, and ends everything that the composition root started; all of it
is handed in, so that nothing here knows what a cluster is made of.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

from crescando.client.answer import Answer
from crescando.client.base import Backend
from crescando.client.flight import Catalog, Desk
from crescando.client.handles import ControlHandle, TransactionHandle, WriteHandle
from crescando.client.inference import schema_from
from crescando.client.load import Load, StagedPart
from crescando.client.pin import LEASE_S_DEFAULT, Pinned, pin, read_pinned
from crescando.client.pinned import PinnedPart, PinTicket
from crescando.client.prepared import BoundOperation, submit_many
from crescando.client.table import Table
from crescando.client.template import Params
from crescando.client.textual import Columns, Where
from crescando.client.tickets import (
    LoadRuleName,
    LoadTicket,
    LoadWriteName,
    begin_of,
    check_ticket,
    named,
)
from crescando.client.transaction import Transaction
from crescando.client.waiting import TIMEOUT_S_DEFAULT, checked_timeout
from crescando.errors import SpecError, StatementError, UnknownTableError
from crescando.schema import Partition, TableSchema
from crescando.types import LoadId

C = TypeVar("C")

CLOSE_TIMEOUT_S = 10.0
"""How long closing waits for what is on its way, if nobody says otherwise."""


class Session:
    """An ordered stream of operations: later ones come after earlier ones.

    Reads see the session's own earlier writes. All methods may be called from
    any thread.

    Parameters
    ----------
    backend : Backend
    name : str
    timeout_s : float
        How long calls wait if they do not say.
    """

    def __init__(self, backend: Backend, name: str = "default", timeout_s: float = TIMEOUT_S_DEFAULT) -> None:
        self._desk = Desk(backend, checked_timeout(timeout_s, TIMEOUT_S_DEFAULT))
        self.name = name

    # Tables.
    def table(self, name: str, *, timeout_s: float | None = None) -> Table:
        """Give a table by name.

        Raises
        ------
        UnknownTableError
            With the nearest name, if the cluster has no such table.
        """
        self._desk.check_usable()
        if name in self._desk.backend.catalog():
            return Table(self._desk, name)
        return self.table_nowait(name).result(timeout_s)

    def table_nowait(self, name: str) -> ControlHandle[Table]:
        """Ask the cluster for a table; the awaitable twin of `table`."""

        def found(catalog: Catalog) -> Table:
            if name not in catalog:
                raise UnknownTableError(name, tuple(catalog))
            return Table(self._desk, name)

        return self._ask_catalog(found, f"the look-up of table {name!r}")

    def tables(self, *, timeout_s: float | None = None) -> tuple[str, ...]:
        """Give the names of all tables, sorted."""
        return self.tables_nowait().result(timeout_s)

    def tables_nowait(self) -> ControlHandle[tuple[str, ...]]:
        """Ask the cluster for its tables; the awaitable twin of `tables`."""
        return self._ask_catalog(lambda catalog: tuple(sorted(catalog)), "the list of tables")

    def create_table(
        self,
        schema: TableSchema | str,
        *,
        like: object = None,
        partition_key: str | None = None,
        primary_key: str | Sequence[str] = (),
        partition: Partition | None = None,
        timeout_s: float | None = None,
    ) -> Table:
        """Make a table, empty, and wait until every process has it.

        Parameters
        ----------
        schema : TableSchema or str
            The whole schema; or a name, and the rest from `like`.
        like : object
            A frame whose types the columns get; see `schema_from`. No rows are loaded.
        partition_key, primary_key, partition
            As for `schema_from`.
        timeout_s : float, optional

        Raises
        ------
        SpecError
            If the schema is not valid.
        RefusedError
            If the cluster refused it, for example because the table exists.
        """
        handle = self.create_table_nowait(
            schema, like=like, partition_key=partition_key, primary_key=primary_key, partition=partition
        )
        return handle.result(timeout_s)

    def create_table_nowait(
        self,
        schema: TableSchema | str,
        *,
        like: object = None,
        partition_key: str | None = None,
        primary_key: str | Sequence[str] = (),
        partition: Partition | None = None,
    ) -> ControlHandle[Table]:
        """Submit a `create_table` and give its handle."""
        self._desk.check_usable()
        if isinstance(schema, str):
            if like is None:
                raise SpecError("pass a TableSchema, or a name and like=frame")
            schema = schema_from(
                schema, like, partition_key=partition_key, primary_key=primary_key, partition=partition
            )
        elif like is not None or partition_key is not None or primary_key or partition is not None:
            raise SpecError("a TableSchema says everything; like and the keys go with a name only")
        schema.validate()
        future = self._desk.backend.create_table(schema)
        return ControlHandle(
            self._desk,
            future,
            lambda made: Table(self._desk, made.name),
            f"the creation of table {schema.name!r}",
        )

    def drop_table(self, name: str, *, timeout_s: float | None = None) -> None:
        """Remove a table and its rows, and wait until every process has.

        Raises
        ------
        UnknownTableError
            With the nearest name, if there is no such table.
        """
        if name not in self._desk.backend.catalog():
            self.table(name, timeout_s=timeout_s)
        self.drop_table_nowait(name).result(timeout_s)

    def drop_table_nowait(self, name: str) -> ControlHandle[None]:
        """Submit a `drop_table` and give its handle."""
        self._desk.check_usable()
        future = self._desk.backend.drop_table(name)
        return ControlHandle(self._desk, future, lambda _: None, f"the removal of table {name!r}")

    # Operations.
    def submit_many(self, operations: Sequence[BoundOperation[Any]]) -> list[Any]:
        """Submit operations of prepared statements, on any tables, in order; see `PreparedStatement.many`.

        Parameters
        ----------
        operations : sequence of BoundOperation
            From ``prepared.bind(params)``.

        Returns
        -------
        list of ReadHandle or WriteHandle, in the same order
        """
        return submit_many(self._desk, operations)

    def transaction(self) -> Transaction:
        """Begin a transaction: writes that take effect together, at one position of the order.

        >>> import crescando
        >>> from crescando import col
        >>> with crescando.open() as store:
        ...     accounts = store.create_table("accounts", like={"id": [1], "euro": [0]}, primary_key="id")
        ...     _ = accounts.insert([{"id": 1, "euro": 50}, {"id": 2, "euro": 0}])
        ...     with store.transaction() as transfer:
        ...         table = transfer.table("accounts")
        ...         paid = table.update(col("id") == 1, {"euro": col("euro") - 20})
        ...         got = table.update(col("id") == 2, {"euro": col("euro") + 20})
        ...     [each.affected for each in transfer.handle.result()]
        ...     accounts.select(order_by=["id"]).rows()
        [1, 1]
        [(1, 30), (2, 20)]
        """
        return Transaction(self._desk, self.table)

    def transact(self, operations: Sequence[BoundOperation[WriteHandle]]) -> TransactionHandle:
        """Submit writes of prepared statements, on any tables, as one transaction.

        Parameters
        ----------
        operations : sequence of BoundOperation
            From ``prepared.bind(params)``.
        """
        with self.transaction() as transaction:
            transaction.extend(operations)
        return transaction.handle

    # Atomic loads.
    def begin_load(
        self,
        table: str,
        *,
        job: str,
        epoch: int | None = None,
        write: LoadWriteName = "insert",
        rule: LoadRuleName = "fail",
        columns: Sequence[str] | None = None,
        lease_s: float = 3600.0,
        timeout_s: float | None = None,
    ) -> Load:
        """Begin an atomic load: rows that workers stage, shown all at once by one commit, or never.

        Parameters
        ----------
        table : str
        job : str
            Names what is loaded, whoever does it: what a job has committed it cannot commit again. It
            ends what drivers before this one have begun under the name, up to this epoch.
        epoch : int, optional
            Of a job that loads again and again, which time it is. Only the highest one that
            was committed is remembered, and those below it count as committed. `AT_COMMIT` if only
            who commits it will know that; see `resume_load`.
        write : str
            ``"insert"``, ``"upsert"``, ``"update"`` or ``"delete"`` by key, or ``"overwrite"``.
        rule : str
            Of an insert, what becomes of a row whose key exists: ``"fail"``, nothing is shown;
            ``"keep"``, the old one stays; ``"replace"``, the new one takes its place.
        columns : sequence of str, optional
            What every row gives; all columns if not given, or the key of a delete.
        lease_s : float
            After how long in which no worker stages anything the load ends by itself; see `Load.renew`.
        timeout_s : float, optional

        Raises
        ------
        UnknownTableError, UnknownColumnError, StatementError
            If there can be no such load; nothing was sent.
        """
        # Sessions keep what they have heard of tables, and this one may have been made anew since.
        self.table_nowait(table).result(timeout_s)
        return self.begin_load_nowait(
            table, job=job, epoch=epoch, write=write, rule=rule, columns=columns, lease_s=lease_s
        ).result(timeout_s)

    def begin_load_nowait(
        self,
        table: str,
        *,
        job: str,
        epoch: int | None = None,
        write: LoadWriteName = "insert",
        rule: LoadRuleName = "fail",
        columns: Sequence[str] | None = None,
        lease_s: float = 3600.0,
    ) -> ControlHandle[Load]:
        """Order the beginning of a load and give its handle; as `begin_load`."""
        schema = self.table(table).schema
        begin, names = begin_of(
            schema, job=job, epoch=epoch, write=write, rule=rule, columns=columns, lease_s=lease_s
        )

        def begun(found: tuple[LoadId, bool]) -> Load:
            load, is_committed = found
            version, epoch = schema.version, begin.epoch
            ticket = LoadTicket(
                load, table, schema.id, version, job, epoch, write, rule, names, lease_s, is_committed
            )
            return Load(self._desk, ticket, schema)

        future = self._desk.backend.begin_load(begin)
        return ControlHandle(self._desk, future, begun, f"the beginning of a load into table {table!r}")

    def resume_load(self, ticket: LoadTicket, *, job: str | None = None, epoch: int | None = None) -> Load:
        """Drive a load that was begun elsewhere: in another session, process or host.

        Parameters
        ----------
        ticket : LoadTicket
            Of the driver that began it.
        job, epoch
            Whose it is, if it was begun with the epoch `AT_COMMIT`.

        Raises
        ------
        StatementError
            If that is no ticket, or one of a load whose job and epoch are known.
        """
        self._desk.check_usable()
        whole = named(ticket, job, epoch)
        return Load(self._desk, whole, self._schema_of(whole))

    def stage(self, ticket: LoadTicket, partition: int, attempt: int) -> StagedPart:
        """Begin to stage a partition of a load, in any session of the cluster.

        Parameters
        ----------
        ticket : LoadTicket
            Of the driver.
        partition : int
            Which part of the rows; the driver's commit takes one attempt at each.
        attempt : int
            Which attempt at it.

        Raises
        ------
        StatementError
            If that is no ticket of a load that can be staged.
        """
        self._desk.check_usable()
        if not isinstance(ticket, LoadTicket):
            raise StatementError(f"a ticket is what load.ticket gives, not a {type(ticket).__name__}")
        schema = self._schema_of(ticket)
        check_ticket(ticket, schema, partition, attempt)
        return StagedPart(self._desk, ticket, schema, partition, attempt)

    def _schema_of(self, ticket: LoadTicket) -> TableSchema:
        schema = self.table(ticket.table).schema
        if (schema.id, schema.version) != (ticket.table_id, ticket.version):
            # What this session has heard last may be older than the load.
            schema = self.table_nowait(ticket.table).result().schema
        return schema

    # Pinned snapshots.
    def pin(self, *tables: str, lease_s: float = LEASE_S_DEFAULT, timeout_s: float | None = None) -> Pinned:
        """Keep tables as they are now, at one position of the order, to be read in parts from anywhere.

        Nothing is copied; what is overwritten later is kept as well, until the pin is closed or its
        lease is over. Everything that this session has written before shows.

        Parameters
        ----------
        tables : str
            Names.
        lease_s : float
            How long it lasts from now, and from when anybody has read of it last; a day at most.
        timeout_s : float, optional
            The session's default if not given.

        Raises
        ------
        UnknownTableError
            With the nearest name, if there is no such table.
        RefusedError
            If a storage process keeps too much for pins already.

        >>> import crescando
        >>> with crescando.open() as store:
        ...     seats = store.create_table("seats", like={"no": [1], "seat": ["1A"]}, primary_key="no")
        ...     _ = seats.insert([{"no": 7, "seat": "3C"}, {"no": 8, "seat": "9F"}])
        ...     with store.pin("seats") as pinned:
        ...         _ = seats.delete().result()
        ...         for part in pinned.parts("seats"):
        ...             for piece in store.read_pinned(pinned.ticket, part, where="no > 7"):
        ...                 print(piece.rows())
        [(8, '9F')]
        """
        return pin(self._desk, tables, lease_s, timeout_s)

    def read_pinned(
        self,
        ticket: PinTicket,
        part: PinnedPart,
        *,
        columns: Columns = None,
        where: Where = None,
        params: Params = (),
        timeout_s: float | None = None,
    ) -> Iterator[Answer]:
        """Read a part of a pinned snapshot, piece by piece; in no particular order, and nothing twice.

        Parameters
        ----------
        ticket : PinTicket
        part : PinnedPart
        columns, where, params
            As for `Table.select`; names are those of the table when it was pinned.
        timeout_s : float, optional
            How long each piece is waited for; the session's default if not given.

        Yields
        ------
        Answer
            Some megabytes of rows; at least one piece, which may be empty.

        Raises
        ------
        SnapshotExpiredError
            If nobody keeps the part any more, or can be reached who does.
        ReadFailedError
            If the part has an erroneous row; pieces may have been given before.
        StatementError
            If the statement is wrong.
        """
        return read_pinned(self._desk, ticket, part, columns, where, params, timeout_s)

    def in_flight(self) -> int:
        """Count the operations that are sent and not answered."""
        return self._desk.in_flight

    # The end.
    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Refuse new work, wait for what is on its way, and leave the cluster.

        Closing twice does nothing; closing in a forked child does nothing.
        """
        seconds = checked_timeout(timeout_s, CLOSE_TIMEOUT_S)
        if self._desk.is_forked:
            return
        if self._desk.refuse_new_work():
            self._desk.backend.close(seconds)

    @property
    def is_closed(self) -> bool:
        """Whether the session refuses new work."""
        return self._desk.is_closed

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await asyncio.to_thread(self.close)

    def __repr__(self) -> str:
        state = "closed" if self.is_closed else f"{self.in_flight()} in flight"
        return f"<session {self.name!r}, {state}>"

    def _ask_catalog(self, finish: Callable[[Catalog], Any], what: str) -> ControlHandle[Any]:
        self._desk.check_usable()
        return ControlHandle(self._desk, self._desk.backend.refresh_catalog(), finish, what)


class Store(Session, Generic[C]):
    """An open store: a session of its own, and the maker of others.

    Parameters
    ----------
    backend : Backend
        Of the default session.
    connect : callable
        Makes the backend of a further session, by its name.
    cluster : object
        What administers the processes behind.
    shutdown : callable
        Ends everything that was started for the store, within the given seconds.
    description : str
        What the store is made of, for its `repr`.
    serve : callable, optional
        Makes it a server, given an address and certificates; None if it is a client itself.
    timeout_s : float
        How long calls wait if they do not say.
    """

    def __init__(
        self,
        backend: Backend,
        *,
        connect: Callable[[str], Backend],
        cluster: C,
        shutdown: Callable[[float], None],
        description: str,
        serve: Callable[[str, Path | str], str] | None = None,
        timeout_s: float = TIMEOUT_S_DEFAULT,
    ) -> None:
        super().__init__(backend, "default", timeout_s)
        self._connect = connect
        self._cluster = cluster
        self._shutdown = shutdown
        self._serve = serve
        self._description = description
        self._sessions: dict[str, Session] = {}
        self._making = threading.Lock()

    @property
    def cluster(self) -> C:
        """What administers the processes behind."""
        self._desk.check_process()
        return self._cluster

    def session(self, name: str, *, timeout_s: float | None = None) -> Session:
        """Open a session; the same name gives the same open session.

        Raises
        ------
        ClosedError
            If the store is closed.
        """
        with self._making:
            self._desk.check_usable()
            found = self._sessions.get(name)
            if found is None or found.is_closed:
                seconds = checked_timeout(timeout_s, self._desk.timeout_s)
                found = self._sessions[name] = Session(self._connect(name), name, seconds)
            return found

    def serve(self, address: str = "127.0.0.1:0", *, tls: Path | str) -> str:
        """Let clients on the network use this store, until it is closed.

        Parameters
        ----------
        address : str
            ``host:port`` to listen at; port 0 takes a free one.
        tls : path
            The folder of an authority, as ``crescando certs init`` makes it; or one file that
            names every process of the store and ``node/store``.

        Returns
        -------
        str
            What clients pass to `crescando.connect`.

        Raises
        ------
        SpecError
            If it cannot listen there, serves already, or is a client itself.
        CredentialsError
            If the certificates cannot be used.
        """
        self._desk.check_usable()
        if self._serve is None:
            raise SpecError("this store is a client of a cluster, which serves already; connect to that")
        return self._serve(address, tls)

    def close(self, timeout_s: float = CLOSE_TIMEOUT_S) -> None:
        """Close every session, then everything that was started for the store."""
        end = time.monotonic() + checked_timeout(timeout_s, CLOSE_TIMEOUT_S)
        if self._desk.is_forked:
            return
        with self._making:
            if not self._desk.refuse_new_work():
                return
            sessions = [session for session in self._sessions.values() if not session.is_closed]
        for session in sessions:
            session.close(max(0.0, end - time.monotonic()))
        self._desk.backend.close(max(0.0, end - time.monotonic()))
        self._shutdown(max(0.0, end - time.monotonic()))

    def __repr__(self) -> str:
        return f"<crescando store: {self._description}{', closed' if self.is_closed else ''}>"
