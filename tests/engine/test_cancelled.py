"""Reads that nobody waits for any more: ended between two blocks, and no one else notices."""

from __future__ import annotations

from collections.abc import Callable, Collection

import numpy as np
import pytest

from crescando.engine import cycle
from crescando.engine.base import Engine, Results
from crescando.engine.kv import KvEngine
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Operation
from crescando.scanning import Team
from crescando.testing.workload import SCHEMA, Workload
from crescando.types import FULL_RING, ProcessId
from tests.engine.reports import reports

WORK = Workload(SCHEMA.with_ids(0))
ALICE, BOB = ProcessId("client", "alice", 1), ProcessId("client", "bob", 1)
N_ROWS = 100

Names = Collection[tuple[ProcessId, int]]


def filled(engine: Engine) -> Engine:
    engine.set_arcs((FULL_RING,))
    engine.create_table(SCHEMA.with_ids(0))
    keys = list(range(N_ROWS))
    put = WORK._put("insert", keys, keys, 1)
    engine.execute([Operation(1, ALICE, 1, put.shape, put.parameters, (FULL_RING,))])
    return engine


def batch() -> list[Operation]:
    """Give reads of two clients, a write between them."""

    def make(at: int, sender: ProcessId, name: str, *parameters: int) -> Operation:
        request = WORK._where(name, parameters)
        return Operation(at, sender, at, request.shape, request.parameters, (FULL_RING,))

    return [
        make(2, ALICE, "read_all"),
        make(3, BOB, "read_all"),
        make(4, BOB, "add_by_key", 1000, 5),
        make(5, ALICE, "read_all"),
        make(6, ALICE, "read_by_key", 5),
    ]


def answers(results: list[Results]) -> dict[int, list[int]]:
    """Give the values that each read answered."""
    found: dict[int, list[int]] = {}
    for result in results:
        for rows in result.rows:
            for index, number in enumerate(rows.number.tolist()):
                low, high = rows.offsets[index : index + 2].tolist()
                found[number] = np.sort(rows.columns[1].values[low:high]).tolist()
    return found


def after(n_blocks: int, names: Names) -> Callable[[], Names]:
    """Cancel when so many blocks are done."""
    looks = iter(range(10_000))
    nothing: Names = frozenset()
    return lambda: names if next(looks) >= n_blocks else nothing


@pytest.mark.parametrize("n_parts", [1, 2])
@pytest.mark.parametrize("n_blocks", [0, 1, 7])
@pytest.mark.parametrize("gone", [{2}, {2, 5}, {2, 5, 6}, {6}])
def test_who_is_cancelled_has_no_answer_and_all_others_have_theirs(
    n_parts: int, n_blocks: int, gone: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cycle, "PART_LOOKS_MIN", 1)
    whole = answers(filled(ScanEngine(block_rows=8)).execute(batch()))
    team = Team(n_parts)
    engine = filled(ScanEngine(8, team))

    results = engine.execute(batch(), after(n_blocks, frozenset((ALICE, number) for number in gone)))
    team.close(10)

    assert answers(results) == {number: rows for number, rows in whole.items() if number not in gone}
    assert not any(result.failed for result in results)
    assert [written.number for result in results for written in reports(result.written)] == [4]


def test_a_cancelled_write_is_executed_all_the_same() -> None:
    for engine in (ScanEngine(block_rows=8), KvEngine()):
        results = filled(engine).execute(batch(), after(0, frozenset({(BOB, 4)})))
        assert answers(results)[6] == [1005]


def test_the_simple_engine_leaves_out_the_same_reads() -> None:
    names = frozenset({(ALICE, 2), (ALICE, 6)})
    found = [answers(filled(each).execute(batch(), lambda: names)) for each in (ScanEngine(), KvEngine())]
    assert found[0] == found[1]
    assert sorted(found[0]) == [3, 5]
