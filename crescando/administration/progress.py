"""How far a change of the keyspace is, as its receivers tell."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from crescando.roles.copy_messages import CopyId, CopyProgress
from crescando.routing.rubberband.changes import Change
from crescando.routing.rubberband.placement import Weight
from crescando.types import ProcessId

State = Literal["planning", "queued", "copying", "done", "dropped", "failed"]


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a change of the keyspace is.

    Attributes
    ----------
    state : str
        ``planning`` until it is ordered, ``queued`` behind others (its rows may come already),
        ``copying``, and what it ended as: ``done``, ``dropped``, or ``failed`` if it never began.
    copies, ready : int
        Copies that it consists of, and those that have arrived.
    rows, rows_total : int
        Rows that have arrived, and all, as far as that is known.
    n_bytes, bytes_total : int
        The same in bytes, about.
    eta_s : float or None
        When to expect the last row, in seconds; None as long as nobody can tell.
    blocker : str
        What it waits for.
    """

    state: State = "planning"
    copies: int = 0
    ready: int = 0
    rows: int = 0
    rows_total: int = 0
    n_bytes: int = 0
    bytes_total: int = 0
    eta_s: float | None = None
    blocker: str = ""

    @property
    def percent(self) -> float:
        """How much of it is done, from 0 to 100."""
        if self.state == "done":
            return 100.0
        if self.rows_total:
            return min(99.9, 100.0 * self.rows / self.rows_total)
        return min(99.9, 100.0 * self.ready / self.copies) if self.copies else 0.0

    def __str__(self) -> str:
        told = f"{self.state}, {self.percent:.0f} %"
        if self.rows_total:
            told += f", {self.rows:,} of {self.rows_total:,} rows"
        if self.eta_s is not None and self.state == "copying":
            told += f", {self.eta_s:.0f} s left"
        return told + (f"; waits for this: {self.blocker}" if self.blocker else "")


@dataclass(frozen=True, slots=True)
class Copying:
    """What the receivers of copies have told.

    Attributes
    ----------
    copies : mapping of CopyId to CopyProgress
        Of those that are not over.
    silent : frozenset of ProcessId
        Receivers that did not answer in time.
    """

    copies: Mapping[CopyId, CopyProgress]
    silent: frozenset[ProcessId] = frozenset()


def progress_of(
    change: Change,
    place: int,
    told: Copying,
    planned: tuple[Weight, ...] = (),
) -> Progress:
    """Give how far a change under way is.

    Parameters
    ----------
    change : Change
    place : int
        How many are before it.
    told : Copying
    planned : tuple of Weight
        Of each copy as it was weighed, if it was.
    """
    rows = n_bytes = rows_total = bytes_total = 0
    eta_s: float | None = 0.0
    blocker = ""
    for index, copy in enumerate(change.copies):
        here = told.copies.get(CopyId(change.id, index))
        all_rows, all_bytes = planned[index] if planned else (0, 0)
        if here is not None and here.n_rows:
            all_rows, all_bytes = here.n_rows, here.n_bytes
        rows_total, bytes_total = rows_total + all_rows, bytes_total + all_bytes
        if index in change.ready:
            rows, n_bytes = rows + all_rows, n_bytes + all_bytes
            continue
        if here is None:
            if copy.receiver in told.silent:
                blocker = blocker or f"{copy.receiver} does not answer"
            eta_s = None
            continue
        rows, n_bytes = rows + here.rows, n_bytes + here.bytes
        blocker = blocker or here.blocker
        left = all_rows - here.rows
        if eta_s is not None and left > 0:
            eta_s = max(eta_s, left / here.rows_s) if here.rows_s > 0 else None
    if place and change.is_complete:
        blocker = "the change before it"
    return Progress(
        "queued" if place else "copying",
        len(change.copies),
        len(change.ready),
        rows,
        rows_total,
        n_bytes,
        bytes_total,
        eta_s,
        blocker,
    )
