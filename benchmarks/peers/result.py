"""What one run against a peer gives, and the error of a run that cannot be trusted.

Rules of the file: values only. A rate is writes that were acknowledged *and*
found applied afterwards; a run whose two counts differ raises instead of giving
a result.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


class PeerError(Exception):
    """A peer did not start, refused a write, or applied another number of writes than it acknowledged."""


@dataclass(frozen=True, slots=True)
class PeerResult:
    """One closed-loop run.

    Attributes
    ----------
    name, version : str
        The peer, and the version that its own program states.
    in_flight : int
        Requests outstanding at any time.
    payload_bytes : int
        Bytes of one value.
    operations : int
        Writes acknowledged; with a batch, each request holds several.
    seconds : float
        From the first request to the last acknowledgement.
    rate_s : float
        Writes per second.
    p50_ms, p99_ms : float
        From handing a request to the socket to its acknowledgement.
    checksum : int
        Writes found applied when read back from every member; equals `operations`.
    note : str
        Connections, batch, and what this peer does not do.
    """

    name: str
    version: str
    in_flight: int
    payload_bytes: int
    operations: int
    seconds: float
    rate_s: float
    p50_ms: float
    p99_ms: float
    checksum: int
    note: str


def percentile_ms(waits_s: Sequence[float], share: float) -> float:
    """Give the smallest wait that `share` of all waits do not exceed, in milliseconds.

    Parameters
    ----------
    waits_s : sequence of float
        Sorted upwards, in seconds, not empty.
    share : float
        Between 0 and 1.
    """
    rank = min(len(waits_s) - 1, int(share * len(waits_s)))
    return waits_s[rank] * 1e3
