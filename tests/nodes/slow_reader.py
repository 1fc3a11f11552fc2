"""One client that stops reading a long answer beside others: ``python -m tests.nodes.slow_reader``.

Real processes over mutual TLS. The slow client is stopped in the middle of its
answer (SIGSTOP) and goes on after a minute. Meanwhile no process may hold more
than the window of one client and a little, nobody else may wait for it, and in
the end the slow one learns by name what has become of its read.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import crescando
from crescando import col
from crescando.cli.main import main as command
from crescando.client.table import Table
from crescando.errors import OperationError
from crescando.nodes.runs import find_running
from crescando.roles.limits import StorageLimits
from tests.nodes.clusters import PATIENCE_S, until, write_cluster

MIB = 1 << 20
SPARE_BYTES = 32 * MIB
LATENCY_FACTOR_MAX = 3.0
ROWS = 600_000
ROWS_AT_ONCE = 50_000
WARM_S = 2.0
BEGUN_BYTES = 8 * MIB
"""So much more memory than before means that the answer has begun to come."""


def read_slowly(url: str, certificates: str) -> None:
    """Be the slow client: ask for everything when told to, and say what came of it."""
    with crescando.connect(url, tls=certificates, client="slow", timeout_s=600.0) as store:
        table = store.table("long")
        print("ready", flush=True)
        sys.stdin.readline()
        try:
            print(f"{len(table.select())} rows", flush=True)
        except OperationError as error:
            print(f"{type(error).__name__}: {error}", flush=True)


def resident_bytes(pid: int) -> int:
    """Give how much memory a process holds."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def p99_s(table: Table, seconds: float) -> float:
    """Read one row after the other for a while; give the 99th percentile of how long a read takes."""
    took, end_s = [], time.monotonic() + seconds
    while time.monotonic() < end_s:
        began_s = time.perf_counter()
        assert len(table.select(where=col("id") == 5)) == 1
        took.append(time.perf_counter() - began_s)
        time.sleep(0.001)
    return float(np.percentile(took, 99))


def measure(folder: Path, stop_s: float) -> dict[str, object]:
    """Run the story; give what was seen."""
    file = write_cluster(folder, routers=1, storages=2, supers=3)
    os.chdir(folder)
    assert command(["up", "-d", "--timeout", str(PATIENCE_S)]) == 0
    try:
        running = find_running()
        assert running is not None
        url = "crescando://" + ",".join(seat.address for seat in file.seats if seat.role == "router")
        with crescando.connect(url, tls=folder / "certs") as store:
            table = store.create_table("long", like={"id": [1], "text": ["some"]}, primary_key="id")
            for first in range(0, ROWS, ROWS_AT_ONCE):
                ids = np.arange(first, first + ROWS_AT_ONCE)
                table.insert({"id": ids, "text": [f"{number:080d}" for number in ids]}).result()
            arguments = [
                sys.executable,
                "-m",
                "tests.nodes.slow_reader",
                "--slow",
                url,
                str(folder / "certs"),
            ]
            slow = subprocess.Popen(
                arguments, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
            )
            try:
                assert slow.stdin is not None
                assert slow.stdout is not None
                assert slow.stdout.readline() == "ready\n"
                p99_s(table, WARM_S)
                alone_s = p99_s(table, stop_s / 2)
                before = {node: resident_bytes(pid) for node, pid in running.nodes.items()}
                own = resident_bytes(slow.pid)
                slow.stdin.write("go\n")
                slow.stdin.flush()
                until(lambda: resident_bytes(slow.pid) > own + BEGUN_BYTES, "the answer comes")
                slow.send_signal(signal.SIGSTOP)
                beside_s, grown, end_s = 0.0, 0, time.monotonic() + stop_s
                while time.monotonic() < end_s:
                    beside_s = max(beside_s, p99_s(table, stop_s / 6))
                    for node, pid in running.nodes.items():
                        grown = max(grown, resident_bytes(pid) - before[node])
                slow.send_signal(signal.SIGCONT)
                told = slow.stdout.readline().strip()
                slow.stdin.close()
                slow.wait(PATIENCE_S)
            finally:
                slow.kill()
                slow.wait()
    finally:
        command(["down"])
    return {
        "p99_alone_ms": round(alone_s * 1e3, 1),
        "p99_beside_ms": round(beside_s * 1e3, 1),
        "grown_mib": round(grown / MIB, 1),
        "bound_mib": (StorageLimits().answers_bytes + SPARE_BYTES) // MIB,
        "told": told,
    }


ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    """Run the story, print what was seen, and say whether it was within bounds."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=60.0, help="how long the client does not read")
    parser.add_argument("--slow", nargs=2, metavar=("URL", "FOLDER"), help=argparse.SUPPRESS)
    parsed = parser.parse_args()
    if parsed.slow:
        read_slowly(*parsed.slow)
        return 0
    with tempfile.TemporaryDirectory() as folder:
        seen = measure(Path(folder), parsed.seconds)
    print(json.dumps(seen))
    is_good = (
        seen["grown_mib"] <= seen["bound_mib"]  # type: ignore[operator]
        and seen["p99_beside_ms"] <= LATENCY_FACTOR_MAX * seen["p99_alone_ms"]  # type: ignore[operator]
        and "Error: " in str(seen["told"])
    )
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
