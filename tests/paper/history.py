"""Recorded runs, in the vocabulary of RB13 Appendix 1: events, M^Σ, M^Δ and Q.

Each history is a whole simulated cluster under a seed, in which the lead
router and a storage process crash, others are cut off, paused and reset, and
which is then healed and left to come to rest. Q is computed anew from what
the routers learned, by the independent twin of the configuration.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache, partial

from crescando.engine.statement import Operation
from crescando.routing.batch import Message
from crescando.testing.cluster import SimulatedCluster
from crescando.testing.faults import Fault, draw_faults
from crescando.testing.judge import Appended, Judgement, judge_order
from crescando.testing.trace import Delivered
from crescando.types import KeyRange, ProcessId
from tests.simulation.judge import TwinJudge, world_of
from tests.simulation.runs import small_engine

SEEDS = tuple(range(900, 908))
SPAN_S, REST_S = 6.0, 20.0

Id = tuple[ProcessId, int]
"""id(m): the sender and its number."""


@dataclass(frozen=True)
class Submitted:
    """sub(m), and up to where its sender had delivered before."""

    message: Message
    delivered: int


@dataclass(frozen=True)
class History:
    """What happened in one run.

    Attributes
    ----------
    submitted : mapping of Id to Submitted
        M^Σ, in the order of submission per process.
    delivered : mapping of ProcessId to list of Delivered
        M^Δ per process, in the order of delivery.
    q : Judgement
        Q, with the destination set of each message at its own prefix.
    correct : set of ProcessId
        Neither crashed nor declared faulty.
    """

    seed: int
    world: SimulatedCluster
    submitted: Mapping[Id, Submitted]
    delivered: Mapping[ProcessId, list[Delivered]]
    q: Judgement
    correct: set[ProcessId]

    @property
    def m_q(self) -> dict[Id, Appended]:
        return {id_of(appended.message): appended for appended in self.q.appended}

    def positions(self, process: ProcessId) -> list[int]:
        return [record.position for record in self.delivered.get(process, ())]

    def rows(self, process: ProcessId, arc: KeyRange) -> dict[int, tuple[int, int]]:
        """Give what a storage process holds of a ring range at the end."""
        engine = self.world.nodes[process].engine
        assert engine is not None
        asker = ProcessId("client", "reader", 1)
        shape = self.world.workload.shapes["read_all"]
        held: dict[int, tuple[int, int]] = {}
        for results in engine.execute([Operation(1 << 62, asker, 1, shape, (), (arc,))]):
            for rows in results.rows:
                k, v, g = (column.values.tolist() for column in rows.columns)
                held.update(zip(k, zip(v, g, strict=True), strict=True))
        return held


def id_of(message: Message) -> Id:
    return message.sender, message.number


@cache
def history(seed: int) -> History:
    """Give the history of a seed; it is recorded once."""
    world = SimulatedCluster(seed, engine=small_engine)
    for number in range(1, 4):
        script = world.add_client(f"c{number}")
        when_s = 0.05
        while when_s < SPAN_S:
            when_s += script.rng.expovariate(4.0)
            world.time.call_at(when_s, partial(world.burst, script, script.rng.choice((1, 3, 8))))
    faults = [
        Fault("usurp", 1.0, 1.0, seed),
        Fault("crash_storage", 2.5, 0.0, seed),
        Fault("crash_client", 4.0, 0.0, seed),
        *draw_faults(world.rng, span_s=SPAN_S),
    ]
    for fault in faults:
        world.time.call_at(fault.when_s, partial(world.inject, fault))
    world.time.run_until(SPAN_S)
    world.heal()
    world.time.run_until(SPAN_S + REST_S)
    return _recorded(world)


def _recorded(world: SimulatedCluster) -> History:
    trace = world.trace
    complete = [known for router, known in trace.learned.items() if not trace.installed.get(router)]
    q = judge_order(max(complete, key=len), world_of(world.assembly.config), TwinJudge())
    submitted = {
        id_of(message): Submitted(message, record.delivered)
        for record in trace.submitted
        for message in map(record.batch.message, range(len(record.batch)))
    }
    correct = {p for p, node in world.nodes.items() if node.is_alive and p not in q.suspected}
    return History(world.seed, world, submitted, trace.delivered, q, correct)
