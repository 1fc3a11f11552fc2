"""Loads and extracts beside a client's operations, and what became of each.

Rules of the file: a load's rows have keys of their own, so that what is in the
table tells of which loads it is. What was asked for and did not return is
unknown, and nothing else is.
"""

from __future__ import annotations

import random
import threading
import time
from dataclasses import dataclass
from itertools import cycle
from typing import Literal

import crescando
from crescando.client.store import Session
from crescando.errors import CrescandoError, LoadConflictError, LoadGoneError, LoadLostError
from crescando.remote import RemoteCluster
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.testing.workload import SCHEMA as ACCOUNTS
from crescando.testing.workload import Row

SCHEMA = TableSchema(
    "loaded",
    (ColumnDef("k", DataType.INT64, nullable=False), ColumnDef("n", DataType.INT64, nullable=False)),
    partition_key="k",
    primary_key=("k",),
)

CLIENTS = 2
"""Client processes of a cluster, which share the numbers of loads."""

PARTITIONS, PARTITION_ROWS = 2, 32
LOAD_ROWS = PARTITIONS * PARTITION_ROWS

PAUSE_S = 0.5
"""Mean time between rounds."""

LAST_ROUNDS = 4
"""So many more there are at most after the end of the load."""

TIMEOUT_S = 20.0
"""How long each call waits; the cluster may have much to heal meanwhile."""

Shown = tuple[int, int]
"""A row of the table: its key, and the number of its load."""

Fate = Literal["shown", "dropped", "conflict", "unknown"]


@dataclass(frozen=True, slots=True)
class Loaded:
    """A load, and what its driver was told.

    Attributes
    ----------
    number : int
    fate : str
        ``dropped`` if no commit was asked for, or it said that nothing is ever shown; ``conflict`` if it
        said that others have some of the keys.
    position : int
        Where its rows were shown; -1 if that is not known.
    begun_s, told_s : float
        From the moment its commit was asked for.
    """

    number: int
    fate: Fate
    position: int
    begun_s: float
    told_s: float


@dataclass(frozen=True, slots=True)
class Extracted:
    """All rows of both tables at one position.

    Attributes
    ----------
    asked_s, told_s : float
        From when the snapshot was asked for to when it was pinned.
    position : int
    accounts, loaded : tuple of rows
        Ascending.
    """

    asked_s: float
    told_s: float
    position: int
    accounts: tuple[Row, ...]
    loaded: tuple[Shown, ...]


def rows_of(number: int) -> list[Shown]:
    """Give the rows of a load."""
    return [(number * LOAD_ROWS + i, number) for i in range(LOAD_ROWS)]


class Bulk:
    """Loads and extracts of one client process, one after another, in a thread.

    Parameters
    ----------
    cluster : RemoteCluster
    rng : random.Random
    first, stride : int
        The number of the first load, and from each to the next.

    Attributes
    ----------
    loads : list of Loaded
    extracts : list of Extracted
    failures : list of str
        Of rounds that ended with an error, which is each load's right and each extract's.
    """

    def __init__(self, cluster: RemoteCluster, rng: random.Random, first: int, stride: int) -> None:
        self.loads: list[Loaded] = []
        self.extracts: list[Extracted] = []
        self.failures: list[str] = []
        self._cluster = cluster
        self._rng = rng
        self._number = first
        self._stride = stride
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._work, name="bulk")
        self._thread.start()

    def stop(self, timeout_s: float) -> None:
        """End after the present round."""
        self._is_over.set()
        self._thread.join(timeout_s)
        assert not self._thread.is_alive(), "a load or an extract hangs"

    def _work(self) -> None:
        n_last = 0
        for n, does in enumerate(cycle((self._load, self._extract))):
            if self._is_over.wait(self._rng.expovariate(1 / PAUSE_S)):
                # On a busy machine there may have been no time for one of each.
                if self._has_both() or n_last == LAST_ROUNDS:
                    return
                n_last += 1
            try:
                # A session of its own each time: this client may have been declared failed.
                with Session(self._cluster.connect(f"bulk {n}"), f"bulk {n}", TIMEOUT_S) as session:
                    does(session)
            except CrescandoError as error:
                self.failures.append(f"{does.__name__}: {type(error).__name__}: {error}")

    def _has_both(self) -> bool:
        return bool(self.extracts) and any(load.fate == "shown" for load in self.loads)

    # Loads.

    def _load(self, session: Session) -> None:
        number, self._number = self._number, self._number + self._stride
        begun_s = time.monotonic()
        fate: Fate = "dropped"
        position = -1
        try:
            with session.begin_load(
                SCHEMA.name, job=str(number), rule=self._rng.choice(("keep", "fail"))
            ) as load:
                receipts = [self._stage(session, load.ticket, number, part) for part in range(PARTITIONS)]
                if not self.loads or self._rng.random() < 0.75:
                    begun_s, fate = time.monotonic(), "unknown"
                    fate, position = self._commit(load, receipts)
        finally:
            self.loads.append(Loaded(number, fate, position, begun_s, time.monotonic()))

    def _stage(
        self, session: Session, ticket: crescando.LoadTicket, number: int, partition: int
    ) -> crescando.PartReceipt:
        rows = rows_of(number)[partition * PARTITION_ROWS : (partition + 1) * PARTITION_ROWS]
        # Attempts that do not count have rows too.
        for attempt in range(self._rng.choice((1, 1, 2))):
            with session.stage(ticket, partition, attempt) as part:
                part.write({"k": [key for key, _ in rows], "n": [each for _, each in rows]})
                receipt = part.finish()
        return receipt

    def _commit(self, load: crescando.Load, receipts: list[crescando.PartReceipt]) -> tuple[Fate, int]:
        try:
            outcome = load.commit(receipts)
        except (LoadGoneError, LoadLostError):
            return "dropped", -1
        except LoadConflictError:
            return "conflict", -1
        return "shown", outcome.position

    # Extracts.

    def _extract(self, session: Session) -> None:
        asked_s = time.monotonic()
        with session.pin(ACCOUNTS.name, SCHEMA.name, lease_s=60.0) as pinned:
            told_s = time.monotonic()
            rows: dict[str, list[tuple[int, ...]]] = {ACCOUNTS.name: [], SCHEMA.name: []}
            for table, found in rows.items():
                for part in pinned.parts(table, n=8):
                    for piece in session.read_pinned(pinned.ticket, part):
                        found += piece.rows()
            self.extracts.append(
                Extracted(
                    asked_s,
                    told_s,
                    pinned.position,
                    tuple(sorted(rows[ACCOUNTS.name])),
                    tuple(sorted(rows[SCHEMA.name])),
                )
            )
