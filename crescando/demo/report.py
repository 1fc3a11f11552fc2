"""What a run of the demo showed: for people a table, for programs JSON."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from crescando.demo.checker import Verdict
from crescando.demo.record import Record

IN_FLIGHT_MIN = 100
"""A failure with fewer operations in flight would show little."""

PER_SCAN_MIN = 50
"""Operations that must have shared one scan at the peak."""


@dataclass(frozen=True, slots=True)
class Kill:
    """One failure that was injected.

    Attributes
    ----------
    what, process : str
        Its part, such as ``lead router``, and which process it was.
    after_operations : int
        How many operations had their outcome.
    in_flight : int
        How many were submitted and had none.
    """

    what: str
    process: str
    after_operations: int
    in_flight: int


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a run found.

    Attributes
    ----------
    seed, rows : int
    records : sequence of Record
    elapsed_s : float
        From the first submission to the last outcome.
    kills : tuple of Kill
    kills_wanted : int
    operations_per_scan : int
        The most operations that shared one scan of one storage process.
    verdict : Verdict
    phases_s : dict
        How long each part of the demo took, in seconds.
    """

    seed: int
    rows: int
    records: Sequence[Record]
    elapsed_s: float
    kills: tuple[Kill, ...]
    kills_wanted: int
    operations_per_scan: int
    verdict: Verdict
    phases_s: dict[str, float]

    @property
    def throughput_ops_s(self) -> float:
        """Operations with an outcome per second, failures and all."""
        return len(self.records) / self.elapsed_s if self.elapsed_s > 0 else 0.0

    def latency_s(self, share: float) -> float:
        """Give the latency that `share` of the operations did not exceed."""
        ordered = sorted(record.latency_s for record in self.records)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0

    @property
    def in_flight_at_kill(self) -> int:
        """Operations in flight at the kill that had the fewest."""
        return min((kill.in_flight for kill in self.kills), default=0)

    def failures(self) -> tuple[str, ...]:
        """Say what the demo promised and this run did not show; empty for a good run."""
        verdict = self.verdict
        promises = (
            (verdict.writes_lost == 0, f"{verdict.writes_lost} acknowledged writes lost"),
            (verdict.answers_differ == 0, f"{verdict.answers_differ} answers differ"),
            (verdict.unanswered == 0, f"{verdict.unanswered} operations have no known outcome"),
            (verdict.order_faults == 0, f"{verdict.order_faults} positions are out of order"),
            (
                verdict.replicas_differ == 0,
                f"{verdict.replicas_differ} of {verdict.n_replicas} replicas differ",
            ),
            (
                verdict.ring_faults == 0,
                f"{verdict.ring_faults} ranges lack replicas, or dead processes answer",
            ),
            (verdict.n_checked > 0 and verdict.n_replicas > 0, "nothing was compared"),
            (
                len(self.kills) == self.kills_wanted,
                f"{len(self.kills)} of {self.kills_wanted} processes were killed",
            ),
            (
                all(kill.in_flight >= IN_FLIGHT_MIN for kill in self.kills),
                f"a process was killed with only {self.in_flight_at_kill} operations in flight",
            ),
            (
                self.operations_per_scan >= PER_SCAN_MIN,
                f"at most {self.operations_per_scan} operations shared a scan",
            ),
        )
        return tuple(text for holds, text in promises if not holds)

    def to_json(self) -> str:
        """Give one JSON object."""
        verdict = self.verdict
        return json.dumps(
            {
                "seed": self.seed,
                "rows": self.rows,
                "operations": len(self.records),
                "throughput_ops_s": round(self.throughput_ops_s, 1),
                "p50_ms": round(self.latency_s(0.50) * 1e3, 3),
                "p99_ms": round(self.latency_s(0.99) * 1e3, 3),
                "killed": len(self.kills),
                "in_flight_at_kill": self.in_flight_at_kill,
                "kills": [
                    {
                        "what": kill.what,
                        "process": kill.process,
                        "after_operations": kill.after_operations,
                        "in_flight": kill.in_flight,
                    }
                    for kill in self.kills
                ],
                "operations_per_scan": self.operations_per_scan,
                "checked": verdict.n_checked,
                "unanswered": verdict.unanswered,
                "order_faults": verdict.order_faults,
                "writes_lost": verdict.writes_lost,
                "answers_differ": verdict.answers_differ,
                "replicas": verdict.n_replicas,
                "digests_equal": verdict.digests_equal,
                "phases_s": {name: round(spent, 2) for name, spent in self.phases_s.items()},
                "failures": list(self.failures()),
            }
        )

    def lines(self) -> list[tuple[str, str]]:
        """Give the table's rows: what, and how much."""
        verdict = self.verdict
        kinds = Counter(type(record.operation).__name__ for record in self.records)
        n_reads = sum(count for kind, count in kinds.items() if kind.startswith("Read"))
        again = sum(record.n_attempts > 1 for record in self.records)
        return [
            ("flights", f"{self.rows:,}"),
            (
                "operations",
                f"{len(self.records):,} ({n_reads:,} reads, {len(self.records) - n_reads:,} writes)",
            ),
            ("throughput", f"{self.throughput_ops_s:,.0f} operations/s, failures included"),
            ("latency, median", f"{self.latency_s(0.50) * 1e3:,.1f} ms"),
            ("latency, 99th percentile", f"{self.latency_s(0.99) * 1e3:,.1f} ms"),
            ("operations sharing a scan", f"up to {self.operations_per_scan:,}"),
            *(
                (
                    f"killed: {kill.what}",
                    f"{kill.process}, after {kill.after_operations:,}, with {kill.in_flight:,} in flight",
                )
                for kill in self.kills
            ),
            ("reads asked again", f"{again:,}"),
            ("compared with SQLite", f"{verdict.n_checked:,} operations, {verdict.n_replicas} replicas"),
            ("time", ", ".join(f"{name} {spent:.1f} s" for name, spent in self.phases_s.items())),
        ]

    def closing(self) -> list[str]:
        """Give the sentences that end the demo."""
        verdict = self.verdict
        return [
            f"{verdict.writes_lost} acknowledged writes lost",
            f"{verdict.answers_differ} answers differ",
            f"{verdict.replicas_differ} of {verdict.n_replicas} replicas differ",
        ]


def print_report(report: Report) -> None:
    """Print the table, what differs if anything does, and the closing sentences."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    table = Table(title="crescando: flights out of New York, 2013", show_header=False, title_justify="left")
    table.add_column(style="cyan", no_wrap=True)
    table.add_column()
    for name, text in report.lines():
        table.add_row(name, Text(text))
    console.print(table)
    for told in report.verdict.told:
        console.print(Text(told, style="red"))
    for failure in report.failures():
        console.print(Text(f"FAILED: {failure}", style="bold red"))
    for sentence in report.closing():
        console.print(Text(sentence, style="bold green" if not report.failures() else "bold"))
