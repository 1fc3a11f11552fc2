"""Pinning tables, and reading what is pinned, from any session of any process.

Rules of the file: a pin is ordered once, behind what its session has submitted; who holds what
is then asked of everybody. A read goes through its part strip by strip: what has come of a strip
is handed on when all of it has, so that when its holder fails another one goes on with the next
strip, and no row is missed or comes twice.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import Any, Self, TypeVar

import numpy as np

from crescando.client.answer import Answer
from crescando.client.flight import Desk
from crescando.client.pinned import (
    LEASE_S_MAX,
    Fetch,
    Fetched,
    Hold,
    Holding,
    Kept,
    PinAnswer,
    PinFault,
    PinId,
    PinnedArc,
    PinnedPart,
    PinQuestion,
    PinTicket,
    Release,
    Renew,
    parts_of,
)
from crescando.client.template import Params, Prepared
from crescando.client.textual import Columns, Where, read_template
from crescando.client.waiting import Steps, checked_timeout, wait
from crescando.engine.aggregate import column_bytes
from crescando.engine.ranges import intersect
from crescando.engine.statement import PHYSICAL, Column, Shape, encode_parameters
from crescando.errors import (
    CrescandoError,
    DeadlineError,
    InvariantError,
    ReadFailedError,
    ReadLostError,
    RefusedError,
    SnapshotExpiredError,
    StatementError,
    UnknownTableError,
)
from crescando.scopes import covers, merged
from crescando.types import FULL_RING, KeyRange, ProcessId

T = TypeVar("T")

LEASE_S_DEFAULT = 600.0
"""How long a pin lasts unless it is renewed."""

STANDINS_S = 1.0
"""How long, when every range has a holder, further ones are waited for that keep silent."""

OWNER_S = 10.0
"""How long one holder is waited for before another one is asked."""

CLOSE_S = 1.0
"""How long it is waited for that all holders have forgotten a pin; its lease ends it, too."""

PAUSE_S = 0.05
"""Before holders are asked again that could not be reached, or have too much to do."""

TORN_BYTES = 64 << 20
"""So much of one strip is kept until all of it has come; of a larger one rows are handed on before."""


class Pinned:
    """Tables as they are at one position of the order, kept under a lease; made by ``store.pin``.

    Leaving its context closes it.

    Parameters
    ----------
    desk : Desk
    ticket : PinTicket
    arcs : sequence of PinnedArc

    Attributes
    ----------
    ticket : PinTicket
        All that another session, process or host needs beside a part.
    """

    def __init__(self, desk: Desk, ticket: PinTicket, arcs: Sequence[PinnedArc]) -> None:
        self._desk = desk
        self._arcs = tuple(arcs)
        self._is_closed = False
        self.ticket = ticket

    @property
    def position(self) -> int:
        """Everything before it in the one order shows, and nothing after it."""
        return self.ticket.position

    def parts(self, table: str, n: int | None = None) -> tuple[PinnedPart, ...]:
        """Give the parts of a table: each row is in exactly one.

        Parameters
        ----------
        table : str
        n : int, optional
            How many there are to be, if there are no more arcs of the ring; by default as many as its
            size demands.

        Raises
        ------
        UnknownTableError
            With the nearest name, if it is not pinned.
        SpecError
            If `n` is no number of parts.
        """
        return parts_of(self.ticket, self._arcs, table, n)

    def renew(self, lease_s: float | None = None, *, timeout_s: float | None = None) -> None:
        """Let the lease last so long from now on: as long as at first, if it is not said.

        Whoever reads a part does so by itself, as often as is needed.

        Raises
        ------
        SnapshotExpiredError
            If some range is not kept any more by anybody.
        """
        lease_s = self.ticket.lease_s if lease_s is None else checked_lease(lease_s)
        renew = Renew(self.ticket.pin, lease_s)
        answers = _ask_all(self._desk, self.ticket.holders, renew, timeout_s, OWNER_S)
        kept = {process for process, answer in answers.items() if isinstance(answer, Kept)}
        if not all(kept.intersection(arc.owners) for arc in self._arcs):
            raise SnapshotExpiredError(_reasons(answers))

    def close(self, *, timeout_s: float | None = None) -> None:
        """Let everybody forget it; twice is as good as once."""
        if not self._is_closed and not self._desk.is_forked:
            self._is_closed = True
            release = Release(self.ticket.pin)
            _ask_all(self._desk, self.ticket.holders, release, timeout_s, CLOSE_S)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.close()
        except CrescandoError:
            # Its lease ends it; what was raised inside says more.
            if error is None:
                raise

    def __repr__(self) -> str:
        names = ", ".join(schema.name for schema in self.ticket.tables)
        state = ", closed" if self._is_closed else ""
        return f"<pinned snapshot of {names} at position {self.position}{state}>"


def checked_lease(lease_s: float) -> float:
    """Give the length of a lease.

    Raises
    ------
    StatementError
        If it is not above 0, or longer than a day.
    """
    if isinstance(lease_s, bool) or not isinstance(lease_s, int | float) or not 0 < lease_s <= LEASE_S_MAX:
        raise StatementError(f"lease_s must be above 0 and at most {LEASE_S_MAX:.0f}, not {lease_s!r}")
    return float(lease_s)


def pin(desk: Desk, tables: Sequence[str], lease_s: float, timeout_s: float | None) -> Pinned:
    """Pin tables at one position; see `Session.pin`."""
    desk.check_usable()
    lease_s = checked_lease(lease_s)
    deadline = _Deadline(desk, timeout_s, "the pin of a snapshot", "store.pin")
    if not tables or not all(isinstance(name, str) for name in tables):
        raise StatementError("name the tables to be pinned, such as store.pin('flights', 'seats')")
    catalog = deadline.wait(desk.backend.refresh_catalog())
    for name in tables:
        if name not in catalog:
            raise UnknownTableError(name, tuple(catalog))
    ids = tuple(catalog[name].id for name in dict.fromkeys(tables))
    ordered = desk.backend.pin(ids, lease_s)
    try:
        pin_id = deadline.wait(ordered)
        asked: set[ProcessId] = set()
        holdings = _gather(desk, pin_id, asked, deadline)
        position, arcs = _united(holdings)
        schemas = holdings[arcs[0].owners[0]].tables
        ticket = PinTicket(pin_id, position, schemas, tuple(sorted(asked)), lease_s)
        return Pinned(desk, ticket, arcs)
    except BaseException:
        # Whoever has it, or will have it, lets go of it, or its lease will.
        ordered.add_done_callback(lambda ordered: _release(desk, ordered))
        raise


def _release(desk: Desk, ordered: Future[PinId]) -> None:
    """Let everybody forget what was pinned in vain; waits for nothing."""

    def known(found: Future[tuple[ProcessId, ...]]) -> None:
        if not found.exception():
            for process in found.result():
                desk.backend.ask_pinned(process, Release(ordered.result()))

    if not ordered.exception():
        desk.backend.holders().add_done_callback(known)


def _gather(
    desk: Desk, pin_id: PinId, everybody: set[ProcessId], deadline: _Deadline
) -> dict[ProcessId, Holding]:
    """Ask everybody what they hold, until every range has a holder, and a little longer for stand-ins.

    Whoever is asked is added to `everybody`.
    """
    backend = desk.backend
    holdings: dict[ProcessId, Holding] = {}
    faults: dict[ProcessId, str] = {}
    asked = {
        process: backend.ask_pinned(process, Hold(pin_id)) for process in deadline.wait(backend.holders())
    }
    everybody.update(asked)
    covered_s: float | None = None
    while True:
        for process, future in list(asked.items()):
            if not future.done():
                continue
            del asked[process]
            answer = _answer_of(future)
            if isinstance(answer, Kept):
                holdings[process] = answer.holding
            elif isinstance(answer, PinFault) and answer.kind == "over":
                raise RefusedError(f"the tables are not pinned: {answer.text}")
            else:
                faults[process] = answer.text if isinstance(answer, PinFault) else str(answer)
        now_s = time.monotonic()
        if covered_s is None and covers(_arcs_of(holdings), (FULL_RING,)):
            covered_s = now_s
        if covered_s is not None and (not asked or now_s > covered_s + STANDINS_S):
            return holdings
        if not deadline.left_s():
            told = "; ".join(faults.values()) or "nobody answers"
            raise DeadlineError(f"no holder of some range has told of the pin within the time: {told}")
        if asked:
            _is_done(next(iter(asked.values())), PAUSE_S)
        else:
            time.sleep(PAUSE_S)
            again = [process for process in deadline.wait(backend.holders()) if process not in holdings]
            asked = {process: backend.ask_pinned(process, Hold(pin_id)) for process in again}
            everybody.update(asked)


def _arcs_of(holdings: dict[ProcessId, Holding]) -> tuple[KeyRange, ...]:
    return merged(tuple(sorted({arc for holding in holdings.values() for arc in holding.arcs})))


def _united(holdings: dict[ProcessId, Holding]) -> tuple[Any, list[PinnedArc]]:
    """Give the one position, and every arc with its holders."""
    positions = {holding.position for holding in holdings.values()}
    if len(positions) != 1:
        raise InvariantError(f"a snapshot was pinned at several positions: {sorted(positions)}")
    arcs: dict[KeyRange, PinnedArc] = {}
    for process, holding in sorted(holdings.items()):
        for place, key_range in enumerate(holding.arcs):
            known = arcs.get(key_range)
            if known is not None:
                arcs[key_range] = known._replace(owners=(*known.owners, process))
                continue
            n_rows = tuple(of_table[place] for of_table in holding.rows)
            n_bytes = tuple(of_table[place] for of_table in holding.sizes)
            arcs[key_range] = PinnedArc(key_range, (process,), n_rows, n_bytes)
    return positions.pop(), [arcs[key_range] for key_range in sorted(arcs)]


# Reading.


def read_pinned(
    desk: Desk,
    ticket: PinTicket,
    part: PinnedPart,
    columns: Columns,
    where: Where,
    params: Params,
    timeout_s: float | None,
) -> Iterator[Answer]:
    """Read a part piece by piece; see `Session.read_pinned`."""
    desk.check_usable()
    seconds = checked_timeout(timeout_s, desk.timeout_s)
    if not isinstance(ticket, PinTicket) or not isinstance(part, PinnedPart):
        raise StatementError(
            "pass the ticket of a pinned snapshot and one of its parts, as pinned.ticket and "
            "pinned.parts(table) give them; bytes are read by PinTicket.decode and PinnedPart.decode"
        )
    prepared = Prepared(
        read_template(columns, where), ticket.schema(part.table), desk.backend.request_bytes_max
    )
    request = prepared.request(params)
    if not intersect(request.ranges, (part.key_range,)):
        return iter((_nothing(ticket, request.shape),))
    return _Reading(desk, ticket, part, request.shape, request.parameters, seconds).pieces()


class _Reading:
    """One read of one part."""

    def __init__(
        self,
        desk: Desk,
        ticket: PinTicket,
        part: PinnedPart,
        shape: Shape,
        parameters: tuple[Any, ...],
        timeout_s: float,
    ) -> None:
        self._desk = desk
        self._ticket = ticket
        self._part = part
        self._shape = shape
        self._encoded = shape.encode(), encode_parameters(shape, parameters)
        self._timeout_s = timeout_s
        self._owners = list(part.owners)
        self._faults: dict[ProcessId, str] = {}
        self._gone: set[ProcessId] = set()
        """Owners that do not keep it any more."""
        self._is_busy = False
        """Whether the owner said last that it has too much to do for the moment."""

    def _ask(self, strip: int, offset: int) -> Future[PinAnswer]:
        self._keep_alive()
        part = self._part
        fetch = Fetch(self._ticket.pin, *self._encoded, part.key_range, part.n_strips, strip, offset)
        return self._desk.backend.ask_pinned(self._owners[0], fetch)

    def _keep_alive(self) -> None:
        """Renew the lease now and then, of all that is pinned: others read on when this part is read."""
        ticket = self._ticket
        if self._desk.progress.is_due(ticket.pin, ticket.lease_s):
            for holder in ticket.holders:
                # What they answer is not waited for: who does not keep it is not asked for rows, or says so.
                self._desk.backend.ask_pinned(holder, Renew(ticket.pin, ticket.lease_s))

    def pieces(self) -> Iterator[Answer]:
        """Give the rows, a bounded number at a time; at least one piece, be it empty."""
        strip, offset = 0, 0
        held: list[Answer] = []
        held_bytes, n_given, is_torn = 0, 0, False
        progress_s = time.monotonic()
        asked = self._ask(strip, offset)
        while strip < self._part.n_strips:
            answer = self._wait(asked, progress_s, is_torn=is_torn)
            if not isinstance(answer, Fetched):
                if is_torn and self._is_busy and time.monotonic() < progress_s + self._timeout_s:
                    # Nobody else can go on in the middle.
                    time.sleep(PAUSE_S)
                    asked = self._ask(strip, offset)
                    continue
                if is_torn:
                    raise ReadLostError(
                        f"{self._owners[0]} failed within a strip of more than {TORN_BYTES >> 20} MiB, "
                        f"of which some was given already ({self._faults[self._owners[0]]}); read it anew"
                    )
                self._turn(progress_s)
                offset, held, held_bytes = 0, [], 0
                asked = self._ask(strip, offset)
                continue
            progress_s = time.monotonic()
            if (answer.strip, answer.offset) <= (strip, offset):
                raise InvariantError(f"{self._owners[0]} answers from before where the read goes on")
            strip, offset = answer.strip, answer.offset
            if strip < self._part.n_strips:
                # Its holder works on what comes next while this is used.
                asked = self._ask(strip, offset)
            held.append(Answer.of(self._ticket.position, answer.names, answer.columns))
            held_bytes += sum(map(column_bytes, answer.columns))
            is_torn = bool(offset) and (is_torn or held_bytes > TORN_BYTES)
            if not offset or is_torn:
                for piece in held:
                    if len(piece):
                        n_given += 1
                        yield piece
                held, held_bytes = [], 0
                # However long these were looked at.
                progress_s = time.monotonic()
        if not n_given:
            yield _nothing(self._ticket, self._shape)

    def _wait(self, asked: Future[PinAnswer], progress_s: float, *, is_torn: bool) -> Fetched | None:
        """Give an answer; None, and why, if another owner is to be asked."""
        owner = self._owners[0]
        self._is_busy = False
        left_s = max(0.0, progress_s + self._timeout_s - time.monotonic())
        patience_s = min(left_s, OWNER_S) if len(self._owners) > 1 and not is_torn else left_s
        if not _is_done(asked, patience_s):
            self._faults[owner] = f"{owner} keeps silent"
            return None
        answer = _answer_of(asked)
        if isinstance(answer, Fetched):
            return answer
        if isinstance(answer, Exception):
            self._faults[owner] = str(answer)
            return None
        if not isinstance(answer, PinFault):
            raise InvariantError(f"{owner} gives {answer!r} for rows")
        if answer.kind == "read":
            raise ReadFailedError(f"{answer.text} (smallest key {answer.key!r})")
        if answer.kind == "invalid":
            raise StatementError(f"{owner}: {answer.text}")
        self._is_busy = answer.kind == "busy"
        if not self._is_busy:
            self._gone.add(owner)
        self._faults[owner] = answer.text
        return None

    def _turn(self, progress_s: float) -> None:
        """Choose another owner, or say that there is none."""
        left = [owner for owner in self._owners if owner not in self._gone]
        tried = all(owner in self._faults for owner in left)
        if not left or (tried and time.monotonic() >= progress_s + self._timeout_s):
            raise SnapshotExpiredError("; ".join(self._faults.values()))
        self._owners.append(self._owners.pop(0))
        while self._owners[0] in self._gone:
            self._owners.append(self._owners.pop(0))
        if tried:
            time.sleep(PAUSE_S)


def _nothing(ticket: PinTicket, shape: Shape) -> Answer:
    """Give no rows, with the columns that they would have."""
    outputs = shape.projections
    columns = [Column(each.term.type, np.zeros(0, PHYSICAL[each.term.type]), None) for each in outputs]
    return Answer.of(ticket.position, tuple(each.name for each in outputs), columns)


# Waiting.


class _Deadline:
    """What is left of the time of one call."""

    def __init__(self, desk: Desk, timeout_s: float | None, what: str, verb: str) -> None:
        self._seconds = checked_timeout(timeout_s, desk.timeout_s)
        self._end_s = time.monotonic() + self._seconds
        self._what = what
        self._twin = f"await asyncio.to_thread({verb}, …)"

    def left_s(self) -> float:
        return max(0.0, self._end_s - time.monotonic())

    def wait(self, future: Future[T]) -> T:
        return wait(_result_of(future), self.left_s(), what=self._what, twin=self._twin)


def _result_of(future: Future[T]) -> Steps[T]:
    yield future
    return future.result()


def _is_done(future: Future[Any], timeout_s: float) -> bool:
    """Wait for a future; says whether it is done."""

    def steps() -> Steps[None]:
        yield future

    try:
        wait(steps(), max(0.0, timeout_s), what="a pinned snapshot", twin="await asyncio.to_thread(…)")
    except DeadlineError:
        return False
    return True


def _answer_of(future: Future[PinAnswer]) -> PinAnswer | CrescandoError:
    try:
        return future.result()
    except CrescandoError as error:
        return error


def _ask_all(
    desk: Desk,
    processes: Sequence[ProcessId],
    question: PinQuestion,
    timeout_s: float | None,
    patience_s: float,
) -> dict[ProcessId, PinAnswer | CrescandoError]:
    """Ask everybody the same, and give what they answer in time."""
    end_s = time.monotonic() + min(checked_timeout(timeout_s, desk.timeout_s), patience_s)
    desk.check_usable()
    futures = {process: desk.backend.ask_pinned(process, question) for process in processes}
    answers: dict[ProcessId, PinAnswer | CrescandoError] = {}
    for process, future in futures.items():
        if _is_done(future, end_s - time.monotonic()):
            answers[process] = _answer_of(future)
        else:
            answers[process] = DeadlineError(f"{process} keeps silent")
    return answers


def _reasons(answers: dict[ProcessId, PinAnswer | CrescandoError]) -> str:
    told = [each.text if isinstance(each, PinFault) else str(each) for each in answers.values()]
    return "; ".join(told)
