"""Faults planted in what moves ranges, for simulated clusters that change to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from itertools import repeat
from typing import Any

import msgspec
import pytest

from crescando.engine.base import Piece
from crescando.errors import InvariantError
from crescando.roles.areas import Areas, EndCopy, Recut, TakeImage, _Area
from crescando.roles.copies import Copies
from crescando.roles.cycles import Execution
from crescando.roles.incoming import Incoming
from crescando.routing.base import Refusal
from crescando.routing.rubberband import config as config_module
from crescando.routing.rubberband.admission import admitted
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.membership import Membership
from crescando.routing.rubberband.messages import Reconfigure, decode_message
from crescando.scopes import common, cut, merged, subtract

Plant = Callable[[pytest.MonkeyPatch], None]


def delete_when_a_change_begins(patch: pytest.MonkeyPatch) -> None:
    """Who is to own a range no more gives it up at p, as soon as its image is taken, and not at q."""

    def hasty(self: Copies, layout: Any, at: int, now_s: float) -> None:
        original(self, layout, at, now_s)
        lost = subtract(layout.owned_arcs(self.me), layout.target.owned_arcs(self.me))
        if lost:
            owned = tuple(subtract(layout.owned_arcs(self.me), lost))
            wanted = tuple(subtract(layout.wanted(self.me), lost))
            self._put(Recut(owned, wanted, layout.borders()), at)

    original = Copies.follow
    patch.setattr(Copies, "follow", hasty)


def take_the_image_before_the_batch(patch: pytest.MonkeyPatch) -> None:
    """What the same cycle writes before the change begins is in no image, and in no log."""

    def early(self: Execution, *arguments: Any) -> Any:
        weighed = list(zip(self.steps, self.written_bytes or repeat(0), strict=False))
        weighed.sort(key=lambda each: not isinstance(each[0], TakeImage))
        steps, n_bytes = tuple(step for step, _ in weighed), tuple(n for _, n in weighed)
        return original(replace(self, steps=steps, written_bytes=n_bytes), *arguments)

    original = Execution.run
    patch.setattr(Execution, "run", early)


def lose_an_operation_that_waits_for_the_copy(patch: pytest.MonkeyPatch) -> None:
    """Of what is to be executed on the copy every fifth batch is forgotten."""

    def forgetful(self: _Area, logged: Any) -> None:
        if isinstance(logged.work, tuple):
            noted[0] += 1
            if noted[0] % 5 == 0:
                return
        original(self, logged)

    noted, original = [0], _Area.note
    patch.setattr(_Area, "note", forgetful)


def serve_a_copy_before_it_has_caught_up(patch: pytest.MonkeyPatch) -> None:
    """A copy is ready as soon as its rows are there."""

    def eager(self: Areas, area: _Area, engine: Any, budget: Any, *arguments: Any) -> Any:
        if area.is_whole:
            area.log.clear()
        return original(self, area, engine, budget, *arguments)

    original = Areas._advance
    patch.setattr(Areas, "_advance", eager)


def keep_what_was_given_up(patch: pytest.MonkeyPatch) -> None:
    """Who owns a range no more deletes nothing."""

    def hoard(self: Areas, step: Recut, engine: Any) -> None:
        held = step.wanted if step.is_first else merged((*self._held, *common(step.wanted, self._held)))
        self._held = held
        engine.set_arcs(cut(held, step.borders))

    patch.setattr(Areas, "_recut", hoard)


def leave_images_open(patch: pytest.MonkeyPatch) -> None:
    """Nobody closes an image when its copy has arrived."""

    def leak(self: Areas, step: Any, engine: Any) -> None:
        if isinstance(step, EndCopy):
            self._areas.pop(step.copy, None)
            return
        original(self, step, engine)

    original = Areas.carry_out
    patch.setattr(Areas, "carry_out", leak)


def lose_rows_on_their_way(patch: pytest.MonkeyPatch) -> None:
    """Of every third piece that arrives the rows are gone."""

    def careless(self: Incoming, parcel: Any) -> Any:
        told = original(self, parcel)
        if parcel.number % 3 == 2 and self._to_hand and self._to_hand[-1] is parcel.content:
            piece = parcel.content
            columns = tuple(
                msgspec.structs.replace(column, values=column.values[:0], valid=None)
                for column in piece.columns
            )
            self._to_hand[-1] = Piece(piece.table, piece.version, piece.position[:0], columns)
        return told

    original = Incoming.on_parcel
    patch.setattr(Incoming, "on_parcel", careless)


def write_to_owners_only(patch: pytest.MonkeyPatch) -> None:
    """Receivers are not sent the writes of what they are to hold."""
    patch.setattr(Rubberband, "_receiving", lambda self: {})


def count_layouts(patch: pytest.MonkeyPatch) -> None:
    """A layout's version is a count of the changes under way: after a drop it comes again."""

    def counting(
        message: Any, membership: Any, ring: Any, catalog: Any, changes: Any, layout: Any, loads: Any
    ) -> Any:
        versions[layout] = len(changes)
        try:
            return admitted(message, membership, ring, catalog, changes, layout, loads)
        except Refusal:
            body = decode_message(message.payload)
            if not isinstance(body, Reconfigure) or versions.get(body.predecessor) != len(changes):
                raise
            return body

    versions: dict[Any, int] = {}
    patch.setattr(config_module, "admitted", counting)


def suspect_by_one_super(patch: pytest.MonkeyPatch) -> None:
    """A process has failed as soon as one super says so."""
    patch.setattr(Membership, "convicted", lambda self: tuple(sorted({accused for accused, _ in self.votes})))


ELASTIC_PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        delete_when_a_change_begins,
        take_the_image_before_the_batch,
        lose_an_operation_that_waits_for_the_copy,
        serve_a_copy_before_it_has_caught_up,
        keep_what_was_given_up,
        leave_images_open,
        lose_rows_on_their_way,
        write_to_owners_only,
        count_layouts,
        suspect_by_one_super,
    )
}

AIMED_AT: dict[str, tuple[str, ...]] = {
    "count_layouts": ("drop_change", "crash_party", "crash_at_step"),
    "suspect_by_one_super": ("one_way", "partition"),
}
"""Faults to draw from where most kinds would only pass the time."""

NAMED_BY: dict[str, str] = {
    "keep_what_was_given_up": "held:",
    "leave_images_open": "rest:",
}
"""What a violation begins with where only one checker can know."""

BREAKS = (InvariantError, Refusal, AssertionError, LookupError, ValueError)
"""What a run may break down with."""
