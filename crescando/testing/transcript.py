"""A run in words: its schedule, what happened in it, and what its trace holds."""

from __future__ import annotations

from collections.abc import Iterator

from crescando.testing.faults import Fault
from crescando.testing.trace import Trace
from crescando.testing.verdict import Verdict


def describe_fault(fault: Fault) -> str:
    """Give a fault on a line."""
    return f"{fault.when_s:8.4f} s  {fault.kind:16} for {fault.length_s:.4f} s  choice {fault.choice}"


def describe_verdict(verdict: Verdict) -> str:
    """Give a seed's schedule, counters and violations."""
    lines = [f"seed {verdict.seed}, {verdict.virtual_s:.2f} simulated s, trace {verdict.trace_digest}"]
    lines.append("schedule:")
    lines += [f"  {describe_fault(fault)}" for fault in verdict.faults]
    lines.append("counted:")
    lines += [f"  {name:28} {n}" for name, n in sorted(verdict.counted.items())]
    lines.append(f"violations: {len(verdict.violations)}")
    lines += [f"  {violation}" for violation in verdict.violations]
    return "\n".join(lines)


def describe_trace(trace: Trace) -> Iterator[str]:
    """Give what routers learned, what was delivered where, and what senders were told."""
    for router, learned in sorted(trace.learned.items()):
        yield f"{router} learned:"
        for instance, batch in learned:
            parts = [f"{s.sender}:{s.first}-{s.last}" for s in batch.submissions] if batch else ["(nothing)"]
            yield f"  {instance:5}  {' '.join(parts)}"
    for process, delivered in sorted(trace.delivered.items()):
        yield f"{process} delivered:"
        for record in delivered:
            yield f"  {record.position >> 20:5}.{record.position & 0xFFFFF}  {record.sender}:{record.number}"
    for process, told in sorted(trace.stable.items()):
        others = {number: verdict for number, verdict in told.items() if verdict != "stable"}
        yield f"{process} was told up to {max(told, default=0)}; not stable: {others or 'none'}"
    for process, event in sorted(trace.expelled.items()):
        yield f"{process} was expelled at {event.position}; void above {event.learned}"
