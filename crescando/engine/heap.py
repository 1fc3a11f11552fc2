"""Texts as they lie in memory and travel: one heap of bytes and where each text begins.

Rules of the file: a text is UTF-8, or any bytes if the list is *binary*; it
becomes a Python object only when somebody asks for it, many at once where
possible. Lists are immutable. Text that has no UTF-8 form (a lone surrogate)
is refused here, where it would enter.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, overload

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.kernels.coding import PLAIN_ASCII, UNFIT
from crescando.errors import TypeMismatchError

U8 = NDArray[np.uint8]
I64 = NDArray[np.int64]

Text = str | bytes

NARROW_BYTES = 1 << 32
"""Smaller heaps have 32-bit offsets."""

_NOTHING: U8 = np.zeros(0, np.uint8)


class Texts(Sequence[Any]):
    """A list of texts.

    Parameters
    ----------
    heap : ndarray of uint8
    offsets : ndarray of uint32 or int64, shape (n + 1,)
        Text i is ``heap[offsets[i]:offsets[i + 1]]``.
    binary : bool
        Whether the texts are bytes; otherwise they are UTF-8.
    """

    __slots__ = ("_decoded", "binary", "heap", "offsets")

    def __init__(self, heap: U8, offsets: NDArray[Any], binary: bool = False) -> None:
        self.heap = heap
        self.offsets = offsets
        self.binary = binary
        self._decoded: list[Any] | None = None

    @staticmethod
    def of(texts: Iterable[Any]) -> Texts:
        """Give Python strings (or bytes objects) as a list of texts.

        Raises
        ------
        TypeMismatchError
            If a text has no UTF-8 form, or if strings and bytes are mixed.
        """
        if isinstance(texts, Texts):
            return texts
        listed = list(texts)
        if not listed:
            return NO_TEXTS
        binary = type(listed[0]) is bytes
        try:
            data, lengths = (_joined_bytes if binary else _joined_strings)(listed)
        except TypeError as error:
            raise TypeMismatchError("a list of texts holds strings only, or bytes only") from error
        except UnicodeEncodeError as error:
            faulty = next(text for text in listed if any("\ud800" <= each <= "\udfff" for each in text))
            raise TypeMismatchError(
                f"the text {faulty!r} holds a lone surrogate and is not Unicode"
            ) from error
        found = Texts(data, offsets_of(lengths), binary)
        # Who made them may want them back, as in one process.
        found._decoded = listed
        return found

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> Sequence[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            return self.to_list()[place]
        if self._decoded is not None:
            return self._decoded[place]
        n = len(self)
        at = place + n if place < 0 else place
        if not 0 <= at < n:
            raise IndexError(f"there is no text {place} of {n}")
        data = self.heap[int(self.offsets[at]) : int(self.offsets[at + 1])].tobytes()
        return data if self.binary else data.decode()

    def __iter__(self) -> Iterator[Any]:
        return iter(self.to_list())

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Texts):
            return self.to_list() == other.to_list()
        if isinstance(other, (tuple, list)):
            return self.to_list() == list(other)
        return NotImplemented

    def __hash__(self) -> int:
        return hash(tuple(self.to_list()))

    def __repr__(self) -> str:
        return f"Texts.of({self.to_list()!r})"

    @staticmethod
    def join(lists: Sequence[Texts]) -> Texts:
        """Put lists of one kind end to end."""
        filled = [texts for texts in lists if len(texts)]
        if len(filled) <= 1:
            return filled[0] if filled else NO_TEXTS
        lengths = np.concatenate([texts.lengths for texts in filled])
        spans = [texts.heap[int(texts.offsets[0]) : int(texts.offsets[-1])] for texts in filled]
        return Texts(np.concatenate(spans), offsets_of(lengths), filled[0].binary)

    @property
    def n_bytes(self) -> int:
        """What the list takes in memory."""
        return int(self.heap.nbytes + self.offsets.nbytes)

    @property
    def starts(self) -> I64:
        """Where each text begins; shape (n,)."""
        return self.offsets[:-1].astype(np.int64)

    @property
    def lengths(self) -> I64:
        """How many bytes each text has; shape (n,)."""
        wide = self.offsets.astype(np.int64, copy=False)
        return wide[1:] - wide[:-1]

    def to_list(self) -> list[Any]:
        """Give all texts as Python objects; not to be changed."""
        if self._decoded is None:
            self._decoded = self.decode(self.starts, self.lengths)
        return self._decoded

    def decode(self, starts: I64, lengths: I64) -> list[Any]:
        """Give slices of the heap as Python objects."""
        made = kernels.active().texts
        if not self.binary and len(starts):
            # Cut where a character stands that hardly any text has: in half of the time.
            marked: str = made.mark_slices(self.heap, starts, lengths).tobytes().decode()
            parts = marked.split("\0")
            if len(parts) == len(starts) + 1:
                parts.pop()
                return parts
        return self._cut(made.gather_slices(self.heap, starts, lengths), lengths)

    def _cut(self, packed: U8, lengths: I64) -> list[Any]:
        """Give texts that lie end to end as Python objects."""
        ends = np.cumsum(lengths)
        data = packed.tobytes()
        whole: Text = data
        if not self.binary:
            whole = data.decode()
            if len(whole) != len(data):
                # Count code points: bytes that do not continue one.
                counted = np.cumsum((packed & 0xC0) != 0x80)
                ends = np.append(0, counted)[ends]
        start, pieces = 0, []
        for stop in ends.tolist():
            pieces.append(whole[start:stop])
            start = stop
        return pieces

    def take(self, places: NDArray[Any], present: NDArray[np.bool_] | None = None) -> Texts:
        """Give some texts, copied; the empty text where not `present`."""
        wide = places.astype(np.int64, copy=False)
        if present is not None:
            wide = np.where(present, wide, -1)
        heap, borders = kernels.active().texts.take_slices(self.heap, self.offsets, wide)
        taken = Texts(heap, narrowed(borders), self.binary)
        if self._decoded is not None and present is None and len(places) <= len(self._decoded):
            known = self._decoded
            taken._decoded = [known[place] for place in places.tolist()]
        return taken

    def deal(self, places: NDArray[Any], present: NDArray[np.bool_] | None, part: U8, n_parts: int) -> Texts:
        """Give some texts as `take` does, part by part; `part` says to which each one goes."""
        wide = places.astype(np.int64, copy=False)
        if present is not None:
            wide = np.where(present, wide, -1)
        heap, borders = kernels.active().texts.deal_slices(self.heap, self.offsets, wide, part, n_parts)
        return Texts(heap, narrowed(borders), self.binary)

    def slice(self, start: int, stop: int) -> Texts:
        """Give consecutive texts; the bytes are shared."""
        offsets = self.offsets[start : stop + 1]
        first, last = int(offsets[0]), int(offsets[-1])
        return Texts(self.heap[first:last], offsets - offsets[0], self.binary)

    def lengths_in_points(self) -> I64:
        """Give the lengths in code points (of bytes, if binary)."""
        if self.binary:
            return self.lengths
        counted = np.append(0, np.cumsum((self.heap & 0xC0) != 0x80))
        borders: I64 = counted[self.offsets]
        return borders[1:] - borders[:-1]

    def check(self) -> None:
        """Check a list that came from outside.

        Raises
        ------
        TypeMismatchError
            If offsets do not fit the heap, or a text is not UTF-8.
        """
        heap, offsets = self.heap, self.offsets
        fits = (
            heap.dtype == np.uint8
            and heap.ndim == offsets.ndim == 1
            and offsets.dtype in (np.uint32, np.int64)
            and len(offsets) > 0
        )
        found = UNFIT
        if fits:
            found = kernels.active().codes.examine_list(
                np.ascontiguousarray(heap), np.ascontiguousarray(offsets)
            )
        if found == UNFIT:
            raise TypeMismatchError("a list of texts has offsets that do not fit it")
        if self.binary or found == PLAIN_ASCII:
            return
        borders = offsets[offsets < len(heap)]
        try:
            heap.tobytes().decode()
        except UnicodeDecodeError as error:
            raise TypeMismatchError(f"a text is not UTF-8: {error}") from error
        if bool(((heap[borders] & 0xC0) == 0x80).any()):
            raise TypeMismatchError("a text is not UTF-8: it begins within a code point")

    def to_wire(self) -> bytes:
        """Give the list as it travels."""
        return b"".join(self.wire_pieces())

    def wire_pieces(self) -> list[bytes | memoryview]:
        """Give the list as it travels, in pieces that nobody has copied yet."""
        head = bytes([int(self.binary), self.offsets.dtype.itemsize])
        count = len(self).to_bytes(8, "little")
        wide = f"<{self.offsets.dtype.kind}{self.offsets.dtype.itemsize}"
        start, stop = int(self.offsets[0]), int(self.offsets[-1])
        offsets = (self.offsets - self.offsets[:1]).astype(wide, copy=False)
        return [head + count, offsets.data, np.ascontiguousarray(self.heap[start:stop]).data]

    @staticmethod
    def from_wire(data: bytes) -> Texts:
        """Give the list that `to_wire` wrote; unchecked.

        Raises
        ------
        ValueError
            If the data is too short, or has offsets of an unknown width.
        """
        if len(data) < 10 or data[0] > 1 or data[1] not in (4, 8):
            raise ValueError("a list of texts has an unknown head")
        count = int.from_bytes(data[2:10], "little") + 1
        dtype = np.dtype("<u4") if data[1] == 4 else np.dtype("<i8")
        stop = 10 + count * dtype.itemsize
        if stop > len(data):
            raise ValueError("a list of texts is cut off")
        offsets = np.frombuffer(data, dtype, count, 10)
        return Texts(np.frombuffer(data, np.uint8, -1, stop), offsets, bool(data[0]))


NO_TEXTS = Texts(_NOTHING, np.zeros(1, np.uint32))
"""The empty list, of strings as well as of bytes."""


def offsets_of(lengths: I64) -> NDArray[Any]:
    """Give the offsets of texts that lie end to end."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return narrowed(offsets)


def narrowed(offsets: I64) -> NDArray[Any]:
    """Give offsets in as few bytes as hold them."""
    return offsets.astype(np.uint32) if int(offsets[-1]) < NARROW_BYTES else offsets


def _joined_bytes(texts: list[Any]) -> tuple[U8, I64]:
    if set(map(type, texts)) != {bytes}:
        raise TypeError
    return np.frombuffer(b"".join(texts), np.uint8), np.fromiter(map(len, texts), np.int64, len(texts))


def _joined_strings(texts: list[Any]) -> tuple[U8, I64]:
    joined = "".join(texts)
    data = np.frombuffer(joined.encode(), np.uint8)
    lengths = np.fromiter(map(len, texts), np.int64, len(texts))
    if len(data) == len(joined):
        return data, lengths
    # Where each code point begins tells where each text does.
    begins = np.append(((data & 0xC0) != 0x80).nonzero()[0], len(data))
    ends = begins[np.cumsum(lengths)]
    return data, np.diff(ends, prepend=0)
