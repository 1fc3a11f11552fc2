"""From the pieces of a read, one per scope, to its answer.

Rules of the file: pieces come in any order and with dictionaries of their own;
merging depends on neither. Aggregates are merged from partial states by the
engine's own arithmetic.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from crescando.client.answer import Answer
from crescando.client.base import Piece, ReadAtOnce, ReadOutcome
from crescando.client.columns import unite
from crescando.client.having import Clauses
from crescando.client.order import ordered
from crescando.engine.aggregate import finish
from crescando.engine.grouping import merge_groups
from crescando.engine.statement import Column
from crescando.errors import InvariantError

T = TypeVar("T")

Finish = Callable[[ReadOutcome], T]
"""Turns the outcome of a read into its result."""


def rows_answer(
    n_outputs: int | None = None,
    order: Sequence[tuple[int, bool]] = (),
    offset: int = 0,
    limit: int | None = None,
) -> Finish[Answer]:
    """Give what turns the pieces of a read into its answer.

    Parameters
    ----------
    n_outputs : int or None
        How many of the pieces' first columns are shown; None for all.
    order : sequence of (int, bool)
        Sort keys, most significant first: a column of the pieces, and whether
        descending. With a limit or an offset, ties go by all columns.
    offset : int
    limit : int or None
    """

    is_plain = not order and not offset and limit is None

    def finished(outcome: ReadOutcome) -> Answer:
        piece: Piece | None = None
        if isinstance(outcome, ReadAtOnce):
            piece = outcome  # Most are, and it takes a quarter less not to ask for a tuple.
        elif len(outcome.pieces) == 1:
            piece = outcome.pieces[0]
        if piece is not None and is_plain and n_outputs in (None, len(piece.block.names)):
            return Answer(outcome.position, outcome.position, piece)
        names, columns = _merged(outcome)
        keys = [(columns[place], is_descending) for place, is_descending in order]
        if limit is not None or offset:
            # Which rows are shown must not depend on where they lie.
            keys.extend((column, False) for column in columns)
        shown = columns[:n_outputs]
        return Answer.of(
            outcome.position, names[:n_outputs], ordered(shown, keys, limit, offset), outcome.latest
        )

    return finished


def groups_answer(names: Sequence[str], clauses: Clauses) -> Finish[Answer]:
    """Give what turns the groups of a read into its answer.

    Parameters
    ----------
    names : sequence of str
        Of the grouping terms and the aggregates.
    clauses : Clauses
    """

    def finished(outcome: ReadOutcome) -> Answer:
        _, columns = _grouped(outcome)
        return Answer.of(outcome.position, tuple(names), clauses.apply(names, columns), outcome.latest)

    return finished


def count_answer(outcome: ReadOutcome) -> int:
    """Give the number that a lone count(*) found."""
    (column,) = _grouped(outcome)[1]
    return int(column.values[0])


def _grouped(outcome: ReadOutcome) -> tuple[int, list[Column]]:
    """Give the number of groups, and the columns of their keys and finished aggregates."""
    if not outcome.groups:
        raise InvariantError("a read of groups was answered without any piece")
    n_groups, keys, states = merge_groups(
        [(each.n_groups, each.keys, each.states) for each in outcome.groups]
    )
    return n_groups, [*keys, *(finish(each, n_groups) for each in states)]


def _merged(outcome: ReadOutcome) -> tuple[tuple[str, ...], list[Column]]:
    if not outcome.pieces:
        raise InvariantError("a read of rows was answered without any piece")
    names = outcome.pieces[0].names
    # An empty piece may have been given a dictionary all the same; it adds nothing.
    filled = [piece for piece in outcome.pieces if len(piece)] or outcome.pieces[:1]
    return names, [unite(same) for same in zip(*[piece.columns for piece in filled], strict=True)]
