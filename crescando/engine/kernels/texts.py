"""Texts as slices of one heap of bytes: hashing, comparing, and a hash table of codes.

Rules of the file: flat arrays only; a slice is a start and a length, and may
be empty or lie at the very end. Nothing is decoded: equality is over all bytes
and order is by bytes, which for UTF-8 is the order of code points. The table
holds codes in open addressing, placed by the upper half of the hash as a share of
its size. A slot holds the code, plus one, in its last bits, and before them as much
of the hash's lower half as there is room for, the *mark*; 0 is a free slot. A mark
never proves equality, the bytes do.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine.kernels.borders import end_of, note_texts, slices_of

U8 = NDArray[np.uint8]
U64 = NDArray[np.uint64]
U32 = NDArray[np.uint32]
I32 = NDArray[np.int32]
I64 = NDArray[np.int64]
Mask = NDArray[np.bool_]

_GOLDEN = np.uint64(0x9E37_79B9_7F4A_7C15)
_MIX_1 = np.uint64(0xBF58_476D_1CE4_E5B9)
_MIX_2 = np.uint64(0x94D0_49BB_1331_11EB)
_WORD = (1 << 64) - 1
_LOWER = np.uint64(0xFFFF_FFFF)

_KEPT = np.array([(1 << (8 * n)) - 1 for n in range(9)], np.uint64)
"""Which bits of a word belong to its first n bytes."""

HEAP_ROOM = 16
"""Bytes behind the texts of a heap that is appended to; texts are copied in steps of so many."""

_FEW = 8
"""So few slices are walked one by one: a long one is no call per word."""


def mix(words: U64) -> U64:
    """Scramble 64-bit words bijectively (the finalizer of SplitMix64, Steele et al. 2014)."""
    words = (words ^ (words >> np.uint64(30))) * _MIX_1
    words = (words ^ (words >> np.uint64(27))) * _MIX_2
    mixed: U64 = words ^ (words >> np.uint64(31))
    return mixed


def _mix_one(word: int) -> int:
    word = ((word ^ (word >> 30)) * int(_MIX_1)) & _WORD
    word = ((word ^ (word >> 27)) * int(_MIX_2)) & _WORD
    return word ^ (word >> 31)


def load_words(heap: U8, starts: I64, lengths: I64) -> U64:
    """Give the first eight bytes of each slice as a little-endian word, zero padded."""
    if len(heap) < 8:
        heap = np.concatenate([heap, np.zeros(8, np.uint8)])
    words: U64 = np.ndarray((len(heap) - 7,), "<u8", np.ascontiguousarray(heap), 0, (1,))
    last = len(heap) - 8
    at = np.minimum(starts, last)
    # Slices that begin in the last seven bytes are read from further left.
    shift = np.minimum(starts - at, 7).astype(np.uint64) << np.uint64(3)
    found: U64 = (words[at] >> shift) & _KEPT[np.clip(lengths, 0, 8)]
    return found


def load_prefixes(heap: U8, starts: I64, lengths: I64) -> U64:
    """Give the first eight bytes of each slice as a number that sorts as they do."""
    return load_words(heap, starts, lengths).byteswap()


def hash_words(words: U64, seed: np.uint64) -> U64:
    """Hash 64-bit words."""
    return mix(mix(words ^ seed) + _GOLDEN)


def hash_slices(heap: U8, starts: I64, lengths: I64, seed: np.uint64) -> U64:
    """Hash slices in words of eight bytes, zero padded, with the length mixed in first."""
    state = mix(lengths.astype(np.uint64) + _GOLDEN ^ seed)
    active = np.arange(len(starts))
    done = 0
    while True:
        active = active[lengths[active] > done]
        if len(active) <= _FEW:
            break
        words = load_words(heap, starts[active] + done, lengths[active] - done)
        state[active] = mix((state[active] ^ words) + _GOLDEN)
        done += 8
    for row in active.tolist():
        start = int(starts[row])
        data = heap[start + done : start + int(lengths[row])].tobytes()
        padded = data.ljust((len(data) + 7) // 8 * 8, b"\0")
        one = int(state[row])
        for word in np.frombuffer(padded, "<u8").tolist():
            one = _mix_one(((one ^ word) + int(_GOLDEN)) & _WORD)
        state[row] = one
    return mix(state)


def fingerprint_slices(heap: U8, starts: I64, lengths: I64) -> U64:
    """Hash slices for a table in memory: one multiplication for each word of eight bytes."""
    state = lengths.astype(np.uint64) * _GOLDEN
    active = np.arange(len(starts))
    done = 0
    while True:
        active = active[lengths[active] > done]
        if len(active) <= _FEW:
            break
        words = load_words(heap, starts[active] + done, lengths[active] - done)
        state[active] = _fold(state[active], words)
        done += 8
    for row in active.tolist():
        start = int(starts[row])
        data = heap[start + done : start + int(lengths[row])].tobytes()
        padded = data.ljust((len(data) + 7) // 8 * 8, b"\0")
        one = int(state[row])
        for word in np.frombuffer(padded, "<u8").tolist():
            one = ((one ^ word) * int(_MIX_1)) & _WORD
            one ^= one >> 32
        state[row] = one
    return mix(state)


def _fold(state: U64, words: U64) -> U64:
    mixed: U64 = (state ^ words) * _MIX_1
    return mixed ^ (mixed >> np.uint64(32))


def equal_slices(
    left: U8, left_starts: I64, left_lengths: I64, right: U8, right_starts: I64, right_lengths: I64
) -> Mask:
    """Give where slices of two heaps are equal, pair by pair."""
    equal: Mask = left_lengths == right_lengths
    active = equal.nonzero()[0]
    done = 0
    while True:
        active = active[left_lengths[active] > done]
        if len(active) <= _FEW:
            break
        rest = left_lengths[active] - done
        same = load_words(left, left_starts[active] + done, rest) == load_words(
            right, right_starts[active] + done, rest
        )
        equal[active[~same]] = False
        active = active[same]
        done += 8
    for row in active.tolist():
        start, other, length = int(left_starts[row]), int(right_starts[row]), int(left_lengths[row])
        equal[row] = np.array_equal(left[start + done : start + length], right[other + done : other + length])
    return equal


def compare_slices(
    left: U8, left_starts: I64, left_lengths: I64, right: U8, right_starts: I64, right_lengths: I64
) -> NDArray[np.int8]:
    """Give -1, 0 or 1 as slices of one heap sort before, with or after those of another."""
    result: NDArray[np.int8] = np.sign(left_lengths - right_lengths).astype(np.int8)
    shorter = np.minimum(left_lengths, right_lengths)
    active = np.arange(len(left_starts))
    done = 0
    while True:
        active = active[shorter[active] > done]
        if len(active) <= _FEW:
            break
        rest = shorter[active] - done
        a = load_prefixes(left, left_starts[active] + done, rest)
        b = load_prefixes(right, right_starts[active] + done, rest)
        differ = a != b
        result[active[differ]] = np.where(a < b, -1, 1)[differ]
        active = active[~differ]
        done += 8
    for row in active.tolist():
        start, other, length = int(left_starts[row]), int(right_starts[row]), int(shorter[row])
        a_bytes = left[start + done : start + length].tobytes()
        b_bytes = right[other + done : other + length].tobytes()
        if a_bytes != b_bytes:
            result[row] = -1 if a_bytes < b_bytes else 1
    return result


def gather_slices(heap: U8, starts: I64, lengths: I64) -> U8:
    """Copy slices end to end."""
    total = int(lengths.sum())
    if total == 0:
        return np.zeros(0, np.uint8)
    ends = np.cumsum(lengths)
    if total > 64 * len(lengths):
        data = np.ascontiguousarray(heap).data
        pairs = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
        return np.frombuffer(b"".join([data[start:stop] for start, stop in pairs]), np.uint8)
    copied: U8 = heap[np.arange(total) + np.repeat(starts - (ends - lengths), lengths)]
    return copied


def mark_slices(heap: U8, starts: I64, lengths: I64) -> U8:
    """Copy slices with a byte 0 behind each."""
    data = np.ascontiguousarray(heap).data
    pairs = zip(starts.tolist(), (starts + lengths).tolist(), strict=True)
    return np.frombuffer(b"".join([bytes(data[start:stop]) + b"\0" for start, stop in pairs]), np.uint8)


def take_slices(heap: U8, offsets: NDArray[Any], places: I64) -> tuple[U8, I64]:
    """Copy the slices at some places of a list, none where a place is negative; gives their offsets too.

    Parameters
    ----------
    heap, offsets : ndarray
        See `borders`.
    places : ndarray of int64, shape (n,)

    Returns
    -------
    copied : ndarray of uint8
    borders : ndarray of int64, shape (n + 1,)
    """
    starts, lengths = slices_of(offsets, np.maximum(places, 0))
    lengths = np.where(places < 0, 0, lengths)
    borders = np.zeros(len(places) + 1, np.int64)
    np.cumsum(lengths, out=borders[1:])
    return gather_slices(heap, starts, lengths), borders


def deal_slices(heap: U8, offsets: NDArray[Any], places: I64, part: U8, n_parts: int) -> tuple[U8, I64]:
    """Copy the slices at some places of a list, part by part; as `take_slices` does.

    Parameters
    ----------
    heap, offsets, places
        As there.
    part : ndarray of uint8, shape (n,)
        The part that each slice goes to; there it comes after those before it.
    n_parts : int
        At most 256.
    """
    return take_slices(heap, offsets, places[np.argsort(part, kind="stable")])


def _slots_of(hashes: U64, size: int) -> I64:
    slots: I64 = ((hashes >> np.uint64(32)) * np.uint64(size) >> np.uint64(32)).astype(np.int64)
    return slots


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
    """Look texts up in a hash table.

    Parameters
    ----------
    table : ndarray of uint32, shape (less than 2**32,)
        Marks and codes, 0 where free. At least one slot is free.
    bits : int
        How many bits of a slot are the code's; at most 32.
    heap, offsets : ndarray
        Of a pool; see `borders`.
    hashes : ndarray of uint64, shape (n,)
        Of what is sought.
    sought, starts, lengths : ndarray
        What is sought, in a heap of its own.

    Returns
    -------
    ndarray of int64, shape (n,)
        Codes, -1 for what is not there.
    """
    found = np.full(len(hashes), -1, np.int64)
    size, shift, code_bits = len(table), np.uint64(bits), np.uint64((1 << bits) - 1)
    wanted = (hashes & _LOWER) >> shift
    active = np.arange(len(hashes))
    slots = _slots_of(hashes, size)
    while len(active):
        words = table[slots].astype(np.uint64)
        used = words > 0
        active, words, slots = active[used], words[used], slots[used]
        alike = ((words >> shift) == wanted[active]).nonzero()[0]
        if len(alike):
            some, at = active[alike], (words[alike] & code_bits).astype(np.int64) - 1
            same = equal_slices(sought, starts[some], lengths[some], heap, *slices_of(offsets, at))
            found[some[same]] = at[same]
            keep = np.ones(len(active), np.bool_)
            keep[alike[same]] = False
            active, slots = active[keep], slots[keep]
        slots += 1
        slots[slots == size] = 0
    return found


def place_codes(table: U32, bits: int, hashes: U64, first: int) -> None:
    """Put codes from `first` on, none of which is there, into a table with room for them."""
    size, shift = len(table), np.uint64(bits)
    words = ((hashes & _LOWER) >> shift << shift) + np.arange(
        first + 1, first + 1 + len(hashes), dtype=np.uint64
    )
    pending, slots = words.astype(np.uint32), _slots_of(hashes, size)
    while len(pending):
        free = table[slots] == 0
        table[slots[free]] = pending[free]
        # Of codes that meet in one free slot, one is in it now; the others go on.
        left = table[slots] != pending
        pending, slots = pending[left], slots[left] + 1
        slots[slots == size] = 0


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
) -> tuple[I32, int, int]:
    """Look texts up, and append those that are not there, under the codes from `first` on.

    Parameters
    ----------
    table, bits, hashes, sought, starts, lengths
        As in `find_codes`.
    heap, offsets : ndarray
        As in `find_codes`, with room for all that is sought and `HEAP_ROOM` bytes more,
        which may be overwritten.
    first : int
        How many texts there are.
    room : int
        How many new ones the table has room for.

    Returns
    -------
    codes : ndarray of int32, shape (n,)
    n_texts : int
        How many texts there are now.
    done : int
        How many were looked up before there was no room for a new one; codes of
        the others mean nothing.
    """
    codes = find_codes(table, bits, heap, offsets, hashes, sought, starts, lengths)
    missing = (codes < 0).nonzero()[0]
    done = len(hashes)
    if len(missing) == 0:
        return codes.astype(np.int32), first, done
    leader = missing[first_alike(sought, starts[missing], lengths[missing], hashes[missing])]
    fresh = np.unique(leader)
    codes[missing] = first + np.searchsorted(fresh, leader)
    if len(fresh) > room:
        done, fresh = int(fresh[room]), fresh[:room]
    place_codes(table, bits, hashes[fresh], first)
    n_texts, begin = first + len(fresh), end_of(offsets, first)
    heap[begin : begin + int(lengths[fresh].sum())] = gather_slices(sought, starts[fresh], lengths[fresh])
    note_texts(offsets, first, begin, lengths[fresh])
    return codes.astype(np.int32), n_texts, done


def first_alike(heap: U8, starts: I64, lengths: I64, hashes: U64) -> I64:
    """Give for each slice the place of the first one that is equal; `hashes` are theirs."""
    _, firsts, inverse = np.unique(hashes, return_index=True, return_inverse=True)
    leader = firsts[inverse]
    same = equal_slices(heap, starts[leader], lengths[leader], heap, starts, lengths)
    known: dict[bytes, int] = {}
    for place in (~same).nonzero()[0].tolist():  # Texts of one hash that differ.
        data = heap[int(starts[place]) : int(starts[place] + lengths[place])].tobytes()
        leader[place] = known.setdefault(data, place)
    return leader


def renumber(codes: I32, n_texts: int) -> I64:
    """Number the texts that some codes stand for, without gaps; gives the codes that are used, ascending.

    Parameters
    ----------
    codes : ndarray of int32, shape (n,)
        Below `n_texts`; changed in place.
    n_texts : int
    """
    seen = np.zeros(n_texts, np.bool_)
    seen[codes] = True
    used = seen.nonzero()[0]
    if len(used) < n_texts:
        index = np.empty(n_texts, np.int32)
        index[used] = np.arange(len(used), dtype=np.int32)
        codes[:] = index[codes]
    return used


def sort_slices(heap: U8, starts: I64, lengths: I64) -> I64:
    """Give the order of slices, which are distinct, by their bytes."""
    words = load_prefixes(heap, starts, lengths)
    order = np.argsort(words)
    # Runs of equal words are sorted by the next word, as long as a member has more bytes.
    ordered = words[order]
    begins = np.append(True, ordered[1:] != ordered[:-1]) if len(order) else np.zeros(0, np.bool_)
    places, runs = _unsettled(begins, np.arange(len(order)), np.ones(len(order), np.bool_))
    done = 8
    while len(places):
        members = order[places]
        if len(places) <= 8 * _FEW:
            sizes = lengths[members]
            some = zip(starts[members].tolist(), sizes.tolist(), strict=True)
            tails = [heap[start + done : start + size].tobytes() for start, size in some]
            few = sorted(range(len(members)), key=lambda i: (runs[i], tails[i], sizes[i]))
            order[places] = members[few]
            break
        rest = lengths[members] - done
        words = load_prefixes(heap, starts[members] + done, rest)
        inner = np.lexsort((rest, words, runs))
        order[places] = members[inner]
        words, runs, rest = words[inner], runs[inner], rest[inner]
        begins = np.append(True, (words[1:] != words[:-1]) | (runs[1:] != runs[:-1]))
        places, runs = _unsettled(begins, places, rest > 8)
        done += 8
    return order.astype(np.int64, copy=False)


def _unsettled(begins: Mask, places: I64, longer: Mask) -> tuple[I64, I64]:
    """Give the members of runs of several in which one has more bytes, and their run's number."""
    if len(begins) == 0:
        return places, places
    run = np.cumsum(begins) - 1
    several = np.bincount(run) > 1
    undecided = np.bincount(run, longer) > 0
    keep = (several & undecided)[run].nonzero()[0]
    return places[keep], run[keep]


class TextKernels(NamedTuple):
    """A set of these functions, of which the compiled ones have their own."""

    hash_words: Callable[[U64, np.uint64], U64]
    hash_slices: Callable[[U8, I64, I64, np.uint64], U64]
    fingerprint_slices: Callable[[U8, I64, I64], U64]
    equal_slices: Callable[[U8, I64, I64, U8, I64, I64], Mask]
    gather_slices: Callable[[U8, I64, I64], U8]
    mark_slices: Callable[[U8, I64, I64], U8]
    take_slices: Callable[[U8, NDArray[Any], I64], tuple[U8, I64]]
    deal_slices: Callable[[U8, NDArray[Any], I64, U8, int], tuple[U8, I64]]
    find_codes: Callable[[U32, int, U8, NDArray[Any], U64, U8, I64, I64], I64]
    place_codes: Callable[[U32, int, U64, int], None]
    intern_slices: Callable[[U32, int, U8, NDArray[Any], U64, U8, I64, I64, int, int], tuple[I32, int, int]]
    slices_of: Callable[[NDArray[Any], I64], tuple[I64, I64]]
    renumber: Callable[[I32, int], I64]


PLAIN = TextKernels(
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
