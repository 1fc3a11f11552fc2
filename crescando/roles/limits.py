"""How much a client process asks of the others, and how much a storage process takes on."""

from __future__ import annotations

from dataclasses import dataclass

from crescando.client.base import REQUEST_BYTES_MAX
from crescando.roles.costs import CYCLE_S
from crescando.roles.memory import UNLIMITED


@dataclass(frozen=True, slots=True)
class ClientLimits:
    """Bounds of one client process.

    Parameters
    ----------
    batch_operations, batch_bytes : int
        What one submission holds at most, one longer request apart. Each costs every process that
        it passes a millisecond or so, whatever is in it; four thousand operations cost far more.
    request_bytes : int
        How long one request may be: an insert that is longer is cut, what cannot be cut is
        refused. Outside of a store that serves it is what the cluster takes.
    open_submissions : int
        Submissions that may be unstable at once; what is submitted meanwhile
        waits and makes the next one larger.
    open_operations : int
        Operations that may be on their way at once, likewise: with more, those of other
        clients would wait while these are ordered and told, and nothing would be done sooner.
    stall_s : float
        Time after the last submission at which the next one is sent although
        so many are open: an operation that waits for a dead range must not
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
    basic_reads : int
        Basic reads that may be open at once, one message more apart; others wait.
    beside_bytes : int
        Bytes of chunks that may be on their way beside the order.
    beside_s : float
        How long a load's end waits for storage processes that do not say that they have all of it.
    unreachable_s : float
        Time without a session with any router after which nothing is taken.
    silence_s : float
        Time without a word of any router that may know a leader, after which
        nothing is taken. As long as a client may be cut off, its sessions left
        open, and yet be told what became of what it had sent.
    """

    batch_operations: int = 4096
    batch_bytes: int = 4 << 20
    request_bytes: int = REQUEST_BYTES_MAX
    open_submissions: int = 4
    open_operations: int = 16_384
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
    basic_reads: int = 16_384
    beside_bytes: int = 8 << 20
    beside_s: float = 60.0
    unreachable_s: float = 2.0
    silence_s: float = 60.0


@dataclass(frozen=True, slots=True)
class StorageLimits:
    """Bounds of one storage process.

    Parameters
    ----------
    cycle_operations : int
        Operations that share one cycle at most; bounds every operation's latency.
    cycle_s : float
        The time that one cycle is to take, as far as can be foreseen; half of it while some
        clients wait for few reads and others for many. See `admission`.
    backlog_s : float
        Work of so long a time may be queued before confirmations are withheld for a while, so
        that whoever sends too much waits at the routers and not in front of everybody here.
    queue_bytes : int
        Queued and executing work above which confirmations are withheld.
    queue_s : float
        Time that one cycle may take before confirmations are withheld: an
        engine that is stuck must not look like one that keeps up.
    shapes, shapes_bytes : int
        Decoded statement shapes that are remembered, and their encodings' bytes.
    records : int
        Outcomes of one client's writes that are kept until it has them; credit
        lets no honest client come near.
    gone_s : float
        How long outcomes are kept of a client that was voted out: it may only have
        been cut off, and come back to ask.
    gone_records : int
        Outcomes that are kept of all such clients together.
    memory_bytes : int
        What rows, texts, queued work and answers may take together; at more the process
        stops, as one that fails.
    memory_watermark : float
        Share of that above which it tells the supers that it is full.
    replica_reads : int
        Reads of exactly this replica that may wait for the next cycle.
    answers_bytes : int
        Answers that may wait for one client that takes them slowly; no less than one
        read may answer.
    answers_total_bytes : int
        The same of all clients together.
    lease_s : float
        How long after it has asked the leader a process may show rows outside the order; the
        assembly takes half the time of suspicion.
    basic_wait_s : float
        How long a basic read is held that comes before what its session has seen.
    stage_bytes : int
        Bytes of chunks that may be here and not ordered yet.
    stage_kept_bytes : int
        Bytes of chunks that are kept, when they are staged, for those who lack them.
    stage_s : float
        How long bytes of chunks are kept, ordered or not.
    pins : int
        Pinned snapshots that are kept at once; of more the newest are refused.
    pinned_bytes : int
        What may be in memory for pinned snapshots only: above it new ones are refused.
    pinned_s : float
        How long a cycle may work on reads of pinned snapshots if there are no operations.
    copy_window_bytes : int
        What may be on its way of one copy that this process receives, or not be taken in yet.
    copy_s : float
        How long a cycle may work on copies, one step apart: short beside what operations that
        come meanwhile are to wait.
    copy_bytes : int
        What of one copy may wait to be executed, while its rows come: above it the change
        of the keyspace is dropped.
    copy_patience_s : float
        How long a copy waits for a session with its sender before the change is dropped. More than it
        takes to vote out a sender that has failed.
    """

    cycle_operations: int = 16_384
    cycle_s: float = CYCLE_S
    backlog_s: float = 0.1
    queue_bytes: int = 64 << 20
    queue_s: float = 30.0
    shapes: int = 4096
    shapes_bytes: int = 16 << 20
    records: int = 1 << 18
    gone_s: float = 60.0
    gone_records: int = 1 << 18
    replica_reads: int = 256
    answers_bytes: int = 512 << 20
    answers_total_bytes: int = 2 << 30
    stage_bytes: int = 64 << 20
    stage_kept_bytes: int = 64 << 20
    stage_s: float = 60.0
    pins: int = 1024
    pinned_bytes: int = 4 << 30
    pinned_s: float = 0.02
    copy_window_bytes: int = 8 << 20
    copy_s: float = 0.005
    copy_bytes: int = 1 << 30
    copy_patience_s: float = 30.0
    memory_bytes: int = UNLIMITED
    memory_watermark: float = 0.8
    lease_s: float = 1.5
    basic_wait_s: float = 0.5
