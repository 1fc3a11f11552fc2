"""What an administrator asks a cluster, through the sessions of one client process.

Rules of the file: every question blocks, with a deadline; none changes
anything. Nobody is asked but over sessions that a client has: the router that
leads for the configuration, storage processes for what they hold.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from concurrent.futures import Future
from functools import partial
from typing import Any

from crescando.administration.plans import MovePlan, plan_for
from crescando.administration.progress import Copying
from crescando.administration.wishes import Wish
from crescando.backend import LoopBackend
from crescando.errors import CrescandoError, DeadlineError, RefusedError
from crescando.naming import Name, identify
from crescando.roles.copy_messages import AskCopies, CopiesTold, CopyId, CopyProgress
from crescando.roles.messages import RANGES_WEIGHED, Retire, Retires, Weigh, Weighs
from crescando.routing.rubberband.changes import Changes
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.placement import Weight, Weights, cut, cut_at
from crescando.types import KeyRange, ProcessId

ANSWER_S = 5.0
"""How long an answer is waited for; a new leader is there by then."""

COPIES_S = 0.5
"""How long receivers are waited for that are asked how copies get on."""

PARTS = 16
"""Parts in which an arc is weighed, and again each part in which much lies."""

FINE = 4
"""A part is cut again while it holds more than one part in so many of what `plan` would warn of."""

RETIRE_POLL_S = 0.02
"""Spacing of looks whether a process has left."""

ROUNDS_MAX = 16
"""Sixteen cuts in sixteen parts lead from the whole ring to single positions."""


Weighed = tuple[Weights, tuple[str, ...]]
"""The weights of the ring, and what could not be learned of them."""


class Questions:
    """Asks for one administrator.

    Parameters
    ----------
    backend : callable
        Gives the client process to ask through.
    """

    def __init__(self, backend: Callable[[], LoopBackend]) -> None:
        self._backend = backend

    def layout(self, timeout_s: float = ANSWER_S) -> tuple[int, Rubberband]:
        """Give the present configuration, and the position it is of.

        Raises
        ------
        CrescandoError
            If nobody leads, or nobody answers in time.
        """
        layout: tuple[int, Rubberband] = answer(self._backend().layout(), timeout_s, "the router that leads")
        return layout

    def plan(
        self, wish: Wish, config: Rubberband, weighed: Weighed | None = None
    ) -> tuple[MovePlan, Weighed | None]:
        """Plan what is wished for, and give what was weighed for it too.

        Parameters
        ----------
        weighed : optional
            From a plan before, if one has just been made.
        """
        if weighed is None:
            # What cannot be whatever the weights are needs no weighing.
            plan = plan_for(wish, config, Weights())
            if plan.refusal and not wish.needs_weights:
                return plan, None
            weighed = self.weights(config)
        return plan_for(wish, config, *weighed), weighed

    def weights(self, config: Rubberband) -> Weighed:
        """Weigh the ring: finely where much lies.

        Returns
        -------
        Weighed
        """
        pieces = cut_at((*config.ring.ids, *config.target.ids))
        known: dict[KeyRange, Weight] = {}
        silent: set[str] = set()
        wanted = [part for piece in pieces for part in cut(piece, PARTS)]
        for _ in range(ROUNDS_MAX):
            # All of them may lie with one owner, which answers no longer question.
            for start in range(0, len(wanted), RANGES_WEIGHED):
                known.update(self._weigh(config, wanted[start : start + RANGES_WEIGHED], silent))
            weights = Weights.of(known)
            limit = weights.n_rows / (2 * FINE * len(config.target.processes))
            coarse = [part for part in weights.heavier_than(limit) if part.low < part.high]
            if not coarse:
                break
            for part in coarse:
                del known[part]
            wanted = [finer for part in coarse for finer in cut(part, PARTS)]
        return weights, tuple(f"not weighed: {each}" for each in sorted(silent))

    def retire(self, name: Name, timeout_s: float) -> ProcessId:
        """Have a process leave that holds no position; gives it when it is no member any more.

        Raises
        ------
        SpecError
            If no such process is a member, or it is no storage process and no super.
        CrescandoError
            If the order refuses, as it does while the process holds a position; it says why.
        DeadlineError
            If it takes longer than `timeout_s`; it may leave yet.
        """
        deadline_s = time.monotonic() + timeout_s
        _, config = self.layout(timeout_s)
        process = identify(
            name, sorted(config.storages | config.supers), "among the storage processes and supers"
        )
        told = self._backend().ask(process, Retire)
        while True:
            # Looked at before the configuration is: one that has left has gone away too.
            fault = told.exception() if told.done() else None
            if told.done() and fault is None and isinstance(refused := told.result(), Retires):
                raise RefusedError(refused.refusal)
            _, config = self.layout(max(0.0, deadline_s - time.monotonic()))
            if not config.is_member(process):
                return process
            if fault is not None:
                raise CrescandoError(f"{process} cannot be asked to leave: {fault}") from fault
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"{process} has not left within {timeout_s:.1f} s")
            time.sleep(RETIRE_POLL_S)

    def copies(self, changes: Changes) -> Copying:
        """Ask the receivers of changes how their copies get on."""
        receivers = {copy.receiver for change in changes for copy in change.copies}
        asked = {receiver: self._backend().ask(receiver, AskCopies) for receiver in sorted(receivers)}
        deadline_s = time.monotonic() + COPIES_S
        found: dict[CopyId, CopyProgress] = {}
        silent: set[ProcessId] = set()
        for receiver, future in asked.items():
            try:
                told = answer(future, deadline_s - time.monotonic(), str(receiver))
            except CrescandoError:
                silent.add(receiver)
                continue
            if isinstance(told, CopiesTold):
                found.update((each.copy, each) for each in told.incoming)
        return Copying(found, frozenset(silent))

    def _weigh(
        self, config: Rubberband, ranges: Iterable[KeyRange], silent: set[str]
    ) -> dict[KeyRange, Weight]:
        """Weigh ranges, each of which lies in one arc; what nobody tells weighs nothing."""
        asked: dict[ProcessId, list[KeyRange]] = {}
        found: dict[KeyRange, Weight] = dict.fromkeys(ranges, (0, 0))
        for each in found:
            for owner in config.live_owners(each)[:1]:
                asked.setdefault(owner, []).append(each)
        futures = {
            owner: self._backend().ask(owner, partial(_weigh_question, ranges=tuple(here)))
            for owner, here in asked.items()
        }
        deadline_s = time.monotonic() + ANSWER_S
        for owner, future in futures.items():
            try:
                told = answer(future, deadline_s - time.monotonic(), str(owner))
            except CrescandoError as error:
                silent.add(str(error))
                continue
            if isinstance(told, Weighs) and len(told.weights) == len(asked[owner]):
                found.update(zip(asked[owner], told.weights, strict=True))
            else:
                silent.add(f"{owner} has too much to do")
        return found


def _weigh_question(request: int, *, ranges: tuple[KeyRange, ...]) -> Weigh:
    return Weigh(request, ranges)


def answer(future: Future[Any], timeout_s: float, whom: str) -> Any:
    """Wait for an answer.

    Raises
    ------
    CrescandoError
        As the question failed; `DeadlineError` if it takes longer.
    """
    try:
        return future.result(max(0.0, timeout_s))
    except TimeoutError:
        raise DeadlineError(f"{whom} has not answered within {timeout_s:.1f} s") from None
