"""One pass over one table for one batch (RB13 §3.1).

Rules of the file: stored rows are read once, block by block, and none is
changed until every answer is known. Writes find the rows they may change, which
become images and are replayed in order (see `engine.order`); reads are
answered at once from the rows that no write touches.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from crescando.engine.answers import Answers
from crescando.engine.base import Cancelled
from crescando.engine.evaluator import Evaluator
from crescando.engine.found import Found
from crescando.engine.group import Group
from crescando.engine.images import Images, Origins
from crescando.engine.incoming import KeySlots, arrive
from crescando.engine.keys import I64
from crescando.engine.match import Matcher
from crescando.engine.order import Replay, updated_columns
from crescando.engine.parallel import Workers
from crescando.engine.part import Part, Search
from crescando.engine.readers import Families, Readers
from crescando.engine.sampling import Sample
from crescando.engine.sharing import Sharing
from crescando.engine.table import Table
from crescando.engine.writer import Tally, Writer
from crescando.types import KeyRange

PART_LOOKS_MIN = 1 << 18
"""A part of a pass has rows for so many looks at least, a nanosecond each: handing it over takes
about a quarter of a millisecond of processor time (measured)."""


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
    sample : Sample
        Of the table's rows.
    """

    def __init__(
        self,
        table: Table,
        groups: Sequence[Group],
        arcs: Sequence[KeyRange],
        n_operations: int,
        evaluator: Evaluator,
        sample: Sample,
    ) -> None:
        self._table = table
        self._groups = groups
        self._arcs = arcs
        self._evaluator = evaluator
        self._origins = Origins()
        self._tally = Tally(n_operations, arcs)
        updated = updated_columns(groups)
        uncertain = [i for i, group in enumerate(groups) if group.plan.tested & updated]
        self._found = Found(groups, n_operations, uncertain)
        self._incoming = {i: arrive(g, table, arcs) for i, g in enumerate(groups) if g.plan.gives_rows}
        self._slots = KeySlots(table, tuple(self._incoming.values())) if self._incoming else None
        self._slot_images: I64 = np.full(0 if self._slots is None else self._slots.n_slots, -1)
        self._matchers = {
            i: Matcher(g.plan, g.constants, g.every, table, evaluator, sample)
            for i, g in enumerate(groups)
            if not g.plan.gives_rows
        }
        reads = {i: matcher for i, matcher in self._matchers.items() if groups[i].plan.is_read}
        writes = {i: matcher for i, matcher in self._matchers.items() if i not in reads}
        families = Families(groups, table.key_ids, evaluator)
        self._readers = Readers(families)
        self._search = Search(
            table, groups, evaluator, Sharing(reads, table), Sharing(writes, table), families, self._slots
        )

    @property
    def n_dirty(self) -> int:
        """How many stored rows the batch may have changed."""
        return self._origins.n_rows

    def scan(self, block_rows: int | None, workers: Workers, cancelled: Cancelled | None = None) -> None:
        """Match all rows, in one part or several."""
        search, table = self._search, self._table
        n_looks = search.n_looks
        n_parts = min(workers.width, max(table.n_stored * n_looks // PART_LOOKS_MIN, 1))
        divided = table.parts(n_parts, block_rows or search.block_rows)
        parts = [Part(search, blocks, self._found.fresh()) for blocks in divided]
        if len(parts) > 1:
            search.get_ready()
        workers.run([partial(part.scan, cancelled) for part in parts])
        for part in parts:
            self._join(part)

    def _join(self, part: Part) -> None:
        """Take over what a part found."""
        first = self._origins.join(part.origins)
        self._found.join(part.found, first)
        self._readers.join(part.readers)
        for slots, images in zip(part.slots, part.slot_images, strict=True):
            self._slot_images[slots] = first + images

    def finish(self, answers: Answers, workers: Workers) -> None:
        """Replay the images, put them back, and hand out all answers."""
        if self._is_plain_load():
            self._append()
        elif self._origins.n_rows or self._incoming:
            self._replay()
        for reader in self._readers.all():
            answers.read(reader, workers)
        for group in self._groups:
            if not group.plan.is_read:
                answers.wrote(group, self._tally)

    def _is_plain_load(self) -> bool:
        """Say whether the batch only brings new rows of distinct keys, so that no order matters."""
        if self._slots is None or len(self._incoming) < len(self._groups) or self._origins.n_rows:
            return False
        if self._slots.any_reserved:
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
            self._found,
            self._readers,
            writer,
            self._evaluator,
        )
        replay.run(self._found.counts())
        images.write_back()

    def _make_images(self) -> Images:
        if self._slots is None:
            return Images(self._table, self._origins, 0)
        void = (self._slot_images < 0).nonzero()[0]
        images = Images(self._table, self._origins, len(void))
        born = images.n_stored + np.arange(len(void))
        self._slot_images[void] = born
        images.is_key_group[self._slot_images] = True
        images.arc[born] = self._slots.arc[void]
        images.position[born] = self._slots.position[void]
        for key_id, key in zip(self._table.key_ids, self._slots.keys, strict=True):
            images.store(key_id, born, key.take(void))
        return images
