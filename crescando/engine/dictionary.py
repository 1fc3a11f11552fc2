"""Strings as codes: pools of distinct texts, their order and translations between pools.

Rules of the file: a pool never forgets or moves a code, it only grows; texts
in one pool are distinct, so equal codes are equal strings over their full
length ("" , "\\0" and "a\\0" are three strings). Texts lie in one heap of bytes
and become Python objects only where one is asked for. Order is by bytes, which
for UTF-8 is the order of code points, as Python compares. Several threads may
read a pool that does not grow: what is worked out for a reader is worked out
whole and put in place at once, so that two who do it do no harm.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.heap import NARROW_BYTES, Text, Texts, narrowed, offsets_of
from crescando.engine.kernels.borders import LENGTH_MAX, end_of, group_bytes, note_texts
from crescando.engine.kernels.texts import HEAP_ROOM, load_prefixes, sort_slices
from crescando.engine.pages import fresh_array
from crescando.errors import InvariantError

I64 = NDArray[np.int64]
I32 = NDArray[np.int32]
U8 = NDArray[np.uint8]
U32 = NDArray[np.uint32]
U64 = NDArray[np.uint64]

CODES_MAX = (1 << 31) - 1
"""Codes are int32."""

DECODED_MAX = 4_096
"""A pool of so few texts keeps them as Python objects, once they were asked for; larger ones have
their borders in groups."""

_SPARE = 8
"""Arrays that must grow become so many times as large as is wanted."""

_FULL = 5
"""So many sixths of the hash table's slots are used before it is made larger."""

_SLOTS_MIN = 8


def hash_texts(heap: U8, starts: I64, lengths: I64) -> U64:
    """Give the hash by which pools find texts."""
    return kernels.active().texts.fingerprint_slices(heap, starts, lengths)


def _code_bits(table: U32) -> int:
    """Give how many bits of a slot are the code's, which is below the number of slots."""
    return len(table).bit_length()


class _Sorted(NamedTuple):
    """The order of a pool's texts: codes in it, each one's first bytes as a number."""

    order: I32
    prefixes: U64


# What a pool begins with: constants have pools of their own.
_NO_BYTES: U8 = np.zeros(0, np.uint8)
_NO_RANKS: I32 = np.zeros(0, np.int32)
_NOT_SORTED = _Sorted(np.zeros(0, np.int32), np.zeros(0, np.uint64))


class Pool:
    """A growing list of distinct texts; a text's index is its code.

    Parameters
    ----------
    texts : iterable of str or bytes
        The first ones; an empty pool begins with the empty text, since rows
        that are NULL carry code 0, which must exist.
    binary : bool
        Whether texts are bytes; given by `texts` if there are any.
    """

    __slots__ = (
        "_heap",
        "_n_placed",
        "_n_texts",
        "_offsets",
        "_ranks",
        "_sorted",
        "_table",
        "_texts",
        "_translations",
        "binary",
        "longest",
    )

    def __init__(self, texts: Iterable[Any] = (), *, binary: bool = False) -> None:
        first = Texts.of(texts)
        self.binary = first.binary if len(first) else binary
        self._heap: U8 = _NO_BYTES
        self._offsets: NDArray[Any] = np.zeros(1, np.uint32)
        self._n_texts = 0
        self.longest = 0
        self._table: U32 = np.zeros(_SLOTS_MIN, np.uint32)
        self._n_placed = 0
        self._sorted = _NOT_SORTED
        self._ranks: I32 = _NO_RANKS
        self._texts: Texts | None = None
        self._translations: dict[tuple[int, bool], tuple[Pool, int, int, I64]] = {}
        if len(first):
            self.intern_texts(first)
        else:
            # The empty text is hashed when something is looked up, which often never happens.
            self._n_texts, self._offsets = 1, np.zeros(2, np.uint32)

    def __len__(self) -> int:
        return self._n_texts

    @property
    def texts(self) -> Texts:
        """All texts by code, as they are now."""
        if self._texts is not None:
            return self._texts
        heap = self._heap[: self._end]
        if self._offsets.dtype == np.uint8:
            # Not kept, as it takes several times as much.
            _, lengths = self._slices(np.arange(self._n_texts))
            return Texts(heap, offsets_of(lengths), self.binary)
        self._texts = Texts(heap, self._offsets[: self._n_texts + 1], self.binary)
        return self._texts

    @property
    def _end(self) -> int:
        """Where in the heap the next text will begin."""
        return end_of(self._offsets, self._n_texts)

    def take(self, codes: NDArray[Any]) -> Texts:
        """Give the texts of some codes, copied."""
        if self._texts is not None or self._offsets.dtype != np.uint8:
            return self.texts.take(codes)
        places = np.ascontiguousarray(codes, np.int64)
        heap, borders = kernels.active().texts.take_slices(self._heap, self._offsets, places)
        return Texts(heap, narrowed(borders), self.binary)

    def slices(self, codes: NDArray[Any]) -> tuple[U8, I64, I64]:
        """Give the bytes of all texts, and where some of these begin and how long they are."""
        return self._heap, *self._slices(codes)

    def add_lengths(self, weight: I64, codes: I32) -> None:
        """Add what texts take, in bytes, to what is given for each code; of none where it is below 0."""
        kernels.active().add_lengths(weight, self._offsets, codes)

    @property
    def text_bytes(self) -> int:
        """What the texts alone would take, each with where it begins."""
        return self._end + 4 * self._n_texts

    @property
    def n_bytes(self) -> int:
        """What the pool takes in memory: texts, hash table and order as far as they are used."""
        n = self._n_texts
        is_grouped = self._offsets.dtype == np.uint8
        used = self._end + (group_bytes(n) if is_grouped else n * self._offsets.itemsize)
        order = (*self._sorted, self._ranks)
        return used + self._table.nbytes + sum(array.nbytes for array in order)

    def expect(self, n_more: int) -> None:
        """Make room in the hash table for about so many texts more, instead of little by little."""
        wanted, held = self._n_texts + n_more, len(self._table)
        if 6 * wanted > _FULL * held:
            # Twice as large at least, so that a text is placed anew once, on average.
            self._resize(max(_size_for_about(wanted), 2 * held if held > _SLOTS_MIN else 0))

    def intern(self, texts: Iterable[Any]) -> NDArray[Any]:
        """Give the code of each text, adding those that are new.

        Raises
        ------
        TypeMismatchError
            If a text is not Unicode (a lone surrogate).
        """
        return self.intern_texts(Texts.of(texts))

    def intern_texts(self, texts: Texts) -> NDArray[Any]:
        """Give the code of each text of a list, adding those that are new."""
        if len(texts) == 0:
            return np.zeros(0, np.int32)
        self._check_kind(texts)
        starts, lengths = texts.starts, texts.lengths
        return self._intern(texts.heap, starts, lengths, hash_texts(texts.heap, starts, lengths))

    def begin_with(self, texts: Texts) -> NDArray[Any]:
        """Take the only text of a list for the empty one that a new pool has; gives its code."""
        self._check_kind(texts)
        start, stop = texts.offsets.tolist()
        self.longest = length = stop - start
        self._heap = np.empty(length + HEAP_ROOM, np.uint8)
        self._heap[:length] = texts.heap[start:stop]
        self._offsets = np.array((0, length), np.uint32)
        return np.zeros(1, np.int32)

    def intern_some(self, texts: Texts, places: NDArray[Any]) -> NDArray[Any]:
        """Give the codes of some texts of a list, adding those that are new."""
        if len(places) == 0:
            return np.zeros(0, np.int32)
        self._check_kind(texts)
        starts = texts.offsets[places].astype(np.int64)
        lengths = texts.offsets[places + 1].astype(np.int64) - starts
        return self._intern(texts.heap, starts, lengths, hash_texts(texts.heap, starts, lengths))

    def intern_from(self, source: Pool, codes: NDArray[Any]) -> NDArray[Any]:
        """Give our codes of texts that another pool has under some codes, adding those that are new."""
        self._check_kind(source)
        starts, lengths = source._slices(codes)
        return self._intern(source._heap, starts, lengths, hash_texts(source._heap, starts, lengths))

    def _slices(self, codes: NDArray[Any]) -> tuple[I64, I64]:
        """Give starts and lengths of some texts."""
        return kernels.active().texts.slices_of(self._offsets, np.ascontiguousarray(codes, np.int64))

    def _intern(self, heap: U8, starts: I64, lengths: I64, hashes: U64) -> NDArray[Any]:
        self._place()
        codes = np.empty(0, np.int32)
        done, n = 0, len(hashes)
        self._make_room(lengths)
        while True:
            first = self._n_texts
            some, n_texts, count = kernels.active().texts.intern_slices(
                self._table,
                _code_bits(self._table),
                self._heap,
                self._offsets,
                hashes[done:],
                heap,
                starts[done:],
                lengths[done:],
                first,
                _FULL * len(self._table) // 6 - first,
            )
            if n_texts > first:
                if n_texts > CODES_MAX:
                    raise InvariantError(f"a column has at most {CODES_MAX} distinct texts")
                self._n_texts = self._n_placed = int(n_texts)
                self._texts = None
            if done == 0:
                codes = some
            else:
                codes[done : done + count] = some[:count]
            done += count
            if done == n:
                return codes
            self._widen(n - done)

    def _make_room(self, lengths: I64) -> int:
        """Make room for texts that may all be new; gives where the first one will begin."""
        first, n = self._n_texts, self._n_texts + len(lengths)
        begin = self._end
        end = begin + int(lengths.sum())
        self.longest = max(self.longest, int(lengths.max(initial=0)))
        self._heap = _with_room(self._heap, begin, end + HEAP_ROOM)
        in_groups = first > DECODED_MAX and self.longest <= LENGTH_MAX and end < NARROW_BYTES
        if in_groups != (self._offsets.dtype == np.uint8):
            self._regroup(in_groups)
        if in_groups:
            self._offsets = _with_room(self._offsets, group_bytes(first), group_bytes(n))
            return begin
        if end >= NARROW_BYTES:
            self._offsets = self._offsets.astype(np.int64, copy=False)
        self._offsets = _with_room(self._offsets, first + 1, n + 1)
        return begin

    def _regroup(self, in_groups: bool) -> None:
        """Write the borders of all texts in groups, or as plain offsets."""
        _, lengths = self._slices(np.arange(self._n_texts))
        if in_groups:
            self._offsets = np.zeros(group_bytes(self._n_texts), np.uint8)
            note_texts(self._offsets, 0, 0, lengths)
        else:
            self._offsets = offsets_of(lengths)

    def intern_utf8(self, heap: U8, offsets: NDArray[Any]) -> NDArray[Any]:
        """Give the code of each text ``heap[offsets[i]:offsets[i + 1]]``, adding those that are new."""
        return self.intern_texts(Texts(heap, offsets, self.binary))

    def find(self, text: Text) -> int:
        """Give a text's code, or -1."""
        return int(self.find_texts(Texts.of((text,)))[0])

    def find_texts(self, texts: Texts) -> I64:
        """Give the code of each text of a list, or -1."""
        if len(texts) == 0:
            return np.zeros(0, np.int64)
        self._check_kind(texts)
        starts, lengths = texts.starts, texts.lengths
        return self._find(texts.heap, starts, lengths, hash_texts(texts.heap, starts, lengths))

    def decode(self, codes: NDArray[Any]) -> list[Any]:
        """Give the texts of some codes as Python objects."""
        if self._n_texts <= DECODED_MAX:
            known = self.texts.to_list()
            return [known[code] for code in codes.tolist()]
        return self.take(codes).to_list()

    def bytes_of(self, codes: NDArray[Any]) -> int:
        """Give what some texts weigh."""
        return int(self._slices(codes)[1].sum())

    def rebuilt(self, codes: I64) -> Pool:
        """Give a pool of some texts only; text ``codes[i]`` gets code i.

        Parameters
        ----------
        codes : ndarray of int64
            Ascending, at least one.
        """
        pool = Pool(binary=self.binary)
        pool._n_texts = 0
        pool._append(self._heap, *self._slices(codes))
        return pool

    def _check_kind(self, texts: Texts | Pool) -> None:
        if texts.binary is not self.binary and len(texts):
            raise InvariantError("strings and bytes do not share a pool")

    def _find(self, heap: U8, starts: I64, lengths: I64, hashes: U64) -> I64:
        self._place()
        table = self._table
        found: I64 = kernels.active().texts.find_codes(
            table, _code_bits(table), self._heap, self._offsets, hashes, heap, starts, lengths
        )
        return found

    def _append(self, heap: U8, starts: I64, lengths: I64) -> None:
        """Add texts that are new and distinct."""
        first, begin = self._n_texts, self._make_room(lengths)
        copied = kernels.active().texts.gather_slices(heap, starts, lengths)
        self._heap[begin : begin + len(copied)] = copied
        note_texts(self._offsets, first, begin, lengths)
        self._n_texts = first + len(lengths)
        self._texts = None

    def _place(self) -> None:
        """Bring the hash table up to date."""
        if self._n_placed != self._n_texts:
            self._widen(0)

    def _widen(self, n_more: int) -> None:
        """Make a larger hash table; `n_more` texts are still to be looked up."""
        n = self._n_texts
        self._resize(_size_for(n + min(n_more, n + 16)))

    def _resize(self, size: int) -> None:
        """Make a hash table of so many slots, and put all texts into it."""
        n = self._n_texts
        table = np.zeros(size, np.uint32)
        hashes = hash_texts(self._heap, *self._slices(np.arange(n)))
        kernels.active().texts.place_codes(table, _code_bits(table), hashes, 0)
        self._table = table
        self._n_placed = n

    def ranks(self) -> I32:
        """Give each code's place in code point order; shape (len(self),), not to be changed."""
        order, ranks = self.order(), self._ranks
        if len(ranks) < len(order):
            ranks = np.empty(len(order), np.int32)
            ranks[order] = np.arange(len(order), dtype=np.int32)
            self._ranks = ranks
        return ranks

    def order(self) -> I32:
        """Give the codes in the order of their texts; not to be changed."""
        return self._sort().order

    def sorted_texts(self) -> list[Any]:
        """Give the texts in order."""
        return self.decode(self.order())

    def _sort(self) -> _Sorted:
        """Merge the texts that are new since the last time into the order."""
        known, n = self._sorted, self._n_texts
        done = len(known.order)
        if done == n:
            return known
        begins, lengths = self._slices(np.arange(done, n))
        inner = sort_slices(self._heap, begins, lengths)
        starts, lengths = begins[inner], lengths[inner]
        prefixes = load_prefixes(self._heap, starts, lengths)
        codes = (inner + done).astype(np.int32)
        if done:
            places, _ = self._search(known, self._heap, starts, lengths, np.zeros(len(starts), np.bool_))
            codes = np.insert(known.order, places, codes)
            prefixes = np.insert(known.prefixes, places, prefixes)
        self._sorted = found = _Sorted(codes, prefixes)
        return found

    def _search(
        self, known: _Sorted, heap: U8, starts: I64, lengths: I64, as_prefix: NDArray[np.bool_]
    ) -> tuple[I64, I64]:
        """Give how many texts of an order lie below each slice of a heap, and how many not above it."""
        return kernels.active().search_order(
            self._heap, self._offsets, *known, heap, starts, lengths, as_prefix
        )

    def spans_of(
        self, texts: Texts, starts: I64, lengths: I64, as_prefix: NDArray[np.bool_]
    ) -> tuple[I64, I64]:
        """Find where slices of a list lie among our texts in order.

        Parameters
        ----------
        texts : Texts
        starts, lengths : ndarray of int64, shape (n,)
            Slices of its heap.
        as_prefix : ndarray of bool, shape (n,)

        Returns
        -------
        low, high : ndarray of int64, shape (n,)
            Texts of the ranks ``low:high`` are equal to the slice or, where `as_prefix`, begin with it.
        """
        self._check_kind(texts)
        return self._search(self._sort(), texts.heap, starts, lengths, as_prefix)

    def places_of(self, texts: Texts) -> I64:
        """Give the place of each text of a list among ours.

        The place of a text that we have is ``2 * rank + 1``; of another text the
        even number between its neighbours.
        """
        low, high = self.spans_of(texts, texts.starts, texts.lengths, np.zeros(len(texts), np.bool_))
        return low + high

    def codes_in(self, other: Pool) -> I64:
        """Give for each of our codes the code of the same text in `other`, or -1."""
        return self._translated(other, False)

    def places_in(self, other: Pool) -> I64:
        """Give for each of our codes its place among the texts of `other`; see `places_of`."""
        return self._translated(other, True)

    def _translated(self, other: Pool, ordered: bool) -> I64:
        key = (id(other), ordered)
        found = self._translations.get(key)
        if found is not None and found[0] is other and found[1:3] == (len(self), len(other)):
            return found[3]
        other._check_kind(self)
        codes = other.places_of(self.texts) if ordered else other.find_texts(self.texts)
        # Most translated pools (constants, computed texts) die with the cycle; a
        # table's own pool may be translated too and must not hoard the others.
        if len(self._translations) >= 4:
            self._translations.clear()
        self._translations[key] = (other, len(self), len(other), codes)
        return codes


def _size_for(n_texts: int) -> int:
    """Give how many slots the hash table of so many texts gets."""
    return max(9 * n_texts // 5, _SLOTS_MIN)


def _size_for_about(n_texts: int) -> int:
    """Give how many slots are enough for so many texts, and for a few more than that."""
    return max(5 * n_texts // 4, _SLOTS_MIN)


def _with_room(array: NDArray[Any], used: int, wanted: int) -> NDArray[Any]:
    """Give an array with room for `wanted` items, of which the first `used` are kept.

    Pages that were never written take no memory, so that several times as much
    costs little and copying stays rare.
    """
    if wanted <= len(array):
        return array
    larger = fresh_array(max(_SPARE * wanted, 16), array.dtype, wanted)
    larger[:used] = array[:used]
    return larger


def unify_order(
    left: Pool, left_codes: NDArray[Any], right: Pool, right_codes: NDArray[Any]
) -> tuple[I64, I64]:
    """Give numbers for two lists of codes that compare as their texts do."""
    if left is right:
        ranks = left.ranks()
        return ranks[left_codes].astype(np.int64), ranks[right_codes].astype(np.int64)
    if len(left) < len(right):
        swapped = unify_order(right, right_codes, left, left_codes)
        return swapped[1], swapped[0]
    return 2 * left.ranks()[left_codes].astype(np.int64) + 1, right.places_in(left)[right_codes]


def unify_equality(
    left: Pool, left_codes: NDArray[Any], right: Pool, right_codes: NDArray[Any]
) -> tuple[NDArray[Any], NDArray[Any]]:
    """Give numbers for two lists of codes that are equal where their texts are."""
    if left is right:
        return left_codes, right_codes
    if len(left) < len(right):
        return left.codes_in(right)[left_codes], right_codes
    return left_codes, right.codes_in(left)[right_codes]
