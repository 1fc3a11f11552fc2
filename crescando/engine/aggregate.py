"""Aggregates as mergeable partial states: exact, whatever the order of rows.

Rules of the file: storages build states over their scopes, clients merge them in
any order and finish them, and the result equals that of one table in one
place. A state is a few *entries* per group, in arrays for all groups together:
no Python object stands for a row or a group. Sums are kept in digits of 32
bits, integers in units of one and floats in units below every subnormal's last
bit, so that both are exact until the last step: integer sums are checked to
int64, those of decimals to their digits, float sums correctly rounded once
(equal to ``math.fsum``); an average is that sum over the count. NULLs do not
take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.engine.decimals import write
from crescando.engine.distinct import best_rows, factorise, words
from crescando.engine.functions import aggregate_type
from crescando.engine.keys import I64
from crescando.engine.scaled import UNITS_MAX
from crescando.engine.statement import PHYSICAL, Aggregate, Column
from crescando.engine.values import Value, concatenate, from_column, one_zero, to_column
from crescando.errors import ReadFailedError
from crescando.schema import DataType

Limbs = NDArray[np.uint8]

_LIMB = 32
_MASK = (1 << _LIMB) - 1

_SCALE = 1_074 + 53
"""Float sums are whole multiples of 2**-_SCALE: below every subnormal's last bit."""

_COUNT, _NAN, _PLUS, _MINUS = 252, 253, 254, 255
"""Limbs that are none: entries that count values, NaN, +inf and -inf."""

_CELLS = 72
"""Limbs that one float can touch; a multiple for numbering (group, limb)."""

_CARRY_MIN = 1 << 40
"""Digits from here on are carried, so that a million of them can still be added."""

_ROWS_EXACT = 1 << 20
"""As many digits of 32 bits add up in a float64 without rounding."""

_PENDING_MIN = 1 << 16

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class States(msgspec.Struct, frozen=True, array_like=True):
    """Partial states of one aggregate over the rows of many groups.

    Attributes
    ----------
    function : str
    type : DataType
        Of the argument; INT64 for count(*).
    group : ndarray of int64, shape (m,)
        The group of each entry, ascending.
    limb : ndarray of uint8, shape (m,)
        What an entry counts or adds to. Empty for min, max and count_distinct.
    digit : ndarray of int64, shape (m,)
    values : Column or None
        For min and max the least or greatest value of each group that has one;
        for count_distinct the distinct values of each group.
    """

    function: str
    type: DataType
    group: I64
    limb: Limbs
    digit: I64
    values: Column | None = None

    def of_groups(self, start: int, stop: int) -> States:
        """Give the states of groups ``start:stop``, numbered from 0."""
        low, high = np.searchsorted(self.group, (start, stop)).tolist()
        return States(
            self.function,
            self.type,
            self.group[low:high] - start,
            self.limb[low:high],
            self.digit[low:high],
            None if self.values is None else self.values.slice(low, high),
        )

    def weights(self, n_groups: int) -> I64:
        """Give what each group's entries weigh in bytes, about."""
        per_entry = 17 + column_bytes(self.values) // max(len(self.group), 1)
        return np.bincount(self.group, minlength=n_groups) * per_entry

    def compacted(self) -> States:
        """Give the states with no texts but their own."""
        if self.values is None or len(self.values.dictionary) <= len(self.values):
            return self
        values = to_column(from_column(self.values))
        return States(self.function, self.type, self.group, self.limb, self.digit, values)

    @property
    def n_bytes(self) -> int:
        """What they take in memory, about."""
        return self.group.nbytes + self.limb.nbytes + self.digit.nbytes + column_bytes(self.values)


def column_bytes(column: Column | None) -> int:
    """Give what a column takes in memory, about."""
    return 0 if column is None else column.values.nbytes + column.texts.n_bytes


class Accumulator:
    """One aggregate of many groups, fed with rows or with states.

    Parameters
    ----------
    function : str
    kind : DataType
        Of the argument; INT64 for count(*).
    """

    def __init__(self, function: str, kind: DataType) -> None:
        self._function = function
        self._kind = kind
        self.keeps_values = function in ("min", "max", "count_distinct")
        """Whether entries are values, and not digits."""
        self._groups: list[I64] = []
        self._limbs: list[Limbs] = []
        self._digits: list[I64] = []
        self._values: list[Value] = []
        self._n_pending = 0
        self._n_reduced = 0

    @property
    def n_entries(self) -> int:
        """How many entries are held."""
        return self._n_pending + self._n_reduced

    def add(self, groups: I64, n_groups: int, value: Value | None, first: int = 0) -> None:
        """Add rows.

        Parameters
        ----------
        groups : ndarray of int64, shape (n,)
            The group of each row, from 0 to below `n_groups`.
        n_groups : int
        value : Value, shape (n,), or None
            The argument, without errors; None for count(*).
        first : int
            Number that group 0 of these rows has among all.
        """
        if value is not None and value.valid is not None:
            rows = value.valid.nonzero()[0]
            groups, value = groups[rows], value.take(rows)
        if len(groups) == 0:
            return
        if self.keeps_values:
            assert value is not None
            self._add_values(groups, n_groups, value, first)
        else:
            self._emit(np.bincount(groups, minlength=n_groups), _COUNT, first)
            if value is not None and self._function != "count":
                for start in range(0, len(groups), _ROWS_EXACT):
                    some = slice(start, start + _ROWS_EXACT)
                    if value.type.is_float:
                        self._add_floats(groups[some], n_groups, value.data[some].astype(np.float64), first)
                    else:
                        self._add_integers(groups[some], n_groups, value.data[some].astype(np.int64), first)
        if self._n_pending > max(_PENDING_MIN, 2 * self._n_reduced):
            self._reduce()

    def add_states(self, states: States, first: int) -> None:
        """Add partial states, whose group 0 has the number `first` here.

        Raises
        ------
        ValueError
            If they are of another aggregate.
        """
        if (states.function, states.type) != (self._function, self._kind):
            raise ValueError("only partial states of one aggregate are merged")
        values = None if states.values is None else from_column(states.values)
        self._hold(states.group + first, states.limb, states.digit, values)

    def join(self, others: Accumulator, first: int) -> None:
        """Add the entries of another accumulator, whose group 0 has the number `first` here."""
        self._groups.extend(groups + first for groups in others._groups)
        self._limbs.extend(others._limbs)
        self._digits.extend(others._digits)
        self._values.extend(others._values)
        self._n_pending += others.n_entries
        if self._n_pending > max(_PENDING_MIN, 2 * self._n_reduced):
            self._reduce()

    def renumber(self, numbers: I64) -> None:
        """Give groups new numbers: group i becomes ``numbers[i]``, or is dropped if that is below 0."""
        for place, piece in enumerate(self._groups):
            group = numbers[piece]
            self._groups[place] = group
            if len(group) and int(group.min()) < 0:
                kept = (group >= 0).nonzero()[0]
                self._groups[place] = group[kept]
                if self.keeps_values:
                    self._values[place] = self._values[place].take(kept)
                else:
                    self._limbs[place] = self._limbs[place][kept]
                    self._digits[place] = self._digits[place][kept]
        self._n_pending, self._n_reduced = sum(map(len, self._groups)), 0
        self._reduce()

    def groups(self) -> I64:
        """Give the group of each entry, ascending."""
        self._reduce()
        return self._groups[0] if self._groups else np.zeros(0, np.int64)

    def states(self) -> States:
        """Give the partial states of all groups."""
        group = self.groups()
        if not self.keeps_values:
            limb = self._limbs[0] if self._limbs else np.zeros(0, np.uint8)
            digit = self._digits[0] if self._digits else np.zeros(0, np.int64)
            return States(self._function, self._kind, group, limb, digit)
        values = to_column(self._values[0]) if self._values else None
        return States(self._function, self._kind, group, np.zeros(0, np.uint8), np.zeros(0, np.int64), values)

    def _hold(self, group: I64, limb: Limbs, digit: I64, value: Value | None) -> None:
        if len(group) == 0:
            return
        self._groups.append(group)
        if value is None:
            self._limbs.append(limb)
            self._digits.append(digit)
        else:
            self._values.append(value)
        self._n_pending += len(group)

    def _emit(self, digits: NDArray[Any], limb: int, first: int) -> None:
        """Hold one entry per group that has something to add."""
        group = digits.nonzero()[0]
        self._hold(group + first, np.full(len(group), limb, np.uint8), digits[group].astype(np.int64), None)

    def _add_integers(self, groups: I64, n_groups: int, numbers: I64, first: int) -> None:
        largest = max(int(numbers.max()), -int(numbers.min()))
        if largest * len(numbers) < _CARRY_MIN:
            self._emit(np.bincount(groups, numbers, n_groups), 0, first)
            return
        if largest * len(numbers) < 1 << 53:
            # As digits all the same: a thousand such sums, added up as they are, would be beyond int64.
            numbers = np.bincount(groups, numbers, n_groups).astype(np.int64)
            groups = np.arange(n_groups)
        self._emit(np.bincount(groups, numbers & np.int64(_MASK), n_groups), 0, first)
        self._emit(np.bincount(groups, numbers >> np.int64(_LIMB), n_groups), 1, first)

    def _add_floats(self, groups: I64, n_groups: int, numbers: NDArray[np.float64], first: int) -> None:
        """Add each float as three digits, cell by cell of group and limb."""
        finite = np.isfinite(numbers)
        if not finite.all():
            for limb, mask in (
                (_NAN, np.isnan(numbers)),
                (_PLUS, numbers == np.inf),
                (_MINUS, numbers == -np.inf),
            ):
                self._emit(np.bincount(groups[mask], minlength=n_groups), limb, first)
            groups, numbers = groups[finite], numbers[finite]
            if len(groups) == 0:
                return
        fractions, exponents = np.frexp(np.abs(numbers))
        mantissa = (fractions * float(1 << 53)).astype(np.int64)
        shift = exponents.astype(np.int64) + (_SCALE - 53)
        by = shift & np.int64(_LIMB - 1)
        low = (mantissa & np.int64(_MASK)) << by
        high = ((mantissa >> np.int64(_LIMB)) << by) + (low >> np.int64(_LIMB))
        sign = np.where(numbers < 0, -1.0, 1.0)
        rows, cells = factorise([groups * _CELLS + (shift >> np.int64(5))])
        group = groups[rows] + first
        limbs = (shift[rows] >> np.int64(5)).astype(np.uint8)
        for place, digits in enumerate(
            (low & np.int64(_MASK), high & np.int64(_MASK), high >> np.int64(_LIMB))
        ):
            sums = np.bincount(cells, digits * sign).astype(np.int64)
            self._hold(group, limbs + np.uint8(place), sums, None)

    def _add_values(self, groups: I64, n_groups: int, value: Value, first: int) -> None:
        value = one_zero(value)  # Whichever was met first.
        rows = self._chosen(groups, n_groups, value)
        self._hold(groups[rows] + first, np.zeros(0, np.uint8), np.zeros(0, np.int64), value.take(rows))

    def _chosen(self, groups: I64, n_groups: int, value: Value) -> I64:
        """Give the rows that say all about their groups."""
        if self._function == "count_distinct":
            return factorise([groups, *words(value)])[0]
        return best_rows(groups, n_groups, value.keys(), greatest=self._function == "max")

    def _reduce(self) -> None:
        """Bring the entries into one piece, ascending by group, without two that say the same."""
        if self._n_pending == 0:
            return
        groups = np.concatenate(self._groups)
        if self.keeps_values:
            whole = concatenate(self._values, [len(piece.data) for piece in self._values])
            rows = self._chosen(groups, int(groups.max()) + 1, whole)
            rows = rows[np.argsort(groups[rows], kind="stable")]
            self._groups, self._values = [groups[rows]], [whole.take(rows)]
            self._n_reduced = len(rows)
        else:
            limbs, digits = np.concatenate(self._limbs), np.concatenate(self._digits)
            groups, limbs, digits = _add_up(groups, limbs, digits)
            large = (limbs < _COUNT) & ((digits >= _CARRY_MIN) | (digits <= -_CARRY_MIN))
            if large.any():
                at = large.nonzero()[0]
                carried = digits[at] >> np.int64(_LIMB)
                digits[at] &= np.int64(_MASK)
                groups, limbs, digits = _add_up(
                    np.append(groups, groups[at]),
                    np.append(limbs, limbs[at] + np.uint8(1)),
                    np.append(digits, carried),
                )
            self._groups, self._limbs, self._digits = [groups], [limbs], [digits]
            self._n_reduced = len(groups)
        self._n_pending = 0


def _add_up(groups: I64, limbs: Limbs, digits: I64) -> tuple[I64, Limbs, I64]:
    """Add the digits of equal group and limb; gives them in order."""
    cells = (groups << np.int64(8)) | limbs
    if not (cells[1:] > cells[:-1]).all():
        order = np.argsort(cells, kind="stable")
        cells, digits = cells[order], digits[order]
        starts = np.append(True, cells[1:] != cells[:-1]).nonzero()[0]
        cells, digits = cells[starts], np.add.reduceat(digits, starts)
    kept = digits.nonzero()[0]
    if len(kept) < len(digits):
        cells, digits = cells[kept], digits[kept]
    return cells >> np.int64(8), (cells & np.int64(255)).astype(np.uint8), digits.copy()


def accumulator_of(aggregate: Aggregate) -> Accumulator:
    """Give what accumulates an aggregate of a shape."""
    return Accumulator(aggregate.function, DataType.INT64 if aggregate.term is None else aggregate.term.type)


def merge_states(states: Sequence[States], numbers: Sequence[I64]) -> States:
    """Merge partial states of one aggregate, in any order.

    Parameters
    ----------
    states : sequence of States
        At least one.
    numbers : sequence of ndarray of int64
        For each of them what its groups are numbered in the whole.

    Raises
    ------
    ValueError
        If there are none, or they are of different aggregates.
    """
    if not states:
        raise ValueError("at least one partial state is merged")
    accumulator = Accumulator(states[0].function, states[0].type)
    for piece, number in zip(states, numbers, strict=True):
        accumulator.add_states(
            States(piece.function, piece.type, number[piece.group], piece.limb, piece.digit, piece.values), 0
        )
    return accumulator.states()


def finish(states: States, n_groups: int) -> Column:
    """Give the values of merged states, one per group; NULL where there is nothing to aggregate.

    Raises
    ------
    ReadFailedError
        If the sum of integers does not fit int64, or of decimals 18 digits.
    """
    kind = aggregate_type(states.function, states.type)
    if states.function == "count_distinct":
        return Column(kind, np.bincount(states.group, minlength=n_groups).astype(np.int64))
    if states.function in ("min", "max"):
        return _spread(states, n_groups, kind)
    count = _entries(states, _COUNT, n_groups)
    if states.function == "count":
        return Column(kind, count)
    valid = count > 0
    if states.type.is_float:
        numbers = _float_totals(states, n_groups)
    else:
        whole = _integer_totals(states, n_groups)
        if states.function == "sum":
            return Column(kind, _checked(whole, kind), None if valid.all() else valid)
        numbers = None
    if states.function == "avg":
        over = [n * 10**states.type.scale for n in np.maximum(count, 1).tolist()]
        totals = whole if numbers is None else numbers.tolist()
        numbers = np.array([total / n for total, n in zip(totals, over, strict=True)], np.float64)
    assert numbers is not None
    return Column(kind, numbers, None if valid.all() else valid)


def _entries(states: States, limb: int, n_groups: int) -> I64:
    found = np.zeros(n_groups, np.int64)
    at = (states.limb == limb).nonzero()[0]
    found[states.group[at]] = states.digit[at]
    return found


def _spread(states: States, n_groups: int, kind: DataType) -> Column:
    """Give one value per group, NULL where a group has none."""
    if states.values is None:
        return Column(kind, np.zeros(n_groups, PHYSICAL[kind]), np.zeros(n_groups, np.bool_))
    data = np.zeros(n_groups, states.values.values.dtype)
    data[states.group] = states.values.values
    valid = np.zeros(n_groups, np.bool_)
    valid[states.group] = True
    return Column(kind, data, None if valid.all() else valid, states.values.dictionary)


def _integer_totals(states: States, n_groups: int) -> list[int]:
    """Give exact sums, one Python integer per group."""
    totals = [0] * n_groups
    rows = (states.limb < _COUNT).nonzero()[0]
    columns = states.group[rows].tolist(), states.limb[rows].tolist(), states.digit[rows].tolist()
    for group, limb, digit in zip(*columns, strict=True):
        totals[group] += digit << (_LIMB * limb)
    return totals


def _checked(totals: list[int], kind: DataType) -> I64:
    low, high = (-UNITS_MAX, UNITS_MAX) if kind.is_decimal else (_INT64_MIN, _INT64_MAX)
    for total in totals:
        if not low <= total <= high:
            shown = write(total, kind.scale) if kind.is_decimal else total
            raise ReadFailedError(f"sum overflow: {shown} does not fit {kind.value}")
    return np.array(totals, np.int64)


def _float_totals(states: States, n_groups: int) -> NDArray[np.float64]:
    numbers = np.array([_rounded(total) for total in _integer_totals(states, n_groups)], np.float64)
    nan, plus, minus = (_entries(states, limb, n_groups) > 0 for limb in (_NAN, _PLUS, _MINUS))
    numbers[plus] = np.inf
    numbers[minus] = -np.inf
    numbers[nan | (plus & minus)] = np.nan
    return numbers


def _rounded(total: int) -> float:
    try:
        return total / (1 << _SCALE)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")
