"""What a leader tells about the fate of messages: senders of their own, routers of all.

Rules of the file: only what did not simply become stable is named. A refusal is
final as soon as it is learned; that something is lost is known when it is stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from crescando.routing.base import Config, NotStable
from crescando.routing.ecast.backlog import Refusing
from crescando.routing.ecast.messages import StableUpTo
from crescando.routing.ecast.stability import Window
from crescando.types import Verdict

C = TypeVar("C", bound=Config)


def exceptions_of(
    refused: Mapping[int, str], lost: Iterable[int], *, told: int, upto: int
) -> tuple[NotStable, ...]:
    """Give what a sender has not been told of its numbers that are not stable.

    Parameters
    ----------
    refused : mapping of int to str
        Numbers and reasons.
    lost : iterable of int
    told : int
        The number up to which the sender has been told.
    upto : int
        The number up to which everything is decided upon.
    """
    found = [
        NotStable(number, Verdict.REFUSED.value, reason)
        for number, reason in sorted(refused.items())
        if told < number
    ]
    found += [
        NotStable(number, Verdict.LOST.value, "every owner of a range failed")
        for number in sorted(lost)
        if told < number <= upto
    ]
    return tuple(found)


def notice_of(learned: int, window: Window[C], refusing: Refusing) -> StableUpTo:
    """Give what followers must know to drop what they have learned.

    Parameters
    ----------
    learned : int
        The instance up to which `window` holds what is unstable.
    window : Window
    refusing : Refusing
    """
    return StableUpTo(
        instance=learned,
        lost=tuple((sender, n) for sender, numbers in window.lost.items() for n in sorted(numbers)),
        unstable=tuple(sorted(window.entries)),
        refusing=refusing.instances(),
        refusing_since=refusing.since,
        trimmed=tuple((p, box.trimmed) for p, box in window.outboxes.items() if box.trimmed >= 0),
    )
