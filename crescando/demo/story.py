"""The demo from beginning to end: load, work, break, and check everything.

Rules of the file: it opens a store through the public API alone and holds the
order of events; what is asked lies in `workload`, how in `verbs`, who asks in
`agents`, and who judges in `checker`.
"""

from __future__ import annotations

import gc
import random
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import crescando
from crescando.demo.agents import WINDOW, Agent
from crescando.demo.checker import Replica, ReplicaCheck, Verdict, check_answers, check_order, check_ring
from crescando.demo.flights import Flights, load_flights
from crescando.demo.progress import Telling
from crescando.demo.record import Record
from crescando.demo.replay import Replay
from crescando.demo.report import IN_FLIGHT_MIN, Kill, Report
from crescando.demo.verbs import TABLE, batch_of, plain_rows, table_schema
from crescando.demo.workload import Workload
from crescando.errors import CrescandoError, InvariantError
from crescando.types import FULL_RING, KeyRange, ProcessId

ROUTERS, STORAGES, SUPERS, REPLICATION = 3, 4, 1, 3

LOOK_EVERY_S = 0.02
"""How often the story looks at its agents; the bar moves that often."""

LOAD_TIMEOUT_S = 120.0

Kills = Callable[[ProcessId], object]
"""Kills a process, which is not warned."""


@dataclass(frozen=True, slots=True)
class Plan:
    """What a run of the demo does.

    Parameters
    ----------
    seed : int
        Decides every operation; the interleaving of agents is the threads' own.
    operations : int
        How many the agents ask for, all together.
    agents : int
    rows : int or None
        How many flights to load; None for all.
    replication : int
        Copies of each row, before anything is killed.
    """

    seed: int = 1
    operations: int = 8_000
    agents: int = 6
    rows: int | None = None
    replication: int = REPLICATION


@dataclass(frozen=True, slots=True)
class _Failure:
    what: str
    after: float
    """Share of the operations after which it comes."""
    pick: Callable[[Any, random.Random], ProcessId | None]
    """Chooses the process, given the cluster and chance; None if it cannot be told now."""


def _lead_router(cluster: Any, _: random.Random) -> ProcessId | None:
    process: ProcessId | None = cluster.status().lead_router
    return process


def _some_owner(cluster: Any, chance: random.Random) -> ProcessId:
    """Give any storage process that holds rows."""
    owners: set[ProcessId] = {process for process, _ in cluster.replicas(TABLE)}
    return chance.choice(sorted(owners))


FAILURES = (_Failure("lead router", 0.35, _lead_router), _Failure("storage process", 0.65, _some_owner))


class Saboteur:
    """Kills processes when their time has come and enough operations are in flight.

    Parameters
    ----------
    cluster : Cluster
    agents : sequence of Agent
    plan : Plan
        Its seed chooses among equals.
    kill : callable
        Kills a process.
    """

    def __init__(self, cluster: Any, agents: Sequence[Agent], plan: Plan, kill: Kills) -> None:
        self._cluster = cluster
        self._kill = kill
        self._chance = random.Random(f"{plan.seed}/failures")
        self._agents = agents
        self._due = [(failure, failure.after * plan.operations) for failure in FAILURES]
        self.kills: list[Kill] = []
        self.killed: list[ProcessId] = []

    def look(self, n_done: int) -> None:
        """Kill the next process, if it is time and it would matter."""
        if not self._due or n_done < self._due[0][1]:
            return
        failure = self._due[0][0]
        try:
            process = failure.pick(self._cluster, self._chance)
        except CrescandoError:
            # While the routers choose a new leader nobody may answer in time; the next look asks again.
            return
        in_flight = sum(agent.session.in_flight() for agent in self._agents)
        if process is None or in_flight < IN_FLIGHT_MIN:
            return
        self._kill(process)
        self._due.pop(0)
        self.killed.append(process)
        self.kills.append(Kill(failure.what, str(process), n_done, in_flight))


def run(
    plan: Plan,
    progress: Telling,
    open_store: Callable[..., Any] | None = None,
    kill: Kills | None = None,
) -> Report:
    """Run the demo.

    Parameters
    ----------
    plan : Plan
    progress : Telling
    open_store : callable or None
        Opens the store, with the arguments of `crescando.open`, which is the default.
    kill : callable or None
        Kills a process of it; by default its cluster does.

    Returns
    -------
    Report
        Its `failures` are empty if everything held.
    """
    clock = _Phases(progress)
    with clock.phase("reading the flights"):
        flights = load_flights(plan.rows)
    opener = crescando.open if open_store is None else open_store
    verdict = Verdict()
    with opener(routers=ROUTERS, storages=STORAGES, supers=SUPERS, replication=REPLICATION) as store:
        with clock.phase("loading", len(flights)):
            loaded = _load(store, flights, progress)
        workload = Workload(flights, plan.seed)
        with clock.phase("working", plan.operations), _no_collector():
            records, elapsed_s, saboteur = _work(store, workload, plan, progress, kill or store.cluster.kill)
        moved_max = total_of(store.cluster.statistics(), "resubmitted")
        check_order(records, verdict, moved_max=moved_max, loaded=loaded)
        with clock.phase("checking the answers", len(records)), _no_collector():
            replay = Replay(flights)
            check_answers(records, replay, plain_rows, verdict, progress.update)
        owned = store.cluster.replicas(TABLE)
        with clock.phase("checking the replicas", len(owned)), _no_collector():
            _check_replicas(store, owned, replay, saboteur.killed, plan.replication, verdict, progress)
        per_scan = most_of(store.cluster.statistics(), "operations_per_scan_max")
    return Report(
        seed=plan.seed,
        rows=len(flights),
        records=records,
        elapsed_s=elapsed_s,
        kills=tuple(saboteur.kills),
        kills_wanted=len(FAILURES),
        operations_per_scan=per_scan,
        verdict=verdict,
        phases_s=clock.spent_s,
    )


class _Phases:
    """Tells and times the parts of the demo."""

    def __init__(self, progress: Telling) -> None:
        self._progress = progress
        self.spent_s: dict[str, float] = {}

    @contextmanager
    def phase(self, name: str, total: int | None = None) -> Iterator[None]:
        self._progress.begin(name, total)
        began_s = time.monotonic()
        yield
        self.spent_s[name] = time.monotonic() - began_s


@contextmanager
def _no_collector() -> Iterator[None]:
    """Keep the cyclic garbage collector from walking a million records again and again."""
    gc.collect()
    gc.freeze()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()
        gc.unfreeze()


def _load(store: Any, flights: Flights, progress: Telling) -> tuple[int, ...]:
    """Load the flights; give the positions of the writes that did it."""
    store.create_table(table_schema())
    result = store.table(TABLE).insert(batch_of(flights)).result(LOAD_TIMEOUT_S)
    progress.update(result.affected)
    if (result.affected, result.rejected) != (len(flights), 0):
        raise InvariantError(
            f"of {len(flights)} flights {result.affected} were written, {result.rejected} rejected"
        )
    positions: tuple[int, ...] = result.positions
    return positions


def _work(
    store: Any, workload: Workload, plan: Plan, progress: Telling, kill: Kills
) -> tuple[list[Record], float, Saboteur]:
    """Let the agents work while processes die; give what they saw and how long it took."""
    share, rest = divmod(plan.operations, plan.agents)
    agents = [
        Agent(
            number,
            store.session(f"agent-{number}"),
            TABLE,
            workload.stream(number, share + (number < rest)),
            window=WINDOW,
        )
        for number in range(plan.agents)
    ]
    saboteur = Saboteur(store.cluster, agents, plan, kill)
    began_s = time.monotonic()
    for agent in agents:
        agent.start()
    recent = _Rate(began_s)
    pause = threading.Event()
    while any(agent.is_alive() for agent in agents):
        n_done = sum(len(agent.records) for agent in agents)
        saboteur.look(n_done)
        killed = "".join(f"; killed {kill.process}" for kill in saboteur.kills)
        progress.update(n_done, f"{recent.of(n_done, time.monotonic()):,.0f} operations/s{killed}")
        pause.wait(LOOK_EVERY_S)
    elapsed_s = time.monotonic() - began_s
    for agent in agents:
        agent.join()
        if agent.error is not None:
            raise agent.error
    records = [record for agent in agents for record in agent.records]
    progress.update(len(records), f"{len(records) / elapsed_s:,.0f} operations/s")
    return records, elapsed_s, saboteur


class _Rate:
    """Operations per second over the last second or so."""

    def __init__(self, began_s: float) -> None:
        self._seen: list[tuple[float, int]] = [(began_s, 0)]

    def of(self, n_done: int, now_s: float) -> float:
        self._seen.append((now_s, n_done))
        while len(self._seen) > 2 and now_s - self._seen[0][0] > 1.0:
            self._seen.pop(0)
        since_s, before = self._seen[0]
        return (n_done - before) / max(now_s - since_s, 1e-6)


def _check_replicas(
    store: Any,
    owned: Sequence[tuple[ProcessId, KeyRange]],
    replay: Replay,
    killed: Sequence[ProcessId],
    replication: int,
    verdict: Verdict,
    progress: Telling,
) -> None:
    """Compare every live replica of every ring range with SQLite, and make sure that the dead stay silent."""
    n_dead = sum(process.role == "storage" for process in killed)
    check_ring(owned, replication - n_dead, verdict)
    check = ReplicaCheck(replay, verdict)
    for process, key_range in owned:
        if process in killed:
            verdict.ring_faults += 1
            verdict.tell("ring", f"{process} was killed and is still named as an owner of {key_range}")
            continue
        answer = store.cluster.read_replica(process, key_range, TABLE)
        check.compare(Replica(process, key_range, plain_rows(answer)))
        progress.update(verdict.n_replicas)
    check.finish()
    for process in killed:
        if process.role == "storage" and _answers(store.cluster, process, FULL_RING):
            verdict.ring_faults += 1
            verdict.tell("ring", f"{process} was killed and still answers")


def _answers(cluster: Any, process: ProcessId, key_range: KeyRange) -> bool:
    try:
        cluster.read_replica(process, key_range, TABLE)
    except CrescandoError:
        return False
    return True


def _all_of(statistics: object, name: str) -> Iterator[int]:
    if isinstance(statistics, Mapping):
        if name in statistics:
            yield int(statistics[name])
        for value in statistics.values():
            yield from _all_of(value, name)


def most_of(statistics: object, name: str) -> int:
    """Give the greatest counter of a name, wherever it is in a cluster's statistics."""
    return max(_all_of(statistics, name), default=0)


def total_of(statistics: object, name: str) -> int:
    """Give the sum of the counters of a name, wherever they are in a cluster's statistics."""
    return sum(_all_of(statistics, name))
