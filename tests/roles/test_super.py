"""The super role: votes after silence or refusals, takes votes back, and never acts alone."""

from __future__ import annotations

import msgspec
import numpy as np

from crescando.process import Output
from crescando.roles.balancing import BalancingPolicy
from crescando.roles.healing import HealingPolicy
from crescando.roles.messages import Ping, Pong, Watched
from crescando.roles.messages import Watch as Question
from crescando.roles.super import Super, SuperTiming
from crescando.routing.base import ExpelledEvent
from crescando.routing.batch import gather, submission
from crescando.routing.ecast.messages import ConfigRequest, ConfigState
from crescando.routing.rubberband import ConfigMessage, Join, Rubberband, Suspect, Trust, decode_message
from crescando.routing.rubberband.balancing import RingBalancer
from crescando.routing.rubberband.happenings import Event, Joined
from crescando.routing.rubberband.healing import RingHealer
from crescando.routing.rubberband.history import happenings_of
from crescando.types import ProcessId, position
from tests.roles.stage import ScriptedMulticast, sent
from tests.routing.worlds import CLIENT, config_message, simple, storage, super_

TIMING = SuperTiming(suspicion_s=3.0, ping_s=0.5, refusals=3)
ROUTER = ProcessId("router", "r1", 1)
ME, PEER = super_(1), super_(2)
S0, S1 = storage(0), storage(1)
FIRST = super_(0)
CONFIG = simple(2, 2, n_supers=3)
EVERYBODY = (S0, S1, PEER, FIRST, CLIENT)


def super_core(
    me: ProcessId,
    multicast: ScriptedMulticast,
    config: Rubberband | None,
    healing: HealingPolicy | None = None,
    balancing: BalancingPolicy | None = None,
) -> Super[Rubberband]:
    return Super(
        me,
        multicast=multicast,
        config=config,
        config_type=Rubberband,
        observe=happenings_of,
        healer=RingHealer(),
        healing=healing,
        balancer=RingBalancer(),
        balancing=balancing,
        timing=TIMING,
    )


class Watch:
    """A super, its clock and its votes."""

    def __init__(
        self,
        config: Rubberband | None = CONFIG,
        *,
        me: ProcessId = ME,
        healing: HealingPolicy | None = None,
        balancing: BalancingPolicy | None = None,
    ) -> None:
        self.multicast = ScriptedMulticast(ROUTER)
        self.core = super_core(me, self.multicast, config, healing, balancing)
        self.now_s = 0.0
        self.instance = 0
        self.numbers: dict[ProcessId, int] = {}
        self.core.on_start(0.0)
        self.started = self.core.flush(0.0)

    def pass_time(self, seconds: float, *, alive: tuple[ProcessId, ...] = EVERYBODY) -> Output:
        """Let time pass in steps of a ping, the living answering each."""
        output = Output()
        for _ in range(round(seconds / TIMING.ping_s)):
            self.now_s += TIMING.ping_s
            for process in alive:
                self.core.on_message(process, Pong(self.now_s), self.now_s)
            output = self.core.flush(self.now_s)
        return output

    def deliver(self, sender: ProcessId, body: ConfigMessage, *, config: bytes = b"") -> None:
        """Let a configuration message be ordered, the next of its sender."""
        self.numbers[sender] = number = self.numbers.get(sender, 0) + 1
        self.instance += 1
        picked = np.zeros(1, np.int64)
        batch = submission([config_message(sender, body, number)])
        part = gather(batch, picked, picked, ((),), picked + position(self.instance, 0))
        self.multicast.events.append(msgspec.structs.replace(part, config=config))

    def votes(self) -> list[object]:
        return [decode_message(batch.payload_of(0)) for batch in self.multicast.submitted]

    def connect(self, *processes: ProcessId) -> Output:
        for process in processes:
            self.core.on_connected(process, self.now_s)
        return self.core.flush(self.now_s)


def test_storages_are_connected_and_of_two_supers_the_first_asks() -> None:
    watch = Watch()

    assert set(watch.started.connect) == {S0, S1, PEER}
    later = super_core(PEER, ScriptedMulticast(), CONFIG)
    later.on_start(0.0)
    assert set(later.flush(0.0).connect) == {S0, S1}


def test_connected_processes_are_pinged_again_and_again() -> None:
    watch = Watch()
    assert sent(watch.connect(S0), Ping, to=S0)

    assert sent(watch.pass_time(0.5), Ping, to=S0) == [Ping(0.5)]
    assert sent(watch.pass_time(0.5), Ping, to=S0) == [Ping(1.0)]
    assert not sent(watch.pass_time(0.5), Ping, to=S1)


def test_silence_is_voted_upon_once() -> None:
    watch = Watch()
    watch.connect(S0, S1, PEER)

    watch.pass_time(3.0, alive=(S1, PEER, FIRST, CLIENT))
    assert watch.votes() == []
    watch.pass_time(20.0, alive=(S1, PEER, FIRST, CLIENT))

    assert watch.votes() == [Suspect(S0)]
    assert watch.core.suspicions == 1


def test_a_session_alone_is_no_sign_of_life() -> None:
    watch = Watch()
    for _ in range(10):
        watch.connect(S0)
        watch.pass_time(0.5, alive=(S1, PEER, FIRST, CLIENT))
        watch.core.on_disconnected(S0, watch.now_s)

    assert watch.votes() == [Suspect(S0)]


def test_one_that_answers_again_is_trusted_again() -> None:
    watch = Watch()
    watch.connect(S0, S1, PEER)
    watch.pass_time(4.0, alive=(S1, PEER, FIRST, CLIENT))

    watch.pass_time(1.0)
    assert watch.votes() == [Suspect(S0), Trust(S0)]

    watch.pass_time(4.0, alive=(S1, PEER, FIRST, CLIENT))
    assert watch.votes() == [Suspect(S0), Trust(S0), Suspect(S0)]


def test_votes_are_numbered_consecutively() -> None:
    watch = Watch()

    watch.pass_time(4.0, alive=())

    assert watch.votes() == [Suspect(accused) for accused in sorted(EVERYBODY)]
    assert [batch.first for batch in watch.multicast.submitted] == [1, 2, 3, 4, 5]


def test_refused_sessions_mean_that_nobody_is_there_any_more() -> None:
    watch = Watch()
    watch.core.on_message(S0, Pong(0.0), watch.now_s)
    for _ in range(TIMING.refusals - 1):
        watch.core.on_refused(S0, watch.now_s)
    watch.pass_time(0.5, alive=(S1, PEER, FIRST, CLIENT))
    assert watch.votes() == []

    watch.core.on_refused(S0, watch.now_s)
    watch.pass_time(0.5, alive=(S1, PEER, FIRST, CLIENT))

    assert watch.votes() == [Suspect(S0)]


def test_who_was_never_heard_may_be_starting_and_is_given_time() -> None:
    watch = Watch()
    for _ in range(5 * TIMING.refusals):
        watch.core.on_refused(S0, watch.now_s)
    watch.pass_time(3.0, alive=(S1, PEER, FIRST, CLIENT))
    assert watch.votes() == []

    watch.pass_time(0.5, alive=(S1, PEER, FIRST, CLIENT))

    assert watch.votes() == [Suspect(S0)]


def test_a_client_asks_itself_for_its_session_and_is_told_who_there_is() -> None:
    watch = Watch()
    watch.connect(CLIENT)

    output = watch.pass_time(0.5)

    assert CLIENT not in output.connect
    assert sent(output, Ping, to=CLIENT) == [
        Ping(0.5, tuple(sorted(CONFIG.supers)), tuple(sorted(CONFIG.storages)))
    ]
    watch.pass_time(3.5, alive=(S0, S1, PEER, FIRST))
    assert watch.votes() == [Suspect(CLIENT)]


def test_a_sign_of_life_or_a_session_makes_refusals_count_anew() -> None:
    watch = Watch()
    for _ in range(2):
        watch.core.on_refused(S0, watch.now_s)
    watch.core.on_message(S0, Pong(0.0), watch.now_s)
    for _ in range(2):
        watch.core.on_refused(S0, watch.now_s)
    watch.pass_time(0.5, alive=(S1, PEER, FIRST, CLIENT))
    watch.core.on_connected(S0, watch.now_s)
    for _ in range(2):
        watch.core.on_refused(S0, watch.now_s)

    watch.pass_time(1.0)

    assert watch.votes() == []


def test_a_lost_session_is_probed_at_once_and_not_voted_upon() -> None:
    watch = Watch()
    watch.connect(S0)

    watch.core.on_disconnected(S0, watch.now_s)

    assert watch.core.flush(watch.now_s).connect == [S0]
    assert watch.votes() == []


def test_it_follows_who_is_a_member() -> None:
    watch = Watch()
    new = storage(7)

    watch.deliver(new, Join(new))
    output = watch.core.flush(watch.now_s)

    assert output.connect == [new]
    watch.pass_time(4.0)
    assert watch.votes() == [Suspect(new)]


def test_one_that_is_no_member_any_more_is_left_alone() -> None:
    watch = Watch()
    watch.deliver(FIRST, Suspect(S0))
    watch.deliver(PEER, Suspect(S0))

    watch.core.flush(watch.now_s)
    assert not watch.core.following.is_member(S0)
    watch.pass_time(4.0, alive=(S1, PEER, CLIENT, FIRST))

    assert watch.votes() == []


def test_clients_are_told_of_a_newcomer_at_once() -> None:
    watch = Watch()
    watch.connect(CLIENT)
    watch.pass_time(0.5)

    watch.deliver(storage(7), Join(storage(7)))
    output = watch.core.flush(watch.now_s)

    (ping,) = sent(output, Ping, to=CLIENT)
    assert storage(7) in ping.storages
    assert not sent(output, Ping, to=S0)


def test_one_that_starts_later_joins_and_watches_nobody_before_it_is_told_of_anybody() -> None:
    watch = Watch(None)
    assert watch.started.connect == []
    assert watch.votes() == [Join(ME)]
    watch.pass_time(10.0, alive=())
    assert watch.votes() == [Join(ME)]

    # Its join's delivery carries everything that came before.
    watch.deliver(ME, Join(ME), config=CONFIG.encode())
    output = watch.core.flush(watch.now_s)

    assert watch.core.following.config == CONFIG
    assert set(output.connect) == {S0, S1, PEER}
    watch.pass_time(4.0, alive=(S1, PEER, CLIENT, FIRST))
    assert watch.votes() == [Join(ME), Suspect(S0)]


def lagging(watch: Watch, *processes: ProcessId, router: ProcessId = ROUTER) -> None:
    """Let a router say who owes it confirmations."""
    watch.core.on_message(router, ConfigState(0, CONFIG.encode(), processes), watch.now_s)


def test_one_that_lives_but_lags_is_voted_upon_until_it_gets_on() -> None:
    watch = Watch()
    watch.connect(S0, S1, PEER)
    lagging(watch, S0)
    watch.pass_time(2.0, alive=EVERYBODY)
    lagging(watch, S0)
    watch.pass_time(2.0, alive=EVERYBODY)
    assert watch.votes() == [Suspect(S0)]

    lagging(watch)
    watch.pass_time(0.5, alive=EVERYBODY)

    assert watch.votes() == [Suspect(S0), Trust(S0)]


def test_only_the_leader_says_who_lags() -> None:
    watch = Watch()

    lagging(watch, S0, router=ProcessId("router", "r2", 1))

    assert watch.votes() == []


def test_the_lead_router_is_asked_for_the_configuration_regularly() -> None:
    watch = Watch()

    assert sent(watch.pass_time(0.5), ConfigRequest, to=ROUTER) == [ConfigRequest(wants_config=False)]

    watch.multicast.lead = None
    assert not sent(watch.pass_time(0.5), ConfigRequest)


def test_others_pings_are_answered() -> None:
    watch = Watch()

    watch.core.on_message(PEER, Ping(17.0), 0.0)

    assert sent(watch.core.flush(0.0), Pong, to=PEER) == [Pong(17.0)]


def test_a_pong_of_a_stranger_is_ignored() -> None:
    watch = Watch()

    watch.core.on_message(storage(9), Pong(0.0), 0.0)
    watch.pass_time(4.0)

    assert watch.votes() == []


def test_an_own_pause_is_not_held_against_others() -> None:
    watch = Watch()
    watch.connect(S0, S1, PEER)
    watch.pass_time(2.0)

    watch.now_s += 60.0
    watch.core.flush(watch.now_s)
    watch.pass_time(2.0)

    assert watch.votes() == []


def test_an_own_pause_does_not_make_later_silence_longer() -> None:
    watch = Watch()
    watch.connect(S0, S1, PEER)
    watch.pass_time(1.0)

    # What was said during an hour's pause is heard before the next turn.
    watch.now_s += 3600.0
    for process in (S0, S1, PEER):
        watch.core.on_message(process, Pong(watch.now_s), watch.now_s)
    watch.core.flush(watch.now_s)
    watch.pass_time(4.0, alive=(S1, PEER, FIRST, CLIENT))

    assert watch.votes() == [Suspect(S0)]


def test_one_that_refuses_is_probed_sooner() -> None:
    watch = Watch()

    watch.core.on_refused(S0, 0.0)

    assert watch.core.flush(0.0).wake_at_s == TIMING.probe_s


def test_it_asks_to_be_woken_for_the_next_ping() -> None:
    watch = Watch()

    assert watch.started.wake_at_s == TIMING.ping_s


def test_an_expelled_super_stops() -> None:
    watch = Watch()
    watch.multicast.events.append(ExpelledEvent(9, 0))

    assert "expelled" in watch.core.flush(0.0).stop


def test_what_concerns_routers_goes_to_the_multicast() -> None:
    watch = Watch()

    watch.core.on_connected(ROUTER, 0.0)
    watch.core.on_refused(ROUTER, 0.0)
    watch.core.on_disconnected(ROUTER, 0.0)

    assert watch.multicast.told == [("connected", ROUTER), ("refused", ROUTER), ("disconnected", ROUTER)]


def test_whoever_asks_is_told_what_happened() -> None:
    watch = Watch()
    watch.core.on_message(CLIENT, Question(7, -1), watch.now_s)
    assert not sent(watch.core.flush(watch.now_s), Watched)

    watch.deliver(storage(7), Join(storage(7)))
    (told,) = sent(watch.core.flush(watch.now_s), Watched, to=CLIENT)

    at = position(1, 0)
    assert told == Watched(7, -1, at, (Event(at, Joined(storage(7))),))


def test_one_that_joined_knows_what_happened_since() -> None:
    watch = Watch(None)
    watch.core.on_message(CLIENT, Question(7, -1), watch.now_s)
    watch.deliver(ME, Join(ME), config=CONFIG.encode())

    (told,) = sent(watch.core.flush(watch.now_s), Watched)

    assert told == Watched(7, position(1, 0), position(1, 0), ())
