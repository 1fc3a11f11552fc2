"""Match rows with the operations of one shape: index join, then the rest of the predicate.

Rules of the file: the answer is every pair (row, operation) whose predicate is
TRUE or an ERROR, found for all operations of the shape together. Which access
path serves the join is chosen by a sample of the data and changes nothing but
the time. Shapes without an access path are evaluated per operation on wide
blocks, or on the cross product where there are few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np

from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame, Selection, Source
from crescando.engine.index import PIECE_PAIRS, Index, access_keys, bounds, build_index
from crescando.engine.keys import I64, Mask
from crescando.engine.plan import Access, Plan
from crescando.engine.statement import Term
from crescando.engine.table import Table
from crescando.engine.terms import conjunction, evaluate, matches
from crescando.engine.values import Errors

_CROSS_ROWS_MAX = 512
"""Up to so many rows, one evaluation over rows times operations beats one per operation."""

_SAMPLE_ROWS, _SAMPLE_OPERATIONS = 1_024, 64


@dataclass(frozen=True, slots=True)
class Matched:
    """Some pairs of rows and operations.

    Attributes
    ----------
    rows, operations : ndarray of int64, shape (n,)
        Row of the source; operation as an index into the group.
    errors : ndarray of uint8 or None
        The cause where the predicate is an ERROR, 0 where it is TRUE.
    """

    rows: I64
    operations: I64
    errors: Errors | None


class Matcher:
    """The operations of one shape, made ready to be matched with any rows of one table.

    Parameters
    ----------
    plan : Plan
    constants : Constants
        Of all operations of the group.
    operations : ndarray of int64
        Which of them to match, ascending.
    table : Table
        Gives the pools, and the sample by which an access path is chosen.
    evaluator : Evaluator
    """

    def __init__(
        self, plan: Plan, constants: Constants, operations: I64, table: Table, evaluator: Evaluator
    ) -> None:
        self._plan = plan
        self._constants = constants
        self._operations = operations
        self._evaluator = evaluator
        self._table = table
        self._access = _choose(plan, constants, table)
        self._index: Index | None = None
        self._n_texts = 0
        if self._access is not None:
            self._build(self._access)

    def _build(self, access: Access) -> Index:
        """Index the constants, as codes or ranks of the column's pool if it holds strings."""
        pool = self._table.pools.get(access.column)
        self._n_texts = 0 if pool is None else len(pool)
        kind = self._table.types[access.column]
        self._index = build_index(access, kind, pool, self._constants, self._operations)
        return self._index

    def _present_index(self, access: Access) -> Index:
        """Give the index; a text that an update has just made moves ranks and may be a constant."""
        pool = self._table.pools.get(access.column)
        if self._index is None or (pool is not None and len(pool) != self._n_texts):
            return self._build(access)
        return self._index

    def match(self, source: Source, rows: I64 | None, skipped: Mask | None = None) -> Iterator[Matched]:
        """Give the matching pairs, in pieces.

        Parameters
        ----------
        source : Source
        rows : ndarray of int64 or None
            The rows to look at; None for all.
        skipped : ndarray of bool, shape (n_operations,), or None
            Operations of the group to leave out.
        """
        if source.n_rows == 0 or (rows is not None and len(rows) == 0):
            return
        if self._access is None:
            some = source if rows is None else Selection(source, rows)
            for matched in self._match_all(some, skipped):
                yield matched if rows is None else replace(matched, rows=rows[matched.rows])
            return
        column = source.column(self._access.column)
        candidates = rows
        if column.valid is not None:
            valid = column.valid if rows is None else column.valid[rows]
            if not valid.all():
                candidates = valid.nonzero()[0] if rows is None else rows[valid]
        keys = access_keys(self._access, column if candidates is None else column.take(candidates))
        for found, operations in self._present_index(self._access).probe(keys):
            at = found if candidates is None else candidates[found]
            if skipped is not None:
                kept = ~skipped[operations]
                at, operations = at[kept], operations[kept]
            yield from self._filter(source, at, operations, self._access.rest)

    def _filter(
        self, source: Source, rows: I64, operations: I64, terms: tuple[Term, ...]
    ) -> Iterator[Matched]:
        """Evaluate conjuncts on pairs and keep those where none is FALSE or UNKNOWN."""
        if len(rows) == 0:
            return
        if not terms:
            yield Matched(rows, operations, None)
            return
        frame = Frame(source, self._constants, rows, operations, self._evaluator)
        truth = evaluate(terms[0], frame) if len(terms) == 1 else conjunction(terms, frame)
        mask, errors = matches(truth, len(rows))
        if errors is not None:
            mask = mask | (errors != 0)
        kept = mask.nonzero()[0]
        if len(kept):
            yield Matched(rows[kept], operations[kept], None if errors is None else errors[kept])

    def _match_all(self, source: Source, skipped: Mask | None) -> Iterator[Matched]:
        """Match every row of a source without an index."""
        operations = self._operations
        if skipped is not None:
            operations = operations[~skipped[operations]]
        if len(operations) == 0:
            return
        if self._plan.conjuncts and not self._plan.tests_constants:
            yield from self._shared(source, operations)
        elif self._plan.conjuncts and source.n_rows > _CROSS_ROWS_MAX:
            for operation in operations.tolist():
                yield from self._wide(source, operation)
        else:
            every = np.arange(source.n_rows)
            step = max(PIECE_PAIRS // source.n_rows, 1)
            for start in range(0, len(operations), step):
                some = operations[start : start + step]
                rows, items = np.tile(every, len(some)), np.repeat(some, source.n_rows)
                yield from self._filter(source, rows, items, self._plan.conjuncts)

    def _wide(self, source: Source, operation: int) -> Iterator[Matched]:
        """Evaluate the whole predicate of one operation on every row."""
        frame = Frame(source, self._constants, None, operation, self._evaluator)
        mask, errors = matches(conjunction(self._plan.conjuncts, frame), frame.n_rows)
        if errors is not None:
            mask = mask | (errors != 0)
        kept = mask.nonzero()[0]
        if len(kept):
            found = np.full(len(kept), operation)
            yield Matched(kept, found, None if errors is None else errors[kept])

    def _shared(self, source: Source, operations: I64) -> Iterator[Matched]:
        """Evaluate a predicate without constants once for all operations."""
        for found in self._wide(source, int(operations[0])):
            step = max(PIECE_PAIRS // len(found.rows), 1)
            for start in range(0, len(operations), step):
                some = operations[start : start + step]
                rows, items = np.tile(found.rows, len(some)), np.repeat(some, len(found.rows))
                yield Matched(rows, items, None if found.errors is None else np.tile(found.errors, len(some)))


def _choose(plan: Plan, constants: Constants, table: Table) -> Access | None:
    """Choose the access path that leaves the fewest candidates of a sample."""
    if len(plan.accesses) <= 1:
        return plan.accesses[0] if plan.accesses else None
    shares = [_share(access, constants, table) for access in plan.accesses]
    return plan.accesses[shares.index(min(shares))]


def _share(access: Access, constants: Constants, table: Table) -> float:
    """Estimate the share of rows that are candidates of one operation."""
    kind, pool = table.types[access.column], table.pools.get(access.column)
    low, high, owners = bounds(access, kind, pool, constants)
    n_operations = max(len(constants.rows), 1)
    step = max(n_operations // _SAMPLE_OPERATIONS, 1)
    chosen = owners % step == 0
    sampled = table.sample(_SAMPLE_ROWS)
    keys = [access_keys(access, block.column(access.column).take(rows)) for block, rows in sampled]
    if not keys:
        return 0.0
    sample = np.sort(np.concatenate(keys))
    inside = np.searchsorted(sample, high[chosen], "right") - np.searchsorted(sample, low[chosen], "left")
    n_chosen = max(len(np.unique(owners[chosen])), 1)
    return float(np.maximum(inside, 0).sum()) / (n_chosen * len(sample))
