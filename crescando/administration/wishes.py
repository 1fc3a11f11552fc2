"""What an administrator asks for, and the transformation that it means for one configuration.

Rules of the file: a wish is checked for what is wrong whatever the cluster is
when it is made; the rest is decided for a configuration, and decided anew for
the next one if the layout moves on before the change is ordered. A process is
named by its identity, as ``"storage/s2"`` or as ``"s2"``, whose present
incarnation is meant then.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from crescando.errors import SpecError
from crescando.naming import Name, identify
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import (
    Contract,
    Expand,
    Rebalance,
    Replace,
    Transformation,
    transformed,
)
from crescando.routing.rubberband.placement import Weights, best_position, loads
from crescando.routing.rubberband.ring import Ring
from crescando.types import RING_MAX, ProcessId

Action = Literal["expand", "contract", "replace", "rebalance"]

MEANT = {
    "expand": ("process", "at"),
    "contract": ("process", "force"),
    "replace": ("process", "by"),
    "rebalance": ("process", "at"),
}
"""What may be said of each action."""

ON_RING = "of the ring or on standby"

GAIN_MIN = 0.02
"""A rebalancing that nobody asked a position for must lighten the heaviest process by so large a share."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A transformation of the keyspace as it was asked for.

    Parameters
    ----------
    action : str
    process : ProcessId or str, optional
        The newcomer of an expansion, by default the first standby; whom else it is about.
    at : int, optional
        A ring position; by default the one that lightens the heaviest process most.
    by : ProcessId or str, optional
        Who takes the place; by default the first standby.
    force : bool
        Whether a contraction may leave fewer copies than are promised, or than live now.

    Raises
    ------
    SpecError
        If no cluster could do it.
    """

    action: Action
    process: Name | None = None
    at: int | None = None
    by: Name | None = None
    force: bool = False

    def __post_init__(self) -> None:
        if self.action not in get_args(Action):
            raise SpecError(f"{self.action!r} is no transformation; there are {', '.join(get_args(Action))}")
        for name in ("process", "by"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, ProcessId | str):
                raise SpecError(f"{name} must be a process or its name, such as 'storage/s2', not {value!r}")
        if not isinstance(self.force, bool):
            raise SpecError(f"force is True or False, not {self.force!r}")
        for name in ("at", "by", "force"):
            is_said = getattr(self, name) is not None and getattr(self, name) is not False
            if is_said and name not in MEANT[self.action]:
                raise SpecError(f"{self.action} takes no {name}")
        if self.at is not None:
            if isinstance(self.at, bool) or not isinstance(self.at, int):
                raise SpecError(f"at must be a ring position, a whole number, not {self.at!r}")
            if not 0 <= self.at <= RING_MAX:
                raise SpecError(f"ring position {self.at} does not lie in [0, {RING_MAX}]")
        if self.process is None and self.action in ("contract", "replace"):
            raise SpecError(f"{self.action} needs to be told which process; status() names them")

    @property
    def needs_weights(self) -> bool:
        """Whether weights decide if there is anything to be done."""
        return self.action == "rebalance" and self.at is None

    def resolve(self, config: Rubberband, weights: Weights) -> Transformation:
        """Give the transformation that this means, behind all changes that are under way.

        Raises
        ------
        SpecError
            If there is none: the text names the cause and the mend.
        """
        ring = config.target
        match self.action:
            case "expand":
                process = self._newcomer(self.process, config)
                at = best_position(ring, process, weights) if self.at is None else self.at
                return Expand(process, at)
            case "contract":
                return Contract(self._placed(self.process, config, ring), self.force)
            case "replace":
                return Replace(self._placed(self.process, config, ring), self._newcomer(self.by, config))
            case "rebalance":
                return self._rebalance(config, ring, weights)

    def _rebalance(self, config: Rubberband, ring: Ring, weights: Weights) -> Rebalance:
        weights = weights.or_widths()
        if self.process is not None:
            process = self._placed(self.process, config, ring)
            if self.at is not None:
                return Rebalance(process, self.at)
            movable = [process]
        elif self.at is not None:
            raise SpecError("which process is to take the ring position? rebalance(process, at=…)")
        else:
            movable = sorted(able(config) & set(ring.processes))
        before = max(loads(ring, weights).values())
        found = []
        for process in movable:
            change = Rebalance(process, best_position(ring, process, weights))
            found.append((max(loads(transformed(ring, change), weights).values()), change.process, change))
        if not found:
            raise SpecError("no process of the ring answers; wait until one does")
        heaviest, _, change = min(found)
        if heaviest > before * (1 - GAIN_MIN):
            raise SpecError(
                f"no other position of {' or '.join(map(str, movable))} would make the heaviest process much "
                "lighter; give the position yourself, move another process, or expand"
            )
        return change

    @staticmethod
    def _newcomer(name: Name | None, config: Rubberband) -> ProcessId:
        if name is None:
            waiting = standbys(config)
            if not waiting:
                raise SpecError(
                    "no storage process is on standby; start one, which joins by itself, and ask again"
                )
            return waiting[0]
        process = identify(name, known_storages(config), ON_RING)
        if process not in config.storages:
            raise SpecError(
                f"{process} has failed or has left; start its node again, and it joins on standby"
            )
        return process

    @staticmethod
    def _placed(name: Name | None, config: Rubberband, ring: Ring) -> ProcessId:
        assert name is not None
        process = identify(name, known_storages(config), ON_RING)
        if process not in ring.processes:
            behind = " when the changes under way have ended" if process in config.ring.processes else ""
            raise SpecError(f"{process} has no ring position{behind}: it was replaced or stands by")
        return process


def able(config: Rubberband) -> frozenset[ProcessId]:
    """Give the storage processes that can take part in a change."""
    return config.storages.difference(config.pending)


def standbys(config: Rubberband) -> tuple[ProcessId, ...]:
    """Give the storage processes that hold no ring position and are promised none, in order."""
    taken = {*config.ring.processes, *config.target.processes}
    return tuple(sorted(able(config) - taken))


def known_storages(config: Rubberband) -> tuple[ProcessId, ...]:
    """Give every storage process that is a member or holds a ring position, or is to hold one."""
    return tuple(sorted({*config.storages, *config.ring.processes, *config.target.processes}))
