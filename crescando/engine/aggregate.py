"""Aggregates as mergeable partial states: exact, whatever the order of rows.

Rules of the file: storages build states over their scopes, clients merge them in
any order and finish them, and the result equals that of one table in one
place. Integer sums are exact and checked to int64 at the end; float sums are
exact until the last step and then correctly rounded once (equal to
``math.fsum``); an average is that sum over the count. NULLs do not take part.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.engine.functions import aggregate_type
from crescando.engine.keys import I64, float_keys
from crescando.engine.statement import Aggregate, Scalar
from crescando.engine.values import Value
from crescando.errors import ReadFailedError
from crescando.schema import DataType

_SCALE = 1_074 + 53
"""Float sums are whole multiples of 2**-_SCALE: below every subnormal's last bit."""

_INT64_MIN, _INT64_MAX = -(1 << 63), (1 << 63) - 1


class State(msgspec.Struct, array_like=True):
    """One aggregate over some rows.

    Attributes
    ----------
    function : str
    type : DataType
        Of the argument; INT64 for count(*).
    count : int
        Rows whose argument is not NULL.
    total : bytes
        The exact sum as a signed integer, in units of 2**-_SCALE for floats.
    nan, plus, minus : int
        How many NaN, +inf and -inf a float sum met.
    extreme : scalar or None
        The least or greatest value so far.
    """

    function: str
    type: DataType
    count: int = 0
    total: bytes = b"\0"
    nan: int = 0
    plus: int = 0
    minus: int = 0
    extreme: bool | int | float | str | None = None


_ENCODER = msgspec.msgpack.Encoder()
_DECODER = msgspec.msgpack.Decoder(State)


def merge_states(states: Sequence[bytes]) -> bytes:
    """Merge partial states of one aggregate, in any order.

    Raises
    ------
    ValueError
        If there are none, or they are of different aggregates.
    """
    decoded = [_DECODER.decode(state) for state in states]
    if not decoded or len({(state.function, state.type) for state in decoded}) != 1:
        raise ValueError("partial states of one aggregate are merged, at least one")
    merged = decoded[0]
    for state in decoded[1:]:
        merged.count += state.count
        merged.total = _pack(_unpack(merged.total) + _unpack(state.total))
        merged.nan += state.nan
        merged.plus += state.plus
        merged.minus += state.minus
        merged.extreme = _better(merged.function, merged.extreme, state.extreme)
    return _ENCODER.encode(merged)


def finish(state: bytes) -> tuple[DataType, Scalar]:
    """Give the type and the value of a merged state.

    Raises
    ------
    ReadFailedError
        If an integer sum does not fit int64.
    """
    final = _DECODER.decode(state)
    kind = aggregate_type(final.function, final.type)
    if final.function == "count":
        return kind, final.count
    if final.count == 0:
        return kind, None
    if final.function in ("min", "max"):
        return kind, final.extreme
    total = _unpack(final.total)
    if final.type.is_float:
        real = _float_total(final, total)
        return kind, real / final.count if final.function == "avg" else real
    if final.function == "avg":
        return kind, total / final.count
    if not _INT64_MIN <= total <= _INT64_MAX:
        raise ReadFailedError(f"sum overflow: {total} does not fit int64")
    return kind, total


def _float_total(state: State, total: int) -> float:
    if state.nan or (state.plus and state.minus):
        return float("nan")
    if state.plus or state.minus:
        return float("inf") if state.plus else float("-inf")
    try:
        return total / (1 << _SCALE)
    except OverflowError:
        return float("inf") if total > 0 else float("-inf")


def _pack(total: int) -> bytes:
    return total.to_bytes(total.bit_length() // 8 + 1, "little", signed=True)


def _unpack(data: bytes) -> int:
    return int.from_bytes(data, "little", signed=True)


def _better(function: str, left: Scalar, right: Scalar) -> Scalar:
    """Give the lesser (min) or greater (max) of two values, NaN being the greatest."""
    if left is None or right is None:
        return right if left is None else left
    first_is_less = _is_less(left, right)
    return left if first_is_less == (function == "min") else right


def _is_less(left: Any, right: Any) -> bool:
    if left != left or right != right:  # NaN
        return bool(left == left)
    return bool(left < right)


class Accumulator:
    """One aggregate of every operation of a group, fed with pairs.

    Parameters
    ----------
    aggregate : Aggregate
    n_operations : int
    """

    def __init__(self, aggregate: Aggregate, n_operations: int) -> None:
        self._function = aggregate.function
        self._type = DataType.INT64 if aggregate.term is None else aggregate.term.type
        self._counts: I64 = np.zeros(n_operations, np.int64)
        self._totals: dict[int, int] = {}
        self._special: NDArray[np.int64] = np.zeros((3, n_operations), np.int64)
        self._extremes: dict[int, Scalar] = {}

    def add(self, operations: I64, value: Value | None) -> None:
        """Add rows.

        Parameters
        ----------
        operations : ndarray of int64, shape (n,)
            The operation each row counts for, *ascending*.
        value : Value, shape (n,), or None
            The argument, without errors; None for count(*).
        """
        if value is not None and value.valid is not None:
            rows = value.valid.nonzero()[0]
            operations, value = operations[rows], value.take(rows)
        self._counts += np.bincount(operations, minlength=len(self._counts))
        if value is None or self._function == "count" or len(operations) == 0:
            return
        if self._function in ("min", "max"):
            self._add_extremes(operations, value)
        elif value.type.is_float:
            self._add_floats(operations, value.data.astype(np.float64))
        else:
            self._add_runs(operations, value.data.astype(np.int64), np.zeros(len(operations), np.int64))

    def _add_runs(self, operations: I64, numbers: I64, shifts: I64) -> None:
        """Sum ``numbers << shifts`` by runs of equal operation and shift.

        Numbers are summed in two halves, which cannot overflow for 2**31 rows.
        """
        both = operations * (4 * _SCALE) + shifts
        starts = np.append(True, both[1:] != both[:-1]).nonzero()[0]
        high = np.add.reduceat(numbers >> np.int64(32), starts).tolist()
        low = np.add.reduceat(numbers & np.int64(0xFFFF_FFFF), starts).tolist()
        totals = self._totals
        columns = operations[starts].tolist(), high, low, shifts[starts].tolist()
        for operation, upper, lower, by in zip(*columns, strict=True):
            totals[operation] = totals.get(operation, 0) + (((upper << 32) + lower) << by)

    def _add_floats(self, operations: I64, numbers: NDArray[np.float64]) -> None:
        """Sum floats as integers times powers of two, one exponent at a time."""
        finite = np.isfinite(numbers)
        if not finite.all():
            for row, mask in enumerate((np.isnan(numbers), numbers == np.inf, numbers == -np.inf)):
                self._special[row] += np.bincount(operations[mask], minlength=len(self._counts))
            operations, numbers = operations[finite], numbers[finite]
            if len(operations) == 0:
                return
        fractions, exponents = np.frexp(numbers)
        mantissas = (fractions * float(1 << 53)).astype(np.int64)
        shifts = exponents.astype(np.int64) - 53 + _SCALE
        order = np.lexsort((shifts, operations))
        self._add_runs(operations[order], mantissas[order], shifts[order])

    def _add_extremes(self, operations: I64, value: Value) -> None:
        keys = float_keys(value.data) if value.type.is_float else value.keys().astype(np.int64)
        order = np.lexsort((keys if self._function == "min" else ~keys, operations))
        ordered = operations[order]
        starts = np.append(True, ordered[1:] != ordered[:-1]).nonzero()[0]
        best = value.data[order[starts]]
        if value.type.is_float:
            best = best + 0.0  # One zero, whichever was met first.
        for operation, item in zip(ordered[starts].tolist(), best.tolist(), strict=True):
            scalar = value.strings().texts[item] if value.type is DataType.STRING else item
            self._extremes[operation] = _better(self._function, self._extremes.get(operation), scalar)

    def state(self, operation: int) -> bytes:
        """Give the partial state of one operation."""
        nan, plus, minus = self._special[:, operation].tolist()
        return _ENCODER.encode(
            State(
                self._function,
                self._type,
                int(self._counts[operation]),
                _pack(self._totals.get(operation, 0)),
                nan,
                plus,
                minus,
                self._extremes.get(operation),
            )
        )
