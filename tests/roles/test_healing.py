"""Healing: who acts when, and walks of random failures that end with a whole ring."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping

import pytest

from crescando.errors import SpecError
from crescando.roles.healing import Healer, HealingPolicy
from crescando.routing.rubberband import Reconfigure, Replace, Rubberband
from crescando.routing.rubberband.healing import NEVER, RingHealer
from crescando.routing.rubberband.membership import Membership
from crescando.routing.rubberband.planner import make_plan
from crescando.types import ProcessId
from tests.roles.healing_walk import Walk

REST_S = 60.0


def walk(
    seed: int,
    policy: HealingPolicy | None = None,
    healer: Healer[Rubberband] | None = None,
    *,
    hushes: bool = True,
    joins: bool = True,
) -> Walk:
    """Let processes fail, keep silent, answer again and join, at random; then let time pass."""
    world = Walk(seed, policy, healer)
    rng = world.rng
    for _ in range(rng.randint(0, 2)):
        world.join()
    for _ in range(rng.randint(1, 7)):
        kind = rng.choice(("crash", "crash", "crash", "super", "hush", "answer", "join"))
        if kind == "crash":
            world.crash()
        elif kind == "super":
            world.crash_super()
        elif kind == "hush" and hushes:
            world.hush()
        elif kind == "answer":
            world.mute.clear()
        elif kind == "join" and joins:
            world.join()
        world.run(rng.choice((0.0, 0.3, 2.0, 6.0)))
    world.run(5.0)
    world.mute.clear()
    world.run(REST_S)
    return world


def bound(world: Walk) -> int:
    """How many cures supers may submit: each may try each wound, also those that were opened again."""
    return 3 * (world.n_wounds + world.n_dropped) + 3


@pytest.mark.parametrize("first", range(0, 240, 40))
def test_whatever_fails_the_ring_is_whole_again_when_there_are_standbys(first: int) -> None:
    healed = 0
    for seed in range(first, first + 40):
        world = walk(seed)
        while len(world.config.standbys) < len(world.open_wounds):
            world.join()
            world.run(3.0)
        world.run(REST_S)
        assert not world.violations, f"seed {seed}: {world.violations[:3]}"
        assert not world.open_wounds, f"seed {seed}: {sorted(world.open_wounds)} were not replaced"
        assert not world.config.changes, f"seed {seed}: a change has not ended"
        assert world.n_begun == world.n_wounds + world.n_dropped, f"seed {seed}: more cures than wounds"
        assert world.n_proposed <= bound(world), f"seed {seed}: {world.n_proposed} cures were submitted"
        healed += world.n_wounds

    assert healed >= 40


@pytest.mark.parametrize("seed", range(60))
def test_without_standbys_the_ring_shrinks_as_far_as_replication_allows(seed: int) -> None:
    world = Walk(seed, HealingPolicy("shrink", shrink_after_s=10.0))
    n_standbys = world.rng.randint(0, 1)
    for _ in range(n_standbys):
        world.join()
    world.run(1.0)
    n = len(world.config.ring.processes)
    for _ in range(4):
        world.crash()
        world.run(world.rng.choice((0.1, 20.0)))
    world.run(2 * REST_S)

    assert not world.violations, f"seed {seed}: {world.violations[:3]}"
    alive = len(world.config.storages)
    assert len(world.config.ring.processes) == max(min(n, alive), world.f), f"seed {seed}"
    assert len(world.open_wounds) == max(0, world.f - alive), f"seed {seed}"


@pytest.mark.parametrize("seed", range(20))
def test_a_whole_ring_is_left_alone(seed: int) -> None:
    world = Walk(seed)
    for _ in range(3):
        world.join()
    world.crash_super()
    world.run(30.0)

    assert world.n_proposed == 0


def test_a_policy_to_wait_waits() -> None:
    world = Walk(3, HealingPolicy("wait"))
    world.join()
    world.crash()
    world.run(REST_S)

    assert world.open_wounds
    assert world.n_proposed == 0


def test_it_waits_a_while_for_a_standby_before_the_ring_shrinks() -> None:
    world = next(each for seed in range(50) if (each := Walk(seed, _shrinking())).f < each.n_storages - 1)
    world.crash()
    world.run(8.0)
    assert world.n_proposed == 0

    world.join()
    world.run(REST_S)

    assert not world.open_wounds
    assert world.n_begun == 1


def _shrinking() -> HealingPolicy:
    return HealingPolicy("shrink", shrink_after_s=10.0)


@pytest.mark.parametrize("seed", range(10))
def test_if_one_standby_cannot_take_it_the_next_one_does(seed: int) -> None:
    world = Walk(seed)
    world.join()
    world.join()
    world.run(1.5)
    world.cramped = set(world.config.standbys[:1])
    world.dead.add(world.config.ring.processes[0])
    world.run(REST_S)

    if world.f == 1:
        # Its rows are gone with it, and nobody pretends otherwise.
        assert world.n_begun == 0
    else:
        assert not world.open_wounds
        assert (world.n_begun, world.n_dropped) == (2, 1)


def test_a_cure_that_is_dropped_again_and_again_is_tried_ever_more_seldom() -> None:
    world = next(each for seed in range(50) if (each := Walk(seed)).f > 1)
    world.join()
    world.run(1.5)
    world.cramped = set(world.config.standbys)
    world.dead.add(world.config.ring.processes[0])
    world.run(60.0)
    begun = world.n_begun
    assert 3 <= begun <= 8

    world.run(120.0)
    assert world.n_begun - begun <= 4

    world.cramped.clear()
    world.run(120.0)
    assert not world.open_wounds


@pytest.mark.parametrize("action", ["heal", "", "Replace"])
def test_an_unknown_policy_is_refused_by_name(action: str) -> None:
    with pytest.raises(SpecError, match=r"healing.action must be one of replace, shrink, wait"):
        HealingPolicy(action)  # type: ignore[arg-type]


def test_times_of_nothing_are_refused() -> None:
    with pytest.raises(SpecError, match=r"healing.delay_s must be greater than 0, not 0"):
        HealingPolicy(delay_s=0)


# Planted bugs.


def faults_of(seed: int, healer: Healer[Rubberband] | None = None) -> list[str]:
    """Give what a walk with some planted bug shows."""
    world = walk(seed, healer=healer)
    for _ in range(4):
        world.join()
    world.run(REST_S)
    faults = list(world.violations)
    if world.open_wounds:
        faults.append("wounds stay open")
    if world.n_proposed > bound(world):
        faults.append(f"{world.n_proposed} cures for {world.n_wounds} wounds")
    return faults


def found_in(seeds: int, faults: Callable[[int], list[str]]) -> list[str]:
    for seed in range(seeds):
        if found := faults(seed):
            return found
    pytest.fail(f"not found in {seeds} seeds")


class Tireless(RingHealer):
    """Does not see that a cure has begun: all supers propose it again and again."""

    def wounded(self, config: Rubberband, /) -> frozenset[ProcessId]:
        return frozenset(config.ring.processes) - config.storages

    def cure(
        self,
        config: Rubberband,
        /,
        *,
        may_shrink: frozenset[ProcessId] = frozenset(),
        avoided: frozenset[ProcessId] = frozenset(),
        tried: Mapping[Hashable, int] = NEVER,
    ) -> Reconfigure | None:
        failed = self.wounded(config)
        standbys = sorted(config.storages - set(config.ring.processes) - avoided)
        if not failed or not standbys:
            return None
        transformation = Replace(min(failed), standbys[0])
        try:
            copies = make_plan(config.ring, transformation, failed=failed).copies
        except SpecError:
            return None
        return Reconfigure(transformation, copies, config.layout)


class Hopeful(RingHealer):
    """Plans copies from processes that do not answer, though they are members."""

    def cure(
        self,
        config: Rubberband,
        /,
        *,
        may_shrink: frozenset[ProcessId] = frozenset(),
        avoided: frozenset[ProcessId] = frozenset(),
        tried: Mapping[Hashable, int] = NEVER,
    ) -> Reconfigure | None:
        standbys = [process for process in config.standbys if process not in avoided]
        for process in sorted(self.wounded(config)):
            if standbys:
                failed = frozenset(config.target.processes) - config.storages
                try:
                    plan = make_plan(config.target, Replace(process, standbys[0]), failed=failed)
                except SpecError:
                    continue
                return Reconfigure(Replace(process, standbys[0]), plan.copies, config.layout)
        return None


class Zealous(RingHealer):
    """Takes whoever does not answer for failed."""

    def wounded(self, config: Rubberband, /) -> frozenset[ProcessId]:
        return super().wounded(config) | config.pending

    def cure(
        self,
        config: Rubberband,
        /,
        *,
        may_shrink: frozenset[ProcessId] = frozenset(),
        avoided: frozenset[ProcessId] = frozenset(),
        tried: Mapping[Hashable, int] = NEVER,
    ) -> Reconfigure | None:
        if config.pending and config.standbys:
            process = min(config.pending)
            return Reconfigure(Replace(process, config.standbys[0]), (), config.layout)
        return super().cure(config, may_shrink=may_shrink, avoided=avoided, tried=tried)


def test_planted_supers_that_act_for_ever_are_found() -> None:
    assert "cures for" in found_in(200, lambda seed: faults_of(seed, Tireless()))[0]


def test_planted_plans_that_count_on_the_silent_are_found() -> None:
    found_in(200, lambda seed: faults_of(seed, Hopeful()))


def test_planted_cures_of_the_silent_are_found() -> None:
    found_in(200, lambda seed: faults_of(seed, Zealous()))


def test_planted_suspicion_by_one_super_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def convicted(self: Membership) -> tuple[ProcessId, ...]:
        return tuple(sorted({accused for accused, _ in self.votes}))

    monkeypatch.setattr(Membership, "convicted", convicted)

    assert "no majority has voted" in found_in(200, faults_of)[0]


def test_no_planted_bug_no_fault() -> None:
    assert [seed for seed in range(40) if faults_of(seed)] == []
