"""The payloads of a delivery decoded together, as they are where each is decoded alone.

Rules of the file: what comes out is what decoding them one by one gives, or
None, and then they are. Payloads that lie end to end are one array but for its
head; that each ends where it must is looked at, lest a payload cut short take
its end from the next and processes that got other parts disagree.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import chain
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np

from crescando.engine.statement import Call, Kind, Shape
from crescando.routing.batch import Delivery
from crescando.types import MessageKind

Decoded = tuple[Shape, tuple[Any, ...]]
"""The shape of an operation, and its parameters."""

_PLAIN = frozenset({int, str, float, bool, bytes, type(None)})
"""What single parameters are; lists and arrays are decoded one by one."""

_READ = int(MessageKind.READ)
_ROWS = Kind.INSERT, Kind.UPSERT
_RAWS = msgspec.msgpack.Decoder(list[msgspec.Raw])
_CALLS = msgspec.msgpack.Decoder(list[Call])
_CONSTANTS = msgspec.msgpack.Decoder(list[tuple[Any, ...]])

_code = attrgetter("shape")
_parameters = attrgetter("parameters")


def decode_together(part: Delivery, shape_of: Callable[[int], Shape | None]) -> list[Decoded] | None:
    """Give the shape and parameters of each message of a delivery.

    Parameters
    ----------
    part : Delivery
    shape_of : callable
        Gives a shape by its number in the delivery; None if it is malformed.

    Returns
    -------
    list or None
        None if any message has to be looked at alone: configuration messages,
        transactions, rows, lists, and whatever is malformed.
    """
    lengths = np.diff(part.payload_offsets).tolist()
    calls: list[Call] | None = _decode(_CALLS, part.payload, lengths)
    if calls is None or any(call.then for call in calls):
        return None
    codes = set(map(_code, calls))
    if len(codes) == 1:
        shape, values = _of_shape(part, slice(None), calls, shape_of)
        return None if shape is None or values is None else [(shape, each) for each in values]
    found: list[Decoded | None] = [None] * len(calls)
    for code in codes:
        places = [place for place, call in enumerate(calls) if call.shape == code]
        shape, values = _of_shape(part, places, [calls[place] for place in places], shape_of)
        if shape is None or values is None:
            return None
        for place, each in zip(places, values, strict=True):
            found[place] = shape, each
    return found  # type: ignore[return-value]


def _of_shape(
    part: Delivery,
    places: slice | list[int],
    calls: Sequence[Call],
    shape_of: Callable[[int], Shape | None],
) -> tuple[Shape | None, list[tuple[Any, ...]] | None]:
    """Give the shape that some messages have in common, and the parameters of each."""
    shape = shape_of(calls[0].shape)
    if shape is None or shape.kind in _ROWS:
        return None, None
    is_read = part.kind[places] == _READ
    is_routed = (is_read if shape.kind is Kind.READ else ~is_read) & (part.table[places] == shape.table)
    if not is_routed.all():
        return None, None
    encoded = list(map(_parameters, calls))
    values = _decode(_CONSTANTS, b"".join(encoded), list(map(len, encoded)))
    if values is None or not _PLAIN.issuperset(map(type, chain.from_iterable(values))):
        return None, None
    return shape, values


def _decode(decoder: msgspec.msgpack.Decoder[Any], data: bytes, lengths: list[int]) -> Any:
    """Decode values that lie end to end; None if they are malformed, or of other lengths."""
    data = b"\xdd" + len(lengths).to_bytes(4, "big") + data
    try:
        if list(map(len, _RAWS.decode(data))) != lengths:
            return None
        return decoder.decode(data)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None
