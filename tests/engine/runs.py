"""Batches as a storage process hands them over: runs of columns, interleaved, and what stands alone."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from random import Random

import numpy as np

from crescando.engine.calls import read_calls, read_columns
from crescando.engine.loads import LoadStep
from crescando.engine.operations import Entry, Interleaved, Operations, Part
from crescando.engine.statement import Kind, Operation, encode_call, encode_parameters
from crescando.roles.shapes import Shapes
from crescando.routing.batch import offsets_of
from crescando.types import FULL_RING, KeyRange


def as_entries(operations: Sequence[Operation | LoadStep], random: Random) -> list[Entry]:
    """Give the same batch with random parts of it as runs.

    Parameters
    ----------
    operations : sequence of Operation
        Those of one scope.
    """
    entries: list[Entry] = []
    shapes = Shapes(1 << 12, 1 << 24)

    def key(operation: Operation | LoadStep) -> tuple[str, bool, int]:
        if isinstance(operation, LoadStep):
            return "", False, operation.position
        is_alone = operation.step < 0 and operation.shape.kind not in (Kind.INSERT, Kind.UPSERT)
        return repr(operation.sender), is_alone, operation.position // 20

    for (_, is_alone, _), some in groupby(operations, key):
        together = list(some)
        if not is_alone or random.random() < 0.2:
            entries.extend(together)
            continue
        operations = [each for each in together if isinstance(each, Operation)]
        entries.append(_interleaved(operations, shapes, random))
    return entries


def _interleaved(some: Sequence[Operation], shapes: Shapes, random: Random) -> Entry:
    by_shape: dict[bytes, list[int]] = {}
    for place, operation in enumerate(some):
        by_shape.setdefault(operation.shape.encode(), []).append(place)
    parts, places = [], []
    for body, own in by_shape.items():
        parts.append(_part([some[place] for place in own], body, shapes))
        places.append(2 * np.array(own) + random.choice((0, 1)))
    if len(parts) == 1 and isinstance(parts[0], Operations):
        return parts[0]
    return Interleaved(tuple(parts), tuple(places))


def _part(own: Sequence[Operation], body: bytes, shapes: Shapes) -> Part:
    known, first = shapes.of(body), own[0]
    assert known is not None
    payloads = [encode_call(3, encode_parameters(each.shape, each.parameters)) for each in own]
    calls = read_calls(b"".join(payloads), offsets_of(list(map(len, payloads))))
    if known.layout is None or calls is None:
        return tuple(own)
    columns = read_columns(calls, np.arange(len(own)), known.layout)
    if columns is None:
        return tuple(own)
    at = np.array([each.position for each in own])
    number = np.array([each.number for each in own])
    scopes = (KeyRange(1, 1),), first.scope, (FULL_RING,)
    return Operations(at, number, first.sender, first.shape, np.ones(len(own), np.int64), scopes, columns)
