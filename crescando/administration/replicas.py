"""What single replicas hold: for those who compare them."""

from __future__ import annotations

from crescando.backend import LoopBackend
from crescando.client.answer import Answer
from crescando.client.merging import rows_answer
from crescando.routing.rubberband.config import Rubberband
from crescando.types import KeyRange, ProcessId

READ_REPLICA_S = 60.0
"""How long a replica may take to show all rows of a range."""


def live_replicas(config: Rubberband, table: str) -> tuple[tuple[ProcessId, KeyRange], ...]:
    """Give every live replica of every ring range of a table, in ring order.

    Raises
    ------
    UnknownTableError
        If there is no such table.
    """
    config.table(table)
    return tuple((owner, arc) for arc in config.ring.arcs for owner in config.live_owners(arc))


def read_replica(
    backend: LoopBackend, process: ProcessId, key_range: KeyRange, table: str, timeout_s: float
) -> Answer:
    """Give one replica's rows of a ring range, behind what it executes in its present cycle.

    Raises
    ------
    CrescandoError
        If the process cannot be reached, or goes away meanwhile.
    """
    if table not in backend.catalog():
        backend.refresh_catalog().result(timeout_s)
    return rows_answer()(backend.read_replica(process, key_range, table).result(timeout_s))
