"""How the ring is evened out by load: what to weigh, and which move is worth it (RB13 §6.4, rebalance)."""

from __future__ import annotations

from collections.abc import Mapping

from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.healing import planned
from crescando.routing.rubberband.messages import MessageId, Reconfigure
from crescando.routing.rubberband.placement import Weights, cut, lightening, loads
from crescando.types import KeyRange, ProcessId

PARTS = 16
"""Parts in which each arc is weighed."""


class RingBalancer:
    """What supers ask of the ring, to even it out."""

    def ranges(self, config: Rubberband, /) -> Mapping[ProcessId, tuple[KeyRange, ...]]:
        """Give which parts of which arc to ask of whom; nothing while the ring is not whole, or changes."""
        if config.changes or config.pending or config.failed:
            return {}
        asked: dict[ProcessId, list[KeyRange]] = {}
        for arc, key_range in enumerate(config.ring.arcs):
            asked.setdefault(config.ring.owners(arc)[0], []).extend(cut(key_range, PARTS))
        return {process: tuple(parts) for process, parts in asked.items()}

    def layout(self, config: Rubberband, /) -> MessageId | None:
        """Give what says whether the weights still mean what they meant."""
        return config.layout

    def move(
        self,
        config: Rubberband,
        weights: Mapping[KeyRange, tuple[int, int]],
        /,
        *,
        gain: float,
        rows_min: int,
    ) -> Reconfigure | None:
        """Give the move that evens out the ring, if there is one that is worth it."""
        known = Weights.of(weights)
        if config.changes or max(loads(config.ring, known).values()) < max(1, rows_min):
            return None
        best = lightening(config.ring, known, config.ring.processes)
        if best is None or best.gain < gain:
            return None
        return planned(config, best.change)
