"""Payloads and shapes with some bytes changed: decoded and executed, or refused; nothing else may happen.

A client that is broken or hostile can send whatever it likes. What decoding
refuses, it refuses with the exceptions that the storage role catches; what it
lets pass, the engine executes or fails, operation by operation, without a warning.
"""

from __future__ import annotations

import warnings
from collections import Counter
from random import Random
from typing import Any

import msgspec
import pytest

from crescando.engine.statement import (
    Apply,
    Assignment,
    Column,
    Kind,
    Projection,
    Shape,
    decode_parameters,
    encode_parameters,
)
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.generator import as_column
from tests.engine.workbench import Bench, apply, par, table

REFUSED = (msgspec.MsgspecError, ValueError, IndexError, TypeError, RecursionError)
"""What `roles.storage` takes for a malformed payload."""

MONEY = DataType.decimal(9, 2)
KINDS: tuple[tuple[str, DataType, tuple[Any, ...]], ...] = (
    ("b", DataType.BOOL, (True, False)),
    ("i", DataType.INT8, (-128, 0, 127)),
    ("f", DataType.FLOAT32, (0.5,)),
    ("s", DataType.STRING, ("a", "é\0", "")),
    ("y", DataType.BYTES, (b"", b"\xff")),
    ("d", DataType.DATE, (5,)),
    ("t", DataType.TIMESTAMP, (7,)),
    ("m", MONEY, (12,)),
)
SCHEMA = table(*((name, kind) for name, kind, _ in KINDS))


def mutated(data: bytes, random: Random) -> bytes:
    """Change, drop, add or cut off some bytes."""
    changed = bytearray(data)
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        if not changed:
            break
        at, roll = random.randrange(len(changed)), random.random()
        if roll < 0.6:
            changed[at] = random.randrange(256)
        elif roll < 0.75:
            changed[at] ^= 1 << random.randrange(8)
        elif roll < 0.85:
            del changed[at : at + random.randrange(1, 5)]
        elif roll < 0.95:
            changed[at:at] = random.randbytes(random.randrange(1, 5))
        else:
            del changed[at:]
    return bytes(changed)


def shapes(bench: Bench) -> tuple[Shape, ...]:
    """Give an insert, an upsert, a read and an update that name every type."""
    col = bench.col
    where = Apply(
        "and",
        (
            apply("=", col("s"), par(0, DataType.STRING)),
            apply(">", col("f"), par(1, DataType.FLOAT32)),
            apply("in", col("m"), par(2, MONEY, True)),
            apply("<", col("d"), par(3, DataType.DATE)),
            apply("like", col("s"), par(4, DataType.STRING)),
            apply("<=", col("t"), par(5, DataType.TIMESTAMP)),
            apply("<>", col("y"), par(6, DataType.BYTES)),
            apply("=", col("b"), par(7, DataType.BOOL)),
            apply("=", col("i"), par(8, DataType.INT8)),
        ),
        DataType.BOOL,
    )
    outputs = tuple(Projection(name, col(name)) for name in SCHEMA.column_names)
    assignments = (
        Assignment(col("s").column, par(4, DataType.STRING)),
        Assignment(col("d").column, par(3, DataType.DATE)),
    )
    return (
        Shape(Kind.INSERT, 1, 1, columns=tuple(range(9))),
        Shape(Kind.UPSERT, 1, 1, columns=tuple(range(9))),
        Shape(Kind.READ, 1, 1, where, outputs, limit=par(9, DataType.INT64)),
        Shape(Kind.UPDATE, 1, 1, where, assignments=assignments),
    )


def parameters(shape: Shape, random: Random) -> tuple[Any, ...]:
    """Draw what an honest client would send."""
    if not shape.columns:
        return ("a", 0.5, (1, None, 3), 4, "a%", 6, b"x", True, 3, 5)
    n = random.randrange(9)
    keys = as_column(DataType.INT64, [random.randrange(200) for _ in range(n)])
    columns: list[Column] = [keys]
    for _, kind, values in KINDS:
        columns.append(as_column(kind, [random.choice((None, *values)) for _ in range(n)]))
    return tuple(columns)


@pytest.mark.parametrize("seed", range(8))
def test_a_changed_payload_is_refused_or_executed(seed: int) -> None:
    random, seen = Random(f"payloads {seed}"), Counter[str]()
    bench = Bench(SCHEMA, 8)
    for turn in range(2_000):
        shape = random.choice(shapes(bench))
        payload = mutated(encode_parameters(shape, parameters(shape, random)), random)
        try:
            if random.random() < 0.3:
                shape = Shape.decode(mutated(shape.encode(), random))
            given = decode_parameters(shape, payload)
        except REFUSED:
            seen["refused"] += 1
            continue
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            results = bench.engine.execute([bench.operation(shape, *given)])
            for rows in (rows for each in results for rows in each.rows):
                for column in rows.columns:
                    column.to_list()
            if turn % 50 == 0:
                bench.engine.digest(1, FULL_RING)
        seen["failed" if any(each.failed for each in results) else "executed"] += 1
    print(f"seed {seed}: {dict(seen)}")
    assert min(seen[what] for what in ("refused", "failed", "executed")) >= 50, seen
