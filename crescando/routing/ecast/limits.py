"""How much a router may hold, in bytes, messages and seconds."""

from __future__ import annotations

from dataclasses import dataclass

from crescando.routing.batch import HEADER_BYTES

CONFIG_CREDIT_BYTES = 1 << 20
"""Unstable configuration messages that a sender may have beyond its credit: some thousand votes."""

SENDER_BYTES = 4 << 20
"""What a sender is granted of an empty window: some thousand operations on their way."""

LEAST_CREDIT_BYTES = 64 << 10
"""What a sender is granted however full the window: one batch that is worth an instance."""


@dataclass(frozen=True, slots=True)
class RouterLimits:
    """Bounds of one router.

    Parameters
    ----------
    batch_messages, batch_bytes : int
        What one instance holds at most (one larger message is still taken).
    window_bytes : int
        Unstable bytes of data above which no data is proposed.
    reserve_bytes : int
        Unstable bytes of configuration messages above which none is proposed;
        data has no part in them.
    credit_bytes : int
        Sent and unconfirmed bytes above which a destination is sent no more.
    sender_bytes : int
        Unstable bytes that one sender is granted at most. All senders together
        are granted one window, and less when it fills.
    lag_bytes : int
        Unconfirmed bytes above which nothing more is proposed for a
        destination; whole instances count, since they are kept for it.
    max_lag_s : float
        Time without any confirmation after which a destination that owes one
        is reported to the supers.
    pulse_s : float
        Spacing of the leader's signs of life to application processes.
    leaderless_s : float
        Time without a leader that a majority backs, after which application
        processes are told, and how long snapshot reads are held; at least two
        election times.
    client_reads, client_read_bytes : int
        Snapshot reads that wait for one client at most, one larger message apart.
        Twice what a client process lets be open by itself.
    reads, read_bytes : int
        Snapshot reads that wait for all clients together.
    queued_read_bytes : int
        Snapshot reads that wait for one destination whose credit is used up.
    eager_messages, eager_bytes : int
        While an instance is open, so much must wait before the next one is
        proposed: under load batches grow by themselves.
    slice_instances, slice_messages : int
        What a new leader routes in one turn of what it left unrouted as a follower: it ends with
        the instance that reaches one of these, after some 10 ms. A small part of an election time.
    """

    batch_messages: int = 8192
    batch_bytes: int = 4 << 20
    window_bytes: int = 256 << 20
    reserve_bytes: int = 16 << 20
    credit_bytes: int = 32 << 20
    sender_bytes: int = SENDER_BYTES
    lag_bytes: int = 64 << 20
    max_lag_s: float = 10.0
    pulse_s: float = 0.1
    leaderless_s: float = 2.0
    client_reads: int = 8192
    client_read_bytes: int = 4 << 20
    reads: int = 1 << 17
    read_bytes: int = 64 << 20
    queued_read_bytes: int = 4 << 20
    eager_messages: int = 256
    eager_bytes: int = 64 << 10
    slice_instances: int = 128
    slice_messages: int = 4096

    @property
    def undecided(self) -> int:
        """Messages of one sender that may be undecided: twice what its credit allows.

        What was refused or lost is remembered until the sender has been told:
        this bounds how much that is.
        """
        return 2 * (self.sender_bytes + CONFIG_CREDIT_BYTES) // HEADER_BYTES

    def credit(self, held_bytes: int, n_senders: int) -> int:
        """Give the unstable bytes that a sender is granted.

        Parameters
        ----------
        held_bytes : int
            What the router holds now, waiting or unstable.
        n_senders : int
            Among how many the window is divided.
        """
        share = self.window_bytes // max(1, n_senders)
        # All of it up to half a window, then ever less.
        room = max(0, min(self.window_bytes, 2 * (self.window_bytes - held_bytes)))
        squeezed = self.sender_bytes * room // self.window_bytes
        return max(min(LEAST_CREDIT_BYTES, self.sender_bytes), min(share, squeezed))
