"""Our side as users have it: an embedded store, prepared statements, Python values in and out.

Rules of the file: only what the package makes public is used. Every operation
goes the whole way: checked, ordered by the router, executed by the storage
process, answered to its handle.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Any

from benchmarks.rivals.base import Ways
from benchmarks.tickets.work import OUTPUTS, Changes, Mixed
from crescando import agg, col

WHERE = "rloc = ?"


class StoreSide:
    """A session of a store whose table ``tickets`` is loaded."""

    def __init__(self, store: Any) -> None:
        self.session = store
        table = store.table("tickets")
        self.read = table.prepare_select(list(OUTPUTS), WHERE)
        self.set_status = table.prepare_update(WHERE, "status = ?")
        self.add_miles = table.prepare_update(WHERE, "miles = miles + ?")
        self.table = table

    def mixed(self) -> Ways:
        """Ways to do reads and updates in their order."""

        def bound(work: Mixed) -> list[list[tuple[Any, ...]]]:
            read, write = self.read.bind, self.set_status.bind
            operations = [
                read((key,)) if status is None else write((status, key))
                for key, status in zip(work.keys, work.statuses, strict=True)
            ]
            return _rows(self.session.submit_many(operations), work.statuses)

        def in_runs(work: Mixed) -> list[list[tuple[Any, ...]]]:
            handles: list[Any] = []
            pairs = zip(work.keys, work.statuses, strict=True)
            for is_read, run in groupby(pairs, lambda pair: pair[1] is None):
                if is_read:
                    handles.extend(self.read.many([(key,) for key, _ in run]))
                else:
                    handles.extend(self.set_status.many([(status, key) for key, status in run]))
            return _rows(handles, work.statuses)

        return {"bind and submit_many": bound, "runs of many": in_runs}

    def mixed_unordered(self) -> Ways:
        """Ways that keep the order of updates, and put a batch's reads before them, as rivals' do."""

        def apart(work: Mixed) -> list[list[tuple[Any, ...]]]:
            pairs = list(zip(work.keys, work.statuses, strict=True))
            reads = self.read.many([(key,) for key, status in pairs if status is None])
            updates = self.set_status.many([(status, key) for key, status in pairs if status is not None])
            rows = [read.result().rows() for read in reads]
            for update in updates:
                update.result()
            return rows

        return {"reads and updates, a batch of each": apart}

    def changes(self, work: Changes) -> int:
        """Do updates; give how many rows they changed."""
        handles = self.add_miles.many(list(zip(work.deltas, work.keys, strict=True)))
        return sum(handle.result().affected for handle in handles)

    def miles(self) -> int:
        """Give a checksum of the column that updates change."""
        answer = self.table.aggregate(total=agg.sum(col("miles") * (col("ticket_id") % 1000)))
        return int(answer.rows()[0][0])


def _rows(handles: Sequence[Any], statuses: Sequence[str | None]) -> list[list[tuple[Any, ...]]]:
    answers = []
    for handle, status in zip(handles, statuses, strict=True):
        result = handle.result()
        if status is None:
            answers.append(result.rows())
    return answers
