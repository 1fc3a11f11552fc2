"""What an administrator asks of storage processes, against processes that answer as real ones do."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import Any, cast

from crescando.administration.questions import Questions
from crescando.backend import LoopBackend
from crescando.roles.messages import RANGES_WEIGHED, Weigh, Weighs
from crescando.routing.rubberband.config import Rubberband
from crescando.types import KeyRange, ProcessId

N_STORAGES = 40
ROWS = 1 << 20


class LopsidedCluster:
    """All rows lie evenly in the first arc; nobody answers a question that is too long."""

    def __init__(self, config: Rubberband) -> None:
        self.arc = config.ring.arcs[0]
        self.longest = 0

    def ask(self, process: ProcessId, question: Callable[[int], Weigh]) -> Future[Any]:
        asked = question(1)
        self.longest = max(self.longest, len(asked.ranges))
        is_told = len(asked.ranges) <= RANGES_WEIGHED
        weights = tuple((self.rows(each), 100 * self.rows(each)) for each in asked.ranges) if is_told else ()
        future: Future[Any] = Future()
        future.set_result(Weighs(1, weights))
        return future

    def rows(self, part: KeyRange) -> int:
        """Give the rows of a part, such that those of parts add up."""
        low, width = self.arc.low, self.arc.high - self.arc.low + 1

        def below(position: int) -> int:
            return ROWS * min(max(position - low, 0), width) // width

        return below(part.high + 1) - below(part.low)


def test_a_process_that_holds_nearly_everything_is_weighed_as_finely_as_need_be() -> None:
    storages = [ProcessId("storage", f"s{n}", 1) for n in range(N_STORAGES)]
    config = Rubberband.genesis(storages=storages, replication=1)
    cluster = LopsidedCluster(config)

    weights, unknown = Questions(lambda: cast("LoopBackend", cluster)).weights(config)

    assert unknown == ()
    assert weights.n_rows == ROWS
    assert max(weights.rows) <= ROWS / (8 * N_STORAGES)
    assert cluster.longest == RANGES_WEIGHED
