"""The text kernels compiled by numba: twins of `crescando.engine.kernels.texts`.

Rules of the file: as in `crescando.engine.kernels.compiled`. What is only read
may be read-only, as arrays that came over the wire are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numba import njit, types
from numpy.typing import NDArray

from crescando.engine.kernels.borders_compiled import begin_of, length_of, note_text, prefetch_border
from crescando.engine.kernels.texts import I32, I64, U8, U32, U64, Mask, TextKernels
from crescando.engine.kernels.unaligned import (
    WIDE,
    copy_half,
    copy_wide,
    copy_word,
    load_bytes,
    load_word,
    prefetch,
)

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_1 = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_2 = np.uint64(0x94D0_49BB_1331_11EB)
_THIRTY, _TWENTY_SEVEN, _THIRTY_ONE, _THIRTY_TWO = np.uint64(30), np.uint64(27), np.uint64(31), np.uint64(32)
_AHEAD = 12
"""What a text needs is on its way into the cache so many texts before its turn (measured)."""

_AROUND = 16
"""More than `_AHEAD`, and a power of two."""

_TOGETHER = 64
"""So many texts are looked up at once: each waits three times for memory, and all of them together."""

_OFFSETS = types.uint32, types.int64, types.uint8
"""Both forms of a pool's."""

_LOWER = np.uint64(0xFFFF_FFFF)
_ONE = np.uint64(1)


def readable(kind: Any) -> Any:
    """Give the type of arrays that are only read."""
    return types.Array(kind, 1, "C", readonly=True)


_BYTES, _INTS, _WORDS = readable(types.uint8), readable(types.int64), readable(types.uint64)


def compiled(*signatures: Any) -> Callable[[Callable[..., Any]], Any]:
    """Compile a function for some types of arguments."""
    some: Sequence[Any] = list(signatures)
    return njit(some, cache=True, nogil=True, boundscheck=False, error_model="numpy")


def _take_signature(offsets: Any) -> Any:
    result: Any = types.Tuple  # numba has no types for it.
    return result((types.uint8[::1], types.int64[::1]))(_BYTES, readable(offsets), _INTS)


@njit(cache=True, nogil=True, inline="always")
def _mix(word: Any) -> Any:
    word = (word ^ (word >> _THIRTY)) * _MIX_1
    word = (word ^ (word >> _TWENTY_SEVEN)) * _MIX_2
    return word ^ (word >> _THIRTY_ONE)


@njit(cache=True, nogil=True, inline="always")
def _same(left: Any, a: Any, right: Any, b: Any, length: Any) -> Any:
    """Say whether two runs of bytes are equal."""
    done = np.int64(0)
    while done + 8 <= length:
        if load_word(left, a + done) != load_word(right, b + done):
            return False
        done += 8
    return done == length or load_bytes(left, a + done, length - done) == load_bytes(
        right, b + done, length - done
    )


@compiled(types.uint64[::1](_WORDS, types.uint64))
def hash_words(words: U64, seed: np.uint64) -> U64:
    """Hash words; see `texts.hash_words`."""
    hashes = np.empty(words.size, np.uint64)
    for row in range(words.size):
        hashes[row] = _mix(_mix(words[row] ^ seed) + _GOLDEN)
    return hashes


@compiled(types.uint64[::1](_BYTES, _INTS, _INTS, types.uint64))
def hash_slices(heap: U8, starts: I64, lengths: I64, seed: np.uint64) -> U64:
    """Hash slices; see `texts.hash_slices`."""
    hashes = np.empty(starts.size, np.uint64)
    for row in range(starts.size):
        at, length = starts[row], lengths[row]
        state = _mix((np.uint64(length) + _GOLDEN) ^ seed)
        stop = at + (length & ~7)
        while at < stop:
            word = load_word(heap, at)
            state = _mix((state ^ word) + _GOLDEN)
            at += 8
        if length & 7:
            state = _mix((state ^ load_bytes(heap, at, length & 7)) + _GOLDEN)
        hashes[row] = _mix(state)
    return hashes


@compiled(types.uint64[::1](_BYTES, _INTS, _INTS))
def fingerprint_slices(heap: U8, starts: I64, lengths: I64) -> U64:
    """Hash slices, quickly; see `texts.fingerprint_slices`."""
    hashes = np.empty(starts.size, np.uint64)
    for row in range(starts.size):
        at, length = starts[row], lengths[row]
        state = np.uint64(length) * _GOLDEN
        stop = at + (length & ~7)
        while at < stop:
            state = (state ^ load_word(heap, at)) * _MIX_1
            state ^= state >> _THIRTY_TWO
            at += 8
        if length & 7:
            state = (state ^ load_bytes(heap, at, length & 7)) * _MIX_1
            state ^= state >> _THIRTY_TWO
        hashes[row] = _mix(state)
    return hashes


@compiled(types.boolean[::1](_BYTES, _INTS, _INTS, _BYTES, _INTS, _INTS))
def equal_slices(
    left: U8, left_starts: I64, left_lengths: I64, right: U8, right_starts: I64, right_lengths: I64
) -> Mask:
    """Give where slices are equal; see `texts.equal_slices`."""
    equal = np.empty(left_starts.size, np.bool_)
    for row in range(left_starts.size):
        length = left_lengths[row]
        equal[row] = length == right_lengths[row] and _same(
            left, left_starts[row], right, right_starts[row], length
        )
    return equal


@njit(cache=True, nogil=True, inline="always")
def _copy(target: Any, to: Any, source: Any, start: Any, length: Any) -> Any:
    """Copy bytes in whole steps, also behind what is wanted, as far as both have them."""
    done = np.int64(0)
    stop = min(length, min(source.size - start, target.size - to) - (WIDE - 1))
    while done < stop:
        copy_wide(target, to + done, source, start + done)
        done += WIDE
    while done < length:
        target[to + done] = source[start + done]
        done += 1


@compiled(types.uint8[::1](_BYTES, _INTS, _INTS))
def mark_slices(heap: U8, starts: I64, lengths: I64) -> U8:
    """Copy slices with a byte 0 behind each; see `texts.mark_slices`."""
    total = starts.size
    for row in range(starts.size):
        total += lengths[row]
    copied = np.empty(total + WIDE, np.uint8)
    done = np.int64(0)
    for row in range(starts.size):
        if row + _AHEAD < starts.size:
            prefetch(heap, starts[row + _AHEAD])
        _copy(copied, done, heap, starts[row], lengths[row])
        done += lengths[row]
        copied[done] = 0
        done += 1
    return copied[:done]


@compiled(types.uint8[::1](_BYTES, _INTS, _INTS))
def gather_slices(heap: U8, starts: I64, lengths: I64) -> U8:
    """Copy slices end to end; see `texts.gather_slices`."""
    total = 0
    for row in range(starts.size):
        total += lengths[row]
    # Slices are copied in whole steps; what is too much is overwritten by the next one.
    copied = np.empty(total + WIDE, np.uint8)
    done = np.int64(0)
    row = 0
    while row < starts.size:
        start = starts[row]
        stop = start + lengths[row]
        row += 1
        # Slices that lie end to end are one.
        while row < starts.size and starts[row] == stop:
            stop += lengths[row]
            row += 1
        if row + _AHEAD < starts.size:
            prefetch(heap, starts[row + _AHEAD])
        _copy(copied, done, heap, start, stop - start)
        done += stop - start
    return copied[:total]


@compiled(*map(_take_signature, _OFFSETS))
def take_slices(heap: U8, offsets: NDArray[Any], places: I64) -> tuple[U8, I64]:
    """Copy some slices of a list; see `texts.take_slices`."""
    borders = np.empty(places.size + 1, np.int64)
    total = np.int64(0)
    borders[0] = 0
    for row in range(places.size):
        place = places[row]
        if place >= 0:
            total += length_of(offsets, place)
        borders[row + 1] = total
    copied = np.empty(total + WIDE, np.uint8)
    # Where each slice begins is worked out once, some slices ahead.
    starts = np.zeros(_AROUND, np.int64)
    for row in range(-_AHEAD, places.size):
        ahead = row + _AHEAD
        start = starts[row & (_AROUND - 1)]
        if ahead < places.size and places[ahead] >= 0:
            begin = begin_of(offsets, places[ahead])
            starts[ahead & (_AROUND - 1)] = begin
            prefetch(heap, begin)
        if row >= 0 and places[row] >= 0:
            _copy(copied, borders[row], heap, start, borders[row + 1] - borders[row])
    return copied[:total], borders


@njit(cache=True, nogil=True, inline="always")
def _copy_exactly(target: Any, to: Any, source: Any, start: Any, length: Any) -> Any:
    """Copy bytes in steps, the last of which may overlap the one before; nothing else is written."""
    if length >= WIDE:
        done = np.int64(0)
        last = length - WIDE
        while done < last:
            copy_wide(target, to + done, source, start + done)
            done += WIDE
        copy_wide(target, to + last, source, start + last)
    elif length >= 8:
        copy_word(target, to, source, start)
        copy_word(target, to + length - 8, source, start + length - 8)
    elif length >= 4:
        copy_half(target, to, source, start)
        copy_half(target, to + length - 4, source, start + length - 4)
    else:
        for i in range(length):
            target[to + i] = source[start + i]


def _deal_signature(offsets: Any) -> Any:
    result: Any = types.Tuple  # numba has no types for it.
    return result((types.uint8[::1], types.int64[::1]))(_BYTES, readable(offsets), _INTS, _BYTES, types.int64)


@compiled(_deal_signature(types.uint32), _deal_signature(types.int64))
def deal_slices(heap: U8, offsets: NDArray[Any], places: I64, part: U8, n_parts: int) -> tuple[U8, I64]:
    """Copy some slices of a list, part by part; see `texts.deal_slices`.

    They are read in the order given, which mostly is that in which they lie, and written
    in as many places at once as there are parts.
    """
    first = np.zeros(n_parts, np.int64)
    begin = np.zeros(n_parts, np.int64)
    for row in range(places.size):
        place = places[row]
        first[part[row]] += 1
        if place >= 0:
            begin[part[row]] += np.int64(offsets[place + 1]) - np.int64(offsets[place])
    rows = total = np.int64(0)
    for each in range(n_parts):
        n_rows, n_bytes = first[each], begin[each]
        first[each], begin[each] = rows, total
        rows += n_rows
        total += n_bytes
    borders = np.empty(places.size + 1, np.int64)
    borders[places.size] = total
    copied = np.empty(total, np.uint8)
    for row in range(places.size):
        if row + _AHEAD < places.size and places[row + _AHEAD] >= 0:
            prefetch(heap, np.int64(offsets[places[row + _AHEAD]]))
        place, each = places[row], part[row]
        borders[first[each]] = begin[each]
        first[each] += 1
        if place >= 0:
            start = np.int64(offsets[place])
            length = np.int64(offsets[place + 1]) - start
            _copy_exactly(copied, begin[each], heap, start, length)
            begin[each] += length
    return copied, borders


@njit(cache=True, nogil=True, inline="always")
def _slot(hashed: Any, size: Any) -> Any:
    return np.int64(((hashed >> _THIRTY_TWO) * np.uint64(size)) >> _THIRTY_TWO)


@njit(cache=True, nogil=True, inline="always")
def _is_alike(word: Any, hashed: Any, shift: Any) -> Any:
    """Say whether a slot has the mark of a hash."""
    return (np.uint64(word) >> shift) == ((hashed & _LOWER) >> shift)


@njit(cache=True, nogil=True, inline="always")
def _alike(table: Any, hashed: Any, shift: Any, slot: Any) -> Any:
    """Give the next slot, from one on, that has a hash's mark or is free."""
    while table[slot] and not _is_alike(table[slot], hashed, shift):
        slot += 1
        if slot == table.size:
            slot = np.int64(0)
    return slot


@njit(cache=True, nogil=True, inline="always")
def _code(word: Any, shift: Any) -> Any:
    return np.int64(np.uint64(word) & ((_ONE << shift) - _ONE)) - 1


@njit(cache=True, nogil=True, inline="always")
def _slot_word(hashed: Any, code: Any, shift: Any) -> Any:
    return np.uint32((((hashed & _LOWER) >> shift) << shift) | np.uint64(code + 1))


def _find_signature(offsets: Any) -> Any:
    return types.int64[::1](
        readable(types.uint32), types.int64, _BYTES, readable(offsets), _WORDS, _BYTES, _INTS, _INTS
    )


@compiled(*map(_find_signature, _OFFSETS))
def find_codes(
    table: U32,
    bits: int,
    heap: U8,
    offsets: NDArray[Any],
    hashes: U64,
    sought: U8,
    starts: I64,
    lengths: I64,
) -> I64:
    """Look texts up in a hash table; see `texts.find_codes`."""
    found = np.empty(hashes.size, np.int64)
    size, shift = np.int64(table.size), np.uint64(bits)
    slots = np.empty(_TOGETHER, np.int64)
    for first in range(0, hashes.size, _TOGETHER):
        some = hashes[first : first + _TOGETHER]
        # Step by step for all of them, so that waiting for memory overlaps.
        for i in range(some.size):
            slots[i] = _slot(some[i], size)
            prefetch(table, slots[i])
        for i in range(some.size):
            slot = _alike(table, some[i], shift, slots[i])
            slots[i] = slot
            if table[slot]:
                prefetch_border(offsets, _code(table[slot], shift))
        for i in range(some.size):
            if table[slots[i]]:
                prefetch(heap, begin_of(offsets, _code(table[slots[i]], shift)))
        for i in range(some.size):
            row, slot = first + i, slots[i]
            found[row] = -1
            while table[slot]:
                code = _code(table[slot], shift)
                length = length_of(offsets, code)
                if length == lengths[row] and _same(
                    heap, begin_of(offsets, code), sought, starts[row], length
                ):
                    found[row] = code
                    break
                slot = _alike(table, some[i], shift, slot + 1 if slot + 1 < size else np.int64(0))
    return found


@compiled(types.void(types.uint32[::1], types.int64, _WORDS, types.int64))
def place_codes(table: U32, bits: int, hashes: U64, first: int) -> None:
    """Put codes into a table; see `texts.place_codes`."""
    size, shift = np.int64(table.size), np.uint64(bits)
    for row in range(hashes.size):
        if row + _AHEAD < hashes.size:
            prefetch(table, _slot(hashes[row + _AHEAD], size))
        slot = _slot(hashes[row], size)
        while table[slot]:
            slot += 1
            if slot == size:
                slot = np.int64(0)
        table[slot] = _slot_word(hashes[row], first + row, shift)


def _intern_signature(offsets: Any) -> Any:
    result: Any = types.Tuple  # numba has no types for it.
    return result((types.int32[::1], types.int64, types.int64))(
        types.uint32[::1],
        types.int64,
        types.uint8[::1],
        offsets[::1],
        _WORDS,
        _BYTES,
        _INTS,
        _INTS,
        types.int64,
        types.int64,
    )


@compiled(*map(_intern_signature, _OFFSETS))
def intern_slices(
    table: U32,
    bits: int,
    heap: U8,
    offsets: NDArray[Any],
    hashes: U64,
    sought: U8,
    starts: I64,
    lengths: I64,
    first: int,
    room: int,
) -> tuple[I32, Any, Any]:
    """Look texts up and append the new ones; see `texts.intern_slices`."""
    codes = np.empty(hashes.size, np.int32)
    size, shift = np.int64(table.size), np.uint64(bits)
    n_texts, stop = np.int64(first), np.int64(first + room)
    end = begin_of(offsets, first)
    for row in range(hashes.size):
        if row + _AHEAD < hashes.size:
            prefetch(table, _slot(hashes[row + _AHEAD], size))
        slot = _slot(hashes[row], size)
        start, length = starts[row], lengths[row]
        code = np.int64(-1)
        while table[slot]:
            if _is_alike(table[slot], hashes[row], shift):
                candidate = _code(table[slot], shift)
                if length_of(offsets, candidate) == length and _same(
                    heap, begin_of(offsets, candidate), sought, start, length
                ):
                    code = candidate
                    break
            slot += 1
            if slot == size:
                slot = np.int64(0)
        if code < 0:
            if n_texts == stop:
                return codes, n_texts, np.int64(row)
            code = n_texts
            table[slot] = _slot_word(hashes[row], code, shift)
            _copy(heap, end, sought, start, length)
            end += length
            note_text(offsets, n_texts, end, length)
            n_texts += 1
        codes[row] = code
    return codes, n_texts, np.int64(hashes.size)


def _slices_signature(offsets: Any) -> Any:
    result: Any = types.UniTuple  # numba has no types for it.
    return result(types.int64[::1], 2)(readable(offsets), _INTS)


@compiled(*map(_slices_signature, _OFFSETS))
def slices_of(offsets: NDArray[Any], codes: I64) -> tuple[I64, I64]:
    """Give where some texts lie; see `borders.slices_of`."""
    starts, lengths = np.empty(codes.size, np.int64), np.empty(codes.size, np.int64)
    for i in range(codes.size):
        starts[i] = begin_of(offsets, codes[i])
        lengths[i] = length_of(offsets, codes[i])
    return starts, lengths


@compiled(types.int64[::1](types.int32[::1], types.int64))
def renumber(codes: I32, n_texts: int) -> I64:
    """Number the used texts without gaps; see `texts.renumber`."""
    index = np.full(n_texts, -1, np.int32)
    for row in range(codes.size):
        index[codes[row]] = 0
    count = 0
    for code in range(n_texts):
        if index[code] == 0:
            index[code] = count
            count += 1
    used = np.empty(count, np.int64)
    for code in range(n_texts):
        if index[code] >= 0:
            used[index[code]] = code
    if count < n_texts:
        for row in range(codes.size):
            codes[row] = index[codes[row]]
    return used


COMPILED = TextKernels(
    hash_words,
    hash_slices,
    fingerprint_slices,
    equal_slices,
    gather_slices,
    mark_slices,
    take_slices,
    deal_slices,
    find_codes,
    place_codes,
    intern_slices,
    slices_of,
    renumber,
)
