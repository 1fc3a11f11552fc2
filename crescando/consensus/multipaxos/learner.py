"""The learner role: decided values, given out in order and without gaps.

Rules of the file: a value is recorded only when it is decided (INV-3); learned
values are kept above the trim watermark, for members that must catch up.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Generic, TypeVar

V = TypeVar("V")


@dataclass(slots=True)
class Learner(Generic[V]):
    """Decided values; `learned` is the watermark up to which they were given out."""

    decided: dict[int, V | None] = field(default_factory=dict)
    learned: int = 0
    trimmed: int = 0

    def decide(self, instance: int, value: V | None) -> None:
        """Record that an instance is decided."""
        if instance > self.learned:
            self.decided[instance] = value

    def advance(self) -> list[tuple[int, V | None]]:
        """Give out what has become contiguous."""
        out: list[tuple[int, V | None]] = []
        while self.learned + 1 in self.decided:
            self.learned += 1
            out.append((self.learned, self.decided[self.learned]))
        return out

    def values_from(self, first: int, limit: int) -> tuple[V | None, ...]:
        """Give at most `limit` learned values of consecutive instances from `first` on."""
        last = min(self.learned, first + limit - 1)
        return tuple(self.decided[instance] for instance in range(first, last + 1))

    def trim(self, instance: int) -> None:
        """Forget learned values up to `instance`."""
        instance = min(instance, self.learned)
        for gone in range(self.trimmed + 1, instance + 1):
            self.decided.pop(gone, None)
        self.trimmed = max(self.trimmed, instance)

    def jump(self, instance: int) -> None:
        """Stand at `instance` because a snapshot of it was installed."""
        for gone in [known for known in self.decided if known <= instance]:
            del self.decided[gone]
        self.learned = instance
        self.trimmed = max(self.trimmed, instance)
