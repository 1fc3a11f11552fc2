"""How the ring is made whole again, and evened out: a function of the configuration alone (RB13 §6.5).

Rules of the file: a *wound* is a failed process that holds a position on the
ring as all changes under way will leave it, so that a wound whose cure has begun
is none, and is one again if the cure is dropped. Cures are planned for the
present layout and behind everything under way: if anything else is ordered
first, the order refuses them, and they are planned anew. No cure lowers the
promised replication, and none asks anything of one that does not answer.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

from crescando.errors import SpecError
from crescando.routing.base import Refusal
from crescando.routing.rubberband.changes import begun
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import Contract, Replace, Transformation
from crescando.routing.rubberband.messages import MessageId, Reconfigure
from crescando.routing.rubberband.planner import make_plan
from crescando.types import KeyRange, ProcessId

STEPS_MAX = 2_000
"""Partial solutions that are looked at for one cure: it is planned between two messages."""

NOT_ORDERED = MessageId(ProcessId("super", "healer"), 0)
"""Stands for the message that would begin a cure."""


NEVER: Mapping[Hashable, int] = MappingProxyType({})


class Wound(NamedTuple):
    """A failed process with a position, and how many owners are left to the range that has fewest."""

    n_left: int
    process: ProcessId


def wounds(config: Rubberband) -> tuple[Wound, ...]:
    """Give what is to be healed, the most dangerous first."""
    ring = config.target
    able = config.storages - config.pending
    left: dict[ProcessId, int] = {}
    for arc in range(len(ring.arcs)):
        owners = ring.owners(arc)
        n_left = sum(owner in able for owner in owners)
        for owner in owners:
            if owner not in config.storages:
                left[owner] = min(n_left, left.get(owner, n_left))
    return tuple(sorted(Wound(n_left, process) for process, n_left in left.items()))


class RingHealer:
    """What supers ask of the ring, to heal it."""

    def wounded(self, config: Rubberband, /) -> frozenset[ProcessId]:
        """Give the failed processes that hold a position, and whose cure has not begun."""
        if config.storages.issuperset(config.ring.processes):
            # Whoever is to take a position and fails is dropped at once, with its change.
            return frozenset()
        return frozenset(wound.process for wound in wounds(config))

    def cure(
        self,
        config: Rubberband,
        /,
        *,
        may_shrink: frozenset[ProcessId] = frozenset(),
        avoided: frozenset[ProcessId] = frozenset(),
        tried: Mapping[Hashable, int] = NEVER,
    ) -> Reconfigure | None:
        """Give the change that heals the most dangerous wound of those that can be healed.

        Parameters
        ----------
        config : Rubberband
        may_shrink : frozenset of ProcessId
            Failed processes whose positions may be given up if nobody can take them.
        avoided : frozenset of ProcessId
            Standbys not to be taken: of no position, and yet full, or not heard.
        tried : mapping
            How often each transformation was begun and dropped.
        """
        standbys = [process for process in config.standbys if process not in avoided]
        for _, process in wounds(config):
            for transformation in _cures(process, standbys, may_shrink, tried):
                change = planned(config, transformation)
                if change is not None:
                    return change
        return None


def _cures(
    process: ProcessId,
    standbys: list[ProcessId],
    may_shrink: frozenset[ProcessId],
    tried: Mapping[Hashable, int],
) -> Iterator[Transformation]:
    if standbys:
        # Should one be unable to take it all, it is another one's turn.
        yield min((Replace(process, by) for by in standbys), key=lambda change: tried.get(change, 0))
    elif process in may_shrink:
        yield Contract(process)


def planned(config: Rubberband, transformation: Transformation) -> Reconfigure | None:
    """Give what begins a transformation behind all that are under way, if the order would take it."""
    ring = config.target
    failed = frozenset(ring.processes) - config.storages
    waiting = frozenset(copy.receiver for change in config.changes for copy in change.copies)
    # Whoever still receives is asked to send only what nobody else has: if it fails, both changes do.
    for silent in dict.fromkeys((config.pending | waiting, config.pending)):
        try:
            plan = make_plan(
                ring,
                transformation,
                failed=failed,
                silent=silent,
                load=_load(config),
                steps_max=STEPS_MAX,
            )
            change = Reconfigure(transformation, plan.copies, config.layout)
            begun(change, NOT_ORDERED, config.ring, config.changes, config.membership)
        except (SpecError, Refusal):
            continue
        return change
    return None


def _load(config: Rubberband) -> dict[ProcessId, int]:
    """Give what processes have to send for the changes under way, as shares of the ring."""
    load: dict[ProcessId, int] = {}
    for change in config.changes:
        for index, copy in enumerate(change.copies):
            if index not in change.ready:
                load[copy.sender] = load.get(copy.sender, 0) + sum(map(_width, copy.scope))
    return load


def _width(key_range: KeyRange) -> int:
    return key_range.high - key_range.low + 1
