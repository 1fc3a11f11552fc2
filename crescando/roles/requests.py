"""What the users of a client have asked for and is in no submission yet.

Rules of the file: what is asked goes in the order of asking, writes and sequential reads into
submissions, snapshot reads around the order; those of a session see its writes that were asked
for before them, which is why writes are counted here.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from operator import attrgetter

from crescando.roles.flight import READ
from crescando.roles.payload import Packing
from crescando.roles.runs import WRITE, Run, Waiting
from crescando.roles.snapshot import SnapshotReads

_ISOLATION, _KIND = attrgetter("isolation"), attrgetter("shape.kind")


class Requests:
    """The requests of one client.

    Parameters
    ----------
    snapshots : SnapshotReads
        Is handed the snapshot reads.

    Attributes
    ----------
    waiting : deque of (int, Request)
        What is to be submitted, each with what the user calls it.
    last_write : int
        The number of the last write that was submitted.
    """

    def __init__(self, snapshots: SnapshotReads) -> None:
        self.waiting: deque[Waiting] = deque()
        self.last_write = 0
        self._snapshots = snapshots
        self._n_asked = self._n_numbered = 0

    def __len__(self) -> int:
        return len(self.waiting)

    def take(self, asked: Collection[Waiting]) -> None:
        """Take requests, behind all others."""
        requests = [request for _, request in asked]
        if set(map(_ISOLATION, requests)) == {"sequential"}:
            self._n_asked += len(asked) - list(map(_KIND, requests)).count(READ)
            self.waiting.extend(asked)
            return
        for token, request in asked:
            if request.isolation == "sequential":
                self._n_asked += request.shape.kind is not READ
                self.waiting.append((token, request))
            elif self._n_numbered == self._n_asked:
                self._snapshots.request(token, request, self.last_write)
            else:
                self._snapshots.request_behind(token, request, self._n_asked)

    def pack(self, first: int, n_max: int, bytes_max: int) -> tuple[Packing, Run]:
        """Take what goes into the next submission, as `Packing`; its messages are numbered from `first`."""
        packing = Packing(self.waiting, n_max, bytes_max)
        run = packing.run(first)
        n_writes = run.states.count(WRITE)
        if n_writes:
            if self._snapshots.awaits_number:
                numbers = (run.first + place for place, state in enumerate(run.states) if state == WRITE)
                for nth, number in enumerate(numbers, self._n_numbered + 1):
                    self._snapshots.on_numbered(nth, number)
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
        self._snapshots.on_unsent(self.last_write)
        self._n_numbered = self._n_asked
