"""How much one client process asks of the others, and how long it waits for them."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of one client process.

    Parameters
    ----------
    batch_operations, batch_bytes : int
        What one submission holds at most.
    open_submissions : int
        Submissions that may be unstable at once; what is submitted meanwhile
        waits and makes the next one larger.
    stall_s : float
        Time after the last submission at which the next one is sent although
        so many are unstable: an operation that waits for a dead range must not
        hold up those of other ranges. At most `stalled_submissions` so.
    inquire_s : float
        Time after which an operation that is stable, or whose owner's session
        ended, and that has no outcome makes the client ask the owners.
    answer_s : float
        How long a question waits for an owner that keeps silent.
    give_up_s : float
        How long owners are asked in vain before an operation ends without its
        outcome. More than it takes to suspect an owner and to reach the others.
    alone_s : float
        How long, while none of them answers. No less than the owners remember a
        client that was expelled because it was cut off.
    verdict_s : float
        Time after which a client that was expelled waits no more for what
        became of its last messages. More than a slow owner may take to confirm.
    resubmissions : int
        How often a read is sent again because its owner does not answer.
    snapshot_reads, snapshot_bytes : int
        Snapshot reads that may be open at once; others wait. Half of what a router
        lets wait, where attempts that were given up may still be.
    unreachable_s : float
        Time without a session with any router after which nothing is taken.
    silence_s : float
        Time without a word of any router that may know a leader, after which
        nothing is taken. As long as a client may be cut off, its sessions left
        open, and yet be told what became of what it had sent.
    """

    batch_operations: int = 1024
    batch_bytes: int = 4 << 20
    open_submissions: int = 4
    stall_s: float = 0.02
    stalled_submissions: int = 1024
    inquire_s: float = 0.5
    answer_s: float = 3.0
    give_up_s: float = 10.0
    alone_s: float = 60.0
    verdict_s: float = 30.0
    resubmissions: int = 16
    snapshot_reads: int = 4096
    snapshot_bytes: int = 2 << 20
    unreachable_s: float = 2.0
    silence_s: float = 60.0
