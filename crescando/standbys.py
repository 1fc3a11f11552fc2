"""Storage and super processes of an embedded cluster that come later, and return.

A process that starts later joins by its own first message and is told the
configuration after it; a storage process then stands by until a change of the
keyspace gives it a part of the ring. One that was taken for dead and lives has
lost its place: its node serves again, under a new name.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable

from crescando.assembly import Assembly
from crescando.engine.base import Engine
from crescando.errors import CrescandoError, DeadlineError, SpecError
from crescando.hosting import Processes
from crescando.loop import LoopThread
from crescando.roles.storage import Storage
from crescando.roles.super import Super
from crescando.router_group import RouterGroup
from crescando.routing.rubberband.config import Rubberband
from crescando.types import ProcessId

LETTERS = {"storage": "s", "super": "u"}
"""With what the names of nodes begin, by role."""

JOIN_POLL_S = 0.01
"""Spacing of looks whether a process has joined."""


class Standbys:
    """Starts the storage and super processes of one embedded cluster.

    Parameters
    ----------
    processes : Processes
    assembly : Assembly
    loop : LoopThread
    routers : RouterGroup
    make_engine : callable
        Gives what a storage process keeps its rows in.
    """

    def __init__(
        self,
        processes: Processes,
        assembly: Assembly,
        loop: LoopThread,
        routers: RouterGroup,
        make_engine: Callable[[], Engine],
    ) -> None:
        self._processes = processes
        self._assembly = assembly
        self._loop = loop
        self._routers = routers
        self._make_engine = make_engine

    def start(self, me: ProcessId) -> None:
        """Start a process: one of the first, or one that joins. Called in the loop's thread."""
        routers = self._routers.present()
        core: Storage | Super[Rubberband]
        engine: Engine | None = None
        if me.role == "storage":
            core, engine = self._assembly.storage(me, routers), self._make_engine()
            # A ring member begins with its share, whoever joins with nothing.
            engine.set_arcs(self._assembly.config.owned_arcs(me))
        else:
            core = self._assembly.super_(me, routers)

        def ended() -> None:
            if core.following.is_expelled and not core.following.is_leaving:
                # It was taken for dead. What it knew is of no use; its node may serve again.
                self.start(self._processes.next_incarnation(me))

        self._processes.run(core, engine, ended=ended)

    def add(self, role: str, node: str | None = None, *, timeout_s: float = 10.0) -> ProcessId:
        """Start a process that joins; returns when it is a member.

        Parameters
        ----------
        role : str
            ``storage`` or ``super``.
        node : str, optional
            A new one, or one whose process has ended; the next free name by default.

        Raises
        ------
        SpecError
            If a process of that name runs.
        DeadlineError
            If it takes longer than `timeout_s`; it may join yet.
        """

        def start() -> ProcessId:
            me = self._name(role, node)
            self.start(me)
            return me

        me = self._loop.call(start)
        deadline_s = time.monotonic() + timeout_s
        while not self._loop.call(lambda: self._has_joined(me)):
            if time.monotonic() > deadline_s:
                raise DeadlineError(f"{me} has not joined within {timeout_s:.1f} s")
            time.sleep(JOIN_POLL_S)
        return me

    def _name(self, role: str, node: str | None) -> ProcessId:
        known = {process.node: process for process in self._processes.of_role(role)}
        if node is None:
            letter = LETTERS[role]
            node = next(name for n in itertools.count(1) if (name := f"{letter}{n}") not in known)
        former = known.get(node)
        if former is None:
            return ProcessId(role, node, 1)
        if self._processes[former].is_running:
            raise SpecError(f"{former} runs; end it first, or start a node of another name")
        return self._processes.next_incarnation(former)

    def _has_joined(self, me: ProcessId) -> bool:
        hosted = self._processes[me]
        if not hosted.is_running:
            raise CrescandoError(f"{me} stopped before it had joined: {hosted.reason}")
        assert isinstance(hosted.core, Storage | Super)
        return hosted.core.following.is_joined
