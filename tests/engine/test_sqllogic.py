"""The public SQL logic tests: every query that our dialect has gives the answer that is on file."""

from __future__ import annotations

import pytest

from tests.engine.sqllogic import FOLDER, Query, Statement, hashed, is_right, read_file
from tests.engine.sqllogic_store import Store, Tally

pytestmark = pytest.mark.differential

INDEXED = ("index-commute", "index-delete", "index-orderby")
"""Predicates and DELETEs, of which only sub-queries are not in our dialect."""

SHARES = {"alone": 1, "64 on each scan": 64}


def run(prefixes: tuple[str, ...], share: int) -> Tally:
    tally = Tally()
    for prefix in prefixes:
        paths = sorted(FOLDER.glob(f"{prefix}*.gz"))
        assert paths, prefix
        for path in paths:
            tally += Store(share).run(read_file(path))
    print(tally)
    return tally


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
def test_all_predicates_and_deletes_give_what_is_on_file(share: int, kernel_set: str) -> None:
    print(f"on kernels of {kernel_set}")

    tally = run(INDEXED, share)

    assert tally.wrong == []
    assert tally.queries == 26_655
    assert tally.statements == 12_312
    assert set(tally.skipped) == {
        "a sub-query, join or HAVING",
        "an index or setting, which a scan does not need",
    }


@pytest.mark.parametrize("share", SHARES.values(), ids=SHARES)
def test_what_our_dialect_has_of_the_other_files_gives_what_is_on_file(share: int) -> None:
    tally = run(("index-random", "random", "evidence"), share)

    assert tally.wrong == []
    assert tally.queries >= 25_100
    assert tally.statements >= 100


def test_a_wrong_answer_is_told() -> None:
    records = [
        Statement(1, "CREATE TABLE t (pk INTEGER PRIMARY KEY, a FLOAT)", False),
        Statement(2, "INSERT INTO t VALUES (1, 2.5), (2, NULL)", False),
        Query(3, "SELECT pk FROM t WHERE a > 2", "I", "rowsort", "", ("2",)),
        Query(4, "SELECT pk FROM t WHERE a > 2", "I", "rowsort", "", (hashed(["2"]),)),
        Query(5, "SELECT pk, a FROM t", "IR", "rowsort", "", ("1", "2.500", "2", "NULL")),
        Query(6, "SELECT pk FROM t ORDER BY 1 DESC", "I", "nosort", "", ("1", "2")),
    ]

    tally = Store(1).run(records)

    assert [line.split(":")[0] for line in tally.wrong] == ["line 3", "line 4", "line 6"]
    assert tally.queries == 4


def test_a_table_that_missed_a_write_is_not_asked() -> None:
    records = [
        Statement(1, "CREATE TABLE t (pk INTEGER PRIMARY KEY, a FLOAT)", False),
        Statement(2, "DELETE FROM t WHERE pk IN (SELECT 1)", False),
        Query(3, "SELECT pk FROM t", "I", "rowsort", "", ("1",)),
    ]

    tally = Store(64).run(records)

    assert tally.skipped["on a table that missed a statement"] == 1
    assert tally.wrong == []


def test_values_are_written_as_the_format_says() -> None:
    query = Query(
        1, "", "ITR", "valuesort", "", ("(empty)", "-1", "0", "0.333", "1.000", "NULL", "a@b", "NULL", "2")
    )

    assert is_right(
        Query(1, "", "ITR", "valuesort", "", tuple(sorted(query.expected))),
        [(-1.5, "", 1 / 3), ("x", "a\nb", 1), ("2 b", None, None)],
    )
