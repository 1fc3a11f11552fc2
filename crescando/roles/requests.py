"""What the users of a client have asked for and is in no submission yet.

Rules of the file: what is asked goes in the order of asking, writes and sequential reads into
submissions, other reads around the order; those of a session see its writes that were asked
for before them, which is why writes are counted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from itertools import groupby
from operator import attrgetter

from crescando.roles.behind import Behind
from crescando.roles.direct import DirectReads
from crescando.roles.flight import READ
from crescando.roles.payload import Packing
from crescando.roles.runs import WRITE, Run, Waiting

_ISOLATION = attrgetter("isolation")


def _isolation_of(asked: Waiting) -> str:
    return asked[1].isolation


class Requests:
    """The requests of one client.

    Parameters
    ----------
    direct : DirectReads
        Is handed the reads that go around the order.

    Attributes
    ----------
    waiting : deque of (int, Request)
        What is to be submitted, each with what the user calls it.
    last_write : int
        The number of the last write that was submitted.
    """

    def __init__(self, direct: DirectReads) -> None:
        self.waiting: deque[Waiting] = deque()
        self.last_write = 0
        self._direct = direct
        self._n_asked = self._n_numbered = 0
        self._unnumbered: dict[int, Behind] = {}
        """By how many writes had been asked for."""
        self._place: tuple[int, Behind] | None = None

    def __len__(self) -> int:
        return len(self.waiting)

    def take(self, asked: Collection[Waiting]) -> None:
        """Take requests, behind all others."""
        requests = [request for _, request in asked]
        if set(map(_ISOLATION, requests)) == {"sequential"}:
            self._take_ordered(asked)
            return
        for isolation, some in groupby(asked, _isolation_of):
            if isolation == "sequential":
                self._take_ordered(list(some))
                continue
            self._direct.request(list(some), self._behind())

    def _behind(self) -> Behind:
        """Give the place behind the last write; reads between two writes share it."""
        if self._place is None or self._place[0] != self._n_asked:
            is_numbered = self._n_numbered == self._n_asked
            behind = Behind(self.last_write if is_numbered else None)
            if not is_numbered:
                self._unnumbered[self._n_asked] = behind
            self._place = self._n_asked, behind
        return self._place[1]

    def _take_ordered(self, asked: Collection[Waiting]) -> None:
        self._n_asked += len(asked) - [request.shape.kind for _, request in asked].count(READ)
        self.waiting.extend(asked)

    def pack(self, first: int, n_max: int, bytes_max: int) -> tuple[Packing, Run]:
        """Take what goes into the next submission, as `Packing`; its messages are numbered from `first`."""
        packing = Packing(self.waiting, n_max, bytes_max)
        run = packing.run(first)
        n_writes = run.states.count(WRITE)
        if n_writes:
            if self._unnumbered:
                numbers = (run.first + place for place, state in enumerate(run.states) if state == WRITE)
                for nth, number in enumerate(numbers, self._n_numbered + 1):
                    behind = self._unnumbered.pop(nth, None)
                    if behind is not None:
                        behind.written = number
            self._n_numbered += n_writes
            self.last_write = run.first + run.states.rfind(WRITE)
        return packing, run

    def clear(self) -> list[int]:
        """Forget what waits; gives what the user calls it."""
        tokens = [token for token, _ in self.waiting]
        self.waiting.clear()
        return tokens

    def forget_writes(self) -> None:
        """Have nobody wait for a write that is never submitted."""
        for behind in self._unnumbered.values():
            behind.written = self.last_write
        self._unnumbered.clear()
        self._n_numbered = self._n_asked
