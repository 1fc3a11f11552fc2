"""One pass over one table for one batch (RB13 §3.1).

Rules of the file: stored rows are read once, block by block, and none is
changed until every answer is known. Writes find the rows they may change, which
become images and are replayed in order (see `engine.order`); reads are
answered at once from the rows that no write touches.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

import numpy as np

from crescando.engine.answers import Answers
from crescando.engine.base import Cancelled
from crescando.engine.evaluator import Evaluator
from crescando.engine.group import Group
from crescando.engine.images import Images, Origins
from crescando.engine.incoming import KeySlots, arrive
from crescando.engine.keys import I64, Mask
from crescando.engine.match import Matcher
from crescando.engine.order import Replay
from crescando.engine.reader import Reader
from crescando.engine.sampling import Sample
from crescando.engine.sharing import Sharing
from crescando.engine.table import Block, Table
from crescando.engine.writer import Tally, Writer
from crescando.types import KeyRange, ProcessId


class Cycle:
    """One pass over one table.

    Parameters
    ----------
    table : Table
    groups : sequence of Group
    arcs : sequence of KeyRange
    n_operations : int
        Operations of the batch, in the groups or failed before.
    evaluator : Evaluator
    """

    def __init__(
        self,
        table: Table,
        groups: Sequence[Group],
        arcs: Sequence[KeyRange],
        n_operations: int,
        evaluator: Evaluator,
    ) -> None:
        self._table = table
        self._groups = groups
        self._arcs = arcs
        self._evaluator = evaluator
        self._origins = Origins()
        self._tally = Tally(n_operations, arcs)
        self._pairs: I64 = np.zeros(n_operations, np.int64)
        self._incoming = {i: arrive(g, table, arcs) for i, g in enumerate(groups) if g.plan.gives_rows}
        self._slots = KeySlots(table, tuple(self._incoming.values())) if self._incoming else None
        self._slot_images: I64 = np.full(0 if self._slots is None else self._slots.n_slots, -1)
        self._readers = {
            i: Reader(g, table.key_ids, evaluator) for i, g in enumerate(groups) if g.plan.is_read
        }
        sample = Sample(table)
        self._matchers = {
            i: Matcher(g.plan, g.constants, g.every, table, evaluator, sample)
            for i, g in enumerate(groups)
            if not g.plan.gives_rows
        }
        reads = {i: matcher for i, matcher in self._matchers.items() if i in self._readers}
        self._reads = Sharing(reads, table)
        self._writes = Sharing({i: m for i, m in self._matchers.items() if i not in reads}, table)

    @property
    def n_dirty(self) -> int:
        """How many stored rows the batch may have changed."""
        return self._origins.n_rows

    def scan(self, block_rows: int, cancelled: Cancelled | None = None) -> None:
        """Match every block: gather the rows that writes may change, answer reads on the others."""
        known: Collection[tuple[ProcessId, int]] = ()
        for block in self._table.blocks(block_rows):
            unwanted = known if cancelled is None else cancelled()
            if unwanted is not known:
                known = unwanted
                for reader in self._readers.values() if known else ():
                    reader.cancel(known)
            live = block.live()
            self._read(block, live, self._find_dirty(block, live))

    def _find_dirty(self, block: Block, live: Mask | None) -> Mask | None:
        """Mark the rows that a write matches at their stored values, or whose key is named."""
        dirty: Mask | None = None
        for index, found in self._writes.match(block, live, lambda _: None):
            if dirty is None:
                dirty = np.zeros(block.n_rows, np.bool_)
            dirty[found.rows] = True
            self._note(self._groups[index], found.operations)
        rows, slots = (None, None) if self._slots is None else self._slots.find(block)
        if rows is not None and len(rows):
            if dirty is None:
                dirty = np.zeros(block.n_rows, np.bool_)
            dirty[rows] = True
        if dirty is None:
            return None
        gathered = dirty.nonzero()[0]
        first = self._origins.add(block, gathered)
        if rows is not None:
            self._slot_images[slots] = first + np.searchsorted(gathered, rows)
        return dirty

    def _note(self, group: Group, operations: I64) -> None:
        """Count matches on rows that will be replayed."""
        counts = np.bincount(operations, minlength=len(group.order))
        self._pairs[group.order] += counts

    def _read(self, block: Block, live: Mask | None, dirty: Mask | None) -> None:
        """Answer reads from the rows that no write touches."""
        arc = block.segment.arc
        blind: dict[int, Mask | None] = {}

        def skipped(index: int) -> Mask | None:
            if index not in blind:
                blind[index] = self._blind(index, arc)
            return blind[index]

        for index, found in self._reads.match(block, live, skipped):
            group = self._groups[index]
            at, operations, errors = found.rows, found.operations, found.errors
            assert group.coverage is not None
            kept = group.coverage.visible(operations, arc, block.positions()[at])
            if dirty is not None:
                touched = dirty[at]
                self._note(group, operations[touched])
                kept = ~touched if kept is None else kept & ~touched
            if kept is not None:
                at, operations = at[kept], operations[kept]
                errors = None if errors is None else errors[kept]
            self._readers[index].add(block, at, operations, errors)

    def _blind(self, index: int, arc: int) -> Mask | None:
        """Give the reads of a group that see nothing of an arc, or are not waited for any more."""
        coverage, cancelled = self._groups[index].coverage, self._readers[index].cancelled
        assert coverage is not None
        unseen = coverage.skipped(arc)
        if cancelled is None:
            return unseen
        return cancelled if unseen is None else unseen | cancelled

    def finish(self, answers: Answers) -> None:
        """Replay the images, put them back, and hand out all answers."""
        if self._is_plain_load():
            self._append()
        elif self._origins.n_rows or self._incoming:
            self._replay()
        for reader in self._readers.values():
            answers.read(reader)
        for group in self._groups:
            if not group.plan.is_read:
                answers.wrote(group, self._tally)

    def _is_plain_load(self) -> bool:
        """Say whether the batch only brings new rows of distinct keys, so that no order matters."""
        if self._slots is None or len(self._incoming) < len(self._groups) or self._origins.n_rows:
            return False
        return self._slots.n_rows == self._slots.n_slots and not any(
            rows.missing_not_null or rows.error.any() or rows.group.plan.shape.returning
            for rows in self._incoming.values()
        )

    def _append(self) -> None:
        """Put all incoming rows into the table as they came."""
        for rows in self._incoming.values():
            self._tally.affected(rows.group.order[rows.operation], rows.arc)
            self._table.take_in(rows.arc, rows.values, rows.position)

    def _replay(self) -> None:
        images = self._make_images()
        writer = Writer(self._table, images, self._tally, self._evaluator)
        for rows in self._incoming.values():
            bad = rows.error.nonzero()[0]
            keys = [rows.values[key].take(bad) for key in self._table.key_ids]
            order = rows.group.order[rows.operation[bad]]
            self._tally.rejected(order, rows.arc[bad], keys, rows.error[bad])
        replay = Replay(
            self._table,
            images,
            self._groups,
            self._incoming,
            self._slot_images,
            self._matchers,
            self._readers,
            writer,
            self._evaluator,
        )
        replay.run(self._pairs)
        written = frozenset[int]().union(*(g.plan.assigned for g in self._groups if not g.plan.is_read))
        # A row that dies and is born again in one batch differs in any column.
        images.write_back(images.column_ids if self._incoming else written)

    def _make_images(self) -> Images:
        if self._slots is None:
            used = frozenset[int]().union(*(group.plan.used for group in self._groups))
            return Images(self._table, self._origins, 0, used | set(self._table.key_ids))
        void = (self._slot_images < 0).nonzero()[0]
        images = Images(self._table, self._origins, len(void), self._table.types)
        born = images.n_stored + np.arange(len(void))
        self._slot_images[void] = born
        images.is_key_group[self._slot_images] = True
        images.arc[born] = self._slots.arc[void]
        images.position[born] = self._slots.position[void]
        for key_id, key in zip(self._table.key_ids, self._slots.keys, strict=True):
            images.store(key_id, born, key.take(void))
        return images
