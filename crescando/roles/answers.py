"""The answers that a message of results carries, one by one: whose, where, for which scope."""

from __future__ import annotations

from collections.abc import Iterator

from crescando.client.base import Groups, Piece
from crescando.engine.base import Partials, Rows


def pieces_of(rows: Rows) -> Iterator[tuple[int, int, Piece]]:
    """Give each read's number, position and rows."""
    offsets = rows.offsets.tolist()
    for index, number in enumerate(rows.number.tolist()):
        scope = rows.scopes[int(rows.scope[index])]
        columns = tuple(column.slice(offsets[index], offsets[index + 1]) for column in rows.columns)
        yield number, int(rows.position[index]), Piece(scope, rows.names, columns)


def groups_of(partials: Partials) -> Iterator[tuple[int, int, Groups]]:
    """Give each read's number, position and groups."""
    for index, number in enumerate(partials.number.tolist()):
        scope = partials.scopes[int(partials.scope[index])]
        yield number, int(partials.position[index]), Groups(scope, *partials.of_read(index))
