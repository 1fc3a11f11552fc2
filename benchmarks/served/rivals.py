"""C4: the same reads and writes beside stores with three copies that are in use elsewhere.

Rules of the file: each rival gets the same rows, or as many values, and does the
work in every way it offers; the fastest counts. What it does not do stands
beside its figure. None of them encrypts anything here, which is in their favour.
"""

from __future__ import annotations

import socket
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import pyarrow as pa

from benchmarks.peers.lane import key_of
from benchmarks.peers.processes import HOST
from benchmarks.peers.redis import Redis, command
from benchmarks.peers.result import PeerError
from benchmarks.report import progress
from benchmarks.rivals.postgres_rival import CONNECTIONS, LOG_BYTES, ONE, Postgres
from benchmarks.rivals.postgres_server import SETTINGS, PostgresServer
from benchmarks.served.client import WrongAnswerError, pieces
from benchmarks.served.plan import WRITES, Plan
from benchmarks.served.rates import Table
from benchmarks.tickets.work import OUTPUTS
from benchmarks.verdicts import Goal, Outcome, judge, spread

FIVE = ", ".join(OUTPUTS)
ADD = "update tickets set miles = miles + 1 where rloc = %s"
STANDBYS = 2
VALUE_BYTES = 350
"""Of a ticket (RB13 §2)."""

LISTED = "reads as one statement, without telling which read a row is of"
"""Not the same work, and what a user would do who needs no more."""

COMPARED = 256
"""Keys whose rows are compared with ours."""

RATIOS = {"postgresql writes": 1.0, "postgresql reads": 1.0}
"""What is required of our rate as a multiple of theirs."""

HOPED = 3.0

Way = Callable[[Sequence[str]], object]


class ReplicatedPostgres(Postgres):
    """A server and two standbys that have applied a write before it is acknowledged, on all three indexed."""

    lacks = (
        "nothing is encrypted, one server orders and executes all writes, no fail-over by itself, "
        "needs an index per column; writes of one pipeline share a commit"
    )

    def load(self, table: pa.Table) -> None:
        settings = SETTINGS | {"wal_level": "replica", "max_wal_senders": "8", "hot_standby": "on"}
        server = PostgresServer(LOG_BYTES + 3 * (1 + STANDBYS) * table.nbytes, settings=settings)
        self._open(server)
        self._fill(table)
        server.add_standbys(STANDBYS)
        for link in self._links:
            link.execute("set synchronous_commit = 'remote_apply'")

    def rows_of(self, keys: Sequence[str]) -> list[list[list[Any]]]:
        """Give the rows of some keys."""
        return [sorted(map(list, self._links[0].execute(ONE, (key,)).fetchall())) for key in keys]

    def ways(self) -> dict[str, dict[str, Way]]:
        """Give what does a block of reads, and of writes."""
        links, threads = self._links, self._threads

        def spread_out(one: Callable[[Any, Sequence[str]], None]) -> Way:
            def all_of(keys: Sequence[str]) -> None:
                share = -(-len(keys) // CONNECTIONS)
                tasks = [
                    threads.submit(one, link, keys[place * share : (place + 1) * share])
                    for place, link in enumerate(links)
                ]
                for task in tasks:
                    task.result()

            return all_of

        def read(link: Any, keys: Sequence[str]) -> None:
            with link.pipeline():
                cursors = [link.execute(ONE, (key,), prepare=True) for key in keys]
                for cursor in cursors:
                    cursor.fetchall()

        def read_listed(keys: Sequence[str]) -> None:
            sql = f"select rloc, {FIVE} from tickets where rloc = any(%s)"
            links[0].execute(sql, (list(keys),)).fetchall()

        def write(link: Any, keys: Sequence[str]) -> None:
            # One implicit transaction for the whole pipeline: fewer commits than there are writes.
            with link.pipeline():
                for key in keys:
                    link.execute(ADD, (key,), prepare=True)

        def write_alone(link: Any, keys: Sequence[str]) -> None:
            for key in keys:
                link.execute(ADD, (key,), prepare=True)

        return {
            "reads": {
                "one pipeline": lambda keys: read(links[0], keys),
                f"{CONNECTIONS} pipelines": spread_out(read),
            },
            LISTED: {"any of a list of keys": read_listed},
            WRITES: {
                "one pipeline, one commit a block": lambda keys: write(links[0], keys),
                f"{CONNECTIONS} pipelines, one commit each a block": spread_out(write),
                f"{CONNECTIONS} connections, a commit for each write": spread_out(write_alone),
            },
        }


def c4(table: Table) -> Outcome:
    """Our rates as multiples of theirs."""
    plan = table.world.plan
    told: dict[str, Any] = {}
    goals: list[Goal] = []
    ours = {kind: statistics.median(rates) for kind, rates in table.rates.items()}
    answers = table.world.tell_first(do="answers", n=COMPARED)
    _postgres(plan, ours, table.rows, answers, told, goals)
    _redis(plan, ours, told)
    return judge(goals, rivals=told, rows=table.rows, ours_rate_s={k: round(r) for k, r in ours.items()})


def _postgres(
    plan: Plan,
    ours: dict[str, float],
    n_rows: int,
    answers: dict[str, Any],
    told: dict[str, Any],
    goals: list[Goal],
) -> None:
    rival = ReplicatedPostgres()
    missing = rival.available()
    if missing:
        told[rival.name] = {"skipped": missing}
        goals += [Goal(f"of {what}", None, must, HOPED) for what, must in RATIOS.items()]
        return
    why = plan.unjudged(n_rows)
    progress(f"{rival.name} with {STANDBYS} standbys")
    try:
        rival.load(pa.concat_tables(pieces(n_rows, plan.seed)))
        if rival.rows_of(answers["keys"]) != answers["rows"]:
            raise WrongAnswerError(f"{rival.name} gives other rows than the cluster")
        rates: dict[str, dict[str, Any]] = {
            what: {name: spread(_timed(way, answers["pool"], plan), 0) for name, way in ways.items()}
            for what, ways in rival.ways().items()
        }
        version = rival.version()
    finally:
        rival.close()
    best = {what: max(rate["median"] for rate in ways.values()) for what, ways in rates.items()}
    ratios = {kind: round(ours[kind] / best[WRITES if kind == WRITES else "reads"], 2) for kind in ours} | {
        LISTED: round(ours["sequential"] / best[LISTED], 2)
    }
    told[rival.name] = {
        "version": version,
        "copies": 1 + STANDBYS,
        "does_not": rival.lacks,
        "rates_s": rates,
        "ratios": ratios,
    }
    values = {"postgresql writes": ratios[WRITES], "postgresql reads": ratios["sequential"]}
    goals += [Goal(f"of {what}", values[what], must, HOPED, unjudged=why) for what, must in RATIOS.items()]


def _timed(way: Way, keys: Sequence[str], plan: Plan) -> list[float]:
    """Give the rates of some runs of a way, which does a block after the other."""
    rates = []
    way(keys[: plan.block])
    for trial in range(plan.trials):
        at, n = trial * plan.block, 0
        begin_s = time.perf_counter()
        while (now_s := time.perf_counter()) < begin_s + plan.seconds / 2 or not n:
            block = keys[at : at + plan.block]
            way(block)
            n += len(block)
            at = at + plan.block if at + 2 * plan.block <= len(keys) else 0
        rates.append(n / (now_s - begin_s))
    return rates


def _redis(plan: Plan, ours: dict[str, float], told: dict[str, Any]) -> None:
    rival = Redis()
    missing = rival.available()
    if missing:
        told[rival.name] = {"skipped": missing}
        return
    progress(f"{rival.name} with two replicas")
    try:
        rival.start()
        writes = [
            rival.run(in_flight=64, payload_bytes=VALUE_BYTES, seconds=plan.seconds / 2, batch=64)
            for _ in range(plan.trials)
        ]
        reads = [_got(rival, plan) for _ in range(plan.trials)]
    except PeerError as error:
        told[rival.name] = {"failed": str(error)[:500]}
        return
    finally:
        rival.stop()
    rates = {WRITES: [each.rate_s for each in writes], "reads": reads}
    best = {what: statistics.median(each) for what, each in rates.items()}
    told[rival.name] = {
        "version": writes[0].version,
        "copies": 3,
        "does_not": "a key-value map: no predicates, rows, columns or order of what different keys see; "
        "whole values are replaced, replies are counted and not decoded; " + rival.lacks,
        "rates_s": {what: spread(each, 0) for what, each in rates.items()},
        "ratios": {
            kind: round(rate / best[WRITES if kind == WRITES else "reads"], 2) for kind, rate in ours.items()
        },
    }


def _got(rival: Redis, plan: Plan) -> float:
    """Read values that were written, a block in one piece; replies are only counted."""
    get = b"".join(command(b"GET", key_of(number)) for number in range(plan.block))
    size = plan.block * (len(b"$350\r\n") + VALUE_BYTES + 2)
    n, got = 0, 0
    with socket.create_connection((HOST, rival.port(0)), timeout=30.0) as connection:
        for _ in range(plan.at_once):
            connection.sendall(get)
        begin_s = time.perf_counter()
        while (now_s := time.perf_counter()) < begin_s + plan.seconds / 2:
            while got < size:
                part = connection.recv(1 << 20)
                if not part:
                    raise PeerError("redis closed a connection")
                got += len(part)
            got -= size
            n += plan.block
            connection.sendall(get)
        return n / (now_s - begin_s)
