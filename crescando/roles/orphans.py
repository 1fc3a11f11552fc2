"""Which atomic loads a super ends, since whoever began them has let their lease run out.

Rules of the file: a lease is counted from the moment at which this super learned that it began, on
its own clock, so never too short. The first super in name ends a load; each other one so much later than the
one before it. The order refuses the end of a load that was renewed meanwhile, or has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from crescando.process import earliest
from crescando.routing.rubberband.loads import Loads
from crescando.routing.rubberband.messages import ExpireLoad
from crescando.types import LoadId, ProcessId

AGAIN_S = 5.0
"""When the end of a load is ordered again, if nothing has come of it."""


class Configured(Protocol):
    """What is asked of a configuration."""

    @property
    def loads(self) -> Loads: ...


class Orphans:
    """One super's part in ending loads.

    Parameters
    ----------
    me : ProcessId
    delay_s : float
        How much longer each super waits than the one before it in name.

    Attributes
    ----------
    wake_at_s : float or None
        When the next lease is over.
    n_expired : int
        Ends that it has ordered.
    """

    def __init__(self, me: ProcessId, delay_s: float) -> None:
        self.me = me
        self.wake_at_s: float | None = None
        self.n_expired = 0
        self._delay_s = delay_s
        self._loads: Loads | None = None
        self._over_s: dict[tuple[LoadId, int], float] = {}
        """When the lease of each open load is over, by how often it was renewed."""

    def look(self, config: Configured, supers: Sequence[ProcessId], now_s: float) -> list[ExpireLoad]:
        """Give what is to be ordered now."""
        loads = config.loads
        if loads is not self._loads:
            self._loads = loads
            known, self._over_s = self._over_s, {}
            for load in loads.open:
                key = load.id, load.renewals
                self._over_s[key] = known.get(key, now_s + load.lease_ms / 1000)
        if not self._over_s or self.me not in supers:
            self.wake_at_s = None
            return []
        late_s = sorted(supers).index(self.me) * self._delay_s
        due = [key for key, over_s in self._over_s.items() if now_s >= over_s + late_s]
        for key in due:
            self._over_s[key] = now_s + AGAIN_S
        self.n_expired += len(due)
        first_s = earliest(*self._over_s.values())
        self.wake_at_s = None if first_s is None else first_s + late_s
        return [ExpireLoad(load, renewals) for load, renewals in due]
