"""What the users of a client have asked for and is in no submission yet.

Rules of the file: what is asked goes in the order of asking, writes and sequential reads into
submissions, other reads around the order; those of a session see its writes that were asked
for before them, which is why writes are counted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Set
from itertools import groupby
from operator import attrgetter

from crescando.client.base import Alike
from crescando.roles.asked import Asked, Waiting
from crescando.roles.behind import Behind
from crescando.roles.direct import DirectReads
from crescando.roles.flight import READ
from crescando.roles.payload import Packing
from crescando.roles.runs import WRITE, Run

_ISOLATION = attrgetter("isolation")
_LOAD = attrgetter("load")


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
    last_write : int
        The number of the last write that was submitted.
    """

    def __init__(self, direct: DirectReads) -> None:
        self._waiting: deque[Waiting | Asked] = deque()
        self.last_write = 0
        self._direct = direct
        self._n_waiting = self._n_asked = self._n_numbered = 0
        self._unnumbered: dict[int, Behind] = {}
        """By how many writes had been asked for."""
        self._place: tuple[int, Behind] | None = None

    def __len__(self) -> int:
        return self._n_waiting

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
        self._count(len(asked), [request.shape.kind for _, request in asked].count(READ))
        self._waiting.extend(asked)

    def take_together(self, asked: Asked) -> bool:
        """Take requests behind all others if they all go through the order; False if not."""
        requests, n = asked.requests, len(asked)
        if isinstance(requests, Alike):
            if requests.isolation != "sequential":
                return False
            n_reads = n if requests.shape.kind is READ else 0
        else:
            if set(map(_ISOLATION, requests)) != {"sequential"} or any(map(_LOAD, requests)):
                return False
            n_reads = [request.shape.kind for request in requests].count(READ)
        self._count(n, n_reads)
        self._waiting.append(asked)
        return True

    def _count(self, n: int, n_reads: int) -> None:
        self._n_waiting += n
        self._n_asked += n - n_reads

    def take_first(self, asked: Waiting) -> None:
        """Take a read that is asked for again, before all others."""
        self._n_waiting += 1
        self._waiting.appendleft(asked)

    def pack(self, first: int, n_max: int, bytes_max: int) -> tuple[Packing, Run]:
        """Take what goes into the next submission, as `Packing`; its messages are numbered from `first`."""
        packing = Packing(self._waiting, n_max, bytes_max)
        run = packing.run(first)
        self._n_waiting -= len(packing)
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
        tokens: list[int] = []
        for asked in self._waiting:
            tokens += asked.tokens if isinstance(asked, Asked) else asked[:1]
        self._waiting.clear()
        self._n_waiting = 0
        return tokens

    def call_off(self, tokens: Set[int]) -> list[int]:
        """Forget the reads among some operations, if they wait still; gives what the user calls them."""
        unsent: list[int] = []
        left: deque[Waiting | Asked] = deque()
        for asked in self._waiting:
            if isinstance(asked, Asked) and tokens.isdisjoint(asked.tokens):
                left.append(asked)
                continue
            for one in asked.each() if isinstance(asked, Asked) else (asked,):
                if one[0] in tokens and one[1].shape.kind is READ:
                    unsent.append(one[0])
                else:
                    left.append(one)
        if unsent:
            self._waiting = left
            self._n_waiting -= len(unsent)
        return unsent

    def forget_writes(self) -> None:
        """Have nobody wait for a write that is never submitted."""
        for behind in self._unnumbered.values():
            behind.written = self.last_write
        self._unnumbered.clear()
        self._n_numbered = self._n_asked
