"""Reads that are called off: at the client, on their way, in the queue and in the running cycle."""

from __future__ import annotations

import pytest

from crescando.engine.base import Results
from crescando.process import Output
from crescando.roles.cycles import Execution
from crescando.roles.ledger import FORGOTTEN_MAX
from crescando.roles.messages import Answered, Forget, Inquire, Inquired
from tests.roles.stage import sent
from tests.roles.test_storage import ALICE, BOB, Desk, add, insert, read_all
from tests.roles.test_storage_reads import inject, part


def told(output: Output | list[Results]) -> list[tuple[str, int]]:
    """Give who was answered which read."""
    results = sent(output, Results) if isinstance(output, Output) else output
    return [(r.to.node, number) for r in results for rows in r.rows for number in rows.number.tolist()]


def test_a_read_that_waits_is_dropped_and_nothing_is_known_of_it() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()
    desk.deliver(ALICE, 2, read_all(), read_all(), add(1, 1))
    desk.deliver(BOB, 2, read_all())
    desk.flush()

    desk.tell(ALICE, Forget((2,)))

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (2, 3))), Inquired)
    assert [queued.number for queued in answer.queued] == [3]
    assert desk.core.n_queued == 3, "the insert is being executed"
    assert sorted(told(desk.run())) == [("alice", 3), ("bob", 2)]
    assert desk.rows() == {1: (11, 1)}


def test_a_write_happens_whatever_its_client_says() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(1))
    desk.flush()
    desk.deliver(ALICE, 2, add(5, 1))
    desk.tell(ALICE, Forget((2,)))

    (answer,) = sent(desk.tell(ALICE, Inquire(1, (2,))), Inquired)
    desk.run()

    assert [queued.number for queued in answer.queued] == [2]
    assert desk.rows() == {1: (15, 1)}


def test_a_read_that_is_called_off_before_it_comes_never_runs() -> None:
    desk = Desk()
    desk.tell(ALICE, Forget((2, -7)))
    desk.deliver(ALICE, 1, insert(1), read_all(), read_all())
    desk.flush()
    inject(desk, 77, part(desk, 77, read_all(), first=7), part(desk, 77, read_all(), first=7, client=BOB))

    assert sorted(told(desk.run())) == [("alice", 3), ("bob", -7)]


def test_a_read_of_the_running_cycle_is_left_at_the_next_block() -> None:
    desk = Desk()
    desk.deliver(ALICE, 1, insert(*range(40)))
    desk.run()
    desk.deliver(ALICE, 2, read_all(), read_all())
    desk.flush()
    (work,) = desk.work
    assert isinstance(work, Execution)
    assert work.cancelled is not None
    assert work.cancelled() == frozenset()

    desk.tell(ALICE, Forget((2,)))

    assert work.cancelled() == {(ALICE, 2)}
    assert told(desk.run()) == [("alice", 3)]
    desk.deliver(ALICE, 4, read_all())
    desk.flush()
    assert (desk.work[0].cancelled or set)() == frozenset()


@pytest.mark.parametrize("n", [FORGOTTEN_MAX * 3])
def test_what_is_remembered_of_them_is_bounded_and_ends(n: int) -> None:
    desk = Desk()
    desk.tell(ALICE, Forget(tuple(range(10, 10 + n))))
    ledger = desk.core.reporter.ledger(ALICE)
    assert len(ledger.forgotten) == FORGOTTEN_MAX

    desk.tell(ALICE, Answered(10 + n))

    assert not ledger.forgotten
