"""How a cluster of nodes is, from what each of them says of itself.

Rules of the file: everybody is asked, not only the routers, so that what is
wrong shows also when nothing can be ordered any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from typing import Any

from crescando.clusterfile import ClusterFile, Seat
from crescando.errors import RemoteProtocolError
from crescando.nodes.asking import Heard, describe_all
from crescando.roles.description import Described, Hosts
from crescando.routing.rubberband.config import Rubberband
from crescando.transport.credentials import FileCredentials
from crescando.types import ProcessId


@dataclass(frozen=True, slots=True)
class NodeHealth:
    """How one node is.

    Attributes
    ----------
    seat : Seat
    host : Hosts or None
        Its process as it stands; None if there is none, or the node does not answer.
    fault : str
        Why it is not well; empty if it is.
    described : Described or None
    clock_s : float
        How far its clock is ahead of ours; about.
    """

    seat: Seat
    host: Hosts | None
    fault: str
    described: Described | None = None
    clock_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Health:
    """How a cluster is.

    Attributes
    ----------
    name : str
    nodes : tuple of NodeHealth
    lead : ProcessId or None
        The router that most of those who answer believe to lead.
    config : Rubberband or None
        The newest configuration that a router has told.
    """

    name: str
    nodes: tuple[NodeHealth, ...]
    lead: ProcessId | None
    config: Rubberband | None

    @property
    def is_well(self) -> bool:
        """Whether every node takes part, and every range has all its replicas."""
        return (
            all(not node.fault for node in self.nodes)
            and self.config is not None
            and not self.config.failed
            and self.config.ring.replication == self.config.ring.promised
        )

    def to_json(self) -> dict[str, Any]:
        """Give plain values."""
        config = self.config
        return {
            "cluster": self.name,
            "is_well": self.is_well,
            "lead_router": None if self.lead is None else str(self.lead),
            "nodes": [
                {
                    "node": node.seat.node,
                    "role": node.seat.role,
                    "address": node.seat.address,
                    "process": None if node.host is None else str(node.host.process),
                    "pid": None if node.described is None else node.described.pid,
                    "fault": node.fault,
                    "position": None if node.host is None else node.host.position,
                    "counters": {} if node.host is None else node.host.counters,
                }
                for node in self.nodes
            ],
            "failed": [] if config is None else [str(process) for process in sorted(config.failed)],
            "changes": 0 if config is None else len(config.changes),
            "tables": [] if config is None else [table.name for table in config.tables],
        }

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        state = "well" if self.is_well else "not well"
        yield f"cluster {self.name}: {state}; {'nobody leads' if self.lead is None else f'{self.lead} leads'}"
        for node in self.nodes:
            host = node.host
            name = f"{node.seat.role}/{node.seat.node}" if host is None else str(host.process)
            yield f"  {name:<22} {node.seat.address:<22} {self._state(node)}"
        config = self.config
        if config is not None:
            lost = ", ".join(str(process) for process in sorted(config.failed))
            ring = config.ring
            short = "" if ring.replication == ring.promised else f" of {ring.promised} promised"
            # The place of one that has failed is still counted, and nobody has its copies.
            few = f", fewer of those that {lost} had: failed, and not replaced yet" if lost else ""
            yield f"  {ring.replication}{short} copies of each row{few}"
            if config.changes:
                yield f"  {len(config.changes)} changes of the ring under way"

    def _state(self, node: NodeHealth) -> str:
        host = node.host
        if node.fault or host is None:
            return node.fault
        rows = host.counters.get("rows")
        details = [f"position {host.position}"] if host.position >= 0 else []
        details += [f"{rows:,} rows"] if rows is not None else []
        pins = host.counters.get("pins")
        if pins:
            kept_bytes = host.counters.get("pinned_bytes", 0)
            details += [f"{pins:,} pins for which {kept_bytes / 2**20:,.1f} MiB are kept"]
        if host.is_standby or (self.config is not None and host.process in _spares(self.config)):
            details += ["on standby"]
        return ", ".join(["takes part", *details])


def look(file: ClusterFile, credentials: FileCredentials) -> Health:
    """Ask every node of a cluster file how it is."""
    told = describe_all(file, credentials, [seat.node for seat in file.seats])
    nodes = tuple(_health_of(seat, told[seat.node]) for seat in file.seats)
    leads = [node.host.lead for node in nodes if node.host is not None and node.host.lead is not None]
    return Health(
        name=file.name,
        nodes=nodes,
        lead=max(set(leads), key=lambda lead: (leads.count(lead), lead), default=None),
        config=_newest(told),
    )


def _health_of(seat: Seat, heard: Heard | str) -> NodeHealth:
    if isinstance(heard, str):
        return NodeHealth(seat, None, f"does not answer: {heard}")
    told = heard.described
    host = told.hosts[-1] if told.hosts else None
    if host is None:
        fault = "waits for others"
    elif not host.is_running:
        fault = f"has stopped: {host.reason}"
    else:
        fault = "" if host.is_ready or host.is_standby else "finds no router that leads"
    # Within the time that asking this one took, nobody can say.
    ahead_s = max(0.0, told.now_s - heard.told_s) - max(0.0, heard.asked_s - told.now_s)
    return NodeHealth(seat, host, fault, told, ahead_s)


def _spares(config: Rubberband) -> Set[ProcessId]:
    """Give the storage processes that have no place on the ring."""
    return config.storages - set(config.ring.processes)


def _newest(told: Mapping[str, Heard | str]) -> Rubberband | None:
    found: tuple[int, bytes] = (-1, b"")
    for heard in told.values():
        if isinstance(heard, Heard) and heard.described.config:
            described = heard.described
            position = max(
                (host.position for host in described.hosts if host.process.role == "router"), default=-1
            )
            found = max(found, (position, described.config))
    try:
        return Rubberband.decode(found[1]) if found[1] else None
    except RemoteProtocolError:
        # A node of another version; `doctor` tells of it.
        return None
