"""Results on their way to one client: short ones at once, long answers as fast as they are taken.

Rules of the file: of a long answer only a few pieces are on their way; the next
goes when the client says that it has taken one. What waits is bounded in bytes,
and a slow client holds up nobody but itself: not the scan, which never waits,
and not its own short answers, which go past. A read that finds no room fails,
alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Container

import msgspec

from crescando.engine.base import Failed, Partials, Results, Rows

LONG_BYTES = 1 << 20
"""Results that weigh less are sent at once, unless they are a part of something longer."""

PIECES_OPEN_MAX = 4
"""Pieces that may be on their way to one client: it works on one while others come."""


class Outbox:
    """What waits for one client.

    Parameters
    ----------
    bytes_max : int
        What may wait, one piece apart.
    """

    def __init__(self, bytes_max: int) -> None:
        self._bytes_max = bytes_max
        self._waiting: deque[Results] = deque()
        self._bytes = 0
        self._n_open = 0

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def n_bytes(self) -> int:
        """What waits."""
        return self._bytes

    def offer(self, results: Results, room: int) -> tuple[list[Results], list[int]]:
        """Take results.

        Parameters
        ----------
        results : Results
        room : int
            Bytes that may wait yet for all clients together.

        Returns
        -------
        to_send : list of Results
            What to send now.
        ended : list of int
            Numbers of the reads whose answer is sent wholly with that.
        """
        if not is_long(results):
            return [results], _ended(results)
        # What writes did, and what failed, does not wait behind rows.
        head = msgspec.structs.replace(results, rows=(), partials=())
        piece = msgspec.structs.replace(results, written=(), failed=())
        to_send = [head] if head.written or head.failed else []
        ended = _ended(head)
        if self._bytes and self._bytes + piece.n_bytes > self._bytes_max:
            to_send.append(_refused(piece, f"of more than {self._bytes_max >> 20} MiB wait for this client"))
            return to_send, ended + _ended(to_send[-1])
        if self._n_open < PIECES_OPEN_MAX:
            self._n_open += 1
            return [*to_send, piece], ended + _ended(piece)
        if piece.n_bytes > room:
            to_send.append(_refused(piece, "wait for too many clients, this one among them"))
            return to_send, ended + _ended(to_send[-1])
        self._waiting.append(piece)
        self._bytes += piece.n_bytes
        return to_send, ended

    def drop(self) -> list[int]:
        """Give the numbers of the reads whose answers still wait, when the session has ended."""
        return [number for piece in self._waiting for number in numbers_of(piece)]

    def forget(self, numbers: Container[int]) -> None:
        """Drop what waits for reads that are called off and for no other."""
        kept = [piece for piece in self._waiting if any(each not in numbers for each in numbers_of(piece))]
        self._waiting = deque(kept)
        self._bytes = sum(piece.n_bytes for piece in kept)

    def take(self, n_taken: int) -> tuple[list[Results], list[int]]:
        """Learn that the client has taken long answers' pieces; as `offer`."""
        self._n_open = max(0, self._n_open - n_taken)
        to_send: list[Results] = []
        while self._waiting and self._n_open < PIECES_OPEN_MAX:
            piece = self._waiting.popleft()
            self._bytes -= piece.n_bytes
            self._n_open += 1
            to_send.append(piece)
        return to_send, [number for piece in to_send for number in _ended(piece)]


def _refused(results: Results, why: str) -> Results:
    """Give the failures of the reads whose pieces have no room."""
    text = (
        f"answers {why}; they are taken too slowly: take the results of reads before you send more, "
        "or ask for less"
    )
    answers: list[Rows | Partials] = [*results.rows, *results.partials]
    failed = [
        Failed(number, at, answer.scopes[scope], "read", (), text)
        for answer in answers
        for number, at, scope in zip(
            answer.number.tolist(), answer.position.tolist(), answer.scope.tolist(), strict=True
        )
    ]
    return msgspec.structs.replace(results, rows=(), partials=(), failed=(*results.failed, *failed))


def is_long(results: Results) -> bool:
    """Say whether results are a piece that the client says it has taken."""
    answers: list[Rows | Partials] = [*results.rows, *results.partials]
    if any(answer.part or answer.has_more for answer in answers):
        return True
    return bool(answers) and results.n_bytes > LONG_BYTES


def n_outcomes(results: Results) -> int:
    """Give how many outcomes some results tell."""
    answers: list[Rows | Partials] = [*results.rows, *results.partials]
    return (
        sum([len(answer.number) for answer in answers]) + sum(map(len, results.written)) + len(results.failed)
    )


def numbers_of(results: Results) -> list[int]:
    """Give every read that some results answer, in part or wholly, and everything that failed."""
    answers: list[Rows | Partials] = [*results.rows, *results.partials]
    numbers = [number for answer in answers for number in answer.number.tolist()]
    return numbers + [failed.number for failed in results.failed]


def _ended(results: Results) -> list[int]:
    """Give the reads whose answers end in some results."""
    answers: list[Rows | Partials] = [*results.rows, *results.partials]
    numbers = [failed.number for failed in results.failed]
    for answer in answers:
        listed = answer.number.tolist()
        numbers.extend(listed[:-1] if answer.has_more else listed)
    return numbers
