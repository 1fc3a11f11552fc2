"""When a peer is dialled again: ever later, unless a session has shown that all is well."""

from __future__ import annotations

import random

from crescando.transport.causes import Cause
from crescando.transport.handshake import SocketLimits
from crescando.transport.redial import SETTLED_S, Redials
from crescando.types import ProcessId

PEER = ProcessId("router", "r1", 1)


def pauses(redials: Redials) -> float:
    """Give the longest of some pauses."""
    return max(redials.pause_s(PEER) for _ in range(200))


def lived(redials: Redials, began_s: float, seconds: float) -> None:
    redials.succeed(PEER, began_s)
    assert redials.error_of(PEER) is None
    assert not redials.is_denied(PEER, began_s)
    redials.fail(PEER, Cause("it is over"), began_s + seconds)


def test_sessions_that_end_at_once_are_begun_anew_ever_later() -> None:
    limits = SocketLimits()
    redials = Redials(limits, random.Random(1))

    for number in range(12):
        lived(redials, float(number), 0.01)

    assert pauses(redials) > limits.redial_s_max / 2
    assert redials.error_of(PEER) is not None


def test_a_session_that_lasted_ends_the_trouble_before_it() -> None:
    limits = SocketLimits()
    redials = Redials(limits, random.Random(1))
    for number in range(12):
        lived(redials, float(number), 0.01)

    lived(redials, 20.0, SETTLED_S)

    assert pauses(redials) <= 2 * limits.redial_s


def test_what_no_trying_again_helps_with_is_over_with_the_next_session() -> None:
    redials = Redials(SocketLimits(), random.Random(1))
    redials.fail(PEER, Cause("a stranger", is_permanent=True), 1.0)
    assert redials.is_denied(PEER, 1.1)

    redials.succeed(PEER, 1.2)

    assert not redials.is_denied(PEER, 1.3)
    assert redials.error_of(PEER) is None
