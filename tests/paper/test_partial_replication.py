"""RB13 §9.2 and EC11 §5: Stateful Routing solves Dynamic Partial Replication (Theorem 1)."""

from __future__ import annotations

import pytest

from crescando.testing.checkers import interpret
from crescando.testing.judge import Appended
from crescando.testing.workload import Model, Step
from crescando.types import MessageKind, ProcessId
from tests.paper.history import SEEDS, History, history


@pytest.fixture(params=SEEDS)
def run(request: pytest.FixtureRequest) -> History:
    return history(request.param)


def step_of(run: History, appended: Appended) -> Step | None:
    """Give the write that a message carries; None for reads, refused and configuration messages."""
    if appended.destinations is None or appended.message.kind is not MessageKind.WRITE:
        return None
    return interpret(run.world.workload, appended)


def writes(run: History) -> list[tuple[Appended, Step]]:
    steps = ((appended, step_of(run, appended)) for appended in run.q.appended)
    return [(appended, step) for appended, step in steps if step is not None]


def owners_of(run: History, key: int) -> set[ProcessId]:
    """Give the processes that hold a key, by the ring as it is laid out."""
    at = run.world.workload.ring_position(key)
    ring = run.world.assembly.config.ring
    (arc,) = [arc for arc in ring.arcs if arc.low <= at <= arc.high]
    return {p for p in ring.processes if arc in run.world.assembly.config.owned_arcs(p)}


def live_owners(run: History) -> list[ProcessId]:
    return sorted(p for p in run.correct if p.role == "storage")


def final_model(run: History) -> Model:
    model = Model()
    for _, step in writes(run):
        model.write(step)
    return model


def test_integrity_atomicity_and_durability(run: History) -> None:
    """Every correct storage process ends with T^Q: all of Q's writes, and nothing else."""
    model = final_model(run)
    lost = [key for key, verdict in _verdicts(run).items() if verdict == "lost"]
    for process in live_owners(run):
        for arc in run.world.assembly.config.owned_arcs(process):
            expected = {
                key: row
                for key, row in model.rows.items()
                if arc.low <= run.world.workload.ring_position(key) <= arc.high
            }
            assert run.rows(process, arc) == expected, (run.seed, process, lost)


def _verdicts(run: History) -> dict[tuple[ProcessId, int], str]:
    return {
        (sender, number): verdict
        for sender, told in run.world.trace.stable.items()
        for number, verdict in told.items()
    }


def test_durability_of_every_write_of_a_correct_client(run: History) -> None:
    """Each of its writes is in Q, and whatever was not refused has been delivered by all correct owners."""
    for (sender, number), verdict in _verdicts(run).items():
        if sender not in run.correct or verdict != "stable":
            continue
        appended = run.m_q[sender, number]
        for process in set(appended.destinations or ()) & run.correct:
            assert appended.position in run.positions(process)


def test_strong_consistency(run: History) -> None:
    """Q extends the write order of each client and the execution order of each storage process."""
    order = {(a.message.sender, a.message.number): i for i, (a, _) in enumerate(writes(run))}
    for client in {sender for sender, _ in order}:
        own = [order[key] for key in run.submitted if key[0] == client and key in order]
        assert own == sorted(own)
    for process in live_owners(run):
        executed = [
            order[d.sender, d.number] for d in run.delivered[process] if (d.sender, d.number) in order
        ]
        assert executed == sorted(set(executed))


def test_corollary_1_complete_delivery(run: History) -> None:
    """If a write changes the table of s, then s is in its destination set, unless declared faulty before."""
    model = Model()
    for appended, step in writes(run):
        before = dict(model.rows)
        model.write(step)
        changed = {key for key in before.keys() | model.rows.keys() if before.get(key) != model.rows.get(key)}
        affected = {owner for key in changed for owner in owners_of(run, key)}
        gone = {p for p, at in run.q.suspected.items() if at < appended.position}
        assert affected - gone <= set(appended.destinations or ()), appended.position


def test_a_correct_destset_may_be_larger_than_the_perfect_one_but_is_no_broadcast() -> None:
    """RB13 §9.2: superfluous deliveries are overhead, and most writes with a key reach their owners only."""
    narrow = 0
    for seed in SEEDS:
        run = history(seed)
        storages = [p for p in run.world.nodes if p.role == "storage"]
        for appended, step in writes(run):
            if step.name in ("add_by_key", "delete_by_key") and not step.then:
                destinations = set(appended.destinations or ())
                assert destinations <= owners_of(run, step.arguments[-1])
                narrow += len(destinations) < len(storages)
    assert narrow > 50
