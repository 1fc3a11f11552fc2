"""What can go wrong in a simulated run, decided by a seed.

Each kind is counted when it takes effect. A schedule is a list of faults with
their times, so that a failing one can be printed and cut down.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

KINDS = (
    "crash_router",
    "crash_storage",
    "crash_super",
    "crash_client",
    "pause",
    "partition",
    "one_way",
    "reset",
    "slow",
    "usurp",
    "part_routers",
    "isolate",
)
"""Kinds of fault. Crashes are for ever; the others end when their time is over.

``usurp`` is the hardest on an order: the leader is cut off from the routers but
not from its clients, and its successor crashes soon after it has decided
something. What the first one proposed alone may then be decided after all, in
instances that lie behind a hole. ``part_routers`` ends the session of two
routers while they cannot reach each other. ``isolate`` cuts off the leader
together with a storage process and a client, which do not notice at once; in
half of these cases, counted as ``forsake`` too, all others do notice at once.
"""


@dataclass(frozen=True, slots=True)
class Fault:
    """One fault: at `when_s`, for `length_s`, with its own source of choices."""

    kind: str
    when_s: float
    length_s: float
    choice: int


def draw_faults(
    rng: random.Random,
    *,
    span_s: float,
    kinds: tuple[str, ...] = KINDS,
    lengths_s: tuple[float, ...] = (0.05, 0.3, 1.5, 4.0),
    n_max: int = 8,
) -> list[Fault]:
    """Draw a schedule: which kinds occur at all differs from seed to seed (swarm)."""
    chosen = [kind for kind in kinds if rng.random() < 0.5] or [rng.choice(kinds)]
    faults = []
    for _ in range(rng.randint(1, n_max)):
        kind = rng.choice(chosen)
        length_s = rng.choice(lengths_s) * rng.uniform(0.5, 1.5)
        faults.append(Fault(kind, rng.uniform(0.1, span_s), length_s, rng.randrange(1 << 30)))
    return sorted(faults, key=lambda fault: fault.when_s)
