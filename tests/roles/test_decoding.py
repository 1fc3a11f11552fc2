"""Payloads decoded together: as one by one, or not at all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crescando.engine.constants import as_value
from crescando.engine.operations import Interleaved, Operations
from crescando.engine.statement import (
    Apply,
    Call,
    ColumnRef,
    Kind,
    Parameter,
    Projection,
    Shape,
    decode_call,
    decode_parameters,
    encode_call,
    encode_parameters,
)
from crescando.engine.values import from_column
from crescando.roles.bunches import Bunch
from crescando.roles.decoding import RUN_MIN, decode_together
from crescando.roles.shapes import KnownShape, Shapes
from crescando.routing.batch import Delivery, offsets_of
from crescando.schema import DataType
from crescando.types import FULL_RING, MessageKind, ProcessId

SHOWN = (Projection("a", ColumnRef(0, DataType.INT64)),)
READ = Shape(Kind.READ, 3, 1, projections=SHOWN)
READ_OF_ANOTHER_TABLE = Shape(Kind.READ, 4, 1, projections=SHOWN)
DELETE = Shape(Kind.DELETE, 3, 1)
INSERT = Shape(Kind.INSERT, 3, 1, columns=(0,))
NOTHING = Bunch(READ, (), 0)
BY_KEY = Apply("=", (ColumnRef(0, DataType.INT64), Parameter(0, DataType.INT64)), DataType.BOOL)
SHAPES = [
    READ,
    READ_OF_ANOTHER_TABLE,
    DELETE,
    Shape(Kind.READ, 3, 1, where=BY_KEY, projections=SHOWN),
    Shape(Kind.DELETE, 3, 1, where=BY_KEY),
]
KNOWN = [Shapes(9, 1 << 20).of(shape.encode()) for shape in SHAPES]


def delivery(payloads: Sequence[bytes], shapes: Sequence[Shape]) -> Delivery:
    """Give payloads as a delivery whose headers tell the truth about these shapes."""
    n = len(payloads)
    kinds = [MessageKind.READ if shape.kind is Kind.READ else MessageKind.WRITE for shape in shapes]
    return Delivery(
        sender=ProcessId("client", "c", 1),
        number=np.arange(1, n + 1),
        position=np.arange(n),
        kind=np.array(kinds, np.uint8),
        table=np.array([shape.table for shape in shapes]),
        scope=np.zeros(n, np.int64),
        scopes=((FULL_RING,),),
        payload_offsets=offsets_of(list(map(len, payloads))),
        payload=b"".join(payloads),
        shared=b"",
    )


def shape_of(code: int) -> KnownShape | None:
    return KNOWN[code] if 0 <= code < len(KNOWN) else None


def payload(code: int, *parameters: Any) -> bytes:
    return encode_call(code, encode_parameters(READ, parameters))


def alone(payloads: Sequence[bytes]) -> list[tuple[int, int, Shape, tuple[Any, ...]]]:
    """Give what each payload says."""
    found = []
    for place, each in enumerate(payloads):
        call = decode_call(each)
        shape = SHAPES[call.shape]
        found.append((place, place + 1, shape, decode_parameters(shape, call.parameters)))
    return found


def together(bunches: list[Bunch] | None) -> list[tuple[int, int, Shape, tuple[Any, ...]]]:
    """Give what was decoded together, in order."""
    assert bunches is not None
    parts, places = tuple(bunch.work for bunch in bunches), tuple(bunch.places for bunch in bunches)
    found = Interleaved(parts, places).split()
    return [(each.position, each.number, each.shape, each.parameters) for each in found]


def typed(rows: list[tuple[int, int, Shape, tuple[Any, ...]]]) -> list[list[type]]:
    return [list(map(type, parameters)) for *_, parameters in rows]


VALUES: dict[DataType, list[Any]] = {
    DataType.BOOL: [True, False],
    DataType.INT8: [0, 1, -1, 31, -32, -33, 127, -128],
    DataType.INT16: [0, 128, 255, 256, -129, 32767, -32768],
    DataType.INT32: [5, 65535, 65536, -32769, 2**31 - 1, -(2**31)],
    DataType.INT64: [0, 127, 128, 2**16, 2**32 - 1, 2**32, 2**63 - 1, -(2**63), -1],
    DataType.FLOAT32: [0.5, -0.0, float("inf")],
    DataType.FLOAT64: [0.1, -0.0, 1e308, float("-inf")],
    DataType.STRING: ["", "a", "a\0", "ä" * 16, "x" * 31, "y" * 32, "z" * 300, "€" * 30_000],
    DataType.BYTES: [b"", b"\x00\xff", b"b" * 256, b"c" * 70_000],
    DataType.DATE: [0, -1, 20_000],
    DataType.TIMESTAMP: [0, 1_700_000_000_000_000],
    DataType.decimal(9, 2): [0, 999, -(10**9 - 1)],
}
LAYOUTS = [tuple(random.Random(seed).choices([*VALUES], k=seed)) for seed in range(20)]


def known(*layout: DataType, kind: Kind = Kind.READ) -> Shape:
    """Give a shape that has parameters of these types."""
    tests = tuple(
        Apply("is_null", (Parameter(index, each),), DataType.BOOL) for index, each in enumerate(layout)
    )
    return Shape(kind, 3, 1, where=Apply("and", tests, DataType.BOOL), projections=SHOWN)


@pytest.mark.parametrize("layout", LAYOUTS, ids=len)
def test_a_run_is_what_each_of_its_operations_is_alone(layout: tuple[DataType, ...]) -> None:
    rng = random.Random(repr(layout))
    shape, nulls = known(*layout), rng.choice((0.0, 0.3))
    rows = [
        tuple(None if rng.random() < nulls else rng.choice(VALUES[kind]) for kind in layout)
        for _ in range(40)
    ]
    shapes = Shapes(9, 1 << 20)
    payloads = [payload(0, *row) for row in rows]

    whole = delivery(payloads, [shape] * 40)
    (bunch,) = decode_together(whole, lambda _: shapes.of(shape.encode())) or [NOTHING]

    assert isinstance(bunch.work, Operations)
    assert list(map(repr, bunch.work.rows())) == list(map(repr, rows))
    for column, kind in zip(bunch.work.parameters, layout, strict=True):
        value = as_value(column.to_list(), kind)
        assert from_column(column).data.dtype.kind == value.data.dtype.kind


@pytest.mark.parametrize("seed", range(20))
def test_what_is_decoded_together_is_what_each_is_alone(seed: int) -> None:
    rng = random.Random(seed)
    values: list[Any] = [
        [],
        [1, None],
        ["a", "b"],
        None,
        True,
        0,
        -1,
        2**40,
        0.5,
        float("inf"),
        "",
        "text",
        "ä" * 40,
        "x" * 70_000,
        b"\x00\xff",
    ]
    codes = [rng.choice((0, 2, 3, 4)) for _ in range(rng.randint(RUN_MIN, 60))]
    some: list[tuple[Any, ...]] = [(rng.randrange(9),) for _ in codes]
    if seed % 2:
        some = [tuple(rng.choices(values, k=rng.randint(0, 4))) for _ in codes]
    payloads = [payload(code, *row) for code, row in zip(codes, some, strict=True)]

    found = together(decode_together(delivery(payloads, [SHAPES[code] for code in codes]), shape_of))

    assert found == alone(payloads)
    assert typed(found) == typed(alone(payloads))


@pytest.mark.parametrize(
    ("kind", "odd"),
    [
        (DataType.INT64, 1.0),
        (DataType.INT64, True),
        (DataType.INT64, 2**63),
        (DataType.INT64, "1"),
        (DataType.INT8, 128),
        (DataType.FLOAT64, 1),
        (DataType.FLOAT32, 0.1),
        (DataType.STRING, b"a"),
        (DataType.BYTES, "a"),
        (DataType.BOOL, 1),
    ],
)
def test_what_has_another_type_stands_alone_beside_the_others(kind: DataType, odd: Any) -> None:
    shape = known(kind)
    (entry,) = [Shapes(9, 1 << 20).of(shape.encode())]
    rows = [(value,) for value in (VALUES[kind] * RUN_MIN)[:RUN_MIN]] + [(odd,)]

    (bunch,) = decode_together(
        delivery([payload(0, *row) for row in rows], [shape] * len(rows)), lambda _: entry
    ) or [NOTHING]

    assert isinstance(bunch.work, tuple)
    assert [each.parameters for each in bunch.work] == rows
    assert typed([(0, 0, shape, each.parameters) for each in bunch.work]) == [[type(row[0])] for row in rows]


def test_too_many_or_too_few_parameters_stand_alone() -> None:
    for rows in ([(1,)] * 20 + [(1, 2)], [(1,)] * 20 + [()]):
        (bunch,) = decode_together(
            delivery([payload(3, *row) for row in rows], [SHAPES[3]] * 21), shape_of
        ) or [NOTHING]
        assert isinstance(bunch.work, tuple)
        assert [each.parameters for each in bunch.work] == rows


def test_few_messages_are_looked_at_alone() -> None:
    assert decode_together(delivery([payload(0)] * (RUN_MIN - 1), [READ] * (RUN_MIN - 1)), shape_of) is None


def test_shapes_of_few_messages_stand_alone_beside_runs() -> None:
    codes = [3, 4] * 3 + [3] * 20
    payloads = [payload(code, place) for place, code in enumerate(codes)]

    bunches = decode_together(delivery(payloads, [SHAPES[code] for code in codes]), shape_of) or []

    assert [type(bunch.work) for bunch in bunches] == [Operations, tuple]
    assert together(bunches) == alone(payloads)


def test_a_payload_does_not_take_its_end_from_the_next() -> None:
    whole, others = payload(3, 1), [payload(3, 2)] * RUN_MIN
    for cut in range(len(whole)):
        pieces = [whole[:cut], whole[cut:] + whole, *others]
        assert decode_together(delivery(pieces, [SHAPES[3]] * len(pieces)), shape_of) is None, cut


@pytest.mark.parametrize("kind", [DataType.INT64, DataType.STRING])
def test_parameters_do_not_take_their_end_from_the_next(kind: DataType) -> None:
    shape = known(kind, kind)
    entry = Shapes(9, 1 << 20).of(shape.encode())
    row = (2**40, 300) if kind is DataType.INT64 else ("text", "x" * 40)
    ends, others = encode_parameters(READ, row), [payload(0, *row)] * RUN_MIN
    for cut in range(len(ends)):
        pieces = [encode_call(0, ends[:cut]), encode_call(0, ends[cut:] + ends), *others]
        assert decode_together(delivery(pieces, [shape] * len(pieces)), lambda _: entry) is None, cut


def test_lengths_that_lie_take_no_memory() -> None:
    shape = known(DataType.STRING)
    entry = Shapes(9, 1 << 20).of(shape.encode())
    liar = encode_call(0, b"\x91\xdb\x7f\xff\xff\xff")
    assert decode_together(delivery([liar] * 500, [shape] * 500), lambda _: entry) is None


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"\xc1",
        payload(0, 1) + b"\x00",
        payload(7, 1),
        payload(-1, 1),
        payload(0, np.array([1, 2])),
        payload(0, [np.array([1, 2])]),
        payload(0, [[1]]),
        encode_call(0, b"\x01"),
        encode_call(0, b"\x91\xa2\xff\xfe"),
        encode_call(2**40, b"\x90"),
        encode_call(0, encode_parameters(READ, (1,)), (Call(2, encode_parameters(DELETE, ())),)),
    ],
)
def test_whatever_is_no_plain_operation_is_looked_at_alone(odd: bytes) -> None:
    others = [payload(0, 1)] * RUN_MIN
    for payloads in ([odd, *others], [*others, odd], [*others, odd, *others]):
        assert decode_together(delivery(payloads, [READ] * len(payloads)), shape_of) is None


def test_a_header_that_lies_is_looked_at_alone() -> None:
    right, wrong = [payload(0, 1)] * RUN_MIN, payload(2, 1)
    reads = [READ] * RUN_MIN
    assert decode_together(delivery([*right, wrong], [*reads, DELETE]), shape_of) is not None
    assert decode_together(delivery([*right, wrong], [*reads, READ]), shape_of) is None
    assert decode_together(delivery([*right, right[0]], [*reads, DELETE]), shape_of) is None
    assert decode_together(delivery(right, [*reads[1:], READ_OF_ANOTHER_TABLE]), shape_of) is None


def test_rows_are_looked_at_alone() -> None:
    payloads = [payload(0)] * RUN_MIN
    entry = KnownShape(INSERT, None)
    assert decode_together(delivery(payloads, [INSERT] * RUN_MIN), lambda _: entry) is None


def test_which_shapes_make_runs() -> None:
    shapes = Shapes(9, 1 << 20)

    def layout(shape: Shape) -> tuple[DataType, ...] | None:
        found = shapes.of(shape.encode())
        return None if found is None else found.layout

    assert layout(known(DataType.INT64, DataType.STRING)) == (DataType.INT64, DataType.STRING)
    assert layout(READ) == ()
    assert layout(INSERT) is None
    gap = Apply("is_null", (Parameter(1, DataType.INT64),), DataType.BOOL)
    assert layout(Shape(Kind.READ, 3, 1, where=gap, projections=SHOWN)) is None
    both = Apply(
        "and", (gap, Apply("is_null", (Parameter(1, DataType.STRING),), DataType.BOOL)), DataType.BOOL
    )
    assert layout(Shape(Kind.READ, 3, 1, where=both, projections=SHOWN)) is None
    many = Apply("in", (ColumnRef(0, DataType.INT64), Parameter(0, DataType.INT64, many=True)), DataType.BOOL)
    assert layout(Shape(Kind.READ, 3, 1, where=many, projections=SHOWN)) is None
