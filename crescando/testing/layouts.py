"""Who owns which range at which position of a run, and what became of each change of that.

Rules of the file: the configurations are those that the agreed order gives when
it is read one message after the other; no process of the run is asked.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from crescando.routing.rubberband.changes import Change
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import transformed
from crescando.routing.rubberband.messages import MessageId, Reconfigure, decode_message
from crescando.routing.rubberband.ring import Ring
from crescando.testing.judge import Judgement
from crescando.types import KeyRange, MessageKind, ProcessId


@dataclass(slots=True)
class Fate:
    """What became of one change of the keyspace.

    Attributes
    ----------
    change : Change
        As it began.
    began : int
        Position.
    ended, dropped : int or None
        Position; both None while it is under way.
    """

    change: Change
    began: int
    ended: int | None = None
    dropped: int | None = None

    @property
    def kind(self) -> str:
        """Which transformation it is."""
        return type(self.change.transformation).__name__.lower()

    @property
    def is_open(self) -> bool:
        """Whether it is under way."""
        return self.ended is None and self.dropped is None


@dataclass(frozen=True, slots=True)
class Layouts:
    """The configuration at every position.

    Attributes
    ----------
    positions : tuple of int
        Where it changed, ascending; the first is -1.
    configs : tuple of Rubberband
        What is in force from there on.
    fates : tuple of Fate
        Of every change, in the order in which they began.
    """

    positions: tuple[int, ...]
    configs: tuple[Rubberband, ...]
    fates: tuple[Fate, ...]

    @property
    def last(self) -> Rubberband:
        """The configuration at the end."""
        return self.configs[-1]

    def at(self, position: int) -> Rubberband:
        """Give the configuration behind the message at a position."""
        return self.configs[bisect_right(self.positions, position) - 1]

    def held(self, position: int, process: ProcessId) -> tuple[KeyRange, ...]:
        """Give what a process owns at a position, and what it is sent the writes of since it is to own it."""
        config = self.at(position)
        return (*config.owned_arcs(process), *receiving(config, process))


def layouts_of(q: Judgement, genesis: Rubberband) -> Layouts:
    """Read the configurations from an order."""
    positions, configs = [-1], [genesis]
    fates: list[Fate] = []
    for appended in q.appended:
        message = appended.message
        if message.kind is not MessageKind.CONFIG or appended.destinations is None:
            continue
        before = configs[-1]
        after = before.apply(message)
        if after == before:
            continue
        under_way = [fate for fate in fates if fate.is_open]
        body = decode_message(message.payload)
        if isinstance(body, Reconfigure):
            change = Change(MessageId(message.sender, message.number), body.transformation, body.copies)
            under_way.append(Fate(change, appended.position))
            fates.append(under_way[-1])
        _follow(under_way, before.ring, after, appended.position)
        positions.append(appended.position)
        configs.append(after)
    return Layouts(tuple(positions), tuple(configs), tuple(fates))


def _follow(under_way: Sequence[Fate], ring: Ring, after: Rubberband, position: int) -> None:
    """Note which changes end or are dropped at a message; the first of them give the ring after it."""
    kept = {change.id for change in after.changes}
    gone = [fate for fate in under_way if fate.change.id not in kept]
    n_ended = 0
    while ring != after.ring:
        ring = transformed(ring, gone[n_ended].change.transformation)
        n_ended += 1
    for fate in gone[:n_ended]:
        fate.ended = position
    for fate in gone[n_ended:]:
        fate.dropped = position


def receiving(config: Rubberband, process: ProcessId) -> tuple[KeyRange, ...]:
    """Give what a process is sent the writes of since it is to own it."""
    return tuple(
        piece
        for change in config.changes
        for copy in change.copies
        if copy.receiver == process
        for piece in copy.scope
    )


def joined(ranges: Iterable[KeyRange]) -> tuple[KeyRange, ...]:
    """Give ranges as few disjoint ones, ascending."""
    found: list[KeyRange] = []
    for low, high in sorted(ranges):
        if found and found[-1].high + 1 >= low:
            found[-1] = KeyRange(found[-1].low, max(high, found[-1].high))
        else:
            found.append(KeyRange(low, high))
    return tuple(found)


def outside(ranges: Iterable[KeyRange], covering: Sequence[KeyRange]) -> Iterator[KeyRange]:
    """Give the parts of some ranges that lie in none of others."""
    held = joined(covering)
    for low, high in joined(ranges):
        for a, b in held:
            if b < low or a > high:
                continue
            if a > low:
                yield KeyRange(low, a - 1)
            low = b + 1
        if low <= high:
            yield KeyRange(low, high)
