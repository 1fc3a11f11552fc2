"""E9: rows from Arrow into an engine, what they take in memory, and a range of them as bytes.

Rules of the file: ours is measured in a process of its own, with one thread,
since memory is what the operating system says it is: resident pages after the
load and without the Arrow table, less those before either. The engine's own
account stands beside it. Run as a program, this module is that process.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import os
import subprocess
import sys
import time
from contextlib import suppress
from typing import Any

import pyarrow as pa

from benchmarks.report import ROOT
from benchmarks.rivals.arrays import Pandas
from benchmarks.rivals.duckdb_rival import DuckDB
from benchmarks.rivals.polars_rival import Polars
from benchmarks.scans.plan import Stock
from benchmarks.tickets.generate import tickets, value_bytes
from benchmarks.verdicts import Goal, Outcome, judge, spread
from crescando.engine import kernels
from crescando.warming import VARIABLE, warm_kernels

PIECE_ROWS = 1 << 18
EXPORTS = 5
BUFFER_BYTES = 1 << 20
"""Of what is exported so much lies in a buffer at a time, as if it went to a socket."""

TIMEOUT_S = 900


def e9(stock: Stock) -> Outcome:
    """Ingest, memory and export."""
    told = _in_a_process_of_its_own(stock)
    raw = told["value_bytes"]
    why = stock.plan.unjudged()
    memory = max(told["resident_bytes"], told["accounted_bytes"]) / raw
    goals = [
        Goal(
            "ingest from Arrow", told["rows_s"]["median"] / 1e6, 1.2, 2.0, unit="million rows/s", unjudged=why
        ),
        Goal("memory of the values' lengths", memory, 0.8, 0.6, is_ceiling=True, unjudged=why),
        Goal("range to bytes", told["export_gb_s"]["median"], 1.5, 2.5, unit="GB/s", unjudged=why),
    ]
    sizes = {"arrow": {"strings": stock.table.nbytes}}
    rivals: list[Any] = [r for r in map(stock.rival, (Polars, Pandas, DuckDB)) if r is not None]
    for rival in rivals:
        found = rival.n_bytes()
        sizes[rival.name] = found if isinstance(found, dict) else {"strings": found}
    return judge(
        goals,
        ours=told,
        bytes_of_a_row=round(raw / stock.plan.rows, 1),
        memory_of_values={
            name: {how: round(size / raw, 2) for how, size in each.items()} for name, each in sizes.items()
        },
        note="rivals' figures are their own accounts; ours is the larger of its own and the resident pages",
        **stock.about(rivals),
    )


def _in_a_process_of_its_own(stock: Stock) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scans.loading"]
    command += [str(stock.plan.rows), str(stock.plan.seed), str(stock.plan.trials)]
    # The system's allocator gives pages back, so that what is resident is what is in use.
    environment = {**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"}
    if kernels.active().name == "numpy":
        environment[VARIABLE] = "numpy"
    done = subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=TIMEOUT_S, check=False
    )
    if done.returncode:
        raise RuntimeError(f"the loading process failed:\n{done.stderr[-1500:]}")
    told: dict[str, Any] = json.loads(done.stdout)
    return told


def resident_bytes() -> int:
    """Give the resident pages of this process, after giving back what is free."""
    gc.collect()
    pa.default_memory_pool().release_unused()
    with suppress(AttributeError, OSError):  # Not every C library can.
        ctypes.CDLL(None).malloc_trim(0)
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def load_once(n_rows: int, seed: int, trials: int) -> dict[str, Any]:
    """Load the same rows several times into new engines; measure the last one's memory and exports."""
    from benchmarks.scans.engine_side import EngineSide, slices_of
    from crescando.engine.statement import encode_in_pieces
    from crescando.types import KeyRange

    pa.set_cpu_count(1)
    warming = warm_kernels()
    if warming is not None:
        warming.join()
    EngineSide(tickets(min(n_rows, 1_000), seed + 1))  # Whatever is imported or compiled at first use.
    before = resident_bytes()
    table = tickets(n_rows, seed)
    n_value_bytes = value_bytes(table)
    seconds: list[float] = []
    side = EngineSide(table.slice(0, 0))
    for _ in range(trials):
        del side
        gc.collect()
        side = EngineSide(table.slice(0, 0))
        begin_s = time.perf_counter()
        for piece in slices_of(table, PIECE_ROWS):
            side.load(piece)
        seconds.append(time.perf_counter() - begin_s)
    del table, piece
    resident = resident_bytes() - before
    engine = side.engine
    accounted = engine.statistics()["bytes"]
    rates = []
    shape = side.read("miles is null", [])
    half = KeyRange(0, (1 << 63) - 1)
    buffer = memoryview(bytearray(BUFFER_BYTES))
    n_exported = 0
    for _ in range(EXPORTS):
        begin_s = time.perf_counter()
        columns = engine.export(side.schema.id, half)
        n_exported = send(encode_in_pieces(shape, columns), buffer)
        taken_s = time.perf_counter() - begin_s
        rates.append(n_value_bytes * len(columns[0]) / n_rows / taken_s / 1e9)
    return {
        "rows_s": spread([n_rows / each for each in seconds], 0),
        "value_bytes": n_value_bytes,
        "resident_bytes": resident,
        "accounted_bytes": accounted,
        "export_gb_s": spread(rates),
        "export_bytes": n_exported,
        "export_rows": len(columns[0]),
        "pieces_of_rows": PIECE_ROWS,
    }


def send(pieces: list[bytes | memoryview], buffer: memoryview) -> int:
    """Copy every byte as sending does: into one buffer that is used again and again; gives how many."""
    sent = at = 0
    for piece in pieces:
        data = memoryview(piece)
        if data.nbytes == 0:
            continue
        data = data.cast("B")
        for start in range(0, len(data), len(buffer)):
            part = data[start : start + len(buffer)]
            if at + len(part) > len(buffer):
                at = 0
            buffer[at : at + len(part)] = part
            at += len(part)
            sent += len(part)
    return sent


def main() -> None:
    """Be the process that loads."""
    parser = argparse.ArgumentParser()
    for name in ("rows", "seed", "trials"):
        parser.add_argument(name, type=int)
    options = parser.parse_args()
    print(json.dumps(load_once(options.rows, options.seed, options.trials)))


if __name__ == "__main__":
    main()
