"""Transformations of the keyspace, and the data that must move for one (RB13 §6.4).

Rules of the file: a transformation is a value; `transformed` gives the ring
after it or says why there is none. Which data moves follows from the two rings
alone and is told in *pieces*: the ring cut at the identifiers of both, so that
every owner of a piece, before and after, owns all of it. Sets of pieces are bit
masks, bit i for piece i. Who sends what to whom is a choice (`planner`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from crescando.errors import SpecError
from crescando.routing.rubberband.ring import Ring
from crescando.types import RING_MAX, KeyRange, ProcessId, Scope


class Expand(msgspec.Struct, frozen=True, array_like=True, tag="expand"):
    """Give a standby process a position on the ring."""

    process: ProcessId
    at: int


class Contract(msgspec.Struct, frozen=True, array_like=True, tag="contract"):
    """Take a process off the ring.

    Attributes
    ----------
    process : ProcessId
    force : bool
        Whether fewer copies may be left of a range than are promised, or than live now; one is
        left in any case.
    """

    process: ProcessId
    force: bool = False


class Replace(msgspec.Struct, frozen=True, array_like=True, tag="replace"):
    """Give a process's position to a standby process."""

    process: ProcessId
    by: ProcessId


class Rebalance(msgspec.Struct, frozen=True, array_like=True, tag="rebalance"):
    """Give a process another position."""

    process: ProcessId
    at: int


Transformation = Expand | Contract | Replace | Rebalance


class Copy(msgspec.Struct, frozen=True, array_like=True):
    """One instruction: the sender copies its rows of some ranges to the receiver."""

    sender: ProcessId
    receiver: ProcessId
    scope: Scope


def transformed(ring: Ring, transformation: Transformation) -> Ring:
    """Give the ring after a transformation.

    Raises
    ------
    SpecError
        If there is none: a process that has a position already or has none, a
        position that is taken or off the ring, fewer processes than replicas.
    """
    placed = dict(zip(ring.processes, ring.ids, strict=True))
    match transformation:
        case Expand(process, at):
            _check_new(process, placed)
            placed[process] = _free(at, ring)
        case Contract(process, force):
            _check_there(process, placed)
            if len(placed) <= ring.promised and not force:
                raise SpecError(
                    f"{process} cannot leave the ring: {ring.promised} replicas need as many processes, "
                    "and there are no more; expand or replace instead, or force it"
                )
            if len(placed) == 1:
                raise SpecError(
                    f"{process} cannot leave the ring: nobody else holds anything; replace it instead"
                )
            del placed[process]
        case Replace(process, by):
            _check_there(process, placed)
            _check_new(by, placed)
            placed[by] = placed.pop(process)
        case Rebalance(process, at):
            _check_there(process, placed)
            placed[process] = _free(at, ring)
    ordered = sorted(placed.items(), key=lambda item: item[1])
    ids, processes = tuple(at for _, at in ordered), tuple(process for process, _ in ordered)
    return Ring(ids, processes, min(ring.promised, len(processes)), ring.promised)


def _check_there(process: ProcessId, placed: dict[ProcessId, int]) -> None:
    if process not in placed:
        raise SpecError(f"{process} has no ring position")


def _check_new(process: ProcessId, placed: dict[ProcessId, int]) -> None:
    if process.role != "storage":
        raise SpecError(f"{process} is no storage process")
    if process in placed:
        raise SpecError(f"{process} has a ring position already")


def _free(at: int, ring: Ring) -> int:
    if not 0 <= at <= RING_MAX:
        raise SpecError(f"ring position {at} does not lie in [0, {RING_MAX}]")
    if at in ring.ids:
        raise SpecError(f"ring position {at} is taken by {ring.processes[ring.ids.index(at)]}")
    return at


@dataclass(frozen=True, slots=True)
class Difference:
    """Who holds what before and after a transformation.

    Parameters
    ----------
    before, after : Ring

    Attributes
    ----------
    pieces : tuple of KeyRange
        The whole ring, ascending, cut where some partition of either ring begins.
    """

    before: Ring
    after: Ring
    pieces: tuple[KeyRange, ...] = field(init=False)

    def __post_init__(self) -> None:
        starts = sorted({0, *self.before.ids, *self.after.ids})
        stops = [start - 1 for start in starts[1:]] + [RING_MAX]
        object.__setattr__(self, "pieces", tuple(map(KeyRange, starts, stops)))

    def held(self, process: ProcessId) -> int:
        """Give the pieces that a process owns before."""
        return self.pieces_of(self.before.owned_arcs(process))

    def to_hold(self, process: ProcessId) -> int:
        """Give the pieces that a process owns after."""
        return self.pieces_of(self.after.owned_arcs(process))

    def gained(self, process: ProcessId) -> int:
        """Give the pieces that a process owns after and not before."""
        return self.to_hold(process) & ~self.held(process)

    def lost(self, process: ProcessId) -> int:
        """Give the pieces that a process owns before and not after."""
        return self.held(process) & ~self.to_hold(process)

    def scope(self, mask: int) -> Scope:
        """Give a set of pieces as maximal ranges."""
        merged: list[KeyRange] = []
        for index, piece in enumerate(self.pieces):
            if not mask >> index & 1:
                continue
            if merged and merged[-1].high + 1 == piece.low:
                merged[-1] = KeyRange(merged[-1].low, piece.high)
            else:
                merged.append(piece)
        return tuple(merged)

    def pieces_of(self, ranges: Sequence[KeyRange]) -> int:
        """Give the pieces that lie in some ranges wholly."""
        mask = 0
        for index, (low, high) in enumerate(self.pieces):
            if any(a <= low and high <= b for a, b in ranges):
                mask |= 1 << index
        return mask
