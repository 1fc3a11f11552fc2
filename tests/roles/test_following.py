"""Processes that join: nothing before the configuration, everything from it on."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest

from crescando.engine.scan import ScanEngine
from crescando.errors import RemoteProtocolError
from crescando.roles.areas import TableChange
from crescando.roles.following import Following
from crescando.roles.messages import Attach, Explain, Inquire, Inquired, Ping, Pong, ReadReplica
from crescando.roles.storage import Storage
from crescando.routing.base import NotStable, StableEvent
from crescando.routing.batch import Delivery, gather, submission
from crescando.routing.rubberband import (
    ConfigMessage,
    CreateTable,
    DropTable,
    Join,
    Rubberband,
    decode_message,
)
from crescando.types import FULL_RING, ProcessId, position
from tests.roles.stage import ScriptedMulticast, sent
from tests.routing.worlds import CLIENT, after, config_message, schema, simple, super_

NEW = ProcessId("storage", "s7", 1)
BEFORE = simple(2, 2)
JOINED = after(BEFORE, (NEW, Join(NEW)))


def told(instance: int, sender: ProcessId, body: ConfigMessage, config: bytes = b"") -> Delivery:
    """Give a configuration message's delivery; the first of its sender."""
    picked = np.zeros(1, np.int64)
    batch = submission([config_message(sender, body)])
    part = gather(batch, picked, picked, ((),), picked + position(instance, 0))
    return msgspec.structs.replace(part, config=config)


class Joiner:
    """A storage process that starts later."""

    def __init__(self) -> None:
        self.multicast = ScriptedMulticast()
        self.core = Storage(NEW, multicast=self.multicast, config=None, config_type=Rubberband)
        self.core.on_start(0.0)
        self.first = self.core.flush(0.0)


def test_it_joins_by_its_first_message_and_waits() -> None:
    joiner = Joiner()

    (batch,) = joiner.multicast.submitted
    assert (batch.first, decode_message(batch.payload_of(0))) == (1, Join(NEW))
    assert joiner.first.execute is None
    assert joiner.core.tables == ()
    assert not joiner.core.following.is_joined


def test_before_it_has_joined_it_answers_all_questions_with_nothing() -> None:
    joiner = Joiner()
    for message in (
        Attach(),
        Inquire(1, (3,)),
        Ping(7.0),
        Explain(1, b"?", b""),
        ReadReplica(1, 0, FULL_RING, (0,)),
    ):
        joiner.core.on_message(CLIENT, message, 0.0)

    output = joiner.core.flush(0.0)

    assert sent(output, Pong) == [Pong(7.0)]
    assert sent(output, Inquired) == [Inquired(1, (), ())]
    engine = ScanEngine()
    engine.set_arcs(())
    joiner.core.on_executed(output.execute.run(engine), 0.0)
    assert joiner.core.flush(0.0).execute is None


def test_its_join_tells_it_which_tables_there_are_and_later_messages_what_becomes_of_them() -> None:
    joiner = Joiner()
    joiner.multicast.events.append(told(9, NEW, Join(NEW), JOINED.encode()))
    joiner.multicast.events.append(told(10, super_(0), CreateTable(schema("later"))))
    joiner.multicast.events.append(told(11, CLIENT, DropTable("t")))

    work = joiner.core.flush(0.0).execute

    assert [type(step) for step in work.steps] == [TableChange] * 3
    assert work.upto == position(11, 0)
    engine = ScanEngine()
    engine.set_arcs(joiner.core.config.owned_arcs(NEW))
    work.run(engine)
    assert [table.name for table in joiner.core.tables] == ["later"]
    expected = after(JOINED, (super_(0), CreateTable(schema("later"))), (CLIENT, DropTable("t")))
    assert joiner.core.config == expected
    assert joiner.core.following.position == position(11, 0)


def test_a_first_member_begins_with_what_it_is_given() -> None:
    following = Following(super_(0), BEFORE, Rubberband)
    multicast = ScriptedMulticast()

    following.join(multicast)

    assert multicast.submitted == []
    message, before = following.take(told(3, NEW, Join(NEW)), 0)
    assert (message.sender, before) == (NEW, BEFORE)
    assert following.config == JOINED


def test_a_configuration_that_is_none_is_refused() -> None:
    following = Following(NEW, None, Rubberband)

    with pytest.raises(RemoteProtocolError, match="malformed configuration"):
        following.take(told(3, NEW, Join(NEW), b"nonsense"), 0)


def test_one_whose_join_is_refused_stops_and_says_why() -> None:
    joiner = Joiner()
    refusal = NotStable(1, "refused", "storage/s7#1 has been a member; it must join as a new incarnation")
    joiner.multicast.events.append(StableEvent(1, (refusal,)))

    assert joiner.core.flush(0.0).stop == f"it could not join: {refusal.reason}"


def test_what_is_refused_of_a_member_does_not_stop_it() -> None:
    joiner = Joiner()
    joiner.multicast.events.append(told(9, NEW, Join(NEW), JOINED.encode()))
    joiner.multicast.events.append(StableEvent(1, (NotStable(1, "refused", "told again"),)))

    assert joiner.core.flush(0.0).stop == ""
