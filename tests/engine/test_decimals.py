"""Exact arithmetic of decimals, integers and floats, judged by fractions."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import pytest

from crescando.engine.functions import Cause, result_type
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Apply, Kind, Projection, Shape, Term
from crescando.errors import SpecError, TypeMismatchError
from crescando.schema import DECIMALS, DataType
from crescando.types import FULL_RING
from tests.engine.oracle import half_away
from tests.engine.workbench import Bench, apply, par, table

INT64, FLOAT64, STRING, BOOL = DataType.INT64, DataType.FLOAT64, DataType.STRING, DataType.BOOL
dec = DataType.decimal
MONEY, WIDE, TAX = dec(9, 2), dec(18, 6), dec(4, 3)

MONEY_VALUES = [0, 1, -1, 999_999_999, -999_999_999, 12_345, 250, -250, 249, None]
WIDE_VALUES = [0, 1, -1, 10**18 - 1, 1 - 10**18, 12_345_000, 2_500_000, -2_500_000, 10**12, 3]


def money_bench() -> Bench:
    bench = Bench(table(("a", MONEY), ("b", WIDE), ("n", INT64), ("x", FLOAT64)))
    random = Random(3)
    rows = []
    for key in range(120):
        a = random.choice([*MONEY_VALUES, random.randint(-(10**9) + 1, 10**9 - 1)])
        b = random.choice(
            [*WIDE_VALUES, random.randint(-(10**18) + 1, 10**18 - 1), random.randint(-(10**9), 10**9)]
        )
        n = random.choice([0, 1, -1, 7, -7, 2**63 - 1, -(2**63), 10**12])
        x = random.choice([0.0, 0.1, -0.1, 2.5, 123.45, 1e-30, 1e300, -math.inf, 12.34])
        rows.append((key, a, b, n, x))
    bench.load(*rows)
    bench.rows = rows  # type: ignore[attr-defined]
    return bench


def values_of(bench: Bench, name: str) -> list[Any]:
    """Give a column's values as fractions (floats as they are)."""
    column = bench.schema.column(name)
    place = bench.schema.column_names.index(name)
    listed = [row[place] for row in bench.rows]  # type: ignore[attr-defined]
    if column.type.is_float:
        return listed
    return [None if each is None else Fraction(each, 10**column.type.scale) for each in listed]


def failures(bench: Bench, term: Term) -> set[int]:
    """Give the keys of the rows on which a term is an ERROR, one read per row."""
    found = set()
    for key in range(120):
        where = apply("=", bench.col("k"), par(0, INT64))
        output = type(bench.read_shape(None).projections[0])("v", term)
        results = bench.run(bench.operation(Shape(Kind.READ, 1, 1, where, (output,)), key))
        if results.failed:
            found.add(key)
    return found


def truncated(left: Fraction, right: Fraction) -> Fraction:
    rest = abs(left) % abs(right)
    return -rest if left < 0 else rest


EXACT: dict[str, Callable[[Fraction, Fraction], Fraction]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "floordiv": lambda a, b: Fraction(math.floor(a / b)),
    "%": truncated,
}


@pytest.mark.parametrize("op", EXACT)
@pytest.mark.parametrize(("left", "right"), [("a", "b"), ("b", "a"), ("a", "n"), ("n", "b"), ("a", "a")])
def test_arithmetic_is_exact_or_an_overflow(op: str, left: str, right: str) -> None:
    bench = money_bench()
    term = apply(op, bench.col(left), bench.col(right))
    scale = term.type.scale
    wanted: list[Any] = []
    for a, b in zip(values_of(bench, left), values_of(bench, right), strict=True):
        if a is None or b is None:
            wanted.append(None)
        elif b == 0 and op in ("floordiv", "%"):
            wanted.append("error")
        else:
            units = EXACT[op](a, b) * 10**scale
            assert units.denominator == 1
            wanted.append(int(units) if abs(units) < 10**18 else "error")

    guarded = apply("case", *_guard(bench, wanted), term, par(1, term.type))

    assert bench.compute(guarded, tuple(_keys(wanted)), None) == [None if v == "error" else v for v in wanted]
    assert failures(bench, term) == {key for key, value in enumerate(wanted) if value == "error"}


def _keys(wanted: list[Any]) -> list[int]:
    return [key for key, value in enumerate(wanted) if value != "error"]


def _guard(bench: Bench, wanted: list[Any]) -> list[Term]:
    return [Apply("in", (bench.col("k"), par(0, INT64, True)), BOOL)]


@pytest.mark.parametrize("op", ["div", "truediv"])
@pytest.mark.parametrize(("left", "right"), [("a", "b"), ("b", "a"), ("b", "n"), ("n", "b")])
def test_division_gives_the_nearest_float(op: str, left: str, right: str) -> None:
    bench = money_bench()
    term = apply(op, bench.col(left), bench.col(right))
    pairs = list(zip(values_of(bench, left), values_of(bench, right), strict=True))
    wanted = [
        "error" if b == 0 and a is not None else None if a is None or b is None else float(a / b)
        for a, b in pairs
    ]

    assert term.type is FLOAT64
    guarded = apply("case", *_guard(bench, wanted), term, par(1, FLOAT64))
    assert bench.compute(guarded, tuple(_keys(wanted)), None) == [None if v == "error" else v for v in wanted]


@pytest.mark.parametrize("op", ["=", "<>", "<", "<=", ">", ">="])
@pytest.mark.parametrize(("left", "right"), [("a", "b"), ("a", "x"), ("x", "b"), ("n", "b"), ("a", "n")])
def test_columns_are_compared_as_the_numbers_they_are(op: str, left: str, right: str) -> None:
    bench = money_bench()
    tests: dict[str, Callable[[Any, Any], bool]] = {
        "=": lambda a, b: a == b,
        "<>": lambda a, b: a != b,
        "<": lambda a, b: a < b,
        "<=": lambda a, b: a <= b,
        ">": lambda a, b: a > b,
        ">=": lambda a, b: a >= b,
    }
    pairs = zip(values_of(bench, left), values_of(bench, right), strict=True)
    wanted = [None if a is None or b is None else tests[op](a, b) for a, b in pairs]

    assert bench.compute(apply(op, bench.col(left), bench.col(right))) == wanted


@pytest.mark.parametrize("op", ["=", "<", ">="])
def test_a_constant_of_any_number_type_is_compared_exactly(op: str) -> None:
    bench = money_bench()
    column = values_of(bench, "a")
    for kind, constant, exact in (
        (FLOAT64, 123.45, Fraction(123.45)),
        (FLOAT64, 2.5, Fraction(5, 2)),
        (dec(18, 5), 12_345_000, Fraction(12345, 100)),
        (dec(18, 5), 12_345_001, Fraction(12345001, 100000)),
        (dec(1, 0), 0, Fraction(0)),
        (INT64, 2**63 - 1, Fraction(2**63 - 1)),
        (DataType.INT8, -1, Fraction(-1)),
    ):
        told = bench.read(apply(op, bench.col("a"), par(0, kind)), constant, names=("k",))
        test = {"=": lambda a, c: a == c, "<": lambda a, c: a < c, ">=": lambda a, c: a >= c}[op]
        assert sorted(told) == [k for k, a in enumerate(column) if a is not None and test(a, exact)], constant


def test_in_agrees_with_equality() -> None:
    bench = money_bench()
    column = values_of(bench, "a")
    for kind, items in (
        (MONEY, (0, 250, None)),
        (FLOAT64, (2.5, 123.45, 0.0)),
        (INT64, (0, 7)),
        (WIDE, (2_500_000, 3)),
    ):
        listed = {
            Fraction(each) if kind.is_float else Fraction(each, 10**kind.scale)
            for each in items
            if each is not None
        }
        told = bench.read(Apply("in", (bench.col("a"), par(0, kind, True)), BOOL), items, names=("k",))
        assert sorted(told) == [k for k, a in enumerate(column) if a in listed]


CASTS = [
    (name, target)
    for name in "abnx"
    for target in (MONEY, dec(18, 0), dec(5, 3), dec(18, 18), INT64, DataType.INT8, FLOAT64, STRING)
    if (name, target) != ("x", STRING)  # Floats are not written.
]


@pytest.mark.parametrize(("name", "target"), CASTS)
def test_casts_round_half_away_and_check_digits(name: str, target: DataType) -> None:
    bench = money_bench()
    source = bench.schema.column(name).type
    wanted = [expected_cast(value, source, target) for value in values_of(bench, name)]
    term = apply("cast", bench.col(name), to=target)

    guarded = apply("case", *_guard(bench, wanted), term, par(1, target))

    assert bench.compute(guarded, tuple(_keys(wanted)), None) == [None if v == "error" else v for v in wanted]
    assert failures(bench, term) == {key for key, value in enumerate(wanted) if value == "error"}


def expected_cast(value: Any, source: DataType, target: DataType) -> Any:
    if value is None or source is target:
        return None if value is None else value if source.is_float else int(value * 10**source.scale)
    if target is STRING:
        return written(value, source.scale)
    if target is FLOAT64:
        return float(value)
    if isinstance(value, float) and not math.isfinite(value):
        return "error"
    exact = Fraction(value)
    if target.is_decimal:
        units = half_away(exact * 10**target.scale)
        return units if abs(units) < 10**target.precision else "error"
    whole = math.trunc(exact)
    bits = {INT64: 64, DataType.INT8: 8}[target]
    return whole if -(1 << (bits - 1)) <= whole < 1 << (bits - 1) else "error"


def written(value: Fraction, scale: int) -> str:
    if scale == 0:
        return str(int(value))
    units = abs(int(value * 10**scale))
    return f"{'-' if value < 0 else ''}{units // 10**scale}.{units % 10**scale:0{scale}d}"


@pytest.mark.parametrize(
    ("text", "units"),
    [
        ("12.34", 1_234),
        ("-0.005", -1),
        ("0.0049", 0),
        ("+7", 700),
        (".5", 50),
        ("5.", 500),
        ("1e5", 10_000_000),
        ("1e-9999999999", 0),
        ("0e9999999999", 0),
        ("9999999.99", 999_999_999),
    ],
)
def test_texts_are_read_strictly(text: str, units: int) -> None:
    bench = Bench(table(("t", STRING)))
    bench.load((1, text))

    assert bench.compute(apply("cast", bench.col("t"), to=MONEY)) == [units]


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("", Cause.INVALID_CONVERSION),
        ("1,5", Cause.INVALID_CONVERSION),
        (" 1", Cause.INVALID_CONVERSION),
        ("nan", Cause.INVALID_CONVERSION),
        ("1" * 500, Cause.INVALID_CONVERSION),
        ("\u0661", Cause.INVALID_CONVERSION),
        ("10000000", Cause.OUT_OF_RANGE),
        ("9999999.995", Cause.OUT_OF_RANGE),
        ("1e9999999999", Cause.OUT_OF_RANGE),
    ],
)
def test_texts_that_are_no_such_decimal_are_errors(text: str, cause: Cause) -> None:
    bench = Bench(table(("t", STRING)))
    bench.load((1, text))
    output = type(bench.read_shape(None).projections[0])("v", apply("cast", bench.col("t"), to=MONEY))

    assert bench.failure(bench.operation(Shape(Kind.READ, 1, 1, None, (output,)))).text == cause.text


def test_round_floor_abs_and_negation_keep_to_their_scale() -> None:
    bench = Bench(table(("a", MONEY)))
    values = [0, 5, -5, 149, 150, -150, 250, 999_999_999, -999_999_999]
    bench.load(*enumerate(values))
    a = bench.col("a")

    assert bench.compute(apply("round", a)) == [half_away(Fraction(v, 100)) * 100 for v in values]
    for digits in (1, 2, 5, -1, -7, -8, -30):
        told = bench.compute(apply("round", a, par(0, INT64)), digits)
        lost = max(2 - digits, 0)
        assert told == [half_away(Fraction(v, 10**lost)) * 10**lost for v in values], digits
    assert bench.compute(apply("floor", a)) == [v // 100 for v in values]
    assert bench.compute(apply("abs", a)) == [abs(v) for v in values]
    assert bench.compute(apply("neg", a)) == [-v for v in values]
    assert apply("floor", a).type is dec(18, 0)
    assert apply("abs", a).type is MONEY


def test_a_value_with_too_many_digits_is_rejected() -> None:
    bench = Bench(table(("a", dec(5, 2)), ("n", INT64)))
    written = bench.write(bench.insert((1, 99_999, 1), (2, 100_000, 1), (3, -100_000, 1)))
    assert (written.counts[0].affected, written.counts[0].rejected) == (1, 2)

    grown = apply("+", bench.col("a"), par(0, dec(18, 2)))
    told = bench.write(bench.operation(bench.update_shape(None, a=grown), 1))

    assert told.counts[0].rejection is not None
    assert told.counts[0].rejection.cause == Cause.OUT_OF_RANGE.text


def test_case_and_coalesce_hold_all_their_branches() -> None:
    bench = Bench(table(("a", MONEY), ("n", DataType.INT16)))
    bench.load((1, 250, 7), (2, None, -3))
    either = apply("coalesce", bench.col("a"), bench.col("n"))

    assert either.type is dec(18, 2)
    assert bench.compute(either) == [250, -300]
    assert bench.compute(apply("coalesce", bench.col("a"), par(0, FLOAT64)), 0.5) == [2.5, 0.5]


@pytest.mark.parametrize("engine", [ScanEngine, KvEngine])
def test_what_is_too_large_for_the_type_of_all_branches_is_an_error_and_no_zero(
    engine: type[ScanEngine] | type[KvEngine],
) -> None:
    bench = Bench(table(("a", MONEY), ("n", INT64)))
    bench.engine = engine()  # type: ignore[assignment]
    bench.engine.set_arcs([FULL_RING])
    bench.engine.create_table(bench.schema)
    bench.load((1, 250, 10**17), (2, None, 7), (3, None, 10**17), (4, None, None))
    either = apply("coalesce", bench.col("a"), bench.col("n"))
    small = apply("<", bench.col("k"), par(0, INT64))
    output = Projection("v", either)

    told = bench.failure(bench.operation(Shape(Kind.READ, 1, 1, None, (output,))))
    assert (told.key, told.text) == ((3,), Cause.OUT_OF_RANGE.text)
    assert sorted(bench.answer(bench.operation(Shape(Kind.READ, 1, 1, small, (output,)), 3))) == [250, 700]

    (count,) = bench.write(
        bench.operation(bench.update_shape(None, a=apply("cast", either, to=MONEY)))
    ).counts
    assert (count.affected, count.rejected) == (3, 1)
    assert sorted(bench.read(None, names=("k", "a")))[2] == (3, None), "it keeps what it had"


def test_types_that_cannot_be_are_refused() -> None:
    for precision, scale in ((0, 0), (19, 2), (5, 6), (5, -1)):
        with pytest.raises(SpecError, match="does not exist"):
            dec(precision, scale)
    with pytest.raises(TypeMismatchError, match="digits after the point"):
        result_type("*", (dec(18, 10), dec(18, 9)))
    assert len(DECIMALS) == 189
    assert all(DataType(kind.value) is kind for kind in DECIMALS)
    assert set(DECIMALS).isdisjoint(DataType)
