"""The ordering group of an embedded cluster: routers that come, go and return.

Changes are asked of the router that leads, and waited for from outside the
loop; the group itself agrees on them (`consensus.membership`).
"""

from __future__ import annotations

import itertools
import random
import time
from collections.abc import Callable

from crescando.assembly import Assembly
from crescando.consensus.quorum import Membership
from crescando.errors import CrescandoError, DeadlineError, SpecError
from crescando.hosting import Processes
from crescando.loop import LoopThread
from crescando.roles.description import may_pass
from crescando.routing.ecast.router import Router
from crescando.types import ProcessId

ROUTERS_POLL_S = 0.01
"""Spacing of looks at the routers while they change."""


class RouterGroup:
    """The routers of one embedded cluster.

    Parameters
    ----------
    processes : Processes
    assembly : Assembly
    loop : LoopThread
    seed : int or None
        Of election jitter; None: not fixed.
    """

    def __init__(self, processes: Processes, assembly: Assembly, loop: LoopThread, seed: int | None) -> None:
        self._processes = processes
        self._assembly = assembly
        self._loop = loop
        self._seed = seed
        self._dismissed: set[ProcessId] = set()

    def start(self, me: ProcessId) -> None:
        """Start a router; called in the loop's thread."""
        chance = random.Random(None if self._seed is None else f"{self._seed}/{me}")
        core = self._assembly.router(me, chance, routers=self.present())

        def ended() -> None:
            if core.broadcast.is_dismissed and me not in self._dismissed:
                # It was taken for dead. What it knew is of no use; its node may serve again.
                self.start(self._processes.next_incarnation(me))

        self._processes.run(core, ended=ended)

    def present(self) -> tuple[ProcessId, ...]:
        """Give the members, as the newest change makes them; called in the loop's thread."""
        newest = max(
            (router.broadcast.membership for router in self._processes.running_routers()),
            key=lambda membership: membership.number,
            default=None,
        )
        return self._assembly.names.routers if newest is None else newest.members

    def add(self, *, timeout_s: float = 10.0) -> ProcessId:
        """Let the ordering group grow by a new router; returns when it is a member.

        Raises
        ------
        CrescandoError
            If the routers refuse.
        DeadlineError
            If it takes longer than `timeout_s`; the router stands by then.
        """

        def start() -> ProcessId:
            known = {process.node for process in self._processes if process.role == "router"}
            number = next(n for n in itertools.count(1) if f"r{n}" not in known)
            me = ProcessId("router", f"r{number}", 1)
            self.start(me)
            return me

        router = self._loop.call(start)
        try:
            self._change(timeout_s, add=router)
        except DeadlineError:
            raise
        except CrescandoError:
            self._loop.call(lambda: self._processes.end(router, "refused by the routers"))
            raise
        return router

    def remove(self, process: ProcessId | str, *, timeout_s: float = 10.0) -> None:
        """Let the ordering group shrink by a router, alive or dead; returns when it has left and stopped.

        Raises
        ------
        SpecError
            If there is no such router.
        CrescandoError
            If the routers refuse: it is the last one, or too few would be left alive.
        DeadlineError
            If it takes longer than `timeout_s`.
        """
        router = self._processes.identify(process)
        if router.role != "router":
            raise SpecError(f"{router} is no router; remove_router takes one")
        deadline_s = time.monotonic() + timeout_s
        self._dismissed.add(router)
        try:
            self._change(timeout_s, remove=router)
        except DeadlineError:
            # It may be removed yet.
            raise
        except CrescandoError:
            self._dismissed.discard(router)
            raise
        # It answers until it is not needed any more, and then stops by itself.
        while self._processes[router].is_running and time.monotonic() < deadline_s:
            time.sleep(ROUTERS_POLL_S)

    def restart(self, process: ProcessId | str, *, timeout_s: float = 10.0) -> ProcessId:
        """Start a router's node again, as a new incarnation; returns when it is a member.

        What the former incarnation promised and knew is gone with it: the new one
        joins as a member of its own and replaces the former.

        Raises
        ------
        SpecError
            If there is no such router.
        CrescandoError
            If it runs, and no majority would be left without it.
        DeadlineError
            If it takes longer than `timeout_s`.
        """
        former = self._processes.identify(process)
        if former.role != "router":
            raise SpecError(f"{former} is no router; restart_router takes one")

        def start() -> ProcessId:
            if self._processes[former].is_running:
                members = self.present()
                left = [p for p in members if p != former and self._processes[p].is_running]
                if former in members and not Membership(0, members).is_quorum(left):
                    raise CrescandoError(
                        f"without {former} no majority of the {len(members)} routers is left, "
                        "and with it what they know; add a router, then remove this one"
                    )
                self._processes.end(former, "restarted")
            me = self._processes.next_incarnation(former)
            self.start(me)
            return me

        router = self._loop.call(start)
        self._await(timeout_s, lambda members: router in members)
        return router

    def _change(
        self, timeout_s: float, *, add: ProcessId | None = None, remove: ProcessId | None = None
    ) -> None:
        deadline_s = time.monotonic() + timeout_s

        def ask() -> str:
            return self._processes.change_routers(add=add, remove=remove)

        fault = self._loop.call(ask)
        while fault and may_pass(fault, add) and time.monotonic() < deadline_s:
            time.sleep(ROUTERS_POLL_S)
            fault = self._loop.call(ask)
        if fault:
            raise CrescandoError(f"the routers do not change: {fault}")
        is_done = (lambda members: add in members) if add is not None else (lambda m: remove not in m)
        self._await(deadline_s - time.monotonic(), is_done)

    def _await(self, timeout_s: float, is_done: Callable[[tuple[ProcessId, ...]], bool]) -> None:
        """Wait until the membership in force is as it should be, and can do without the one before.

        That one decides the instances before it came into force: until a majority of the
        new members has learned them, nobody of it may be killed in good conscience.
        """
        deadline_s = time.monotonic() + timeout_s

        def look() -> bool:
            leader = self._processes.leader()
            if leader is None:
                return False
            membership = leader.broadcast.membership
            informed = [me for me in membership.members if self._has_learned(me, membership.start - 1)]
            return is_done(membership.members) and membership.is_quorum(informed)

        while not self._loop.call(look):
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"the routers have not changed within {timeout_s:.1f} s")
            time.sleep(ROUTERS_POLL_S)

    def _has_learned(self, me: ProcessId, instance: int) -> bool:
        process = self._processes[me]
        core = process.core
        return process.is_running and isinstance(core, Router) and core.broadcast.learned >= instance
