"""The payloads of a delivery decoded together, as they are where each is decoded alone.

Rules of the file: what comes out is what decoding them one by one gives, or
None, and then they are. Operations of one shape become a run, column by column,
where there are more than a few and their parameters are what the shape asks
for; the others stand alone.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import msgspec
import numpy as np

from crescando.engine.base import I64
from crescando.engine.calls import SHAPES_MAX, Calls, read_calls, read_columns
from crescando.engine.operations import Operations
from crescando.engine.statement import Kind, Operation
from crescando.roles.bunches import Bunch
from crescando.roles.shapes import KnownShape
from crescando.routing.batch import Delivery
from crescando.types import MessageKind

RUN_MIN = 8
"""Fewer operations, of a delivery or of a shape, stand alone: columns cost more than they save."""

OPERATION_BYTES, RUN_BYTES = 1024, 256
"""What a decoded operation takes in memory beside its payload, alone and in a run; about."""

_PLAIN = frozenset({int, str, float, bool, bytes, type(None)})
"""What single parameters are, and the members of lists; whatever else is decoded one by one."""

_READ = int(MessageKind.READ)
_ROWS = Kind.INSERT, Kind.UPSERT
_RAWS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_CONSTANTS = msgspec.msgpack.Decoder(list[tuple[Any, ...]])

ShapeOf = Callable[[int], KnownShape | None]


def decode_together(part: Delivery, shape_of: ShapeOf) -> list[Bunch] | None:
    """Give the operations of a delivery, shape by shape.

    Parameters
    ----------
    part : Delivery
    shape_of : callable
        Gives a shape by its number in the delivery; None if it is malformed.

    Returns
    -------
    list or None
        None if any message has to be looked at alone: configuration messages,
        transactions, rows, and whatever is malformed. So have few messages.
    """
    n = len(part)
    calls = read_calls(part.payload, part.payload_offsets) if n >= RUN_MIN else None
    shapes = None if calls is None else _shapes(part, calls, shape_of)
    if calls is None or shapes is None:
        return None
    by_shape = np.argsort(calls.shape.astype(np.uint8), kind="stable")
    bounds = np.cumsum(np.bincount(calls.shape, minlength=SHAPES_MAX)).tolist()
    bunches, alone = [], []
    for code, known in shapes.items():
        places = by_shape[bounds[code - 1] if code else 0 : bounds[code]]
        run = _run(part, calls, places, known) if len(places) >= RUN_MIN else None
        if run is None:
            alone.append(places)
        else:
            bunches.append(run)
    if not alone:
        return bunches
    others = _alone(part, calls, np.sort(np.concatenate(alone)), shapes)
    return None if others is None else bunches + others


def _shapes(part: Delivery, calls: Calls, shape_of: ShapeOf) -> dict[int, KnownShape] | None:
    """Give the shapes of a delivery's messages; None unless these are what their headers say."""
    shapes: dict[int, KnownShape] = {}
    is_read, table = np.zeros(SHAPES_MAX, np.bool_), np.zeros(SHAPES_MAX, np.int64)
    for code in np.bincount(calls.shape).nonzero()[0].tolist():
        known = shape_of(code)
        if known is None or known.shape.kind in _ROWS:
            return None
        shapes[code] = known
        is_read[code], table[code] = known.shape.kind is Kind.READ, known.shape.table
    is_true = ((part.kind == _READ) == is_read[calls.shape]) & (part.table == table[calls.shape])
    return shapes if is_true.all() else None


def _run(part: Delivery, calls: Calls, places: I64, known: KnownShape) -> Bunch | None:
    """Give operations of one shape as a run; None if they cannot be one."""
    columns = None if known.layout is None else read_columns(calls, places, known.layout)
    if columns is None:
        return None
    run = Operations(
        part.position[places],
        part.number[places],
        part.sender,
        known.shape,
        part.scope[places],
        part.scopes,
        columns,
    )
    n_bytes = int((calls.stop[places] - calls.start[places]).sum()) // len(places)
    return Bunch(known.shape, run, n_bytes + RUN_BYTES, places)


def _alone(part: Delivery, calls: Calls, places: I64, shapes: dict[int, KnownShape]) -> list[Bunch] | None:
    """Give operations that stand alone; None if any has to be looked at alone."""
    encoded = calls.encoded(places)
    given = _decode(encoded)
    if given is None:
        return None
    found: dict[int, list[tuple[int, int, Operation]]] = {}
    position, number, scope = part.position[places], part.number[places], part.scope[places]
    codes, sizes = calls.shape[places].tolist(), map(len, encoded)
    named = zip(
        codes, places.tolist(), sizes, position.tolist(), number.tolist(), given, scope.tolist(), strict=True
    )
    for code, place, size, at, each, parameters, index in named:
        operation = Operation(at, part.sender, each, shapes[code].shape, parameters, part.scopes[index])
        found.setdefault(code, []).append((place, size, operation))
    bunches = []
    for some in found.values():
        own, lengths, operations = zip(*some, strict=True)
        n_bytes = sum(lengths) // len(lengths) + OPERATION_BYTES
        bunches.append(Bunch(operations[0].shape, operations, n_bytes, np.array(own)))
    return bunches


def _decode(encoded: list[bytes]) -> list[tuple[Any, ...]] | None:
    """Give the parameters of each operation; None if they are malformed, or something special."""
    data = b"\xdd" + len(encoded).to_bytes(4, "big") + b"".join(encoded)
    try:
        # That each ends where it must is looked at, lest one cut short take its end from the next
        # and processes that got other parts disagree.
        if list(map(len, _RAWS.decode(data))) != list(map(len, encoded)):
            return None
        rows: list[tuple[Any, ...]] = _CONSTANTS.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
    found = set(map(type, chain.from_iterable(rows)))
    if list in found:
        lists = [value for row in rows for value in row if type(value) is list]
        found = (found - {list}) | set(map(type, chain.from_iterable(lists)))
        rows = [tuple(tuple(v) if type(v) is list else v for v in row) for row in rows]
    return rows if found <= _PLAIN else None
