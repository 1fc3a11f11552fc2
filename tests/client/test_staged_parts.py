"""Parts and ends of loads whose cluster is slow: a wait that ends early loses nothing."""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from typing import Any

import pytest

from crescando.client import load as load_module
from crescando.client import progress
from crescando.client.base import LoadEnd, Request, StagedChunk, WriteOutcome
from crescando.client.flight import Desk
from crescando.client.load import Load, StagedPart
from crescando.client.pending import Pending
from crescando.client.tickets import LoadTicket, PartReceipt
from crescando.engine.loads import LoadCount
from crescando.engine.statement import Kind, Shape, decode_parameters
from crescando.engine.written import Count
from crescando.errors import (
    LOAD_GONE,
    DeadlineError,
    InvariantError,
    LoadConflictError,
    LoadGoneError,
    RefusedError,
    StatementError,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, LoadId, Position, ProcessId

SCHEMA = TableSchema(
    "t",
    (ColumnDef("id", DataType.INT64, False, id=0), ColumnDef("text", DataType.STRING, True, id=1)),
    partition_key="id",
    primary_key=("id",),
)
LOAD = LoadId(ProcessId("client", "d"), 2)
TICKET = LoadTicket(LOAD, "t", SCHEMA.id, SCHEMA.version, "j", -1, "insert", "keep", ("id", "text"), 60.0)


class Slow:
    """A backend that answers when a test wants it to."""

    def __init__(self) -> None:
        self.sent: list[tuple[Request, Pending]] = []
        self.controls: list[tuple[str, Future[None]]] = []

    def submit(self, request: Request, pending: Pending) -> None:
        self.sent.append((request, pending))

    def hurry(self) -> None:
        """Nothing waits for a turn's end."""

    def borders(self) -> tuple[int, ...]:
        return ()

    def abort_load(self, load: LoadId) -> Future[None]:
        return self._control("abort")

    def renew_load(self, load: LoadId) -> Future[None]:
        return self._control("renew")

    def close_load(self, load: LoadId) -> Future[None]:
        return self._control("close")

    def _control(self, what: str) -> Future[None]:
        self.controls.append((what, Future()))
        return self.controls[-1][1]

    def answer(self) -> None:
        """Let everything be staged."""
        for place, (_, pending) in enumerate(self.sent):
            if not pending.done():
                pending.set_result(WriteOutcome(Position(10 + place), ()))

    def rows(self) -> list[int]:
        """Give the keys that were sent, sorted."""
        keys: list[int] = []
        for request, _ in self.sent:
            assert isinstance(request.load, StagedChunk)
            columns = decode_parameters(Shape(Kind.INSERT, -1, 0), request.load.payload)
            keys += columns[0].values.tolist()
        return sorted(keys)


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr(load_module, "OPEN_BYTES_MAX", 1)
    monkeypatch.setattr("crescando.client.chunks.COLLECTED_ROWS", 1)
    monkeypatch.setattr("crescando.client.chunks.ROWS_MAX", 3)
    return Slow()


def desk(slow: Slow) -> Desk:
    return Desk(slow, timeout_s=0.2)  # type: ignore[arg-type]


def part(slow: Slow) -> StagedPart:
    return StagedPart(desk(slow), TICKET, SCHEMA, 0, 0)


def keys(ids: range) -> list[dict[str, Any]]:
    return [{"id": number} for number in ids]


def test_a_write_that_waits_in_vain_takes_nothing_and_loses_nothing(slow: Slow) -> None:
    staged = part(slow)
    staged.write(keys(range(10)))
    assert len(slow.sent) == 1, "no more may be on its way"
    for _ in range(3):
        with pytest.raises(DeadlineError):
            staged.write(keys(range(10, 20)), timeout_s=0)
        with pytest.raises(DeadlineError):
            staged.finish(timeout_s=0)

    receipt = None
    while receipt is None:
        slow.answer()
        try:
            receipt = staged.finish(timeout_s=0)
        except DeadlineError:
            continue
    assert slow.rows() == list(range(10))
    assert (receipt.n_rows, len(receipt.chunks)) == (10, len(slow.sent))
    assert [request.load.chunk for request, _ in slow.sent] == list(range(len(slow.sent)))  # type: ignore[union-attr]


def test_whoever_writes_renews_the_lease_and_whoever_pauses_does_not(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 100.0
    monkeypatch.setattr(progress.time, "monotonic", lambda: now_s)
    monkeypatch.setattr("crescando.client.chunks.COLLECTED_ROWS", 1_000)
    staged, renewed_s = part(slow), []
    for _ in range(20):
        # So few rows that none are sent yet.
        staged.write(keys(range(1)))
        if len(slow.controls) > len(renewed_s):
            renewed_s.append(now_s - 100.0)
        now_s += 10.0

    assert not slow.sent
    assert {what for what, _ in slow.controls} == {"renew"}
    assert renewed_s == [each * TICKET.lease_s / 3 for each in range(10)]


def test_a_part_whose_block_was_left_gives_no_receipt(slow: Slow) -> None:
    with part(slow) as staged:
        staged.write(keys(range(10)))
    with pytest.raises(StatementError, match=r"its block was left before finish\(\); stage another attempt"):
        staged.finish(timeout_s=0)


def test_a_part_with_a_row_that_is_too_long_gives_no_receipt(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crescando.client.chunks.CHUNK_BYTES_MAX", 2000)
    staged = part(slow)
    with pytest.raises(StatementError, match="a row takes"):
        staged.write([{"id": 1}, {"id": 2, "text": "x" * 3000}])
    for again in (lambda: staged.write([{"id": 3}]), staged.finish):
        with pytest.raises(StatementError, match="cannot be finished any more: a row takes"):
            again()


def test_what_is_interrupted_while_rows_are_sent_gives_no_receipt(
    slow: Slow, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(request: Request, pending: Pending) -> None:
        raise KeyboardInterrupt

    staged = part(slow)
    monkeypatch.setattr(slow, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        staged.write(keys(range(10)))
    with pytest.raises(StatementError, match="it was broken off"):
        staged.finish()


def test_an_abort_that_was_not_answered_is_ordered_again(slow: Slow) -> None:
    load = Load(desk(slow), TICKET, SCHEMA)
    for _ in range(2):
        with pytest.raises(DeadlineError):
            load.abort(timeout_s=0)
    assert [what for what, _ in slow.controls] == ["abort"], "it is under way"
    slow.controls[0][1].set_exception(RefusedError("no quorum"))
    with pytest.raises(RefusedError):
        load.abort(timeout_s=0)
    with pytest.raises(DeadlineError):
        load.abort(timeout_s=0)
    slow.controls[1][1].set_exception(RefusedError(f"{LOAD_GONE}: {LOAD}"))
    load.abort()
    load.abort()
    assert len(slow.controls) == 2, "it has ended"


def test_aborts_and_renewals_can_be_awaited(slow: Slow) -> None:
    async def main() -> None:
        load = Load(desk(slow), TICKET, SCHEMA)
        renewal = load.renew_nowait()
        assert not renewal.done()
        slow.controls[0][1].set_result(None)
        await renewal
        gone = load.renew_nowait()
        slow.controls[1][1].set_exception(RefusedError(f"{LOAD_GONE}: {LOAD}"))
        with pytest.raises(LoadGoneError):
            await gone
        abort = load.abort_nowait()
        slow.controls[2][1].set_result(None)
        await abort

    asyncio.run(main())
    assert [what for what, _ in slow.controls] == ["renew", "renew", "abort"]


RECEIPT = PartReceipt(LOAD, 0, 0, 5, (bytes(16),), 7, 10)


def told(step: LoadCount, affected: int) -> WriteOutcome:
    return WriteOutcome(Position(20), (Count(FULL_RING, affected, 0, step=int(step)),))


def ends(slow: Slow) -> list[tuple[str, Pending]]:
    return [(request.load.kind, p) for request, p in slow.sent if isinstance(request.load, LoadEnd)]


def test_a_commit_that_shows_other_rows_than_were_staged_is_told(slow: Slow) -> None:
    handle = Load(desk(slow), TICKET, SCHEMA).commit_nowait([RECEIPT])
    ((_, pending),) = ends(slow)
    pending.set_result(told(LoadCount.INSERTED, 4))
    with pytest.raises(InvariantError, match="has shown 4 rows, and its receipts are of 5"):
        handle.result()


def test_a_load_that_was_sealed_before_is_published_unless_keys_were_taken(slow: Slow) -> None:
    strict = LoadTicket(LOAD, "t", 0, 1, "j", -1, "insert", "fail", ("id", "text"), 60.0)
    handle = Load(desk(slow), strict, SCHEMA).commit_nowait([RECEIPT])
    ends(slow)[0][1].set_result(told(LoadCount.RESERVED, 5))
    with pytest.raises(DeadlineError):
        handle.result(timeout_s=0)
    assert [kind for kind, _ in ends(slow)] == ["seal", "publish"]

    handle = Load(desk(slow), strict, SCHEMA).commit_nowait([RECEIPT])
    ends(slow)[2][1].set_result(told(LoadCount.RESERVED, 3))
    with pytest.raises(DeadlineError):
        handle.result(timeout_s=0)
    slow.controls[-1][1].set_result(None)
    with pytest.raises(LoadConflictError, match="2 rows have keys") as raised:
        handle.result()
    assert raised.value.keys == ()
