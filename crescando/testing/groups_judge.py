"""The judge of `Groups`: the same rules told a second time, over plain dicts and by search.

Rules of the file: it shares no code with the Config that it judges, not even
the decoding of messages; where the Config computes, this looks through all
cases.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec

from crescando.routing.batch import Message
from crescando.types import RING_MAX, KeyRange, MessageKind, ProcessId, Scope


@dataclass(frozen=True)
class View:
    """Who is where, and whether everyone is told of changes."""

    n_groups: int
    where: Mapping[ProcessId, int]
    tells_all: bool = True

    def of_group(self, group: int) -> list[ProcessId]:
        """Give the members of a group, ascending."""
        return sorted(process for process, at in self.where.items() if at == group)


def view_of(groups: Sequence[Sequence[ProcessId]], *, tells_all: bool = True) -> View:
    """Turn groups into a view."""
    where = {process: i for i, group in enumerate(groups) for process in group}
    return View(len(groups), where, tells_all)


class GroupsTwin:
    """A `crescando.testing.judge.Judge` over `View`."""

    def is_member(self, view: View, process: ProcessId) -> bool:
        return process in view.where

    def destset(self, view: View, message: Message) -> Mapping[ProcessId, Scope] | None:
        if message.kind is MessageKind.CONFIG:
            after = self._outcome(view, message)
            return None if after is None else dict.fromkeys(_told(view, after), ())
        members = view.of_group(message.table)
        if not members:
            return None
        if message.kind is MessageKind.READ:
            return {members[message.replica_offset % len(members)]: message.ranges}
        return {process: _parts(message.ranges, members, process) for process in members}

    def suspects(self, view: View, message: Message) -> frozenset[ProcessId]:
        after = self._outcome(view, message)
        return frozenset() if after is None else frozenset(view.where.keys() - after.where.keys())

    def after(self, view: View, message: Message) -> View:
        after = self._outcome(view, message)
        return view if after is None else after

    def _outcome(self, view: View, message: Message) -> View | None:
        """Give the view after a message, or None if it is refused."""
        try:
            body: Any = msgspec.msgpack.decode(message.payload)
        except msgspec.MsgspecError:
            return None
        words: list[Any] = body if isinstance(body, list) and body else [None]
        word, rest = words[0], words[1:]
        where = dict(view.where)
        sender = message.sender
        if word == "enter" and sender not in where and message.number == 1:
            sizes = [(len(view.of_group(group)), group) for group in range(view.n_groups)]
            where[sender] = sorted(sizes)[0][1]
            return replace(view, where=where)
        if sender not in where:
            return view
        if word == "leave" and len(where) > 1:
            del where[sender]
        elif word == "accuse" and _process(rest[0]) in where and _process(rest[0]) != sender:
            del where[_process(rest[0])]
        elif word == "move" and _process(rest[0]) in where and rest[1] in range(view.n_groups):
            where[_process(rest[0])] = rest[1]
        else:
            return None
        return replace(view, where=where)


def _told(view: View, after: View) -> list[ProcessId]:
    everyone = list({**view.where, **after.where})
    if view.tells_all:
        return everyone
    moved = [p for p in everyone if view.where.get(p) != after.where.get(p)]
    touched = {known.where.get(p) for p in moved for known in (view, after)} - {None}
    return [p for p in everyone if {view.where.get(p), after.where.get(p)} & touched]


def _process(raw: Sequence[Any]) -> ProcessId:
    return ProcessId(*raw)


def _parts(ranges: Scope, members: list[ProcessId], process: ProcessId) -> Scope:
    """Cut ranges at the borders of all parts, and keep the pieces that lie in the process's own."""
    n = len(members)
    borders = [part * (RING_MAX + 1) // n for part in range(n + 1)]
    mine: list[KeyRange] = []
    for low, high in ranges:
        inner = [border for border in borders if low < border <= high]
        for a, b in zip([low, *inner], [*inner, high + 1], strict=True):
            owner = max(part for part in range(n) if borders[part] <= a)
            if members[owner] == process:
                mine.append(KeyRange(a, b - 1))
    return tuple(mine)
