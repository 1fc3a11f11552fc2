from __future__ import annotations

import pytest

from crescando.routing.base import Config, Refusal, destset
from crescando.routing.base import route as route_of
from crescando.routing.batch import Message, submission
from crescando.routing.broadcast import Broadcast
from crescando.routing.rubberband import DropTable, Join, Leave, Suspect
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId
from tests.routing.worlds import CLIENT, OUTSIDER, config_message, data_message, storage, super_

CONFIG = Broadcast(frozenset({CLIENT, storage(0), storage(1), super_(0)}))
READ = data_message(MessageKind.READ, [KeyRange(1, 2)])
WRITE = data_message(MessageKind.WRITE, [KeyRange(1, 2)], number=2)


def test_broadcast_is_a_config() -> None:
    assert isinstance(CONFIG, Config)


def test_first_storage_answers_and_all_are_written() -> None:
    assert CONFIG.destset(READ) == {storage(0): (FULL_RING,)}
    assert CONFIG.destset(WRITE) == {storage(0): (FULL_RING,), storage(1): ()}


def test_scalar_fallback_routes_a_run() -> None:
    routes = route_of(CONFIG, submission([READ, WRITE]), 0, 2)

    assert [routes.routes[i] for i in routes.group] == [CONFIG.destset(READ), CONFIG.destset(WRITE)]


def test_suspicion_by_any_member_moves_answers_to_the_next_storage() -> None:
    message = config_message(CLIENT, Suspect(storage(0)))

    after = CONFIG.apply(message)

    assert CONFIG.suspects(message) == {storage(0)}
    assert CONFIG.destset(message) == {storage(0): (), storage(1): (), super_(0): ()}
    assert after.destset(WRITE) == {storage(1): (FULL_RING,)}


def test_join_informs_the_joiner_and_leave_ends_a_membership() -> None:
    new = storage(7)
    joined = CONFIG.apply(config_message(new, Join(new)))
    leave = config_message(new, Leave(new), 2)

    assert new in CONFIG.destset(config_message(new, Join(new)))
    assert new in joined.destset(WRITE)
    assert joined.suspects(leave) == {new}
    assert joined.apply(leave) == CONFIG


@pytest.mark.parametrize(
    "message",
    [
        READ,
        config_message(OUTSIDER, Suspect(storage(0))),
        config_message(OUTSIDER, Join(CLIENT)),
        config_message(OUTSIDER, Join(OUTSIDER), 2),
        Message(OUTSIDER, 1, MessageKind.CONFIG, -1, (), 0, b"junk"),
    ],
)
def test_messages_of_strangers_are_void(message: Message) -> None:
    config = CONFIG if message is not READ else Broadcast(CONFIG.processes - {CLIENT})

    assert config.destset(message) == {}
    assert config.suspects(message) == frozenset()
    if message is not READ:
        assert config.apply(message) is config


@pytest.mark.parametrize(
    "message",
    [
        config_message(CLIENT, Leave(storage(0))),
        config_message(CLIENT, Suspect(OUTSIDER)),
        config_message(CLIENT, Join(CLIENT)),
        config_message(CLIENT, DropTable("t")),
        Message(CLIENT, 1, MessageKind.CONFIG, -1, (), 0, b"junk"),
    ],
)
def test_configuration_message_out_of_place_is_refused(message: Message) -> None:
    assert isinstance(destset(CONFIG, message), Refusal)
    assert CONFIG.suspects(message) == frozenset()


def test_last_storage_cannot_be_suspected() -> None:
    config = CONFIG.apply(config_message(CLIENT, Suspect(storage(0))))

    with pytest.raises(Refusal, match="last storage"):
        config.destset(config_message(CLIENT, Suspect(storage(1))))


def test_without_storages_data_is_refused() -> None:
    with pytest.raises(Refusal, match="no storage process is left"):
        Broadcast(frozenset({CLIENT})).destset(READ)


def test_encoding_is_canonical() -> None:
    same = Broadcast(frozenset(sorted(CONFIG.processes, reverse=True)))

    assert Broadcast.decode(CONFIG.encode()) == CONFIG
    assert same.encode() == CONFIG.encode()
    assert same.digest() == CONFIG.digest()
    assert CONFIG.apply(config_message(CLIENT, Suspect(storage(0)))).digest() != CONFIG.digest()
    assert CONFIG.members() == CONFIG.processes
    assert not CONFIG.is_member(ProcessId("client", "c0", 1))
