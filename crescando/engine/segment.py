"""Rows in memory, column by column: segments, and stills of them.

Rules of the file: segments are preallocated and never grow, so that appending
copies nothing. A *still* is a segment as it was at one moment: it shares the
segment's arrays, and whoever would write into rows that a still has makes a copy
of that array first, once (copy on write); rows behind them are nobody's yet.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.arcs import lie_in
from crescando.engine.bits import Bits
from crescando.engine.counted import Counted
from crescando.engine.dictionary import Pool
from crescando.engine.keys import I64, Mask
from crescando.engine.narrowed import Narrowed, can_narrow, narrow, unknown
from crescando.engine.packed import Lane, Packed, lane_parts
from crescando.engine.placing import Placed, Placing
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Value
from crescando.schema import DataType
from crescando.types import Scope

U64 = NDArray[np.uint64]


def code_dtype(n_codes: int) -> np.dtype[Any]:
    """Give the narrowest type that holds codes of a pool of so many texts."""
    if n_codes <= 1 << 8:
        return np.dtype(np.uint8)
    return np.dtype(np.int16 if n_codes <= 1 << 15 else np.int32)


class Stored:
    """Rows in memory, column by column.

    Attributes
    ----------
    data : dict of int to Lane, shape (capacity,)
        Physical values by column id, as they are or `Narrowed`; codes in the narrowest type that holds
        them, or `Counted`.
    valid : dict of int to Bits
        Only of columns in which a NULL was ever stored.
    alive : ndarray of bool, shape (capacity,), or None
        None while no row is a tombstone.
    n_rows, n_dead : int
        Rows in use, and how many of them are tombstones.
    """

    __slots__ = ("_placing", "_positions", "alive", "data", "n_dead", "n_rows", "valid")

    alive: Mask | None
    data: dict[int, Lane]
    n_dead: int
    n_rows: int
    valid: dict[int, Bits]
    _placing: Placing | None
    _positions: U64 | None

    @property
    def position(self) -> Lane:
        """Ring positions; shape (capacity,)."""
        if self._positions is not None:
            return self._positions
        assert self._placing is not None
        return Placed(self.data[self._placing.column_id], self._placing.positions)

    def live_rows(self) -> Mask:
        """Give which rows live; shape (n_rows,)."""
        return np.ones(self.n_rows, np.bool_) if self.alive is None else self.alive[: self.n_rows]

    def inside(self, scope: Scope | None, start: int, stop: int) -> Mask | None:
        """Give which of the rows ``start:stop`` live and lie in a scope (None: anywhere); None if all do."""
        alive = None if self.alive is None or not self.n_dead else self.alive[start:stop]
        if scope is None:
            return alive
        inside = lie_in(self.position[start:stop], scope)
        return inside if alive is None else inside & alive

    def count(self, scope: Scope | None) -> int:
        """Count the rows that live and lie in a scope."""
        if scope is None:
            return self.n_rows - self.n_dead
        inside = self.inside(scope, 0, self.n_rows)
        return self.n_rows if inside is None else int(np.count_nonzero(inside))

    def _parts(self, n_rows: int) -> list[tuple[NDArray[Any], int]]:
        """Give all arrays, and how many bytes of each the first rows take."""
        # Listed first, as whoever asks from another thread must not see it change.
        lanes: list[Lane | None] = [*self.data.values(), *self.valid.values(), self._positions, self.alive]
        return [part for lane in lanes if lane is not None for part in lane_parts(lane, n_rows)]


class Still(Stored):
    """A segment's rows as they were when it was made; see the rules of the file."""

    __slots__ = ("__weakref__", "_ids")

    def __init__(self, segment: Segment) -> None:
        self.data = dict(segment.data)
        self.valid = dict(segment.valid)
        self._placing, self._positions = segment._placing, segment._positions
        self.alive = segment.alive
        self.n_rows = segment.n_rows
        self.n_dead = segment.n_dead
        self._ids = frozenset(id(array) for array, _ in self._parts(0))

    def has(self, array: NDArray[Any]) -> bool:
        """Say whether it shares an array."""
        # No other array can have the id as long as this one is kept here.
        return id(array) in self._ids

    def array_bytes(self) -> dict[int, int]:
        """Give what its rows take in each array, by the array's id."""
        return {id(array): n_bytes for array, n_bytes in self._parts(self.n_rows)}

    def close(self) -> None:
        """Let go of the arrays; the segment may write in them again."""
        self.data, self.valid, self.alive = {}, {}, None
        self._positions = np.zeros(0, np.uint64)
        self.n_rows = self.n_dead = 0
        self._ids = frozenset()


class Segment(Stored):
    """Some rows of one arc, column by column; further attributes are those of `Stored`.

    Parameters
    ----------
    arc, capacity : int
    types : dict of int to DataType
        By column id.
    placing : Placing, optional
        What ring positions follow from, as long as they do.

    Attributes
    ----------
    arc : int
        Index of the arc in the engine's list, as it is now.
    capacity : int
    coded : set of int
        Columns of codes.
    """

    __slots__ = ("_kinds", "_n_touched", "_stills", "arc", "capacity", "coded")

    def __init__(
        self, arc: int, capacity: int, types: dict[int, DataType], placing: Placing | None = None
    ) -> None:
        self.arc = arc
        self.capacity = capacity
        # All are as narrow as they can be and widened by the first that does not fit; see `store`.
        self.data = {key: self._lane(kind) for key, kind in types.items()}
        self._kinds = dict(types)
        self.coded = {key for key, kind in types.items() if kind.is_textual}
        self.valid = {}
        self._placing = placing
        self._positions = np.empty(capacity, np.uint64) if placing is None else None
        self.alive = None
        self.n_rows = 0
        self.n_dead = 0
        self._n_touched = 0
        self._stills: tuple[weakref.ref[Still], ...] = ()

    @classmethod
    def of_still(cls, still: Still, arc: int, coded: set[int]) -> Segment:
        """Give a still's rows as a segment that is read and never written; good until the still is closed."""
        segment = cls.__new__(cls)
        segment.arc = arc
        segment.capacity = segment.n_rows = segment._n_touched = still.n_rows
        segment.data, segment.valid = still.data, still.valid
        segment._placing, segment._positions = still._placing, still._positions
        segment.alive, segment.n_dead = still.alive, still.n_dead
        segment.coded = coded
        segment._kinds = {}
        segment._stills = ()
        return segment

    def _lane(self, kind: DataType) -> Narrowed | NDArray[Any]:
        """Give what holds a new column; what the values are is not known."""
        if can_narrow(kind):
            return unknown(kind, self.capacity)
        return np.empty(self.capacity, np.uint8 if kind.is_textual else PHYSICAL[kind])

    def still(self) -> Still:
        """Give the rows as they are now; costs no copy until they are changed."""
        still = Still(self)
        self._stills = (*(each for each in self._stills if each() is not None), weakref.ref(still))
        return still

    def array_ids(self) -> set[int]:
        """Give what its arrays are known by; good until one is replaced."""
        return {id(array) for array, _ in self._parts(0)}

    def _is_shared(self, array: NDArray[Any]) -> bool:
        return any(still is not None and still.has(array) for still in (each() for each in self._stills))

    @property
    def n_bytes(self) -> int:
        """What the rows take; pages that were never written take no memory."""
        return sum(n_bytes for _, n_bytes in self._parts(max(self.n_rows, self._n_touched)))

    def store(self, column_id: int, rows: I64 | slice, values: NDArray[Any], valid: Mask | None) -> None:
        """Write values of one column into rows that are in use or, as a slice, behind them."""
        lane = self.data[column_id]
        if len(values) == 0:
            return
        if column_id in self.coded:
            lane = self._coded(column_id, rows, values, valid)
        elif isinstance(lane, Narrowed):
            lane, values = self._narrowed(column_id, lane, values, valid)
        if isinstance(lane, Narrowed):
            numbers = self._written(lane.numbers, rows, values)
            lane = lane if numbers is lane.numbers else lane.of(numbers)
        elif not isinstance(lane, Packed):
            lane = self._written(lane, rows, values)
        self.data[column_id] = lane
        bits = self.valid.get(column_id)
        if bits is None:
            if valid is None or valid.all():
                return
            bits = Bits.of(self.capacity, True)
        elif not isinstance(rows, slice) and self._is_shared(bits.packed):
            bits = Bits(bits.packed.copy())
        bits.put(rows, valid)
        self.valid[column_id] = bits

    def place(self, target: slice, positions: U64) -> None:
        """Write ring positions of rows behind those in use, which have their keys already."""
        if self._positions is None:
            if bool((self.position[target] == positions).all()):
                return
            held = self.position[: self.n_rows]
            self._positions = np.empty(self.capacity, np.uint64)
            self._positions[: self.n_rows] = held
        self._positions[target] = positions

    def _written(self, array: NDArray[Any], rows: I64 | slice, values: Any) -> NDArray[Any]:
        """Write into an array, or into a copy of one that a still shares."""
        if not isinstance(rows, slice) and self._is_shared(array):
            array = self._copied(array)
        array[rows] = values
        return array

    def _copied(self, array: NDArray[Any], dtype: np.dtype[Any] | None = None) -> NDArray[Any]:
        """Give an array with the values of the rows in use; the others hold anything."""
        copied = np.empty((self.capacity, *array.shape[1:]), array.dtype if dtype is None else dtype)
        copied[: self.n_rows] = array[: self.n_rows]
        return copied

    def _coded(
        self, column_id: int, rows: I64 | slice, codes: NDArray[Any], valid: Mask | None
    ) -> Counted | NDArray[Any]:
        """Give an array for a column of codes that has room for some, or a lane that has them already."""
        lane = self.data[column_id]
        if isinstance(lane, Counted):
            if isinstance(rows, slice):
                counted = lane.appended(self.n_rows, codes, valid)
            else:
                counted = lane.changed(rows, codes, valid, self.n_rows)
            if counted is not None:
                return counted
            held = lane[: self.n_rows]
            return self._copied(held, code_dtype(max(int(held.max(initial=0)), int(codes.max())) + 1))
        assert not isinstance(lane, Packed)
        dtype = code_dtype(int(codes.max()) + 1)
        is_wider = dtype.itemsize > lane.itemsize
        if isinstance(rows, slice) and (is_wider or (lane.itemsize > 1 and self._is_time(len(codes)))):
            known = self._known(column_id, valid, len(codes))
            counted = Counted.of(np.append(lane[: self.n_rows], codes), known, self.capacity)
            if counted is not None:
                return counted
        return self._copied(lane, dtype) if is_wider else lane

    def _is_time(self, n_more: int) -> bool:
        """Say whether to look anew how the codes lie: what came first need not be like what follows."""
        return (self.n_rows + n_more).bit_length() // 2 > self.n_rows.bit_length() // 2

    def _known(self, column_id: int, valid: Mask | None, n_more: int) -> Mask | None:
        """Give which rows of a column are not NULL, those in use and some that come; None if all are."""
        held = self.valid.get(column_id)
        if held is None and valid is None:
            return None
        known = np.ones(self.n_rows + n_more, np.bool_)
        if held is not None:
            known[: self.n_rows] = held[: self.n_rows]
        if valid is not None:
            known[self.n_rows :] = valid
        return known

    def _narrowed(
        self, column_id: int, lane: Narrowed, values: NDArray[Any], valid: Mask | None
    ) -> tuple[Lane, NDArray[Any]]:
        """Give a lane of a column's values so far that can hold others, and these as they lie in it."""
        numbers = lane.encode(values, valid)
        if numbers is not None:
            return lane, numbers
        held, mask = lane[: self.n_rows], self.valid.get(column_id)
        known = None if mask is None else mask[: self.n_rows]
        # Of rows that are all NULL nothing is known that could decide about others.
        before = lane if self.n_rows and (known is None or known.any()) else None
        wider = narrow(self._kinds[column_id], values, valid, before, held, known, self.capacity)
        numbers = None if wider is None else wider.encode(values, valid)
        if wider is not None and numbers is not None:
            return wider, numbers
        plain = np.empty(self.capacity, lane.dtype)
        plain[: self.n_rows] = held
        return plain, values

    def recode(self, column_id: int, codes: NDArray[Any], dtype: np.dtype[Any]) -> None:
        """Put other codes in the place of a column's, one for each."""
        recoded = codes[self.data[column_id][: self.n_rows]]
        self.data[column_id] = self._recoded(column_id, recoded, dtype)

    def _recoded(self, column_id: int, codes: NDArray[Any], dtype: np.dtype[Any]) -> Lane:
        """Give a lane with the codes of all rows in use."""
        if dtype.itemsize > 1:
            counted = Counted.of(codes, self._known(column_id, None, 0), self.capacity)
            if counted is not None:
                return counted
        return self._copied(codes, dtype)

    def add_column(self, column_id: int, kind: DataType) -> None:
        """Take in a column that is NULL in every row."""
        if kind.is_textual:
            self.coded.add(column_id)
        self._kinds[column_id] = kind
        lane = self.data[column_id] = self._lane(kind)
        (lane.numbers if isinstance(lane, Narrowed) else lane)[: self.n_rows] = 0
        self.valid[column_id] = Bits.of(self.capacity, False)

    def drop_column(self, column_id: int) -> None:
        """Forget a column and its values."""
        self.coded.discard(column_id)
        self._kinds.pop(column_id, None)
        self.data.pop(column_id, None)
        self.valid.pop(column_id, None)

    def kill(self, rows: I64) -> None:
        """Make tombstones of some live rows."""
        if self.alive is None:
            self.alive = np.ones(self.capacity, np.bool_)
        elif self._is_shared(self.alive):
            self.alive = self.alive.copy()
        self.alive[rows] = False
        self.n_dead += len(rows)

    def take_over(self, other: Segment, rows: I64) -> int:
        """Copy rows of another segment, ascending and at least one, while there is room; gives how many."""
        some = rows[: self.capacity - self.n_rows]
        first, last = int(some[0]), int(some[-1])
        # Neighbours are copied as what they are.
        source: I64 | slice = slice(first, last + 1) if last - first < len(some) else some
        target = slice(self.n_rows, self.n_rows + len(some))
        for column_id, array in other.data.items():
            mask = other.valid.get(column_id)
            self.store(column_id, target, array[source], None if mask is None else mask[source])
        self.place(target, other.position[source])
        self.n_rows += len(some)
        return len(some)

    @property
    def is_sparse(self) -> bool:
        """Whether so many rows are dead that the others should move together."""
        return self.n_dead * 4 > self.n_rows

    def compact(self) -> None:
        """Move the live rows together."""
        if not self.n_dead:
            return
        kept = self.live_rows().nonzero()[0]
        moved = {column_id: lane[kept] for column_id, lane in self.data.items() if isinstance(lane, Counted)}
        for column_id, lane in self.data.items():
            if isinstance(lane, Narrowed):
                self.data[column_id] = lane.of(self._compacted(lane.numbers, kept))
            elif not isinstance(lane, Packed):
                self.data[column_id] = self._compacted(lane, kept)
        for column_id, bits in self.valid.items():
            valid = bits[kept]
            if self._is_shared(bits.packed):
                bits = self.valid[column_id] = Bits.of(self.capacity, True)
            bits.put(slice(0, len(kept)), valid)
        if self._positions is not None:
            self._positions = self._compacted(self._positions, kept)
        self.alive = None
        self._n_touched = max(self._n_touched, self.n_rows)
        self.n_rows, self.n_dead = len(kept), 0
        for column_id, codes in moved.items():
            self.data[column_id] = self._recoded(column_id, codes, code_dtype(int(codes.max(initial=0)) + 1))

    def _compacted(self, array: NDArray[Any], kept: I64) -> NDArray[Any]:
        target = np.empty((self.capacity, *array.shape[1:]), array.dtype) if self._is_shared(array) else array
        target[: len(kept)] = array[kept]
        return target


class Block:
    """Consecutive rows of a segment, as a source of columns (see `engine.frame`)."""

    __slots__ = ("_kept", "pools", "segment", "start", "stop", "types")

    def __init__(
        self, segment: Segment, start: int, stop: int, types: dict[int, DataType], pools: dict[int, Pool]
    ) -> None:
        self.segment = segment
        self.start = start
        self.stop = stop
        self.types = types
        self.pools = pools
        self._kept: dict[Packed, NDArray[Any]] | None = None

    def keep(self, is_kept: bool) -> None:
        """Keep columns that are worked out, for those who ask again; or forget them, before rows change."""
        self._kept = {} if is_kept else None

    @property
    def n_rows(self) -> int:
        """How many rows, tombstones included."""
        return self.stop - self.start

    def column(self, column_id: int) -> Value:
        """Give one column; shape (n_rows,)."""
        valid = self.segment.valid.get(column_id)
        return Value(
            self.types[column_id],
            self._whole(self.segment.data[column_id]),
            None if valid is None else self._whole(valid),
            None,
            self.pools.get(column_id),
        )

    def _whole(self, lane: Lane) -> NDArray[Any]:
        if self._kept is None or not isinstance(lane, Packed):
            return lane[self.start : self.stop]
        found = self._kept.get(lane)
        if found is None:
            found = self._kept[lane] = lane[self.start : self.stop]
        return found

    def take(self, column_id: int, rows: NDArray[Any]) -> Value:
        """Give one column at some rows."""
        valid = self.segment.valid.get(column_id)
        rows = rows + self.start
        return Value(
            self.types[column_id],
            self.segment.data[column_id][rows],
            None if valid is None else valid[rows],
            None,
            self.pools.get(column_id),
        )

    def counts_up(self, column_id: int) -> bool:
        """Say whether a column's codes count up, so that `find` may be asked."""
        return isinstance(self.segment.data[column_id], Counted)

    def find(self, column_id: int, codes: I64) -> tuple[I64, I64]:
        """Give the rows that have some codes, ascending and without NULL, and the index of each one's code.

        The codes are ascending and none comes twice.
        """
        lane, valid = self.segment.data[column_id], self.segment.valid.get(column_id)
        assert isinstance(lane, Counted)
        rows, places = lane.find(codes, self.start, self.stop)
        if valid is not None:
            known = valid[rows].nonzero()[0]
            rows, places = rows[known], places[known]
        return rows - self.start, places

    def positions(self, rows: I64 | None = None) -> U64:
        """Give the ring positions of some rows, or of all."""
        at = slice(self.start, self.stop) if rows is None else rows + self.start
        return self.segment.position[at]

    def live(self) -> Mask | None:
        """Give which rows live, or None if all do."""
        alive = self.segment.alive
        return None if alive is None else alive[self.start : self.stop]
