"""The pump: inputs gather into turns, outputs are carried out in order, and a failure stops one process."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import pytest

from crescando.errors import InvariantError, RemoteProtocolError
from crescando.process import Output
from crescando.pump import Pump
from crescando.transport.inprocess import InProcessHub
from crescando.types import ProcessId
from tests.transport.witness import A, Agenda, B, Witness, World


class ScriptedCore:
    """A core that writes down its inputs and gives the outputs it was told to give."""

    def __init__(self, me: ProcessId) -> None:
        self.me = me
        self.log: list[tuple[Any, ...]] = []
        self.outputs: list[Output] = []
        self.on: Callable[[Any], None] = lambda message: None

    def on_start(self, now_s: float) -> None:
        self.log.append(("start", now_s))

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self.log.append(("connected", peer))

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self.log.append(("disconnected", peer))

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self.log.append(("refused", peer))

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.log.append(("message", peer, message))
        self.on(message)

    def on_executed(self, result: Any, now_s: float) -> None:
        self.log.append(("executed", result))

    def flush(self, now_s: float) -> Output:
        self.log.append(("flush", now_s))
        return self.outputs.pop(0) if self.outputs else Output()

    def count(self, what: str) -> int:
        return sum(entry[0] == what for entry in self.log)


class QuietCore(ScriptedCore):
    """A core that only counts some messages."""

    is_quiet = False

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        super().on_message(peer, message, now_s)
        self.is_quiet = message == "count me"


class Desk:
    """A pumped core A beside a witness B."""

    def __init__(self, core: ScriptedCore | None = None, **arguments: Any) -> None:
        self.agenda = Agenda()
        self.hub = InProcessHub(self.agenda)
        self.world = World(self.hub, self.agenda.run_until, self.agenda.now_s)
        self.stopped: list[str] = []
        self.core = core or ScriptedCore(A)
        self.pump = Pump(self.core, self.hub, self.agenda, stopped=self.stopped.append, **arguments)
        self.b = Witness(self.world, B)
        self.pump.start()
        self.agenda.run_until(0.0)

    def connect(self) -> None:
        self.hub.connect(A, B)
        self.agenda.run_until(self.agenda.time)

    def give(self, output: Output) -> None:
        """Let the next turn give this output, and take it."""
        self.core.outputs.append(output)
        self.pump.need_turn()
        self.agenda.run_until(self.agenda.time)


def test_a_core_is_started_and_then_takes_a_turn() -> None:
    desk = Desk()

    assert desk.core.log == [("start", 0.0), ("flush", 0.0)]
    assert desk.pump.is_running


def test_the_inputs_that_are_due_together_share_a_turn() -> None:
    desk = Desk()
    desk.connect()
    flushes = desk.core.count("flush")

    for n in range(10):
        desk.b.channel.send(n)
    desk.agenda.run_until(0.0)

    assert desk.core.count("message") == 10
    assert desk.core.count("flush") == flushes + 1


def test_what_has_arrived_is_answered_before_anything_else_is_done() -> None:
    desk = Desk()
    desk.connect()
    flushes = desk.core.count("flush")
    seen: list[int] = []

    desk.b.channel.send("x")
    desk.agenda.call_soon(lambda: seen.append(desk.core.count("flush")))
    desk.agenda.run_until(0.0)

    assert seen == [flushes + 1]


def test_what_arrives_before_a_turn_that_is_to_come_shares_it() -> None:
    desk = Desk()
    desk.connect()
    flushes = desk.core.count("flush")

    desk.b.channel.send("x")
    desk.pump.need_turn()
    desk.agenda.run_until(0.0)

    assert desk.core.count("message") == 1
    assert desk.core.count("flush") == flushes + 1


def test_a_message_that_leaves_a_core_nothing_to_do_takes_no_turn() -> None:
    core = QuietCore(A)
    desk = Desk(core)
    desk.connect()
    flushes = core.count("flush")

    desk.b.channel.send("count me")
    desk.agenda.run_until(0.0)
    assert (core.count("message"), core.count("flush")) == (1, flushes)
    desk.b.channel.send("answer me")
    desk.b.channel.send("count me")
    desk.agenda.run_until(0.0)

    assert (core.count("message"), core.count("flush")) == (3, flushes + 1)


def test_an_output_is_carried_out_in_the_order_of_its_fields() -> None:
    done: list[Any] = []
    desk = Desk(execute=done.append)
    desk.connect()

    desk.give(Output(connect=[B], send=[(B, 1), (B, 2)], execute="work"))

    assert desk.b.messages() == [1, 2]
    assert done == ["work"]
    desk.pump.executed("result")
    assert desk.core.log[-1] == ("executed", "result")


def test_a_message_to_a_peer_without_a_session_is_dropped() -> None:
    desk = Desk()

    desk.give(Output(send=[(B, "x")]))
    desk.connect()

    assert desk.b.messages() == []


def test_wanted_sessions_are_asked_for() -> None:
    desk = Desk()

    desk.give(Output(connect=[B, ProcessId("client", "nobody")]))

    assert ("connected", B) in desk.core.log
    assert ("refused", ProcessId("client", "nobody")) in desk.core.log


def test_a_reset_ends_the_session_and_the_core_is_told_once() -> None:
    desk = Desk()
    desk.connect()

    desk.give(Output(reset=[B, B, ProcessId("client", "nobody")]))

    assert desk.core.count("disconnected") == 1
    assert desk.b.told("closed") == [A]


def test_the_end_of_an_old_session_is_told_before_the_begin_of_the_next() -> None:
    desk = Desk()
    desk.connect()
    old = desk.pump._channels[B]
    new = type(old)(desk.hub, A, B, old.inbox)

    desk.pump.opened(new)
    desk.pump.received(old, "late")
    desk.pump.closed(old)

    assert desk.core.log[-2:] == [("disconnected", B), ("connected", B)]


def test_a_core_is_woken_at_the_time_it_asked_for() -> None:
    desk = Desk()
    desk.give(Output(wake_at_s=5.0))
    flushes = desk.core.count("flush")

    desk.agenda.run_until(4.9)
    assert desk.core.count("flush") == flushes
    desk.agenda.run_until(5.1)

    assert desk.core.log[-1] == ("flush", 5.0)
    assert desk.core.count("flush") == flushes + 1


def test_the_newest_wake_up_counts() -> None:
    desk = Desk()
    desk.give(Output(wake_at_s=5.0))
    desk.give(Output(wake_at_s=8.0))
    flushes = desk.core.count("flush")

    desk.agenda.run_until(7.0)
    assert desk.core.count("flush") == flushes
    desk.agenda.run_until(9.0)
    assert desk.core.count("flush") == flushes + 1


def test_a_wake_up_that_is_not_wanted_any_more_does_not_come() -> None:
    desk = Desk()
    desk.give(Output(wake_at_s=5.0))
    desk.give(Output(wake_at_s=None))
    flushes = desk.core.count("flush")

    desk.agenda.run_until(99.0)

    assert desk.core.count("flush") == flushes


def test_the_same_wake_up_wanted_again_comes_once_and_may_be_wanted_after() -> None:
    desk = Desk()
    for _ in range(3):
        desk.give(Output(wake_at_s=5.0))
    flushes = desk.core.count("flush")
    desk.core.outputs.append(Output(wake_at_s=5.0))

    desk.agenda.run_until(5.0)

    # The second wake-up for a moment that has passed comes at once; no third was asked for.
    assert desk.core.count("flush") == flushes + 2


def test_after_each_turn_whoever_waits_is_served() -> None:
    turns: list[int] = []
    desk = Desk(after_turn=lambda: turns.append(1))
    before = len(turns)

    desk.give(Output())

    assert len(turns) == before + 1


def test_a_core_that_stops_itself_is_detached_and_its_last_words_are_sent() -> None:
    desk = Desk()
    desk.connect()

    desk.give(Output(send=[(B, "farewell")], stop="expelled at position 7"))

    assert desk.stopped == ["expelled at position 7"]
    assert not desk.pump.is_running
    assert desk.b.log[1:] == [("received", A, "farewell"), ("closed", A)]


@pytest.mark.parametrize("where", ["message", "flush", "execute", "after_turn"])
def test_a_core_that_fails_stops_itself_and_no_other(where: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(_: Any = None) -> Any:
        raise ZeroDivisionError(str(4000 + 711))

    collect: list[Callable[[], object]] = [lambda: None]
    desk = Desk(execute=fail if where == "execute" else None, after_turn=lambda: collect[0]())
    desk.connect()
    if where == "message":
        desk.core.on = fail
    elif where == "flush":
        desk.core.flush = fail  # type: ignore[method-assign]
    elif where == "after_turn":
        collect[0] = fail
    else:
        desk.core.outputs.append(Output(execute="work"))

    with caplog.at_level(logging.ERROR):
        desk.b.channel.send("x")
        desk.b.channel.send("y")
        desk.agenda.run_until(desk.agenda.time)

    assert len(desk.stopped) == 1
    assert "4711" in desk.stopped[0]
    assert desk.core.count("message") <= 2
    assert desk.b.told("closed") == [A]
    assert "ZeroDivisionError" in caplog.text
    assert "in fail" in caplog.text
    # What an error of Python's says may be what stands in a row.
    assert "4711" not in caplog.text


def test_what_an_error_of_our_own_says_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk()
    desk.connect()

    def fail(_: Any) -> None:
        raise InvariantError("two arcs overlap")

    desk.core.on = fail
    with caplog.at_level(logging.ERROR):
        desk.b.channel.send("x")
        desk.agenda.run_until(desk.agenda.time)

    assert "InvariantError: two arcs overlap" in caplog.text


def test_a_message_that_makes_no_sense_costs_its_sender_the_session_and_nobody_else_anything() -> None:
    desk = Desk()
    desk.connect()

    def refuse(message: Any) -> None:
        if message == "nonsense":
            raise RemoteProtocolError("nonsense")

    desk.core.on = refuse
    desk.b.channel.send("nonsense")
    desk.agenda.run_until(desk.agenda.time)

    assert desk.stopped == []
    assert desk.pump.is_running
    assert desk.b.told("closed") == [A]


def test_nothing_reaches_a_stopped_core() -> None:
    desk = Desk()
    desk.connect()
    desk.pump.need_turn()
    before = len(desk.core.log)

    desk.pump.stop()
    desk.b.channel.send("x")
    desk.pump.executed("late")
    desk.pump.refused(B)
    desk.pump.fail(ValueError("too late"))
    desk.pump.need_turn()
    desk.agenda.run_until(99.0)
    desk.pump.stop()

    assert len(desk.core.log) == before
    assert desk.stopped == []
