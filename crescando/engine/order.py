"""The order rule: replay a batch on the rows it changes, each row in its own order.

Rules of the file: an operation's effect on a row depends only on that row's own
history, so only the order of operations *on one row* matters. Rows that no
write matches at their stored values never change and are not here. The others
advance in *rounds*: each round every image meets the next write that matches
it, the reads between its last write and that one see the present state, and
the write is applied, vectorised over images. Matches of predicates that no
write of the batch can change are those of the scan; the others are looked up anew
for the images that changed. Writes whose result is known without going through
the ones before need no rounds (see `engine.streaks`). The result equals one
operation at a time, always.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from crescando.engine.evaluator import Evaluator
from crescando.engine.events import NOTHING, Events, Part, by_group, chain, join_events, merge
from crescando.engine.found import Found
from crescando.engine.group import Group
from crescando.engine.images import Images, Snapshots
from crescando.engine.incoming import Incoming
from crescando.engine.index import expand
from crescando.engine.keys import I64
from crescando.engine.match import Matcher
from crescando.engine.readers import Readers
from crescando.engine.statement import Kind
from crescando.engine.streaks import Streak, Streaks
from crescando.engine.table import Table
from crescando.engine.values import Errors
from crescando.engine.writer import Writer

WINDOW_PAIRS = 1 << 18
"""Operations are replayed in windows of about so many pairs: broad writes stay in memory."""

WINDOW_OPERATIONS = 2_048
"""Operations per window where matches must be looked up again: a hot row's
look-up finds all that follow, so that its cost grows with the square."""

PAIRS_MAX = 1 << 22
"""More pairs than this at once are not held: the window is replayed in halves."""

_NEVER = np.iinfo(np.int64).max


def updated_columns(groups: Sequence[Group]) -> frozenset[int]:
    """Give the columns that updates and deletes of a batch change, or may."""
    return frozenset[int]().union(*(group.plan.assigned for group in groups if not group.plan.gives_rows))


class TooManyPairs(Exception):  # noqa: N818  # A signal to halve a window, not a fault.
    """A window has more matches than are held at once; nothing was changed."""


class Replay:
    """Executes one batch on its images.

    Parameters
    ----------
    table : Table
    images : Images
    groups : sequence of Group
        All groups of the batch.
    incoming : dict of int to Incoming
        By index of the group, slots assigned.
    slot_images : ndarray of int64
        Image of each slot.
    matchers : dict of int to Matcher
        By index of the group, of all its operations.
    found : Found
        What the scan has matched.
    readers : Readers
    writer : Writer
    evaluator : Evaluator
    """

    def __init__(
        self,
        table: Table,
        images: Images,
        groups: Sequence[Group],
        incoming: dict[int, Incoming],
        slot_images: I64,
        matchers: dict[int, Matcher],
        found: Found,
        readers: Readers,
        writer: Writer,
        evaluator: Evaluator,
    ) -> None:
        self._table = table
        self._images = images
        self._groups = groups
        self._incoming = incoming
        self._whole = matchers
        self._found = found
        self._readers = readers
        self._writer = writer
        self._evaluator = evaluator
        self._arrivals = self._arrange(slot_images)
        updated = updated_columns(groups)
        self._is_dynamic = [bool(group.plan.tested & updated) for group in groups]
        brought = frozenset[int]().union(
            *(group.plan.assigned for group in groups if group.plan.shape.kind is Kind.UPSERT)
        )
        moving = updated | (brought - set(table.key_ids))
        self._is_moving = [bool(group.plan.tested & moving) for group in groups]
        read_columns = frozenset[int]().union(*(g.plan.used for g in groups if g.plan.is_read))
        self._read_columns = read_columns | set(table.key_ids)
        self._snapshots = Snapshots(images, self._read_columns)
        self._n_seen = 0
        self._seen: dict[int, list[tuple[I64, I64, Errors]]] = {}
        self._standing = self._stand()

    def _stand(self) -> tuple[Events, Events]:
        """Give the writes and the reads that the scan has found and that stay as long as a row lives."""
        kinds: tuple[list[Part], list[Part]] = [], []
        for index in self._whole:
            if not self._is_dynamic[index] and self._found.has(index):
                kinds[self._groups[index].plan.is_read].extend(self._found.parts(index, self._width))
        events = tuple(join_events(parts, self._span) for parts in kinds)
        if self._incoming:
            named = self._images.is_key_group
            events = tuple(some.pick((~named[some.image]).nonzero()[0]) for some in events)
        return events[0], events[1]

    def _arrange(self, slot_images: I64) -> Events:
        """Order the incoming rows by image and time.

        A time is ``operation * width + occurrence``: rows of one statement with
        equal keys follow one another.
        """
        parts: list[Part] = []
        occurrences = {index: _occurrences(rows) for index, rows in self._incoming.items()}
        self._width = 1 + max((int(o.max()) for o in occurrences.values() if len(o)), default=0)
        last = max((int(group.order[-1]) for group in self._groups), default=0)
        self._span = (last + 1) * self._width
        for index, rows in self._incoming.items():
            places = (rows.error == 0).nonzero()[0]
            time = rows.group.order[rows.operation[places]] * self._width + occurrences[index]
            parts.append((slot_images[rows.slot[places]], time, index, places, None))
        return join_events(parts, self._span)

    def run(self, pairs_per_operation: I64) -> None:
        """Replay everything.

        Parameters
        ----------
        pairs_per_operation : ndarray of int64, shape (n_operations,)
            Matches of each operation on dirty rows at their stored values; an
            estimate for cutting the batch into windows.
        """
        for start, stop in self._windows(pairs_per_operation):
            active = np.arange(self._images.n_rows)
            self._advance(start, stop, active, np.full(len(active), start * self._width - 1))
        self._answer()

    def _windows(self, pairs_per_operation: I64) -> Iterator[tuple[int, int]]:
        longest = len(pairs_per_operation)
        if any(self._is_dynamic) or self._incoming:
            longest = WINDOW_OPERATIONS
        ends = np.cumsum(pairs_per_operation)
        start = 0
        while start < len(ends):
            before = int(ends[start - 1]) if start else 0
            stop = int(np.searchsorted(ends, before + WINDOW_PAIRS, side="right"))
            stop = min(max(stop, start + 1), start + longest, len(ends))
            yield start, stop
            start = stop

    def _advance(self, start: int, stop: int, active: I64, clock: I64) -> None:
        """Replay the operations from `start` to before `stop` on some images.

        Parameters
        ----------
        start, stop : int
            Places in the batch.
        active, clock : ndarray of int64, shape (n,)
            Images, and the time up to which each has been replayed.
        """
        matchers = self._matchers(start, stop)
        try:
            static, dynamic = self._look_up_all(start, stop, matchers, active, clock)
        except TooManyPairs:
            self._halve(start, stop, active, clock)
            return
        within = (self._arrivals.time >= start * self._width) & (self._arrivals.time < stop * self._width)
        static_writes = merge(static[0], self._arrivals.pick(within.nonzero()[0]))
        static_reads = static[1]
        # As long as no row is born or dies, what has been found stays valid.
        is_steady = not any(self._is_moving[index] for index in matchers)
        streaks, reads = None, static_reads
        writes = merge(static_writes, dynamic[0])
        if len(writes.code) and not any(self._is_dynamic[index] for index in matchers):
            streaks = Streaks(
                self._table, self._images, self._groups, self._incoming, self._writer, self._evaluator
            )
            streaks.begin(writes, with_key_groups=is_steady)
            reads = merge(static_reads, dynamic[1])
        is_new = len(active) == self._images.n_rows and bool((clock < start * self._width).all())
        while len(active):
            if streaks is not None:
                clock = self._run_ahead(streaks, active, clock, reads, is_new=is_new)
                is_new = False
                if streaks.n_left == 0:
                    static_writes, dynamic = NOTHING, (NOTHING, dynamic[1])
            write, due = self._next_writes(active, clock, static_writes, dynamic[0])
            self._show(active, clock, due, static_reads, dynamic[1])
            movers = (due != _NEVER).nonzero()[0]
            if len(movers) == 0:
                break
            lived = self._images.alive[active]
            self._apply(write.pick(movers) if len(movers) < len(active) else write)
            active, clock, lived = active[movers], due[movers], lived[movers]
            is_same = is_steady and bool((self._images.alive[active] == lived).all())
            lasting = self._images.alive[active] | self._images.is_key_group[active]
            active, clock = active[lasting], clock[lasting]
            start = int(clock.min(initial=_NEVER - 1) + 1) // self._width
            if start >= stop:
                break  # No image is left, or no operation for those that are.
            if is_same:
                continue
            try:
                dynamic = self._look_up_again(matchers, active, clock, stop - start > 1)
            except TooManyPairs:
                self._halve(start, stop, active, clock)
                return
            if streaks is not None and is_steady and self._incoming:
                streaks.begin(merge(static_writes, dynamic[0]), with_key_groups=True)
                reads = merge(static_reads, dynamic[1])
        if self._n_seen > WINDOW_PAIRS:
            self._answer()

    def _halve(self, start: int, stop: int, active: I64, clock: I64) -> None:
        """Replay a window that has too many matches in two halves, one after the other."""
        middle = (start + stop) // 2
        self._advance(start, middle, active, clock)
        self._advance(middle, stop, active, np.maximum(clock, middle * self._width - 1))

    def _matchers(self, start: int, stop: int) -> dict[int, Matcher]:
        """Give matchers of the operations in a window, by index of the group."""
        matchers = {}
        for index, whole in self._whole.items():
            group = self._groups[index]
            low, high = np.searchsorted(group.order, (start, stop))
            if high - low == len(group.order):
                matchers[index] = whole
            elif high > low:
                matchers[index] = whole.of_some(group.every[low:high])
        return matchers

    def _look_up_all(
        self, start: int, stop: int, matchers: dict[int, Matcher], active: I64, clock: I64
    ) -> tuple[tuple[Events, Events], tuple[Events, Events]]:
        """Match living images; split into what stays valid and what must be looked up again."""
        alive, bounded = self._images.alive, stop - start > 1
        standing = [self._within(events, start, stop) for events in self._standing]
        unknown = [i for i in matchers if not self._is_dynamic[i] and not self._found.has(i)]
        if unknown:
            plain = active[alive[active] & ~self._images.is_key_group[active]]
            more = self._find(matchers, [(unknown, plain)], bounded)
            standing = [merge(*both) for both in zip(standing, more, strict=True)]
        return (standing[0], standing[1]), self._look_up_again(matchers, active, clock, bounded)

    def _within(self, events: Events, start: int, stop: int) -> Events:
        """Give the events of a window on images that live."""
        alive = self._images.alive[: self._images.n_stored]
        if start * self._width <= 0 and stop * self._width >= self._span and alive.all():
            return events
        inside = (events.time >= start * self._width) & (events.time < stop * self._width)
        return events.pick((inside & self._images.alive[events.image]).nonzero()[0])

    def _look_up_again(
        self, matchers: dict[int, Matcher], active: I64, clock: I64, bounded: bool
    ) -> tuple[Events, Events]:
        """Match images that may have changed with the operations that follow."""
        living = self._images.alive[active]
        grouped = living & self._images.is_key_group[active]
        lasting = [index for index in matchers if not self._is_dynamic[index]]
        passing = [index for index in matchers if self._is_dynamic[index]]
        if not (passing and living.any()) and not (lasting and grouped.any()):
            return NOTHING, NOTHING
        wanted = [(lasting, active[grouped]), (passing, active[living])]
        found = self._find(matchers, wanted, bounded)
        times = np.full(self._images.n_rows, -1)
        times[active] = clock
        writes, reads = (events.pick((events.time > times[events.image]).nonzero()[0]) for events in found)
        return writes, reads

    def _find(
        self, matchers: dict[int, Matcher], wanted: Iterable[tuple[list[int], I64]], bounded: bool
    ) -> tuple[Events, Events]:
        """Match groups with images; gives the writes and the reads.

        Raises
        ------
        TooManyPairs
            If `bounded` and there are more than `PAIRS_MAX`.
        """
        n_pairs = 0
        writes: list[Part] = []
        reads: list[Part] = []
        for indices, images in wanted:
            for index in indices if len(images) else ():
                group = self._groups[index]
                for found in matchers[index].match(self._images, images):
                    rows, items, errors = found.rows, found.operations, found.errors
                    if group.coverage is not None:
                        arcs, positions = self._images.arc[rows], self._images.position[rows]
                        seen = group.coverage.visible(items, arcs, positions)
                        if seen is not None:
                            rows, items = rows[seen], items[seen]
                            errors = None if errors is None else errors[seen]
                    part = rows, group.order[items] * self._width, index, items, errors
                    (reads if group.plan.is_read else writes).append(part)
                    n_pairs += len(rows)
                    if bounded and n_pairs > PAIRS_MAX:
                        raise TooManyPairs
        return join_events(writes, self._span), join_events(reads, self._span)

    def _next_writes(self, active: I64, clock: I64, static: Events, dynamic: Events) -> tuple[Events, I64]:
        """Give the next write of each active image, and its time (`_NEVER` if there is none)."""
        at_static, due_static = self._following(active, clock, static)
        if len(dynamic.code) == 0:
            return static.pick(at_static) if len(static.code) else static, due_static
        at_dynamic, due_dynamic = self._following(active, clock, dynamic)
        if len(static.code) == 0:
            return dynamic.pick(at_dynamic), due_dynamic
        both = chain(static, dynamic)
        first = due_static <= due_dynamic
        places = np.where(first, at_static, at_dynamic + len(static.code))
        return both.pick(places), np.minimum(due_static, due_dynamic)

    def _following(self, active: I64, clock: I64, events: Events) -> tuple[I64, I64]:
        """Give for each image the place of its first event after its clock, and the event's time."""
        if len(events.code) == 0:
            return np.zeros(len(active), np.int64), np.full(len(active), _NEVER)
        place = np.searchsorted(events.code, active * self._span + clock, side="right")
        place = np.minimum(place, len(events.code) - 1)
        time = events.time[place]
        found = (events.image[place] == active) & (time > clock)
        return place, np.where(found, time, _NEVER)

    def _show(self, active: I64, clock: I64, due: I64, static: Events, dynamic: Events) -> None:
        """Let the reads between each image's clock and its next write see its present state."""
        if len(static.code) == 0 and len(dynamic.code) == 0:
            return
        shown = []
        low = active * self._span + clock
        high = active * self._span + np.minimum(due, self._span)
        for events in (static, dynamic):
            if len(events.code) == 0:
                continue
            starts = np.searchsorted(events.code, low, side="right")
            counts = np.searchsorted(events.code, high, side="left") - starts
            if counts.any():
                shown.append(events.pick(expand(starts, np.maximum(counts, 0))))
        shown = [events for events in shown if len(events.code)]
        if not shown:
            return
        events = shown[0] if len(shown) == 1 else chain(shown[0], shown[1])
        images, copies = np.unique(events.image, return_inverse=True)
        self._see(events, copies + self._snapshots.take(images))

    def _run_ahead(self, streaks: Streaks, active: I64, clock: I64, reads: Events, *, is_new: bool) -> I64:
        """Do the writes that can be done at once; gives the time up to which each image has come."""
        after = clock.copy()
        for streak in streaks.find(active, clock, self._span, is_new=is_new):
            at = streak.images
            if len(active) < self._images.n_rows:
                at = np.searchsorted(active, streak.images)
            after[at] = streak.writes.time[streak.last]
            if len(reads.code):
                self._see_versions(streak, clock[at], after[at], reads)
            streaks.store(streak)
        return after

    def _see_versions(self, streak: Streak, clock: I64, after: I64, reads: Events) -> None:
        """Let the reads between each image's clock and the last write of its streak see what they are to."""
        begin = streak.images * self._span
        starts = np.searchsorted(reads.code, begin + clock, side="right")
        counts = np.searchsorted(reads.code, begin + after, side="left") - starts
        if not counts.any():
            return
        events = reads.pick(expand(starts, counts))
        owner = np.repeat(np.arange(len(begin)), counts)
        version = np.searchsorted(streak.writes.code, events.code) - 1
        version = np.where(version < streak.first[owner], -1 - owner, version)
        versions, copies = np.unique(version, return_inverse=True)
        first = self._snapshots.add(
            len(versions), lambda column_id: streak.seen(versions, self._images.column, column_id)
        )
        self._see(events, copies + first)

    def _see(self, events: Events, copies: I64) -> None:
        """Note that reads see some row versions."""
        self._n_seen += len(copies)
        for index, places in by_group(events.group):
            piece = copies[places], events.item[places], events.error[places]
            self._seen.setdefault(index, []).append(piece)

    def _apply(self, writes: Events) -> None:
        """Apply one write to each of some images."""
        for index, places in by_group(writes.group):
            group = self._groups[index]
            images, items, errors = writes.image[places], writes.item[places], writes.error[places]
            if group.plan.gives_rows:
                self._writer.bring(self._incoming[index], images, items)
                continue
            if errors.any():
                bad = errors.nonzero()[0]
                self._writer.reject(group, images[bad], items[bad], errors[bad])
                kept = (errors == 0).nonzero()[0]
                images, items = images[kept], items[kept]
            if len(images):
                self._writer.apply(group, images, items)

    def _answer(self) -> None:
        """Hand what reads saw since the last time to their readers."""
        for index, pieces in self._seen.items():
            copies, operations, errors = (np.concatenate(column) for column in zip(*pieces, strict=True))
            self._readers.add(index, self._snapshots, copies, operations, errors)
        self._seen.clear()
        self._n_seen = 0
        self._snapshots = Snapshots(self._images, self._read_columns)


def _occurrences(rows: Incoming) -> I64:
    """Number the acceptable rows of one operation and one key from 0, in their order."""
    places = (rows.error == 0).nonzero()[0]
    operation, slot = rows.operation[places], rows.slot[places]
    order = np.lexsort((slot, operation))
    fresh = np.ones(len(places), np.bool_)
    ordered_operation, ordered_slot = operation[order], slot[order]
    fresh[1:] = (ordered_operation[1:] != ordered_operation[:-1]) | (ordered_slot[1:] != ordered_slot[:-1])
    starts = np.maximum.accumulate(np.where(fresh, np.arange(len(places)), 0)) if len(places) else places
    numbers = np.empty(len(places), np.int64)
    numbers[order] = np.arange(len(places)) - starts
    return numbers
