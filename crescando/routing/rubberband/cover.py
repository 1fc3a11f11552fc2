"""Where data messages go: read one, write all, on a ring with failed processes.

Rules of the file: a `Cover` is a function of the ring, the live processes and
the pending ones (see `membership`); what it remembers are answers it would give
again, so sharing one is safe and forgetting them is harmless. It works on the
circle of primary partitions, where every process owns f consecutive ones.

*Writes* (RB13 §6.2, Alg. 3) go to every live owner of every touched arc, and to
whoever receives a part of one (see `changes`). The first live owner of an arc in
successor order reports on it.

*Reads* go to a minimum set of live owners that covers the touched arcs. Such a
set is found from a *start*, a live owner of the lowest touched arc (any live
process, if every primary partition is touched), which answers whatever it owns
of them. Then, clockwise, the first arc without an answer is taken together with
as many of the following ones as one live owner of it can answer, and so on. From
a given start no set is smaller, and every covering set contains an owner of the
lowest touched arc, so the best starts give minimum sets. The message's replica
offset chooses among the best starts, counted clockwise from the primary owner of
the lowest touched arc, and by its next digit among the owners that could answer
the same arcs of a later step (RB13 §6.3: "which storage process to choose in
every replication group"). A point read is thus answered by any live owner.

*Unavailable.* A pending process is given no read, since a majority of the supers
says that it does not answer; a read of an arc that only it could answer is
refused. A write to any arc it owns is refused too: it would have to wait for
that process, and leaving it out would make its replica diverge.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from crescando.routing.base import Refusal, Route, Routes
from crescando.routing.batch import Submission
from crescando.routing.rubberband.ring import Ring
from crescando.types import ProcessId, Scope

ROUTES_KEPT_MAX = 4096
"""Remembered routes; a guess. Some megabytes, on a ring of a hundred processes tens of them."""

RUNS_KEPT_MAX = 8
"""Remembered runs: as many instances as may be open at once. They pin their submissions."""

NOWHERE: Mapping[ProcessId, Scope] = MappingProxyType({})
"""Where void messages go."""

NOBODY: Mapping[ProcessId, int] = MappingProxyType({})

_WRITE = -1
_UNAVAILABLE = -2
"""In place of the start of a read, for the routes that have none."""


class Cover:
    """Solves data routing for one ring and one set of live processes.

    Parameters
    ----------
    ring : Ring
    live : frozenset of ProcessId
        The processes that have not failed; others may be among them.
    pending : frozenset of ProcessId
        Live ring members that do not answer but may not be suspected.
    receiving : mapping of ProcessId to int, optional
        The arcs, as masks, whose writes go to processes that do not own them yet.

    Attributes
    ----------
    n_point_choices : ndarray of int64, shape (n_arcs,)
        `n_choices` of each single arc.
    """

    def __init__(
        self,
        ring: Ring,
        live: frozenset[ProcessId],
        pending: frozenset[ProcessId],
        receiving: Mapping[ProcessId, int] = NOBODY,
    ) -> None:
        self.ring = ring
        self._receiving = tuple(sorted(receiving.items()))
        n, f = len(ring.ids), ring.replication
        window = (1 << f) - 1
        self._n = n
        self._full = (1 << n) - 1
        # Process k owns the primary partitions k - f + 1 … k.
        self._owned = tuple(self._rotated(window, k - f + 1) for k in range(n))
        self._live = tuple(process in live for process in ring.processes)
        self._readable = tuple(process in live and process not in pending for process in ring.processes)
        # Per primary partition, how far clockwise its farthest readable owner is; -1 if it has none.
        self._farthest = tuple(
            max((r for r in range(f) if self._readable[(i + r) % n]), default=-1) for i in range(n)
        )
        self._unreadable = sum(1 << i for i in range(n) if self._farthest[i] < 0)
        reports = [0] * n
        unwritable = 0
        for i in range(n):
            owners = [(i + r) % n for r in range(f) if self._live[(i + r) % n]]
            if owners and all(self._readable[k] for k in owners):
                reports[owners[0]] |= 1 << i
            else:
                unwritable |= 1 << i
        self._reports = tuple(reports)
        self._unwritable = unwritable
        # Divisible by every number up to f, for f up to 4, so that all equals get equal shares.
        self._turns = f * max(1, f - 1)
        self._starts: dict[int, tuple[tuple[int, ...], int]] = {}
        self._routes: dict[tuple[int, int, int], Route] = {}
        self._runs: dict[int, tuple[Submission, int, int, Routes]] = {}
        self.n_point_choices: NDArray[np.int64] = np.array(
            [self.n_choices(1 << arc) for arc in range(len(ring.arcs))], np.int64
        )

    def recall(self, batch: Submission, start: int, stop: int) -> Routes | None:
        """Give the routes of a run of this very submission, if they were found lately.

        The routers of an embedded store share submissions and a cover, and
        route each submission one after the other.
        """
        known = self._runs.get(id(batch))
        if known is None or known[0] is not batch or known[1:3] != (start, stop):
            return None
        return known[3]

    def remember(self, batch: Submission, start: int, stop: int, routes: Routes) -> None:
        """Keep the routes of a run that names no unknown table, for a little while."""
        while len(self._runs) >= RUNS_KEPT_MAX:
            del self._runs[next(iter(self._runs))]
        self._runs[id(batch)] = batch, start, stop, routes

    def n_choices(self, arcs: int) -> int:
        """Give the number of which only the remainder of a replica offset matters, at least 1."""
        starts, turns = self._starts_of(arcs)
        return max(1, len(starts) * turns)

    def read(self, arcs: int, offset: int) -> Route:
        """Route a read of a mask of arcs (not empty) by its replica offset."""
        starts, turns = self._starts_of(arcs)
        if not starts:
            return self._remembered(arcs, _UNAVAILABLE, 0)
        turn, place = divmod(offset, len(starts))
        return self._remembered(arcs, starts[place], turn % turns)

    def write(self, arcs: int) -> Route:
        """Route a write to a mask of arcs (not empty)."""
        return self._remembered(arcs, _WRITE, 0)

    def _remembered(self, arcs: int, start: int, turn: int) -> Route:
        key = arcs, start, turn
        route = self._routes.get(key)
        if route is None:
            if start == _WRITE:
                route = self._write(arcs)
            elif start == _UNAVAILABLE:
                route = self._refusal(arcs, self._unreadable, "no replica answers")
            else:
                route = self._read(arcs, start, turn)
            if len(self._routes) >= ROUTES_KEPT_MAX:
                self._routes.clear()
            self._routes[key] = route
        return route

    def _write(self, arcs: int) -> Route:
        primaries = self.ring.primaries_of(arcs)
        if primaries & self._unwritable:
            return self._refusal(arcs, self._unwritable, "a replica that must be written does not answer")
        reports = {
            process: self._scope(arcs, primaries & self._reports[k])
            for k, process in enumerate(self.ring.processes)
            if self._live[k] and self._owned[k] & primaries
        }
        for process, received in self._receiving:
            if received & arcs:
                reports.setdefault(process, ())
        return MappingProxyType(reports)

    def _read(self, arcs: int, start: int, turn: int) -> Route:
        primaries = self.ring.primaries_of(arcs)
        shares = {start: primaries & self._owned[start]}
        for at, share in self._walk(primaries, start):
            equals = self._equals(start, at, share)
            shares[equals[turn % len(equals)]] = self._rotated(share, start + 1)
        return MappingProxyType(
            {self.ring.processes[k]: self._scope(arcs, shares[k]) for k in sorted(shares)}
        )

    def _starts_of(self, arcs: int) -> tuple[tuple[int, ...], int]:
        """Give the best starts (none if unavailable) and how many turns make a difference."""
        found = self._starts.get(arcs)
        if found is None:
            found = self._search_starts(arcs)
            if len(self._starts) >= ROUTES_KEPT_MAX:
                self._starts.clear()
            self._starts[arcs] = found
        return found

    def _search_starts(self, arcs: int) -> tuple[tuple[int, ...], int]:
        primaries = self.ring.primaries_of(arcs)
        if primaries & self._unreadable:
            return (), 1
        first = self.ring.primary((arcs & -arcs).bit_length() - 1)
        places = self._n if primaries == self._full else self.ring.replication
        walks = {
            start: self._walk(primaries, start)
            for start in ((first + r) % self._n for r in range(places))
            if self._readable[start]
        }
        fewest = min(map(len, walks.values()))
        best = tuple(start for start, walk in walks.items() if len(walk) == fewest)
        has_equals = any(
            len(self._equals(start, at, share)) > 1 for start in best for at, share in walks[start]
        )
        return best, self._turns if has_equals else 1

    def _walk(self, primaries: int, start: int) -> list[tuple[int, int]]:
        """Cover clockwise what `start` does not own, in as few steps as possible.

        Each step is the first partition without an answer and the mask of those
        answered with it, both counted clockwise from the one behind the start.
        """
        rest = self._rotated(primaries & ~self._owned[start], -(start + 1))
        steps = []
        while rest:
            at = (rest & -rest).bit_length() - 1
            reach = at + self._farthest[(start + 1 + at) % self._n]
            share = rest & (2 << reach) - 1
            rest &= ~share
            steps.append((at, share))
        return steps

    def _equals(self, start: int, at: int, share: int) -> list[int]:
        """Give the readable owners of all partitions of a step, clockwise."""
        last = share.bit_length() - 1
        owners = ((start + 1 + d) % self._n for d in range(last, at + self.ring.replication))
        return [k for k in owners if self._readable[k]]

    def _rotated(self, primaries: int, places: int) -> int:
        places %= self._n
        return (primaries << places | primaries >> self._n - places) & self._full

    def _scope(self, arcs: int, primaries: int) -> Scope:
        # Of a partition that wraps, only the touched one of its two arcs is in scope.
        return self.ring.merged(arcs & self.ring.arcs_of(primaries))

    def _refusal(self, arcs: int, unavailable: int, reason: str) -> Refusal:
        at = arcs & self.ring.arcs_of(unavailable)
        arc = (at & -at).bit_length() - 1
        owners = ", ".join(map(str, self.ring.owners(arc)))
        low, high = self.ring.arcs[arc]
        return Refusal(f"ring range [{low}, {high}] is unavailable: {reason}; its owners are {owners}")
