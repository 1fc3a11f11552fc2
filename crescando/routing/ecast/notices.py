"""What a leader tells about the fate of messages: senders of their own, routers of all.

Rules of the file: only what did not simply become stable is named. A refusal is
final as soon as it is learned; that something is lost is known when it is stable.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TypeVar

from crescando.routing.base import Config, NotStable
from crescando.routing.ecast.backlog import Refusing
from crescando.routing.ecast.messages import Stable, StableUpTo
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.stability import Window
from crescando.types import ProcessId, Verdict

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


def stable_notices(
    senders: Iterable[ProcessId],
    mseq: MSeq[C],
    window: Window[C],
    acknowledged: Mapping[ProcessId, int],
    credit: int,
) -> list[tuple[ProcessId, Stable]]:
    """Give what to tell senders of which something is settled; nothing to those who know it all.

    Parameters
    ----------
    acknowledged : mapping of ProcessId to int
        The number up to which each sender says that it has been told.
    credit : int
        What each may have on its way now, in bytes.
    """
    notices: list[tuple[ProcessId, Stable]] = []
    for sender in senders:
        upto = window.stable_of(sender, mseq.learned_of(sender))
        told = acknowledged.get(sender, 0)
        refused, lost = mseq.refused.get(sender), window.lost.get(sender)
        exceptions: tuple[NotStable, ...] = ()
        if refused or lost:
            exceptions = exceptions_of(refused or {}, lost or (), told=told, upto=upto)
        if upto > told or exceptions or sender in mseq.departed:
            notices.append((sender, Stable(upto, exceptions, credit)))
    return notices


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
