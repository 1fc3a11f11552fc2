"""Route a whole run of data messages with a few NumPy calls.

Rules of the file: nothing here decides where a message goes; messages are
grouped so that `Cover` decides once per group, and equal to the scalar form. No
Python work is done per message. Nearly all messages touch a single arc and get
their group by arithmetic; the others are grouped by the bit rows of the arcs
they touch.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from crescando.routing.base import Refusal, Route, Routes
from crescando.routing.batch import Submission
from crescando.routing.rubberband.catalog import Catalog
from crescando.routing.rubberband.cover import Cover
from crescando.types import MessageKind

I64 = NDArray[np.int64]
Bool = NDArray[np.bool_]

_READ = int(MessageKind.READ)
_DATA = bytes((MessageKind.READ, MessageKind.WRITE))

ROWS_MAX = 4096
"""Messages whose bit rows are made at once, to bound memory to this times the arcs."""

MALFORMED = "a data message names at least one ring range, none of them empty"
"""Why a message without a proper range is refused."""


def route_run(cover: Cover, catalog: Catalog, batch: Submission, start: int, stop: int) -> Routes:
    """Route data messages ``start:stop`` of a member that may send them.

    Returns
    -------
    Routes
        Every one of its routes is used by some message.

    Raises
    ------
    ValueError
        If one of them is no data message.
    """
    unknown = _unknown_tables(catalog, batch.table[start:stop])
    if not unknown:
        known = cover.recall(batch, start, stop)
        if known is not None:
            return known
    kinds = batch.kind[start:stop]
    if kinds.tobytes().strip(_DATA):
        raise ValueError("only data messages are routed in runs")
    is_point, arc = _points(cover, batch, start, stop)
    # A point message's code is its arc and either 0, to write, or 1 + the choice among the owners.
    n_codes = cover.ring.replication + 1
    code = arc * n_codes
    if _READ in kinds.tobytes():
        offset = batch.replica_offset[start:stop].astype(np.int64)
        code += (kinds == _READ) * (1 + offset % cover.n_point_choices[arc])
    first_extra = len(cover.ring.arcs) * n_codes
    extra: list[Route] = []
    if not is_point.all():
        others = np.flatnonzero(~is_point)
        for low in range(0, len(others), ROWS_MAX):
            chosen = others[low : low + ROWS_MAX]
            group, routes = _spans(cover, batch, start + chosen)
            code[chosen] = first_extra + len(extra) + group
            extra.extend(routes)
    for table_id in unknown:
        code[batch.table[start:stop] == table_id] = first_extra + len(extra)
        extra.append(catalog.missing(table_id))
    used = np.flatnonzero(np.bincount(code, minlength=first_extra + len(extra)))
    dense = np.empty(first_extra + len(extra), np.int64)
    dense[used] = np.arange(len(used))
    found = Routes(
        dense[code],
        tuple(
            extra[c - first_extra] if c >= first_extra else _point_route(cover, c // n_codes, c % n_codes)
            for c in used.tolist()
        ),
    )
    if not unknown:
        cover.remember(batch, start, stop, found)
    return found


def _point_route(cover: Cover, arc: int, choice: int) -> Route:
    return cover.read(1 << arc, choice - 1) if choice else cover.write(1 << arc)


def _points(cover: Cover, batch: Submission, start: int, stop: int) -> tuple[Bool, I64]:
    """Mark the messages with one range in a single arc, and give that arc (0 for others)."""
    offsets = batch.range_offsets[start : stop + 1]
    here = slice(int(offsets[0]), int(offsets[-1]))
    low, high = batch.range_low[here], batch.range_high[here]
    first, last = cover.ring.arcs_touched(low, high)
    is_inside = (first == last) & (low <= high)
    has_one = offsets[1:] - offsets[:-1] == 1
    if has_one.all():
        return is_inside, np.where(is_inside, first, 0)
    single = np.flatnonzero(has_one)
    its_range = offsets[single] - offsets[0]
    has_one[single] = is_inside[its_range]
    arc = np.zeros(stop - start, np.int64)
    arc[single] = np.where(is_inside[its_range], first[its_range], 0)
    return has_one, arc


def _spans(cover: Cover, batch: Submission, index: I64) -> tuple[I64, list[Route]]:
    """Route messages with any ranges: group per message, and the groups' routes."""
    rows, is_malformed = _rows(cover, batch, index)
    n_bytes = rows.shape[1]
    keys = rows.view(np.dtype((np.void, n_bytes))).reshape(-1)
    distinct, which = np.unique(keys, return_inverse=True)
    masks = [int.from_bytes(key.tobytes(), "little") for key in distinct]
    is_read = batch.kind[index] == MessageKind.READ
    needed = np.zeros(len(masks), np.bool_)
    needed[which[is_read & ~is_malformed]] = True
    n_choices = np.array(
        [cover.n_choices(mask) if need else 1 for mask, need in zip(masks, needed, strict=True)], np.int64
    )
    # Choice -1 stands for a write, -2 for a message that is refused.
    choice = np.where(is_read, batch.replica_offset[index] % n_choices[which], -1)
    choice[is_malformed] = -2
    width = int(n_choices.max()) + 2
    codes, group = np.unique(which * width + choice + 2, return_inverse=True)
    routes = [_span_route(cover, masks[code // width], code % width - 2) for code in codes.tolist()]
    return group, routes


def _span_route(cover: Cover, mask: int, choice: int) -> Route:
    if choice == -2:
        return Refusal(MALFORMED)
    return cover.write(mask) if choice == -1 else cover.read(mask, choice)


def _rows(cover: Cover, batch: Submission, index: I64) -> tuple[NDArray[np.uint8], Bool]:
    """Give the arcs each message touches as a row of bits, and which messages are malformed."""
    n_arcs = len(cover.ring.arcs)
    begin, end = batch.range_offsets[index], batch.range_offsets[index + 1]
    count = end - begin
    message = np.repeat(np.arange(len(index)), count)
    # The ranges of all messages in a row: each one's own numbers, shifted to where they begin.
    at = np.arange(len(message)) + np.repeat(begin - (np.cumsum(count) - count), count)
    low, high = batch.range_low[at], batch.range_high[at]
    is_malformed = count == 0
    is_malformed[message[low > high]] = True
    first, last = cover.ring.arcs_touched(low, high)
    edges = np.zeros((len(index), n_arcs + 1), np.int64)
    np.add.at(edges, (message, first), 1)
    np.add.at(edges, (message, last + 1), -1)
    touched = np.cumsum(edges[:, :n_arcs], axis=1) > 0
    return np.packbits(touched, axis=1, bitorder="little"), is_malformed


def _unknown_tables(catalog: Catalog, table: I64) -> list[int]:
    first = int(table[0]) if len(table) else -1
    if catalog.by_id(first) is not None and (table == first).all():
        return []
    return [table_id for table_id in np.unique(table).tolist() if catalog.by_id(table_id) is None]
