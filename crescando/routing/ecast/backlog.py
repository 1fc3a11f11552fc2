"""Learned instances that a follower keeps unrouted, and what it must know to drop them so.

Rules of the file: where a message goes is of interest only to a leader, so a
follower routes nothing (routing is a function of a run and its Config, and can
be made up for at any time). It drops what its leader says is stable. What
routing *refuses* must outlive that, since the sender may not have been told: the
leader names the instances of which something was refused, as far back as it
knows, and a follower routes these before it drops them. So every router knows of
every instance since its snapshot whether anything was refused.
"""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator
from typing import Generic, TypeVar

from crescando.routing.base import Config
from crescando.routing.ecast.messages import StableUpTo
from crescando.routing.ecast.mseq import Learned, Run

C = TypeVar("C", bound=Config)

REFUSING_MAX = 256
"""Instances that a leader names; followers route what lies further back."""


class Refusing:
    """The newest instances of which routing has refused something.

    Attributes
    ----------
    since : int
        The lowest instance from which on the list is complete.
    """

    def __init__(self) -> None:
        self.since = 1
        self._instances: list[int] = []

    def begin(self, since: int) -> None:
        """Be complete from `since` on only: what is below came as a snapshot."""
        self.since = max(self.since, since)

    def note(self, instance: int) -> None:
        """Put an instance on the list, in any order: a follower drops some before others."""
        if instance >= self.since and instance not in self._instances:
            insort(self._instances, instance)
        if len(self._instances) > REFUSING_MAX:
            self.since = self._instances.pop(0) + 1

    def instances(self) -> tuple[int, ...]:
        """Give the list."""
        return tuple(self._instances)


class Backlog(Generic[C]):
    """What a follower has learned and not routed, by instance."""

    def __init__(self) -> None:
        self._learned: dict[int, Learned[C]] = {}

    def __len__(self) -> int:
        return len(self._learned)

    def keep(self, instance: int, learned: Learned[C]) -> None:
        """Take in what was learned last."""
        self._learned[instance] = learned

    def take(self, n_instances: int, n_messages: int) -> list[tuple[int, Learned[C]]]:
        """Give the oldest, ascending, to be routed now.

        Parameters
        ----------
        n_instances, n_messages : int
            The one that reaches either is the last.
        """
        taken: list[tuple[int, Learned[C]]] = []
        for instance, learned in self._learned.items():
            taken.append((instance, learned))
            n_messages -= sum(run.stop - run.start for run in learned.runs)
            if len(taken) == n_instances or n_messages <= 0:
                break
        if len(taken) == len(self._learned):
            self._learned = {}
        else:
            for instance, _ in taken:
                del self._learned[instance]
        return taken

    def drop(self, upto: int, notice: StableUpTo) -> Iterator[tuple[int, list[Run[C]]]]:
        """Drop what is stable up to `upto`; gives the instances that must be routed before they go."""
        known = list(self._learned)
        n = bisect_right(known, upto)
        unstable, refusing = frozenset(notice.unstable), frozenset(notice.refusing)
        gone = [instance for instance in known[:n] if instance not in unstable] if unstable else known[:n]
        if len(gone) == len(known):
            dropped, self._learned = self._learned, {}
        else:
            dropped = {instance: self._learned.pop(instance) for instance in gone}
        if refusing or (gone and gone[0] < notice.refusing_since):
            for instance in gone:
                if instance in refusing or instance < notice.refusing_since:
                    yield instance, dropped[instance].runs
