"""Every exception of crescando, and whose move each one is.

::

    CrescandoError
    ├── SpecError                 the caller asked for a cluster that cannot be, or what none can do
    ├── ClosedError               the store, session or handle is closed
    ├── StatementError            the caller's statement is wrong; nothing was sent
    │   ├── UnknownTableError     has .table and .nearest
    │   ├── UnknownColumnError    has .column and .nearest
    │   ├── TypeMismatchError     an operator or value does not fit a column's type
    │   ├── PredicateError        has .text and .position
    │   └── KeyUpdateError        an assignment to a key column
    ├── OperationError            a statement was sent; .applied says what it did
    │   ├── DeadlineError         the caller's wait ended; applied `unknown`
    │   ├── RefusedError          refused alike everywhere; applied `no`
    │   ├── LostError             every owner of a range failed; applied `unknown`
    │   ├── CountUnknownError     a durable write of whose rows nobody can tell any more; applied `yes`
    │   ├── ReturnedLostError     a durable write returned more rows than are kept; applied `yes`
    │   ├── RowsRejectedError     some rows kept their values; applied `partial`
    │   ├── ReadCancelledError    the caller called a read off
    │   ├── ReadFailedError       a read met an erroneous row; it fails as a whole
    │   ├── ReadLostError         a read lost its owner and keeps its place; retry it
    │   ├── SnapshotExpiredError  a pinned snapshot is over: nobody keeps it any more
    │   ├── NoQuorumError         no majority of routers; nothing can be ordered
    │   ├── LoadConflictError     keys of a load are taken; nothing of it is shown; has .n_conflicts and .keys
    │   ├── LoadGoneError         the load has ended: aborted, expired or taken over; applied `no`
    │   ├── LoadLostError         rows of a load were lost before its commit; nothing of it is shown
    │   └── MoveDroppedError      a change of the keyspace was dropped; the layout before it stands
    ├── ConfigError               a routing plug-in broke its contract; names the plug-in
    ├── TransportError
    │   ├── CredentialsError      a key, certificate or list of them cannot be used; has .file
    │   ├── SessionRefusedError   there is no session with a peer; has .peer and .is_permanent
    │   ├── LocalProtocolError    we tried to send something illegal
    │   └── RemoteProtocolError   the peer sent something illegal
    └── InvariantError            a bug in crescando, never the caller's fault; the node stops

Exceptions survive pickling: every constructor argument goes to ``super().__init__``.
"""

from __future__ import annotations

from difflib import get_close_matches
from typing import Literal

Applied = Literal["yes", "no", "partial", "unknown"]


class CrescandoError(Exception):
    """The parent of every error raised by crescando."""


class SpecError(CrescandoError):
    """The caller asked for a cluster that cannot be, or for what no cluster can do."""


class ClosedError(CrescandoError):
    """The store, session or handle has been closed."""


_SHOWN_MAX = 4_000
"""Characters of a message; statements that are quoted in one may have a hundred times as many."""


class StatementError(CrescandoError):
    """The statement is wrong; it was not sent and nothing changed."""

    def __str__(self) -> str:
        return _shown(super().__str__())


def _shown(text: str) -> str:
    """Leave out the middle of a long text."""
    if len(text) <= _SHOWN_MAX:
        return text
    return f"{text[: _SHOWN_MAX // 2]} … {text[-_SHOWN_MAX // 2 :]}"


def nearest_name(name: str, known: tuple[str, ...]) -> str | None:
    """Give the known name closest to `name`, if one is close enough to suggest."""
    found = get_close_matches(name, known, n=1, cutoff=0.5)
    return found[0] if found else None


class UnknownTableError(StatementError):
    """No table has this name.

    Parameters
    ----------
    table : str
        The name that was not found.
    known : tuple of str
        The tables that exist.
    """

    def __init__(self, table: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(table, known)
        self.table = table
        self.nearest = nearest_name(table, known)

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"no table is named {self.table!r}{hint}"


class UnknownColumnError(StatementError):
    """The table has no column of this name.

    Parameters
    ----------
    column : str
        The name that was not found.
    table : str
        The table that was asked.
    known : tuple of str
        The table's columns.
    """

    def __init__(self, column: str, table: str, known: tuple[str, ...] = ()) -> None:
        super().__init__(column, table, known)
        self.column = column
        self.table = table
        self.nearest = nearest_name(column, known)

    def __str__(self) -> str:
        hint = f"; did you mean {self.nearest!r}?" if self.nearest else ""
        return f"table {self.table!r} has no column {self.column!r}{hint}"


class TypeMismatchError(StatementError):
    """An operator, function or value does not fit the types it is used with."""


class PredicateError(StatementError):
    """A predicate is malformed.

    Parameters
    ----------
    message : str
        What is wrong and how to mend it.
    text : str
        The predicate's text, or a rendering of the tree.
    position : int or None
        Offset in `text`, in characters, where the fault was noticed.
    """

    def __init__(self, message: str, text: str = "", position: int | None = None) -> None:
        super().__init__(message, text, position)
        self.message = message
        self.text = text
        self.position = position

    def __str__(self) -> str:
        if self.position is None:
            return _shown(self.message)
        start = max(0, self.position - 30)
        excerpt = self.text[start : self.position + 30]
        return f"{_shown(self.message)} at position {self.position}: …{excerpt}…"


class KeyUpdateError(StatementError):
    """An assignment names a column of the partition or primary key."""


class OperationError(CrescandoError):
    """A statement was sent and did not simply succeed; `applied` says what it did."""

    applied: Applied = "unknown"


class DeadlineError(OperationError):
    """The caller's wait ended first; the operation goes on and may yet take effect."""


class RefusedError(OperationError):
    """The operation was refused alike everywhere and changed nothing.

    Parameters
    ----------
    reason : str
        What refused it and what to do about it.
    """

    applied: Applied = "no"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


class LostError(OperationError):
    """Every owner of some touched range failed before confirming the operation."""


class CountUnknownError(OperationError):
    """A write is durable at its position, and nobody can tell any more what its count was.

    It is in the order, every owner that was correct then has it, and none will
    execute it again. How many rows it affected was known to owners that are
    gone, or that do not keep it any more; some or all rows may have been
    rejected, as `RowsRejectedError` would have told.

    Parameters
    ----------
    reason : str
        How that was noticed.
    """

    applied: Applied = "yes"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the write is durable; how many rows it affected is not known any more: {self.reason}"


class ReturnedLostError(OperationError):
    """A write is durable, and what it was to return is too much to be kept until its client has it.

    Parameters
    ----------
    affected : int
        How many rows were written.
    limit : int
        How many rows are kept of one part of the ring.
    """

    applied: Applied = "yes"

    def __init__(self, affected: int, limit: int) -> None:
        super().__init__(affected, limit)
        self.affected = affected
        self.limit = limit

    def __str__(self) -> str:
        return (
            f"the write is durable and affected {self.affected} rows; it returns none, since of one part of "
            f"the ring at most {self.limit} are kept: write in smaller parts, or read the rows instead"
        )


class RowsRejectedError(OperationError):
    """Some rows kept their values because an assignment or constraint failed on them.

    Parameters
    ----------
    affected, rejected : int
        How many rows were written, and how many kept their values.
    key : tuple
        The smallest rejected key.
    cause : str
        Why that row was rejected.
    """

    applied: Applied = "partial"

    def __init__(self, affected: int, rejected: int, key: tuple[object, ...], cause: str) -> None:
        super().__init__(affected, rejected, key, cause)
        self.affected = affected
        self.rejected = rejected
        self.key = key
        self.cause = cause

    def __str__(self) -> str:
        rows = "row was" if self.rejected == 1 else "rows were"
        return (
            f"{self.rejected} {rows} rejected and {self.affected} written; "
            f"the smallest rejected key {self.key!r}: {self.cause}"
        )


class ReadCancelledError(OperationError):
    """The caller called the read off, or the only call that waited for it has ended."""

    applied: Applied = "no"


class ReadFailedError(OperationError):
    """A read met an erroneous value; it fails as a whole, alone."""

    applied: Applied = "no"


class ReadLostError(OperationError):
    """A read lost its owner and cannot be sent again at a later position; retry the read."""

    applied: Applied = "no"


class SnapshotExpiredError(OperationError):
    """A pinned snapshot is over: its lease has ended, it was closed, or its memory was needed.

    Parameters
    ----------
    reason : str
        What ended it, as far as that is known.
    """

    applied: Applied = "no"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return (
            f"the pinned snapshot is over: {self.reason}; "
            "pin a new one, with a longer lease or renewed in time, and read all of its parts anew"
        )


class NoQuorumError(OperationError):
    """No majority of routers answers, so nothing can be ordered.

    Parameters
    ----------
    reason : str
        How that was noticed.
    applied : str
        ``no`` for what was not sent, and for reads; ``unknown`` for a write that
        was, since a majority that comes back may yet order it.
    """

    def __init__(self, reason: str, applied: Applied = "unknown") -> None:
        super().__init__(reason, applied)
        self.reason = reason
        self.applied = applied

    def __str__(self) -> str:
        return (
            f"{self.reason}, so nothing can be ordered; bring a majority of the routers back "
            "(status() names those that are down), and the store goes on by itself"
        )


LOAD_GONE = "the load is not open: its lease was over, it was aborted, its commit began, or a later load did"
"""Why a step of a load is refused."""

LOAD_PARTLY = "not everybody who holds a part of it has said that he has all of the load"
"""Why the end of a load is refused as long as somebody may lack something."""


class LoadGoneError(OperationError):
    """The load has ended before this step of it; nothing of it is shown, nor ever will be.

    Parameters
    ----------
    reason : str
        How that was noticed.
    """

    applied: Applied = "no"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason}; begin the load again, with a longer lease_s if it was over"


class LoadLostError(OperationError):
    """Everybody who held some rows of a load has failed before its commit; nothing of it is shown.

    Parameters
    ----------
    reason : str
        What is missing.
    """

    applied: Applied = "no"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"{self.reason}; nothing of the load is shown: load it again"


class LoadConflictError(OperationError):
    """Rows of a load by the rule ``fail`` have keys that exist, or that another row of it has.

    Nothing of the load is shown, and it has ended.

    Parameters
    ----------
    table : str
    n_conflicts : int
        Rows that could not be inserted.
    keys : tuple of tuple
        The smallest of their keys, ascending; none if it was sealed before, and that was told then.
    """

    applied: Applied = "no"

    def __init__(self, table: str, n_conflicts: int, keys: tuple[tuple[object, ...], ...]) -> None:
        super().__init__(table, n_conflicts, keys)
        self.table = table
        self.n_conflicts = n_conflicts
        self.keys = keys

    def __str__(self) -> str:
        shown = ", ".join(map(repr, self.keys[:5])) or "told when it was sealed first"
        rows = "row has a key" if self.n_conflicts == 1 else "rows have keys"
        return (
            f"{self.n_conflicts} {rows} that table {self.table!r} or the load itself has already, "
            f"the smallest: {shown}; nothing was loaded: remove them, or load by the rule 'keep' or 'replace'"
        )


class MoveDroppedError(OperationError):
    """A change of the keyspace was dropped: the layout before it stands, and no row was lost.

    Parameters
    ----------
    reason : str
        Who or what dropped it.
    """

    applied: Applied = "no"

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason

    def __str__(self) -> str:
        return f"the change was dropped, and the layout before it stands: {self.reason}"


class ConfigError(CrescandoError):
    """A routing plug-in broke its contract."""


class TransportError(CrescandoError):
    """Something about a channel went wrong."""


class CredentialsError(TransportError):
    """A key, a certificate or a list of certificates cannot be used.

    Parameters
    ----------
    file : str
        Where it is kept.
    fault : str
        What is wrong, and what mends it.
    """

    def __init__(self, file: str, fault: str) -> None:
        super().__init__(file, fault)
        self.file = file
        self.fault = fault

    def __str__(self) -> str:
        return f"{self.file}: {self.fault}"


class SessionRefusedError(TransportError):
    """There is no session with a peer.

    Parameters
    ----------
    peer : str
        With whom one was asked for.
    reason : str
        Why there is none, and what mends it.
    is_permanent : bool
        Whether trying again is of no use until somebody changes a file or a setting.
    """

    def __init__(self, peer: str, reason: str, is_permanent: bool) -> None:
        super().__init__(peer, reason, is_permanent)
        self.peer = peer
        self.reason = reason
        self.is_permanent = is_permanent

    def __str__(self) -> str:
        return f"no session with {self.peer}: {self.reason}"


class LocalProtocolError(TransportError):
    """We tried to send something the protocol forbids."""


class RemoteProtocolError(TransportError):
    """The peer sent something the protocol forbids."""


class InvariantError(CrescandoError):
    """A bug in crescando; the node that meets it stops and never carries on."""
