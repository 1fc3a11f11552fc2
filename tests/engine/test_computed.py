"""Operations that share an expression: it is computed once per block and joined with their constants."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from crescando.engine import computed, match
from crescando.engine.functions import Cause
from crescando.engine.kv import KvEngine
from crescando.engine.statement import Apply, Kind, Operation, Shape, Term
from crescando.schema import DataType
from crescando.types import FULL_RING
from tests.engine.compiled import using
from tests.engine.differential import Shares
from tests.engine.reports import reports
from tests.engine.test_differential import play
from tests.engine.workbench import Bench, apply, par, table

INT64, FLOAT64, BOOL, DATE = DataType.INT64, DataType.FLOAT64, DataType.BOOL, DataType.DATE
PRICE = DataType.decimal(9, 2)
N_ROWS, BLOCK = 300, 100


@pytest.fixture
def bench() -> Bench:
    bench = Bench(table(("x", FLOAT64), ("y", FLOAT64), ("n", INT64), ("p", PRICE), ("d", DATE)), BLOCK)
    random = Random(1)

    def maybe(value: Any) -> Any:
        return None if random.random() < 0.1 else value

    bench.load(
        *(
            (
                k,
                maybe(random.choice((0.5, 1.5, float(k)))),
                maybe(random.uniform(-9, 9)),
                maybe(random.randrange(-2, 9)),
                maybe(random.randrange(10_000)),
                maybe(random.randrange(100)),
            )
            for k in range(N_ROWS)
        )
    )
    return bench


def told(bench: Bench, operations: list[Operation]) -> list[Any]:
    """Give for each read its rows, sorted, or its failure."""
    results = bench.run(*operations)
    found: dict[int, Any] = {f.position: (f.key, f.text) for f in results.failed}
    for rows in results.rows:
        values = rows.columns[0].to_list()
        for place, position in enumerate(rows.position.tolist()):
            found[position] = sorted(values[rows.offsets[place] : rows.offsets[place + 1]])
    return [found[operation.position] for operation in operations]


def on_dictionaries(bench: Bench) -> Bench:
    other = Bench(bench.schema)
    other.engine = KvEngine()  # type: ignore[assignment]
    other.engine.set_arcs([FULL_RING])
    other.engine.create_table(bench.schema)
    every = bench.operation(bench.read_shape(None))
    rows = bench.answer(every)
    other.load(*rows)
    return other


def counted(patch: pytest.MonkeyPatch) -> list[int]:
    """Record how many rows a term is computed for, each time."""
    sizes: list[int] = []
    work = computed.evaluate

    def counting(term: Term, frame: Any) -> Any:
        sizes.append(frame.n_rows)
        return work(term, frame)

    patch.setattr(computed, "evaluate", counting)
    return sizes


def between(bench: Bench) -> tuple[Term, Term]:
    """Give ``x + y * ?`` and a test of it."""
    scaled = apply("*", bench.col("y"), par(2, FLOAT64))
    term = apply("+", bench.col("x"), scaled)
    return term, apply("and", apply(">=", term, par(0, FLOAT64)), apply("<", term, par(1, FLOAT64)))


def test_a_shared_expression_is_computed_once_per_block(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, where = between(bench)
    shape, random = bench.read_shape(where, "k"), Random(2)
    operations = [bench.operation(shape, low := random.uniform(-20, 280), low + 9.0, 1.1) for _ in range(100)]
    sizes = counted(monkeypatch)

    found = told(bench, operations)

    assert sum(sizes) == N_ROWS
    assert sum(map(len, found)) > 100
    assert found == told(on_dictionaries(bench), operations)


def test_each_constant_inside_makes_one_variant(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _, where = between(bench)
    shape = bench.read_shape(where, "k")
    factors = (1.1, 1.2, None)
    operations = [bench.operation(shape, 1.0 * n, n + 9.0, factors[n % 3]) for n in range(60)]
    sizes = counted(monkeypatch)

    found = told(bench, operations)

    assert sum(sizes) == 3 * N_ROWS
    assert found == told(on_dictionaries(bench), operations)


def test_too_many_variants_are_left_to_others(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    _, where = between(bench)
    shape = bench.read_shape(where, "k")
    operations = [bench.operation(shape, 0.0, 9.0, float(n)) for n in range(computed.VARIANTS_MAX + 1)]
    sizes = counted(monkeypatch)

    found = told(bench, operations)

    assert sizes == []
    assert found == told(on_dictionaries(bench), operations)


def terms(bench: Bench) -> dict[str, Callable[[], tuple[Term, DataType, list[Any]]]]:
    x, n, p, d = map(bench.col, ("x", "n", "p", "d"))
    return {
        "quotient": lambda: (apply("div", par(1, INT64), n), INT64, [100, 50, 0, 33, -100]),
        "decimal": lambda: (apply("*", p, n), PRICE, [0, 100, 900_000, -5]),
        "cast": lambda: (apply("cast", x, to=DataType.INT8), INT64, [0, 1, 127]),
        "year": lambda: (apply("extract_year", d), INT64, [1970, 1971]),
        "moved": lambda: (apply("date_add", d, par(1, INT64)), DATE, [100, 120, 199]),
        "truth": lambda: (apply("is_null", x), BOOL, [True, False]),
        "case": lambda: (apply("case", apply(">", x, par(1, FLOAT64)), n, n), INT64, [3, 5]),
        "coalesce": lambda: (apply("coalesce", n, par(1, INT64)), INT64, [3, 5]),
        "nullif": lambda: (apply("nullif", n, par(1, INT64)), INT64, [3, 5]),
    }


@pytest.mark.parametrize("chosen", ["numpy", "numba"])
@pytest.mark.parametrize("name", ["quotient", "case", "coalesce", "nullif"])
def test_any_term_serves_on_any_kernels(
    bench: Bench, name: str, chosen: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled kernels refuse arrays that may not be written, and some terms share what they are given."""
    term, kind, constants = terms(bench)[name]()
    shape = bench.read_shape(Apply("=", (term, par(0, kind)), BOOL), "k")
    inner = {"quotient": 100, "case": 1.5}.get(name, 4)
    operations = [bench.operation(shape, constants[place % len(constants)], inner) for place in range(12)]
    sizes = counted(monkeypatch)

    with using(chosen) as used:
        assert used == chosen
        found = told(bench, operations)

    assert sizes
    assert found == told(on_dictionaries(bench), operations)


@pytest.mark.parametrize("name", ["quotient", "decimal", "cast", "year", "moved", "truth", "case"])
@pytest.mark.parametrize("op", ["=", "<", ">=", "in"])
@pytest.mark.parametrize("beside", ["nothing", "false", "error"])
def test_any_term_serves_and_errors_count_where_nothing_else_decides(
    bench: Bench, name: str, op: str, beside: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    term, kind, constants = terms(bench)[name]()
    inner = {"quotient": 100, "moved": 100, "case": 1.5}.get(name, 0)
    where: Term = Apply(op, (term, par(0, kind, op == "in")), BOOL)
    if beside == "false":
        where = apply("and", where, apply("<>", bench.col("n"), par(2, INT64)))
    elif beside == "error":
        ratio = apply("div", par(2, INT64), apply("+", bench.col("n"), par(3, INT64)))
        where = apply("and", apply("<", ratio, par(4, INT64)), where)
    shape = bench.read_shape(where, "k")
    operations = []
    for place in range(12):
        constant = constants[place % len(constants)]
        listed = (constant, None) if place % 7 == 0 else (constant, constants[0])
        operations.append(
            bench.operation(shape, listed if op == "in" else constant, inner, 0, place % 3 - 1, 99)
        )
    sizes = counted(monkeypatch)

    found = told(bench, operations)

    assert sizes
    assert found == told(on_dictionaries(bench), operations)


def test_an_error_is_told_by_the_smallest_key(bench: Bench) -> None:
    where = apply("=", apply("div", par(1, INT64), bench.col("n")), par(0, INT64))
    failed = bench.failure(bench.operation(bench.read_shape(where, "k"), 5, 10))

    assert failed.text == Cause.DIVISION_BY_ZERO.text
    zeros = bench.read(apply("=", bench.col("n"), par(0, INT64)), 0, names=("k",))
    assert failed.key == (min(zeros),)


def test_writes_find_their_rows_by_an_expression_too(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    term = apply("+", bench.col("n"), bench.col("n"))
    where = apply("=", term, par(0, INT64))
    update = bench.update_shape(where, n=apply("+", bench.col("n"), par(1, INT64)))
    other = on_dictionaries(bench)
    operations = [bench.operation(update, 2 * (n % 9), 1 + n % 3) for n in range(30)]
    operations.append(bench.operation(Shape(Kind.DELETE, 1, 1, where), 12))
    sizes = counted(monkeypatch)

    mine, theirs = (reports(engine.run(*operations).written) for engine in (bench, other))

    assert sizes
    assert mine == theirs
    assert bench.engine.digest(1, FULL_RING) == other.engine.digest(1, FULL_RING)


def test_losing_the_rows_that_err_would_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    candidates = computed.ComputedJoin.candidates

    def planted(self: Any, source: Any, rows: Any) -> Any:
        return (each for each in candidates(self, source, rows) if each[2] is not self._access.whole)

    def search() -> None:
        for seed in range(200_000, 200_040):
            play(seed, Shares(), (), 8)

    monkeypatch.setattr(computed.ComputedJoin, "candidates", planted)
    with pytest.raises(AssertionError):
        search()


def test_a_plain_column_is_preferred_where_it_leaves_few_rows(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    term, _ = between(bench)
    where = apply("and", apply(">", term, par(0, FLOAT64)), apply("=", bench.col("k"), par(1, INT64)))
    shape = bench.read_shape(where, "k")
    chosen: list[type] = []
    make = match.Matcher._make
    monkeypatch.setattr(
        match.Matcher, "_make", lambda self, path, ops: chosen.append(type(path)) or make(self, path, ops)
    )

    told(bench, [bench.operation(shape, -1e9, n, 1.0) for n in range(200)])

    assert chosen[-1].__name__ == "Access"
