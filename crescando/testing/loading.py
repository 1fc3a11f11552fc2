"""Atomic loads in a simulated cluster that changes all the time: drivers, workers, attempts that die.

Rules of the file: it is `ElasticCluster` and nothing beside it. A load's rows are drawn once, partition by
partition; whoever loads them may be any client, any number of times. Attempts at a partition run
beside one another, stop half-way, or are made again; drivers die, forget, or are replaced by
another one that begins the same job's epoch anew. What is ordered, and what clients are told, is all
that the judge looks at (`loading_judge`).
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from crescando.client.base import LOAD_REPEAT, LoadEnd, Request, StagedChunk, WriteOutcome, load_digest
from crescando.engine.partition import ring_positions
from crescando.engine.ranges import ranges_of_positions
from crescando.engine.statement import Column, Kind, Shape, encode_parameters
from crescando.errors import LOAD_PARTLY, RefusedError
from crescando.roles.completion import Completion
from crescando.routing.rubberband.messages import AbortLoad, BeginLoad, CloseLoad, RenewLoad
from crescando.schema import DataType
from crescando.spec import ClusterSpec
from crescando.testing.checkers import Violations
from crescando.testing.elastic import ElasticCluster, draw_elastic_spec
from crescando.testing.judge import Judgement
from crescando.testing.loading_judge import Told, Written, read_loads
from crescando.testing.workload import GROUPS, KEYS, Row
from crescando.types import FULL_RING, LoadId, ProcessId

WRITES = ("keep", "keep", "replace", "fail", "fail", "upsert", "update", "delete", "overwrite")
"""What loads do, the rules of inserts by their own names."""

ATTEMPTS_MAX = 6
"""Of one partition, for one driver."""

DRIVERS_MAX = 4

Key = tuple[ProcessId, int]


@dataclass(slots=True)
class Attempt:
    """One worker at one partition."""

    worker: ProcessId
    number: int
    chunks: list[tuple[Row, ...]]
    stops_after: int
    """With so many chunks ordered it is killed."""
    tokens: list[int] = field(default_factory=list)
    is_dead: bool = False
    position: int = -1


@dataclass(slots=True)
class Plan:
    """One load as somebody wants it, whoever carries it out.

    Attributes
    ----------
    job, epoch, write
    partitions : list of tuple of Row
    """

    job: str
    epoch: int
    write: str
    partitions: list[tuple[Row, ...]]
    lease_ms: int
    is_forgotten: bool
    """Whether its first driver never commits."""
    driver: ProcessId | None = None
    n_drivers: int = 0
    begin: int = 0
    load: LoadId | None = None
    attempts: dict[int, list[Attempt]] = field(default_factory=dict)
    winners: tuple[tuple[int, int, int, int], ...] = ()
    staged: int = -1
    end: tuple[str, int] | None = None
    is_over: bool = False
    n_asleep: int = 0


def _with_little_room(seed: int) -> ClusterSpec:
    """Draw a spec in which bytes that are not ordered soon are often gone when their order comes."""
    rng = random.Random(f"{seed}/elastic")
    spec = draw_elastic_spec(rng)
    # Where there is hardly room, what the dead have left must not take it for long.
    stage_bytes, stage_s = rng.choice(((400, 0.3), (64 << 20, 0.005), (64 << 20, 60.0)))
    kept_bytes = rng.choice((1, 64 << 20))
    storage = replace(spec.storage, stage_bytes=stage_bytes, stage_s=stage_s, stage_kept_bytes=kept_bytes)
    return replace(spec, storage=storage)


class LoadingCluster(ElasticCluster):
    """A cluster under load, faults and changes, into which rows are loaded.

    Attributes
    ----------
    plans : list of Plan
    outcomes_of_loads : dict
        What each client was told, by token.
    rows_of_chunks : dict
        What bytes mean, by their digest.
    """

    def __init__(self, seed: int, **arguments: Any) -> None:
        self.plans: list[Plan] = []
        self.outcomes_of_loads: dict[Key, WriteOutcome | Exception | None] = {}
        self.load_tokens: dict[Key, tuple[str, Any]] = {}
        self.rows_of_chunks: dict[bytes, tuple[Row, ...]] = {}
        self.told_of_loads: list[Told] = []
        self.found_in_loads: Violations = []
        self.n_attempts = 0
        self._loading = random.Random(f"{seed}/loading")
        spec = arguments.pop("spec", None) or _with_little_room(seed)
        super().__init__(seed, spec=spec, **arguments)

    # What is wanted.

    def plan(self) -> None:
        """Let somebody want a load."""
        rng = self._loading
        write = rng.choice(WRITES)
        known = [each for each in self.plans if each.job == "job0"]
        job, epoch = ("job0", len(known)) if rng.random() < 0.4 else (f"job{len(self.plans) + 1}", 0)
        partitions = []
        for _ in range(rng.randint(1, 3)):
            keys = [rng.randrange(2 * KEYS) for _ in range(rng.choice((0, 1, 3, 6)))]
            if write == "fail" and rng.random() < 0.6:
                # Such a load can succeed.
                keys = [10_000 + rng.randrange(10_000) for _ in keys]
            partitions.append(tuple((key, rng.randint(1, 1000), rng.randrange(GROUPS)) for key in keys))
        lease_ms = rng.choice((1_500, 6_000, 60_000))
        plan = Plan(job, epoch, write, partitions, lease_ms, rng.random() < 0.15)
        self.plans.append(plan)
        self.later(rng.uniform(0.0, 0.3), lambda: self._go_on(plan))

    # Carrying it out.

    def _go_on(self, plan: Plan) -> None:
        """Do what can be done next; looks again after a while."""
        if plan.is_over:
            return
        if not self._has_driver(plan):
            if plan.n_drivers >= DRIVERS_MAX or not self._able():
                plan.is_over = True
                self.count("loads_given_up")
                return
            self._take_over(plan)
        elif plan.load is None:
            self._look_at_begin(plan)
        elif plan.end is not None:
            self._look_at_end(plan)
        elif plan.is_forgotten and plan.n_drivers == 1:
            plan.n_asleep += 1
            if plan.n_asleep > 10:
                # Nobody looks after it; another one may want the same.
                plan.driver, plan.is_over = None, self._loading.random() < 0.5
                self.count("loads_forgotten")
        else:
            self._stage(plan)
        if not plan.is_over:
            self.later(self._loading.uniform(0.05, 0.4), lambda: self._go_on(plan))

    def _able(self) -> list[ProcessId]:
        return [each for each in self.alive("client") if not self.clients[each].core.is_over]

    def _has_driver(self, plan: Plan) -> bool:
        return plan.driver is not None and plan.driver in self._able()

    def _take_over(self, plan: Plan) -> None:
        """Let some client begin the load, anew if somebody did before."""
        plan.driver = self._loading.choice(self._able())
        plan.n_drivers += 1
        plan.load, plan.end, plan.attempts = None, None, {}
        script = self.clients[plan.driver]
        write, rule = (
            ("insert", plan.write) if plan.write in ("keep", "replace", "fail") else (plan.write, "fail")
        )
        columns = (0,) if write == "delete" else (0, 1, 2)
        schema = self.workload.schema
        body = BeginLoad(schema.id, 1, plan.job, plan.epoch, write, rule, columns, plan.lease_ms)
        plan.begin = script.next_token
        self.load_tokens[plan.driver, plan.begin] = "begin", plan
        number = self.configure(script, body)
        self.count("loads_begun")
        if number is not None:
            self.load_tokens[plan.driver, plan.begin] = "begin", LoadId(plan.driver, number)

    def _look_at_begin(self, plan: Plan) -> None:
        assert plan.driver is not None
        key = plan.driver, plan.begin
        if key not in self.outcomes_of_loads:
            return
        _, load = self.load_tokens[key]
        if self.outcomes_of_loads[key] is not None or not isinstance(load, LoadId):
            plan.driver = None
        elif self.newest().loads.is_repeat(self.workload.schema.id, plan.job, plan.epoch):
            plan.is_over = True
            self.count("loads_repeated")
        else:
            plan.load = load

    def _stage(self, plan: Plan) -> None:
        """Let workers work; commit when each partition has been staged by somebody."""
        rng = self._loading
        if rng.random() < 0.05:
            assert plan.driver is not None
            assert plan.load is not None
            self._configure(plan.driver, "renew", RenewLoad(plan.load))
        whole: dict[int, list[Attempt]] = {}
        for partition in range(len(plan.partitions)):
            attempts = plan.attempts.setdefault(partition, [])
            for attempt in attempts:
                self._look_at_attempt(attempt)
            running = [each for each in attempts if not each.is_dead]
            whole[partition] = [each for each in running if self._is_whole(each)]
            wanted = 1 if rng.random() < 0.8 else 2
            if not whole[partition] and len(running) < wanted and self._able():
                if len(attempts) >= ATTEMPTS_MAX:
                    plan.driver = None
                    return
                self._attempt(plan, partition)
        if all(whole.values()):
            chosen = [(partition, rng.choice(some)) for partition, some in whole.items()]
            plan.winners = tuple(
                (partition, each.number, len(each.chunks), len(plan.partitions[partition]))
                for partition, each in chosen
            )
            plan.staged = max(each.position for _, each in chosen)
            if rng.random() < 0.08:
                assert plan.driver is not None
                assert plan.load is not None
                self._configure(plan.driver, "abort", AbortLoad(plan.load))
                plan.driver = None
            else:
                self._end(plan, "seal" if plan.write == "fail" else "commit")

    def _attempt(self, plan: Plan, partition: int) -> None:
        """Let some worker stage a partition, and all of its chunks at once: these are small."""
        rng = self._loading
        rows = plan.partitions[partition]
        chunks = [rows[start : start + 2] for start in range(0, len(rows), 2)]
        self.n_attempts += 1
        stops_after = rng.randrange(len(chunks) + 1) if rng.random() < 0.25 else len(chunks)
        attempt = Attempt(rng.choice(self._able()), self.n_attempts, chunks, stops_after)
        plan.attempts[partition].append(attempt)
        assert plan.load is not None
        for index, chunk in enumerate(chunks[:stops_after]):
            script = self.clients[attempt.worker]
            token, script.next_token = script.next_token, script.next_token + 1
            attempt.tokens.append(token)
            request = self._chunk(plan.load, partition, attempt.number, index, chunk, plan.write)
            self.load_tokens[attempt.worker, token] = "chunk", request
            script.core.request(token, request)
        if stops_after < len(chunks):
            attempt.is_dead = True
            self.count("attempts_killed")
        self.count("attempts")
        self.nodes[attempt.worker].pump.need_turn()

    def _chunk(
        self, load: LoadId, partition: int, attempt: int, index: int, rows: tuple[Row, ...], write: str
    ) -> Request:
        keys, values, groups = zip(*rows, strict=True)
        columns = (
            Column(DataType.INT64, np.array(keys, np.int64)),
            Column(DataType.INT64, np.array(values, np.int64)),
            Column(DataType.INT32, np.array(groups, np.int32)),
        )
        schema = self.workload.schema
        shape = Shape(Kind.UPDATE, schema.id, 1)
        given = columns[:1] if write == "delete" else columns
        payload = encode_parameters(Shape(Kind.INSERT, schema.id, 1), given)
        digest = load_digest(payload)
        self.rows_of_chunks[digest] = tuple(rows) if write != "delete" else tuple((k, 0, 0) for k in keys)
        chunk = StagedChunk(load, partition, attempt, index, len(rows), digest, payload)
        return Request(shape, (), ranges_of_positions(ring_positions(schema, columns[0])), load=chunk)

    def _look_at_attempt(self, attempt: Attempt) -> None:
        for token in attempt.tokens:
            outcome = self.outcomes_of_loads.get((attempt.worker, token))
            if isinstance(outcome, Exception):
                attempt.is_dead = True
            elif isinstance(outcome, WriteOutcome):
                attempt.position = max(attempt.position, outcome.position)
        if attempt.worker not in self._able():
            attempt.is_dead = attempt.is_dead or not self._is_whole(attempt)

    def _is_whole(self, attempt: Attempt) -> bool:
        told = [self.outcomes_of_loads.get((attempt.worker, token)) for token in attempt.tokens]
        return len(told) == len(attempt.chunks) and all(isinstance(each, WriteOutcome) for each in told)

    def _end(self, plan: Plan, kind: Any) -> None:
        assert plan.driver is not None
        assert plan.load is not None
        if kind != "publish":
            self._configure(plan.driver, "close", CloseLoad(plan.load))
        script = self.clients[plan.driver]
        token, script.next_token = script.next_token, script.next_token + 1
        schema = self.workload.schema
        winners = () if kind == "publish" else plan.winners
        end = LoadEnd(kind, plan.load, schema.id, plan.job, plan.epoch, winners, plan.staged)
        plan.end = kind, token
        self.load_tokens[plan.driver, token] = "end", end
        request = Request(Shape(Kind.UPDATE, schema.id, 1), (), (FULL_RING,), load=end)
        script.core.request(token, request)
        self.nodes[plan.driver].pump.need_turn()

    def _look_at_end(self, plan: Plan) -> None:
        assert plan.driver is not None
        assert plan.end is not None
        assert plan.load is not None
        kind, token = plan.end
        key = plan.driver, token
        if key not in self.outcomes_of_loads:
            return
        outcome = self.outcomes_of_loads[key]
        if isinstance(outcome, WriteOutcome) and kind == "seal":
            plan.end = None
            if any(count.rejected for count in outcome.counts):
                self._configure(plan.driver, "abort", AbortLoad(plan.load))
                plan.is_over = True
                self.count("loads_in_conflict")
            elif self._loading.random() < 0.2:
                # It dies behind the seal: a super ends the load, or whoever begins the job again.
                plan.driver = None
                self.count("loads_left_sealed")
            else:
                self._end(plan, "publish")
        elif isinstance(outcome, WriteOutcome):
            plan.is_over = True
            self.count("loads_shown")
        elif isinstance(outcome, RefusedError) and outcome.reason.startswith(LOAD_PARTLY):
            self.count("loads_asked_again")
            self._end(plan, kind)
        elif isinstance(outcome, RefusedError) and outcome.reason == LOAD_REPEAT:
            plan.is_over = True
            self.count("loads_repeated")
        else:
            plan.driver = None
            self.count("loads_begun_again")

    def _configure(self, client: ProcessId, what: str, body: Any) -> None:
        script = self.clients[client]
        self.load_tokens[client, script.next_token] = what, body
        self.configure(script, body)

    # What is told, and what it is worth.

    def on_completion(self, key: Key, completion: Completion) -> bool:
        if key not in self.load_tokens:
            return False
        what, _ = self.load_tokens[key]
        if not completion.is_stable or what not in ("chunk", "end"):
            # Of a configuration message nothing else is told than that it is stable.
            is_outcome = isinstance(completion.outcome, WriteOutcome)
            self.outcomes_of_loads[key] = completion.outcome if is_outcome else completion.error
        return True

    def before_judging(self, q: Judgement) -> None:
        told = {
            (key, what): outcome
            for key, (what, _) in self.load_tokens.items()
            if (outcome := self.outcomes_of_loads.get(key)) is not None
        }
        written = Written(self.rows_of_chunks, told)
        self.workload.shown, self.found_in_loads, counted = read_loads(q, self.workload.schema.id, written)
        self.counted.update(counted)

    @property
    def is_at_rest(self) -> bool:
        return super().is_at_rest and all(plan.is_over for plan in self.plans)
