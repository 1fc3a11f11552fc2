"""What a change of the keyspace would do, told before it begins: a dry run (RB13 §6.5).

Rules of the file: a plan is a value, worked out from a configuration, a wish
and the weights of the ring; nothing is asked of anybody here. A plan that the
order would refuse is a plan too: it says why, and copies nothing.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crescando.administration.wishes import Wish, able
from crescando.errors import SpecError
from crescando.routing.base import Refusal
from crescando.routing.rubberband.changes import Change, begun, place_of, target_of
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import (
    Contract,
    Copy,
    Expand,
    Rebalance,
    Replace,
    Transformation,
    transformed,
)
from crescando.routing.rubberband.messages import MessageId, Reconfigure
from crescando.routing.rubberband.placement import Weight, Weights
from crescando.routing.rubberband.planner import Risk, make_plan
from crescando.routing.rubberband.ring import Ring
from crescando.types import KeyRange, ProcessId, Scope

NOT_ORDERED = MessageId(ProcessId("client", "plan"), 0)
"""Stands for the message that would begin a planned change."""


@dataclass(frozen=True, slots=True)
class PlannedCopy:
    """Rows that one process would copy to another."""

    sender: ProcessId
    receiver: ProcessId
    scope: Scope
    rows: int
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.sender} -> {self.receiver}: {_amount(self.rows, self.n_bytes)}, {share(self.scope)}"


@dataclass(frozen=True, slots=True)
class PlannedDelete:
    """Rows that a process would give up when everything has been copied."""

    process: ProcessId
    scope: Scope
    rows: int
    n_bytes: int

    def __str__(self) -> str:
        return f"{self.process} gives up {_amount(self.rows, self.n_bytes)}, {share(self.scope)}"


@dataclass(frozen=True, slots=True)
class MovePlan:
    """A change of the keyspace as it would be ordered now.

    Attributes
    ----------
    transformation : Transformation or None
        None if what was asked for means none.
    layout : MessageId or None
        What it is planned for: it holds as long as this is the present layout.
    before, after : Ring or None
        The ring that the changes under way will give, and the one it would become.
    copies : tuple of PlannedCopy
    deletes : tuple of PlannedDelete
    risk : Risk
        What single further failures would do; `risk_text` says it in words.
    is_complete : bool
        Whether the search for the best plan looked at every minimal one; else it stopped early.
    warnings : tuple of str
    refusal : str
        Why the order would refuse it, and what to do; empty if it would not.
    """

    transformation: Transformation | None
    layout: MessageId | None
    before: Ring
    after: Ring | None = None
    copies: tuple[PlannedCopy, ...] = ()
    deletes: tuple[PlannedDelete, ...] = ()
    risk: Risk = ()
    is_complete: bool = True
    warnings: tuple[str, ...] = ()
    refusal: str = ""

    @property
    def rows(self) -> int:
        """How many rows would be copied, a row that goes to two processes counted twice."""
        return sum(copy.rows for copy in self.copies)

    @property
    def n_bytes(self) -> int:
        """What these rows take, about."""
        return sum(copy.n_bytes for copy in self.copies)

    @property
    def weights(self) -> tuple[Weight, ...]:
        """Rows and bytes of each copy."""
        return tuple((copy.rows, copy.n_bytes) for copy in self.copies)

    @property
    def instructions(self) -> tuple[Copy, ...]:
        """The instruction list, as it is ordered."""
        return tuple(Copy(copy.sender, copy.receiver, copy.scope) for copy in self.copies)

    @property
    def risk_text(self) -> str:
        """What a single further failure could do meanwhile, in words."""
        if not self.risk:
            return "nothing is at risk"
        f = len(self.risk)
        worst = next((f - place for place, groups in enumerate(self.risk) if groups), 0)
        if worst == f:
            return (
                f"one further failure, and those that receive from it, would take all {f} copies of a range "
                f"in {self.risk[0]} of the cases that there are; the change would be dropped in time "
                "where its receivers can still be told, so wait until failed processes are replaced"
            )
        left = f - worst
        return (
            f"whichever single process fails meanwhile, at least {left} of {f} "
            f"{'copy' if f == 1 else 'copies'} of every range {'stays' if left == 1 else 'stay'} whole"
        )

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        if self.transformation is None:
            yield f"refused: {self.refusal}"
            return
        yield describe(self.transformation)
        if self.refusal:
            yield f"  refused: {self.refusal}"
            return
        yield f"  copies {_amount(self.rows, self.n_bytes)}"
        yield from (f"    {copy}" for copy in self.copies)
        yield from (f"  {delete}" for delete in self.deletes)
        yield f"  risk: {self.risk_text}"
        if not self.is_complete:
            yield "  the search for the safest plan stopped early; this is the best of those it looked at"
        yield from (f"  warning: {warning}" for warning in self.warnings)


def describe(transformation: Transformation) -> str:
    """Say what a transformation does, in a line."""
    match transformation:
        case Expand(process, at):
            return f"expand: {process} takes ring position {at:#018x}"
        case Contract(process, force):
            return f"contract: {process} leaves the ring{', by force' if force else ''}"
        case Replace(process, by):
            return f"replace: {by} takes the place of {process}"
        case Rebalance(process, at):
            return f"rebalance: {process} moves to ring position {at:#018x}"


def share(scope: Scope) -> str:
    """Say how much of the ring some ranges are."""
    width = sum(high - low + 1 for low, high in scope)
    return f"{width / 2**64:.1%} of the ring"


def _amount(rows: int, n_bytes: int) -> str:
    return f"{rows:,} {'row' if rows == 1 else 'rows'}, {n_bytes / 2**20:.1f} MiB"


def plan_for(wish: Wish, config: Rubberband, weights: Weights, unknown: tuple[str, ...] = ()) -> MovePlan:
    """Give the plan of what is wished for, behind all changes that are under way.

    Parameters
    ----------
    wish : Wish
    config : Rubberband
    weights : Weights
        Of the ring, as its processes told.
    unknown : tuple of str
        What is to be warned of since it could not be learned.
    """
    ring = config.target
    failed = frozenset(ring.processes) - config.storages
    transformation: Transformation | None = None
    try:
        transformation = wish.resolve(config, weights)
        plan = make_plan(
            ring,
            transformation,
            failed=failed,
            silent=config.pending,
            load=_load(config, weights),
            # A range without rows counts a little, so that copies of nothing are spread too.
            weight=lambda piece: 1 + weights.rows_in(piece),
        )
        message = Reconfigure(transformation, plan.copies, config.layout)
        begun(message, NOT_ORDERED, config.ring, config.changes, config.membership)
    except (SpecError, Refusal) as error:
        return MovePlan(transformation, config.layout, ring, refusal=str(error))
    copies = tuple(_copy(copy, weights) for copy in plan.copies)
    deletes = tuple(
        PlannedDelete(process, scope, *_weight(scope, weights)) for process, scope in plan.deletes
    )
    warnings = (*unknown, *_warnings(config, plan.after, weights))
    return MovePlan(
        transformation,
        config.layout,
        ring,
        plan.after,
        copies,
        deletes,
        plan.risk,
        plan.is_complete,
        warnings,
    )


def plan_of(change: Change, config: Rubberband, weights: Weights) -> MovePlan:
    """Give the plan of a change that somebody has begun."""
    place = place_of(config.changes, change.id)
    before = target_of(config.ring, config.changes[:place])
    copies = tuple(_copy(copy, weights) for copy in change.copies)
    after = transformed(before, change.transformation)
    return MovePlan(change.transformation, config.layout, before, after, copies)


def heavy_ranges(config: Rubberband, weights: Weights) -> tuple[KeyRange, ...]:
    """Give the ranges that hold more than one part in 2n of the rows, n being the processes of the ring."""
    if not weights.n_rows:
        return ()
    return weights.heavier_than(weights.n_rows / (2 * len(config.target.processes)))


def _copy(copy: Copy, weights: Weights) -> PlannedCopy:
    return PlannedCopy(copy.sender, copy.receiver, copy.scope, *_weight(copy.scope, weights))


def _failed(config: Rubberband, ring: Ring) -> frozenset[ProcessId]:
    return frozenset(ring.processes) - able(config)


def _load(config: Rubberband, weights: Weights) -> dict[ProcessId, int]:
    """Give what processes have to send for the changes under way."""
    load: dict[ProcessId, int] = {}
    for change in config.changes:
        for index, copy in enumerate(change.copies):
            if index not in change.ready:
                load[copy.sender] = load.get(copy.sender, 0) + _weight(copy.scope, weights)[0]
    return load


def _weight(scope: Scope, weights: Weights) -> Weight:
    return sum(map(weights.rows_in, scope)), sum(map(weights.bytes_in, scope))


def _warnings(config: Rubberband, after: Ring, weights: Weights) -> Iterator[str]:
    n = len(after.processes)
    for low, high in heavy_ranges(config, weights):
        if low == high:
            rows = weights.rows_in(KeyRange(low, high))
            yield (
                f"ring position {low:#018x} alone holds {rows:,} rows, more than 1/{2 * n} of all: no change "
                "of the ring divides them; partition their table by a key of more values"
            )
    behind = len(config.changes)
    if behind:
        yield f"it is queued behind {behind} {'change' if behind == 1 else 'changes'}, and dropped if one is"
    if after.replication < after.promised:
        yield (
            f"{after.replication} of {after.promised} promised copies of every row are left; "
            "expand, and there are more again"
        )
    missing = _failed(config, after)
    if missing:
        names = ", ".join(map(str, sorted(missing)))
        yield f"fewer copies than promised, since {names} has failed and is not replaced"
