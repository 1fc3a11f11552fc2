"""Payloads decoded together: as one by one, or not at all."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from crescando.engine.statement import (
    Call,
    ColumnRef,
    Kind,
    Projection,
    Shape,
    decode_call,
    decode_parameters,
    encode_call,
    encode_parameters,
)
from crescando.roles.decoding import decode_together
from crescando.routing.batch import Delivery, offsets_of
from crescando.schema import DataType
from crescando.types import FULL_RING, MessageKind, ProcessId

SHOWN = (Projection("a", ColumnRef(0, DataType.INT64)),)
READ = Shape(Kind.READ, 3, 1, projections=SHOWN)
READ_OF_ANOTHER_TABLE = Shape(Kind.READ, 4, 1, projections=SHOWN)
DELETE = Shape(Kind.DELETE, 3, 1)
INSERT = Shape(Kind.INSERT, 3, 1, columns=(0,))
SHAPES = [READ, READ_OF_ANOTHER_TABLE, DELETE]


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


def shape_of(code: int) -> Shape | None:
    return SHAPES[code] if 0 <= code < len(SHAPES) else None


def payload(code: int, *parameters: Any) -> bytes:
    return encode_call(code, encode_parameters(READ, parameters))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_decoded_together_is_what_each_is_alone(seed: int) -> None:
    rng = random.Random(seed)
    values = [None, True, 0, -1, 2**40, 0.5, float("inf"), "", "text", "ä" * 40, "x" * 70_000, b"\x00\xff"]
    codes = [rng.randrange(rng.choice((1, 3))) for _ in range(rng.randint(1, 60))]
    payloads = [payload(code, *rng.choices(values, k=rng.randint(0, 4))) for code in codes]

    found = decode_together(delivery(payloads, [SHAPES[code] for code in codes]), shape_of)

    calls = list(map(decode_call, payloads))
    alone = [(SHAPES[each.shape], decode_parameters(SHAPES[each.shape], each.parameters)) for each in calls]
    assert found == alone
    assert [list(map(type, parameters)) for _, parameters in found or ()] == [
        list(map(type, parameters)) for _, parameters in alone
    ]


def test_a_payload_does_not_take_its_end_from_the_next() -> None:
    whole = payload(0, 1, "text")
    for cut in range(len(whole)):
        pieces = [whole[:cut], whole[cut:] + whole]
        assert decode_together(delivery(pieces, [READ, READ]), shape_of) is None, cut


def test_parameters_do_not_take_their_end_from_the_next() -> None:
    ends = encode_parameters(READ, (1, "text"))
    for cut in range(len(ends)):
        pieces = [encode_call(0, ends[:cut]), encode_call(0, ends[cut:] + ends)]
        assert decode_together(delivery(pieces, [READ, READ]), shape_of) is None, cut


@pytest.mark.parametrize(
    "odd",
    [
        b"",
        b"\xc1",
        payload(0, 1) + b"\x00",
        payload(7, 1),
        payload(-1, 1),
        payload(0, [1, 2]),
        payload(0, np.array([1, 2])),
        encode_call(0, b"\x01"),
        encode_call(0, encode_parameters(READ, (1,)), (Call(2, encode_parameters(DELETE, ())),)),
    ],
)
def test_whatever_is_no_plain_operation_is_looked_at_alone(odd: bytes) -> None:
    for payloads in ([odd], [payload(0, 1), odd], [odd, payload(0, 1)]):
        assert decode_together(delivery(payloads, [READ] * len(payloads)), shape_of) is None


def test_a_header_that_lies_is_looked_at_alone() -> None:
    right, wrong = payload(0, 1), payload(2, 1)
    assert decode_together(delivery([right, wrong], [READ, DELETE]), shape_of) is not None
    assert decode_together(delivery([right, wrong], [READ, READ]), shape_of) is None
    assert decode_together(delivery([right, right], [READ, DELETE]), shape_of) is None
    assert decode_together(delivery([right], [READ_OF_ANOTHER_TABLE]), shape_of) is None


def test_rows_are_looked_at_alone() -> None:
    assert decode_together(delivery([payload(0)], [INSERT]), lambda _: INSERT) is None
