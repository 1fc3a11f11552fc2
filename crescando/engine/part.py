"""One part of a pass over a table: a run of blocks, and what is found in them.

Rules of the file: parts of a pass may be scanned at the same time. What they
share is made before and changed by none of them; what a part finds is its own
until all are done, and is then joined in the order of the parts, which gives
what one part would have found.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from crescando.engine.base import Cancelled
from crescando.engine.evaluator import Evaluator
from crescando.engine.found import Found
from crescando.engine.group import Group
from crescando.engine.images import Origins
from crescando.engine.incoming import KeySlots
from crescando.engine.keys import I64, Mask
from crescando.engine.readers import Families, Readers
from crescando.engine.segment import Block
from crescando.engine.sharing import Sharing
from crescando.engine.table import Table
from crescando.types import ProcessId


@dataclass(frozen=True, slots=True)
class Search:
    """What a pass looks for; the same for all its parts.

    Attributes
    ----------
    table : Table
    groups : sequence of Group
    evaluator : Evaluator
    reads, writes : Sharing
        Of the groups that look for rows, by index of the group.
    families : Families
        Which reads share a reader.
    slots : KeySlots or None
        The keys of rows that the batch brings.
    """

    table: Table
    groups: Sequence[Group]
    evaluator: Evaluator
    reads: Sharing
    writes: Sharing
    families: Families
    slots: KeySlots | None

    @property
    def n_looks(self) -> int:
        """How many times each row is looked at."""
        return self.reads.n_looks + self.writes.n_looks + (self.slots is not None)

    @property
    def block_rows(self) -> int:
        """How many rows to look at in one go."""
        return min(self.reads.block_rows, self.writes.block_rows)

    def get_ready(self) -> None:
        """Make what would otherwise be made when the first block is met."""
        self.reads.get_ready()
        self.writes.get_ready()


class Part:
    """What is found in some blocks.

    Parameters
    ----------
    search : Search
    blocks : sequence of Block
    found : Found
        Of nothing yet.

    Attributes
    ----------
    readers : Readers
        What reads found in rows that no write touches.
    origins : Origins
        The rows that writes may change.
    found : Found
        What operations match among those rows at their stored values.
    slots, slot_images : list of ndarray of int64
        Keys of incoming rows that stored rows have, and these rows' places in `origins`.
    """

    def __init__(self, search: Search, blocks: Sequence[Block], found: Found) -> None:
        self._search = search
        self._groups = search.groups
        self._blocks = blocks
        self.readers = Readers(search.families)
        self.origins = Origins()
        self.found = found
        self.slots: list[I64] = []
        self.slot_images: list[I64] = []

    def scan(self, cancelled: Cancelled | None = None) -> None:
        """Match every block: gather the rows that writes may change, answer reads on the others."""
        known: Collection[tuple[ProcessId, int]] = ()
        # Rows that are NULL or ERROR hold anything, on which arithmetic may complain in vain;
        # what NumPy is told about that holds for one thread.
        with np.errstate(all="ignore"):
            for block in self._blocks:
                unwanted = known if cancelled is None else cancelled()
                if unwanted is not known:
                    known = unwanted
                    if known:
                        self.readers.cancel(known)
                live = block.live()
                block.keep(True)
                self._read(block, live, self._find_dirty(block, live))
                block.keep(False)

    def _find_dirty(self, block: Block, live: Mask | None) -> Mask | None:
        """Mark the rows that a write matches at their stored values, or whose key is named."""
        dirty: Mask | None = None
        for index, found in self._search.writes.match(block, live, lambda _: None):
            if dirty is None:
                dirty = np.zeros(block.n_rows, np.bool_)
            dirty[found.rows] = True
            self.found.add(index, found)
        slots = self._search.slots
        rows, names = (None, None) if slots is None else slots.find(block)
        if rows is not None and len(rows):
            if dirty is None:
                dirty = np.zeros(block.n_rows, np.bool_)
            dirty[rows] = True
        if dirty is None:
            return None
        gathered = dirty.nonzero()[0]
        first = self.origins.add(block, gathered)
        self.found.place(gathered, first)
        if rows is not None and names is not None:
            self.slots.append(names)
            self.slot_images.append(first + np.searchsorted(gathered, rows))
        return dirty

    def _read(self, block: Block, live: Mask | None, dirty: Mask | None) -> None:
        """Answer reads from the rows that no write touches."""
        arc = block.segment.arc
        blind: dict[int, Mask | None] = {}

        def skipped(index: int) -> Mask | None:
            if index not in blind:
                blind[index] = self._blind(index, arc)
            return blind[index]

        for index, found in self._search.reads.match(block, live, skipped):
            group = self._groups[index]
            assert group.coverage is not None
            kept = group.coverage.inside(found.operations, arc, block, found.rows)
            if dirty is not None:
                touched = dirty[found.rows]
                self.found.add_read(index, found.pick(touched if kept is None else kept & touched))
                kept = ~touched if kept is None else kept & ~touched
            if kept is not None:
                found = found.pick(kept)
            self.readers.add(index, block, found.rows, found.operations, found.errors)

    def _blind(self, index: int, arc: int) -> Mask | None:
        """Give the reads of a group that see nothing of an arc, or are not waited for any more."""
        coverage, cancelled = self._groups[index].coverage, self.readers.cancelled(index)
        assert coverage is not None
        unseen = coverage.skipped(arc)
        if unseen is None or cancelled is None:
            return cancelled if unseen is None else unseen
        return unseen | cancelled
