"""Match rows with the operations of one shape: index join, then the rest of the predicate.

Rules of the file: the answer is every pair (row, operation) whose predicate is
TRUE or an ERROR, found for all operations of the shape together. Which access
path serves the join is chosen by a sample of the data and changes nothing but
the time. Shapes without an access path are evaluated per operation on wide
blocks, or on the cross product where there are few rows.
"""

from __future__ import annotations

from collections.abc import Iterator
from copy import copy
from dataclasses import dataclass, replace

import numpy as np

from crescando.engine.computed import ComputedJoin, is_shared
from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame, Selection, Source
from crescando.engine.index import PIECE_PAIRS
from crescando.engine.join import Bounds, Join
from crescando.engine.keys import I64, Mask
from crescando.engine.plan import Access, Composite, Computed, Plan, n_nodes
from crescando.engine.sampling import Sample
from crescando.engine.statement import Term
from crescando.engine.table import Table
from crescando.engine.terms import conjunction, evaluate, matches
from crescando.engine.texts import literal_heads
from crescando.engine.values import Errors

BLOCK_ROWS = 1 << 16
"""Rows per block: a few columns of a block stay in the second-level cache (measured)."""

WIDE_BLOCK_ROWS = 1 << 18
"""Rows per block where nothing is computed for rows that nobody wants: there is little to keep in a cache,
and each shape costs some forty microseconds in each block (measured)."""

POINT_BLOCK_ROWS = 1 << 20
"""Rows per block where those that are wanted are few, too. Reads are called off between blocks."""

_CROSS_ROWS_MAX = 512
"""Up to so many rows, one evaluation over rows times operations beats one per operation."""

_SAMPLE_OPERATIONS = 64

_POINT_COST, _INTERVAL_COST, _PAIR_COST = 1.0, 3.0, 30.0
"""A look into the bitmap of points, or of intervals, per row; checking the rest, per candidate pair.
A look takes about a nanosecond (measured); the other two are guesses in that unit."""

_NODE_COST = 5.0
"""Computing one operator or column of a term, per row: a guess between a sum and a checked product."""

_WORTH_A_LOOK = 1.25
"""A path is left out if the best so far costs at most so many times what this one costs on rows that
nobody wants: less than a fifth can be saved."""

Path = Access | Composite | Computed


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

    def pick(self, pairs: I64 | Mask | slice) -> Matched:
        """Give some of the pairs."""
        errors = None if self.errors is None else self.errors[pairs]
        return Matched(self.rows[pairs], self.operations[pairs], errors)


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
        Gives the pools.
    evaluator : Evaluator
    sample : Sample, optional
        Of the table's rows, by which an access path is chosen.

    Attributes
    ----------
    path : Access, Composite, Computed or None
        How the operations are found.
    constants : Constants
    bounds : Bounds
    """

    def __init__(
        self,
        plan: Plan,
        constants: Constants,
        operations: I64,
        table: Table,
        evaluator: Evaluator,
        sample: Sample | None = None,
    ) -> None:
        self._plan = plan
        self.constants = self._constants = constants
        self._operations = operations
        self._evaluator = evaluator
        self._table = table
        self._sample = Sample(table) if sample is None else sample
        self.bounds = Bounds(table, constants)
        self.path = self._choose()
        self._settled = _settled(self.path, constants)
        self._made: Join | ComputedJoin | None = None

    def of_some(self, operations: I64) -> Matcher:
        """Give a matcher of some of the operations, by the same path."""
        some = copy(self)
        some._operations = operations
        some._made = None
        return some

    @property
    def n_looks(self) -> int:
        """How many times each row is looked at."""
        plan = self._plan
        is_once = self.path is not None or (plan.conjuncts and not plan.tests_constants)
        return 1 if is_once else len(self._operations)

    @property
    def block_rows(self) -> int:
        """How many rows to look at in one go."""
        if not isinstance(self.path, Access | Composite):
            return BLOCK_ROWS
        are_points = all(part.is_point for part in self.path.parts)
        return POINT_BLOCK_ROWS if are_points else WIDE_BLOCK_ROWS

    def get_ready(self) -> None:
        """Make the operations' index, which else the first rows do."""
        self._join()

    def match(
        self, source: Source, rows: I64 | None, skipped: Mask | None = None, live: Mask | None = None
    ) -> Iterator[Matched]:
        """Give the matching pairs, in pieces.

        Parameters
        ----------
        source : Source
        rows : ndarray of int64 or None
            The rows to look at; None for all.
        skipped : ndarray of bool, shape (n_operations,), or None
            Operations of the group to leave out.
        live : ndarray of bool, shape (source.n_rows,), or None
            Rows to look at, if `rows` is None: for tombstones, of which there are few.
        """
        join = self._join()
        if join is None and live is not None and rows is None:
            rows = live.nonzero()[0]
        if source.n_rows == 0 or (rows is not None and len(rows) == 0):
            return
        if join is None:
            some = source if rows is None else Selection(source, rows)
            for matched in self._match_all(some, skipped):
                yield matched if rows is None else replace(matched, rows=rows[matched.rows])
            return
        for at, operations, rest in self._candidates(join, source, rows):
            yield from self._check(source, at, operations, rest, skipped, live)

    def check(
        self, source: Source, rows: I64, operations: I64, skipped: Mask | None, live: Mask | None
    ) -> Iterator[Matched]:
        """Give the matching ones of pairs for which the comparisons of `path` hold."""
        for at, some, rest in self._with_rest(rows, operations):
            yield from self._check(source, at, some, rest, skipped, live)

    def _check(
        self,
        source: Source,
        rows: I64,
        operations: I64,
        rest: tuple[Term, ...],
        skipped: Mask | None,
        live: Mask | None,
    ) -> Iterator[Matched]:
        kept = None if skipped is None else ~skipped[operations]
        if live is not None:
            kept = live[rows] if kept is None else kept & live[rows]
        if kept is not None:
            rows, operations = rows[kept], operations[kept]
        yield from self._filter(source, rows, operations, rest)

    def _join(self) -> Join | ComputedJoin | None:
        """Give the operations' index; made when it is first needed."""
        if self._made is None and self.path is not None:
            self._made = self._make(self.path, self._operations)
        return self._made

    def _candidates(
        self, join: Join | ComputedJoin, source: Source, rows: I64 | None
    ) -> Iterator[tuple[I64, I64, tuple[Term, ...]]]:
        if isinstance(join, ComputedJoin):
            yield from join.candidates(source, rows)
            return
        for at, operations in join.probe(source, rows):
            yield from self._with_rest(at, operations)

    def _with_rest(self, rows: I64, operations: I64) -> Iterator[tuple[I64, I64, tuple[Term, ...]]]:
        """Give pairs for which the comparisons of `path` hold, with the conjuncts they have yet to pass."""
        assert isinstance(self.path, Access | Composite)
        if self._settled is None:
            yield rows, operations, self.path.rest
            return
        assert isinstance(self.path, Access)
        settled = self._settled[operations]
        for kept, rest in ((settled, self.path.others), (~settled, self.path.rest)):
            if kept.all():
                yield rows, operations, rest
            elif kept.any():
                yield rows[kept], operations[kept], rest

    def _make(self, path: Path, operations: I64) -> Join | ComputedJoin:
        if isinstance(path, Computed):
            return ComputedJoin(path, self._constants, operations, self._evaluator)
        return Join(path, self.bounds, operations)

    def costs(self) -> list[tuple[Path, float]]:
        """Give every access path, and its estimated time per row in that of one look into a bitmap."""
        return [(path, self._cost(path)) for path in self._paths()]

    def _paths(self) -> list[Path]:
        plan = self._plan
        paths: list[Path] = [*plan.accesses, *plan.composites]
        paths.extend(
            path for path in plan.computed if is_shared(path.term, self._constants, self._operations)
        )
        return paths

    def _choose(self) -> Path | None:
        """Choose the access path that costs least on a sample of the rows, or hardly more."""
        paths = self._paths()
        if len(paths) <= 1:
            return paths[0] if paths else None
        best, least = None, np.inf
        for path in paths:
            # With many shapes in a batch the estimates are much of its time.
            if least > _WORTH_A_LOOK * _probes(path):
                cost = self._cost(path)
                if cost < least:
                    best, least = path, cost
        return best

    def _cost(self, path: Path) -> float:
        """Estimate the time per row that a path takes, in that of one look into a bitmap."""
        n_operations = self._constants.n
        step = max(n_operations // _SAMPLE_OPERATIONS, 1)
        n_rows = self._sample.n_rows
        if n_rows == 0:
            n_pairs = 0
        elif isinstance(path, Access) and (path.is_point or path.column not in self._table.pools):
            # Without an index; of ranges of texts that would take the ranks of all of them.
            low, high, owners = self.bounds.of(path)
            if step > 1:
                chosen = owners % step == 0
                low, high = low[chosen], high[chosen]
            n_pairs = self._sample.n_within(path, low, high)
        else:
            join = self._make(path, np.arange(0, n_operations, step))
            n_pairs = sum(len(found) for found, _ in join.probe(self._sample, None))
        share = n_pairs / max(n_rows * -(-n_operations // step), 1)
        return _probes(path) + _PAIR_COST * share * n_operations

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


def _settled(path: Path | None, constants: Constants) -> Mask | None:
    """Give the operations whose LIKE is TRUE of all candidates, since it demands a beginning only."""
    if not isinstance(path, Access) or path.comparisons[0][0] != "like":
        return None
    patterns = constants.scalar(path.comparisons[0][1])
    _, _, is_settled = literal_heads(patterns.strings())
    settled: Mask = is_settled[patterns.data]
    return settled


def _probes(path: Path) -> float:
    """Give the time per row that a path takes where it finds nothing."""
    if isinstance(path, Computed):
        return _NODE_COST * n_nodes(path.term) + (_POINT_COST if path.is_point else _INTERVAL_COST)
    return sum(_POINT_COST if part.is_point else _INTERVAL_COST for part in path.parts)
