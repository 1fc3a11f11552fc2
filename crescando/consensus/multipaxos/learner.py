"""The learner role: decided values, given out in order and without gaps.

Rules of the file: a value is recorded only when it is decided (INV-3); learned
values are kept above the trim watermark, for members that must catch up.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Generic, TypeVar

from crescando.consensus.membership import Change

V = TypeVar("V")


@dataclass(slots=True)
class Learner(Generic[V]):
    """Decided values; `learned` is the watermark up to which they were given out.

    What they weigh is found out when it is asked for, which only a leader does.
    """

    decided: dict[int, V | Change | None] = field(default_factory=dict)
    learned: int = 0
    trimmed: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)
    _weighed: int = 0
    _n_bytes: int = 0

    def decide(self, instance: int, value: V | Change | None) -> None:
        """Record that an instance is decided."""
        if instance > self.learned:
            self.decided.setdefault(instance, value)

    def advance(self) -> list[tuple[int, V | Change | None]]:
        """Give out what has become contiguous."""
        out: list[tuple[int, V | Change | None]] = []
        following = self.learned + 1
        while following in self.decided:
            out.append((following, self.decided[following]))
            self.learned = following
            following += 1
        return out

    def values_from(self, first: int, limit: int, n_bytes: int) -> tuple[V | Change | None, ...]:
        """Give learned values of consecutive instances from `first` on.

        At most `limit` of them, and no further one once they weigh `n_bytes`.
        """
        values: list[V | Change | None] = []
        weight = 0
        for instance in range(first, min(self.learned, first + limit - 1) + 1):
            if values and weight >= n_bytes:
                break
            values.append(self.decided[instance])
            weight += size_of(self.decided[instance])
        return tuple(values)

    def trim(self, instance: int) -> None:
        """Forget learned values up to `instance`."""
        instance = min(instance, self.learned)
        self._forget(range(self.trimmed + 1, instance + 1))
        self.trimmed = max(self.trimmed, instance)

    def lag_floor(self, instances: int, n_bytes: int) -> int:
        """Give the instance up to which values must go for at most so many to be kept."""
        for instance in range(max(self.trimmed, self._weighed) + 1, self.learned + 1):
            size = self._sizes[instance] = size_of(self.decided[instance])
            self._n_bytes += size
        self._weighed = self.learned
        floor = max(self.trimmed, self.learned - instances)
        kept = self._n_bytes - sum(self._sizes[i] for i in range(self.trimmed + 1, floor + 1))
        while kept > n_bytes and floor < self.learned:
            floor += 1
            kept -= self._sizes[floor]
        return floor

    def _forget(self, instances: Collection[int]) -> None:
        decided, sizes = self.decided, self._sizes
        for instance in instances:
            del decided[instance]
        if sizes:
            self._n_bytes -= sum([sizes.pop(instance) for instance in instances if instance in sizes])

    def jump(self, instance: int) -> None:
        """Stand at `instance` because a snapshot of it was installed."""
        self._forget([known for known in self.decided if known <= instance])
        self.learned = instance
        self.trimmed = max(self.trimmed, instance)


def size_of(value: object) -> int:
    """Give a value's weight in bytes, if it states one as ``n_bytes``."""
    size: int = getattr(value, "n_bytes", 0)
    return size
