"""One loop of a torture: a cluster, load, some episodes, and the judgement.

Rules of the file: the seed draws the plan; who is hit follows from it and from
who is there. A time to the first success is measured only where nothing else
but the one fault goes on.
"""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread

from crescando.errors import CrescandoError
from tests.nodes.torture.bulk import CLIENTS
from tests.nodes.torture.judging import Evidence, Found, judge
from tests.nodes.torture.plan import Episode, Gust, draw_plan
from tests.nodes.torture.site import ROUTERS, Site, State

Tell = Callable[[str], object]

AFTER_S = 5.0
"""How long an episode lasts at least, so that the first success after its fault is in it."""

TOGETHER_S = 0.1
"""Between the ends of a super and of a storage process."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A process that was killed or stopped, and when clients succeeded again.

    Attributes
    ----------
    fault, node : str
    when_s : float
    is_alone : bool
        Whether there was no network fault beside it.
    """

    fault: str
    node: str
    when_s: float
    is_alone: bool


@dataclass(slots=True)
class Seen:
    """What one loop showed.

    Attributes
    ----------
    seed : int
    found : Found
    first_s : list of (Hit, float)
        From each hit until every client had a success; see `first_success_s`.
    well_s : list of float
        From the end of each episode until all was well.
    took_s : float
    evidence : Evidence or None
        What it was judged by.
    """

    seed: int
    found: Found = field(default_factory=Found)
    first_s: list[tuple[Hit, float]] = field(default_factory=list)
    well_s: list[float] = field(default_factory=list)
    took_s: float = 0.0
    evidence: Evidence | None = None


def run_loop(
    seed: int,
    folder: Path,
    *,
    episodes: int = 3,
    tell: Tell = print,
    only: str = "",
) -> Seen:
    """Run a loop.

    Parameters
    ----------
    seed : int
    folder : Path
        An empty one.
    episodes : int
    tell : callable
        Takes lines about what happens.
    only : str
        The one fault that happens, instead of those that the seed draws.
    """
    began_s = time.monotonic()
    plan = draw_plan(seed, episodes)
    seen = Seen(seed)
    site = Site(folder, seed)
    hits: list[Hit] = []
    unwell = []
    try:
        site.start()
        for number, episode in enumerate(plan):
            if only:
                episode = Episode(episode.wish, only, episode.choice, episode.lead_s, episode.hang_s, ())
            tell(f"  {number + 1}. {episode}")
            hits += Run(site, episode, random.Random(f"{seed}/{number}"), tell).run()
            took_s, fault = site.wait_well()
            seen.well_s.append(took_s)
            if fault:
                unwell.append(f"healing: after {took_s:.0f} s and {episode}: {fault}")
                break
        try:
            seen.evidence = site.evidence()
        except CrescandoError as error:
            unwell.append(f"evidence: a replica cannot be read: {type(error).__name__}: {error}")
    finally:
        left = site.end()
    if seen.evidence is not None:
        seen.found = judge(seen.evidence)
        seen.first_s = [(hit, first_success_s(seen.evidence, hit)) for hit in hits]
    seen.found.other += [*unwell, *left]
    seen.took_s = time.monotonic() - began_s
    return seen


def first_success_s(evidence: Evidence, hit: Hit) -> float:
    """Give how long after a hit every client, but one that was hit itself, had a success.

    Of a write that was asked for then and touches the whole ring.
    """
    longest_s = 0.0
    for number, history in enumerate(evidence.histories, start=1):
        if hit.node == f"c{number}":
            continue
        told_s = [
            each.told_s
            for each in history.asked
            if each.is_written and each.is_everywhere and each.asked_s >= hit.when_s
        ]
        longest_s = max(longest_s, min(told_s, default=float("inf")) - hit.when_s)
    return longest_s


class Run:
    """One episode under way."""

    def __init__(self, site: Site, episode: Episode, rng: random.Random, tell: Tell) -> None:
        self._site = site
        self._episode = episode
        self._rng = rng
        self._tell = tell
        self._begun_s = time.monotonic()

    def run(self) -> list[Hit]:
        """Let it happen; gives who was hit."""
        state = self._site.look()
        wish = self._begin_wish(state)
        storm = Thread(target=self._storm, name="torture-storm")
        storm.start()
        try:
            time.sleep(self._episode.lead_s)
            hits = self._hit(self._site.look())
            time.sleep(max(0.0, self._begun_s + AFTER_S - time.monotonic()))
        finally:
            storm.join()
            wish.join()
        return hits

    # The change.

    def _begin_wish(self, state: State) -> Thread:
        def begin() -> None:
            try:
                told = self._wish(state)
            except CrescandoError as error:
                # A change that a failure drops is planned anew by whoever wants it.
                told = f"{type(error).__name__}: {error}"
            if self._episode.wish:
                self._tell(f"     {self._episode.wish}: {told}")

        thread = Thread(target=begin, name="torture-change")
        thread.start()
        return thread

    def _wish(self, state: State) -> str:
        cluster, config = self._site.cluster, state.config
        choice = random.Random(self._episode.choice)
        if not self._episode.wish or config is None:
            return ""
        placed = sorted(config.ring.processes)
        if self._episode.wish == "routers" and state.lead is not None and len(state.members) == ROUTERS:
            leaver = choice.choice([member for member in state.members if member != state.lead])
            cluster.remove_router(leaver.node)
            end_s = time.monotonic() + 30.0
            while time.monotonic() < end_s:
                with suppress(CrescandoError):
                    return f"{leaver} went, {cluster.add_router(leaver.node)} came"
                time.sleep(0.2)
            return f"{leaver} went"
        if self._episode.wish in ("expand", "replace") and state.standbys:
            if self._episode.wish == "expand":
                return str(cluster.expand().result(60.0))
            return str(cluster.replace(choice.choice(placed)).result(60.0))
        if self._episode.wish == "contract" and len(placed) > 3:
            return str(cluster.contract(choice.choice(placed)).result(60.0))
        return str(cluster.rebalance(choice.choice(placed), at=choice.getrandbits(64)).result(60.0))

    # Faults.

    def _storm(self) -> None:
        """Let the network faults happen, one at a time for each address."""
        events: list[tuple[float, str, Gust]] = []
        for gust in self._episode.gusts:
            events += [(gust.when_s, "begin", gust), (gust.when_s + gust.length_s, "end", gust)]
        nodes = sorted(seat.node for seat in self._site.file.seats)
        for when_s, what, gust in sorted(events, key=lambda event: event[:2]):
            time.sleep(max(0.0, self._begun_s + when_s - time.monotonic()))
            node = nodes[gust.choice % len(nodes)]
            if what == "begin":
                self._site.relays.afflict(node, gust.kind, share=gust.share, delay_s=gust.delay_s)
            else:
                self._site.relays.relieve(node)

    def _hit(self, state: State) -> list[Hit]:
        fault = self._episode.fault
        if fault == "kill_super_then_storage":
            victims = [self._victim(state, "super"), self._victim(state, "storage")]
        elif fault == "network":
            return []
        else:
            victims = [self._victim(state, fault.partition("_")[2])]
        hits = []
        for victim in victims:
            number = signal.SIGSTOP if fault.startswith("hang") else signal.SIGKILL
            when_s = self._site.signal(victim, number)
            self._tell(f"     {fault}: {victim}")
            hits.append(Hit(fault, victim, when_s, is_alone=not self._episode.gusts))
            time.sleep(self._rng.uniform(0.0, TOGETHER_S))
        if fault.startswith("hang"):
            time.sleep(self._episode.hang_s)
            for victim in victims:
                self._site.signal(victim, signal.SIGCONT)
        return hits[-1:]

    def _victim(self, state: State, role: str) -> str:
        if role == "lead" and state.lead is not None:
            return state.lead.node
        if role == "client":
            return f"c{1 + self._episode.choice % CLIENTS}"
        of_role = "router" if role in ("lead", "router") else role
        known = sorted(node for node, host in state.hosts.items() if host.process.role == of_role)
        if of_role == "storage" and state.config is not None:
            placed = {process.node for process in state.config.ring.processes}
            known = [node for node in known if node in placed] or known
        return known[self._episode.choice % len(known)]
