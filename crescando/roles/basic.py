"""A client's basic reads: sent to their owners directly, and again until one attempt is answered (RB13 §6.7).

Rules of the file: reads that come together travel together, column by column, one message a
storage process. An attempt has a number of its own, in the series of all that is asked outside the
order; what still comes of one that was given up is dropped with its number. A read waits
until its session's earlier writes have their outcomes, so that what it must see is a position;
every owner is told that, and answers only when it has executed up to it. An attempt is
given up as a whole when an owner refuses it, when a session ends that was to carry an
answer, and when an owner keeps silent; then owners are chosen anew, by the newest layout and away from
those that answer badly. Nobody waits for a read of which attempts have failed too long, nor,
without a majority of the routers, for one of which any has.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, cast

import msgspec
import numpy as np

from crescando.engine.base import Partials, Results, Rows
from crescando.errors import ReadLostError, RefusedError
from crescando.process import earliest
from crescando.roles.answers import Answer
from crescando.roles.asked import Asked, Waiting
from crescando.roles.behind import Behind
from crescando.roles.completion import Completion, Executed, Stable
from crescando.roles.flight import InFlight
from crescando.roles.layout import KnownLayout
from crescando.roles.limits import ClientLimits
from crescando.roles.messages import BasicRefused, ReadBasic
from crescando.roles.patience import Patience
from crescando.roles.payload import Packing, Spread
from crescando.roles.runs import Runs
from crescando.roles.snapshot import LIFE_S, PATIENCE_S, PATIENCE_S_MAX, RETRY_S, RETRY_S_MAX
from crescando.roles.standing import AWAY, Standings
from crescando.routing.avoiding import best_routes, parts_of
from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Delivery
from crescando.routing.ecast.messages import ReadRefused
from crescando.scopes import subtract
from crescando.types import ProcessId

WORN_OUT = "the read was asked again and again, and nobody could answer it; retry it"
"""Why no attempt at a read is made any more."""

_NOBODY = Refusal("no owner of some range can be reached")
_REFUSALS = {AWAY: _NOBODY}


@dataclass(slots=True, eq=False)
class _Group:
    """Reads that go together.

    Attributes
    ----------
    asked : deque of (int, Request)
    behind : Behind
    n_tries : int
        How many attempts have failed.
    give_up_s : float or None
        When no more are made; None before the first.
    n_told : int or None
        If the layout refuses them: how often somebody had told of a layout by then.
    """

    asked: deque[Waiting]
    behind: Behind
    n_tries: int = 0
    give_up_s: float | None = None
    n_told: int | None = None

    def of(self, asked: Iterable[Waiting]) -> _Group:
        """Give some of its reads as a group of their own."""
        return _Group(deque(asked), self.behind, self.n_tries, self.give_up_s, self.n_told)


@dataclass(frozen=True, slots=True)
class _Sent:
    """What one storage process was asked in one message."""

    group: _Group
    reads: Delivery
    sent_s: float
    due_s: float

    @property
    def first(self) -> int:
        return self.reads.number.item(0)


@dataclass(slots=True)
class Turn:
    """What a turn gives.

    Attributes
    ----------
    send : list of (ProcessId, message)
    ended : list of Completion
        Reads of which no attempt will be made any more.
    """

    send: list[tuple[ProcessId, Any]] = field(default_factory=list)
    ended: list[Completion] = field(default_factory=list)


def _first_of(sent: _Sent) -> int:
    return sent.first


class BasicReads:
    """The basic reads of one client.

    Parameters
    ----------
    me : ProcessId
    numbers : iterator of int
        Gives ascending numbers above 0 for what is asked outside the order, each once.
    limits : ClientLimits
    config_type : type
        Of the routing configuration.

    Attributes
    ----------
    layout : KnownLayout
    retried : int
        How often an attempt was given up.
    wake_at_s : float or None
        When an attempt is given up or made again.
    """

    def __init__(
        self, me: ProcessId, numbers: Iterator[int], limits: ClientLimits, config_type: type[Config]
    ) -> None:
        self.me = me
        self.limits = limits
        self.layout = KnownLayout(me, config_type)
        self.retried = 0
        self.wake_at_s: float | None = None
        self._numbers = numbers
        self._offsets = Spread(me.incarnation + 1)
        self._standings = Standings()
        self._patience = Patience(PATIENCE_S, PATIENCE_S_MAX)
        self._waiting: deque[_Group] = deque()
        self._later: list[tuple[float, _Group]] = []
        self._runs = Runs()
        self._sent: dict[ProcessId, list[_Sent]] = {}
        self._doubted: int | None = None
        """If it is not known up to where the session has written: how often a router had told by then."""
        self._due_s: float | None = None
        """When the first of what was sent is late."""

    def __len__(self) -> int:
        n_waiting = sum(len(group.asked) for group in self._waiting)
        return n_waiting + sum(len(group.asked) for _, group in self._later) + len(self._runs)

    def request(self, asked: Iterable[Waiting], behind: Behind) -> None:
        """Take reads that must see a write of their session, and all before it."""
        if self._waiting and self._waiting[-1].behind is behind and not self._waiting[-1].n_tries:
            self._waiting[-1].asked.extend(asked)
        else:
            self._waiting.append(_Group(deque(asked), behind))

    def doubt(self) -> None:
        """Learn that a write of the session has a position that nobody can tell."""
        self._doubted = self.layout.n_told

    # Answers. Outside this file attempts are numbered below 0, as answers are.

    def find(self, number: int) -> InFlight | None:
        """Give the open attempt that an answer belongs to."""
        record = self._runs.get(-number)
        if record is not None:
            record.number = number
        return record

    def finish(self, number: int) -> None:
        """Forget an attempt whose read has its outcome."""
        del self._runs[-number]

    def on_rows(self, rows: Rows) -> tuple[list[Stable | Executed], list[Answer]]:
        """Take the answers of many reads, none of which has parts; as `Runs.on_rows`."""
        told, others = self._runs.on_rows(msgspec.structs.replace(rows, number=-rows.number))
        return told, [
            Answer(-answer.number, answer.position, answer.content, answer.part, has_more=answer.has_more)
            for answer in others
        ]

    def hear(self, results: Results, now_s: float) -> None:
        """Learn how long a process took to answer."""
        sent = self._sent.get(results.process)
        answers: list[Rows | Partials] = [*results.rows, *results.partials] if sent else []
        for each in answers:
            at = bisect_right(sent or (), -each.number.item(-1), key=_first_of) - 1
            if sent and at >= 0:
                took_s = now_s - sent[at].sent_s
                self._standings.answered(results.process, took_s, now_s)
                self._patience.answered(took_s)

    def on_refused(self, process: ProcessId, refused: BasicRefused | ReadRefused, now_s: float) -> None:
        """Give up refused attempts."""
        if isinstance(refused, BasicRefused):
            self.layout.take(refused.position, refused.layout)
        if isinstance(refused, ReadRefused) or refused.is_busy:
            self._standings.avoid(process, now_s)
        numbers = set(refused.numbers)
        for sent in self._sent.get(process, ()):
            if numbers and sent.first <= max(numbers) and min(numbers) <= sent.reads.number.item(-1):
                self._give_up(sent, [n for n in sent.reads.number.tolist() if n in numbers], now_s)

    def end_session(self, process: ProcessId, now_s: float) -> None:
        """Learn that a session ended which may have carried questions or answers."""
        for sent in self._sent.pop(process, ()):
            self._give_up(sent, self._owed(sent), now_s)

    def take_some(self, tokens: Container[int]) -> tuple[list[int], list[InFlight]]:
        """Forget reads that are called off; gives the tokens of those not sent, and open attempts."""
        unsent: list[int] = []
        for group in (*self._waiting, *(group for _, group in self._later)):
            gone = [token for token, _ in group.asked if token in tokens]
            if gone:
                group.asked = deque(each for each in group.asked if each[0] not in tokens)
                unsent += gone
        attempts = self._runs.called(tokens)
        for attempt in attempts:
            attempt.number = -abs(attempt.number)
        return unsent, attempts

    def take_all(self) -> list[int]:
        """Forget every read; gives their tokens."""
        tokens = [token for token, _ in self._runs.tokens()]
        for group in (*self._waiting, *(group for _, group in self._later)):
            tokens += [token for token, _ in group.asked]
        self._runs = Runs()
        self._sent.clear()
        self._waiting.clear()
        self._later.clear()
        return tokens

    # A turn's end.

    def flush(
        self,
        now_s: float,
        *,
        lead: ProcessId | None,
        lowest: int,
        seen: int,
        reachable: Collection[ProcessId],
        hopeless: Exception | None,
    ) -> Turn:
        """Give what to send, and what ends.

        Parameters
        ----------
        lead : ProcessId or None
        lowest : int
            The number of the first operation of the session that lacks its outcome.
        seen : int
            The highest position that the session was told.
        reachable : collection of ProcessId
            The storage processes with a session.
        hopeless : Exception or None
            What to tell of a read that no storage process answers, if no majority of routers is there.
        """
        turn = Turn()
        if self._runs or self._waiting or self._later:
            self._look(now_s)
            self._end_late(now_s, hopeless, turn)
            self._send_waiting(now_s, lowest, seen, reachable, turn)
            turn.send += self.layout.ask(now_s, lead)
        elif self._sent:
            self._sent.clear()
        self.wake_at_s = earliest(
            self._due_s if self._runs else None,
            *(due_s for due_s, _ in self._later),
            self.layout.wake_at_s if len(self) else None,
        )
        return turn

    def _look(self, now_s: float) -> None:
        """Give up what was not answered in time, and take up what is to be tried again."""
        if self._due_s is not None and now_s >= self._due_s:
            for process, several in list(self._sent.items()):
                self._sent[process] = [sent for sent in several if now_s < sent.due_s]
                for sent in several:
                    owed = self._owed(sent) if now_s >= sent.due_s else []
                    if owed:
                        self._standings.avoid(process, now_s)
                        self._patience.missed(sent.due_s - sent.sent_s)
                        self._give_up(sent, owed, now_s)
            left = (sent.due_s for several in self._sent.values() for sent in several)
            self._due_s = min(left, default=None)
        due = [group for due_s, group in self._later if now_s >= due_s]
        if due:
            self._later = [(due_s, group) for due_s, group in self._later if now_s < due_s]
            self._waiting.extendleft(reversed(due))

    def _owed(self, sent: _Sent) -> list[int]:
        """Give the reads that a process has not answered yet."""
        if not len(self._runs):
            return []
        reads, owed = sent.reads, []
        for number, scope in zip(reads.number.tolist(), reads.scope.tolist(), strict=True):
            if self._runs.is_open(number):
                record = self._runs.known(number)
                if record is None or subtract(record.missing, reads.scopes[scope]) != list(record.missing):
                    owed.append(number)
        return owed

    def _give_up(self, sent: _Sent, numbers: Sequence[int], now_s: float) -> None:
        """Make another attempt, later, at reads that are still open."""
        asked = self._runs.take(numbers)
        if not asked:
            return
        self.retried += len(asked)
        self.layout.want()
        group = sent.group.of(asked)
        pause_s = min(RETRY_S * 2 ** (group.n_tries - 1), RETRY_S_MAX) if group.n_tries else 0.0
        group.n_tries += 1
        self._later.append((now_s + pause_s, group))

    def _end_late(self, now_s: float, hopeless: Exception | None, turn: Turn) -> None:
        """End the reads of which enough attempts have failed."""
        has_layout = self.layout.config is not None
        for group in (*self._waiting, *(group for _, group in self._later)):
            error: Exception | None = None
            if hopeless is not None and (group.n_tries or group.n_told is not None or not has_layout):
                error = hopeless
            elif group.give_up_s is not None and now_s >= group.give_up_s:
                error = ReadLostError(WORN_OUT)
            if error is not None:
                turn.ended += [Completion(token, error=error) for token, _ in group.asked]
                group.asked.clear()
        if turn.ended:
            self._waiting = deque(group for group in self._waiting if group.asked)
            self._later = [each for each in self._later if each[1].asked]

    def _send_waiting(
        self, now_s: float, lowest: int, seen: int, reachable: Collection[ProcessId], turn: Turn
    ) -> None:
        while self._waiting and len(self._runs) < self.limits.basic_reads:
            group = self._waiting[0]
            if not group.asked:
                self._waiting.popleft()
                continue
            if group.behind.written is None or lowest <= group.behind.written:
                break
            config = self.layout.config
            is_in_doubt = self._doubted is not None and self.layout.n_told <= self._doubted
            if config is None or is_in_doubt:
                self.layout.want()
                break
            if self._doubted is not None:
                # Whoever leads has learned what is stable.
                seen = max(seen, self.layout.reached)
            self._send(group, config, now_s, seen, reachable, turn)

    def _send(
        self,
        group: _Group,
        config: Config,
        now_s: float,
        seen: int,
        reachable: Collection[ProcessId],
        turn: Turn,
    ) -> None:
        """Make an attempt at some reads of a group."""
        if group.give_up_s is None:
            group.give_up_s = now_s + LIFE_S
        waiting = cast("deque[Waiting | Asked]", group.asked)  # A deque that nobody adds to here.
        packing = Packing(waiting, self.limits.batch_operations, self.limits.batch_bytes)
        n = len(packing)
        first = next(self._numbers)
        deque(islice(self._numbers, n - 1), maxlen=0)
        self._runs.add(packing.run(first))
        reads = packing.submission(self.me, first, 0, self._offsets)
        ranks: dict[ProcessId, int] = {}

        def rank(process: ProcessId) -> int:
            found = ranks.get(process)
            if found is None:
                is_there = process in reachable
                found = ranks[process] = self._standings.rank(process, now_s) if is_there else AWAY
            return found

        routes = best_routes(config, reads, rank, _REFUSALS)
        for place, target in enumerate(routes.routes):
            if isinstance(target, Refusal):
                refused = (first + np.flatnonzero(routes.group == place)).tolist()
                if refused:
                    self._refuse(group, refused, target, now_s, turn)
        patience_s = max(min(PATIENCE_S * 2**group.n_tries, PATIENCE_S_MAX), self._patience.seconds)
        made = _Group(deque(), group.behind, group.n_tries, group.give_up_s)
        self._due_s = earliest(self._due_s, now_s + patience_s)
        for process, part in parts_of(reads, routes):
            self._sent.setdefault(process, []).append(_Sent(made, part, now_s, now_s + patience_s))
            turn.send.append((process, ReadBasic(part, seen, self.layout.position)))

    def _refuse(
        self, group: _Group, numbers: Sequence[int], refusal: Refusal, now_s: float, turn: Turn
    ) -> None:
        """End what the layout refuses, if it is no old one; else ask for a newer one first."""
        asked = self._runs.take(numbers)
        is_final = refusal is not _NOBODY and group.n_told is not None and self.layout.n_told > group.n_told
        if is_final:
            error = RefusedError(refusal.reason)
            turn.ended += [Completion(token, error=error) for token, _ in asked]
            return
        self.layout.want()
        again = group.of(asked)
        if again.n_told is None and refusal is not _NOBODY:
            again.n_told = self.layout.n_told
        again.n_tries += refusal is _NOBODY
        pause_s = min(RETRY_S * 2 ** min(group.n_tries, 8), RETRY_S_MAX)
        self._later.append((now_s + pause_s, again))
