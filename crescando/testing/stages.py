"""How far each change of the keyspace is, seen from outside: by routers, engines and deliveries.

Rules of the file: it only looks. Engines are watched at their own border
(`engine.base.Engine`), so that a step has happened when it is seen, whatever the
storage role calls it.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from crescando.engine.base import Engine, Image, Piece
from crescando.process import ProcessCore
from crescando.roles.storage import Storage
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.changes import Change
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import MessageId
from crescando.testing.layouts import outside
from crescando.types import KeyRange, ProcessId, Scope

STEPS = (
    "ordered",
    "image",
    "first_piece",
    "half",
    "taken_in",
    "catching_up",
    "caught_up",
    "ready",
    "ended",
    "deleted",
)
"""The named steps of a change, each as soon as it is seen anywhere.

``ordered``: a router has learned it, nobody has delivered it. ``image``: a sender
has taken an image. ``first_piece``, ``half``: so much of an image was read.
``taken_in``: a receiver has every piece of a copy. ``catching_up``: it executes
what came meanwhile. ``caught_up``: its engine has adopted the copy, and nobody
knows. ``ready``: a router has learned so, nobody has delivered it. ``ended``: a
storage process has delivered the end. ``deleted``: an owner has given up rows.
"""

PIECE_ROWS = 2
"""Rows of one piece, where an engine would send a megabyte."""

OnStep = Callable[[str, Change, ProcessId], None]


class Stages:
    """What has been seen of every change.

    Attributes
    ----------
    known : dict of MessageId to Change
        Every change that any router had under way after some turn, as it was first seen.
    counted : Counter
        Changes by the step that they were seen to reach.
    on_step : callable or None
        Called with the step, the change and whoever was looked at, once per change and step.
    """

    def __init__(self) -> None:
        self.known: dict[MessageId, Change] = {}
        self.counted: Counter[str] = Counter()
        self.on_step: OnStep | None = None
        self._reached: set[tuple[MessageId, str]] = set()
        self._followed: dict[ProcessId, Rubberband] = {}
        self._ended_at: dict[ProcessId, Change] = {}
        self._n_pieces: dict[tuple[MessageId, int], int] = {}

    def note(self, step: str, change: Change | None, process: ProcessId) -> None:
        """Learn that a change has reached a step."""
        if change is None or (change.id, step) in self._reached:
            return
        self._reached.add((change.id, step))
        self.counted[step] += 1
        if self.on_step is not None:
            self.on_step(step, change, process)

    def copy_of(self, scope: Sequence[KeyRange], *, at: ProcessId, sends: bool) -> tuple[Change, int] | None:
        """Find the youngest change with a copy of some ranges that a process sends or receives.

        A receiver may hold some of it already.
        """
        for change in reversed(self.known.values()):
            for index, copy in enumerate(change.copies):
                party = copy.sender if sends else copy.receiver
                if party == at and not any(outside(scope, copy.scope)):
                    return change, index
        return None

    def after_turn(self, core: ProcessCore) -> None:
        """Look at a router or a storage process after each of its turns."""
        if isinstance(core, Router):
            self._follow(core.me, core.mseq.config, self._look_at_order)
        elif isinstance(core, Storage) and core.following.is_joined:
            self._follow(core.me, core.config, self._look_at_delivery)

    def _follow(
        self,
        process: ProcessId,
        config: object,
        look: Callable[[ProcessId, Rubberband | None, Rubberband], None],
    ) -> None:
        before = self._followed.get(process)
        if config is not before and isinstance(config, Rubberband):
            self._followed[process] = config
            look(process, before, config)

    def _look_at_order(self, router: ProcessId, before: Rubberband | None, after: Rubberband) -> None:
        was_ready = {change.id: change.ready for change in before.changes} if before is not None else {}
        for change in after.changes:
            if change.id not in self.known:
                self.known[change.id] = change
                self.note("ordered", change, router)
            if len(change.ready) > len(was_ready.get(change.id, ())):
                self.note("ready", change, router)

    def _look_at_delivery(self, storage: ProcessId, before: Rubberband | None, after: Rubberband) -> None:
        if before is None or before.ring == after.ring:
            return
        for change in before.changes[:1]:
            self._ended_at[storage] = change
            self.note("ready", change, storage)
            self.note("ended", change, storage)

    def expect_pieces(self, change: Change, copy: int, n_pieces: int) -> None:
        """Learn how many pieces a copy has."""
        self._n_pieces[change.id, copy] = n_pieces

    def pieces_of(self, change: Change, copy: int) -> int | None:
        """Give how many pieces a copy has, if its image was taken."""
        return self._n_pieces.get((change.id, copy))

    def gave_up(self, storage: ProcessId) -> None:
        """Learn that an engine holds less than before."""
        self.note("deleted", self._ended_at.get(storage), storage)


class WatchedEngine:
    """An engine with somebody who looks on; an `Engine`.

    Attributes
    ----------
    arcs : tuple of KeyRange
        What it was told to hold, as it was cut.
    images : dict
        The open ones; the values mean nothing.
    areas : WeakSet of WatchedEngine
        Those beside it that somebody still knows.
    """

    def __init__(
        self,
        inner: Engine,
        owner: ProcessId,
        stages: Stages,
        copy: tuple[Change, int] | None = None,
    ) -> None:
        self.inner = inner
        self.owner = owner
        self.arcs: tuple[KeyRange, ...] = ()
        self.images: dict[int, WatchedImage] = {}
        self.areas: weakref.WeakSet[WatchedEngine] = weakref.WeakSet()
        self._stages = stages
        self._copy = copy
        self._n_pieces = 0
        self._is_main = copy is None

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def set_arcs(self, arcs: Sequence[KeyRange]) -> None:
        before, self.arcs = self.arcs, tuple(KeyRange(*arc) for arc in arcs)
        self.inner.set_arcs(arcs)
        if any(outside(before, self.arcs)):
            self._stages.gave_up(self.owner)

    def beside(self, arcs: Sequence[KeyRange]) -> WatchedEngine:
        copy = self._stages.copy_of(arcs, at=self.owner, sends=False)
        area = WatchedEngine(self.inner.beside(arcs), self.owner, self._stages, copy)
        area.arcs, area._is_main = tuple(KeyRange(*arc) for arc in arcs), False
        self.areas.add(area)
        return area

    def take_in(self, piece: Piece) -> None:
        self.inner.take_in(piece)
        self._n_pieces += 1
        if self._copy is not None and self._n_pieces == self._stages.pieces_of(*self._copy):
            self._stages.note("taken_in", self._copy[0], self.owner)

    def adopt(self, other: Any) -> None:
        self.inner.adopt(other.inner)
        self.arcs = tuple(sorted((*self.arcs, *other.arcs)))
        if other._copy is not None:
            self._stages.note("caught_up", other._copy[0], self.owner)

    def image(self, scope: Scope) -> WatchedImage:
        copy = self._stages.copy_of(scope, at=self.owner, sends=True)
        image = WatchedImage(self.inner.image(scope), self, copy, self._stages)
        self.images[id(image)] = image
        if copy is not None:
            self._stages.note("image", copy[0], self.owner)
        return image

    def execute(self, *arguments: Any) -> Any:
        if not self._is_main and self._copy is not None:
            self._stages.note("catching_up", self._copy[0], self.owner)
        return self.inner.execute(*arguments)


class WatchedImage:
    """An image with somebody who looks on; an `Image`. Its pieces are small, so that a copy has many."""

    def __init__(
        self, inner: Image, engine: WatchedEngine, copy: tuple[Change, int] | None, stages: Stages
    ) -> None:
        self.inner = inner
        self._engine = engine
        self._change = None if copy is None else copy[0]
        self._stages = stages
        self._cuts = [
            (index, start)
            for index in range(inner.n_pieces)
            for start in range(0, max(len(inner.piece(index).position), 1), PIECE_ROWS)
        ]
        if copy is not None:
            stages.expect_pieces(*copy, self.n_pieces)

    @property
    def n_rows(self) -> int:
        return self.inner.n_rows

    @property
    def n_bytes(self) -> int:
        return self.inner.n_bytes

    @property
    def n_pieces(self) -> int:
        return len(self._cuts)

    def piece(self, index: int) -> Piece:
        inner, start = self._cuts[index]
        piece = self.inner.piece(inner)
        self._stages.note("first_piece", self._change, self._engine.owner)
        if 2 * (index + 1) >= self.n_pieces:
            self._stages.note("half", self._change, self._engine.owner)
        rows = slice(start, start + PIECE_ROWS)
        columns = tuple(
            msgspec.structs.replace(
                column,
                values=column.values[rows],
                valid=None if column.valid is None else column.valid[rows],
            )
            for column in piece.columns
        )
        return msgspec.structs.replace(piece, position=piece.position[rows], columns=columns)

    def close(self) -> None:
        self.inner.close()
        del self._engine.images[id(self)]
