"""How much is measured of a cluster of processes, and what is asked of it."""

from __future__ import annotations

from dataclasses import dataclass

WRITES = "writes"
KINDS = (WRITES, "sequential", "snapshot", "basic")
"""Writes, and reads at the three levels of RB13 §7.4."""

ROWS = 1_000_000
"""Rows that C1 is about."""

LARGE_ROWS = 6_000_000
"""Rows of RB13's storage processes, 2 GB of tickets."""

MUST = {WRITES: 20, "sequential": 25, "snapshot": 40, "basic": 50}
HOPED = {WRITES: 60, "sequential": 80, "snapshot": 120, "basic": 200}
"""Thousand operations a second."""

KEY, READ, CHANGE = "rloc", "rloc = ?", "miles = miles + ?"
"""Each operation has one equality predicate on the partition key, as in RB13 §7.2."""


@dataclass(frozen=True, slots=True)
class Plan:
    """Sizes and numbers of trials.

    Attributes
    ----------
    rows : int
    large_rows : int
        Of the second table; 0 if there is none.
    routers, storages, supers, replication : int
    clients : int
        Operating-system processes that ask, each with a session of its own.
    block, at_once : int
        Operations of one call, and calls that one client has under way.
    seconds : float
        Of one run of one kind.
    trials : int
    """

    rows: int = ROWS
    large_rows: int = LARGE_ROWS
    routers: int = 3
    storages: int = 4
    supers: int = 1
    replication: int = 3
    clients: int = 1
    block: int = 1024
    at_once: int = 4
    seconds: float = 5.0
    trials: int = 5
    seed: int = 1

    def unjudged(self, rows: int) -> str:
        """Say why a figure of this run does not count for C1, or ""."""
        if (self.routers, self.storages, self.replication) != (3, 4, 3):
            return f"C1 is about 3 routers and 4 storage processes, not {self.routers} and {self.storages}"
        return "" if rows in (ROWS, LARGE_ROWS) else f"C1 is about {ROWS:,} rows and this run has {rows:,}"


QUICK = Plan(large_rows=0, seconds=1.0, trials=3)


def tiny() -> Plan:
    """Give a plan that tries every measure in seconds and proves nothing."""
    return Plan(
        rows=5_000,
        large_rows=0,
        routers=1,
        storages=2,
        replication=2,
        block=32,
        at_once=2,
        seconds=0.2,
        trials=1,
    )
