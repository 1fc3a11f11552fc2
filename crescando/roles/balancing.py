"""When a super has the ring evened out by load: seldom, and only if much is gained.

Rules of the file: only the first super in name does it, only while the ring is
whole and nothing is under way, and only as its policy says; by default never. It
weighs the ring by asking one owner of each range, and forgets a weighing during
which the layout has changed. A move must make the heaviest process lighter by a
certain share: what one move has gained the next one does not take back, and who
is heaviest by little stays so.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

from crescando.errors import SpecError
from crescando.roles.messages import Weigh, Weighs
from crescando.routing.base import Config
from crescando.routing.rubberband.messages import Reconfigure
from crescando.types import KeyRange, ProcessId


@dataclass(frozen=True, slots=True)
class BalancingPolicy:
    """Whether and when processes are moved on the ring to even out what they hold.

    Parameters
    ----------
    is_on : bool
        Otherwise only an administrator moves processes.
    every_s : float
        How long to wait between two weighings.
    gain : float
        The share by which a move must lighten the heaviest process.
    rows_min : int
        With fewer rows than so many on its heaviest process the ring is left as it is.

    Raises
    ------
    SpecError
        If it cannot be: the text names the setting and the mend.
    """

    is_on: bool = False
    every_s: float = 60.0
    gain: float = 0.2
    rows_min: int = 100_000

    def __post_init__(self) -> None:
        if not 0 < self.gain < 1:
            raise SpecError(f"balancing.gain is a share between 0 and 1, not {self.gain!r}")
        if not self.every_s > 0:
            raise SpecError(f"balancing.every_s must be greater than 0, not {self.every_s!r}")
        if not self.rows_min >= 0:
            raise SpecError(f"balancing.rows_min must be at least 0, not {self.rows_min!r}")


C = TypeVar("C", bound=Config)
D = TypeVar("D", bound=Config, contravariant=True)


class Balancer(Protocol[D]):
    """What to weigh, and what to do about it, as functions of the configuration."""

    def ranges(self, config: D, /) -> Mapping[ProcessId, tuple[KeyRange, ...]]:
        """Give what whom is to be asked for; nothing while the ring is not whole, or changes."""
        ...

    def layout(self, config: D, /) -> Any:
        """Give a value that stays the same as long as the weights mean what they meant."""
        ...

    def move(
        self, config: D, weights: Mapping[KeyRange, tuple[int, int]], /, *, gain: float, rows_min: int
    ) -> Reconfigure | None:
        """Give the move that evens out the ring, if there is one that is worth it."""
        ...


class Balancing(Generic[C]):
    """One super's part in it.

    Parameters
    ----------
    me : ProcessId
    balancer : Balancer
    policy : BalancingPolicy

    Attributes
    ----------
    proposed : int
        Moves that were found worth it.
    """

    def __init__(self, me: ProcessId, balancer: Balancer[C], policy: BalancingPolicy) -> None:
        self.me = me
        self.policy = policy
        self.proposed = 0
        self._balancer = balancer
        self._next_s: float | None = None
        self._request = 0
        self._layout: Any = None
        self._asked: dict[ProcessId, tuple[KeyRange, ...]] = {}
        self._weights: dict[KeyRange, tuple[int, int]] = {}

    def look(self, config: C, supers: Collection[ProcessId], now_s: float) -> list[tuple[ProcessId, Weigh]]:
        """Give the questions to be asked now; called every so often."""
        if not self.policy.is_on or not supers or min(supers) != self.me:
            self._next_s = None
            return []
        if self._next_s is None:
            self._next_s = now_s + self.policy.every_s
        if now_s < self._next_s:
            return []
        self._next_s = now_s + self.policy.every_s
        self._request += 1
        self._asked = dict(self._balancer.ranges(config))
        self._weights = {}
        self._layout = self._balancer.layout(config)
        return [(process, Weigh(self._request, ranges)) for process, ranges in sorted(self._asked.items())]

    def take(self, config: C, peer: ProcessId, answer: Weighs) -> Reconfigure | None:
        """Take an answer; with the last one gives what is to be done, if anything is."""
        ranges = self._asked.get(peer, ())
        if answer.request != self._request or len(answer.weights) != len(ranges) or not ranges:
            return None
        self._weights.update(zip(ranges, answer.weights, strict=True))
        del self._asked[peer]
        if self._asked or self._balancer.layout(config) != self._layout:
            return None
        policy = self.policy
        move = self._balancer.move(config, self._weights, gain=policy.gain, rows_min=policy.rows_min)
        self.proposed += move is not None
        return move
