"""Whatever a predicate is, it is refused or answered right, soon, and numexpr sees nothing of it.

Each attack runs twice: once to be judged and timed, once to have its memory
measured. What is answered must equal the oracle's answer; honest texts must equal
SQLite's too. The bounds hold for making, binding, executing and refusing together.
"""

from __future__ import annotations

import re
import time
import tracemalloc
from collections import Counter
from functools import reduce
from operator import add
from random import Random
from typing import Any

import msgspec
import numexpr
import pytest

from crescando.client.expression import Expr, col
from crescando.client.functions import all_of
from crescando.client.template import Template, bind_template
from crescando.engine import evaluator, reader, terms
from crescando.engine.aggregate import finish
from crescando.engine.plan import make_plan
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Aggregate, Apply, ColumnRef, Kind, Operation, Projection, Shape
from crescando.errors import CrescandoError
from crescando.schema import DataType, TableSchema
from crescando.sql.where import parse_where, substitute
from crescando.types import FULL_RING
from tests.engine import workbench
from tests.engine.generator import World
from tests.engine.hostile import Attack, attack, honest_shape, valid_text
from tests.engine.oracle import Effect, Oracle
from tests.engine.sqlite_twin import SqliteTwin
from tests.engine.workbench import CLIENT, Bench, apply, par, table

pytestmark = pytest.mark.differential

SEED = 20_250
ATTACKS = 1_600
HONEST = 400

LIMIT_S = 0.05
SLACK = 5
"""Shared machines are slower than the limit means; the printed maximum tells."""

MEMORY_MAX = 32 << 20

GENERATED = re.compile(r"[x0-9 ()+*-]+")
"""What the evaluator writes: operands x0, x1, … and operators."""

Answer = tuple[str, Any]
"""``refused`` and why, or ``answered`` and rows, or ``failed`` and the error of a row."""


class Target:
    """One small table behind the whole path from a text, or from bytes, to rows."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.engine = ScanEngine(64)
        self.engine.set_arcs([FULL_RING])
        self.engine.create_table(schema)
        self.oracle = Oracle(schema)
        self.position = 0

    def load(self, shape: Shape, parameters: tuple[Any, ...]) -> Operation:
        operation = self._operation(shape, parameters)
        self.engine.execute([operation])
        self.oracle.execute(operation)
        return operation

    def _operation(self, shape: Shape, parameters: tuple[Any, ...]) -> Operation:
        self.position += 1
        return Operation(self.position, CLIENT, self.position, shape, parameters, (FULL_RING,))

    def face(self, attack: Attack) -> tuple[Answer, Operation | None]:
        """Meet one attack as a client and then a storage process would."""
        try:
            if attack.body:
                shape, parameters = Shape.decode(attack.body), attack.parameters
            else:
                shape, parameters = self._bound(attack.source)
        except (CrescandoError, msgspec.MsgspecError, ValueError, RecursionError) as refusal:
            if not attack.body and not isinstance(refusal, CrescandoError):
                raise
            return ("refused", str(refusal)), None
        operation = self._operation(shape, parameters)
        (results,) = self.engine.execute([operation])
        if results.failed:
            (failed,) = results.failed
            return ("failed" if failed.kind == "read" else "refused", failed.text), operation
        if results.partials or results.written:
            return ("refused", "another kind"), operation
        (rows,) = results.rows
        return ("answered", list(zip(*(column.to_list() for column in rows.columns), strict=True))), operation

    def _bound(self, source: Any) -> tuple[Shape, tuple[Any, ...]]:
        where: Expr = parse_where.__wrapped__(source) if isinstance(source, str) else source()
        where = substitute(where, ())
        key = Projection("k", ColumnRef(0, self.schema.columns[0].type))
        plan = bind_template(Template(Kind.READ, where), self.schema, {})
        return msgspec.structs.replace(plan.shape, projections=(key,)), plan.fill({})


def judge(target: Target, answer: Answer, operation: Operation | None) -> None:
    """Compare an answer with the oracle's."""
    verdict, given = answer
    if verdict == "refused":
        assert given
        assert len(given) < 1 << 16, given[:200]
        return
    assert operation is not None
    effect: Effect = target.oracle.execute(operation)
    if verdict == "failed":
        assert effect.failure is not None, given
        return
    assert effect.failure is None, effect.failure
    assert sorted(map(repr, given)) == sorted(map(repr, effect.rows))


class Spy:
    """Stands where numexpr is, and keeps what it is told."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.texts: list[str] = []
        make = numexpr.NumExpr

        def watched(text: str, *arguments: Any, **options: Any) -> Any:
            self.texts.append(text)
            return make(text, *arguments, **options)

        def never(*arguments: Any, **options: Any) -> Any:
            raise AssertionError(f"numexpr was asked to evaluate {arguments[:1]}")

        patch.setattr(numexpr, "NumExpr", watched)
        for name in ("evaluate", "re_evaluate", "validate"):
            patch.setattr(numexpr, name, never)
        # Or else it would not be used for tables as small as these.
        for module in (evaluator, terms):
            if hasattr(module, "ROWS_MIN"):
                patch.setattr(module, "ROWS_MIN", 1)

    def check(self) -> None:
        assert self.texts, "numexpr was not used at all"
        assert all(GENERATED.fullmatch(text) for text in self.texts), self.texts


def small_table() -> tuple[Target, dict[str, ColumnRef]]:
    kinds = (("i", DataType.INT64), ("f", DataType.FLOAT64), ("s", DataType.STRING), ("b", DataType.BOOL))
    schema = table(*kinds, ("d", DataType.DATE))
    texts = ("", "a", "ab", "x", None, "1", "é")
    rows = [
        (
            n,
            None if n % 7 == 6 else n - 15,
            None if n % 5 == 4 else n / 4,
            texts[n % 7],
            (True, None, False)[n % 3],
            18_262 + n,
        )
        for n in range(40)
    ]
    insert = Bench(schema).insert(*rows)
    target = Target(schema)
    target.load(insert.shape, insert.parameters)
    return target, {column.name: ColumnRef(column.id, column.type) for column in schema.columns}


def timed(target: Target, attack: Attack) -> tuple[float, Answer, Operation | None]:
    """Face an attack, again if it seems to have taken long: the machine is not ours alone.

    Of processor time, since all of it is one thread's work.
    """
    best_s, answer, operation = float("inf"), ("", None), None
    for _ in range(4):
        begun_s = time.process_time()
        answer, operation = target.face(attack)
        best_s = min(best_s, time.process_time() - begun_s)
        if best_s <= LIMIT_S:
            break
    return best_s, answer, operation


def peak_bytes(target: Target, attack: Attack) -> int:
    tracemalloc.reset_peak()
    before = tracemalloc.get_traced_memory()[0]
    target.face(attack)
    return tracemalloc.get_traced_memory()[1] - before


def test_attacks_are_refused_or_answered_right_and_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    spy = Spy(monkeypatch)
    target, columns = small_table()
    random = Random(SEED)
    attacks = [attack(random, columns) for _ in range(ATTACKS)]
    target.face(Attack("warm-up", "i = 1 AND f < 2.5"))
    verdicts: Counter[str] = Counter()
    slowest: list[tuple[float, str]] = []
    for each in attacks:
        taken_s, answer, operation = timed(target, each)
        verdicts[answer[0]] += 1
        slowest.append((taken_s, f"{each.name} {str(each.source)[:40]!r} {answer[0]}"))
        judge(target, answer, operation)
    slowest.sort(reverse=True)
    tracemalloc.start()
    try:
        widest = max((peak_bytes(target, each), f"{each.name} {str(each.source)[:40]!r}") for each in attacks)
    finally:
        tracemalloc.stop()

    print(f"seed {SEED}: {dict(verdicts)}")
    print(*(f"{1e3 * taken_s:6.1f} ms {what}" for taken_s, what in slowest[:8]), sep="\n")
    print(f"{widest[0] / (1 << 20):6.1f} MiB {widest[1]}")
    assert slowest[0][0] <= SLACK * LIMIT_S
    assert widest[0] <= MEMORY_MAX
    assert verdicts["answered"] >= 100
    assert verdicts["refused"] >= 1_000
    spy.check()


def test_honest_texts_are_answered_as_by_the_oracle_and_sqlite() -> None:
    slowest_s = 0.0
    for seed in range(SEED, SEED + 20):
        world = World(Random(seed), plain=True)
        target, twin = Target(world.schema), SqliteTwin(world.schema)
        twin.execute(target.load(*world.refill(300)))
        for _ in range(HONEST // 20):
            text, term, parameters = valid_text(world)
            taken_s, answer, operation = timed(target, Attack("honest", text))
            slowest_s = max(slowest_s, taken_s)
            assert answer[0] == "answered", (seed, text, answer)
            judge(target, answer, operation)
            key = (Projection("k", ColumnRef(0, world.columns[0].type)),)
            tree = Operation(1, CLIENT, 1, Shape(Kind.READ, 7, 1, term, key), parameters, (FULL_RING,))
            assert sorted(answer[1]) == sorted(twin.execute(tree)), (seed, text)
        twin.close()
    print(f"{HONEST} honest texts, the slowest in {1e3 * slowest_s:.1f} ms")
    assert slowest_s <= SLACK * LIMIT_S


@pytest.mark.parametrize(
    ("op", "n_columns", "n_terms"),
    [
        ("+", 1, 1),
        ("+", 40, 40),
        ("+", 300, 300),
        ("and", 1, 5_000),
        ("and", 40, 40),
        ("and", 300, 300),
        ("and", 300, 5_000),
    ],
)
def test_wide_predicates_are_answered(op: str, n_columns: int, n_terms: int) -> None:
    schema = table(*((f"c{n}", DataType.FLOAT64) for n in range(n_columns)))
    bench = Bench(schema)
    bench.load(*((k, *(float(k + n) for n in range(n_columns))) for k in range(50)))
    columns = [col(f"c{n}") for n in range(n_columns)]
    if op == "+":
        # As deep as expressions may be; then the next sum.
        sums = [columns[start : start + 100] for start in range(0, n_columns, 100)]
        where = all_of(reduce(add, part) >= sum(range(len(part))) for part in sums)
    else:
        where = all_of(columns[n % n_columns] > 20 for n in range(n_terms))
    plan = bind_template(Template(Kind.READ, where), schema, {})
    shape = msgspec.structs.replace(plan.shape, projections=plan.shape.projections[:1])

    found = bench.answer(bench.operation(shape, *plan.fill({})))

    assert sorted(found) == (list(range(50)) if op == "+" else list(range(21, 50)))


@pytest.mark.parametrize("kind", ["lists", "sums", "equalities and more"])
def test_a_plan_weighs_as_much_as_its_predicate_and_not_its_square(kind: str) -> None:
    """Each access path knows the other conjuncts: of thousands, not all that could be are paths."""
    bench = Bench(table(*((f"c{n}", DataType.INT64) for n in range(100))))
    bench.load(*((k, *[k] * 100) for k in range(20)))
    columns = [bench.col(f"c{n}") for n in range(100)]
    kind_of, parameters = DataType.INT64, ()
    if kind == "lists":
        terms = [workbench.apply("in", columns[n % 100], par(n, kind_of, True)) for n in range(5_000)]
        parameters = tuple((7, n) for n in range(1, 5_001))
    elif kind == "sums":
        sums = [workbench.apply("+", columns[n % 100], par(n, kind_of)) for n in range(3_000)]
        terms = [workbench.apply("=", each, par(n, kind_of)) for n, each in enumerate(sums, 3_000)]
        parameters = (*range(3_000), *range(7, 3_007))
    else:
        terms = [workbench.apply("=", columns[n], par(n, kind_of)) for n in range(100)]
        terms += [workbench.apply("<>", columns[n % 100], par(n, kind_of)) for n in range(100, 5_000)]
        parameters = (*[7] * 100, *range(100, 5_000))
    where = Apply("and", tuple(terms), DataType.BOOL)
    operation = bench.operation(bench.read_shape(where, "k"), *parameters)

    tracemalloc.start()
    try:
        make_plan(operation.shape, bench.schema)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert peak <= MEMORY_MAX
    assert bench.answer(operation) == [7]


@pytest.mark.parametrize("op", ["case", "coalesce"])
@pytest.mark.parametrize("kind", [DataType.INT64, DataType.STRING])
def test_many_branches_need_the_memory_of_one(op: str, kind: DataType) -> None:
    n_rows, n_branches = 20_000, 60
    bench = Bench(table(("x", DataType.INT64), ("s", DataType.STRING)), block_rows=1 << 16)
    bench.load(*((k, k % 10, "abc"[k % 3]) for k in range(n_rows)))
    k, x, s = map(bench.col, ("k", "x", "s"))
    # None of these is what a row takes.
    values = [
        apply("+", k, par(1, DataType.INT64)) if kind is DataType.INT64 else apply("lower", s)
    ] * n_branches
    last = apply("+", x, par(1, DataType.INT64)) if kind is DataType.INT64 else s
    if op == "case":
        test = apply("<", k, par(0, DataType.INT64))
        term = Apply("case", (*(each for value in values for each in (test, value)), last), kind)
    else:
        term = Apply("coalesce", (*(apply("nullif", value, value) for value in values), last), kind)
    shape = Shape(Kind.READ, 1, 1, None, group_by=(term,))
    operation = bench.operation(shape, 0, 5)

    tracemalloc.start()
    try:
        results = bench.run(operation)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    (partials,) = results.partials
    wanted = [each + 5 for each in range(10)] if kind is DataType.INT64 else ["a", "b", "c"]
    assert sorted(partials.keys[0].to_list()) == wanted
    assert peak < 6 << 20


def test_many_outputs_need_the_memory_of_some(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "VALUES_MAX", 1 << 18)
    bench = Bench(table(), block_rows=1 << 16)
    bench.load(*((k,) for k in range(5_000)))
    sums = [apply("+", bench.col("k"), par(n, DataType.INT64)) for n in range(400)]
    aggregates = tuple(Aggregate("max", each, f"m{n}") for n, each in enumerate(sums))
    operation = bench.operation(Shape(Kind.READ, 1, 1, None, aggregates=aggregates), *range(400))

    tracemalloc.start()
    try:
        results = bench.run(operation)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    (partials,) = results.partials
    assert [finish(each, 1).to_list() for each in partials.states] == [[4_999 + n] for n in range(400)]
    assert peak < 8 << 20


def test_honest_shapes_survive_the_attacks_on_them() -> None:
    target, columns = small_table()
    answer, operation = target.face(
        Attack("honest", body=honest_shape(columns).encode(), parameters=(1, 2.5, "a%", (1, None)))
    )
    assert answer[0] == "answered"
    judge(target, answer, operation)
