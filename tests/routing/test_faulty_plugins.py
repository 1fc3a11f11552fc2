"""What a faulty routing plug-in cannot route is refused by its name, alike in both forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from crescando.routing.base import Refusal, Routes, destset, route, transition
from crescando.routing.batch import Message, Submission, submission
from crescando.routing.broadcast import Broadcast
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.rubberband import Join, Leave, Suspect
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId, Scope
from tests.routing.worlds import CLIENT, config_message, data_message, storage, super_

MEMBERS = frozenset({CLIENT, storage(0), storage(1), super_(0)})
GHOST = ProcessId("storage", "ghost")
READS = [data_message(MessageKind.READ, [KeyRange(1, 2)], number=n, offset=n) for n in range(1, 7)]


class Haunted(Broadcast):
    """Sends every other read to a process that is no member."""

    def destset(self, message: Message) -> Mapping[ProcessId, Scope]:
        if message.kind is MessageKind.READ and message.replica_offset % 2:
            return {GHOST: (FULL_RING,)}
        return super().destset(message)


class HauntedRuns(Haunted):
    """The same, with a vectorised form."""

    def route(self, batch: Submission, start: int, stop: int) -> Routes:
        group = batch.replica_offset[start:stop].astype(np.int64) % 2
        return Routes(group, (super().destset(READS[1]), {GHOST: (FULL_RING,)}))


def reasons(config: Any) -> list[str]:
    routes = route(config, submission(READS), 0, len(READS))
    found = [routes.routes[group] for group in routes.group.tolist()]
    return [target.reason if isinstance(target, Refusal) else "" for target in found]


@pytest.mark.parametrize("plugin", [Haunted, HauntedRuns])
def test_messages_for_a_stranger_are_refused_and_the_others_routed(plugin: type[Haunted]) -> None:
    told = f"routing plug-in {plugin.__qualname__} names storage/ghost#0, which is no member"

    assert reasons(plugin(MEMBERS)) == [told, ""] * 3


def test_a_stranger_is_refused_in_the_order_and_the_order_goes_on() -> None:
    q = MSeq(HauntedRuns(MEMBERS))

    q.learn(1, Batch((submission(READS),)))

    assert q.learned[CLIENT] == 6
    assert sorted(q.refused[CLIENT]) == [1, 3, 5]


def test_a_joiner_is_no_stranger_to_its_own_join() -> None:
    new = storage(7)

    assert new in dict(destset(Broadcast(MEMBERS), config_message(new, Join(new))))  # type: ignore[call-overload]


def test_a_run_that_is_routed_in_no_or_too_many_groups_is_routed_one_by_one() -> None:
    class Short(Haunted):
        def route(self, batch: Submission, start: int, stop: int) -> Routes:
            return Routes(np.zeros(stop - start - 1, np.int64), ({},))

    class Beyond(Haunted):
        def route(self, batch: Submission, start: int, stop: int) -> Routes:
            return Routes(np.full(stop - start, 1), ({},))

    for plugin in (Short, Beyond):
        assert [bool(reason) for reason in reasons(plugin(MEMBERS))] == [True, False] * 3


class Paranoid(Broadcast):
    """Declares a process failed that is no member."""

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        return frozenset({GHOST})


def test_a_suspicion_of_a_stranger_is_refused_and_changes_nothing() -> None:
    q = MSeq(Paranoid(MEMBERS))

    learned = q.learn(1, Batch((submission([config_message(CLIENT, Suspect(storage(0)))]),)))

    assert q.refused[CLIENT] == {1: "routing plug-in Paranoid names storage/ghost#0, which is no member"}
    assert q.config == Paranoid(MEMBERS)
    assert not learned.suspected


def test_what_gives_no_mapping_is_refused() -> None:
    class Nothing(Broadcast):
        def destset(self, message: Message) -> Any:
            return None

    target = destset(Nothing(MEMBERS), READS[0])

    assert isinstance(target, Refusal)
    assert "Nothing failed" in target.reason


def test_a_sound_transition_gives_the_next_config_and_whom_it_expels() -> None:
    outcome = transition(Broadcast(MEMBERS), config_message(CLIENT, Leave(CLIENT)))

    assert outcome == (replace(Broadcast(MEMBERS), processes=MEMBERS - {CLIENT}), frozenset({CLIENT}))
