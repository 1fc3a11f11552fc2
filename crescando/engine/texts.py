"""Functions of strings, computed once per distinct text and never once per row.

Rules of the file: code points everywhere; LIKE is case-sensitive, takes any
pattern (``%`` any run, ``_`` one code point, nothing is an escape) and never
backtracks, so that no pattern is slow; conversions from text are strict.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine import kernels
from crescando.engine.decimals import read, write
from crescando.engine.dictionary import Pool
from crescando.engine.functions import TEXT_MAX, TIMESTAMP_MAX, TIMESTAMP_MIN, Cause
from crescando.engine.heap import Texts
from crescando.engine.keys import I64, Mask
from crescando.engine.statement import PHYSICAL
from crescando.engine.values import Errors, distinct_codes, raised
from crescando.schema import DataType

Array = NDArray[Any]

_INTEGER = re.compile(r"[+-]?[0-9]+", re.ASCII)
_NUMBER = re.compile(r"[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_SPECIAL = re.compile(r"[+-]?(inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_DATE = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_TIMESTAMP = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2})[T ]([0-9]{2}:[0-9]{2})(:[0-9]{2}(\.[0-9]{1,6})?)?"
    r"(Z|[+-][0-9]{2}:[0-9]{2})",
    re.ASCII,
)
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def used_texts(pool: Pool, codes: Array) -> tuple[list[Any], I64]:
    """Give the distinct texts among some rows and each row's index into them."""
    if len(pool) <= len(codes):
        return pool.texts.to_list(), codes.astype(np.int64, copy=False)
    used, index = np.unique(codes, return_inverse=True)
    return pool.decode(used), index


def map_texts(pool: Pool, codes: Array, function: Callable[[str], str]) -> tuple[Pool, I64]:
    """Apply a function to every text; results get a pool of their own."""
    texts, index = used_texts(pool, codes)
    target = Pool()
    return target, target.intern(map(function, texts))[index]


def lengths(pool: Pool, codes: Array) -> I64:
    """Give lengths in code points (or bytes)."""
    used, index = np.unique(codes, return_inverse=True)
    return pool.take(used).lengths_in_points()[index]


def concatenate_texts(
    left: Pool, left_codes: Array, right: Pool, right_codes: Array
) -> tuple[Pool, I64, Errors | None]:
    """Join texts row by row, once per distinct pair; longer ones than `TEXT_MAX` overflow."""
    a, b = np.broadcast_arrays(left_codes.astype(np.int64), right_codes.astype(np.int64))
    pairs, index = np.unique(a * len(right) + b, return_inverse=True)
    target = Pool(binary=left.binary)
    nothing: Any = b"" if left.binary else ""
    couples = list(zip(left.decode(pairs // len(right)), right.decode(pairs % len(right)), strict=True))
    long = np.array([len(head) + len(tail) > TEXT_MAX for head, tail in couples], np.bool_)
    joined = (nothing if over else head + tail for (head, tail), over in zip(couples, long, strict=True))
    codes = target.intern(joined)[index]
    return target, codes, raised(long[index], Cause.OVERFLOW)


def substrings(
    pool: Pool, codes: Array, starts: Array, counts: Array | None
) -> tuple[Pool, I64, Errors | None]:
    """Give code points (or bytes) ``start …`` (from 1), at most `counts` of them, clipped to the text.

    A negative count is an error.
    """
    shape = np.broadcast_shapes(codes.shape, starts.shape, () if counts is None else counts.shape)
    rows = [np.broadcast_to(codes, shape).tolist(), np.broadcast_to(starts, shape).tolist()]
    ends = [None] * shape[0] if counts is None else np.broadcast_to(counts, shape).tolist()
    error = np.zeros(shape, np.uint8)
    if counts is not None:
        error = np.broadcast_to(counts < 0, shape).astype(np.uint8) * np.uint8(Cause.INVALID_ARGUMENT)

    used, index = used_texts(pool, np.broadcast_to(codes, shape))
    rows[0] = index.tolist()

    def cut(place: int, start: int, count: int | None) -> Any:
        first = max(start, 1) - 1
        return used[place][first : None if count is None else max(start + max(count, 0) - 1, 0)]

    known: dict[tuple[Any, ...], Any] = {}
    texts = []
    for key in zip(*rows, ends, strict=True):
        text = known.get(key)
        if text is None:
            text = known[key] = cut(*key)
        texts.append(text)
    target = Pool(binary=pool.binary)
    return target, target.intern(texts), error if error.any() else None


def like_matcher(pattern: str) -> Callable[[str], bool]:
    """Compile a LIKE pattern to a matcher whose time is bounded by length times pattern.

    The pieces between ``%`` are found left to right, each at its first place;
    that is right because each takes the least it can.
    """
    pieces = pattern.split("%")
    if len(pieces) == 1:
        whole = _piece(pattern)
        return lambda text: whole.fullmatch(text) is not None
    first, last = _piece(pieces[0]), _piece(pieces[-1])
    middle = [_piece(piece) for piece in pieces[1:-1] if piece]
    n_first, n_last = len(pieces[0]), len(pieces[-1])

    def matches(text: str) -> bool:
        end = len(text) - n_last
        if end < n_first or first.match(text) is None or last.match(text, end) is None:
            return False
        at = n_first
        for piece in middle:
            found = piece.search(text, at, end)
            if found is None:
                return False
            at = found.end()
        return True

    return matches


def _piece(text: str) -> re.Pattern[str]:
    """Compile a piece without ``%``: fixed length, so that a search is linear in the text."""
    return re.compile("".join("." if c == "_" else re.escape(c) for c in text), re.DOTALL)


def like(pool: Pool, codes: Array, patterns: Pool, pattern_codes: Array) -> NDArray[np.bool_]:
    """Give where texts match patterns, row by row."""
    if len(pattern_codes) == 1:
        (pattern,) = patterns.decode(pattern_codes)
        ends = literal_ends(pattern)
        if ends is not None:
            return _has_ends(pool, codes, *ends)
        matches = like_matcher(pattern)
        texts, index = used_texts(pool, codes)
        return np.fromiter(map(matches, texts), np.bool_, len(texts))[index]
    a, b = np.broadcast_arrays(codes.astype(np.int64), pattern_codes.astype(np.int64))
    pairs, index = np.unique(b * len(pool) + a, return_inverse=True)
    chosen, number = np.unique(pairs // len(pool), return_inverse=True)
    pieces = patterns.decode(chosen)
    demands = [literal_ends(pattern) for pattern in pieces]
    simple = np.array([each is not None and each[1] is not None for each in demands], np.bool_)[number]
    result = np.zeros(len(pairs), np.bool_)
    sought = pairs % len(pool)
    heads, tails = ([each[part] or "" if each else "" for each in demands] for part in (0, 1))
    result[simple] = _begin_and_end(pool, sought[simple], heads, tails, number[simple])
    others = (~simple).nonzero()[0]
    current, matches = -1, like_matcher("")
    for place, text in zip(others.tolist(), pool.decode(sought[others]), strict=True):
        if number[place] != current:
            current = int(number[place])
            matches = like_matcher(pieces[current])
        result[place] = matches(text)
    return result[index]


def literal_ends(pattern: str) -> tuple[str, str | None] | None:
    """Give the beginning and the end that a LIKE pattern demands, if it demands nothing else.

    The end is None for a pattern without wildcards, which is the whole text.
    """
    pieces = pattern.split("%")
    if "_" in pattern or len(pieces) > 2:
        return None
    return pieces[0], pieces[1] if len(pieces) == 2 else None


def literal_heads(patterns: Pool) -> tuple[I64, Mask, Mask]:
    """Give how LIKE patterns begin, by their codes.

    Returns
    -------
    n_bytes : ndarray of int64, shape (len(patterns),)
        How many bytes stand before the first wildcard.
    is_whole : ndarray of bool
        Whether there is no wildcard.
    is_settled : ndarray of bool
        Whether the pattern demands nothing else: it has no wildcard, or one ``%`` at its end.
    """
    texts = patterns.texts
    starts, lengths = texts.starts, texts.lengths
    # Wildcards are ASCII, and so no part of another code point.
    heap = np.append(texts.heap, np.uint8(ord("%")))
    wildcards = ((heap == ord("%")) | (heap == ord("_"))).nonzero()[0]
    first = wildcards[np.searchsorted(wildcards, starts)]
    n_bytes = np.minimum(first - starts, lengths)
    is_whole = n_bytes == lengths
    return n_bytes, is_whole, is_whole | ((n_bytes + 1 == lengths) & (heap[first] == ord("%")))


def like_bounds(pool: Pool, patterns: Pool) -> tuple[I64, I64]:
    """Give for each pattern the closed interval of a pool's ranks outside which nothing matches it.

    Returns
    -------
    low, high : ndarray of int64, shape (len(patterns),)
        By the patterns' codes; empty where ``low > high``. Everything inside matches a
        pattern that is settled by its head; see `literal_heads`.
    """
    n_bytes, is_whole, _ = literal_heads(patterns)
    low, high = pool.spans_of(patterns.texts, patterns.texts.starts, n_bytes, ~is_whole)
    return low, high - 1


def _has_ends(pool: Pool, codes: Array, beginning: str, end: str | None) -> NDArray[np.bool_]:
    """Give where texts begin and end with literals, which do not overlap; None: where they are equal."""
    if end is None:
        equal: NDArray[np.bool_] = codes == pool.find(beginning)
        return equal
    used, index = distinct_codes(codes, len(pool))
    matching = _begin_and_end(pool, used, [beginning], [end], np.zeros(len(used), np.int64))
    spread: NDArray[np.bool_] = matching[index]
    return spread


def _begin_and_end(
    pool: Pool, codes: I64, heads: list[str], tails: list[str], number: I64
) -> NDArray[np.bool_]:
    """Give where each text begins with ``heads[number]`` and ends, after that, with ``tails[number]``."""
    heap, starts, sizes = pool.slices(codes)
    stops = starts + sizes
    literals = [Texts.of(each) for each in (heads, tails)]
    head, tail = (each.lengths[number] for each in literals)
    matching: NDArray[np.bool_] = sizes >= head + tail
    equal_slices = kernels.active().texts.equal_slices
    for literal, begins, spans in ((literals[0], starts, head), (literals[1], stops - tail, tail)):
        at = matching.nonzero()[0]
        firsts = literal.starts[number[at]]
        same = equal_slices(heap, begins[at], spans[at], literal.heap, firsts, spans[at])
        matching[at[~same]] = False
    return matching


def from_exact(values: Array, scale: int) -> tuple[Pool, I64]:
    """Write integers, or decimals of some scale, each distinct one once."""
    used, index = np.unique(values, return_inverse=True)
    target = Pool()
    return target, target.intern(write(units, scale) for units in used.tolist())[index]


def parse(pool: Pool, codes: Array, target: DataType) -> tuple[Array, Errors | None]:
    """Read numbers, dates or timestamps from text, strictly."""
    texts, index = used_texts(pool, codes)
    dtype = PHYSICAL[target]
    data = np.zeros(len(texts), dtype)
    error = np.zeros(len(texts), np.uint8)
    for place, text in enumerate(texts):
        parsed = parse_text(text, target)
        if isinstance(parsed, Cause):
            error[place] = parsed
        else:
            data[place] = parsed
    return data[index], error[index] if error.any() else None


def parse_text(text: str, target: DataType) -> int | float | Cause:
    """Read one text as a physical value, or say why it cannot be."""
    if target.is_integer:
        # Longer than any int64, and a bound for the cost of reading it.
        if len(text) > 400 or _INTEGER.fullmatch(text) is None:
            return Cause.INVALID_CONVERSION
        number = int(text)
        bounds = np.iinfo(PHYSICAL[target])
        return number if bounds.min <= number <= bounds.max else Cause.OUT_OF_RANGE
    if target.is_float:
        return _parse_float(text, target)
    if target.is_decimal:
        return read(text, target)
    try:
        return _parse_moment(text, target)
    except (ValueError, OverflowError):
        return Cause.INVALID_CONVERSION


def _parse_float(text: str, target: DataType) -> float | Cause:
    if len(text) > 400:
        return Cause.INVALID_CONVERSION
    if _SPECIAL.fullmatch(text) is not None:
        return float(text)
    if _NUMBER.fullmatch(text) is None:
        return Cause.INVALID_CONVERSION
    with np.errstate(over="ignore"):
        number = float(PHYSICAL[target].type(float(text)))
    return Cause.OVERFLOW if number in (float("inf"), float("-inf")) else number


def _parse_moment(text: str, target: DataType) -> int | Cause:
    if target is DataType.DATE:
        if _DATE.fullmatch(text) is None:
            return Cause.INVALID_CONVERSION
        return date.fromisoformat(text).toordinal() - _EPOCH.toordinal()
    found = _TIMESTAMP.fullmatch(text)
    if found is None:
        return Cause.INVALID_CONVERSION
    day, minute, second, fraction, zone = found.groups()
    seconds = (second or ":00")[:3]
    micros = (fraction or ".0")[1:].ljust(6, "0")
    offset = "+00:00" if zone == "Z" else zone
    moment = datetime.fromisoformat(f"{day}T{minute}{seconds}.{micros}{offset}")
    delta = moment - _EPOCH
    micros_total = (delta.days * 86_400 + delta.seconds) * 1_000_000 + delta.microseconds
    in_calendar = TIMESTAMP_MIN <= micros_total <= TIMESTAMP_MAX
    return micros_total if in_calendar else Cause.OUT_OF_RANGE
