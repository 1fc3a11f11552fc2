"""Streaks: writes that follow one another on one row, done at once for all rows.

Rules of the file: in rounds a row advances one write at a time. Where nothing that
a write of the batch changes is tested, and all that the writes do is to put a
constant in a column or to add one to it, every version of the row is known
without going through the ones before: the last constant put, and the sum of
what was added since. An upsert of a row that lives puts constants, an insert is
rejected. A row on which anything else could fail (NULL, an error, a number
beyond the column's type) is left to the rounds, which do it step by step; so
are births and deaths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crescando.engine.decimals import beyond
from crescando.engine.evaluator import Evaluator
from crescando.engine.events import NOTHING, Events, by_group
from crescando.engine.frame import Frame
from crescando.engine.functions import Cause
from crescando.engine.group import Group
from crescando.engine.images import Images
from crescando.engine.incoming import Incoming
from crescando.engine.index import expand
from crescando.engine.keys import I64, Mask
from crescando.engine.plan import columns_of
from crescando.engine.statement import PHYSICAL, Apply, Assignment, ColumnRef, Kind, Parameter
from crescando.engine.table import Table
from crescando.engine.terms import evaluate
from crescando.engine.values import Value, overlay
from crescando.engine.writer import Writer
from crescando.schema import DataType

_LONG = 4
"""Shorter streaks go by rounds: a guess at where finding one costs as much as the rounds it saves."""

_FIRST = 1
"""So short is none that it goes by rounds, as long as all is new and most writes can be done at once."""

_PIECE = 1 << 14
"""About so many writes are worked out together, so that what is worked out stays in the cache."""

_FAR = 1 << 40

_SUM_MAX = float(1 << 62)


@dataclass(slots=True)
class Versions:
    """What a column holds after each write of some streaks.

    Attributes
    ----------
    value : Value, shape (n_writes,)
        Undefined where nothing was put, and nothing added, since a streak's beginning.
    touched : ndarray of bool, shape (n_writes,)
        Where it is defined.
    """

    value: Value
    touched: Mask


@dataclass(slots=True)
class Streak:
    """Streaks of some images, end to end.

    Attributes
    ----------
    images : ndarray of int64, shape (n_images,)
    last : ndarray of int64, shape (n_images,)
        Each image's last write, as an index into `writes`.
    first : ndarray of int64, shape (n_images,)
    writes : Events, shape (n_writes,)
    columns : dict of int to Versions
    """

    images: I64
    first: I64
    last: I64
    writes: Events
    columns: dict[int, Versions] = field(default_factory=dict)

    def seen(self, version: I64, columns: Callable[[int], Value], column_id: int) -> Value:
        """Give a column of some versions.

        Parameters
        ----------
        version : ndarray of int64, shape (n,)
            An index into `writes`: what that write left; ``-1 - i``: image i before its first write.
        columns : callable
            Gives a column of all images as they were before.
        column_id : int
        """
        owner = np.where(version < 0, -1 - version, np.searchsorted(self.last, version))
        value = columns(column_id).take(self.images[owner])
        versions = self.columns.get(column_id)
        if versions is None:
            return value
        written = ((version >= 0) & versions.touched[version]).nonzero()[0]
        return overlay(value, written, versions.value.take(version[written]))


def added(assignment: Assignment) -> tuple[Parameter, int] | None:
    """Give what ``SET c = c ± constant`` adds and its sign, if that is the assignment and exact."""
    term = assignment.term
    if not isinstance(term, Apply) or term.op not in ("+", "-") or len(term.args) != 2:
        return None
    left, right = term.args
    if term.op == "+" and isinstance(left, Parameter):
        left, right = right, left
    if not (isinstance(left, ColumnRef) and isinstance(right, Parameter)) or left.column != assignment.column:
        return None
    same = left.type.is_integer and right.type.is_integer
    same = same or (left.type.is_decimal and right.type.is_decimal and left.type.scale == right.type.scale)
    return (right, 1 if term.op == "+" else -1) if same else None


def is_simple(group: Group) -> bool:
    """Say whether a group's writes only put constants in columns of living rows or add constants to them."""
    shape = group.plan.shape
    if shape.kind in (Kind.READ, Kind.DELETE) or shape.returning:
        return False
    return all(added(each) is not None or not columns_of(each.term) for each in shape.assignments)


class Streaks:
    """Finds and does the streaks of one window of a replay.

    Parameters
    ----------
    table : Table
    images : Images
    groups : sequence of Group
    incoming : mapping of int to Incoming
        By index of the group.
    writer : Writer
    evaluator : Evaluator
    """

    def __init__(
        self,
        table: Table,
        images: Images,
        groups: Sequence[Group],
        incoming: Mapping[int, Incoming],
        writer: Writer,
        evaluator: Evaluator,
    ) -> None:
        self._table = table
        self._images = images
        self._groups = groups
        self._incoming = incoming
        self._writer = writer
        self._evaluator = evaluator
        self._is_simple = np.array([is_simple(group) for group in groups], np.bool_)
        self._reach: I64 = np.full(images.n_rows, _FAR)
        self.begin(NOTHING, with_key_groups=False)

    def begin(self, writes: Events, *, with_key_groups: bool) -> None:
        """Take the window's writes, as far as they are known; the streaks of before are forgotten.

        Parameters
        ----------
        writes : Events
            None of their matches can change while the rows live.
        with_key_groups : bool
            Whether that holds for rows too whose keys inserts or upserts name.
        """
        self._writes = writes
        good = self._is_simple[writes.group] & (writes.error == 0)
        if not with_key_groups:
            good[self._images.is_key_group[writes.image]] = False
        breaks = ~good
        breaks[1:] |= writes.image[1:] != writes.image[:-1]
        self._good = good
        self._ends = np.append(breaks.nonzero()[0], len(good))
        n_good = int(np.count_nonzero(good))
        self._is_good = n_good == len(good)
        self._shortest = _FIRST if 2 * n_good >= len(good) else _LONG
        self.n_left = len(good)

    def find(self, active: I64, clock: I64, span: int, *, is_new: bool) -> Iterator[Streak]:
        """Give the streaks that begin at some images' next write, if there are long ones; piece by piece.

        Parameters
        ----------
        active, clock : ndarray of int64, shape (n,)
            Images, ascending, and the time up to which each has been replayed.
        span : int
            Times are below it.
        is_new : bool
            Whether all images that have writes are active, and all writes come after their clocks.
        """
        writes = self._writes
        if len(writes.code) == 0:
            return
        shortest, self._shortest = self._shortest, _LONG
        if is_new and self._is_good and shortest <= 1:
            start = np.append(0, self._ends[:-1])
            images = writes.image[start]
            if self._images.alive[images].all():
                yield from self._pieces(images, start, self._ends.copy(), shortest)
                return
        start = np.searchsorted(writes.code, active * span + clock, side="right")
        end = np.searchsorted(self._ends, start, side="right").clip(max=len(self._ends) - 1)
        stop = np.minimum(self._ends[end], start + self._reach[active])
        inside = np.minimum(start, len(writes.code) - 1)
        possible = self._good[inside] & (writes.image[inside] == active) & self._images.alive[active]
        chosen = (possible & (stop - start >= shortest)).nonzero()[0]
        streak = self._make(active[chosen], start[chosen], stop[chosen], shortest)
        if streak is not None:
            yield streak

    def _pieces(self, images: I64, start: I64, stop: I64, shortest: int) -> Iterator[Streak]:
        """Give the streaks of all images, which lie end to end."""
        cuts = np.searchsorted(start, np.arange(_PIECE, int(stop[-1]), _PIECE))
        bounds = [0, *np.unique(cuts).tolist(), len(images)]
        for first, last in pairwise(bounds):
            piece = slice(first, last)
            streak = self._make(images[piece], start[piece], stop[piece], shortest)
            if streak is not None:
                yield streak

    def _make(self, images: I64, start: I64, stop: I64, shortest: int) -> Streak | None:
        """Work out all versions, of each image up to the first write that may fail."""
        while len(images):
            counts = stop - start
            are_together = int(counts.sum()) == int(stop[-1]) - int(start[0])
            places = np.arange(start[0], stop[-1]) if are_together else expand(start, counts)
            writes = self._writes.pick(slice(int(start[0]), int(stop[-1])) if are_together else places)
            last = np.cumsum(counts) - 1
            first = last - counts + 1
            streak = Streak(images, first, last, writes)
            owner = np.repeat(np.arange(len(images)), counts)
            wrong = self._fill(streak, owner).nonzero()[0]
            if len(wrong) == 0:
                self._reach[images] = np.minimum(4 * self._reach[images], _FAR)
                return streak
            failed, at = np.unique(owner[wrong], return_index=True)
            length = wrong[at] - first[failed]
            # That write is for the rounds. Looking far ahead would be in vain where most writes fail.
            self._break(places[wrong[at]])
            self._reach[images[failed]] = np.maximum(2 * length, _LONG)
            stop[failed] = start[failed] + length
            long = stop - start >= shortest
            images, start, stop = images[long], start[long], stop[long]
        return None

    def _break(self, places: I64) -> None:
        """Let streaks end before some writes."""
        self._good[places] = False
        self._ends = np.union1d(self._ends, places)

    def _fill(self, streak: Streak, owner: I64) -> Mask:
        """Give the columns their versions; gives the writes that may fail."""
        events = streak.writes
        bad = np.zeros(len(events.code), np.bool_)
        puts: dict[int, _Puts] = {}
        for index, at in by_group(events.group):
            group = self._groups[index]
            if group.plan.gives_rows:
                self._bring(index, events.item[at], at, puts, len(bad))
                continue
            frame = Frame(self._images, group.constants, events.image[at], events.item[at], self._evaluator)
            for assignment in group.plan.shape.assignments:
                column = assignment.column
                if column not in puts:
                    puts[column] = _Puts(self._table.types[column], len(bad))
                addition = added(assignment)
                if addition is None:
                    value = self._writer.fit(column, evaluate(assignment.term, frame).spread(frame.n_rows))
                    if value.error is not None:
                        bad[at] |= value.error != 0
                    puts[column].put(at, value)
                else:
                    value = frame.parameter(addition[0]).spread(frame.n_rows)
                    if value.valid is not None:
                        bad[at] |= ~value.valid
                    puts[column].add(at, value.data.astype(np.int64) * addition[1])
        for column, each in puts.items():
            base = self._images.column(column).take(streak.images)
            streak.columns[column], wrong = each.versions(base, streak.first, owner)
            bad |= wrong
        return bad

    def _bring(self, index: int, items: I64, at: I64 | slice, puts: dict[int, _Puts], n: int) -> None:
        """Note what upserts put in rows that live; inserts put nothing."""
        if self._groups[index].plan.shape.kind is Kind.INSERT:
            return
        for column, given in self._incoming[index].values.items():
            if column not in self._table.key_ids:
                if column not in puts:
                    puts[column] = _Puts(self._table.types[column], n)
                puts[column].put(at, given.take(items))

    def store(self, streak: Streak) -> None:
        """Leave the images as after their last write, and count the writes."""
        for column, versions in streak.columns.items():
            touched = versions.touched[streak.last]
            value = versions.value.take(streak.last[touched])
            self._images.store(column, streak.images[touched], value)
        self._images.changed[streak.images] = True
        self.n_left -= len(streak.writes.code)
        for index, at in by_group(streak.writes.group):
            group, images, operations = self._groups[index], streak.writes.image[at], streak.writes.item[at]
            if group.plan.gives_rows:
                operations = self._incoming[index].operation[operations]
            if group.plan.shape.kind is Kind.INSERT:
                causes = np.full(len(images), Cause.DUPLICATE_KEY, np.uint8)
                self._writer.reject(group, images, operations, causes)
            else:
                self._writer.count(group.order[operations], self._images.arc[images])


class _Puts:
    """What the writes of some streaks do to one column."""

    def __init__(self, kind: DataType, n: int) -> None:
        self._kind = kind
        self._data: NDArray[Any] = np.zeros(n, PHYSICAL[kind])
        self._valid: Mask | None = None
        self._is_put: Mask = np.zeros(n, np.bool_)
        self._added: I64 | None = None
        self._is_added: Mask = np.zeros(n, np.bool_)

    def put(self, at: I64 | slice, value: Value) -> None:
        """Note that some writes put a constant there."""
        self._data[at] = value.data
        self._is_put[at] = True
        if value.valid is not None:
            if self._valid is None:
                self._valid = np.ones(len(self._data), np.bool_)
            self._valid[at] = value.valid

    def add(self, at: I64 | slice, numbers: I64) -> None:
        """Note that some writes add a constant."""
        if self._added is None:
            self._added = np.zeros(len(self._data), np.int64)
        self._added[at] = numbers
        self._is_added[at] = True

    def versions(self, base: Value, first: I64, owner: I64) -> tuple[Versions, Mask]:
        """Give the column after each write, and where that may be wrong.

        Parameters
        ----------
        base : Value, shape (n_streaks,)
            Before the first write.
        first : ndarray of int64, shape (n_streaks,)
        owner : ndarray of int64, shape (n_writes,)
            Which streak a write belongs to.
        """
        if self._is_put.all():
            known = Versions(Value(self._kind, self._data, self._valid, None, base.pool), self._is_put)
            return known, np.zeros(len(owner), np.bool_)
        if self._added is None or self._is_put.any():
            return self._mixed(base, first, owner)
        # Nothing is put, as with a counter: every version is the one before and what is added.
        if not self._fit_sums(base):
            return Versions(base, self._is_put), np.ones(len(owner), np.bool_)
        sums = np.cumsum(self._added)
        wide = (base.data - (sums[first] - self._added[first]))[owner] + sums
        wrong = self._outside(wide)
        if base.valid is not None:
            wrong |= ~base.valid[owner]
        touched = self._is_added
        if not touched.all():
            touched = _last(touched) >= first[owner]
        return Versions(self._value(wide, base), touched), wrong

    def _mixed(self, base: Value, first: I64, owner: I64) -> tuple[Versions, Mask]:
        """As `versions`, where some writes put a constant and others add to it or leave it alone."""
        put = _last(self._is_put)
        from_put = put >= first[owner]
        put = np.where(from_put, put, 0)
        data, valid = self._data[put], None if self._valid is None else self._valid[put]
        if self._added is None:
            value = Value(self._kind, data, valid, None, base.pool)
            return Versions(value, from_put), np.zeros(len(owner), np.bool_)
        if not self._fit_sums(base):
            return Versions(base, from_put), np.ones(len(owner), np.bool_)
        sums = np.cumsum(self._added)
        before = sums[first] - self._added[first]
        begin = (base.data.astype(np.int64) - before)[owner]
        wide = np.where(from_put, data.astype(np.int64) - sums[put], begin) + sums
        wrong = self._outside(wide)
        if base.valid is not None:
            wrong |= ~from_put & ~base.valid[owner]
        if valid is not None:
            wrong |= from_put & ~valid
        touched = from_put | (_last(self._is_added) >= first[owner])
        return Versions(self._value(wide, base), touched), wrong

    def _value(self, wide: I64, base: Value) -> Value:
        return Value(self._kind, wide.astype(PHYSICAL[self._kind]), None, None, base.pool)

    def _fit_sums(self, base: Value) -> bool:
        """Say whether sums of everything stay within int64."""
        numbers = (self._added, self._data, base.data)
        sizes = [np.abs(some.astype(np.float64)) for some in numbers if some is not None]
        return bool(sizes[0].sum() + 2 * max(sizes[1].max(), sizes[2].max()) < _SUM_MAX)

    def _outside(self, numbers: I64) -> Mask:
        if self._kind.is_decimal:
            return beyond(numbers, self._kind)
        bounds = np.iinfo(PHYSICAL[self._kind])
        outside: Mask = (numbers < bounds.min) | (numbers > bounds.max)
        return outside


def _last(marks: Mask) -> I64:
    """Give for each place the last mark up to it, or -1."""
    found: I64 = np.maximum.accumulate(np.where(marks, np.arange(len(marks)), -1))
    return found
