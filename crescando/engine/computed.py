"""Join a computed term with the constants of operations, as if it were a column.

Rules of the file: the term is computed once per block for all operations that
share it, and its values are joined with their constants. A term may itself
have constants (``fare + tax * ?``); it is computed once for each combination of
them, as long as these are few. Rows on which the term is an ERROR are
candidates of every operation, with the whole predicate to be checked, since
another conjunct may still decide.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.frame import Frame, Source
from crescando.engine.index import PIECE_PAIRS, Index, IntervalIndex, Pairs, PointIndex
from crescando.engine.join import bounds_of, value_keys
from crescando.engine.keys import I64
from crescando.engine.plan import Computed
from crescando.engine.statement import Parameter, Term
from crescando.engine.terms import evaluate
from crescando.engine.validate import parameters_in

VARIANTS_MAX = 16
"""So many combinations of a term's own constants are computed; for more, operations go one by one."""


@dataclass(frozen=True, slots=True)
class _Variant:
    """The operations whose term has the same constants; any of them stands for all."""

    operations: I64
    index: Index


class ComputedJoin:
    """Some operations' constants, indexed by a computed term.

    Parameters
    ----------
    access : Computed
    constants : Constants
        Of the whole group.
    operations : ndarray of int64
        Which operations of the group to index.
    evaluator : Evaluator
    """

    def __init__(self, access: Computed, constants: Constants, operations: I64, evaluator: Evaluator) -> None:
        self._access = access
        self._constants = constants
        self._evaluator = evaluator
        low, high, owners = bounds_of(access.comparisons, access.term.type, None, constants)
        filled = low <= high
        self._variants = []
        for some in variants(access.term, constants, operations):
            wanted = np.zeros(constants.n, np.bool_)
            wanted[some] = True
            kept = (wanted[owners] & filled).nonzero()[0]
            parts = low[kept], high[kept], owners[kept]
            index: Index = PointIndex(parts[0], parts[2]) if access.is_point else IntervalIndex(*parts)
            self._variants.append(_Variant(some, index))

    def probe(self, source: Source, rows: I64 | None) -> Iterator[Pairs]:
        """Give candidate pairs of the rows of a source, in pieces; see `candidates`."""
        return ((at, operations) for at, operations, _ in self.candidates(source, rows))

    def candidates(self, source: Source, rows: I64 | None) -> Iterator[tuple[I64, I64, tuple[Term, ...]]]:
        """Give candidate pairs and the conjuncts that they have yet to pass, in pieces.

        Parameters
        ----------
        source : Source
        rows : ndarray of int64 or None
            The rows to look at; None for all.
        """
        for variant in self._variants:
            stand_in = int(variant.operations[0])
            frame = Frame(source, self._constants, rows, stand_in, self._evaluator)
            value = evaluate(self._access.term, frame).spread(frame.n_rows)
            if value.error is not None:
                erring = value.error.nonzero()[0]
                step = max(PIECE_PAIRS // max(len(erring), 1), 1)
                for start in range(0, len(variant.operations) if len(erring) else 0, step):
                    some = variant.operations[start : start + step]
                    at = np.tile(erring if rows is None else rows[erring], len(some))
                    yield at, np.repeat(some, len(erring)), self._access.whole
            known = value.known() if value.valid is not None or value.error is not None else None
            for found, operations in variant.index.probe(value_keys(value)):
                if known is not None:
                    kept = known[found].nonzero()[0]
                    found, operations = found[kept], operations[kept]
                yield found if rows is None else rows[found], operations, self._access.rest


def variants(term: Term, constants: Constants, operations: I64) -> list[I64]:
    """Give the operations by the constants that a term has in them, each list ascending."""
    parameters: tuple[Parameter, ...] = parameters_in((term,))
    if not parameters or len(operations) == 0:
        return [operations] if len(operations) else []
    number = np.zeros(len(operations), np.int64)
    for parameter in parameters:
        value = constants.scalar(parameter).take(operations)
        keys = value.data.astype(np.int64) if value.type.is_textual else value.keys()
        if value.valid is not None:
            keys = np.where(value.valid, keys, 0)
            number = 2 * number + value.valid
        distinct, place = np.unique(keys, return_inverse=True)
        _, number = np.unique(number * len(distinct) + place, return_inverse=True)
    order = np.argsort(number, kind="stable")
    starts = np.flatnonzero(np.diff(number[order], prepend=-1))
    return np.split(operations[order], starts[1:])


def is_shared(term: Term, constants: Constants, operations: I64) -> bool:
    """Say whether a term's own constants take few values."""
    return len(variants(term, constants, operations)) <= VARIANTS_MAX
