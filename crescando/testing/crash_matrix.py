"""A crash at each named step of each transformation, of each process that has a part in it.

Rules of the file: a round is a whole cluster with one transformation, in which
one process crashes as soon as the transformation is seen to reach a step
(`stages`). Writes and reads go on; one client does nothing but read, so that it
can be told for how long any range could not be read.
"""

from __future__ import annotations

import random
import sys
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, field
from functools import partial
from typing import TextIO

from crescando.client.base import Isolation, ReadOutcome
from crescando.engine.base import Engine
from crescando.roles.healing import HealingPolicy
from crescando.roles.limits import StorageLimits
from crescando.roles.super import SuperTiming
from crescando.spec import ClusterSpec
from crescando.testing.checkers import Violations
from crescando.testing.cluster import ClientScript
from crescando.testing.elastic import TRANSFORMATIONS, VICTIMS, Aim, ElasticCluster, draw_transformation
from crescando.testing.elastic_run import judge_elastic
from crescando.testing.judge import ConfigJudge
from crescando.testing.simulation import EVENTS_MAX, load, run_to_rest
from crescando.testing.stages import STEPS
from crescando.testing.workload import KEYS

SUSPICION_S = 1.0

OUTAGE_MAX_S = SUSPICION_S + 1.0
"""For how long reads of a range that has a live owner may fail."""

SPEC = ClusterSpec(
    routers=3,
    storages=5,
    supers=3,
    replication=2,
    storage=StorageLimits(copy_window_bytes=200),
    healing=HealingPolicy("replace", delay_s=0.3),
    super_=SuperTiming(suspicion_s=SUSPICION_S, ping_s=0.2),
)

LOADED_S = 1.0
"""When the table has its rows, and the transformation is begun."""

SPAN_S = 8.0
"""How long there is load, and an attempt every now and then until the crash."""

LEVELS: tuple[Isolation, ...] = ("sequential", "snapshot", "basic")

PROBE_S = 0.05
PRESS_S = 0.01

TASK_ROUNDS = 4


@dataclass(frozen=True, slots=True)
class Round:
    """What came of one round.

    Attributes
    ----------
    number : int
    aim : Aim
    struck : bool
        Whether the step was reached and the victim crashed.
    fate : str
        What became of the transformations: ``ended`` or ``dropped``, one word each.
    outage_s : float
        The longest time for which some row could not be read.
    violations : list of str
    """

    number: int
    aim: Aim
    struck: bool
    fate: str
    outage_s: float
    violations: Violations


def aims(n: int) -> list[Aim]:
    """Give what to aim at in so many rounds: every step of every transformation before any again."""
    pairs = [(kind, step) for step in STEPS for kind in TRANSFORMATIONS]
    found = []
    for number in range(n):
        turn, place = divmod(number, len(pairs))
        kind, step = pairs[place]
        found.append(Aim(step, VICTIMS[(turn + place) % len(VICTIMS)], kind))
    return found


def run_round(number: int, aim: Aim, *, engine: Callable[[], Engine]) -> Round:
    """Run one round."""
    world = ElasticCluster(number, engine=engine, spec=SPEC, n_standbys=2)
    rng = random.Random(f"{number}/matrix")
    for name in ("c1", "c2"):
        world.add_client(name)
    prober = world.add_client("p1")
    prober.only_reads = True
    probes: dict[int, tuple[int, float]] = {}
    world.time.run_until(0.3)
    _fill(world)
    load(world, 0.4, SPAN_S)
    when_s = 0.5
    while when_s < SPAN_S:
        world.time.call_at(when_s, partial(_probe, world, prober, probes, rng))
        when_s += PROBE_S
    _press(world)
    world.aims.append(aim)
    for at_s in range(int(LOADED_S), int(SPAN_S)):
        world.time.call_at(float(at_s), partial(_attempt, world, aim, rng))
    world.time.run_until(SPAN_S, events_max=EVENTS_MAX)
    world.aims.clear()
    world.heal()
    world.later(2.0, world.administer)
    run_to_rest(world)
    verdict = judge_elastic(world, [], ConfigJudge(), lambda config: config)
    outage_s = longest_outage_s(world, prober, probes)
    if outage_s > OUTAGE_MAX_S:
        verdict.violations.append(f"availability: a row could not be read for {outage_s:.2f} s")
    ended, dropped = (verdict.counted.get(f"changes_{fate}", 0) for fate in ("ended", "dropped"))
    struck = any(name.startswith("crash_") and "_at_" in name for name in world.counted)
    return Round(number, aim, struck, f"{ended} ended, {dropped} dropped", outage_s, verdict.violations)


def _fill(world: ElasticCluster) -> None:
    script = next(iter(world.clients.values()))
    for key in range(KEYS):
        world.ask(script, world.workload._put("upsert", [key], [key], key % 4))


def _press(world: ElasticCluster) -> None:
    """Let there be a write in every cycle until the crash, so that there is something to catch up with."""
    writer = next(iter(world.clients.values()))
    if world.time.now_s() < SPAN_S and (world.aims or world.time.now_s() < LOADED_S):
        world.ask(writer, world.workload._where("add_by_group", (1, 1)))
        world.later(PRESS_S, partial(_press, world))


def _attempt(world: ElasticCluster, aim: Aim, rng: random.Random) -> None:
    """Begin the transformation, unless the crash has come or one is under way."""
    config = world.newest()
    if aim in world.aims and not config.changes:
        transformation = draw_transformation(rng, config, aim.kind)
        if transformation is not None:
            writers = [client for client in world.alive("client") if not world.clients[client].only_reads]
            world.begin(world.clients[rng.choice(writers)], config, transformation)


def _probe(
    world: ElasticCluster, prober: ClientScript, probes: dict[int, tuple[int, float]], rng: random.Random
) -> None:
    """Read one row, at one level or another."""
    key = rng.randrange(KEYS)
    token = world.ask(prober, world.workload._where("read_by_key", (key,)), rng.choice(LEVELS))
    probes[token] = key, world.time.now_s()


def longest_outage_s(
    world: ElasticCluster, prober: ClientScript, probes: dict[int, tuple[int, float]]
) -> float:
    """Give for how long some row could not be read: from when somebody asked to when it was told."""
    told: dict[int, list[tuple[float, float]]] = defaultdict(list)
    for token, (key, asked_s) in probes.items():
        if isinstance(world.outcomes.get((prober.core.me, token)), ReadOutcome):
            told[key].append((asked_s, world.told_s[prober.core.me, token]))
    longest_s = 0.0
    for key, asked_s in probes.values():
        answers_s = [told_s for since_s, told_s in told[key] if since_s >= asked_s]
        # Those at the very end are followed by none that could stand in for them.
        if answers_s or asked_s < SPAN_S - OUTAGE_MAX_S:
            longest_s = max(longest_s, min(answers_s, default=float("inf")) - asked_s)
    return longest_s


@dataclass(slots=True)
class Matrix:
    """What many rounds add up to.

    Attributes
    ----------
    rounds : list of Round
    """

    rounds: list[Round] = field(default_factory=list)

    @property
    def failing(self) -> list[Round]:
        """Those with a violation."""
        return [each for each in self.rounds if each.violations]

    @property
    def bare(self) -> list[str]:
        """Steps of transformations at which nobody crashed: there is no telling what would have happened."""
        struck = {(each.aim.kind, each.aim.step) for each in self.rounds if each.struck}
        return [
            f"{kind} at {step}" for kind in TRANSFORMATIONS for step in STEPS if (kind, step) not in struck
        ]

    def table(self) -> str:
        """Give crashes by transformation, step and victim, and what went wrong."""
        struck = Counter((r.aim.kind, r.aim.step, r.aim.victim) for r in self.rounds if r.struck)
        lines = [f"{'transformation':14} {'step':12} " + " ".join(f"{victim:>9}" for victim in VICTIMS)]
        for kind in TRANSFORMATIONS:
            for step in STEPS:
                cells = " ".join(f"{struck[kind, step, victim]:9}" for victim in VICTIMS)
                lines.append(f"{kind:14} {step:12} {cells}")
        longest_s = max((each.outage_s for each in self.rounds), default=0.0)
        lines.append(f"{len(self.rounds)} rounds, {sum(struck.values())} crashes")
        lines.append(f"without a crash: {', '.join(self.bare) or 'none'}")
        lines.append(f"longest time for which some row could not be read: {longest_s:.2f} s")
        lines.append(f"rounds with a violation, such as a lost write: {len(self.failing)}")
        for each in self.failing:
            lines.append(f"  round {each.number}, {each.aim}: {'; '.join(each.violations)[:400]}")
        return "\n".join(lines)


def run_rounds(numbered: Sequence[tuple[int, Aim]], engine: Callable[[], Engine]) -> list[Round]:
    """Run some rounds, one after the other."""
    return [run_round(number, aim, engine=engine) for number, aim in numbered]


def soak_matrix(
    n: int, *, engine: Callable[[], Engine], workers: int = 2, progress: TextIO | None = None
) -> Matrix:
    """Run rounds in worker processes, telling on standard error how far it is."""
    progress = progress or sys.stderr
    matrix, begun_s = Matrix(), time.monotonic()
    numbered = list(enumerate(aims(n)))
    parts = [numbered[first : first + TASK_ROUNDS] for first in range(0, n, TASK_ROUNDS)]
    with ProcessPoolExecutor(max_workers=workers) as pool:
        pending = [pool.submit(run_rounds, part, engine) for part in parts]
        for done in as_completed(pending):
            matrix.rounds += done.result()
            took_s = time.monotonic() - begun_s
            print(
                f"\r{len(matrix.rounds)}/{n} rounds, {took_s:.0f} s, {len(matrix.failing)} failing",
                end="",
                file=progress,
                flush=True,
            )
    print(file=progress)
    matrix.rounds.sort(key=lambda each: each.number)
    return matrix
