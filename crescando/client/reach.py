"""The ring ranges of many operations of one shape, as cheaply as the shape allows.

Rules of the file: never narrower than `crescando.engine.ranges.key_ranges`
gives, which is the definition; most operations of a batch either do not name
the partition key at all (the whole ring, decided once) or compare it with one
constant each (all positions computed together).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crescando.engine.partition import positions_of
from crescando.engine.ranges import key_constant, key_ranges, number_of
from crescando.engine.statement import Apply, ColumnRef, Parameter, Term
from crescando.schema import TableSchema
from crescando.types import FULL_RING, KeyRange

Ranges = tuple[KeyRange, ...]

_NOTHING: Ranges = (KeyRange(0, 0),)
"""Where a read goes that no row can satisfy: somebody has to answer it."""


class Reach:
    """Says which ring ranges the operations of one shape can touch.

    Attributes
    ----------
    everywhere : tuple of KeyRange
        The whole ring, if that is what all of them can touch; empty if it depends.
    """

    def __init__(self, schema: TableSchema, where: Term | None) -> None:
        self._schema = schema
        self._where = where
        self._key = schema.column(schema.partition_key)
        is_everywhere = where is None or not _names_column(where, self._key.id)
        self.everywhere: Ranges = (FULL_RING,) if is_everywhere else ()
        self._point = None if where is None else _point_parameter(where, self._key.id)

    def ranges(self, parameters: Sequence[tuple[Any, ...]]) -> list[Ranges]:
        """Give the ranges of each operation.

        Parameters
        ----------
        parameters : sequence of tuple
            Physical constants of each operation.
        """
        if self.everywhere:
            return [self.everywhere] * len(parameters)
        if self._point is not None and len(parameters) > 1:
            kind, place = self._point.type, self._point.index
            return self._points([number_of(kind, each[place]) for each in parameters])
        return [key_ranges(self._schema, self._where, each) for each in parameters]

    def _points(self, constants: Sequence[Any]) -> list[Ranges]:
        folded = [key_constant(self._key.type, constant) for constant in constants]
        distinct = {value: index for index, value in enumerate(dict.fromkeys(folded)) if value is not None}
        if not distinct:
            return [_NOTHING] * len(constants)
        values = list(distinct)
        positions = positions_of(self._schema, values).tolist()
        ranges = {value: (KeyRange(at, at),) for value, at in zip(values, positions, strict=True)}
        return [_NOTHING if value is None else ranges[value] for value in folded]


def _names_column(term: Term, column: int) -> bool:
    pending = [term]
    while pending:
        each = pending.pop()
        if isinstance(each, ColumnRef) and each.column == column:
            return True
        if isinstance(each, Apply):
            pending.extend(each.args)
    return False


def _point_parameter(where: Term, column: int) -> Parameter | None:
    """Give the parameter that a conjunct demands the key to equal, if there is one."""
    conjuncts = where.args if isinstance(where, Apply) and where.op == "and" else (where,)
    for each in conjuncts:
        if isinstance(each, Apply) and each.op == "=":
            left, right = each.args
            if isinstance(left, ColumnRef) and left.column == column and isinstance(right, Parameter):
                return right
    return None
