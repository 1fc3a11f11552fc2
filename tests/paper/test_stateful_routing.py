"""RB13 Appendix 1 and 2 (and EC11 §3, App. A): each predicate and lemma, in the papers' words.

The checkers of the simulation are not used here: every predicate is written
down once more, as the sets and orders of the papers.
"""

from __future__ import annotations

from itertools import pairwise

import pytest

from crescando.consensus.base import Ballot
from crescando.routing.ecast.router import Router
from tests.paper.history import SEEDS, History, history, id_of


@pytest.fixture(params=SEEDS)
def run(request: pytest.FixtureRequest) -> History:
    return history(request.param)


def ballots(run: History) -> list[Ballot]:
    """Give the ballots of the routers that are left."""
    return [run.world.router(router).broadcast.ballot for router in run.world.alive("router")]


def test_the_histories_are_worth_looking_at() -> None:
    runs = [history(seed) for seed in SEEDS]

    assert all(len(run.q.appended) > 30 for run in runs)
    # One (907) may append fewer: its senders have credit for two or three messages, one of the two owners of
    # every range is cut off from 0.4 s on, so that nothing becomes stable, and of its clients one is cut off
    # with it and the others crash: what waits for credit then is never sent.
    assert sum(len(run.q.appended) > 60 for run in runs) >= len(runs) - 1
    assert all(any(run.delivered.values()) for run in runs)
    assert sum(len(run.q.suspected) for run in runs) >= len(runs)
    counted = {kind for run in runs for kind in run.world.counted}
    assert {"usurp", "crash_storage", "crash_client"} <= counted
    assert any(run.q.mixed_batches for run in runs)
    led_anew = [run for run in runs if all(ballot.attempt > 1 for ballot in ballots(run))]
    assert 2 * len(led_anew) >= len(runs)


# RB13 §9.1.2 and Lemmas 1–7.


def test_lemma_1_q_is_valid(run: History) -> None:
    """Every message in M_Q is submitted, and no message is delivered that is not in M_Q."""
    m_q = set(run.m_q)
    m_delivered = {(d.sender, d.number) for records in run.delivered.values() for d in records}

    assert m_delivered <= m_q <= set(run.submitted)
    for key, appended in run.m_q.items():
        assert appended.message == run.submitted[key].message


def test_lemma_2_q_is_minimal(run: History) -> None:
    """Every process that delivers m is in the destination set of m according to Q."""
    for process, records in run.delivered.items():
        for record in records:
            assert process in (run.m_q[record.sender, record.number].destinations or {})


def test_lemma_3_q_is_submit_ordered_fifo(run: History) -> None:
    """Case 1: of two messages of one process the first submitted precedes."""
    last: dict[object, int] = {}
    for key in run.submitted:
        if key in run.m_q:
            at = run.m_q[key].position
            assert at > last.get(key[0], -1)
            last[key[0]] = at


def test_lemma_3_q_is_submit_ordered_causally(run: History) -> None:
    """Case 2: what a process had delivered before it submitted m precedes m."""
    for key, appended in run.m_q.items():
        assert run.submitted[key].delivered < appended.position


def test_causality_between_processes_occurs_in_the_histories() -> None:
    assert any(
        run.submitted[key].delivered >= 0 for seed in SEEDS for run in [history(seed)] for key in run.m_q
    )


def test_lemma_4_q_is_delivery_ordered(run: History) -> None:
    """Case 1: every process delivers in the order of Q, and nothing twice."""
    for process in run.delivered:
        positions = run.positions(process)
        assert all(a < b for a, b in pairwise(positions))
        for record in run.delivered[process]:
            assert run.m_q[record.sender, record.number].position == record.position


def test_lemma_5_q_is_gap_free(run: History) -> None:
    """For every m in M_Q, every message submitted previously by its process is in M_Q."""
    for sender, number in run.m_q:
        assert number == 1 or (sender, number - 1) in run.m_q


def test_lemma_6_q_is_complete(run: History) -> None:
    """Every correct process in the destination set of m delivers m."""
    for appended in run.q.appended:
        for process in set(appended.destinations or ()) & run.correct:
            assert appended.position in run.positions(process)


def test_lemma_6_generalised_faulty_processes_see_a_prefix(run: History) -> None:
    """Even a faulty process delivers a prefix of what Q has for it (RB13 §10, after Lemma 6)."""
    for process in set(run.delivered) - run.correct:
        expected = [a.position for a in run.q.appended if process in (a.destinations or {})]
        seen = run.positions(process)
        assert seen == expected[: len(seen)]


def test_lemma_7_q_is_terminated(run: History) -> None:
    """Every message submitted by a correct process is in M_Q."""
    assert {key for key in run.submitted if key[0] in run.correct} <= set(run.m_q)


# RB13 §9.1.3: what follows from Correct Routing.


def test_uniform_total_order_delivery(run: History) -> None:
    """Two processes that both deliver m and m' deliver them in the same order."""
    orders = {p: {(d.sender, d.number): i for i, d in enumerate(ds)} for p, ds in run.delivered.items()}
    for p in orders:
        for other in orders:
            common = [key for key in orders[p] if key in orders[other]]
            assert common == sorted(common, key=orders[other].__getitem__)


def test_uniform_causal_order_delivery(run: History) -> None:
    """If the submission of m precedes that of m', nobody delivers m' before m."""
    for process in run.delivered:
        before: dict[object, int] = {}
        for record in run.delivered[process]:
            assert record.number > before.get(record.sender, 0)
            before[record.sender] = record.number


def test_uniform_agreement(run: History) -> None:
    """What any process delivers, every correct process in its destination set delivers."""
    for records in run.delivered.values():
        for record in records:
            destinations = set(run.m_q[record.sender, record.number].destinations or ())
            assert all(record.position in run.positions(p) for p in destinations & run.correct)


def test_the_routers_agree_on_one_growing_m_seq(run: History) -> None:
    """Uniform atomic broadcast: each router's learned instances are a part of one sequence (RB13 §10)."""
    chosen: dict[int, list[object]] = {}
    for router, learned in run.world.trace.learned.items():
        instances = [instance for instance, _ in learned]
        assert instances == sorted(set(instances)), router
        for instance, value in learned:
            ids = [] if value is None else [(s.sender, s.first, s.last) for s in value.submissions]
            assert chosen.setdefault(instance, ids) == ids
    assert sorted(chosen) == list(range(1, len(chosen) + 1))


# EC11 §4.6 and App. A.2.


def test_quiescence(run: History) -> None:
    """A correct sender eventually learns of each of its messages that it is stable."""
    for sender, number in run.submitted:
        if sender in run.correct:
            assert number in run.world.trace.stable[sender]


def test_lemma_8_every_message_is_eventually_stable_at_every_correct_router(run: History) -> None:
    for node in run.world.nodes.values():
        if node.is_alive and isinstance(node.core, Router):
            assert list(node.core.window.entries) == []
            assert node.core.window.n_bytes == 0


def test_what_is_not_stable_says_why(run: History) -> None:
    """An exception is told exactly for messages that were refused or whose owners are all gone."""
    for sender, told in run.world.trace.stable.items():
        for number, verdict in told.items():
            appended = run.m_q[sender, number]
            if verdict == "refused":
                assert appended.destinations is None
            elif verdict == "lost":
                assert not set(appended.destinations or ()) <= run.correct
            else:
                assert appended.destinations is not None


def test_nothing_of_q_was_lost_with_the_crashed_leader(run: History) -> None:
    """A message that was ever delivered or called stable is in Q (RB13 §5.5)."""
    stable = {(sender, number) for sender, told in run.world.trace.stable.items() for number in told}

    assert stable <= {id_of(appended.message) for appended in run.q.appended}
