"""Rows of texts that hardly repeat are found without a look at each row, and are the right ones."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import Any

import pytest

from crescando.engine.segment import Block
from crescando.engine.statement import Kind, Shape
from crescando.schema import DataType
from tests.engine.compiled import using
from tests.engine.workbench import Bench, apply, par, table

INT64, STRING = DataType.INT64, DataType.STRING
N = 6_000
SEEDS = range(4)


@pytest.fixture(params=["numpy", "numba"])
def made(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


@pytest.fixture
def found(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many rows were found at once, call by call."""
    numbers: list[int] = []
    find = Block.find

    def counted(block: Block, column_id: int, codes: Any) -> Any:
        pairs = find(block, column_id, codes)
        numbers.append(len(pairs[0]))
        return pairs

    monkeypatch.setattr(Block, "find", counted)
    return numbers


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("seed", SEEDS)
def test_texts_that_hardly_repeat_are_found_where_they_are(seed: int, found: list[int]) -> None:
    chance = Random(seed)
    bench = Bench(table(("s", STRING), ("n", INT64)), block_rows=4_096)
    held: dict[int, tuple[Any, int]] = {
        k: (None if seed % 2 and k % 5 == 2 else f"text {k}" if k % 50 else "again", k % 3) for k in range(N)
    }
    for first in range(0, N, 1_500):
        bench.load(*((k, *held[k]) for k in range(first, first + 1_500)))
    column = bench.col
    equal = apply("=", column("s"), par(0, STRING))
    both = apply("and", equal, apply("=", column("n"), par(1, INT64)))
    some = apply("in", column("s"), par(0, STRING, many=True))
    span = apply("and", apply(">=", column("s"), par(0, STRING)), apply("<", column("s"), par(1, STRING)))
    change = bench.update_shape(apply("=", column("k"), par(1, INT64)), s=par(0, STRING))
    rename = bench.update_shape(equal, s=par(1, STRING))
    remove = Shape(Kind.DELETE, 1, 1, equal)

    def wanted(test: Any) -> list[int]:
        return sorted(k for k, (text, n) in held.items() if text is not None and test(text, n))

    for _ in range(30):
        a, b = (chance.choice([f"text {chance.randrange(N + 9)}", "again", ""]) for _ in range(2))
        n, k = chance.randrange(3), chance.randrange(N)
        step = chance.choice(["change", "rename", "remove", "read", "read"])
        if step == "change" and k in held:
            bench.write(bench.operation(change, a, k))
            held[k] = a, held[k][1]
        elif step == "rename":
            bench.write(bench.operation(rename, a, b))
            held |= {row: (b, held[row][1]) for row in wanted(lambda text, _, a=a: text == a)}
        elif step == "remove" and a != "again":
            bench.write(bench.operation(remove, a))
            for row in wanted(lambda text, _, a=a: text == a):
                del held[row]
        assert sorted(bench.read(equal, a, names=("k",))) == wanted(lambda text, _, a=a: text == a)
        assert sorted(bench.read(both, b, n, names=("k",))) == wanted(
            lambda text, m, b=b, n=n: text == b and m == n
        )
        assert sorted(bench.read(some, (a, None, b, a), names=("k",))) == wanted(
            lambda text, _, a=a, b=b: text in (a, b)
        )
        low, high = f"text {k}", f"text {k}1"
        assert sorted(bench.read(span, low, high, names=("k",))) == wanted(
            lambda text, _, low=low, high=high: low <= text < high
        )
        # Together, so that they share an index.
        results = bench.run(
            *(bench.operation(bench.read_shape(equal, "k"), text) for text in (a, b, a)),
            bench.operation(bench.read_shape(both, "k"), a, n),
        )
        assert not results.failed
        assert sum(len(rows.columns[0]) for rows in results.rows) == sum(
            len(wanted(test))
            for test in (
                lambda text, _, a=a: text == a,
                lambda text, _, b=b: text == b,
                lambda text, _, a=a: text == a,
                lambda text, m, a=a, n=n: text == a and m == n,
            )
        )
    assert sum(found) > 0, "nothing was found at once"
