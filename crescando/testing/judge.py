"""The m-seq computed a second time, message by message, and what it demands.

Rules of the file: nothing here is taken from the routers' code. The learned
batches are read one message at a time with the rules of the paper and the
design in their plainest form; a `Judge` says who receives what. Tests bring a
judge that is independent of the Config too.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Message
from crescando.routing.ecast.messages import Batch
from crescando.types import MessageKind, ProcessId, Scope, instance_of, position


class Judge(Protocol):
    """Who is a member, who receives a message, and what it changes; `view` is the judge's own."""

    def is_member(self, view: Any, process: ProcessId) -> bool:
        """Say whether a process is a member."""
        ...

    def destset(self, view: Any, message: Message) -> Mapping[ProcessId, Scope] | None:
        """Give the destinations, or None for a refusal."""
        ...

    def suspects(self, view: Any, message: Message) -> frozenset[ProcessId]:
        """Give whom the message declares failed."""
        ...

    def after(self, view: Any, message: Message) -> Any:
        """Give the view after a configuration message."""
        ...


class ConfigJudge:
    """The judge that a Config itself is, by its scalar forms."""

    def is_member(self, view: Config, process: ProcessId) -> bool:
        return view.is_member(process)

    def destset(self, view: Config, message: Message) -> Mapping[ProcessId, Scope] | None:
        try:
            return view.destset(message)
        except Refusal:
            return None

    def suspects(self, view: Config, message: Message) -> frozenset[ProcessId]:
        return view.suspects(message)

    def after(self, view: Config, message: Message) -> Config:
        return view.apply(message)


@dataclass(frozen=True, slots=True)
class Appended:
    """One message of Q."""

    position: int
    message: Message
    destinations: Mapping[ProcessId, Scope] | None
    """None: refused."""
    shared: bytes


@dataclass(slots=True)
class Judgement:
    """Q, and facts about it.

    Attributes
    ----------
    appended : list of Appended
    suspected : dict of ProcessId to int
        Position at which each process was declared failed (or left).
    mixed_batches : int
        Instances that hold a configuration message beside other messages.
    void, gaps, duplicates : int
        Messages that were skipped, and why.
    gap_instances : set of int
        Where messages were skipped because lower numbers of their sender are missing.
    view : Any
        The judge's view after everything.
    """

    appended: list[Appended] = field(default_factory=list)
    suspected: dict[ProcessId, int] = field(default_factory=dict)
    mixed_batches: int = 0
    void: int = 0
    gaps: int = 0
    duplicates: int = 0
    gap_instances: set[int] = field(default_factory=set)
    view: Any = None


def judge_order(learned: list[tuple[int, Batch | None]], view: Any, judge: Judge) -> Judgement:
    """Compute Q from learned batches, one message at a time."""
    result = Judgement()
    high: dict[ProcessId, int] = {}
    for instance, batch in learned:
        index = 0
        kinds: list[MessageKind] = []
        for submission in () if batch is None else batch.submissions:
            for offset in range(len(submission)):
                message = submission.message(offset)
                at = position(instance, index)
                index += 1
                kinds.append(message.kind)
                view = _append(result, high, message, at, submission.shared, view, judge)
        if MessageKind.CONFIG in kinds and len(kinds) > 1:
            result.mixed_batches += 1
    result.view = view
    return result


def _append(
    result: Judgement,
    high: dict[ProcessId, int],
    message: Message,
    at: int,
    shared: bytes,
    view: Any,
    judge: Judge,
) -> Any:
    sender = message.sender
    is_member = judge.is_member(view, sender) and sender not in result.suspected
    is_join = message.kind is MessageKind.CONFIG and message.number == 1
    if not is_member and (not is_join or sender in result.suspected):
        result.void += 1
        return view
    expected = high.get(sender, 0) + 1
    if message.number < expected:
        result.duplicates += 1
        return view
    if message.number > expected:
        result.gaps += 1
        result.gap_instances.add(instance_of(at))
        return view
    destinations = judge.destset(view, message)
    after, suspects = view, frozenset[ProcessId]()
    if destinations is not None and message.kind is MessageKind.CONFIG:
        suspects = judge.suspects(view, message)
        after = judge.after(view, message)
    if not is_member and not judge.is_member(after, sender):
        result.void += 1
        return view
    high[sender] = message.number
    result.appended.append(Appended(at, message, destinations, shared))
    for process in suspects:
        result.suspected[process] = at
    return after
