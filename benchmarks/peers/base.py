"""The contract of a peer, and who the peers are.

Rules of the file: `benchmarks.order` knows this module and nothing below it.
"""

from __future__ import annotations

from typing import Protocol

from benchmarks.peers.etcd import Etcd
from benchmarks.peers.nats import Nats
from benchmarks.peers.pysyncobj import PySyncObj
from benchmarks.peers.redis import Redis
from benchmarks.peers.result import PeerError, PeerResult
from benchmarks.peers.zookeeper import ZooKeeper

__all__ = ["PEERS", "Peer", "PeerError", "PeerResult"]


class Peer(Protocol):
    """A group of three processes on loopback that orders writes to a key-value map, all in memory."""

    @property
    def name(self) -> str:
        """As on the command line."""
        ...

    def available(self) -> str:
        """Give "" if it can run here, else why not."""
        ...

    def start(self) -> None:
        """Start the processes and wait until they serve; PeerError if they do not."""
        ...

    def run(self, *, in_flight: int, payload_bytes: int, seconds: float, batch: int = 1) -> PeerResult:
        """Measure a closed loop; PeerError unless what was acknowledged is found applied."""
        ...

    def kill_leader_gap_ms(self) -> float | None:
        """Kill the leader, give the time to the next acknowledged write; None where nothing takes over."""
        ...

    def stop(self) -> None:
        """End every process; harmless when there are none."""
        ...


PEERS: tuple[Peer, ...] = (PySyncObj(), Etcd(), Nats(), Redis(), ZooKeeper())
