"""What is said of the processes of an event loop; read in its thread."""

from __future__ import annotations

import importlib.metadata
import os
import time
from collections.abc import Iterable
from typing import Any

from crescando.hosting import Hosted, Processes
from crescando.process import ProcessCore
from crescando.roles.description import Described, Hosts, Place
from crescando.routing.ecast.router import Router
from crescando.types import NO_POSITION, ProcessId

VERSION = importlib.metadata.version("crescando")


def lead_of(core: ProcessCore | None) -> ProcessId | None:
    """Give the router that a process believes to lead."""
    if isinstance(core, Router):
        lead: ProcessId | None = core.broadcast.leader
        return lead
    return getattr(getattr(core, "multicast", None), "lead", None)


def position_of(core: ProcessCore | None) -> int:
    """Give the last position that a process has learned or delivered."""
    if isinstance(core, Router):
        return int(core.mseq.position)
    return int(getattr(getattr(core, "multicast", None), "delivered", NO_POSITION))


def stands_by(core: ProcessCore | None) -> bool:
    """Say whether a process is a router with no place in the ordering group, nor a former life with one."""
    if not isinstance(core, Router):
        return False
    return all(member.node != core.me.node for member in core.broadcast.membership.members)


def host_of(process: ProcessId, hosted: Hosted, counters: dict[str, int]) -> Hosts:
    """Say how one process stands."""
    lead = lead_of(hosted.core)
    return Hosts(
        process=process,
        is_running=hosted.is_running,
        is_ready=hosted.is_running and lead is not None,
        reason=hosted.reason,
        lead=lead,
        position=position_of(hosted.core),
        counters=counters,
        is_standby=hosted.is_running and stands_by(hosted.core),
    )


def describe_processes(
    processes: Processes | None,
    routers: tuple[ProcessId, ...],
    places: Iterable[Place],
    request_bytes: int,
) -> Described:
    """Say how processes stand.

    Parameters
    ----------
    processes : Processes or None
        None if none has begun.
    routers : tuple of ProcessId
        Members of the ordering group, if no process here knows better.
    places : iterable of Place
        Where everybody listens.
    request_bytes : int
        How long one request of a client may be.
    """
    hosts: list[Hosts] = []
    config = b""
    if processes is not None:
        counters = processes.counters()
        latest = [me for role in ("router", "storage", "super") for me in processes.of_role(role)]
        hosts = [host_of(me, processes[me], counters.get(me, {})) for me in latest]
        newest = max(processes.running_routers(), key=_knowledge, default=None)
        if newest is not None:
            config = newest.mseq.config.encode()
            routers = newest.broadcast.membership.members
        else:
            known = (getattr(processes[me].core, "multicast", None) for me in latest)
            routers = next((each.routers for each in known if each is not None), routers)
    return Described(
        version=VERSION,
        pid=os.getpid(),
        now_s=time.time(),
        hosts=tuple(hosts),
        routers=routers,
        config=config,
        places=tuple(places),
        request_bytes=request_bytes,
    )


def _knowledge(router: Router[Any]) -> tuple[int, int]:
    return router.broadcast.membership.number, int(router.mseq.position)
