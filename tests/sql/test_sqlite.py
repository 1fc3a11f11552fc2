"""Random predicate text means what it means in SQLite, precedence included."""

from __future__ import annotations

import random
import sqlite3

import pytest

from crescando.client.store import Session
from crescando.client.table import Table
from crescando.errors import PredicateError
from crescando.schema import ColumnDef, DataType, TableSchema
from tests.client.backend import EngineBackend

N_ROWS = 60
PREDICATES_PER_SEED = 120

SCHEMA = TableSchema(
    "t",
    (
        ColumnDef("id", DataType.INT64, False),
        ColumnDef("a", DataType.INT16),
        ColumnDef("b", DataType.INT32),
        ColumnDef("x", DataType.FLOAT64),
        ColumnDef("s", DataType.STRING),
        ColumnDef("r", DataType.STRING),
    ),
    "id",
    ("id",),
)


class Texts:
    """Writes predicates with as few parentheses as the grammar allows."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self.params: list[object] = []

    def predicate(self, depth: int = 3) -> str:
        rng = self._rng
        if depth == 0 or rng.random() < 0.25:
            return self._comparison()
        choice = rng.random()
        if choice < 0.35:
            return f"{self.predicate(depth - 1)} AND {self.predicate(depth - 1)}"
        if choice < 0.7:
            return f"{self.predicate(depth - 1)} OR {self.predicate(depth - 1)}"
        if choice < 0.85:
            return f"NOT {self.predicate(depth - 1)}"
        test = rng.choice(["IS NULL", "IS NOT NULL", "IS TRUE", "IS NOT FALSE", ""])
        return f"({self.predicate(depth - 1)}) {test}"

    def _comparison(self) -> str:
        rng = self._rng
        value = rng.choice([self._number, self._text])
        choice = rng.random()
        if choice < 0.5:
            return f"{value()} {rng.choice(['=', '==', '<>', '!=', '<', '<=', '>', '>='])} {value()}"
        if choice < 0.6:
            return f"{value()} {rng.choice(['', 'NOT '])}BETWEEN {value()} AND {value()}"
        if choice < 0.75:
            return f"{value()} {rng.choice(['', 'NOT '])}IN ({', '.join(self._constants(value))})"
        if choice < 0.85:
            return f"{value()} {rng.choice(['IS NULL', 'IS NOT NULL'])}"
        pattern = rng.choice(["'a%'", "'%b'", "'_'", "'%'", "''", "'A%'"])
        return f"{self._text()} {rng.choice(['', 'NOT '])}LIKE {pattern}"

    def _constants(self, value: object) -> list[str]:
        numbers = ["1", "-2", "0.5", "NULL", "3"]
        texts = ["'a'", "''", "NULL", "'it''s'"]
        return self._rng.sample(numbers if value == self._number else texts, self._rng.randrange(4))

    def _number(self) -> str:
        terms = [self._factor() for _ in range(self._rng.choice([1, 1, 2, 3]))]
        text = terms[0]
        for term in terms[1:]:
            text += f" {self._rng.choice(['+', '-', '*'])} {term}"
        return text

    def _factor(self) -> str:
        rng = self._rng
        choice = rng.random()
        if choice < 0.4:
            return rng.choice(["a", "b", "x", '"a"'])
        if choice < 0.6:
            return rng.choice(["1", "-2", "3", "0.5", "1e1", "-.25"])
        if choice < 0.7:
            self.params.append(rng.choice([1, -2, 0.5, None, 7]))
            return "?"
        if choice < 0.8:
            # In parentheses, since SQLite's CASE and coalesce() give an integer or a float row by row.
            return f"({rng.choice(['a', 'b'])} / {rng.choice(['2', '-3', '7'])})"
        if choice < 0.86:
            return f"abs({self._number()})"
        if choice < 0.92:
            return f"coalesce({self._number()}, {self._number()})"
        if choice < 0.96:
            return f"({rng.choice([self._number, self._whole])()})"
        return f"CASE WHEN {self._comparison()} THEN {self._number()} ELSE {self._number()} END"

    def _whole(self) -> str:
        """Write integers only: SQLite's ``%`` cuts floats to integers first, ours does not."""
        rng = self._rng
        text = rng.choice(["a", "b", "-a"])
        for _ in range(rng.randrange(4)):
            operand = rng.choice(["a", "b", "2", "-3"])
            text += f" {rng.choice(['+', '-', '*'])} {operand}"
            if rng.random() < 0.5:
                text += f" {rng.choice(['/', '%'])} {rng.choice(['2', '-3', '7'])}"
        return text

    def _text(self) -> str:
        rng = self._rng
        choice = rng.random()
        if choice < 0.5:
            return rng.choice(["s", "r"])
        if choice < 0.65:
            return rng.choice(["'a'", "'b'", "''", "'it''s'"])
        if choice < 0.75:
            self.params.append(rng.choice(["a", "ab", "", None]))
            return "?"
        if choice < 0.85:
            return f"{rng.choice(['s', 'r'])} || {rng.choice(['s', 'r', chr(39) + 'b' + chr(39)])}"
        return f"{rng.choice(['lower', 'upper'])}({self._text()})"


def _tables(rng: random.Random) -> tuple[sqlite3.Connection, Table]:
    rows = [
        {
            "id": n,
            "a": rng.choice([None, *range(-4, 5)]),
            "b": rng.choice([None, *range(-4, 5)]),
            "x": rng.choice([None, -0.5, 0.0, 0.5, 1.0, 2.25]),
            "s": rng.choice([None, "", "a", "A", "ab", "b", "it's"]),
            "r": rng.choice([None, "", "a", "b"]),
        }
        for n in range(N_ROWS)
    ]
    base = sqlite3.connect(":memory:")
    base.execute("PRAGMA case_sensitive_like = ON")
    base.execute("CREATE TABLE t (id INTEGER, a INTEGER, b INTEGER, x REAL, s TEXT, r TEXT)")
    base.executemany("INSERT INTO t VALUES (:id, :a, :b, :x, :s, :r)", rows)
    table = Session(EngineBackend()).create_table(SCHEMA)
    table.insert(rows).result()
    return base, table


@pytest.mark.differential
@pytest.mark.parametrize("seed", range(4))
def test_random_predicates_select_what_sqlite_selects(seed: int) -> None:
    rng = random.Random(seed)
    base, table = _tables(rng)
    n_matching = 0
    for _ in range(PREDICATES_PER_SEED):
        texts = Texts(rng)
        text = texts.predicate()
        expected = [
            row[0] for row in base.execute(f"SELECT id FROM t WHERE {text} ORDER BY id", texts.params)
        ]

        found = sorted(table.select(["id"], text, texts.params).column("id"))

        assert found == expected, f"seed {seed}: {text} with {texts.params}"
        n_matching += bool(expected)
    print(f"seed {seed}: {n_matching} of {PREDICATES_PER_SEED} predicates match a row")
    assert n_matching > 0.4 * PREDICATES_PER_SEED


def test_what_dialects_read_differently_is_refused() -> None:
    _, table = _tables(random.Random(0))
    for text in (
        "a = b IS NULL",
        "a < b < 1",
        "a = b IN (1)",
        "a IS NULL = TRUE",
        "a BETWEEN 1 AND 2 = TRUE",
    ):
        with pytest.raises(PredicateError, match="parentheses"):
            table.select(["id"], text)
