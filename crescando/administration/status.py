"""A cluster at a glance: what its configuration, its routers and its processes tell.

Rules of the file: a status is a value and its own text. Everything in it but the
processes' states follows from the configuration.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from crescando.administration.plans import describe, share
from crescando.administration.progress import Progress
from crescando.administration.wishes import standbys
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import Transformation
from crescando.routing.rubberband.messages import MessageId
from crescando.types import KeyRange, ProcessId


@dataclass(frozen=True, slots=True)
class ProcessStatus:
    """One process of a cluster.

    Attributes
    ----------
    process : ProcessId
    is_alive : bool
    reason : str
        Why it is not, if it is not.
    """

    process: ProcessId
    is_alive: bool
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Place:
    """A process on the ring.

    Attributes
    ----------
    at : int
        Its ring position.
    process : ProcessId
    state : str
        ``serving``; ``failed`` if it was declared so and is not replaced; ``silent`` if a majority
        of the supers suspects it and nobody else lives who holds some range.
    """

    at: int
    process: ProcessId
    state: str


@dataclass(frozen=True, slots=True)
class RangeStatus:
    """A range of the ring, and who serves it.

    Attributes
    ----------
    key_range : KeyRange
    owners : tuple of ProcessId
        Those that live, in the order of the ring.
    replication : int
        How many there should be.
    is_available : bool
        Whether at least one of them answers.
    """

    key_range: KeyRange
    owners: tuple[ProcessId, ...]
    replication: int
    is_available: bool


@dataclass(frozen=True, slots=True)
class ChangeStatus:
    """A change of the keyspace under way.

    Attributes
    ----------
    change : MessageId
        The message that began it.
    transformation : Transformation
    copies, ready : int
        Copies that it consists of, and those that have arrived.
    progress : Progress or None
        More of it, as far as its receivers tell.
    """

    change: MessageId
    transformation: Transformation
    copies: int
    ready: int
    progress: Progress | None = None

    def __str__(self) -> str:
        told = self.progress or f"{self.ready} of {self.copies} copies have arrived"
        return f"{describe(self.transformation)}: {told}"


@dataclass(frozen=True, slots=True)
class ClusterStatus:
    """A cluster at a glance.

    Attributes
    ----------
    lead_router : ProcessId or None
        The router that leads now, if one does.
    position : int
        Of the last message that router has learned.
    routers, storages, supers : tuple of ProcessStatus
    replication : int
        How many copies of each row are promised.
    ring : tuple of Place
        Ascending.
    ranges : tuple of RangeStatus
        Ascending; together they are the whole ring.
    standbys : tuple of ProcessId
        Storage processes that wait to be given a position.
    changes : tuple of ChangeStatus
        Changes of the keyspace under way, in the order in which they end.
    suspicions : mapping of ProcessId to tuple of ProcessId
        Which supers suspect whom.
    layout : MessageId or None
        The message that made the present layout, or the one that is to come.
    stale : str
        Why the configuration told here is not the present one; empty if it is.
    """

    lead_router: ProcessId | None
    position: int
    routers: tuple[ProcessStatus, ...] = ()
    storages: tuple[ProcessStatus, ...] = ()
    supers: tuple[ProcessStatus, ...] = ()
    replication: int = 0
    ring: tuple[Place, ...] = ()
    ranges: tuple[RangeStatus, ...] = ()
    standbys: tuple[ProcessId, ...] = ()
    changes: tuple[ChangeStatus, ...] = ()
    suspicions: Mapping[ProcessId, tuple[ProcessId, ...]] = field(default_factory=dict)
    layout: MessageId | None = None
    stale: str = ""

    @property
    def failed(self) -> tuple[ProcessId, ...]:
        """Processes that were declared failed and still hold a ring position."""
        return tuple(place.process for place in self.ring if place.state == "failed")

    @property
    def unavailable(self) -> tuple[KeyRange, ...]:
        """Ranges of which nobody answers who holds them."""
        return tuple(each.key_range for each in self.ranges if not each.is_available)

    @property
    def degraded(self) -> tuple[KeyRange, ...]:
        """Ranges of which fewer copies live than are promised."""
        return tuple(each.key_range for each in self.ranges if len(each.owners) < each.replication)

    def __str__(self) -> str:
        return "\n".join(self._lines())

    def _lines(self) -> Iterator[str]:
        yield f"led by {self.lead_router or 'no router'}, at position {self.position}"
        if self.stale:
            yield f"  what follows may be old: {self.stale}"
        for title, processes in (("routers", self.routers), ("supers", self.supers)):
            if processes:
                yield f"  {title}: {', '.join(map(_named, processes))}"
        down = {status.process: status.reason for status in self.storages if not status.is_alive}
        yield f"  ring of {len(self.ring)}, {self.replication} copies of each row"
        for place in self.ring:
            reason = f" ({down[place.process]})" if down.get(place.process) else ""
            yield f"    {place.at:#018x}  {place.process}  {place.state}{reason}"
        yield f"  on standby: {', '.join(map(str, self.standbys)) or 'nobody'}"
        if self.degraded:
            yield f"  fewer copies than promised of {share(self.degraded)}"
        if self.unavailable:
            yield f"  unavailable: {share(self.unavailable)}, until one who holds it answers"
        for accused, voters in sorted(self.suspicions.items()):
            yield f"  {accused} is suspected by {', '.join(map(str, voters))}"
        for change in self.changes:
            yield f"  {change}"


def _named(status: ProcessStatus) -> str:
    return str(status.process) if status.is_alive else f"{status.process} (down: {status.reason})"


def by_role(
    processes: Iterable[ProcessStatus],
) -> tuple[tuple[ProcessStatus, ...], tuple[ProcessStatus, ...]]:
    """Divide processes into storage processes and supers."""
    known = tuple(processes)
    return (
        tuple(status for status in known if status.process.role == "storage"),
        tuple(status for status in known if status.process.role == "super"),
    )


def status_of(
    config: Rubberband,
    *,
    position: int,
    lead_router: ProcessId | None,
    routers: Sequence[ProcessStatus],
    is_alive: Mapping[ProcessId, ProcessStatus],
    progress: Mapping[MessageId, Progress],
    stale: str = "",
) -> ClusterStatus:
    """Give the status that a configuration tells.

    Parameters
    ----------
    config : Rubberband
    position : int
        Of the last message that was learned.
    lead_router : ProcessId or None
    routers : sequence of ProcessStatus
    is_alive : mapping
        What else is known of storage processes and supers than that they are members.
    progress : mapping
        How far the changes under way are.
    stale : str
        Why the configuration is not the present one.
    """
    pending, failed, ring = config.pending, config.failed, config.ring

    def of(process: ProcessId) -> ProcessStatus:
        if process in is_alive:
            return is_alive[process]
        if not config.is_member(process):
            return ProcessStatus(process, is_alive=False, reason="declared failed")
        return ProcessStatus(process, process not in pending, "silent" if process in pending else "")

    def state(process: ProcessId) -> str:
        return "failed" if process in failed else "silent" if process in pending else "serving"

    known = [*is_alive, *sorted({*config.storages, *ring.processes, *config.supers}.difference(is_alive))]
    storages, supers = by_role(map(of, known))
    votes: dict[ProcessId, tuple[ProcessId, ...]] = {}
    for accused, voter in sorted(config.membership.votes):
        votes[accused] = (*votes.get(accused, ()), voter)
    ranges = []
    for place, arc in enumerate(ring.arcs):
        owners = tuple(process for process in ring.owners(place) if process in config.storages)
        is_available = any(process not in pending for process in owners)
        ranges.append(RangeStatus(arc, owners, ring.promised, is_available))
    return ClusterStatus(
        lead_router=lead_router,
        position=position,
        routers=tuple(routers),
        storages=storages,
        supers=supers,
        replication=ring.promised,
        ring=tuple(
            Place(at, process, state(process)) for at, process in zip(ring.ids, ring.processes, strict=True)
        ),
        ranges=tuple(ranges),
        standbys=standbys(config),
        changes=tuple(
            ChangeStatus(
                change.id,
                change.transformation,
                len(change.copies),
                len(change.ready),
                progress.get(change.id),
            )
            for change in config.changes
        ),
        suspicions=MappingProxyType(votes),
        layout=config.layout,
        stale=stale,
    )
