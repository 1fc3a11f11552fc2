"""The kernels in NumPy: they serve where nothing is compiled, and say what is right.

Rules of the file: keys are a column's integers as they lie in memory; what
they are compared with is int64. Rows and places come out ascending by row, so
that pieces of a block can be put together without sorting.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.kernels.borders import slices_of

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U64 = NDArray[np.uint64]
Mask = NDArray[np.bool_]

GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
"""2**64 divided by the golden ratio: multiplying by it spreads neighbours (Knuth, TAOCP 6.4)."""

HASH_LOW, HASH_HIGH = np.uint64(0x9E37_79B1), np.uint64(0x85EB_CA6B)
"""What the halves of a key are multiplied by, and summed, for a hash of 32 bits: processors multiply
many small numbers at once. Primes, the first of them near 2**32 divided by the golden ratio (xxHash)
and the second of murmur3."""

_SIX, _LOW_SIX, _ONE = np.uint64(6), np.uint64(63), np.uint64(1)
_LOW_HALF = np.uint64(0xFFFF_FFFF)


def _wide(keys: NDArray[Any]) -> U64:
    return keys.astype(np.int64, copy=False).view(np.uint64)


def hash_keys(keys: NDArray[Any], shift: int) -> U64:
    """Give the upper bits, after `shift`, of the 32-bit hash of each key."""
    wide = _wide(keys)
    mixed = (wide & _LOW_HALF) * HASH_LOW + (wide >> np.uint64(32)) * HASH_HIGH
    hashed: U64 = (mixed & _LOW_HALF) >> np.uint64(shift)
    return hashed


def _test(bits: U64, at: U64) -> NDArray[np.bool_]:
    words = bits[(at >> _SIX).view(np.int64)]
    hit: NDArray[np.bool_] = ((words >> (at & _LOW_SIX)) & _ONE).astype(np.bool_)
    return hit


FEW = 12
"""So many constants are compared with every key, which is faster than to look each key up (measured)."""


def find_few(keys: NDArray[Any], constants: I64) -> tuple[I64, I64]:
    """Find a few constants, by comparing.

    Parameters
    ----------
    keys : ndarray, shape (n,)
    constants : ndarray of int64, shape (n_constants,)
        Distinct, at most `FEW`.

    Returns
    -------
    rows, places : ndarray of int64
        Rows whose key is a constant, ascending, and the constant's index.
    """
    places = np.full(len(keys), -1, np.int8)
    for place, constant in enumerate(constants):
        places[keys == constant] = place
    rows = (places >= 0).nonzero()[0]
    return rows, places[rows].astype(np.int64)


def find_between(keys: NDArray[Any], low: int, high: int) -> I64:
    """Give the rows, ascending, whose key lies in a closed interval.

    Parameters
    ----------
    keys : ndarray, shape (n,)
    low, high : int
    """
    wide = keys.astype(np.int64, copy=False)
    return ((wide >= low) & (wide <= high)).nonzero()[0]


def find_direct(keys: NDArray[Any], base: int, bits: U64, heads: I32) -> tuple[I64, I64]:
    """Find constants that lie close together, by offset.

    Parameters
    ----------
    keys : ndarray, shape (n,)
    base : int
        The least constant.
    bits : ndarray of uint64, shape (n_words,)
        Bit ``key - base`` is set for every constant.
    heads : ndarray of int32, shape (n_words,)
        How many bits are set before each word.

    Returns
    -------
    rows, places : ndarray of int64
        Rows whose key is a constant, ascending, and how many constants are less.
    """
    offset = _wide(keys) - np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)
    within = offset < np.uint64(64 * len(bits))
    offset = np.where(within, offset, np.uint64(0))
    word, bit = (offset >> np.uint64(6)).view(np.int64), np.uint64(1) << (offset & np.uint64(63))
    found = bits[word]
    rows = (within & ((found & bit) != 0)).nonzero()[0]
    before = np.bitwise_count(found[rows] & (bit[rows] - np.uint64(1)))
    return rows, heads[word[rows]] + before.astype(np.int64)


def find_hashed(keys: NDArray[Any], shift: int, bits: U64, heads: I64, constants: I64) -> tuple[I64, I64]:
    """Find constants that lie anywhere, by hash.

    A key's hash has 32 bits; the upper ones, after `shift`, choose a bit of
    `bits` and, without their last six, an entry of `heads`.

    Parameters
    ----------
    keys : ndarray, shape (n,)
    shift : int
    bits : ndarray of uint64, shape (2**(26 - shift),)
    heads : ndarray of int64, shape (2**(26 - shift) + 1,)
        Constants ``heads[i]:heads[i + 1]`` are those whose bit is in word i of `bits`.
    constants : ndarray of int64, shape (n_constants,)
        Distinct, ascending by hash.

    Returns
    -------
    rows, places : ndarray of int64
        Rows whose key is a constant, ascending, and the constant's index.
    """
    hashed = hash_keys(keys, shift)
    rows = _test(bits, hashed).nonzero()[0]
    word = (hashed[rows] >> _SIX).view(np.int64)
    place, stop, wanted = heads[word], heads[word + 1], keys[rows].astype(np.int64)
    found = np.full(len(rows), -1, np.int64)
    pending = np.arange(len(rows))
    while len(pending):
        pending = pending[place[pending] < stop[pending]]
        hit = constants[place[pending]] == wanted[pending]
        found[pending[hit]] = place[pending[hit]]
        pending = pending[~hit]
        place[pending] += 1
    kept = (found >= 0).nonzero()[0]
    return rows[kept], found[kept]


def find_intervals(
    keys: NDArray[Any], base: int, shift: int, bits: U64, heads: I64, borders: I64, counts: I64
) -> tuple[I64, I64]:
    """Find the elementary interval in which each key lies, if any constant covers it.

    Parameters
    ----------
    keys : ndarray, shape (n,)
    base, shift : int
        A key's bucket is ``(key - base) >> shift``; no interval begins below `base`.
    bits : ndarray of uint64
        Bit i is set if bucket i meets a covered interval. The last bucket takes all larger keys.
    heads : ndarray of int64, shape (len(bits) + 1,)
        Keys whose bucket is in word i lie in interval ``heads[i]`` or a later one, up to ``heads[i + 1]``.
    borders : ndarray of int64, shape (n_intervals,)
        Where each elementary interval begins, ascending; it ends before the next.
    counts : ndarray of int64, shape (n_intervals,)
        How many constants cover each interval.

    Returns
    -------
    rows, places : ndarray of int64
        Rows whose key is covered, ascending, and the interval's index.
    """
    wide = keys.astype(np.int64, copy=False)
    above = wide >= base
    offset = (wide.view(np.uint64) - np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)) >> np.uint64(shift)
    bucket = np.minimum(offset, np.uint64(64 * len(bits) - 1))
    rows = (_test(bits, bucket) & above).nonzero()[0]
    places = np.searchsorted(borders, wide[rows], side="right") - 1
    covered = (counts[places] > 0).nonzero()[0]
    return rows[covered], places[covered]


def fold(into: U64, keys: NDArray[Any], shift: int) -> None:
    """Mix a column, without its last `shift` bits, into the composite key of each row.

    Parameters
    ----------
    into : ndarray of uint64, shape (n,)
        Changed in place.
    keys : ndarray, shape (n,)
    shift : int
    """
    part = (keys.astype(np.int64, copy=False) >> np.int64(shift)).view(np.uint64)
    np.bitwise_xor(into, part, out=into)
    np.multiply(into, GOLDEN, out=into)
    np.bitwise_xor(into, into >> np.uint64(32), out=into)


def within(keys: NDArray[Any], rows: I64, operations: I64, low: I64, high: I64) -> Mask:
    """Say of pairs whether the row's key lies in the operation's closed interval.

    Parameters
    ----------
    keys : ndarray, shape (n_rows,)
    rows, operations : ndarray of int64, shape (n,)
    low, high : ndarray of int64, shape (n_operations,)

    Returns
    -------
    ndarray of bool, shape (n,)
    """
    found = keys[rows].astype(np.int64, copy=False)
    inside: Mask = (found >= low[operations]) & (found <= high[operations])
    return inside


def pair_up(rows: I64, places: I64, starts: I64, counts: I64, operations: I64) -> tuple[I64, I64]:
    """Pair each found row with the operations of its constant.

    Parameters
    ----------
    rows, places : ndarray of int64, shape (n,)
    starts, counts : ndarray of int64
        Operations ``starts[p]``, … of constant p.
    operations : ndarray of int64

    Returns
    -------
    rows, operations : ndarray of int64
    """
    times = counts[places]
    total = int(times.sum())
    ends = np.cumsum(times)
    runs = np.arange(total) + np.repeat(starts[places] - (ends - times), times)
    return np.repeat(rows, times), operations[runs]


def append_digit(into: NDArray[Any], keys: NDArray[Any], base: int, shift: int, size: int) -> None:
    """Append a column, without its last `shift` bits, to the number of each row as its last digit.

    Parameters
    ----------
    into : ndarray of int32 or int64, shape (n,)
        Changed in place; negative where an earlier digit was out of range, and then left so.
    keys : ndarray, shape (n,)
    base, shift : int
        The digit is ``(key >> shift) - base``.
    size : int
        How many digits there are; where it is not one of them, the number becomes -1.
    """
    digit = (keys.astype(np.int64, copy=False) >> np.int64(shift)).view(np.uint64)
    digit = digit - np.uint64(base & 0xFFFF_FFFF_FFFF_FFFF)
    inside = (digit < np.uint64(size)) & (into >= 0)
    grown = into * into.dtype.type(size) + digit.astype(into.dtype)
    into[:] = np.where(inside, grown, into.dtype.type(-1))


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
    """Pair each found row with those operations of its constant in whose closed interval its key lies.

    Parameters
    ----------
    rows, places, starts, counts, operations : ndarray of int64
        As in `pair_up`.
    keys : ndarray, shape (n_rows,)
        By row.
    low, high : ndarray of int64
        Beside `operations`.

    Returns
    -------
    rows, operations : ndarray of int64
    """
    paired, at = pair_up(rows, places, starts, counts, np.arange(len(operations)))
    found = keys[paired].astype(np.int64, copy=False)
    kept = ((low[at] <= found) & (found <= high[at])).nonzero()[0]
    return paired[kept], operations[at[kept]]


def group_order(groups: I64, n_groups: int) -> tuple[I64, I64]:
    """Sort numbers from 0 to before `n_groups`, keeping the order of equals.

    Negative numbers are left out.

    Returns
    -------
    order : ndarray of int64
        Indices of the numbers, ascending by number.
    offsets : ndarray of int64, shape (n_groups + 1,)
        Where each number's run begins and ends.
    """
    # Sixteen-bit numbers sort by radix, in linear time.
    order = np.argsort(groups.astype(np.int16) if n_groups < 1 << 15 else groups, kind="stable")
    order = order[int(np.count_nonzero(groups < 0)) :]
    offsets = np.zeros(n_groups + 1, np.int64)
    np.cumsum(np.bincount(groups[order], minlength=n_groups), out=offsets[1:])
    return order, offsets


def group_places(groups: I64, n_groups: int) -> tuple[I64, I64]:
    """Give where each number comes when they are sorted as by `group_order`.

    Returns
    -------
    places : ndarray of int64, shape (n,)
        Behind all others for negative numbers.
    offsets : ndarray of int64, shape (n_groups + 1,)
        Where each number's run begins and ends.
    """
    order, offsets = group_order(groups, n_groups)
    places = np.full(len(groups), len(order), np.int64)
    places[order] = np.arange(len(order))
    return places, offsets


def scatter(into: NDArray[Any], places: I64, data: NDArray[Any], rows: I64) -> None:
    """Copy some values to some places.

    Parameters
    ----------
    into : ndarray
        Integers at least as wide as those of `data`; changed in place.
    places : ndarray of int64, shape (n,)
        If one comes twice, the last value stays.
    data : ndarray
    rows : ndarray of int64, shape (n,)
    """
    into[places] = data[rows]


def divide(numbers: NDArray[Any], divisor: int, into: NDArray[np.float64]) -> None:
    """Give numbers divided by another one, each rounded once."""
    np.copyto(into, numbers)
    into /= divisor


def pack(values: NDArray[Any], valid: Mask, base: int, scale: int, into: NDArray[Any]) -> bool:
    """Write the numbers ``(value - base) / scale`` as narrower ones; gives whether all are whole and fit.

    Parameters
    ----------
    values : ndarray of int32 or int64, shape (n,)
    valid : ndarray of bool, shape (n,) or (0,)
        Others may be anything and become 0; none of them says that all are valid.
    base, scale : int
    into : ndarray of int8, int16 or int32, shape (n,)
        Holds anything if some do not fit.
    """
    numbers, fits = _scaled(values, valid, base, scale, 8 * into.itemsize)
    np.copyto(into, numbers, casting="unsafe")
    return fits


def pack_bytes(values: NDArray[Any], valid: Mask, base: int, scale: int, into: NDArray[np.uint8]) -> bool:
    """Do as `pack` does, for numbers of one to six bytes each.

    Parameters
    ----------
    into : ndarray of uint8, shape (n, width)
        The lower bytes of each, the lowest first.
    """
    numbers, fits = _scaled(values, valid, base, scale, 8 * into.shape[1])
    into[:] = numbers.astype("<i8").view(np.uint8).reshape(-1, 8)[:, : into.shape[1]]
    return fits


def _scaled(values: NDArray[Any], valid: Mask, base: int, scale: int, n_bits: int) -> tuple[I64, bool]:
    """Give numbers, and whether all are whole and have no more bits."""
    wide = values.astype(np.int64)
    if len(valid):
        wide = np.where(valid, wide, np.int64(base))
    numbers = whole = wide - np.int64(base)
    if scale != 1:
        # The nearest number is the only one that can be right, and whether it is right is looked at. One
        # of six bytes is far below 2**52, so that what the quotient is rounded by is far below a half.
        numbers = np.rint(whole / scale).astype(np.int64)
    right = 64 - n_bits
    return numbers, bool(
        ((numbers << right >> right == numbers) & (numbers * np.int64(scale) == whole)).all()
    )


def widen_bytes(numbers: NDArray[np.uint8], base: int, scale: int, into: NDArray[Any]) -> None:
    """Do as `widen` does for numbers of some bytes each; shape (n, width)."""
    n_rows, width = numbers.shape
    words = np.zeros((n_rows, 8), np.uint8)
    words[:, 8 - width :] = numbers
    np.copyto(into, words.view("<i8").reshape(-1) >> (64 - 8 * width), casting="unsafe")
    widen(into, base, scale, into)


def take_bytes(numbers: NDArray[np.uint8], rows: I64, base: int, scale: int, into: NDArray[Any]) -> None:
    """Do as `widen_bytes` does for some rows."""
    widen_bytes(numbers[rows], base, scale, into)


def take_bits(packed: NDArray[np.uint8], rows: I64) -> Mask:
    """Give some of the bits that lie in bytes, the first one lowest."""
    bits: Mask = (packed[rows >> 3] >> (rows & 7).astype(np.uint8) & np.uint8(1)).view(np.bool_)
    return bits


def widen(numbers: NDArray[Any], base: int, scale: int, into: NDArray[Any]) -> None:
    """Give numbers as the values they stand for, ``base + scale * number``.

    Parameters
    ----------
    numbers : ndarray of a signed integer type, shape (n,)
    base, scale : int
    into : ndarray of a wider one, shape (n,)
        Written; sums wrap round as its numbers do.
    """
    np.copyto(into, numbers)
    if scale != 1:
        into *= into.dtype.type(scale)
    into += into.dtype.type(base)


def number_codes(codes: I32, n_codes: int) -> tuple[I32, I32]:
    """Number distinct codes in the order in which they first come.

    Parameters
    ----------
    codes : ndarray of int32, shape (n,)
        From 0 to before `n_codes`.
    n_codes : int

    Returns
    -------
    used : ndarray of int32
        The code of each number.
    numbers : ndarray of int32, shape (n,)
    """
    # What is never written is never read: of many codes few pages are touched.
    first = np.empty(n_codes, np.int32)
    every = np.arange(len(codes), dtype=np.int32)
    first[codes[::-1]] = every[::-1]
    used = codes[first[codes] == every]
    first[used] = every[: len(used)]
    return used, first[codes]


def add_lengths(weight: I64, offsets: NDArray[Any], codes: I32) -> None:
    """Add what texts take, in bytes.

    Parameters
    ----------
    weight : ndarray of int64, shape (n,)
        Changed in place.
    offsets : ndarray
        Of a pool; see `borders`.
    codes : ndarray of int32, shape (n,)
        Texts; below 0 for none.
    """
    _, lengths = slices_of(offsets, np.maximum(codes, 0).astype(np.int64))
    weight += np.where(codes >= 0, lengths, 0)
