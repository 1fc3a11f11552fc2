"""Long answers go as fast as they are taken, short ones at once, and neither is lost or doubled."""

from __future__ import annotations

import msgspec
import numpy as np

from crescando.client.base import Piece
from crescando.engine.base import Failed, Results, Rows
from crescando.engine.statement import Column
from crescando.engine.written import Written
from crescando.roles.answers import Parts, answers_of
from crescando.roles.outbox import LONG_BYTES, PIECES_OPEN_MAX, Outbox
from crescando.schema import DataType
from crescando.types import FULL_RING, ProcessId

S0, S1, ME = ProcessId("storage", "s0"), ProcessId("storage", "s1"), ProcessId("client", "c")
SCOPE = (FULL_RING,)


def rows(*numbers: int, n_rows: int = 1, part: int = 0, has_more: bool = False) -> Rows:
    n = len(numbers)
    return Rows(
        np.array(numbers),
        np.array(numbers) * 10,
        np.zeros(n, np.int64),
        (SCOPE,),
        np.arange(n + 1) * n_rows,
        ("v",),
        (Column(DataType.INT64, np.arange(n * n_rows)),),
        part,
        has_more,
    )


def results(*answers: Rows, written: int | None = None) -> Results:
    wrote = () if written is None else (Written.of(written, written * 10, ()),)
    return Results(S0, ME, 1, answers, (), wrote)


LONG = LONG_BYTES // 8 + 1
ROOM = 1 << 40


def test_short_results_go_at_once_whatever_waits() -> None:
    outbox = Outbox(100 * LONG_BYTES)
    for number in range(1, PIECES_OPEN_MAX + 3):
        outbox.offer(results(rows(number, n_rows=LONG)), ROOM)
    assert len(outbox) == 2
    short = results(rows(50, 51), written=52)
    assert outbox.offer(short, ROOM) == ([short], [50, 51])


def test_long_answers_wait_until_one_is_taken() -> None:
    outbox = Outbox(100 * LONG_BYTES)
    sent, ended = [], []
    for part in range(10):
        more = results(rows(7, n_rows=3, part=part, has_more=part < 9))
        to_send, done = outbox.offer(more, ROOM)
        sent += to_send
        ended += done
    assert len(sent) == PIECES_OPEN_MAX
    assert ended == []
    while len(outbox):
        to_send, done = outbox.take(1)
        assert len(to_send) == 1
        sent += to_send
        ended += done
    assert [piece.rows[0].part for piece in sent] == list(range(10))
    assert ended == [7]


def test_what_writes_did_goes_before_rows_that_wait() -> None:
    outbox = Outbox(100 * LONG_BYTES)
    for number in range(1, PIECES_OPEN_MAX + 1):
        outbox.offer(results(rows(number, n_rows=LONG)), ROOM)
    to_send, ended = outbox.offer(results(rows(60, n_rows=LONG), written=61), ROOM)
    assert [(len(each.rows), len(each.written)) for each in to_send] == [(0, 1)]
    assert ended == []
    assert outbox.drop() == [60]


def test_a_read_that_finds_no_room_fails_alone() -> None:
    outbox = Outbox(3 * LONG_BYTES)
    kept = []
    for number in range(1, PIECES_OPEN_MAX + 6):
        to_send, ended = outbox.offer(results(rows(number, n_rows=LONG)), ROOM)
        failed = [failed for each in to_send for failed in each.failed]
        if failed:
            assert [(each.number, each.position, each.scope) for each in failed] == [
                (number, number * 10, SCOPE)
            ]
            assert "3 MiB" in failed[0].text
            assert ended == [number]
        else:
            kept.append(number)
    assert kept == list(range(1, PIECES_OPEN_MAX + 3))
    rest = [number for _ in range(5) for number in outbox.take(1)[1]]
    assert rest == kept[PIECES_OPEN_MAX:]


def test_parts_are_joined_and_those_of_ended_sessions_forgotten() -> None:
    parts = Parts()
    pieces = [rows(7, n_rows=2, part=part, has_more=part < 2) for part in range(3)]
    answers = [answer for piece in pieces for answer in answers_of(piece)]
    assert [parts.join(S0, answer) for answer in answers[:2]] == [None, None]
    assert parts.join(S1, answers[2]) is None
    whole = parts.join(S0, answers[2])
    assert whole is not None
    assert [piece.columns[0].to_list() for piece in whole if isinstance(piece, Piece)] == [[0, 1]] * 3
    assert len(parts) == 0

    parts.join(S0, answers[0])
    parts.end_session(S0)
    assert [parts.join(S0, answer) for answer in answers[1:]] == [None, None]
    assert len(parts) == 0
    parts.join(S0, answers[0])
    parts.end_read(7)
    assert len(parts) == 0


def test_only_the_last_read_of_a_piece_goes_on() -> None:
    piece = rows(1, 2, 3, part=4, has_more=True)
    found = [(answer.number, answer.part, answer.has_more) for answer in answers_of(piece)]
    assert found == [(1, 4, False), (2, 0, False), (3, 0, True)]
    failed = Failed(9, 90, SCOPE, "read", (), "")
    outbox = Outbox(LONG_BYTES)
    _, ended = outbox.offer(msgspec.structs.replace(results(piece), failed=(failed,)), ROOM)
    assert ended == [9, 1, 2]


def test_slow_clients_together_hold_no_more_than_there_is_room_for() -> None:
    outboxes = [Outbox(100 * LONG_BYTES) for _ in range(3)]
    refused = 0
    for number in range(1, 3 * (PIECES_OPEN_MAX + 3) + 1):
        room = 4 * LONG_BYTES - sum(each.n_bytes for each in outboxes)
        to_send, ended = outboxes[number % 3].offer(results(rows(number, n_rows=LONG)), room)
        if to_send and to_send[0].failed:
            refused += 1
            assert ended == [number]
            assert "too many clients" in to_send[0].failed[0].text
    assert sum(map(len, outboxes)) == 3
    assert refused == 6
