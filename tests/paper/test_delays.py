"""How many message delays things take with a stable leader (EC11 §4.7, RB13 §5.6)."""

from __future__ import annotations

import pytest

from crescando.routing.batch import Delivery
from crescando.routing.ecast.application import Application
from crescando.spec import ClusterSpec
from crescando.testing.cluster import ClientScript, SimulatedCluster
from crescando.testing.factories import Factories
from crescando.types import ProcessId
from tests.simulation.runs import small_engine

DELAY_S = 0.01


class Clocked(SimulatedCluster):
    """A cluster in which every message takes the same time, and turns and scans none."""

    def __init__(self) -> None:
        self.delivered_s: dict[ProcessId, list[float]] = {}
        world = self

        class Watched(Application):
            def take_events(self):  # type: ignore[no-untyped-def]
                events = super().take_events()
                if any(isinstance(event, Delivery) for event in events):
                    world.delivered_s.setdefault(self.me, []).append(world.time.now_s())
                return events

        spec = ClusterSpec(routers=3, storages=3, replication=2)
        factories = Factories(application=Watched)
        super().__init__(4, engine=small_engine, factories=factories, spec=spec, codec=True)
        self.turn_s, self.cycle_s = 0.0, (0.0, 0.0)
        self.network._delay_s = (DELAY_S, DELAY_S)

    def client(self) -> ClientScript:
        script = self.add_client("c1")
        self.time.run_until(3.0)
        return script


def submit(world: Clocked, script: ClientScript, name: str) -> tuple[int, float]:
    """Let a client submit one operation; give its token and the time."""
    world.delivered_s.clear()
    token = script.next_token
    script.next_token += 1
    request = world.workload._where(name, (5, 1) if name == "add_by_key" else ())
    script.core.request(token, request)
    world.nodes[script.core.me].pump.need_turn()
    return token, world.time.now_s()


@pytest.mark.parametrize("name", ["add_by_key", "read_all"])
def test_a_message_is_delivered_after_four_of_the_papers_five_delays(name: str) -> None:
    """One to the router, a round trip among the routers, one to the destinations.

    EC11 counts a third delay for agreement, in which other members learn; the
    leader, which forwards, does not wait for it.
    """
    world = Clocked()
    script = world.client()

    _, begin_s = submit(world, script, name)
    world.time.run_until(begin_s + 1.0)

    times = {round((times[0] - begin_s) / DELAY_S, 3) for times in world.delivered_s.values()}
    assert times == {4.0}


def test_a_read_is_answered_after_five_delays_and_a_write_known_stable_after_six() -> None:
    world = Clocked()
    script = world.client()

    read, begin_s = submit(world, script, "read_all")
    world.time.run_until(begin_s + 4.9 * DELAY_S)
    assert (script.core.me, read) not in world.outcomes
    world.time.run_until(begin_s + 5.1 * DELAY_S)
    assert (script.core.me, read) in world.outcomes

    write, begin_s = submit(world, script, "add_by_key")
    world.time.run_until(begin_s + 5.9 * DELAY_S)
    assert (script.core.me, write) not in world.outcomes
    world.time.run_until(begin_s + 6.1 * DELAY_S)
    assert (script.core.me, write) in world.stable
    assert (script.core.me, write) in world.outcomes
