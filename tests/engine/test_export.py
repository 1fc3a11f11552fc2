"""Rows of a ring range, copied as runs or row by row, are those that a read gives."""

from __future__ import annotations

import pytest

from crescando.engine import export
from crescando.engine.digest import combine
from crescando.engine.statement import Kind, Shape
from crescando.schema import DataType
from crescando.types import FULL_RING, RING_MAX, KeyRange
from tests.engine.workbench import Bench, apply, par, table

STRING, BYTES, INT64 = DataType.STRING, DataType.BYTES, DataType.INT64

N_ROWS = 700
HALF = RING_MAX // 2
LOW, HIGH = KeyRange(0, HALF), KeyRange(HALF + 1, RING_MAX)


@pytest.fixture
def bench() -> Bench:
    """Give a table with NULL, few and many texts, and rows that died."""
    made = Bench(table(("few", STRING), ("many", BYTES), ("n", INT64)))
    made.load(
        *(
            (k, None if k % 5 == 0 else "ab\0"[: k % 4], b"%d" % k if k % 3 else None, k)
            for k in range(N_ROWS)
        )
    )
    where = apply("<", made.col("n"), par(0, INT64))
    made.run(made.operation(Shape(Kind.DELETE, 1, 1, where), 30))
    return made


def rows_of(bench: Bench, key_range: KeyRange) -> list[tuple[object, ...]]:
    columns = [column.to_list() for column in bench.engine.export(1, key_range)]
    return list(zip(*columns, strict=True))


@pytest.mark.parametrize("run_rows", [0, export.RUN_ROWS, 1 << 40])
def test_halves_are_the_whole(bench: Bench, run_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "RUN_ROWS", run_rows)
    low, high = rows_of(bench, LOW), rows_of(bench, HIGH)
    assert low
    assert high
    stored = sorted(bench.read(None), key=lambda row: row[0])
    assert sorted(low + high, key=lambda row: row[0]) == stored  # type: ignore[arg-type, return-value]
    assert len(stored) == N_ROWS - 30
    digests = [bench.engine.digest(1, key_range) for key_range in (LOW, HIGH, FULL_RING)]
    assert combine(digests[:2]) == digests[2]


KINDS = [kind for kind in DataType if not kind.is_decimal] + [DataType.decimal(7, 2), DataType.decimal(18, 3)]


@pytest.mark.parametrize("run_rows", [0, 1 << 40])
def test_every_type_is_exported_with_its_nulls(run_rows: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(export, "RUN_ROWS", run_rows)
    made = Bench(table(*((f"c{place}", kind) for place, kind in enumerate(KINDS))))
    some = {DataType.STRING: "x", DataType.BYTES: b"x", DataType.BOOL: True}
    rows = [
        (k, *(None if (k + place) % 3 == 0 else some.get(kind, 1) for place, kind in enumerate(KINDS)))
        for k in range(60)
    ]
    made.load(*rows)
    assert sorted(rows_of(made, LOW) + rows_of(made, HIGH)) == rows
    for column in made.engine.export(1, LOW)[1:]:
        assert column.valid is not None
        # Nothing that a row had before it was NULL is told.
        assert not column.values[~column.valid].any()


def test_dictionaries_hold_what_is_used_unless_they_are_small(bench: Bench) -> None:
    few, many = bench.engine.export(1, LOW)[1:3]
    assert len(few.dictionary) == 4
    used = {many.dictionary[code] for code in many.values[many.valid].tolist()}
    assert used <= set(many.dictionary)
    assert len(many.dictionary) <= len(used) + 1
