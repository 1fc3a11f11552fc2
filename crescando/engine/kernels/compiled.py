"""The kernels compiled by numba: twins of `crescando.engine.kernels.plain`.

Rules of the file: only numba's plainest subset, over a handful of types, given
in full so that everything is compiled when the module is imported and never in
the middle of a scan. All of it runs without the interpreter's lock. The
compiled code is kept in `CACHE` if a composition root has named a folder.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from crescando.engine.kernels.base import I32, I64, U64, Kernels, Mask
from crescando.engine.kernels.borders_compiled import length_of
from crescando.engine.kernels.coding_compiled import COMPILED as CODES
from crescando.engine.kernels.counting_compiled import COMPILED as COUNTS
from crescando.engine.kernels.lanes import (
    LANES,
    put_aside,
    test_between,
    test_buckets,
    test_direct,
    test_few,
    test_hashed,
)
from crescando.engine.kernels.packing_compiled import (
    divide,
    pack,
    pack_bytes,
    take_bits,
    take_bytes,
    widen,
    widen_bytes,
)
from crescando.engine.kernels.plain import FEW, GOLDEN, HASH_HIGH, HASH_LOW
from crescando.engine.kernels.posting_compiled import place_of, post_direct
from crescando.engine.kernels.searching_compiled import search_order
from crescando.engine.kernels.texts_compiled import COMPILED as TEXTS
from crescando.engine.kernels.unaligned import prefetch

PHYSICAL = ("uint8", "uint16", "int8", "int16", "int32", "int64")

_WIDE = ("int32", "int64")

_SIX, _ONE, _THIRTY_TWO = np.uint64(6), np.uint64(1), np.uint64(32)
_LOW_HALF = np.uint64(0xFFFF_FFFF)


_CHUNK = 4096
"""Rows that are tested before survivors are put aside: large temporaries would be fresh pages every time."""


_AHEAD = 256
"""How many keys ahead of the test their load is begun (measured: from 64 to 1,024 do about as well)."""


def _compile(signatures: Sequence[str]) -> Callable[[Callable[..., Any]], Any]:
    return njit(list(signatures), cache=True, nogil=True, boundscheck=False, error_model="numpy")


def _each(result: str, arguments: str) -> list[str]:
    """Write a signature for every physical type in the place of ``K``."""
    return [f"{result}({arguments.replace('K', kind)})" for kind in PHYSICAL]


_PAIR = "UniTuple(int64[::1], 2)"


@_compile(["int64[::1](int64[::1], int64, int64)"])
def _with_room(array: I64, used: int, wanted: int) -> I64:
    """Give the array, or a copy with room for more numbers."""
    if used + wanted <= array.size:
        return array
    larger = np.empty(max(2 * array.size, used + wanted), np.int64)
    larger[:used] = array[:used]
    return larger


@njit(cache=True, nogil=True, inline="always")
def _hash(key: Any, right: Any) -> Any:
    wide = np.uint64(key)
    mixed = (wide & _LOW_HALF) * HASH_LOW + (wide >> _THIRTY_TWO) * HASH_HIGH
    return (mixed & _LOW_HALF) >> right


@njit(cache=True, nogil=True, inline="always")
def _first(count: Any) -> Any:
    """Give a word with so many bits set, fewer than all."""
    return (_ONE << np.uint64(count)) - _ONE


@njit(cache=True, nogil=True, inline="always")
def _look_ahead(keys: Any, at: Any) -> None:
    """Begin to load keys that are tested soon: gathers leave the processor no room to see them coming."""
    prefetch(keys, at + _AHEAD)
    if keys.itemsize == 8:
        # Sixteen of them are two lines of the cache.
        prefetch(keys, at + _AHEAD + LANES // 2)


@_compile(_each(_PAIR, "K[::1], int64[::1]"))
def find_few(keys: NDArray[Any], constants: I64) -> tuple[I64, I64]:
    """Find a few constants, by comparing; see `plain.find_few`."""
    rows = np.empty(_CHUNK, np.int64)
    places = np.empty(_CHUNK, np.int64)
    # Those that no key of this type can be are left out, and the last one fills the places that are left.
    wanted = np.empty(FEW, keys.dtype)
    n_wanted = 0
    for place in range(constants.size):
        wanted[n_wanted] = constants[place]
        n_wanted += np.int64(wanted[n_wanted]) == constants[place]
    if n_wanted == 0:
        return rows[:0].copy(), places[:0].copy()
    for place in range(n_wanted, FEW):
        wanted[place] = wanted[n_wanted - 1]
    chunk = np.empty(_CHUNK + LANES, np.int32)
    rest = np.zeros(LANES, keys.dtype)
    found = np.int64(0)
    for start in range(0, keys.size, _CHUNK):
        part = keys[start : start + _CHUNK]
        whole = part.size - part.size % LANES
        survivors = np.int64(0)
        for at in range(0, whole, LANES):
            word = np.uint64(0)
            for i in range(0, n_wanted, 4):
                word |= test_few(part, at, wanted[i], wanted[i + 1], wanted[i + 2], wanted[i + 3])
            if word:
                survivors = put_aside(word, at, chunk, survivors)
        if whole < part.size:
            rest[: part.size - whole] = part[whole:]
            word = np.uint64(0)
            for i in range(0, n_wanted, 4):
                word |= test_few(rest, 0, wanted[i], wanted[i + 1], wanted[i + 2], wanted[i + 3])
            word &= _first(part.size - whole)
            survivors = put_aside(word, whole, chunk, survivors)
        rows = _with_room(rows, found, survivors)
        places = _with_room(places, found, survivors)
        for j in range(survivors):
            key = np.int64(part[chunk[j]])
            rows[found] = start + chunk[j]
            place = 0
            while constants[place] != key:
                place += 1
            places[found] = place
            found += 1
    return rows[:found].copy(), places[:found].copy()


@_compile(_each("int64[::1]", "K[::1], int64, int64"))
def find_between(keys: NDArray[Any], low: int, high: int) -> I64:
    """Find the keys in an interval; see `plain.find_between`."""
    rows = np.empty(_CHUNK, np.int64)
    if low > high:
        return rows[:0].copy()
    # It wraps round where it is more than an int64 holds; compared as it is without a sign, it fits.
    span = high - low
    chunk = np.empty(_CHUNK + LANES, np.int32)
    rest = np.zeros(LANES, keys.dtype)
    found = np.int64(0)
    for start in range(0, keys.size, _CHUNK):
        part = keys[start : start + _CHUNK]
        whole = part.size - part.size % LANES
        survivors = np.int64(0)
        for at in range(0, whole, LANES):
            word = test_between(part, at, low, span)
            if word:
                survivors = put_aside(word, at, chunk, survivors)
        if whole < part.size:
            rest[: part.size - whole] = part[whole:]
            word = test_between(rest, 0, low, span) & _first(part.size - whole)
            survivors = put_aside(word, whole, chunk, survivors)
        rows = _with_room(rows, found, survivors)
        for j in range(survivors):
            rows[found + j] = start + chunk[j]
        found += survivors
    return rows[:found].copy()


@_compile(_each(_PAIR, "K[::1], int64, uint64[::1], int32[::1]"))
def find_direct(keys: NDArray[Any], base: int, bits: U64, heads: I32) -> tuple[I64, I64]:
    """Find constants that lie close together, by offset; see `plain.find_direct`."""
    rows = np.empty(_CHUNK, np.int64)
    places = np.empty(_CHUNK, np.int64)
    chunk = np.empty(_CHUNK + LANES, np.int32)
    rest = np.zeros(LANES, keys.dtype)
    span = 64 * bits.size
    found = np.int64(0)
    for start in range(0, keys.size, _CHUNK):
        part = keys[start : start + _CHUNK]
        whole = part.size - part.size % LANES
        survivors = np.int64(0)
        for at in range(0, whole, LANES):
            _look_ahead(part, at)
            word = test_direct(part, at, base, span, bits)
            survivors = put_aside(word, at, chunk, survivors)
        if whole < part.size:
            rest[: part.size - whole] = part[whole:]
            word = test_direct(rest, 0, base, span, bits) & _first(part.size - whole)
            survivors = put_aside(word, whole, chunk, survivors)
        rows = _with_room(rows, found, survivors)
        places = _with_room(places, found, survivors)
        for j in range(survivors):
            rows[found] = start + chunk[j]
            places[found] = place_of(np.int64(part[chunk[j]]) - base, bits, heads)
            found += 1
    return rows[:found].copy(), places[:found].copy()


@_compile(_each(_PAIR, "K[::1], int64, uint64[::1], int64[::1], int64[::1]"))
def find_hashed(keys: NDArray[Any], shift: int, bits: U64, heads: I64, constants: I64) -> tuple[I64, I64]:
    """Find constants that lie anywhere, by hash; see `plain.find_hashed`."""
    right = np.uint64(shift)
    rows = np.empty(_CHUNK, np.int64)
    places = np.empty(_CHUNK, np.int64)
    chunk = np.empty(_CHUNK + LANES, np.int32)
    rest = np.zeros(LANES, keys.dtype)
    found = np.int64(0)
    for start in range(0, keys.size, _CHUNK):
        part = keys[start : start + _CHUNK]
        whole = part.size - part.size % LANES
        survivors = np.int64(0)
        for at in range(0, whole, LANES):
            _look_ahead(part, at)
            survivors = put_aside(test_hashed(part, at, shift, bits), at, chunk, survivors)
        if whole < part.size:
            rest[: part.size - whole] = part[whole:]
            word = test_hashed(rest, 0, shift, bits) & _first(part.size - whole)
            survivors = put_aside(word, whole, chunk, survivors)
        rows = _with_room(rows, found, survivors)
        places = _with_room(places, found, survivors)
        for j in range(survivors):
            key = np.int64(part[chunk[j]])
            head = np.int64(_hash(key, right) >> _SIX)
            for place in range(heads[head], heads[head + 1]):
                if constants[place] == key:
                    rows[found] = start + chunk[j]
                    places[found] = place
                    found += 1
                    break
    return rows[:found].copy(), places[:found].copy()


@_compile(_each(_PAIR, "K[::1], int64, int64, uint64[::1], int64[::1], int64[::1], int64[::1]"))
def find_intervals(
    keys: NDArray[Any], base: int, shift: int, bits: U64, heads: I64, borders: I64, counts: I64
) -> tuple[I64, I64]:
    """Find the elementary interval of each key; see `plain.find_intervals`."""
    right = np.uint64(shift)
    last = np.uint64(64 * bits.size - 1)
    low = np.uint64(base)
    rows = np.empty(_CHUNK, np.int64)
    places = np.empty(_CHUNK, np.int64)
    chunk = np.empty(_CHUNK + LANES, np.int32)
    rest = np.zeros(LANES, keys.dtype)
    found = np.int64(0)
    for start in range(0, keys.size, _CHUNK):
        part = keys[start : start + _CHUNK]
        whole = part.size - part.size % LANES
        survivors = np.int64(0)
        for at in range(0, whole, LANES):
            _look_ahead(part, at)
            word = test_buckets(part, at, base, shift, last, bits)
            survivors = put_aside(word, at, chunk, survivors)
        if whole < part.size:
            rest[: part.size - whole] = part[whole:]
            word = test_buckets(rest, 0, base, shift, last, bits) & _first(part.size - whole)
            survivors = put_aside(word, whole, chunk, survivors)
        rows = _with_room(rows, found, survivors)
        places = _with_room(places, found, survivors)
        for j in range(survivors):
            key = np.int64(part[chunk[j]])
            head = np.int64(min((np.uint64(key) - low) >> right, last) >> _SIX)
            first, stop = heads[head], heads[head + 1]
            while first < stop:
                middle = (first + stop + 1) >> 1
                if borders[middle] <= key:
                    first = middle
                else:
                    stop = middle - 1
            if counts[first] > 0:
                rows[found] = start + chunk[j]
                places[found] = first
                found += 1
    return rows[:found].copy(), places[:found].copy()


@_compile(_each("void", "uint64[::1], K[::1], int64"))
def fold(into: U64, keys: NDArray[Any], shift: int) -> None:
    """Mix a column into the composite key of each row; see `plain.fold`."""
    for i in range(into.size):
        mixed = (into[i] ^ np.uint64(np.int64(keys[i]) >> shift)) * GOLDEN
        into[i] = mixed ^ (mixed >> _THIRTY_TWO)


@_compile(_each("boolean[::1]", "K[::1], int64[::1], int64[::1], int64[::1], int64[::1]"))
def within(keys: NDArray[Any], rows: I64, operations: I64, low: I64, high: I64) -> Mask:
    """Say of pairs whether the row's key lies in the operation's interval; see `plain.within`."""
    inside = np.empty(rows.size, np.bool_)
    for j in range(rows.size):
        key = np.int64(keys[rows[j]])
        operation = operations[j]
        inside[j] = (low[operation] <= key) & (key <= high[operation])
    return inside


@_compile([f"{_PAIR}(int64[::1], int64[::1], int64[::1], int64[::1], int64[::1])"])
def pair_up(rows: I64, places: I64, starts: I64, counts: I64, operations: I64) -> tuple[I64, I64]:
    """Pair each found row with the operations of its constant; see `plain.pair_up`."""
    # What lies anywhere is loaded where nothing depends on it, so that waiting for memory overlaps.
    firsts, times = np.empty(places.size, np.int64), np.empty(places.size, np.int64)
    total = 0
    for j in range(places.size):
        firsts[j], times[j] = starts[places[j]], counts[places[j]]
        total += times[j]
    paired = np.empty(total, np.int64)
    chosen = np.empty(total, np.int64)
    done = 0
    for j in range(places.size):
        start = firsts[j]
        for k in range(times[j]):
            paired[done] = rows[j]
            chosen[done] = operations[start + k]
            done += 1
    return paired, chosen


@_compile([f"void({wide}[::1], {kind}[::1], int64, int64, int64)" for wide in _WIDE for kind in PHYSICAL])
def append_digit(into: NDArray[Any], keys: NDArray[Any], base: int, shift: int, size: int) -> None:
    """Append a column to the number of each row; see `plain.append_digit`."""
    low, span = np.uint64(base), np.uint64(size)
    for i in range(into.size):
        digit = np.uint64(np.int64(keys[i]) >> shift) - low
        number = np.int64(into[i])
        is_inside = digit < span and number >= 0
        into[i] = number * size + np.int64(digit) if is_inside else np.int64(-1)


@_compile(
    _each(_PAIR, "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], K[::1], int64[::1], int64[::1]")
)
def pair_within(
    rows: I64,
    places: I64,
    starts: I64,
    counts: I64,
    operations: I64,
    keys: NDArray[Any],
    low: I64,
    high: I64,
) -> tuple[I64, I64]:
    """Pair rows with the operations in whose interval they lie; see `plain.pair_within`."""
    firsts, times = np.empty(places.size, np.int64), np.empty(places.size, np.int64)
    total = 0
    for j in range(places.size):
        firsts[j], times[j] = starts[places[j]], counts[places[j]]
        total += times[j]
    paired = np.empty(total, np.int64)
    chosen = np.empty(total, np.int64)
    done = np.int64(0)
    for j in range(places.size):
        row = rows[j]
        key = np.int64(keys[row])
        for k in range(firsts[j], firsts[j] + times[j]):
            # Written in any case, so that nothing has to be foreseen.
            paired[done] = row
            chosen[done] = operations[k]
            done += np.int64(low[k] <= key) & np.int64(key <= high[k])
    return paired[:done].copy(), chosen[:done].copy()


@_compile([f"{_PAIR}(int64[::1], int64)"])
def group_order(groups: I64, n_groups: int) -> tuple[I64, I64]:
    """Sort small numbers by counting; see `plain.group_order`."""
    offsets = np.zeros(n_groups + 1, np.int64)
    for i in range(groups.size):
        if groups[i] >= 0:
            offsets[groups[i] + 1] += 1
    for g in range(n_groups):
        offsets[g + 1] += offsets[g]
    order = np.empty(offsets[n_groups], np.int64)
    cursor = offsets[:-1].copy()
    for i in range(groups.size):
        group = groups[i]
        if group >= 0:
            order[cursor[group]] = i
            cursor[group] += 1
    return order, offsets


@_compile([f"{_PAIR}(int64[::1], int64)"])
def group_places(groups: I64, n_groups: int) -> tuple[I64, I64]:
    """Give where small numbers come when they are sorted; see `plain.group_places`."""
    offsets = np.zeros(n_groups + 1, np.int64)
    for i in range(groups.size):
        if groups[i] >= 0:
            offsets[groups[i] + 1] += 1
    for g in range(n_groups):
        offsets[g + 1] += offsets[g]
    cursor = offsets.copy()
    places = np.empty(groups.size, np.int64)
    for i in range(groups.size):
        group = groups[i] if groups[i] >= 0 else n_groups
        places[i] = cursor[group]
        cursor[group] += np.int64(group < n_groups)
    return places, offsets


_WIDER = (("uint8", "int32"), ("int16", "int32"))
"""Codes are kept narrow and given wide."""


@_compile(
    [
        f"void({wide}[::1], int64[::1], {narrow}[::1], int64[::1])"
        for narrow, wide in (*((kind, kind) for kind in ("uint8", "int16", "int32", "int64")), *_WIDER)
    ]
)
def scatter(into: NDArray[Any], places: I64, data: NDArray[Any], rows: I64) -> None:
    """Copy some values to some places; see `plain.scatter`."""
    for i in range(places.size):
        into[places[i]] = data[rows[i]]


@_compile(["UniTuple(int32[::1], 2)(int32[::1], int64)"])
def number_codes(codes: I32, n_codes: int) -> tuple[I32, I32]:
    """Number distinct codes; see `plain.number_codes`."""
    width = np.int64(4)
    while (np.int64(1) << width) < 2 * codes.size:
        width += 1
    size = np.int64(1) << width
    numbers = np.empty(codes.size, np.int32)
    used = np.empty(codes.size, np.int32)
    count = np.int32(0)
    if n_codes <= size:
        known = np.full(n_codes, -1, np.int32)
        for i in range(codes.size):
            number = known[codes[i]]
            if number < 0:
                number = count
                known[codes[i]] = number
                used[count] = codes[i]
                count += 1
            numbers[i] = number
    else:
        # Of many codes few are used: a hash table is smaller than a list of all.
        known = np.full(size, -1, np.int32)
        right = np.uint64(64 - width)
        for i in range(codes.size):
            slot = np.int64((np.uint64(np.int64(codes[i])) * GOLDEN) >> right)
            while known[slot] >= 0 and used[known[slot]] != codes[i]:
                slot = (slot + 1) & (size - 1)
            number = known[slot]
            if number < 0:
                number = count
                known[slot] = number
                used[count] = codes[i]
                count += 1
            numbers[i] = number
    return used[:count].copy(), numbers


@_compile([f"void(int64[::1], {offset}[::1], int32[::1])" for offset in ("uint32", "int64", "uint8")])
def add_lengths(weight: I64, offsets: NDArray[Any], codes: I32) -> None:
    """Add what texts take; see `plain.add_lengths`."""
    for i in range(codes.size):
        code = np.int64(codes[i])
        if code >= 0:
            weight[i] += length_of(offsets, code)


KERNELS = Kernels(
    name="numba",
    intervals_alone=1,
    find_few=find_few,
    find_between=find_between,
    find_direct=find_direct,
    find_hashed=find_hashed,
    find_intervals=find_intervals,
    fold=fold,
    within=within,
    pair_up=pair_up,
    post_direct=post_direct,
    append_digit=append_digit,
    pair_within=pair_within,
    group_order=group_order,
    search_order=search_order,
    group_places=group_places,
    scatter=scatter,
    divide=divide,
    pack=pack,
    pack_bytes=pack_bytes,
    widen_bytes=widen_bytes,
    take_bytes=take_bytes,
    take_bits=take_bits,
    widen=widen,
    number_codes=number_codes,
    add_lengths=add_lengths,
    texts=TEXTS,
    codes=CODES,
    counts=COUNTS,
)
