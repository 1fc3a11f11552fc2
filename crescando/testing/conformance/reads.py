"""The laws of reads beside the order (RB13 §6.7), judged from outside, by what nobody in the system can know.

Rules of the file: an attempt runs at one position p, on live owners that hold
together exactly what it asks for; behind everything up to p that goes to them,
and before anything above; and p is not below what its client has seen or
written, nor below anything that *anybody* had been told to be stable when it
was asked. An attempt may be refused, in whole or in part, and then counts for
nothing; without faults it is not simply forgotten.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from crescando.routing.batch import Message
from crescando.routing.rubberband.config import Rubberband
from crescando.testing.conformance.decisions import target_of
from crescando.testing.conformance.endpoint import EndProcess, Ran
from crescando.testing.conformance.rules import ConformanceError
from crescando.types import KeyRange, MessageKind, ProcessId

Broken = Callable[[str, str], ConformanceError]


@dataclass(frozen=True, slots=True)
class AskedRead:
    """One attempt, and what was known when it was asked.

    Attributes
    ----------
    seen, written : int
        What its client stated: a position, and a number of its own messages.
    stable : frozenset of (ProcessId, int)
        Every message that its sender had been told to be stable.
    """

    message: Message
    seen: int
    written: int
    stable: frozenset[tuple[ProcessId, int]]


@dataclass(slots=True)
class _History:
    """The order, and the Config after each configuration message in it."""

    order: Sequence[tuple[int, Message]]
    config: Rubberband
    positions: dict[tuple[ProcessId, int], int] = field(init=False)

    def __post_init__(self) -> None:
        self.positions = {(message.sender, message.number): at for at, message in self.order}

    def at(self, position: int) -> tuple[Rubberband, dict[ProcessId, list[int]]]:
        """Give the Config at a position, and what goes to each process up to there."""
        config, due = self.config, dict[ProcessId, list[int]]()
        for at, message in self.order:
            if at > position:
                break
            target = target_of(config, message)
            for process in target if not isinstance(target, str) else ():
                due.setdefault(process, []).append(at)
            if message.kind is MessageKind.CONFIG:
                config = config.apply(message)
        return config, due


def judge_reads(
    asked: Mapping[tuple[ProcessId, int], AskedRead],
    ends: Mapping[ProcessId, EndProcess],
    order: Sequence[tuple[int, Message]],
    config: Rubberband,
    *,
    broken: Broken,
    is_calm: bool,
) -> int:
    """Judge what became of every attempt; gives how many ran in full.

    Parameters
    ----------
    asked : mapping
        By client and number.
    ends : mapping of ProcessId to EndProcess
    order : sequence of (int, Message)
        Every message that was delivered anywhere, by position.
    config : Rubberband
        Before the first of them.
    broken : callable
        Gives the error that tells of a broken rule.
    is_calm : bool
        Whether nothing may have been lost with a session or a process.

    Raises
    ------
    ConformanceError
        If a law is broken.
    """
    history = _History(order, config)
    refused = {name for end in ends.values() for name in end.refused_reads}
    attempts: dict[tuple[ProcessId, int], list[tuple[ProcessId, Ran]]] = {}
    for me, end in ends.items():
        for ran in end.ran:
            attempts.setdefault((ran.sender, ran.number), []).append((me, ran))
    for name in attempts:
        if name not in asked:
            raise broken("reads", f"{name} ran and was never asked")
    n_whole = 0
    for name, read in asked.items():
        parts = attempts.get(name, [])
        if parts:
            _judge_parts(name, read, parts, ends, history, broken)
        is_whole = _covers(read.message.ranges, parts)
        n_whole += is_whole
        if is_calm and not is_whole and name not in refused:
            raise broken("reads", f"{name} was neither run in full nor refused")
    return n_whole


def _judge_parts(
    name: tuple[ProcessId, int],
    read: AskedRead,
    parts: Sequence[tuple[ProcessId, Ran]],
    ends: Mapping[ProcessId, EndProcess],
    history: _History,
    broken: Broken,
) -> None:
    positions = {ran.position for _, ran in parts}
    if len(positions) > 1:
        raise broken("reads", f"{name} ran at several positions: {sorted(positions)}")
    (position,) = positions
    known = [history.positions.get(message, -1) for message in read.stable]
    known += [read.seen, history.positions.get((name[0], read.written), -1)]
    if position < max(known):
        raise broken("reads", f"{name} ran at {position}, and {max(known)} was known when it was asked")
    config, due = history.at(position)
    if not config.is_member(name[0]):
        raise broken("reads", f"{name} ran at {position}, where its sender is no member")
    pieces = sorted(piece for _, ran in parts for piece in ran.scope)
    if any(one.high >= other.low for one, other in pairwise(pieces)):
        raise broken("reads", f"{name} ran twice on a range: {pieces}")
    for me, ran in parts:
        arcs = config.owned_arcs(me)
        if not config.is_member(me) or not all(_within(piece, arcs) for piece in ran.scope):
            raise broken("reads", f"{name} ran at {position} on {me}, which does not hold {ran.scope} there")
        before = {part.position for part in ends[me].delivered[: ran.n_delivered]}
        missing = [at for at in due.get(me, ()) if at not in before]
        if missing:
            raise broken("reads", f"{name} ran at {position} on {me}, which lacked {missing}")


def _within(piece: KeyRange, arcs: Sequence[KeyRange]) -> bool:
    """Whether a range lies in the union of others."""
    return _span(piece, arcs) > piece.high


def _span(wanted: KeyRange, held: Sequence[KeyRange]) -> int:
    """Give the first place from the low end of a range on that some others do not hold."""
    reached = wanted.low
    for low, high in sorted(held):
        if low <= reached:
            reached = max(reached, high + 1)
    return reached


def _covers(ranges: Sequence[KeyRange], parts: Sequence[tuple[ProcessId, Ran]]) -> bool:
    pieces = [piece for _, ran in parts for piece in ran.scope]
    return all(_within(wanted, pieces) for wanted in ranges)
