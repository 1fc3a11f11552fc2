"""The agenda of one event loop: rounds of turns, and everybody else's turn between them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from crescando.loop import TURNS_S, Agenda


def in_loop(scenario: Callable[[asyncio.AbstractEventLoop, Agenda, list[str]], None]) -> list[str]:
    """Give what a scenario logged until nothing was left to do."""
    log: list[str] = []

    async def main() -> None:
        loop = asyncio.get_running_loop()
        scenario(loop, Agenda(loop), log)
        await asyncio.sleep(0.05)

    asyncio.run(main())
    return log


def test_what_a_round_adds_waits_for_the_next_one_but_not_for_the_loop() -> None:
    def scenario(loop: asyncio.AbstractEventLoop, agenda: Agenda, log: list[str]) -> None:
        agenda.now_s = lambda: 0.0  # However slow the machine is.

        def first() -> None:
            log.append("first")
            agenda.call_soon(lambda: log.append("added"))

        agenda.call_soon(first)
        agenda.call_soon(lambda: log.append("second"))
        loop.call_soon(lambda: log.append("loop"))

    assert in_loop(scenario) == ["first", "second", "added", "loop"]


@pytest.mark.parametrize("n_turns", [1, 5])
def test_processes_that_never_rest_leave_room_for_the_loop(n_turns: int) -> None:
    """After a while, and not after so many turns: under load each of them may be long."""

    def scenario(loop: asyncio.AbstractEventLoop, agenda: Agenda, log: list[str]) -> None:
        agenda.now_s = lambda: log.count("turn") * TURNS_S / n_turns

        def again() -> None:
            log.append("turn")
            if log.count("turn") < 3 * n_turns:
                agenda.call_soon(again)

        agenda.call_soon(again)
        loop.call_soon(lambda: log.append("loop"))

    log = in_loop(scenario)

    assert log == ["turn"] * n_turns + ["loop"] + ["turn"] * 2 * n_turns


def test_a_callback_that_raises_takes_nobodys_turn() -> None:
    def scenario(loop: asyncio.AbstractEventLoop, agenda: Agenda, log: list[str]) -> None:
        loop.set_exception_handler(lambda _, context: log.append(repr(context["exception"])))

        def fail() -> None:
            raise ValueError("broken")

        agenda.call_soon(fail)
        agenda.call_soon(lambda: log.append("next"))

    assert in_loop(scenario) == ["ValueError('broken')", "next"]


@pytest.mark.parametrize("is_cancelled", [False, True])
def test_a_callback_comes_at_its_time_unless_it_is_called_off(is_cancelled: bool) -> None:
    def scenario(_: asyncio.AbstractEventLoop, agenda: Agenda, log: list[str]) -> None:
        handle = agenda.call_at(agenda.now_s() + 0.001, lambda: log.append("due"))
        if is_cancelled:
            handle.cancel()

    assert in_loop(scenario) == ([] if is_cancelled else ["due"])
