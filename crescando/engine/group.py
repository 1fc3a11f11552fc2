"""The operations of one batch, grouped by shape, with what each may see.

Rules of the file: a group's operations are in order, and are named inside it by
their *local* number; ``order`` gives their place in the whole batch of the
table. Which arcs a read covers is worked out once per distinct scope.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from crescando.engine.arcs import NONE, PART, WHOLE, cover_arc
from crescando.engine.constants import Constants
from crescando.engine.keys import I64, Mask
from crescando.engine.operations import Members
from crescando.engine.plan import Plan
from crescando.engine.segment import Block
from crescando.types import KeyRange, Scope

U64 = NDArray[np.uint64]


@dataclass(slots=True)
class Coverage:
    """Which rows the reads of a group may see.

    Attributes
    ----------
    scope : ndarray of int64, shape (n_operations,)
        Index into `scopes`.
    scopes : tuple of Scope
    arcs : ndarray of uint8, shape (n_scopes, n_arcs)
        Whether a scope covers an arc not at all (0), wholly (1) or in part (2).
    """

    scope: I64
    scopes: tuple[Scope, ...]
    arcs: NDArray[np.uint8]
    _is_seen: list[bool] = field(init=False)
    _is_cut: list[bool] = field(init=False)
    _blind: dict[int, Mask] = field(init=False, default_factory=dict)

    def __post_init__(self) -> None:
        # Asked for every block.
        self._is_seen = (self.arcs != NONE).all(axis=0).tolist()
        self._is_cut = (self.arcs == PART).any(axis=0).tolist()

    def skipped(self, arc: int) -> Mask | None:
        """Give which operations see nothing of an arc, or None if all see some."""
        if self._is_seen[arc]:
            return None
        blind = self._blind.get(arc)
        if blind is None:
            blind = self._blind[arc] = self.arcs[self.scope, arc] == NONE
        return blind

    def inside(self, operations: I64, arc: int, block: Block, rows: I64) -> Mask | None:
        """Give which pairs of an operation and a row of an arc are in scope, or None if all are.

        Parameters
        ----------
        operations : ndarray of int64, shape (n,)
            None of those that are `skipped`.
        arc : int
        block : Block
        rows : ndarray of int64, shape (n,)
            Of the block.
        """
        if not self._is_cut[arc]:
            return None
        return self.visible(operations, arc, block.positions(rows))

    def visible(self, operations: I64, arcs: I64 | int, positions: U64) -> Mask | None:
        """Give which pairs of operation and row are in scope, or None if all are."""
        if (self.arcs[:, arcs] == WHOLE).all():
            return None
        cover = self.arcs[self.scope[operations], arcs]
        if (cover == WHOLE).all():
            return None
        seen: Mask = cover == WHOLE
        cut = (cover == PART).nonzero()[0]
        numbers = self.scope[operations[cut]]
        for number in np.unique(numbers).tolist():
            pairs = cut[numbers == number]
            at = positions[pairs]
            for low, high in self.scopes[number]:
                seen[pairs] |= (at >= np.uint64(low)) & (at <= np.uint64(high))
        return seen


@dataclass(slots=True)
class Group:
    """Operations of a batch: those of one shape, or all reads that share a reader, of several shapes.

    Attributes
    ----------
    plan : Plan
        Of several shapes that of the first: all give the same plain columns.
    members : Members
    constants : Constants
        None of several shapes: each is matched with its own.
    coverage : Coverage or None
        Of reads; writes act on every row of the engine.
    """

    plan: Plan
    members: Members
    constants: Constants
    coverage: Coverage | None = None
    every: I64 = field(init=False)

    def __post_init__(self) -> None:
        self.every = np.arange(len(self.members))

    @property
    def order(self) -> I64:
        """Places in the batch, ascending; shape (n,)."""
        return self.members.order


def cover(members: Members, arcs: Sequence[KeyRange]) -> Coverage:
    """Work out which arcs each operation's scope covers."""
    table = np.zeros((len(members.scopes), len(arcs)), np.uint8)
    for row, key_ranges in enumerate(members.scopes):
        for column, arc in enumerate(arcs):
            table[row, column] = cover_arc(key_ranges, arc)
    return Coverage(members.scope, tuple(members.scopes), table)
