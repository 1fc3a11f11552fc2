"""Certificates that live for less than a minute, renewed under load: ``python -m tests.nodes.rotation``.

Real processes over mutual TLS. Every file is issued anew every few seconds while
a client writes and reads; nobody is started again. The run is longer than a
certificate lives, no operation may fail, and every write must count once (K25).
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import sys
import tempfile
import time
from pathlib import Path

import crescando
from crescando import col
from crescando.certificates import Authority, check, node_files
from crescando.cli.main import main as command
from crescando.errors import CrescandoError
from tests.nodes.clusters import PATIENCE_S, write_cluster

LIFETIME = datetime.timedelta(seconds=50)
ROTATION_S = 12.0
KEYS = 100


def issue_all(authority: Authority) -> None:
    """Give every node and client a new file."""
    for path in node_files(authority.folder):
        authority.issue(*check(path).names, path=path, lifetime=LIFETIME)


def measure(folder: Path, seconds: float) -> dict[str, object]:
    """Run the story; give what was seen."""
    file = write_cluster(folder, routers=3, storages=3, supers=3)
    authority = Authority(folder / "certs")
    os.chdir(folder)
    assert command(["up", "-d", "--timeout", str(PATIENCE_S)]) == 0
    n_rotations = n_done = 0
    slowest_s, faults = 0.0, list[str]()
    try:
        url = "crescando://" + ",".join(seat.address for seat in file.seats if seat.role == "router")
        with crescando.connect(url, tls=folder / "certs") as store:
            table = store.create_table("counters", like={"id": [1], "n": [1]}, primary_key="id")
            table.insert([{"id": number, "n": 0} for number in range(KEYS)]).result()
            rotate_s, end_s = 0.0, time.monotonic() + seconds
            while time.monotonic() < end_s:
                if time.monotonic() > rotate_s:
                    issue_all(authority)
                    n_rotations += 1
                    rotate_s = time.monotonic() + ROTATION_S
                began_s = time.perf_counter()
                try:
                    table.update(col("id") == n_done % KEYS, "n = n + 1").result()
                    level = ("sequential", "snapshot")[n_done % 2]
                    table.select(where=col("id") == n_done % KEYS, isolation=level)
                    n_done += 1
                except CrescandoError as error:
                    faults.append(f"{type(error).__name__}: {error}")
                slowest_s = max(slowest_s, time.perf_counter() - began_s)
            counted = sum(n for _, n in table.select(["id", "n"]).rows())
    finally:
        command(["down"])
    return {
        "rotations": n_rotations,
        "writes": n_done,
        "counted": counted,
        "slowest_s": round(slowest_s, 2),
        "faults": faults[:5],
    }


def main() -> int:
    """Run the story, print what was seen, and say whether all went well."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=300.0)
    parsed = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        seen = measure(Path(folder), parsed.seconds)
    print(json.dumps(seen))
    return 0 if not seen["faults"] and seen["counted"] == seen["writes"] else 1


if __name__ == "__main__":
    sys.exit(main())
