"""Python values as constants: which are accepted, and their physical form.

Rules of the file: one rule for every operator, assignment and inserted value,
so that no two spellings of a statement can disagree (a date given as text is
converted or refused, never compared as text). Nothing here knows expressions.
Instants are UTC; a naive datetime is refused because guessing its zone would
move rows silently.
"""

from __future__ import annotations

import datetime as dt
import decimal
import math
import re
import uuid
from fractions import Fraction

import numpy as np

from crescando.engine.scaled import UNITS_MAX
from crescando.engine.statement import Scalar
from crescando.errors import TypeMismatchError
from crescando.schema import DIGITS_MAX, DataType

Constant = None | bool | int | float | decimal.Decimal | str | bytes | dt.date | dt.datetime
"""What a literal or bound parameter may be, once normalised."""

DIGITS_READ_MAX = 1_000
"""A Decimal with more digits, or that many zeros, is refused before anything is computed with it."""

INT64_MIN, INT64_MAX = -(1 << 63), (1 << 63) - 1

INTEGER_BITS_MAX = 4_096
"""Larger integers are refused: Python itself will not write much larger ones out."""

_WIDE = decimal.Context(prec=2 * DIGITS_READ_MAX)
"""Holds every Decimal that is read, and every number of a text, whose length is bounded too."""

_EXACT = decimal.Context(prec=28)
"""Of our own, since the caller may have set another precision for the thread."""

EPOCH = dt.datetime(1970, 1, 1, tzinfo=dt.UTC)
_EPOCH_DAY = dt.date(1970, 1, 1).toordinal()
_MICROSECOND = dt.timedelta(microseconds=1)

INTEGER_RANGE: dict[DataType, tuple[int, int]] = {
    DataType.INT8: (-(1 << 7), (1 << 7) - 1),
    DataType.INT16: (-(1 << 15), (1 << 15) - 1),
    DataType.INT32: (-(1 << 31), (1 << 31) - 1),
    DataType.INT64: (INT64_MIN, INT64_MAX),
}

_SUBSTITUTES: tuple[tuple[type, str], ...] = (
    (uuid.UUID, "use value.bytes, or str(value)"),
    (dt.time, "use a datetime with a zone, or an int"),
    (dt.timedelta, "add days to a date with date_add(date, days)"),
    (complex, "use two float columns"),
    (list, "a list is a value only in isin() and IN"),
    (tuple, "a tuple is a value only in isin() and IN"),
    (set, "a set is a value only in isin()"),
    (dict, "use one column per key"),
)

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"(?P<day>\d{4}-\d{2}-\d{2})[T ](?P<clock>\d{2}:\d{2}(:\d{2}(\.\d{1,6})?)?)"
    r"\s?(?P<zone>Z|[+-]\d{2}(:?\d{2})?)?",
    re.ASCII,
)


class Numeral(float):
    """A number with a point as a text of SQL has it: exact beside decimals, a float elsewhere."""

    __slots__ = ("exact",)

    exact: decimal.Decimal

    def __new__(cls, exact: decimal.Decimal) -> Numeral:
        made = super().__new__(cls, exact)
        made.exact = exact
        return made

    def __neg__(self) -> Numeral:
        return Numeral(self.exact.copy_negate())

    def beside(self, near: DataType | None) -> decimal.Decimal | float:
        """Give what it is beside a term of some type."""
        return self.exact if near is not None and near.is_decimal else float(self)


def normalise(value: object) -> Constant:
    """Give a Python or NumPy scalar as one of the types of `Constant`.

    Raises
    ------
    TypeMismatchError
        If no column type takes such a value, or a datetime is naive. The text
        names the substitute.
    """
    if type(value) is int and value.bit_length() > INTEGER_BITS_MAX:
        raise TypeMismatchError(f"an integer of {value.bit_length()} bits is beyond every column type")
    if value is None or type(value) in (int, str, bool, float):
        return value  # type: ignore[return-value]
    if isinstance(value, decimal.Decimal):
        return _finite(value)
    if isinstance(value, Numeral):
        return value
    if isinstance(value, np.generic):
        return normalise(_numpy_scalar(value))
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return normalise(int(value))
    if isinstance(value, float):
        return float(value)
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    if isinstance(value, dt.datetime):
        return _aware(value)
    if isinstance(value, dt.date):
        return dt.date(value.year, value.month, value.day)
    if value.__class__.__name__ in ("NAType", "NaTType"):
        return None
    for kind, fix in _SUBSTITUTES:
        if isinstance(value, kind):
            raise TypeMismatchError(f"a {type(value).__name__} is not a value of any column type; {fix}")
    raise TypeMismatchError(
        f"a {type(value).__name__} is not a value of any column type; "
        "use None, bool, int, float, Decimal, str, bytes, date or a datetime with a zone"
    )


def _finite(value: decimal.Decimal) -> decimal.Decimal:
    if not value.is_finite():
        raise TypeMismatchError(f"{value!r} is not a number of digits; use float({str(value)!r})")
    if abs(value.adjusted()) > DIGITS_READ_MAX or len(value.as_tuple().digits) > DIGITS_READ_MAX:
        raise TypeMismatchError("a Decimal of thousands of digits is beyond every column type")
    # Rebuilt, so that a subclass with rules of its own goes no further.
    return decimal.Decimal(value)


def units_of(value: int | float | decimal.Decimal, scale: int) -> int | None:
    """Give a number in units of ``10**-scale``, or None if these are not whole or have over 18 digits."""
    if isinstance(value, Numeral):
        value = value.exact
    if isinstance(value, float):
        if not value.is_integer() and not math.isfinite(value):
            return None
        exact = Fraction(value) * 10**scale
        units, rest = divmod(exact.numerator, exact.denominator)
    elif isinstance(value, int):
        units, rest = value * 10**scale, 0
    else:
        moved = value.scaleb(scale, _WIDE)
        units = int(moved)
        rest = int(moved != units)
    return units if rest == 0 and abs(units) <= UNITS_MAX else None


def scale_of(value: decimal.Decimal) -> int:
    """Give the digits after the point that a Decimal is written with."""
    exponent = value.as_tuple().exponent
    assert isinstance(exponent, int)
    return max(-exponent, 0)


def _numpy_scalar(value: np.generic) -> object:
    if not isinstance(value, np.datetime64):
        return value.item()
    if np.isnat(value):
        return None
    if np.datetime_data(value.dtype)[0] in ("Y", "M", "W", "D"):
        return value.astype("datetime64[D]").item()
    # NumPy has no zoned type: its instants are UTC wherever we meet them.
    exact = value.astype("datetime64[us]")
    if exact != value:
        raise TypeMismatchError(
            f"{value!r} is finer than a microsecond; round it with .astype('datetime64[us]')"
        )
    return exact.item().replace(tzinfo=dt.UTC)


def _aware(value: dt.datetime) -> dt.datetime | None:
    if value != value:  # pandas' NaT is a datetime unequal to itself.
        return None
    if value.tzinfo is None or value.utcoffset() is None:
        raise TypeMismatchError(
            f"the datetime {value.isoformat(' ')} is naive; give it a zone, "
            "for example value.replace(tzinfo=datetime.timezone.utc)"
        )
    if getattr(value, "nanosecond", 0):
        raise TypeMismatchError(f"{value} is finer than a microsecond; round it with .floor('us')")
    # Rebuilt, so that a subclass with rules of its own (pandas has one) goes no further.
    return dt.datetime.combine(
        dt.date(value.year, value.month, value.day),
        value.time().replace(fold=value.fold),
        tzinfo=value.tzinfo,
    )


def type_of(value: Constant) -> DataType | None:
    """Give the type a constant has by itself; None for NULL.

    Raises
    ------
    TypeMismatchError
        If an integer does not fit int64, or a Decimal 18 digits: the widest types there are.
    """
    match value:
        case None:
            return None
        case bool():
            return DataType.BOOL
        case int():
            if not INT64_MIN <= value <= INT64_MAX:
                raise TypeMismatchError(f"the integer {value} does not fit int64")
            return DataType.INT64
        case float():
            return DataType.FLOAT64
        case decimal.Decimal():
            scale = scale_of(value)
            if scale > DIGITS_MAX or units_of(value, scale) is None:
                raise TypeMismatchError(
                    f"{value} has more than {DIGITS_MAX} digits; round it with .quantize() or float()"
                )
            return DataType.decimal(DIGITS_MAX, scale)
        case str():
            return DataType.STRING
        case bytes():
            return DataType.BYTES
        case dt.datetime():
            return DataType.TIMESTAMP
        case _:
            return DataType.DATE


def physical(value: Constant) -> Scalar:
    """Give the form in which a constant travels: days, microseconds, units, or itself."""
    if isinstance(value, Numeral):
        return float(value)
    if isinstance(value, decimal.Decimal):
        return units_of(value, scale_of(value))
    if isinstance(value, dt.datetime):
        return (value - EPOCH) // _MICROSECOND
    if isinstance(value, dt.date):
        return value.toordinal() - _EPOCH_DAY
    if isinstance(value, str) and not value.isascii():
        _refuse_surrogates(value)
    return value


def _refuse_surrogates(value: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise TypeMismatchError(
            f"text with a lone surrogate at offset {error.start} is not Unicode"
        ) from error


def parse_date(text: str) -> dt.date:
    """Read ``YYYY-MM-DD``, strictly.

    Raises
    ------
    TypeMismatchError
        If `text` is anything else.
    """
    if _DATE.fullmatch(text):
        try:
            return dt.date.fromisoformat(text)
        except ValueError:
            pass  # A day that does not exist is told below, like any other malformed text.
    raise TypeMismatchError(f"the text {text!r} is not a date; write YYYY-MM-DD or pass a datetime.date")


def parse_timestamp(text: str) -> dt.datetime:
    """Read an ISO 8601 instant with a zone, strictly: ``2013-07-04T18:00:00Z``.

    Raises
    ------
    TypeMismatchError
        If `text` is anything else; a text without a zone is naive.
    """
    found = _TIMESTAMP.fullmatch(text)
    if found:
        zone = found["zone"]
        if zone is None:
            raise TypeMismatchError(
                f"the timestamp {text!r} is naive; end it with Z or an offset such as +02:00"
            )
        try:
            moment = dt.datetime.fromisoformat(f"{found['day']}T{found['clock']}{zone}")
            return moment.astimezone(dt.UTC)
        except (ValueError, OverflowError):
            pass  # Told below.
    raise TypeMismatchError(
        f"the text {text!r} is not a timestamp; write 2013-07-04T18:00:00Z or pass a datetime with a zone"
    )


def fit(value: Constant, kind: DataType) -> Scalar:
    """Give the physical value of a constant stored in a column of type `kind`.

    Integers fit wider types and, if nothing is lost, floats and decimals;
    Decimals fit every number type that loses nothing; text becomes a date or
    timestamp; nothing else is converted.

    Raises
    ------
    TypeMismatchError
        If the value is of another type or out of range.
    """
    if value is None:
        return None
    if isinstance(value, Numeral):
        value = value.beside(kind)
    if isinstance(value, decimal.Decimal) and kind.is_number and not kind.is_decimal:
        value = _plain_number(value, kind)
    if kind.is_decimal and isinstance(value, (int, decimal.Decimal)) and not isinstance(value, bool):
        return _fit_decimal(value, kind)
    if isinstance(value, str) and kind is DataType.DATE:
        return physical(parse_date(value))
    if isinstance(value, str) and kind is DataType.TIMESTAMP:
        return physical(parse_timestamp(value))
    if isinstance(value, int) and not isinstance(value, bool):
        if kind.is_integer:
            low, high = INTEGER_RANGE[kind]
            if low <= value <= high:
                return value
            raise TypeMismatchError(
                f"{value} is out of range for {kind.value}, which ends at {low} and {high}"
            )
        if kind.is_float:
            return whole_as_float(value, kind)
    own = type_of(value)
    if isinstance(value, float) and kind is DataType.FLOAT32:
        with np.errstate(over="ignore"):
            narrow = float(np.float32(value))
        if np.isinf(narrow) and not np.isinf(value):
            raise TypeMismatchError(f"{value} is out of range for float32")
        return narrow
    if own is kind:
        return physical(value)
    raise TypeMismatchError(f"{value!r} is {describe(value)}, not {kind.value}{_fix(value, kind)}")


def _fit_decimal(value: int | decimal.Decimal, kind: DataType) -> int:
    units = units_of(value, kind.scale)
    if units is not None and abs(units) < 10**kind.precision:
        return units
    if Fraction(value) * 10**kind.scale % 1:
        step = decimal.Decimal(1).scaleb(-kind.scale)
        raise TypeMismatchError(
            f"{value} has more digits after the point than {kind.value}; "
            f"round it with .quantize(Decimal({str(step)!r}))"
        )
    raise TypeMismatchError(f"{value} is out of range for {kind.value}")


def _plain_number(value: decimal.Decimal, kind: DataType) -> int | float:
    """Give a Decimal as an int or float, exactly."""
    if kind.is_integer and value == value.to_integral_value():
        return int(value)
    if kind.is_float and Fraction(float(value)) == value:
        return float(value)
    what = "whole number" if kind.is_integer else "exact form"
    raise TypeMismatchError(
        f"{value} has no {what} as {kind.value}; round it with {'int' if kind.is_integer else 'float'}(value)"
    )


def whole_as_float(value: int, kind: DataType) -> float:
    """Give an integer as a float of type `kind`, exactly.

    Raises
    ------
    TypeMismatchError
        If it has no exact form there.
    """
    try:
        wide = float(value)
    except OverflowError:
        wide = float("inf")
    with np.errstate(over="ignore"):
        stored = float(np.float32(wide)) if kind is DataType.FLOAT32 else wide
    if np.isinf(stored) or int(stored) != value:
        raise TypeMismatchError(
            f"the integer {value} has no exact form as {kind.value}; pass float(value) to round it"
        )
    return stored


def describe(value: Constant) -> str:
    """Name a constant's type for a message."""
    return "NULL" if value is None else _NAMES[type(value)]


_NAMES: dict[type, str] = {
    bool: "bool",
    int: "int",
    float: "float",
    Numeral: "float",
    decimal.Decimal: "decimal",
    str: "string",
    bytes: "bytes",
    dt.date: "date",
    dt.datetime: "timestamp",
}


def _fix(value: Constant, kind: DataType) -> str:
    if isinstance(value, bytes) and kind is DataType.STRING:
        return "; pass value.decode()"
    if isinstance(value, str) and kind is DataType.BYTES:
        return "; pass value.encode()"
    if isinstance(value, str) and kind.is_number:
        return "; pass a number"
    if isinstance(value, float) and kind.is_decimal:
        return "; pass a Decimal"
    if isinstance(value, float) and kind.is_integer:
        return "; pass an int"
    if isinstance(value, dt.datetime) and kind is DataType.DATE:
        return "; pass value.date()"
    if isinstance(value, dt.date) and kind is DataType.TIMESTAMP:
        return "; pass a datetime with a zone"
    if kind is DataType.STRING:
        return "; pass str(value)"
    return ""


def python_value(kind: DataType, value: Scalar) -> object:
    """Give a physical value as Python has it: dates, timestamps in UTC, and decimals."""
    if value is None:
        return None
    if kind is DataType.DATE:
        return EPOCH.date() + dt.timedelta(days=value)  # type: ignore[arg-type]
    if kind is DataType.TIMESTAMP:
        return EPOCH + dt.timedelta(microseconds=value)  # type: ignore[arg-type]
    if kind.is_decimal:
        return decimal.Decimal(value).scaleb(-kind.scale, _EXACT)  # type: ignore[arg-type]
    return value
