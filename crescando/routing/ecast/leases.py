"""Leases of storage processes: who may go on showing rows outside the order (RB13 §6.7).

Rules of the file: a request is answered when a majority has answered, under the
leader's ballot, a question that was put after the request had come; `reads` says
why no other leader had had anything decided by then. So whoever holds the answer
was a member when it asked, and nobody had been told of anything above the
position that it names. No clock of a router has a part in that; the asker counts
time from its own sending (`crescando.roles.lease`). Requests that come together
share a question.
"""

from __future__ import annotations

from collections import deque
from typing import TypeVar

from crescando.consensus.base import Ballot
from crescando.routing.base import Config
from crescando.routing.ecast.messages import Lease, Pulse
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.stability import Window
from crescando.types import ProcessId

C = TypeVar("C", bound=Config)

REQUESTS_MAX = 8
"""Requests of one process that wait for their question; more than a slow round can gather."""


class Leases:
    """The requests that one leader has not answered.

    Attributes
    ----------
    proof : int
        The round of questions that the youngest of them waits for; 0 without any.
    """

    def __init__(self) -> None:
        self.proof = 0
        self._held: dict[ProcessId, deque[tuple[float, int]]] = {}
        self._fresh: dict[ProcessId, None] = {}
        """Whose requests have come since the last turn."""

    def take(self, process: ProcessId, sent_s: float, proof: int) -> None:
        """Take a request.

        Parameters
        ----------
        process : ProcessId
        sent_s : float
            The asker's own time.
        proof : int
            The next round in which the leader asks the others.
        """
        self._fresh[process] = None
        waiting = self._held.setdefault(process, deque())
        if len(waiting) < REQUESTS_MAX:
            # An older one is not replaced: with slow rounds none would ever be answered.
            waiting.append((sent_s, proof))
            self.proof = max(self.proof, proof)

    def answers(
        self, proven: int, mseq: MSeq[C], window: Window[C], ballot: Ballot, credit: int
    ) -> list[tuple[ProcessId, Pulse | Lease]]:
        """Give what to tell members whose requests have come, or are proven; these are forgotten.

        Parameters
        ----------
        proven : int
            The highest round that a majority has answered; 0 while this leader may not have learned
            all that its predecessors have decided.
        mseq : MSeq
        window : Window
        ballot : Ballot
        credit : int
            As told with each sign of life.
        """
        answers: list[tuple[ProcessId, Pulse | Lease]] = []
        for process in self._fresh:
            # What it has executed may be all there is for it, and somebody wait for it to know.
            answers += _told_place(process, mseq, window, ballot, credit)
        self._fresh.clear()
        for process, waiting in list(self._held.items()):
            sent_s: float | None = None
            while waiting and waiting[0][1] <= proven:
                sent_s, _ = waiting.popleft()
            if not waiting:
                del self._held[process]
            if sent_s is not None and mseq.config.is_member(process):
                answers += _told_place(process, mseq, window, ballot, credit)
                answers.append((process, Lease(sent_s, mseq.position)))
        if not self._held:
            self.proof = 0
        return answers

    def end_session(self, process: ProcessId) -> None:
        """Forget what a process has asked."""
        self._held.pop(process, None)
        self._fresh.pop(process, None)
        if not self._held:
            self.proof = 0

    def clear(self) -> None:
        """Forget everything: another leadership proves nothing of this one."""
        self._held.clear()
        self._fresh.clear()
        self.proof = 0


def _told_place(
    process: ProcessId, mseq: MSeq[C], window: Window[C], ballot: Ballot, credit: int
) -> list[tuple[ProcessId, Pulse]]:
    """Give what tells a member up to where nothing comes for it that is not on its way already."""
    outbox = window.outboxes.get(process)
    if outbox is None or not outbox.is_open or not mseq.config.is_member(process):
        return []
    place = mseq.position if outbox.n_sent == len(outbox.entries) else outbox.previous
    return [(process, Pulse(ballot, place, credit))]
