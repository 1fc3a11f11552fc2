"""A client that asks for operations of all kinds, loads and extracts until it is told to stop.

It writes down what it saw.

``python -m tests.nodes.torture.client URL CERTIFICATES NUMBER SEED FILE``: one line
on standard output when it has begun; a line on standard input, or its end, stops it.
"""

from __future__ import annotations

import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import msgspec

import crescando
from crescando.backend import LoopBackend
from crescando.client.base import Isolation, ReadOutcome, WriteOutcome
from crescando.client.pending import Pending
from crescando.engine.statement import Kind
from crescando.errors import ClosedError, CrescandoError
from crescando.remote import RemoteCluster
from crescando.testing.workload import SCHEMA, Workload
from crescando.types import FULL_RING
from tests.nodes.torture.bulk import CLIENTS, Bulk
from tests.nodes.torture.history import Asked, History

PAUSE_S = 0.05
"""Mean time between bursts."""

BURSTS = (1, 1, 2, 4)

OPEN_MAX = 256
"""Operations on their way; more are not asked for."""

LAST_S = 60.0
"""How long the last outcomes may take, once the cluster is well."""


class Load:
    """One client process of a cluster, and what it has been told."""

    def __init__(self, cluster: RemoteCluster, history: History, rng: random.Random) -> None:
        self._cluster = cluster
        self._history = history
        self._rng = rng
        self._seen = -1
        self._n_open = 0
        self._lock = threading.Lock()
        self._backend: LoopBackend = cluster.default
        schema = self._backend.refresh_catalog().result(LAST_S)[SCHEMA.name]
        self._workload = Workload(schema)
        self._by_token: dict[int, Asked] = {}

    @property
    def n_open(self) -> int:
        """How many operations have no outcome."""
        return self._n_open

    def burst(self) -> None:
        """Ask for some operations, as a client anew if this one was declared failed."""
        if self._backend.is_over:
            self._backend = self._cluster.connect("anew")
            self._by_token, self._seen = {}, -1
        if self._n_open > OPEN_MAX:
            return
        for _ in range(self._rng.choice(BURSTS)):
            request = self._workload.draw(self._rng)
            drawn = self._rng.random()
            isolation: Isolation = "sequential"
            if request.shape.kind is Kind.READ and drawn < 0.65:
                isolation = "snapshot" if drawn < 0.35 else "basic"
            step = self._workload.interpret_request(request)
            if isolation != "sequential":
                request = msgspec.structs.replace(request, isolation=isolation)
            pending = Pending()
            asked = Asked(
                self._backend.core.me,
                0,
                step,
                isolation,
                tuple(request.ranges) == (FULL_RING,),
                self._seen,
                time.monotonic(),
            )
            try:
                self._backend.submit(request, pending)
            except ClosedError:
                return
            asked.token = pending.number
            self._history.asked.append(asked)
            self._by_token[pending.number] = asked
            with self._lock:
                self._n_open += 1
            pending.add_done_callback(lambda done, asked=asked: self._told(asked, done))
        self._look_at_numbers()

    def _told(self, asked: Asked, pending: Pending) -> None:
        asked.told_s = time.monotonic()
        error = pending.exception()
        asked.outcome = error if error is not None else pending.result()
        with self._lock:
            self._n_open -= 1
            outcome = asked.outcome
            if isinstance(outcome, ReadOutcome | WriteOutcome) and asked.client == self._backend.core.me:
                self._seen = max(self._seen, outcome.latest)

    def _look_at_numbers(self) -> None:
        """Note under which message numbers those go whose outcome may never be known."""
        core: Any = self._backend.core
        for token, number in self._cluster._loop.call(core.numbers).items():
            if token in self._by_token:
                self._by_token[token].number = number


def main() -> int:
    """Be a client until somebody says stop."""
    url, certificates, number, seed, file = sys.argv[1:]
    name = f"c{number}"
    stopped = threading.Event()

    def wait() -> None:
        sys.stdin.readline()
        stopped.set()

    rng = random.Random(seed)
    history = History()
    with crescando.connect(url, tls=certificates, client=name, connect_s=LAST_S) as store:
        load = Load(store.cluster, history, rng)
        bulk = Bulk(store.cluster, random.Random(f"{seed}/bulk"), first=int(number), stride=CLIENTS)
        threading.Thread(target=wait, name="stop", daemon=True).start()
        print("begun", flush=True)
        while not stopped.wait(rng.expovariate(1 / PAUSE_S)):
            try:
                load.burst()
            except CrescandoError as error:
                print(f"{name}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
        bulk.stop(2 * LAST_S)
        history.loads, history.extracts, history.failures = bulk.loads, bulk.extracts, bulk.failures
        end_s = time.monotonic() + LAST_S
        while load.n_open and time.monotonic() < end_s:
            time.sleep(0.02)
        history.save(Path(file))
    return 0


if __name__ == "__main__":
    sys.exit(main())
