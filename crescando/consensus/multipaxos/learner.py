"""The learner role: decided values, given out in order and without gaps.

Rules of the file: a value is recorded only when it is decided (INV-3); learned
values are kept above the trim watermark, for members that must catch up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

from crescando.consensus.membership import Change

V = TypeVar("V")


@dataclass(slots=True)
class Learner(Generic[V]):
    """Decided values; `learned` is the watermark up to which they were given out."""

    decided: dict[int, V | Change | None] = field(default_factory=dict)
    learned: int = 0
    trimmed: int = 0
    n_bytes: int = 0
    _sizes: dict[int, int] = field(default_factory=dict)

    def decide(self, instance: int, value: V | Change | None) -> None:
        """Record that an instance is decided."""
        if instance > self.learned and instance not in self.decided:
            self.decided[instance] = value
            size = self._sizes[instance] = size_of(value)
            self.n_bytes += size

    def advance(self) -> list[tuple[int, V | Change | None]]:
        """Give out what has become contiguous."""
        out: list[tuple[int, V | Change | None]] = []
        while self.learned + 1 in self.decided:
            self.learned += 1
            out.append((self.learned, self.decided[self.learned]))
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
            weight += self._sizes[instance]
        return tuple(values)

    def trim(self, instance: int) -> None:
        """Forget learned values up to `instance`."""
        instance = min(instance, self.learned)
        for gone in range(self.trimmed + 1, instance + 1):
            self._forget(gone)
        self.trimmed = max(self.trimmed, instance)

    def lag_floor(self, instances: int, n_bytes: int) -> int:
        """Give the instance up to which values must go for at most so many to be kept."""
        floor = max(self.trimmed, self.learned - instances)
        kept = self.n_bytes - sum(self._sizes[i] for i in range(self.trimmed + 1, floor + 1))
        while kept > n_bytes and floor < self.learned:
            floor += 1
            kept -= self._sizes[floor]
        return floor

    def _forget(self, instance: int) -> None:
        self.decided.pop(instance, None)
        self.n_bytes -= self._sizes.pop(instance, 0)

    def jump(self, instance: int) -> None:
        """Stand at `instance` because a snapshot of it was installed."""
        for gone in [known for known in self.decided if known <= instance]:
            self._forget(gone)
        self.learned = instance
        self.trimmed = max(self.trimmed, instance)


def size_of(value: object) -> int:
    """Give a value's weight in bytes, if it states one as ``n_bytes``."""
    size: int = getattr(value, "n_bytes", 0)
    return size
