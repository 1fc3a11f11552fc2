"""Random tables, shapes and batches for the differential tests.

Domains are small, so that predicates match, keys collide and writes meet the
same rows again; and they hold the values that engines get wrong: NaN, infinities,
both zeros, NUL characters, non-BMP text, the ends of integer types, NULL.
With ``plain`` the grammar keeps to what SQLite computes alike.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np

from crescando.engine.functions import can_cast, result_type
from crescando.engine.statement import (
    PHYSICAL,
    Aggregate,
    Apply,
    Assignment,
    Column,
    ColumnRef,
    Kind,
    Parameter,
    Projection,
    Returned,
    Shape,
    Sort,
    Term,
)
from crescando.schema import ColumnDef, DataType, HashPartition, RangePartition, TableSchema

BOOL, INT64, FLOAT64, STRING = DataType.BOOL, DataType.INT64, DataType.FLOAT64, DataType.STRING
BYTES = DataType.BYTES
DATE, TIMESTAMP = DataType.DATE, DataType.TIMESTAMP
INTEGERS = (DataType.INT8, DataType.INT16, DataType.INT32, INT64)
MONEY, RATE, SHARE = DataType.decimal(9, 2), DataType.decimal(18, 6), DataType.decimal(16, 16)
SUM = DataType.decimal(18, 2)
"""What sums and differences of money are."""
NUMBERS = (*INTEGERS, DataType.FLOAT32, FLOAT64, MONEY, RATE, SHARE)

TEXTS = (
    "",
    "\0",
    "a",
    "a\0",
    "\0a",
    "b",
    "ab",
    "aB",
    "Ab%",
    "a_",
    "\U0001d11e",
    "é",
    "7",
    "-12",
    "1e3",
    "2020-02-29",
)
BLOBS = (b"", b"\0", b"a", b"a\0", b"ab", b"\x80", b"\xff", b"\xff\xff", b"k3", b"1234567\0")
FLOATS = (-math.inf, -1.5, -0.0, 0.0, 0.5, 1.0, 2.5, 7.0, 1e300, math.inf, math.nan, 2.0**53, -(2.0**63))
PATTERNS = ("%", "a%", "%a", "_", "%b%", "a_", "", "%\0%", "__")
KEYS = 700
"""Distinct keys: about twice the rows of a table, so that inserts both fit and collide."""

ROWS_MIN = 345
"""More than five blocks of the smallest block size."""

WEIGHTS = {Kind.READ: 40, Kind.UPDATE: 30, Kind.INSERT: 12, Kind.UPSERT: 10, Kind.DELETE: 8}


class World:
    """One random table's schema and pool of shapes."""

    def __init__(self, random: Random, *, plain: bool) -> None:
        self.random = random
        self.plain = plain
        self.hot = [0]
        self.present: list[int] = []
        self.schema = self._schema()
        self.columns = self.schema.columns
        self.shapes = {
            Kind.READ: [self._read() for _ in range(4)],
            Kind.UPDATE: [self._update() for _ in range(3)],
            Kind.DELETE: [self._delete()],
            Kind.INSERT: [self._bring(Kind.INSERT) for _ in range(2)],
        }
        if self.schema.primary_key:
            self.shapes[Kind.UPSERT] = [self._bring(Kind.UPSERT)]

    def _schema(self) -> TableSchema:
        random = self.random
        key_type = random.choice(
            (INT64, DataType.INT32, STRING, BYTES, MONEY)
            if self.plain
            else (INT64, STRING, BYTES, DATE, FLOAT64, MONEY)
        )
        columns = [ColumnDef("k", key_type, False)]
        primary: tuple[str, ...] = ("k",)
        style = random.random()
        if style < 0.3:
            columns.append(ColumnDef("k2", random.choice((DataType.INT16, STRING)), False))
            primary = ("k", "k2") if random.random() < 0.5 else ("k2", "k")
        elif style < 0.45 and not self.plain:
            primary = ()
        kinds = [
            DataType.INT32,
            FLOAT64,
            STRING,
            BOOL,
            DATE,
            MONEY,
            random.choice((DataType.INT8, TIMESTAMP, INT64, BYTES)),
        ]
        if not self.plain:
            kinds.append(random.choice((DataType.FLOAT32, DataType.INT16, TIMESTAMP, RATE, SHARE, BYTES)))
        random.shuffle(kinds)
        for place, kind in enumerate(kinds[: random.randint(3, 6)]):
            columns.append(ColumnDef(f"c{place}", kind, random.random() < 0.75))
        partition: HashPartition | RangePartition = HashPartition(random.randrange(100))
        if random.random() < 0.5 and key_type is not BYTES:
            partition = self._range_partition(key_type)
        return TableSchema("t", tuple(columns), "k", primary, partition).with_ids(7)

    def _range_partition(self, kind: DataType) -> RangePartition:
        if kind is STRING:
            return RangePartition("k0", f"k{KEYS}")
        if kind.is_float:
            return RangePartition(0.0, float(KEYS))
        return RangePartition(0, KEYS)

    def key_value(self, column: ColumnDef, number: int) -> Any:
        if column.type is STRING:
            return f"k{number}" if column.name == "k" else "xy"[number % 2]
        if column.type is BYTES:
            return b"k%d" % number
        if column.type.is_float:
            return float(number)
        return number % (2 if column.name == "k2" else KEYS) * 10**column.type.scale

    def key_number(self, key: Any) -> int:
        """Give the number that a value of the first key column was made from."""
        return (
            int(key[1:])
            if isinstance(key, (str, bytes))
            else int(key) // 10 ** self.schema.columns[0].type.scale
        )

    def value(self, kind: DataType) -> Any:
        """Give a value of a type; for predicates, assignments and rows alike."""
        random = self.random
        if kind is BOOL:
            return random.random() < 0.5
        if kind is STRING:
            return random.choice(TEXTS)
        if kind is BYTES:
            return random.choice(BLOBS)
        if kind.is_float:
            if self.plain:
                return random.choice((-1.5, -0.0, 0.0, 0.5, 1.0, 2.5, 7.0))
            real = random.choice(FLOATS)
            return real if kind is FLOAT64 else float(np.float32(real)) if abs(real) < 1e38 else 0.25
        if kind in (DATE, TIMESTAMP):
            unit = 1 if kind is DATE else 3_600_000_000
            if not self.plain and random.random() < 0.03:
                return (
                    (2_932_896 if kind is DATE else 253_402_300_799_999_999) if random.random() < 0.5 else 0
                )
            return random.randrange(18_320, 18_330) * (1 if kind is DATE else 24) * unit + (
                0 if kind is DATE else random.randrange(48) * unit
            )
        if kind.is_decimal:
            return self._units(kind)
        if not self.plain and random.random() < 0.04:
            bounds = np.iinfo(PHYSICAL[kind])
            beyond = (2**53, 2**53 + 1) if kind is INT64 else ()
            return int(random.choice((bounds.min, bounds.max, bounds.max - 1, *beyond)))
        return random.randrange(-3, 8)

    def _units(self, kind: DataType) -> int:
        """Give a decimal of few digits, so that it meets integers and floats that are equal to it."""
        most = 10**kind.precision - 1
        if not self.plain and self.random.random() < 0.05:
            return self.random.choice((most, -most, most // 2, 1, -1))
        units = self.random.randrange(-6, 16) * 10**kind.scale // 2
        return max(min(units, most), -most)

    def nullable_value(self, kind: DataType, share: float = 0.12) -> Any:
        return None if self.random.random() < share else self.value(kind)

    # Terms. Parameters are numbered as they are made; their makers wait in `_makers`.

    def _begin(self) -> None:
        self._makers: list[Callable[[], Any]] = []

    def _parameter(
        self, kind: DataType, maker: Callable[[], Any] | None = None, many: bool = False
    ) -> Parameter:
        self._makers.append(maker or (lambda: self.nullable_value(kind, 0.03)))
        return Parameter(len(self._makers) - 1, kind, many)

    def _column_of(self, *kinds: DataType) -> ColumnRef | None:
        found = [column for column in self.columns if column.type in kinds]
        if not found:
            return None
        column = self.random.choice(found)
        return ColumnRef(column.id, column.type)

    def _key_number(self) -> int:
        """Give a key, mostly one that is in the table."""
        if self.present and self.random.random() < 0.8:
            return self.random.choice(self.present)
        return self.random.randrange(KEYS)

    def _key_test(self) -> Term:
        key = self.columns[0]
        reference = ColumnRef(key.id, key.type)
        style = self.random.random()
        maker = lambda: self.key_value(key, self._key_number())  # noqa: E731
        if style < 0.5:
            return Apply("=", (reference, self._parameter(key.type, maker)), BOOL)
        if style < 0.75:
            many = lambda: tuple(maker() for _ in range(self.random.randrange(0, 30)))  # noqa: E731
            return Apply("in", (reference, self._parameter(key.type, many, many=True)), BOOL)
        anchor = [0]

        def begin() -> Any:
            anchor[0] = self._key_number()
            return self.key_value(key, anchor[0])

        low = Apply(">=", (reference, self._parameter(key.type, begin)), BOOL)
        end = self._parameter(key.type, lambda: self.key_value(key, min(anchor[0] + 9, KEYS - 1)))
        return Apply("and", (low, Apply("<", (reference, end), BOOL)), BOOL)

    def _comparison(self) -> Term:
        random = self.random
        column = random.choice(self.columns[1:])
        reference = ColumnRef(column.id, column.type)
        op = random.choice(("=", "=", "=", "<>", "<", "<=", ">", ">=", "in", "in"))
        kind = column.type
        if kind.is_number and not self.plain and random.random() < (0.5 if kind.is_decimal else 0.25):
            kind = random.choice(NUMBERS)
        if op == "in":
            many = lambda: tuple(self.nullable_value(kind, 0.08) for _ in range(random.randrange(0, 4)))  # noqa: E731
            return Apply("in", (reference, self._parameter(kind, many, many=True)), BOOL)
        if random.random() < 0.12:
            # SQLite keeps decimals in units.
            alike = [n for n in NUMBERS if not self.plain or n.is_decimal == column.type.is_decimal]
            other = self._column_of(*(alike if column.type.is_number else (column.type,)))
            if other is not None:
                return Apply(op, (reference, other), BOOL)
        arguments = (reference, self._parameter(kind))
        return Apply(op, arguments if random.random() < 0.85 else arguments[::-1], BOOL)

    def predicate(self, depth: int = 2) -> Term:
        """Give a random predicate."""
        random = self.random
        style = random.random()
        if depth > 0 and style < 0.45:
            op = random.choice(("and", "and", "or"))
            count = random.choice((2, 2, 3))
            return Apply(op, tuple(self.predicate(depth - 1) for _ in range(count)), BOOL)
        if depth > 0 and style < 0.55:
            op = random.choice(("not", "is_true", "is_false", "is_unknown"))
            return Apply(op, (self.predicate(depth - 1),), BOOL)
        if style < 0.62:
            return Apply("is_null", (self._any_term(depth),), BOOL)
        if style < 0.67 and (flag := self._column_of(BOOL)) is not None:
            return flag
        if style < 0.72 and not self.plain and (text := self._column_of(STRING)) is not None:
            return Apply("like", (text, self._parameter(STRING, lambda: random.choice(PATTERNS))), BOOL)
        if style < (0.82 if self.plain else 0.87):
            return self._computed_test(max(depth, 1))
        return self._comparison() if style < 0.96 else self._key_test()

    def _computed_test(self, depth: int) -> Term:
        if not self.plain and self.random.random() < 0.4:
            return self._risky_test()
        kinds = (
            [INT64, FLOAT64, DATE, SUM]
            if self.plain
            else [INT64, FLOAT64, STRING, BYTES, DATE, TIMESTAMP, SUM]
        )
        kind = self.random.choice(kinds)
        left = self.term(kind, depth)
        if not self.plain and self.random.random() < 0.2:
            many = lambda: tuple(self.value(kind) for _ in range(3))  # noqa: E731
            return Apply("in", (left, self._parameter(kind, many, many=True)), BOOL)
        return Apply(self.random.choice(("=", "<", ">=", "<>")), (left, self._parameter(kind)), BOOL)

    def _risky_test(self) -> Term:
        """Give a predicate that is an ERROR on some rows."""
        random = self.random
        whole, text = self._column_of(*NUMBERS), self._column_of(STRING)
        if text is not None and (whole is None or random.random() < 0.3):
            kind = random.choice((INT64, FLOAT64, DATE, MONEY))
            return Apply("<", (Apply("cast", (text,), kind), self._parameter(kind)), BOOL)
        if whole is None:
            return self._comparison()
        kind = FLOAT64 if whole.type.is_float else random.choice((INT64, whole.type))
        if whole.type.is_integer and kind is INT64 and random.random() < 0.3:
            limit = self._parameter(INT64, lambda: 2**63 - random.randrange(1, 9))
            return Apply(">", (Apply("+", (whole, limit), INT64), limit), BOOL)
        ratio = applied(random.choice(("div", "%", "floordiv")), self._parameter(kind), whole)
        return Apply(random.choice(("=", "<>", ">")), (ratio, self._parameter(kind)), BOOL)

    def _any_term(self, depth: int) -> Term:
        column = self.random.choice(self.columns)
        if depth <= 0 or self.random.random() < 0.5:
            return ColumnRef(column.id, column.type)
        return self.term(self.random.choice((INT64, FLOAT64, STRING, BYTES, DATE, BOOL, SUM)), depth - 1)

    def term(self, kind: DataType, depth: int) -> Term:
        """Give a random term of exactly this type."""
        random = self.random
        if kind is BOOL:
            return self.predicate(min(depth, 1))
        if depth <= 0 or random.random() < 0.3:
            found = self._column_of(kind)
            return found if found is not None and random.random() < 0.8 else self._parameter(kind)
        style = random.random()
        if style < 0.12:
            test, other = self.predicate(0), self.term(kind, depth - 1)
            return Apply("case", (test, self.term(kind, depth - 1), other), kind)
        if style < 0.2:
            return Apply("coalesce", (self.term(kind, depth - 1), self.term(kind, depth - 1)), kind)
        if style < 0.26:
            return Apply("nullif", (self.term(kind, depth - 1), self._parameter(kind)), kind)
        if style < 0.45 and not self.plain:
            source = random.choice(
                [k for k in (BOOL, *NUMBERS, STRING, BYTES, DATE, TIMESTAMP) if can_cast(k, kind)]
            )
            column = self._column_of(source)
            if column is not None:
                return Apply("cast", (column,), kind)
        makers: dict[DataType, Callable[[int], Term]] = {
            INT64: self._integer_term,
            FLOAT64: self._float_term,
            STRING: self._string_term,
            BYTES: self._bytes_term,
            DATE: self._date_term,
            TIMESTAMP: self._timestamp_term,
            SUM: self._decimal_term,
        }
        return makers[kind](depth) if kind in makers else self.term(kind, 0)

    def _integer_term(self, depth: int) -> Term:
        random = self.random
        style = random.random()
        if not self.plain and style < 0.15 and (moment := self._column_of(DATE, TIMESTAMP)) is not None:
            parts = ["year", "month", "day", "dow"]
            if moment.type is TIMESTAMP:
                parts += ["hour", "minute", "second"]
            return Apply(f"extract_{random.choice(parts)}", (moment,), INT64)
        if not self.plain and style < 0.25 and (text := self._column_of(STRING, BYTES)) is not None:
            return Apply("length", (text,), INT64)
        if style < 0.32 and (day := self._column_of(DATE)) is not None:
            return Apply("date_diff", (day, self._parameter(DATE)), INT64)
        if style < 0.4:
            return Apply(random.choice(("neg", "abs")), (self.term(INT64, depth - 1),), INT64)
        ops = ("+", "-", "*") if self.plain else ("+", "-", "*", "div", "div", "floordiv", "%", "%")
        left = self._column_of(*INTEGERS) or self.term(INT64, depth - 1)
        right = self.term(INT64, depth - 1) if random.random() < 0.5 else self._parameter(INT64)
        return Apply(random.choice(ops), (left, right), INT64)

    def _float_term(self, depth: int) -> Term:
        random = self.random
        if random.random() < 0.2:
            ops = ("neg", "abs") if self.plain else ("neg", "abs", "floor")
            return Apply(random.choice(ops), (self.term(FLOAT64, depth - 1),), FLOAT64)
        if not self.plain and random.random() < 0.2 and (whole := self._column_of(*INTEGERS)) is not None:
            return Apply("truediv", (whole, self.term(INT64, depth - 1)), FLOAT64)
        if (
            not self.plain
            and random.random() < 0.2
            and (exact := self._column_of(MONEY, RATE, SHARE)) is not None
        ):
            divisor = self.term(random.choice((INT64, SUM)), depth - 1)
            return Apply(random.choice(("div", "truediv")), (exact, divisor), FLOAT64)
        ops = ("+", "-", "*") if self.plain else ("+", "-", "*", "div", "floordiv", "%", "truediv")
        right = self.term(FLOAT64, depth - 1) if random.random() < 0.5 else self._parameter(FLOAT64)
        return Apply(random.choice(ops), (self.term(FLOAT64, depth - 1), right), FLOAT64)

    def _decimal_term(self, depth: int) -> Term:
        random = self.random
        if random.random() < 0.25:
            return Apply(random.choice(("neg", "abs")), (self.term(SUM, depth - 1),), SUM)
        left = self._column_of(MONEY, SUM) or self.term(SUM, depth - 1)
        right = self.term(SUM, depth - 1) if random.random() < 0.5 else self._parameter(MONEY)
        if self.plain:
            return applied(random.choice(("+", "-")), left, right)
        style = random.random()
        if style < 0.3:
            whole = self._column_of(*INTEGERS) or self._parameter(INT64)
            return applied(random.choice(("+", "-", "*", "%")), left, whole)
        if style < 0.45:
            other = self._column_of(RATE, SHARE) or right
            return Apply("cast", (applied("+", left, other),), SUM)
        return applied(random.choice(("+", "-", "%")), left, right)

    def _string_term(self, depth: int) -> Term:
        random = self.random
        if self.plain:
            return self.term(STRING, 0)
        style = random.random()
        if style < 0.4:
            return Apply(random.choice(("lower", "upper")), (self.term(STRING, depth - 1),), STRING)
        if style < 0.7:
            return Apply("concat", (self.term(STRING, depth - 1), self.term(STRING, depth - 1)), STRING)
        return self._part_of(self.term(STRING, depth - 1))

    def _bytes_term(self, depth: int) -> Term:
        if self.plain:
            return self.term(BYTES, 0)
        if self.random.random() < 0.5:
            return Apply("concat", (self.term(BYTES, depth - 1), self.term(BYTES, depth - 1)), BYTES)
        return self._part_of(self.term(BYTES, depth - 1))

    def _part_of(self, text: Term) -> Term:
        count = self._parameter(INT64, lambda: self.random.randrange(-1, 4))
        start = self._parameter(INT64, lambda: self.random.randrange(-1, 4))
        return Apply("substr", (text, start, count), text.type)

    def _date_term(self, depth: int) -> Term:
        if not self.plain and self.random.random() < 0.3:
            op = self.random.choice(("trunc_year", "trunc_month"))
            return Apply(op, (self.term(DATE, depth - 1),), DATE)
        return Apply("date_add", (self.term(DATE, depth - 1), self._parameter(INT64)), DATE)

    def _timestamp_term(self, depth: int) -> Term:
        if self.plain:
            return self.term(TIMESTAMP, 0)
        unit = self.random.choice(("year", "month", "day", "hour", "minute"))
        return Apply(f"trunc_{unit}", (self.term(TIMESTAMP, depth - 1),), TIMESTAMP)

    # Shapes: each comes with a function that makes parameters for it.

    def _narrow(self) -> Term:
        """Give a predicate that tends to match something, but not everything."""
        style = self.random.random()
        if style < 0.4:
            return self._comparison()
        if style < 0.55:
            return self._key_test()
        if style < 0.75:
            return Apply("and", (self._comparison(), self.predicate(1)), BOOL)
        return self.predicate(2)

    def _finish(self, shape: Shape) -> tuple[Shape, Callable[[], tuple[Any, ...]]]:
        makers = tuple(self._makers)
        return shape, lambda: tuple(maker() for maker in makers)

    def _read(self) -> tuple[Shape, Callable[[], tuple[Any, ...]]]:
        self._begin()
        random = self.random
        where = None if random.random() < 0.05 else self._narrow()
        style = random.random()
        if style < 0.35:
            group_by = self._grouping_terms() if style < 0.2 else ()
            # DISTINCT is grouping without aggregates.
            aggregates = () if style < 0.05 else self._aggregates()
            return self._finish(Shape(Kind.READ, 7, 1, where, aggregates=aggregates, group_by=group_by))
        terms: list[Term] = [ColumnRef(self.columns[0].id, self.columns[0].type)]
        terms += [self._any_term(1) for _ in range(random.randrange(1, 4))]
        if style < 0.55:
            random.shuffle(terms)
        outputs = tuple(Projection(f"p{place}", term) for place, term in enumerate(terms))
        if style >= 0.55:
            return self._finish(Shape(Kind.READ, 7, 1, where, outputs))
        order = tuple(
            Sort(output, random.random() < 0.5)
            for output in random.sample(range(len(terms)), random.randrange(len(terms) + 1))
        )
        limit = self._parameter(INT64, lambda: random.choice((0, 1, 2, 5, 20, 1 << 62)))
        return self._finish(Shape(Kind.READ, 7, 1, where, outputs, order=order, limit=limit))

    def _grouping_terms(self) -> tuple[Term, ...]:
        """Give terms of few distinct values, mostly; now and then the key, of as many as there are rows."""
        return tuple(self._any_term(1) for _ in range(self.random.choice((1, 1, 2, 3))))

    def _aggregates(self) -> tuple[Aggregate, ...]:
        random = self.random
        aggregates = [Aggregate("count", None, "n")]
        for place in range(random.randrange(3)):
            function = random.choice(("sum", "avg", "min", "max", "count", "count_distinct"))
            kinds = (
                (INT64, FLOAT64)
                if function in ("sum", "avg")
                else (INT64, FLOAT64, STRING, BYTES, DATE, BOOL)
            )
            if not (self.plain and function == "avg"):
                kinds = (*kinds, SUM)
            aggregates.append(Aggregate(function, self.term(random.choice(kinds), 1), f"a{place}"))
        return tuple(aggregates)

    def _update(self) -> tuple[Shape, Callable[[], tuple[Any, ...]]]:
        self._begin()
        random = self.random
        where = self._narrow()
        free = [column for column in self.columns if column.name not in self.schema.key_columns]
        chosen = random.sample(free, min(random.choice((1, 1, 2)), len(free)))
        assignments = tuple(Assignment(column.id, self._assigned(column)) for column in chosen)
        shape = Shape(Kind.UPDATE, 7, 1, where, assignments=assignments, returning=self._returning())
        return self._finish(shape)

    def _returning(self) -> tuple[Returned, ...]:
        """Give what a write returns: nothing, or columns of the rows before and after it."""
        if self.random.random() < 0.6:
            return ()
        chosen = [self.random.choice(self.columns) for _ in range(self.random.randrange(1, 4))]
        return tuple(
            Returned(f"r{place}", ColumnRef(column.id, column.type), self.random.random() < 0.5)
            for place, column in enumerate(chosen)
        )

    def _assigned(self, column: ColumnDef) -> Term:
        random, kind = self.random, column.type
        own = ColumnRef(column.id, kind)
        style = random.random()
        if style < (0.2 if kind.is_textual else 0.35):
            return self._parameter(kind)
        if kind.is_decimal and style < 0.8:
            return applied("+", own, self._parameter(kind))
        if kind.is_integer and style < 0.8:
            step = self._parameter(INT64, lambda: random.choice((1, 1, -1, 2)))
            return Apply("+", (own, step), INT64)
        if kind.is_float and style < 0.7:
            return Apply("+", (own, self._parameter(FLOAT64)), FLOAT64)
        if kind is BOOL and style < 0.7:
            return Apply("not", (own,), BOOL)
        wide = INT64 if kind.is_integer else FLOAT64 if kind.is_float else kind
        wide = SUM if kind is MONEY else wide
        if self.plain and kind.is_number:
            return self._parameter(kind)  # Products would grow past what SQLite keeps whole.
        if kind.is_textual and not self.plain:
            # A column joined to itself in every batch would double until memory ends.
            first, count = self._parameter(INT64, lambda: 1), self._parameter(INT64, lambda: 6)
            return Apply("substr", (self.term(kind, 2), first, count), kind)
        return self.term(wide, 2)

    def _delete(self) -> tuple[Shape, Callable[[], tuple[Any, ...]]]:
        self._begin()
        key = self._key_test()
        where = key if self.random.random() < 0.6 else Apply("and", (key, self.predicate(1)), BOOL)
        return self._finish(Shape(Kind.DELETE, 7, 1, where, returning=self._returning()))

    def _bring(self, kind: Kind) -> tuple[Shape, Callable[[], tuple[Any, ...]]]:
        keys = [column for column in self.columns if column.name in self.schema.key_columns]
        others = [column for column in self.columns if column.name not in self.schema.key_columns]
        given = keys + [
            column
            for column in others
            if self.random.random() < 0.7
            or (not column.nullable and (self.plain or self.random.random() < 0.8))
        ]
        self.random.shuffle(given)
        shape = Shape(kind, 7, 1, columns=tuple(c.id for c in given), returning=self._returning())
        return shape, lambda: self.rows(given, self.random.choice((1, 1, 2, 5)), 0.06)

    def full_insert(self) -> Shape:
        """Give the shape that inserts every column."""
        return Shape(Kind.INSERT, 7, 1, columns=tuple(column.id for column in self.columns))

    def rows(
        self, given: list[ColumnDef], n_rows: int, faults: float, keys: list[int] | None = None
    ) -> tuple[Column, ...]:
        """Give rows for an insert; with some share of values that a column refuses."""
        numbers = keys or [self._hot_key() for _ in range(n_rows)]
        columns = []
        for column in given:
            if column.name in self.schema.key_columns:
                values = [self.key_value(column, number) for number in numbers]
                if faults and column.name == "k" and self.random.random() < 0.04:
                    values[0] = math.nan if column.type.is_float else None
            else:
                share = 0.15 if column.nullable else faults
                values = [self.nullable_value(column.type, share) for _ in numbers]
            columns.append(as_column(column.type, values))
        return tuple(columns)

    def _hot_key(self) -> int:
        """Give a key that this batch is likely to name again."""
        return self.random.choice(self.hot) if self.random.random() < 0.75 else self._key_number()

    def refill(self, n_rows: int) -> tuple[Shape, tuple[Any, ...]]:
        """Give an insert that brings a table of `n_rows` rows back to more than `ROWS_MIN`."""
        absent = sorted(set(range(KEYS)) - set(self.present))
        keys = self.random.sample(absent, min(ROWS_MIN + 40 - n_rows, len(absent)))
        return self.full_insert(), self.rows(list(self.columns), 0, 0.0, keys)

    def batch(self, size: int) -> list[tuple[Shape, tuple[Any, ...]]]:
        """Give a batch of statements."""
        random = self.random
        self.hot = [random.randrange(KEYS) for _ in range(3)]
        kinds = [kind for kind in Kind if kind in self.shapes]
        weights = [WEIGHTS[kind] for kind in kinds]
        statements = []
        for kind in random.choices(kinds, weights, k=size):
            shape, make = random.choice(self.shapes[kind])
            statements.append((shape, make()))
        return statements


def applied(op: str, left: Term, right: Term) -> Apply:
    """Apply an operator with its result type worked out."""
    return Apply(op, (left, right), result_type(op, (left.type, right.type)))


def as_column(kind: DataType, values: list[Any]) -> Column:
    """Give physical Python values as a `Column`."""
    valid = None
    if None in values:
        valid = np.array([value is not None for value in values])
    if not kind.is_textual:
        filler = False if kind is BOOL else 0
        return Column(kind, np.array([filler if v is None else v for v in values], PHYSICAL[kind]), valid)
    texts = tuple(dict.fromkeys(value for value in values if value is not None))
    code_of = {text: code for code, text in enumerate(texts)}
    codes = [0 if value is None else code_of[value] for value in values]
    return Column(kind, np.array(codes, np.int32), valid, texts)
