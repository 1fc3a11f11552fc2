"""No role's memory grows without bound, whoever stops reading, confirming or executing.

Whole clusters under virtual time with small limits and clients that ask for far
more than these admit; what each role holds is measured after every turn of every
process, and compared with what its limits state (`measured`). Planted leaks show
that the measures find them.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from crescando.consensus.multipaxos.learner import Learner
from crescando.engine.written import Written
from crescando.roles.client import Client
from crescando.roles.ledger import WrittenRecord
from crescando.roles.storage import Storage
from crescando.roles.super import SuperTiming
from crescando.routing.batch import Message, Submission, submission
from crescando.routing.ecast import mseq as mseq_module
from crescando.routing.ecast import proposer as proposer_module
from crescando.routing.ecast.allowance import Allowance
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.backlog import Backlog
from crescando.routing.ecast.outgoing import Outgoing
from crescando.routing.ecast.stability import Window
from crescando.routing.rubberband.messages import Leave, Suspect, encode_message
from crescando.types import MessageKind, ProcessId
from tests.simulation.measured import (
    CONFIG_CREDIT_BYTES,
    OPERATION_WIRE_BYTES,
    ROUTER,
    SPEC,
    STORAGE,
    AboveBoundError,
    Bound,
    Measured,
    application_of,
    bounds_of,
    shrink_constants,
    stick,
)

pytestmark = pytest.mark.simulation


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    shrink_constants(monkeypatch)


# What happens.


Scenario = Callable[..., Measured]


def paused_destination(seconds: float = 60.0) -> Measured:
    """One destination takes nothing for a while, under full load."""
    cluster = Measured(7)
    victim = cluster.assembly.names.storages[1]
    for n in range(3):
        cluster.load(f"any{n}", 300)
    cluster.load("elsewhere", 4, avoiding=victim)
    cluster.begin()
    cluster.run(1.0)
    cluster.nodes[victim].pause()
    cluster.run(seconds)
    return cluster


def stuck_engine(seconds: float = 30.0) -> Measured:
    """One engine executes nothing any more, while its process answers whoever asks."""
    cluster = Measured(8)
    victim = cluster.assembly.names.storages[2]
    for n in range(3):
        cluster.load(f"any{n}", 300)
    cluster.begin()
    cluster.run(1.0)
    stick(cluster, victim)
    cluster.run(seconds)
    return cluster


def deaf_client(seconds: float = 60.0) -> Measured:
    """One client reads nothing for a while."""
    cluster = Measured(10)
    reader = cluster.load("reader", 300)
    cluster.load("other", 10)
    cluster.begin()
    cluster.run(1.0)
    cluster.nodes[reader.script.core.me].pause()
    cluster.run(seconds)
    return cluster


def paused_router(seconds: float = 10.0) -> Measured:
    """One follower learns nothing for a while, and is not removed."""
    cluster = Measured(12)
    for n in range(3):
        cluster.load(f"any{n}", 100)
    cluster.begin()
    cluster.run(1.0)
    leader = cluster.leader()
    follower = next(router for router in cluster.assembly.names.routers if router != leader)
    cluster.nodes[follower].pause()
    cluster.run(seconds)
    return cluster


def unanswered_rounds() -> Measured:
    """Snapshot reads come to a leader that no majority answers for most of an election time."""
    cluster = Measured(14)
    for n in range(4):
        cluster.load(f"reader{n}", 400, snapshot=True)
    cluster.begin()
    cluster.run(1.0)
    leader = cluster.leader()
    followers = [router for router in cluster.assembly.names.routers if router != leader]
    for _ in range(4):
        for router in followers:
            cluster.nodes[router].pause()
        cluster.run(0.6)
        for router in followers:
            cluster.nodes[router].resume()
        cluster.run(1.0)
    return cluster


def greedy_senders() -> Measured:
    """Clients send without minding their credit, and one destination confirms nothing."""
    spec = replace(SPEC, router=replace(ROUTER, lag_bytes=10 * ROUTER.window_bytes))
    cluster = Measured(15, spec)
    # What a router takes of one that does not mind its credit, until it ends the session.
    each = 2 * ROUTER.sender_bytes + 2 * CONFIG_CREDIT_BYTES
    cluster.bounds["waiting"] = Bound(5 * each, 5 * ROUTER.sender_bytes // 2)
    for n in range(5):
        load = cluster.load(f"greedy{n}", 700)
        # It sends whatever it has.
        application_of(load.script.core)._outgoing._allowed = len  # type: ignore[method-assign, assignment]
    cluster.bounds["on way"] = Bound(768 * OPERATION_WIRE_BYTES)
    cluster.begin()
    cluster.run(0.5)
    for storage in cluster.assembly.names.storages[:2]:
        cluster.nodes[storage].pause()
    cluster.run(10.0)
    return cluster


def everything_refused() -> Measured:
    """A client asks for nothing that can take effect."""
    cluster = Measured(11)
    load = cluster.load("refused", 0)
    cluster.begin()
    script, rng = load.script, random.Random(11)
    cluster.loads.clear()
    for _ in range(30):
        for _ in range(100):
            request = cluster.workload.draw(rng)
            strange = msgspec.structs.replace(request, shape=msgspec.structs.replace(request.shape, table=77))
            script.core.request(script.next_token, strange)
            script.next_token += 1
        cluster.nodes[script.core.me].pump.need_turn()
        cluster.pass_time(0.2)
    return cluster


def voted_out_one_by_one() -> Measured:
    """Owners are voted out with reads on their way, and clients come and go."""
    cluster = Measured(13, replace(SPEC, storages=6))
    for n in range(2):
        cluster.load(f"any{n}", 80)
    cluster.begin()
    (accuser,) = cluster.assembly.names.supers
    multicast = cluster.nodes[accuser].core.multicast  # type: ignore[attr-defined]
    for storage in cluster.assembly.names.storages[::2]:
        cluster.nodes[storage].pause()
        cluster.run(0.5)
        multicast.submit(accusation(accuser, storage, multicast.next_number))
        cluster.nodes[accuser].pump.need_turn()
        cluster.run(0.5)
    for n in range(12):
        passing = cluster.add_client(f"passing{n}")
        cluster.run(0.1)
        if n % 2:
            cluster.configure(passing, Leave(passing.core.me))
            cluster.run(0.1)
        cluster.nodes[passing.core.me].crash()
    cluster.run(1.0)
    cluster.look_back()
    return cluster


def accusation(accuser: ProcessId, accused: ProcessId, number: int) -> Submission:
    """Give a super's message that a process has failed."""
    payload = encode_message(Suspect(accused))
    return submission([Message(accuser, number, MessageKind.CONFIG, -1, (), 0, payload)])


# That nothing is above its bound.


@pytest.mark.parametrize(
    ("scenario", "reached"),
    [
        (paused_destination, {"an outbox": 0.9, "on way": 0.5, "undecided": 0.35}),
        (stuck_engine, {"queue": 0.9, "an outbox": 0.5}),
        (deaf_client, {"outcomes": 0.5, "on way": 0.5}),
        (paused_router, {"learned values": 0.9, "votes": 0.9}),
        (unanswered_rounds, {"held reads": 0.9, "a client's held reads": 0.6, "attempts": 0.9}),
        (greedy_senders, {"window": 0.9, "waiting": 0.9, "undecided": 0.9}),
        (everything_refused, {"refused": 0.25, "on way": 0.5}),
        (voted_out_one_by_one, {"departed": 1.0, "outcomes": 1.0, "lost": 0.01}),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_nothing_is_ever_above_its_bound(scenario: Scenario, reached: dict[str, float]) -> None:
    cluster = scenario()

    assert cluster.violations() == {}, cluster.peaks
    short = {name: cluster.reached(name) for name, part in reached.items() if cluster.reached(name) < part}
    assert not short, "the load never came near a bound"


def test_no_bound_is_wide() -> None:
    wide = {name: bound for name, bound in bounds_of(SPEC, 5).items() if bound.overshoot > bound.limit / 2}

    assert not wide


# That the others go on meanwhile, and everybody afterwards.


def test_whoever_does_not_address_a_paused_destination_goes_on_and_the_others_when_it_is_back() -> None:
    cluster = paused_destination(5.0)
    *anywhere, elsewhere = cluster.loads
    before = cluster.finished(elsewhere)
    stalled = [cluster.finished(load) for load in anywhere]
    cluster.run(1.0)

    assert cluster.finished(elsewhere) > before + 20
    assert [cluster.finished(load) for load in anywhere] == stalled
    cluster.nodes[cluster.assembly.names.storages[1]].resume()
    cluster.pass_time(20.0)
    assert cluster.violations() == {}
    assert all(load.script.core.n_in_flight == 0 for load in cluster.loads)


def test_an_engine_that_is_stuck_closes_the_loop() -> None:
    cluster = stuck_engine(5.0)

    core = cluster.nodes[cluster.assembly.names.storages[2]].core
    assert isinstance(core, Storage)
    assert core._is_over_budget
    assert core._is_busy, "it is asked for one cycle and never ends it"


def test_others_go_on_beside_a_client_that_reads_nothing_and_it_goes_on_when_it_reads() -> None:
    cluster = deaf_client(5.0)
    reader, other = cluster.loads
    before = cluster.finished(other)
    cluster.run(1.0)

    assert cluster.finished(other) > before + 20
    cluster.nodes[reader.script.core.me].resume()
    cluster.pass_time(20.0)
    assert cluster.violations() == {}
    assert all(load.script.core.n_in_flight == 0 for load in cluster.loads)


def test_one_whose_engine_is_stuck_is_voted_out_although_it_answers_and_the_others_go_on() -> None:
    spec = replace(
        SPEC,
        router=replace(ROUTER, max_lag_s=3.0),
        storage=replace(STORAGE, queue_bytes=30_000),
        super_=SuperTiming(suspicion_s=3.0),
        supers=3,
    )
    cluster = Measured(9, spec)
    victim = cluster.assembly.names.storages[2]
    for n in range(2):
        cluster.load(f"any{n}", 50)
    cluster.run(0.5)
    assert cluster.suspected() == set()

    stick(cluster, victim)
    for _ in range(20):
        if not cluster.suspected():
            cluster.run(1.0)

    assert cluster.suspected() == {victim}
    assert "expelled" in cluster.nodes[victim].stopped
    finished = [cluster.finished(load) for load in cluster.loads]
    cluster.run(0.5)
    assert all(cluster.finished(load) > before for load, before in zip(cluster.loads, finished, strict=True))
    cluster.pass_time(20.0)
    assert all(load.script.core.n_in_flight == 0 for load in cluster.loads)


# Planted leaks.


keep_some = WrittenRecord.keep


def keep_everything(self: WrittenRecord, written: Written, limit: int) -> None:
    keep_some(self, written, 1 << 60)


def drop_nothing(self: Backlog[Any], upto: int, notice: Any) -> Iterator[Any]:
    return iter(())


@pytest.mark.parametrize(
    ("owner", "name", "leak", "scenario", "found"),
    [
        (Outgoing, "_allowed", lambda self, head: len(head), lambda: paused_destination(3.0), "on way"),
        (Client, "_may_submit", lambda self, now_s: True, lambda: paused_destination(45.0), "undecided"),
        (Window, "forget_lost", lambda self, *_: None, voted_out_one_by_one, "lost long ago"),
        (mseq_module, "DEPARTED_MAX", 1 << 20, voted_out_one_by_one, "departed"),
        (WrittenRecord, "keep", keep_everything, voted_out_one_by_one, "outcomes"),
        (Allowance, "admits", lambda self, *_: True, unanswered_rounds, "held reads"),
        (Learner, "trim", lambda self, *_: None, paused_router, "learned values"),
        (Backlog, "drop", drop_nothing, lambda: paused_destination(2.0), "backlog of what is stable"),
        (Application, "hold_confirms", lambda self, *_: None, lambda: stuck_engine(10.0), "queue"),
        (proposer_module, "CONFIG_CREDIT_BYTES", 1 << 30, greedy_senders, "waiting"),
    ],
    ids=[
        "credit is ignored",
        "submissions stall without end",
        "what was lost is never forgotten",
        "former members are never forgotten",
        "outcomes are never forgotten",
        "snapshot reads are not counted",
        "learned values are never trimmed",
        "a follower drops nothing",
        "confirmations are not withheld",
        "whoever sends too much is borne",
    ],
)
def test_a_planted_leak_is_found(
    owner: Any, name: str, leak: Any, scenario: Scenario, found: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(owner, name, leak)
    monkeypatch.setattr(Measured, "ends_above", found)

    with pytest.raises(AboveBoundError, match=f"^{found} "):
        scenario()
