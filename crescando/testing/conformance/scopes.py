"""Whether the scopes of one message are what the contract of a destset asks for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import pairwise

from crescando.routing.batch import Message
from crescando.types import RING_MAX, KeyRange, MessageKind, ProcessId, Scope


def fault_of_scopes(message: Message, destinations: Mapping[ProcessId, Scope]) -> tuple[str, str] | None:
    """Give the rule that a destset breaks, and how; or None.

    Parameters
    ----------
    message : Message
        Of a member.
    destinations : mapping of ProcessId to Scope
    """
    if message.kind is MessageKind.CONFIG:
        told = [str(process) for process, scope in destinations.items() if scope]
        return ("scopes", f"a configuration message gives {min(told)} a scope") if told else None
    for process, scope in sorted(destinations.items()):
        if not _is_scope(scope):
            return "scopes", f"{scope!r} of {process} is no tuple of ascending, disjoint ring ranges"
        if message.kind is MessageKind.READ and not scope:
            return "scopes", f"a read goes to {process}, whose scope is empty"
    ranges = sorted(key_range for scope in destinations.values() for key_range in scope)
    for one, next_one in pairwise(ranges):
        if next_one[0] <= one[1]:
            return "overlapping scopes", f"{tuple(one)} and {tuple(next_one)} are both answered for"
    hole = first_hole(message.ranges, ranges)
    if hole is not None:
        return "missing scope", f"nobody answers for position {hole}"
    return None


def first_hole(wanted: Iterable[KeyRange], given: list[KeyRange]) -> int | None:
    """Give the first position of `wanted` that no range of `given` holds, or None.

    `given` is ascending and disjoint.
    """
    for low, high in wanted:
        at = low
        for start, stop in given:
            if start <= at <= stop:
                at = stop + 1
        if at <= high:
            return at
    return None


def _is_scope(scope: object) -> bool:
    if not isinstance(scope, tuple):
        return False
    below = -1
    for key_range in scope:
        if not isinstance(key_range, KeyRange) or not below < key_range.low <= key_range.high <= RING_MAX:
            return False
        below = key_range.high
    return True
