"""Copies of cores share only what cannot change, and equal identities mean equal states."""

from __future__ import annotations

from collections import OrderedDict, defaultdict, deque
from dataclasses import dataclass, field

import msgspec
import numpy as np

from crescando.consensus.multipaxos.replica import Replica
from crescando.testing.broadcast_scope import TIMING, Steady
from crescando.testing.duplicate import duplicate, identity
from tests.simulation.small_scopes import FIRST, R1, R2


@dataclass(slots=True)
class Slotted:
    parts: list[int] = field(default_factory=list)


class Filled(msgspec.Struct):
    parts: list[int] = []


class Loose:
    def __init__(self) -> None:
        self.one = Slotted([1])
        self.same = self.one
        self.queue = deque([[1], [2]])
        self.ordered = OrderedDict({"b": 1, "a": 2})
        self.counted: defaultdict[str, list[int]] = defaultdict(list, {"x": [1]})
        self.members = {1, 2}
        self.column = np.array([1, 2])
        self.pair = ("fixed", [1])
        self.filled = Filled([1])


def test_a_copy_changes_alone_and_keeps_its_aliases() -> None:
    original = Loose()
    before = identity(original)

    copy = duplicate(original)
    assert identity(copy) == before
    copy.one.parts.append(2)
    copy.queue[0].append(2)
    copy.ordered.move_to_end("b")
    copy.counted["y"].append(1)
    copy.members.add(3)
    copy.column[0] = 9
    copy.pair[1].append(2)
    copy.filled.parts.append(2)

    assert identity(original) == before
    assert copy.same is copy.one
    assert type(copy.ordered) is OrderedDict


def test_whatever_differs_gives_another_identity() -> None:
    before = identity(Loose())
    changed = [Loose() for _ in range(8)]
    changed[0].one.parts.append(2)
    changed[1].queue.rotate()
    changed[2].ordered.move_to_end("b")
    changed[3].members.discard(1)
    changed[4].column[1] = 1
    changed[5].same = Slotted([1])
    changed[6].pair[1].clear()
    changed[7].filled.parts.append(2)

    assert len({before, *map(identity, changed)}) == 9


def test_a_copied_member_goes_its_own_way() -> None:
    member: Replica[str] = Replica(R1, FIRST, TIMING, Steady())
    member.on_start(0.0)
    before = identity(member)

    copy = duplicate(member)
    copy.on_connected(R2, 0.0)
    sent = copy.flush(0.0).send

    assert sent
    assert identity(member) == before != identity(copy)
    assert not member.flush(0.0).send
