"""A client's snapshot reads: sent whole to the lead router, and again until one attempt is answered.

Rules of the file: an attempt has a number of its own and is sent once, to one
router, which runs it at one position; so answers under one number belong
together, and what still comes of an attempt that was given up is dropped with
its number. A read waits for the writes that its session asked for before it, and
for no later one, of which one that cannot become stable would hold it up for
ever. An attempt is given up when a router or a destination refuses it,
when its router leads no more or any session that may carry its answers has
ended, and when it takes too long; then the whole read is a new attempt. It ends
when it is answered or refused for good, or when attempts have failed for so long
that more would not help: whoever asked may have stopped waiting long before. A router
with too many reads waiting makes a client pause: its reads wait here, and make
whoever asks for more wait, instead of knocking one by one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator
from dataclasses import dataclass
from typing import cast

from crescando.client.base import Piece, ReadAtOnce, Request
from crescando.engine.base import Partials, Results, Rows
from crescando.engine.statement import encode_call, encode_parameters, encode_shapes
from crescando.process import earliest
from crescando.roles.answers import Answer, answers_of
from crescando.roles.asked import Waiting
from crescando.roles.behind import Behind
from crescando.roles.completion import Executed, Stable
from crescando.roles.flight import InFlight
from crescando.roles.patience import Patience
from crescando.routing.batch import HEADER_BYTES, Message, submission
from crescando.routing.ecast.messages import Inject, ReadRefused
from crescando.types import MessageKind, Position, ProcessId, Scope

RETRY_S = 0.01
"""Pause before a refused read is sent again; doubled with each refusal of it."""

RETRY_S_MAX = 0.2

PAUSE_S = 0.01
"""Pause of all reads when the router has too many; doubled until one is answered."""

PAUSE_S_MAX = 0.5

PATIENCE_S = 1.0
"""How long an attempt may take at least (`Patience`); doubled with each, since scans may be slow."""

PATIENCE_S_MAX = 32.0

LIFE_S = 4 * PATIENCE_S_MAX
"""How long attempts are made: no less than two of the most patient ones, with all those before."""


@dataclass(slots=True)
class _Read:
    """One read, through all its attempts."""

    token: int
    request: Request
    behind: Behind
    give_up_s: float | None = None
    """When no more attempts are made; None before the first."""
    retry_s: float = RETRY_S
    patience_s: float = PATIENCE_S


@dataclass(frozen=True, slots=True)
class _Attempt:
    """A read that was sent to a router."""

    read: _Read
    flight: InFlight
    sent_s: float
    give_up_s: float
    n_bytes: int


class SnapshotReads:
    """The snapshot reads of one client.

    Parameters
    ----------
    me : ProcessId
    numbers : iterator of int
        Gives numbers above 0 for what is asked outside the order, each once.
    open_max, batch_max : int
        Attempts that may be open at once, and that one message holds.
    bytes_max : int
        What open attempts may weigh together, one larger read apart.

    Attributes
    ----------
    retried : int
        How often an attempt was given up.
    wake_at_s : float or None
        When an attempt is given up or made again.
    """

    def __init__(
        self, me: ProcessId, numbers: Iterator[int], *, open_max: int, batch_max: int, bytes_max: int
    ) -> None:
        self.me = me
        self.retried = 0
        self._numbers = numbers
        self._open_max = open_max
        self._batch_max = batch_max
        self._bytes_max = bytes_max
        self._open_bytes = 0
        self._pause_s = PAUSE_S
        self._paused_until_s = 0.0
        self._waiting: deque[_Read] = deque()
        self._later: list[tuple[float, _Read]] = []
        self._expired: list[int] = []
        self._attempts: dict[int, _Attempt] = {}
        self._router: ProcessId | None = None
        self._is_broken = False
        self._give_up_at_s: float | None = None
        self._patience = Patience(PATIENCE_S, PATIENCE_S_MAX)
        self.wake_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._waiting) + len(self._later) + len(self._attempts) + len(self._expired)

    def request(self, asked: Iterable[Waiting], behind: Behind) -> None:
        """Take reads that must see a write of their session, and all before it."""
        self._waiting.extend(_Read(token, request, behind) for token, request in asked)

    # What becomes of attempts. Their flights are numbered below 0, as answers are.

    def find(self, number: int, at: int) -> InFlight | None:
        """Give the open attempt that an answer at a position belongs to."""
        attempt = self._attempts.get(-number)
        if attempt is None or attempt.flight.position not in (-1, at):
            return None
        return attempt.flight

    def __contains__(self, number: int) -> bool:
        """Whether an answer of a number belongs to an open attempt."""
        return -number in self._attempts

    def hear(self, results: Results, now_s: float) -> None:
        """Learn how long answers took."""
        answers: list[Rows | Partials] = [*results.rows, *results.partials]
        for each in answers:
            attempt = self._attempts.get(-each.number.item(0))
            if attempt is not None:
                self._patience.answered(now_s - attempt.sent_s)

    def on_rows(self, rows: Rows) -> tuple[list[Stable | Executed], list[Answer]]:
        """Take the answers of many reads, none of which has parts; as `Runs.on_rows`."""
        tokens: list[int] = []
        outcomes: list[ReadAtOnce] = []
        others: list[Answer] = []
        for answer in answers_of(rows):
            content, attempt = answer.content, self._attempts.get(-answer.number)
            flight = None if attempt is None else attempt.flight
            if flight is None or flight.places or not _holds(content.scope, flight.request.ranges):
                others.append(answer)
                continue
            self.finish(answer.number)
            tokens.append(flight.token)
            piece = cast(Piece, content)
            outcomes.append(
                ReadAtOnce(piece.scope, piece.block, piece.start, piece.stop, Position(answer.position))
            )
        # A read's answer proves that its position is one.
        return [Stable(tokens), Executed(tokens, outcomes)] if tokens else [], others

    def finish(self, number: int) -> None:
        """Forget an attempt whose read has its outcome."""
        self._close(-number)
        self._pause_s = PAUSE_S

    def _close(self, number: int) -> _Read:
        attempt = self._attempts.pop(number)
        self._open_bytes -= attempt.n_bytes
        return attempt.read

    @property
    def open_bytes(self) -> int:
        """What is sent and has neither an answer nor been given up."""
        return self._open_bytes

    def on_refused(self, message: ReadRefused, now_s: float) -> list[InFlight]:
        """Give up refused attempts; gives those that must not be made again."""
        final: list[InFlight] = []
        again: list[_Read] = []
        for number in message.numbers:
            attempt = self._attempts.get(number)
            if attempt is None:
                continue
            if message.is_final:
                final.append(attempt.flight)
                continue
            read = self._close(number)
            self.retried += 1
            if self._expire(read, now_s):
                continue
            if message.pauses:
                again.append(read)
                continue
            self._later.append((now_s + read.retry_s, read))
            read.retry_s = min(2 * read.retry_s, RETRY_S_MAX)
        if message.pauses and now_s >= self._paused_until_s:
            # What else was sent before this came is refused for the same reason.
            self._paused_until_s = now_s + self._pause_s
            self._pause_s = min(2 * self._pause_s, PAUSE_S_MAX)
        self._waiting.extendleft(reversed(again))
        return final

    def _expire(self, read: _Read, now_s: float) -> bool:
        """End a read of which an attempt was given up, if there were enough of them."""
        if read.give_up_s is None or now_s < read.give_up_s:
            return False
        self._expired.append(read.token)
        return True

    def take_expired(self) -> list[int]:
        """Forget the reads of which no more attempts are made; gives their tokens."""
        expired, self._expired = self._expired, []
        return expired

    def lose_session(self) -> None:
        """Learn that a session ended which may have carried questions or answers."""
        self._is_broken = True

    def take_some(self, tokens: Container[int]) -> tuple[list[int], list[InFlight]]:
        """Forget reads that are called off; gives the tokens of those not sent, and open attempts."""
        attempts = [each.flight for each in self._attempts.values() if each.read.token in tokens]
        unsent = [read for read in self._waiting if read.token in tokens]
        unsent += [read for _, read in self._later if read.token in tokens]
        if unsent:
            self._waiting = deque(read for read in self._waiting if read.token not in tokens)
            self._later = [(due_s, read) for due_s, read in self._later if read.token not in tokens]
        return [read.token for read in unsent], attempts

    def take_all(self) -> list[int]:
        """Forget every read; gives their tokens."""
        attempts = [attempt.read for attempt in self._attempts.values()]
        reads = [*attempts, *(read for _, read in self._later), *self._waiting]
        self._attempts.clear()
        self._open_bytes = 0
        self._later.clear()
        self._waiting.clear()
        expired = self.take_expired()
        return expired + [read.token for read in reads]

    # A turn's end.

    def flush(
        self,
        now_s: float,
        *,
        lead: ProcessId | None,
        seen: int,
        offset: Callable[[], int],
    ) -> list[Inject]:
        """Give what to send to the lead router.

        Parameters
        ----------
        lead : ProcessId or None
        seen : int
            The highest position the session was told.
        offset : callable
            Gives a replica offset.
        """
        self.wake_at_s = None
        if lead is None:
            return []
        is_late = self._give_up_at_s is not None and now_s >= self._give_up_at_s
        if is_late or self._is_broken or lead != self._router:
            self._give_up(now_s, everything=self._is_broken or lead != self._router)
        self._router, self._is_broken = lead, False
        due = [read for due_s, read in self._later if now_s >= due_s]
        if due:
            self._later = [(due_s, read) for due_s, read in self._later if now_s < due_s]
            self._waiting.extendleft(reversed(due))
        messages: list[Inject] = []
        is_paused = now_s < self._paused_until_s
        while self._waiting and len(self._attempts) < self._open_max and not is_paused:
            reads = self._take_batch()
            if not reads:
                break
            messages.append(self._inject(reads, now_s, seen, offset))
        again_s = min((due_s for due_s, _ in self._later), default=None)
        self.wake_at_s = earliest(
            again_s,
            self._give_up_at_s if self._attempts else None,
            self._paused_until_s if is_paused and self._waiting else None,
        )
        return messages

    def _give_up(self, now_s: float, *, everything: bool) -> None:
        given_up: list[_Read] = []
        for number, attempt in list(self._attempts.items()):
            is_late = now_s >= attempt.give_up_s
            if everything or is_late:
                self._close(number)
                if is_late:
                    waited_s = attempt.give_up_s - attempt.sent_s
                    self._patience.missed(waited_s)
                    attempt.read.patience_s = min(2 * waited_s, PATIENCE_S_MAX)
                self.retried += 1
                if not self._expire(attempt.read, now_s):
                    given_up.append(attempt.read)
        # Before what waits for later writes of the session.
        self._waiting.extendleft(reversed(given_up))
        left = (attempt.give_up_s for attempt in self._attempts.values())
        self._give_up_at_s = min(left, default=None)

    def _take_batch(self) -> list[tuple[_Read, bytes]]:
        """Take reads, with their parameters, that wait for the same write of their session.

        That write is on its way; of one that is not nothing is taken.
        """
        room = min(self._batch_max, self._open_max - len(self._attempts))
        taken: list[tuple[_Read, bytes]] = []
        written = self._waiting[0].behind.written
        if written is None:
            return taken
        n_bytes = self._open_bytes
        shapes: set[int] = set()
        shape_bytes = 0
        while self._waiting and len(taken) < room and self._waiting[0].behind.written == written:
            request = self._waiting[0].request
            parameters = encode_parameters(request.shape, request.parameters)
            n_bytes += _weight(parameters)
            if id(request.shape) not in shapes:
                shapes.add(id(request.shape))
                shape_bytes += len(request.shape.encode())
            if taken and shape_bytes > self._bytes_max:
                break
            if n_bytes > self._bytes_max and (taken or self._attempts):
                break
            taken.append((self._waiting.popleft(), parameters))
        return taken

    def _inject(
        self, reads: list[tuple[_Read, bytes]], now_s: float, seen: int, offset: Callable[[], int]
    ) -> Inject:
        messages: list[Message] = []
        shapes: dict[bytes, int] = {}
        for read, parameters in reads:
            number, request = next(self._numbers), read.request
            shape = request.shape
            code = shapes.setdefault(shape.encode(), len(shapes))
            payload = encode_call(code, parameters)
            kind, ranges = MessageKind.READ, request.ranges
            messages.append(Message(self.me, number, kind, shape.table, ranges, offset(), payload))
            if read.give_up_s is None:
                read.give_up_s = now_s + LIFE_S
            flight = InFlight(read.token, -number, request, list(ranges))
            n_bytes = _weight(parameters)
            give_up_s = now_s + max(read.patience_s, self._patience.seconds)
            self._give_up_at_s = earliest(self._give_up_at_s, give_up_s)
            self._attempts[number] = _Attempt(read, flight, now_s, give_up_s, n_bytes)
            self._open_bytes += n_bytes
        # One that has been taken from those that wait has a number to wait for.
        written = reads[0][0].behind.written or 0
        return Inject(submission(messages, shared=encode_shapes(tuple(shapes))), seen, written)


def _holds(scope: Scope, ranges: Scope) -> bool:
    """Say whether a scope holds all of some ranges, if that is seen at once."""
    if len(ranges) == 1:
        ((low, high),) = ranges
        return any(each.low <= low and high <= each.high for each in scope)
    return scope == ranges


def _weight(parameters: bytes) -> int:
    return len(parameters) + HEADER_BYTES
