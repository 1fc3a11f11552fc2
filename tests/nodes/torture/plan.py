"""What is done to a cluster in one loop, drawn from its seed.

Rules of the file: a plan says kinds, times and choices, never processes: who is
hit follows, by the choice, from who is there at that time.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from tests.nodes.torture.relays import KINDS as NETWORK

FAULTS = (
    "kill_lead",
    "kill_router",
    "kill_storage",
    "kill_super",
    "kill_super_then_storage",
    "hang_lead",
    "hang_storage",
    "hang_super",
    "hang_client",
    "network",
)
"""What happens in an episode; of *hang* the process is stopped and goes on later."""

ROUTER_FAULTS = ("kill_lead", "kill_router", "hang_lead")

WISHES = ("expand", "contract", "replace", "rebalance", "routers")
"""Changes that are begun; one that is not possible then becomes another."""

HANG_S = (0.3, 9.0)
STORM_S = 6.0
DELAY_S = (0.001, 0.2)


@dataclass(frozen=True, slots=True)
class Gust:
    """A network fault at one address.

    Attributes
    ----------
    when_s : float
        After the episode's beginning.
    kind : str
    choice : int
        Whose address.
    share : float
        Of the connections that it meets.
    length_s, delay_s : float
    """

    when_s: float
    kind: str
    choice: int
    share: float
    length_s: float
    delay_s: float


@dataclass(frozen=True, slots=True)
class Episode:
    """A change, a fault in the middle of it, and then a cluster that is well again.

    Attributes
    ----------
    wish : str
        Empty for none.
    fault : str
    choice : int
    lead_s : float
        From the beginning of the change to the fault.
    hang_s : float
        How long a process is stopped.
    gusts : tuple of Gust
        Network faults beside it; none where the time to the first success is measured.
    """

    wish: str
    fault: str
    choice: int
    lead_s: float
    hang_s: float
    gusts: tuple[Gust, ...]

    def __str__(self) -> str:
        told = [self.wish or "no change", f"{self.lead_s:.2f} s later {self.fault} (choice {self.choice})"]
        if self.fault.startswith("hang"):
            told.append(f"for {self.hang_s:.1f} s")
        told += [
            f"{gust.when_s:.2f} s {gust.kind} of {gust.share:.0%} at {gust.choice} for {gust.length_s:.1f} s"
            for gust in self.gusts
        ]
        return ", ".join(told)


def draw_plan(seed: int, episodes: int) -> tuple[Episode, ...]:
    """Draw what happens in a loop."""
    rng = random.Random(f"{seed}/plan")
    # All kinds come in a few loops, each loop begins elsewhere.
    start = rng.randrange(len(FAULTS))
    order = rng.sample(FAULTS, len(FAULTS))
    return tuple(_draw_episode(rng, order[(start + i) % len(order)]) for i in range(episodes))


def _draw_episode(rng: random.Random, fault: str) -> Episode:
    is_stormy = fault == "network" or rng.random() < 0.25
    n_gusts = rng.randint(2, 5) if is_stormy else 0
    wish = rng.choice(("", *WISHES))
    if wish == "routers" and fault in ROUTER_FAULTS:
        # Two routers of three are no group any more that could lose one.
        wish = "replace"
    return Episode(
        wish=wish,
        fault=fault,
        choice=rng.getrandbits(32),
        lead_s=rng.uniform(0.0, 0.6),
        hang_s=rng.choice((rng.uniform(HANG_S[0], 2.0), rng.uniform(4.0, HANG_S[1]))),
        gusts=tuple(_draw_gust(rng) for _ in range(n_gusts)),
    )


def _draw_gust(rng: random.Random) -> Gust:
    return Gust(
        when_s=rng.uniform(0.0, STORM_S / 2),
        kind=rng.choice(NETWORK),
        choice=rng.getrandbits(32),
        share=rng.choice((0.2, 0.5, 1.0)),
        length_s=rng.uniform(0.1, STORM_S / 2),
        delay_s=rng.uniform(*DELAY_S),
    )
