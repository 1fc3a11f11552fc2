"""An instance by destination: who gets what, worked out only as far as somebody asks.

Rules of the file: messages are looked at as columns, never one by one. Every
router needs to know *to whom* a learned instance goes, how far and how much;
only a leader needs the very columns and payloads, so these are made when a
destination is first sent them. What all destinations take whole is shared.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

import msgspec
import numpy as np

from crescando.routing.base import Config, Refusal, Routes
from crescando.routing.batch import HEADER_BYTES, I64, Delivery, Submission, gather
from crescando.types import ProcessId, Scope


class Shares:
    """The messages of one run, by destination.

    Parameters
    ----------
    batch : Submission
    start : int
        The first of the messages that `routes` is about.
    routes : Routes
        Of n messages; refused ones go nowhere.
    positions : ndarray of int64, shape (n,)
    joined : Config, optional
        If the one message is its sender's join: the Config after it, which is the joiner's first.

    Attributes
    ----------
    last : dict of ProcessId to int
        Per destination, the position of its last message.
    weights : dict of ProcessId to int
        What its share weighs, as `Delivery.n_bytes`.
    """

    def __init__(
        self,
        batch: Submission,
        start: int,
        routes: Routes,
        positions: I64,
        joined: Config | None = None,
    ) -> None:
        self._batch, self._start, self._routes, self._positions = batch, start, routes, positions
        self._joined = joined
        self._groups: dict[ProcessId, list[tuple[int, Scope]]] = {}
        self._whole: Delivery | None = None
        self.last: dict[ProcessId, int] = {}
        self.weights: dict[ProcessId, int] = {}
        fixed, n = len(batch.shared) + HEADER_BYTES, len(positions)
        if len(routes.routes) == 1:
            # All take the same way, as one message does and those of one partition do.
            target = routes.routes[0]
            if not isinstance(target, Refusal) and n:
                ends = batch.payload_offsets
                weight = ends.item(start + n) - ends.item(start) + HEADER_BYTES * n
                self.last = dict.fromkeys(target, positions.item(n - 1))
                self.weights = dict.fromkeys(target, fixed + weight)
            return
        last, weights = self._by_group()
        for group, target in enumerate(routes.routes):
            if isinstance(target, Refusal) or last[group] < 0:
                continue
            for process, scope in target.items():
                groups = self._groups.get(process)
                if groups is None:
                    self._groups[process] = [(group, scope)]
                    self.last[process] = last[group]
                    self.weights[process] = fixed + weights[group]
                else:
                    groups.append((group, scope))
                    self.last[process] = max(self.last[process], last[group])
                    self.weights[process] += weights[group]

    def _by_group(self) -> tuple[Sequence[int], Sequence[int]]:
        """Give each group's last position (-1 if it has no message), and what its messages weigh."""
        n, n_groups = len(self._positions), len(self._routes.routes)
        ends = self._batch.payload_offsets[self._start : self._start + n + 1]
        group = self._routes.group
        last = np.full(n_groups, -1, np.int64)
        # Of several values for one place the last one stays, and positions ascend.
        last[group] = self._positions
        lengths = ends[1:] - ends[:-1]
        weights = np.bincount(group, lengths + HEADER_BYTES, n_groups).astype(np.int64)
        return last.tolist(), weights.tolist()

    def of(self, process: ProcessId) -> Delivery:
        """Give a destination's share."""
        share = self._of(process)
        if self._joined is not None and process == self._batch.sender:
            # Its weight beside the order's messages is not counted: a process joins once.
            return msgspec.structs.replace(share, config=self._joined.encode())
        return share

    def _of(self, process: ProcessId) -> Delivery:
        routes = self._routes.routes
        if len(routes) == 1:
            return self._all(routes[0][process])  # type: ignore[index]  # No refusal has shares.
        groups = self._groups[process]
        n = len(self._positions)
        scopes = tuple(dict.fromkeys(scope for _, scope in groups))
        n_groups = len(routes)
        if len(groups) == n_groups:
            selected = np.arange(n, dtype=np.int64)
        else:
            is_its = np.zeros(n_groups, np.bool_)
            for group, _ in groups:
                is_its[group] = True
            selected = is_its[self._routes.group].nonzero()[0]
        if len(scopes) == 1:
            code = np.zeros(len(selected), np.int64)
        else:
            code_of = np.zeros(n_groups, np.int64)
            for group, scope in groups:
                code_of[group] = scopes.index(scope)
            code = code_of[self._routes.group[selected]]
        positions = self._positions if len(selected) == n else self._positions[selected]
        if self._start:
            selected += self._start
        return gather(self._batch, selected, code, scopes, positions)

    def _all(self, scope: Scope) -> Delivery:
        """Give all messages under one scope; whatever that is, the columns are the same."""
        whole = self._whole
        if whole is None:
            n = len(self._positions)
            selected = np.arange(self._start, self._start + n, dtype=np.int64)
            code = np.zeros(n, np.int64)
            whole = self._whole = gather(self._batch, selected, code, (scope,), self._positions)
        if whole.scopes[0] is scope:
            return whole
        return msgspec.structs.replace(whole, scopes=(scope,))


class Deliveries(Mapping[ProcessId, tuple[Delivery, ...]]):
    """Each destination's parts of one instance, made when they are asked for: once, as a rule.

    Parameters
    ----------
    shares : sequence of Shares
        Of all runs of the instance, ascending.
    destinations : collection of ProcessId
        Of any of them.
    """

    def __init__(self, shares: Sequence[Shares], destinations: Collection[ProcessId]) -> None:
        self._shares, self._destinations = shares, destinations

    def __getitem__(self, process: ProcessId) -> tuple[Delivery, ...]:
        if process not in self._destinations:
            raise KeyError(process)
        return tuple([share.of(process) for share in self._shares if process in share.last])

    def __iter__(self) -> Iterator[ProcessId]:
        return iter(self._destinations)

    def __len__(self) -> int:
        return len(self._destinations)


def split(
    batch: Submission, start: int, routes: Routes, positions: I64
) -> Iterable[tuple[ProcessId, Delivery]]:
    """Give each destination's part of some messages of a submission.

    Parameters
    ----------
    batch : Submission
    start : int
        The first of the messages that `routes` is about.
    routes : Routes
        Of n messages; refused ones go nowhere.
    positions : ndarray of int64, shape (n,)
    """
    shares = Shares(batch, start, routes, positions)
    return ((process, shares.of(process)) for process in shares.last)
