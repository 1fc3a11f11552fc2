"""Faults planted into the copying of ranges, each of which the walks of `test_moves` find."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from crescando.engine.base import Engine
from crescando.engine.operations import Entry
from crescando.errors import CrescandoError
from crescando.roles import areas
from crescando.roles.areas import Areas, Barrier, Recut, TakeImage
from crescando.roles.copies import Copies
from crescando.roles.cycles import Executed, Execution
from crescando.roles.incoming import Incoming
from crescando.roles.outgoing import Outgoing
from crescando.roles.reporting import Reporter
from crescando.scopes import cut, subtract
from tests.roles import test_moves

SEEDS = 40

Patch = Callable[[type, str, Callable[..., Any]], None]


def deletes_at_the_beginning(patch: Patch) -> None:
    """The sender gives a range up as soon as it has its image, not at the end of the change."""
    carry_out = Areas.carry_out

    def early(self: Areas, step: Barrier, engine: Engine) -> None:
        carry_out(self, step, engine)
        if isinstance(step, TakeImage):
            engine.set_arcs(cut(subtract(self._held, step.scope), ()))

    patch(Areas, "carry_out", early)


def never_deletes(patch: Patch) -> None:
    """Whoever owns a range no more keeps its rows."""
    recut = Areas._recut

    def keep(self: Areas, step: Recut, engine: Engine) -> None:
        recut(self, Recut(step.owned, (*self._held, *step.wanted), step.borders, step.is_first), engine)

    patch(Areas, "_recut", keep)


def exports_before_its_batch(patch: Patch) -> None:
    """The image is taken at the beginning of the cycle: it misses the updates before it there."""
    run = Execution.run

    def hasty(self: Execution, engine: Engine, clock: Any = None) -> Executed:
        order = sorted(range(len(self.steps)), key=lambda at: not isinstance(self.steps[at], TakeImage))
        steps = tuple(self.steps[at] for at in order)
        sizes = tuple(self.written_bytes[at] for at in order)
        return run(_replaced(self, steps, sizes), engine, clock)

    patch(Execution, "run", hasty)


def _replaced(work: Execution, steps: tuple[Any, ...], sizes: tuple[int, ...]) -> Execution:
    return Execution(
        steps, work.upto, work.cancelled, work.questions, work.weighs, work.weighings, sizes, work.copies
    )


def forgets_what_came_while_it_caught_up(patch: Patch) -> None:
    """What is executed when all rows have arrived goes into no log."""
    note = Areas.note

    def forgetful(self: Areas, entries: Sequence[Entry], n_bytes: int) -> None:
        if not any(area.is_whole and area.engine is not None for area in self._areas.values()):
            note(self, entries, n_bytes)

    patch(Areas, "note", forgetful)


def opens_its_log_late(patch: Patch) -> None:
    """What shares the cycle with the beginning of the change goes into no log."""
    note = Areas.note

    def late(self: Areas, entries: Sequence[Entry], n_bytes: int) -> None:
        if all(area.log or area.n_taken for area in self._areas.values()) or self._turn % 2:
            note(self, entries, n_bytes)

    patch(Areas, "note", late)


def replays_twice(patch: Patch) -> None:
    """The first operations of a log are executed twice."""
    replay = areas._replay

    def twice(area: Any, engine: Engine, operations_max: int) -> Any:
        again = [logged for logged in area.log if isinstance(logged.work, tuple)][:1]
        done = replay(area, engine, operations_max)
        for logged in again:
            engine.execute(logged.work)
        return done

    patch(areas, "_replay", twice)  # type: ignore[arg-type]


def is_ready_too_soon(patch: Patch) -> None:
    """The receiver takes the area over although one step of the log is left."""
    replay = areas._replay

    def hasty(area: Any, engine: Engine, operations_max: int) -> Any:
        done = replay(area, engine, 1)
        if len(area.log) == 1:
            area.log.clear()
        return done

    patch(areas, "_replay", hasty)  # type: ignore[arg-type]


def says_ready_with_the_last_parcel(patch: Patch) -> None:
    """Ready is said when everything has arrived, whether or not it is executed."""
    verdict = Incoming.verdict

    def hasty(self: Incoming, now_s: float, *, is_full: bool) -> Any:
        if not self.is_over and self.has_begun and self.is_whole:
            self.is_over = True
            return areas_ready(self)
        return verdict(self, now_s, is_full=is_full)

    patch(Incoming, "verdict", hasty)


def areas_ready(incoming: Incoming) -> Any:
    from crescando.routing.rubberband import Ready

    return Ready(incoming.copy.change, incoming.copy.number)


def forgets_outcomes_that_came_along(patch: Patch) -> None:
    """Outcomes that come with a range are thrown away."""
    patch(Reporter, "keep_moved", lambda self, outcomes, now_s: None)


def forgets_outcomes_of_the_log(patch: Patch) -> None:
    """What the log's writes did is thrown away."""
    patch(Reporter, "keep_replayed", lambda self, results: None)


def skips_a_piece_after_a_lost_session(patch: Patch) -> None:
    """A new session goes on behind what was on its way when the old one was lost."""
    end_session = Outgoing.end_session

    def careless(self: Outgoing) -> None:
        sent = self._next
        end_session(self)
        self._next = sent

    patch(Outgoing, "end_session", careless)


def copies_from_one_that_receives(patch: Patch) -> None:
    """A queued copy begins at once, though its sender holds nothing of it yet."""
    follow = Copies.follow

    class Hasty:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        def __getattr__(self, name: str) -> Any:
            return getattr(self._inner, name)

        def transfers(self, process: Any) -> Any:
            return tuple(each._replace(awaited=()) for each in self._inner.transfers(process))

    patch(Copies, "follow", lambda self, layout, at, now_s: follow(self, Hasty(layout), at, now_s))


def cuts_areas_by_their_first_borders(patch: Patch) -> None:
    """An area that is open is not cut anew when another change begins."""
    note = Areas._note

    def blind(self: Areas, logged: Any) -> None:
        if not isinstance(logged.work, Recut):
            note(self, logged)

    patch(Areas, "_note", blind)


PLANTS = (
    deletes_at_the_beginning,
    never_deletes,
    exports_before_its_batch,
    forgets_what_came_while_it_caught_up,
    opens_its_log_late,
    replays_twice,
    is_ready_too_soon,
    says_ready_with_the_last_parcel,
    forgets_outcomes_that_came_along,
    forgets_outcomes_of_the_log,
    skips_a_piece_after_a_lost_session,
    copies_from_one_that_receives,
    cuts_areas_by_their_first_borders,
)


@pytest.mark.parametrize("plant", PLANTS, ids=lambda plant: plant.__name__)
def test_a_planted_fault_is_found(plant: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch.setattr)

    for seed in range(SEEDS):
        try:
            test_moves.walk(seed)
        except (AssertionError, CrescandoError, LookupError, ValueError):
            return
    pytest.fail(f"not found in {SEEDS} seeds: {plant.__doc__}")
