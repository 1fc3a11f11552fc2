"""What an administrator can do with a cluster: look at it, and change who holds what (RB13 §6.4).

Rules of the file: nothing here knows how processes run. Everything goes through
the sessions of one client process, opened with the first question, so that an
embedded cluster and one behind a network are administered alike.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from functools import partial
from typing import Any

from crescando.administration.events import Chronicle, EventStream
from crescando.administration.moves import Move, Moves
from crescando.administration.plans import MovePlan, describe
from crescando.administration.progress import Progress, progress_of
from crescando.administration.questions import Questions
from crescando.administration.status import ClusterStatus, ProcessStatus, by_role, status_of
from crescando.administration.wishes import Action, Wish
from crescando.administration.worker import Worker
from crescando.backend import LoopBackend
from crescando.client.flight import Desk
from crescando.client.handles import ControlHandle
from crescando.client.waiting import TIMEOUT_S_DEFAULT
from crescando.errors import ClosedError, CrescandoError, RefusedError
from crescando.naming import Name
from crescando.routing.rubberband.changes import Change, Changes
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.messages import MessageId
from crescando.types import NO_POSITION, ProcessId

SESSION = "administration"
"""The name of the client process that asks."""


class Administration:
    """Administers one cluster; reached as ``store.cluster``.

    Every verb can be called from any thread. Those that give a `Move` return at once: wait for
    it, or await it. Questions block; their twins in ``_nowait`` give something to await.

    Parameters
    ----------
    connect : callable
        Starts a client process, by its name.
    timeout_s : float
        How long questions wait if they do not say.
    """

    def __init__(
        self, connect: Callable[[str], LoopBackend], *, timeout_s: float = TIMEOUT_S_DEFAULT
    ) -> None:
        self._connect = connect
        self._timeout_s = timeout_s
        self._opening = threading.Lock()
        self._desk: Desk | None = None
        self._client: LoopBackend | None = None
        self._questions = Questions(self._session)
        self._chronicle = Chronicle(self._present)
        self._moves = Moves(self._session, self._questions, self._chronicle, lambda: self._denial)
        self._worker = Worker(self._moves.look, self._moves.end)
        self._last: Rubberband | None = None

    # Changing who holds what.

    def expand(self, process: Name | None = None, *, at: int | None = None) -> Move:
        """Give a storage process on standby a place on the ring.

        Parameters
        ----------
        process : ProcessId or str, optional
            The first that stands by, if not given.
        at : int, optional
            Its ring position; the one that lightens the heaviest process most, if not given.
        """
        return self._begin(Wish("expand", process, at))

    def contract(self, process: Name, *, force: bool = False) -> Move:
        """Take a storage process, alive or failed, off the ring; it stands by afterwards if it lives.

        Parameters
        ----------
        process : ProcessId or str
        force : bool
            Whether fewer copies of a range may be left than are promised, or than live now. One is
            left in any case; `expand` brings back what was promised.
        """
        return self._begin(Wish("contract", process, force=force))

    def replace(self, process: Name, *, by: Name | None = None) -> Move:
        """Give the place of a storage process, alive or failed, to one on standby."""
        return self._begin(Wish("replace", process, by=by))

    def rebalance(self, process: Name | None = None, *, at: int | None = None) -> Move:
        """Give a storage process another place on the ring.

        Parameters
        ----------
        process : ProcessId or str, optional
            The one by which most is won, if not given.
        at : int, optional
            As for `expand`.
        """
        return self._begin(Wish("rebalance", process, at))

    def moves(self, *, timeout_s: float | None = None) -> tuple[Move, ...]:
        """Give every change under way, whoever has begun it, in the order in which they end."""
        return self.moves_nowait().result(timeout_s)

    def moves_nowait(self) -> ControlHandle[tuple[Move, ...]]:
        """Ask for the changes under way; the awaitable twin of `moves`."""
        return self._ask(lambda: self._moves.adopt(self._found), "the changes under way")

    def _begin(self, wish: Wish) -> Move:
        move = Move(self._checked_desk(), wish, self._cancel, f"the wish to {wish.action} the ring")
        self._worker.submit(partial(self._moves.begin, move))
        return move

    @property
    def _denial(self) -> str:
        """Why nothing may be changed from here; empty if it may."""
        return ""

    def _found(self, change: Change) -> Move:
        return Move(self._checked_desk(), None, self._cancel, describe(change.transformation))

    def _cancel(self, move: Move) -> None:
        if self._denial:
            raise RefusedError(self._denial)
        self._worker.submit(partial(self._moves.cancel, move))

    # Looking.

    def plan(
        self,
        action: Action,
        process: Name | None = None,
        *,
        at: int | None = None,
        by: Name | None = None,
        force: bool = False,
        timeout_s: float | None = None,
    ) -> MovePlan:
        """Tell what a change would do, and change nothing.

        Parameters
        ----------
        action : str
            ``expand``, ``contract``, ``replace`` or ``rebalance``.
        process, at, by, force
            As for the verb of that name.
        timeout_s : float, optional

        Returns
        -------
        MovePlan
            What would be copied and deleted, the risk, and, if it would be refused, why.
        """
        return self.plan_nowait(action, process, at=at, by=by, force=force).result(timeout_s)

    def plan_nowait(
        self,
        action: Action,
        process: Name | None = None,
        *,
        at: int | None = None,
        by: Name | None = None,
        force: bool = False,
    ) -> ControlHandle[MovePlan]:
        """Ask for a plan; the awaitable twin of `plan`."""
        wish = Wish(action, process, at, by, force)

        def plan() -> MovePlan:
            _, config = self._questions.layout()
            plan, _ = self._questions.plan(wish, config)
            return plan

        return self._ask(plan, f"the plan to {action}")

    # Processes that go.

    def remove(self, process: Name, *, timeout_s: float | None = None) -> ProcessId:
        """Have a standby, or a super, leave the cluster; its process ends, and does not come back.

        Parameters
        ----------
        process : ProcessId or str
            A storage process without a ring position; `contract` takes one off the ring first.

        Raises
        ------
        SpecError
            If no such process is a member.
        RefusedError
            If it holds a ring position, or has a part in a change; or if this client may not administer.
        """
        limit_s = self._timeout_s if timeout_s is None else timeout_s
        found: ProcessId = self._ask(
            lambda: self._questions.retire(process, limit_s), f"the leave of {process}"
        ).result(limit_s)
        return found

    # Looking.

    def status(self, *, timeout_s: float | None = None) -> ClusterStatus:
        """Tell how the cluster is."""
        return self.status_nowait().result(timeout_s)

    def status_nowait(self) -> ControlHandle[ClusterStatus]:
        """Ask how the cluster is; the awaitable twin of `status`."""
        return self._ask(self._status, "the status")

    def _status(self) -> ClusterStatus:
        stale = ""
        position = -1
        try:
            position, self._last = self._questions.layout()
        except ClosedError:
            raise
        except CrescandoError as error:
            stale = str(error)
        self._look_around()
        lead = None if stale else self._session().core.multicast.lead
        if self._last is None:
            return ClusterStatus(lead, position, self._known_routers(), *by_role(self._known()), stale=stale)
        return status_of(
            self._last,
            position=position,
            lead_router=lead,
            routers=self._known_routers(),
            is_alive={status.process: status for status in self._known()},
            progress=self._progress(self._last.changes),
            stale=stale,
        )

    def _progress(self, changes: Changes) -> dict[MessageId, Progress]:
        """Give how far changes under way are."""
        told = self._questions.copies(changes)
        return {
            change.id: progress_of(change, place, told, self._moves.planned(change.id))
            for place, change in enumerate(changes)
        }

    def _look_around(self) -> None:
        """Get to know what `_known_routers` and `_known` give."""

    def _known_routers(self) -> tuple[ProcessStatus, ...]:
        """Give the routers, as this administrator's client hears of them."""
        return tuple(ProcessStatus(router, True) for router in sorted(self._session().core.multicast.routers))

    def _known(self) -> tuple[ProcessStatus, ...]:
        """Give what is known of storage processes and supers beside the configuration."""
        return ()

    def events(self, after: int = NO_POSITION, *, timeout_s: float | None = None) -> EventStream:
        """Give what happens to the cluster, in order: for ``for`` and for ``async for``.

        Parameters
        ----------
        after : int
            The position behind which to begin: that of the last event seen, or of a `status`.
            By default with the oldest event that is remembered.
        timeout_s : float, optional
            Iteration ends when nothing has happened for so long; by default not before a day.

        Returns
        -------
        EventStream
            Of `Occurrence`; one that tells `Missed` where nobody remembers what happened.
        """
        desk = self._checked_desk()
        self._chronicle.start()
        return EventStream(desk, self._chronicle, after, timeout_s)

    # The session.

    def _present(self) -> LoopBackend:
        """Give the session that there is, as it is."""
        assert self._client is not None
        return self._client

    def _session(self) -> LoopBackend:
        self._checked_desk()
        assert self._client is not None
        return self._client

    def _checked_desk(self) -> Desk:
        with self._opening:
            if self._desk is not None:
                self._desk.check_usable()
            if self._client is None or self._client.is_over:
                # The first one, or one in place of a client that was cut off and expelled.
                if self._client is not None:
                    self._client.abandon("the administrator's client was expelled; ask again")
                self._client = self._connect(SESSION)
                self._desk = Desk(self._client, self._timeout_s)
            assert self._desk is not None
            return self._desk

    def _ask(self, question: Callable[[], object], what: str) -> ControlHandle[Any]:
        return ControlHandle(self._checked_desk(), self._worker.submit(question), lambda found: found, what)

    def leave(self, timeout_s: float) -> None:
        """Ask and follow nothing any more; what is under way goes on."""
        with self._opening:
            client, desk = self._client, self._desk
            if desk is not None:
                desk.refuse_new_work()
        if client is not None:
            # Ends what the worker waits for.
            client.abandon("the store was closed before this was answered")
        self._chronicle.close()
        self._worker.close(timeout_s)
        self._moves.end(ClosedError("the store was closed; the change goes on"))
