"""The composition root's parts list: a spec becomes process cores, here and nowhere else.

The embedded cluster, the simulator and, later, the launcher build their
processes through this module, so that all of them run the same cores.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, replace

from crescando.consensus.base import AtomicBroadcast
from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.quorum import Membership
from crescando.roles.client import Client
from crescando.roles.storage import Storage
from crescando.roles.super import Super
from crescando.routing.base import Multicast
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.limits import RouterLimits
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.router import Router
from crescando.routing.rubberband.balancing import RingBalancer
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.healing import RingHealer
from crescando.routing.rubberband.history import happenings_of
from crescando.routing.rubberband.messages import Join, encode_message
from crescando.spec import ClusterSpec
from crescando.types import ProcessId

MulticastFactory = Callable[[ProcessId, tuple[ProcessId, ...]], Multicast]
RouterFactory = Callable[..., Router[Rubberband]]
BroadcastFactory = Callable[[ProcessId, Membership, random.Random], AtomicBroadcast[Batch]]


@dataclass(frozen=True, slots=True)
class Names:
    """The processes a cluster begins with."""

    routers: tuple[ProcessId, ...]
    storages: tuple[ProcessId, ...]
    supers: tuple[ProcessId, ...]
    standby_routers: tuple[ProcessId, ...] = ()

    @classmethod
    def of(cls, spec: ClusterSpec) -> Names:
        """Name the processes of a spec: r1, s1, u1, …"""

        def named(role: str, letter: str, first: int, n: int) -> tuple[ProcessId, ...]:
            return tuple(ProcessId(role, f"{letter}{i}", 1) for i in range(first, first + n))

        return cls(
            routers=named("router", "r", 1, spec.routers),
            storages=named("storage", "s", 1, spec.storages),
            supers=named("super", "u", 1, spec.supers),
            standby_routers=named("router", "r", spec.routers + 1, spec.standby_routers),
        )


class Assembly:
    """Builds the cores of one cluster.

    Parameters
    ----------
    spec : ClusterSpec
    config : Rubberband, optional
        The configuration to begin with; evenly spread by default.
    multicast, broadcast : callable, optional
        Other implementations of the two layers (plug-ins, or the same ones
        with a recorder around them).
    epoch : int
        The cluster epoch: one more each time a cluster is begun anew after it lost
        a majority of its routers.
    """

    def __init__(
        self,
        spec: ClusterSpec,
        *,
        config: Rubberband | None = None,
        multicast: MulticastFactory | None = None,
        broadcast: BroadcastFactory | None = None,
        epoch: int = 0,
    ) -> None:
        self.spec = spec
        self.names = Names.of(spec)
        self.epoch = epoch
        self.config = config or Rubberband.genesis(
            storages=self.names.storages, replication=spec.replication, supers=self.names.supers
        )
        self._multicast = multicast or Application
        self._broadcast = broadcast or self._multipaxos

    def router(
        self,
        me: ProcessId,
        rng: random.Random,
        make: RouterFactory = Router,
        *,
        routers: tuple[ProcessId, ...] = (),
    ) -> Router[Rubberband]:
        """Give a router process's core.

        Parameters
        ----------
        routers : tuple of ProcessId, optional
            Those that are known to be members, if they are not the first ones any more.
        """
        membership = Membership(0, routers or self.names.routers)
        broadcast = self._broadcast(me, membership, rng)
        return make(
            me,
            config=self.config,
            broadcast=broadcast,
            limits=self._router_limits,
        )

    @property
    def _router_limits(self) -> RouterLimits:
        # An election that takes its time is not the loss of a majority.
        leaderless_s = max(self.spec.router.leaderless_s, 2 * self.spec.paxos.election_s)
        return replace(self.spec.router, leaderless_s=leaderless_s)

    def storage(self, me: ProcessId, routers: tuple[ProcessId, ...] = ()) -> Storage:
        """Give a storage process's core: of a first ring member, or of one that joins on standby."""
        return Storage(
            me,
            multicast=self._multicast(me, routers or self.names.routers),
            config=self._first_config(me),
            config_type=Rubberband,
            limits=replace(self.spec.storage, lease_s=self.spec.super_.suspicion_s / 2),
        )

    def super_(self, me: ProcessId, routers: tuple[ProcessId, ...] = ()) -> Super[Rubberband]:
        """Give a super process's core: of a first one, or of one that joins."""
        return Super(
            me,
            multicast=self._multicast(me, routers or self.names.routers),
            config=self._first_config(me),
            config_type=Rubberband,
            observe=happenings_of,
            healer=RingHealer(),
            healing=self.spec.healing,
            balancer=RingBalancer(),
            balancing=self.spec.balancing,
            timing=self.spec.super_,
        )

    def _first_config(self, me: ProcessId) -> Rubberband | None:
        """Give the configuration that a process begins with; whoever joins is told it by the order."""
        return self.config if self.config.is_member(me) else None

    def client(self, me: ProcessId, routers: tuple[ProcessId, ...] = ()) -> Client:
        """Give a client process's core, which joins by its first message."""
        return Client(
            me,
            multicast=self._multicast(me, routers or self.names.routers),
            storages=self.names.storages,
            join=encode_message(Join(me)),
            config_type=Rubberband,
            supers=self.names.supers,
            limits=self.spec.client,
        )

    def _multipaxos(
        self, me: ProcessId, membership: Membership, rng: random.Random
    ) -> AtomicBroadcast[Batch]:
        return Replica(me, membership, self.spec.paxos, rng, epoch=self.epoch)
