"""Changes of the keyspace as an administrator sees them: begun, followed, called off.

Rules of the file: a move is planned for the present layout behind all changes
under way; if the layout moves on before the order has it, it is planned again,
a few times, and then told. Once ordered it is the cluster's, and goes on
whoever asked for it: its administrator only looks. What became of it is told
by the supers, which follow the order, and, should none of them answer, by the
configuration.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, replace

from crescando.administration.events import Chronicle
from crescando.administration.plans import MovePlan, describe, plan_of
from crescando.administration.progress import Progress, State, progress_of
from crescando.administration.questions import Questions, Weighed
from crescando.administration.wishes import Wish
from crescando.backend import LoopBackend
from crescando.client.flight import Desk
from crescando.client.handles import ControlHandle
from crescando.errors import CrescandoError, MoveDroppedError, OperationError, RefusedError, SpecError
from crescando.routing.rubberband.changes import Change
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.happenings import Dropped, Ended
from crescando.routing.rubberband.keyspace import (
    Contract,
    Expand,
    Rebalance,
    Replace,
    Transformation,
)
from crescando.routing.rubberband.messages import DropChange, MessageId, Reconfigure
from crescando.routing.rubberband.placement import Weight
from crescando.routing.rubberband.ring import Ring

ATTEMPTS = 5
"""How often a move is planned anew because the layout moved on; two administrators at once need one."""

POLL_S = 0.1
"""Spacing of looks at moves under way."""

ORDER_S = 60.0
"""How long the order may take a message before it is taken for lost; a client gives up long before."""

LOOKS = 20
"""How often the end of a move is asked of the supers before it is taken from the configuration."""


@dataclass(frozen=True, slots=True)
class Moved:
    """A move that has ended as it was to.

    Attributes
    ----------
    transformation : Transformation
    change : MessageId
        The message that began it.
    rows, n_bytes : int
        What was to go, as it was weighed when it was planned.
    took_s : float
        From the asking to the end, as its administrator noticed them.
    """

    transformation: Transformation
    change: MessageId
    rows: int
    n_bytes: int
    took_s: float

    def __str__(self) -> str:
        return f"{describe(self.transformation)}; done in {self.took_s:.1f} s"


class Move(ControlHandle[Moved]):
    """A change of the keyspace on its way; made by `expand` and its like.

    It can be waited for (`result`, or ``await`` it), looked at and cancelled. Its result is a
    `Moved`; it raises `MoveDroppedError` if the change was dropped, `SpecError` if there is no
    such change, `RefusedError` if the order refused it. Whoever stops waiting stops nothing.
    """

    __slots__ = (
        "_begun_s",
        "_cancel",
        "_cancelled",
        "_looks",
        "change",
        "outcome",
        "plan",
        "progress",
        "wish",
    )

    def __init__(self, desk: Desk, wish: Wish | None, cancel: Callable[[Move], None], what: str) -> None:
        self.outcome: Future[Moved] = Future()
        super().__init__(desk, self.outcome, lambda moved: moved, what)
        self.wish = wish
        self.plan: MovePlan | None = None
        """As it was ordered; None before, and of a move that somebody else began."""
        self.change: MessageId | None = None
        """The message that began it, once it is submitted."""
        self.progress = Progress()
        """How far it was at the last look."""
        self._cancel = cancel
        self._cancelled = ""
        self._looks = 0
        self._begun_s = time.monotonic()

    def cancel(self, reason: str = "cancelled by an administrator") -> None:
        """Ask that it be dropped: the layout before it then stands, and what is queued behind it falls too.

        Returns at once. Which of the two came first, its end or this, `result` tells.
        """
        self._cancelled = reason
        self._cancel(self)

    def _name(self) -> str:
        known = None if self.plan is None else self.plan.transformation
        return super()._name() if known is None else describe(known)

    def __repr__(self) -> str:
        return f"<move: {self._name()}; {self.progress}>"


class Moves:
    """The moves that one administrator follows; all of it is for the worker's thread.

    Parameters
    ----------
    backend : callable
        Gives the client process that submits.
    questions : Questions
    chronicle : Chronicle
    denial : callable
        Says why the order would not take a change from here, as far as is known; empty if it would.
    """

    def __init__(
        self,
        backend: Callable[[], LoopBackend],
        questions: Questions,
        chronicle: Chronicle,
        denial: Callable[[], str],
    ) -> None:
        self._backend = backend
        self._denial = denial
        self._questions = questions
        self._chronicle = chronicle
        self._followed: dict[MessageId, Move] = {}
        self._position = -1

    # Beginning.

    def begin(self, move: Move) -> None:
        """Plan a move and have it ordered."""
        try:
            self._begin(move)
        except Exception as error:  # noqa: BLE001  # Whatever it is, whoever waits is told.
            self._fail(move, error)

    def _begin(self, move: Move) -> None:
        assert move.wish is not None
        if denial := self._denial():
            # The routers would say so too, after each plan.
            raise RefusedError(denial)
        weighed: Weighed | None = None
        for attempt in range(1, ATTEMPTS + 1):
            _, config = self._questions.layout()
            plan, weighed = self._questions.plan(move.wish, config, weighed)
            if move._cancelled:
                raise MoveDroppedError(move._cancelled)
            if plan.refusal or plan.transformation is None:
                raise SpecError(plan.refusal)
            move.plan = plan
            try:
                self._order(move, Reconfigure(plan.transformation, plan.instructions, plan.layout))
            except RefusedError:
                move.change = None
                if attempt == ATTEMPTS:
                    raise
                # Most likely the layout moved on; if so, the next plan is for the new one.
                continue
            self._follow(move, plan)
            return

    def _order(self, move: Move, message: Reconfigure) -> None:
        """Submit the message that begins a move; returns when it is ordered.

        Raises
        ------
        OperationError
            If it is not, or nobody can tell.
        """
        client = self._backend()

        def numbered(number: int) -> None:
            move.change = MessageId(client.core.me, number)

        ordered = client.order(message, numbered)
        deadline_s = time.monotonic() + ORDER_S
        while time.monotonic() < deadline_s:
            try:
                ordered.result(POLL_S)
            except TimeoutError:
                # A process that is slow to confirm need not be waited for, if the change is there.
                if self._is_under_way(move):
                    return
            except RefusedError:
                raise
            except OperationError:
                if self._is_under_way(move):
                    return
                raise
            else:
                return
        raise OperationError(
            f"nobody knows whether {move._name()} has begun; status() tells whether it is there"
        )

    def _is_under_way(self, move: Move) -> bool:
        try:
            _, config = self._questions.layout(1.0)
        except CrescandoError:
            return False
        return any(change.id == move.change for change in config.changes)

    # Following.

    def planned(self, change: MessageId) -> tuple[Weight, ...]:
        """Give what the copies of a change weigh, if it is followed."""
        move = self._followed.get(change)
        return () if move is None or move.plan is None else move.plan.weights

    def look(self) -> float | None:
        """See how far the moves are; gives the time until the next look, None if there is none to follow."""
        if not self._followed:
            return None
        try:
            position, config = self._questions.layout(1.0)
        except CrescandoError as error:
            for move in self._followed.values():
                move.progress = replace(move.progress, blocker=f"the routers ({error})")
            return POLL_S
        if position < self._position:
            # A new leader has not learned yet what the one before it told.
            return POLL_S
        self._position = position
        told = self._questions.copies(config.changes)
        under_way = {change.id: place for place, change in enumerate(config.changes)}
        for change, move in list(self._followed.items()):
            place = under_way.get(change)
            if place is None:
                self._conclude(change, move, config)
            else:
                assert move.plan is not None
                move.progress = progress_of(config.changes[place], place, told, move.plan.weights)
        return POLL_S if self._followed else None

    def _conclude(self, change: MessageId, move: Move, config: Rubberband) -> None:
        """Tell what has become of a move that is under way no more."""
        plan = move.plan
        assert plan is not None
        transformation = plan.transformation
        assert transformation is not None
        told = self._chronicle.conclusion(change)
        if told is None and move._looks < LOOKS:
            # The supers will tell, or the router that was asked has not learned yet that it has begun.
            move._looks += 1
            return
        if told is None:
            is_done = config.ring == plan.after or has_effect(transformation, config.ring)
        else:
            is_done = isinstance(told.what, Ended)
        del self._followed[change]
        if is_done:
            took_s = time.monotonic() - move._begun_s
            move.progress = replace(
                move.progress,
                state="done",
                ready=len(plan.copies),
                rows=plan.rows,
                n_bytes=plan.n_bytes,
                eta_s=0.0,
                blocker="",
            )
            move.outcome.set_result(Moved(transformation, change, plan.rows, plan.n_bytes, took_s))
        else:
            reason = told.what.reason if told and isinstance(told.what, Dropped) else ""
            self._fail(move, MoveDroppedError(reason or self._reason(move, config)))

    @staticmethod
    def _reason(move: Move, config: Rubberband) -> str:
        """Say why a move was dropped, as far as the configuration tells."""
        assert move.plan is not None
        parties = {party for copy in move.plan.copies for party in (copy.sender, copy.receiver)}
        out = sorted(parties.difference(config.storages))
        mute = sorted(parties.intersection(config.pending))
        if out:
            return f"{', '.join(map(str, out))}, which had a part in it, has failed"
        if mute:
            return f"{', '.join(map(str, mute))}, which had a part in it, answers no more"
        return move._cancelled or "somebody called it off, or a change before it was dropped"

    def cancel(self, move: Move) -> None:
        """Have a move dropped, if it has begun and not ended."""
        if move.done() or move.change is None:
            return
        # Nobody waits for it: the supers tell what came of it. It is refused if the move has ended before.
        self._backend().order(DropChange(move.change, move._cancelled), _not_numbered)

    # What others have begun.

    def adopt(self, make: Callable[[Change], Move]) -> tuple[Move, ...]:
        """Give every change under way as a move to be followed, in the order in which they end."""
        _, config = self._questions.layout()
        if any(change.id not in self._followed for change in config.changes):
            weights, _ = self._questions.weights(config)
            for change in config.changes:
                if change.id not in self._followed:
                    move = make(change)
                    move.change, move.plan = change.id, plan_of(change, config, weights)
                    self._follow(move, move.plan)
        return tuple(self._followed[change.id] for change in config.changes)

    def _follow(self, move: Move, plan: MovePlan) -> None:
        assert move.change is not None
        move.progress = replace(
            move.progress,
            state="queued",
            copies=len(plan.copies),
            rows_total=plan.rows,
            bytes_total=plan.n_bytes,
        )
        self._chronicle.start()
        self._followed[move.change] = move

    def _fail(self, move: Move, error: Exception) -> None:
        state: State = "dropped" if isinstance(error, MoveDroppedError) else "failed"
        move.progress = replace(move.progress, state=state, blocker="", eta_s=None)
        if not move.outcome.done():
            move.outcome.set_exception(error)

    def end(self, error: Exception) -> None:
        """Follow nothing any more; the moves go on."""
        for move in self._followed.values():
            if not move.outcome.done():
                move.outcome.set_exception(error)
        self._followed.clear()


def has_effect(transformation: Transformation, ring: Ring) -> bool:
    """Say whether a ring is as a transformation leaves the processes it is about."""
    at = dict(zip(ring.processes, ring.ids, strict=True))
    match transformation:
        case Expand(process, wanted) | Rebalance(process, wanted):
            return at.get(process) == wanted
        case Contract(process):
            return process not in at
        case Replace(process, by):
            return by in at and process not in at


def _not_numbered(_: int) -> None:
    """A message of which nobody wants to know the number."""
