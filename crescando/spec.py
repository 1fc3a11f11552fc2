"""What a user asks for at start-up: frozen, validated once."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field, fields

from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.engine.base import Engine
from crescando.engine.kv import KvEngine
from crescando.engine.parallel import Workers
from crescando.engine.scan import ScanEngine
from crescando.errors import SpecError
from crescando.roles.balancing import BalancingPolicy
from crescando.roles.healing import HealingPolicy
from crescando.roles.limits import ClientLimits, StorageLimits
from crescando.roles.super import SuperTiming
from crescando.routing.ecast.limits import RouterLimits

ENGINES: dict[str, Callable[[Workers], Engine]] = {
    "scan": lambda workers: ScanEngine(workers=workers),
    "kv": lambda _: KvEngine(),
}
"""What a storage process may keep its rows in; made with whoever does parts of its work."""

SCAN_THREADS_MAX = 4
"""More threads than this are not taken unless asked for."""


def _half_of_the_cores() -> int:
    """Give how many threads scan by default: the loop and the users' threads need cores too."""
    affinity = getattr(os, "sched_getaffinity", None)
    n_cores = len(affinity(0)) if affinity is not None else os.cpu_count() or 1
    return max(1, min(n_cores // 2, SCAN_THREADS_MAX))


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """How many processes of each role, and their times and limits.

    Parameters
    ----------
    routers : int
        Members of the ordering group; a majority must live. An even number
        tolerates no more failures than one less, and is warned of.
    standby_routers : int
        Further routers, of which one takes the place of each that is removed.
    storages : int
        Storage processes on the ring.
    supers : int
        Processes that look after storage processes.
    replication : int
        Copies of each row, on successive storage processes.
    scan_threads : int
        Threads in which an embedded cluster scans, all its storage processes together:
        one cycle at a time, in as many parts where it has enough to do. By default half
        of the cores, four at most.
    engine : str
        What storage processes keep their rows in, one of `ENGINES`: ``scan``, or
        ``kv``, which is simple and slow.
    paxos, router, storage, super_, client
        Times and limits of each part.
    healing : HealingPolicy
        What becomes of a position on the ring whose process has failed.
    balancing : BalancingPolicy
        Whether processes are moved on the ring to even out what they hold.

    Raises
    ------
    SpecError
        If it cannot be: the text names the setting and the mend.
    """

    routers: int = 1
    storages: int = 1
    supers: int = 1
    replication: int = 1
    standby_routers: int = 0
    scan_threads: int = field(default_factory=_half_of_the_cores)
    engine: str = "scan"
    paxos: PaxosTiming = field(default_factory=PaxosTiming)
    router: RouterLimits = field(default_factory=RouterLimits)
    storage: StorageLimits = field(default_factory=StorageLimits)
    super_: SuperTiming = field(default_factory=SuperTiming)
    client: ClientLimits = field(default_factory=ClientLimits)
    healing: HealingPolicy = field(default_factory=HealingPolicy)
    balancing: BalancingPolicy = field(default_factory=BalancingPolicy)

    def __post_init__(self) -> None:
        for name in ("routers", "storages", "supers", "replication", "scan_threads"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise SpecError(f"{name} must be a whole number of at least 1, not {value!r}")
        if isinstance(self.standby_routers, bool) or not self.standby_routers >= 0:
            raise SpecError(f"standby_routers must be a whole number, not {self.standby_routers!r}")
        if self.routers % 2 == 0:
            warnings.warn(
                f"{self.routers} routers tolerate no more failures than {self.routers - 1}",
                stacklevel=3,
            )
        if self.engine not in ENGINES:
            raise SpecError(f"engine must be one of {', '.join(sorted(ENGINES))}, not {self.engine!r}")
        for part in (self.paxos, self.router, self.storage, self.super_, self.client):
            for setting in fields(part):
                value = getattr(part, setting.name)
                if not value > 0:
                    name = f"{type(part).__name__}.{setting.name}"
                    raise SpecError(f"{name} must be greater than 0, not {value!r}")
        if self.replication > self.storages:
            raise SpecError(
                f"replication {self.replication} needs as many storage processes, "
                f"but storages is {self.storages}; raise storages or lower replication"
            )
        if self.paxos.election_s < 3 * self.paxos.heartbeat_s:
            raise SpecError("paxos.election_s must be at least three heartbeats, or leaders flap")
        if self.router.max_lag_s <= self.paxos.election_s:
            raise SpecError(
                "router.max_lag_s must exceed paxos.election_s, "
                "or a leader that was replaced reports everybody who confirms to its successor"
            )
        if self.super_.suspicion_s < 2 * self.super_.ping_s:
            raise SpecError(
                f"super_.suspicion_s must be at least twice super_.ping_s, which is {self.super_.ping_s:g}, "
                "or everybody is suspected between two pings"
            )
        if self.storage.memory_watermark > 1:
            raise SpecError(
                "storage.memory_watermark is a share of memory_bytes, above 0 and at most 1, "
                f"not {self.storage.memory_watermark!r}"
            )
