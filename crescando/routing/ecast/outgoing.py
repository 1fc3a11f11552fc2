"""What an application process has submitted and not heard to be stable (RB13 Alg. 1, lines 6–10).

Rules of the file: numbers leave in order and are never taken back; what was
sent under one leadership is sent again under the next from where its leader
stands. No more is on its way than the leader has granted, one message apart
that is larger by itself; configuration messages have a credit of their own.
What credit holds back waits here.
"""

from __future__ import annotations

from collections import deque

import numpy as np

from crescando.routing.batch import CONFIG, Submission
from crescando.routing.ecast.limits import CONFIG_CREDIT_BYTES


class Outgoing:
    """The unstable submissions of one process, in order: first those sent, then those to be sent.

    Attributes
    ----------
    credit : int
        Bytes of data that may be sent and not stable.
    sent : int
        The last number sent in the present leadership.
    waiting : deque of Submission
        What is to be sent.
    """

    def __init__(self) -> None:
        self.credit = 0
        self.sent = 0
        self._settled = 0
        self._on_way: deque[Submission] = deque()
        self.waiting: deque[Submission] = deque()
        self._data_bytes = 0
        self._config_bytes = 0

    def __len__(self) -> int:
        return len(self._on_way) + len(self.waiting)

    @property
    def on_way_bytes(self) -> int:
        """What is sent and not stable weighs."""
        return self._data_bytes + self._config_bytes

    def add(self, submission: Submission) -> None:
        """Take the next numbers in."""
        self.waiting.append(submission)

    def restart(self, learned: int, credit: int) -> None:
        """Begin a leadership: everything above its `learned` is to be sent (again)."""
        everything = [*self._on_way, *self.waiting]
        self._on_way.clear()
        self.waiting.clear()
        self._data_bytes = self._config_bytes = 0
        self.credit, self.sent = credit, learned
        for submission in everything:
            known = min(len(submission), max(0, learned + 1 - submission.first))
            if known:
                self._send(submission.slice(0, known))
            if known < len(submission):
                self.waiting.append(submission.slice(known, len(submission)))
        # What has become stable of a part will not become so again: it would use up credit for ever.
        self.settle(self._settled)

    def take(self) -> list[Submission]:
        """Give what may be sent now."""
        taken: list[Submission] = []
        while self.waiting:
            head = self.waiting.popleft()
            if head.last <= self.sent:
                self._send(head)
                continue
            n = self._allowed(head)
            if n < len(head):
                self.waiting.appendleft(head.slice(n, len(head)))
            if n == 0:
                break
            part = head.slice(0, n)
            self._send(part)
            self.sent = part.last
            taken.append(part)
        return taken

    def _send(self, part: Submission) -> None:
        config = part.config_bytes
        self._on_way.append(part)
        self._config_bytes += config
        self._data_bytes += part.n_bytes - config

    def _allowed(self, head: Submission) -> int:
        n = head.fitting(self.credit - self._data_bytes)
        if n:
            return n
        if not head.begins_with_config:
            return 0 if self._data_bytes else 1
        if self._config_bytes >= CONFIG_CREDIT_BYTES:
            return 0
        data = np.flatnonzero(head.kind != CONFIG)
        return int(data[0]) if len(data) else len(head)

    def settle(self, upto: int) -> None:
        """Drop what has become stable."""
        self._settled = upto
        while self._on_way and self._on_way[0].last <= upto:
            part = self._on_way.popleft()
            config = part.config_bytes
            self._config_bytes -= config
            self._data_bytes -= part.n_bytes - config
        while self.waiting and self.waiting[0].first <= upto:
            head = self.waiting.popleft()
            if head.last > upto:
                self.waiting.appendleft(head.slice(upto + 1 - head.first, len(head)))

    def drop_above(self, learned: int) -> None:
        """Drop what will never be in the order: this process is no member any more."""
        self._on_way = deque(part for part in self._on_way if part.first <= learned)
        self.waiting = deque(part for part in self.waiting if part.first <= learned)
