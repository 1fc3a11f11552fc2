"""Reads led away from processes that had better not be asked, where another replica is.

Rules of the file: a read's own replica offset is tried first, then the next ones; of the first
few the one is taken that leads to nobody worse. Where even that is bad, the caller says what the
read is refused with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import msgspec
import numpy as np

from crescando.routing.base import Config, Refusal, Route, Routes, route
from crescando.routing.batch import I64, Delivery, Submission
from crescando.routing.ecast.split import split
from crescando.types import ProcessId

ALTERNATIVES = 8
"""Replica offsets tried for a read that its own one leads to a busy or lost process."""


def best_routes(
    config: Config,
    reads: Submission,
    rank: Callable[[ProcessId], int],
    refusals: Mapping[int, Refusal],
) -> Routes:
    """Route reads by the first replica offset, from their own on, that leads to no process of a high rank.

    Parameters
    ----------
    config : Config
    reads : Submission
        Nothing else is in it.
    rank : callable
        How bad it is to ask a process: 0 if not at all, at most the highest rank of `refusals`.
    refusals : mapping of int to Refusal
        For ranks at which a read is better refused.
    """
    n, worst = len(reads), max(refusals)
    targets: list[Route] = [refusals[worst]]
    choice: I64 = np.zeros(n, np.int64)
    best: I64 = np.full(n, worst, np.int64)
    for shift in range(ALTERNATIVES):
        offsets = reads.replica_offset + np.uint32(shift)
        routes = route(config, msgspec.structs.replace(reads, replica_offset=offsets), 0, n)
        for number, target in enumerate(routes.routes):
            # A refusal is final; no other offset would change it.
            served = () if isinstance(target, Refusal) else target
            reached = max(map(rank, served), default=0)
            better = np.flatnonzero((routes.group == number) & (best > reached))
            if len(better):
                best[better], choice[better] = reached, len(targets)
                targets.append(refusals.get(reached, target))
        if not best.any():
            break
    return Routes(choice, tuple(targets))


def parts_of(reads: Submission, routes: Routes) -> Iterable[tuple[ProcessId, Delivery]]:
    """Give each process's part of reads that have no positions."""
    return split(reads, 0, routes, np.zeros(len(reads), np.int64))
