"""How many snapshot reads of whom a router has, and whether it may take more.

Rules of the file: a read counts from when it is taken until it is sent or
refused, and once for each destination as soon as it is routed. A client may have
no more than is still free, so that some always is, and whose reads wait behind
its own stuck writes leaves room for the others (Choudhury and Hahne 1998,
"dynamic queue length thresholds"). A message that is larger than a client's
share by itself is taken if its sender has nothing else here.
"""

from __future__ import annotations

from dataclasses import dataclass

from crescando.routing.ecast.limits import RouterLimits
from crescando.types import ProcessId


@dataclass(slots=True)
class _Share:
    """What a client has waiting."""

    n_reads: int = 0
    n_bytes: int = 0


class Allowance:
    """What all clients' snapshot reads in one router amount to.

    Parameters
    ----------
    limits : RouterLimits

    Attributes
    ----------
    n_reads, n_bytes : int
        Of all clients.
    """

    def __init__(self, limits: RouterLimits) -> None:
        self.limits = limits
        self.n_reads = 0
        self.n_bytes = 0
        self._shares: dict[ProcessId, _Share] = {}

    def __len__(self) -> int:
        return len(self._shares)

    def admits(self, client: ProcessId, n_reads: int, n_bytes: int) -> bool:
        """Whether a client may have so much more waiting."""
        limits, share = self.limits, self._shares.get(client)
        free_reads, free_bytes = limits.reads - self.n_reads, limits.read_bytes - self.n_bytes
        if share is None:
            return not self._shares or (n_reads <= free_reads and n_bytes <= free_bytes)
        return share.n_reads + n_reads <= min(limits.client_reads, free_reads) and (
            share.n_bytes + n_bytes <= min(limits.client_read_bytes, free_bytes)
        )

    @property
    def is_used_up(self) -> bool:
        """Whether nothing more may wait."""
        return self.n_reads > self.limits.reads or self.n_bytes > self.limits.read_bytes

    def add(self, client: ProcessId, n_reads: int, n_bytes: int) -> None:
        """Count reads that wait from now on."""
        share = self._shares.setdefault(client, _Share())
        share.n_reads += n_reads
        share.n_bytes += n_bytes
        self.n_reads += n_reads
        self.n_bytes += n_bytes

    def remove(self, client: ProcessId, n_reads: int, n_bytes: int) -> None:
        """Count reads no more."""
        share = self._shares[client]
        share.n_reads -= n_reads
        share.n_bytes -= n_bytes
        self.n_reads -= n_reads
        self.n_bytes -= n_bytes
        if not share.n_reads:
            del self._shares[client]
