"""How soon a fresh process answers with no kernel compiled, and whether it stalls on its way to full speed.

``make cold-start`` prints the figures and fails where they are missed. A child process opens a
store, loads a table and reads without a pause, on NumPy's kernels at first, while another process
compiles, and on the compiled ones as soon as they are loaded. What is measured is every single read.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections import deque
from dataclasses import asdict, dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

FIRST_S = 1.0
"""From the start of the process to the answer of its first query."""

STALL_S = 0.1
"""The longest that any read may take until the compiled kernels are in use, and after."""

SWITCH_S = 5.0
"""Loading takes less, also on a busy machine. Before that another process compiles, at low priority."""

ROWS = 100_000
READS_AFTER = 500
LIMIT_S = 400.0


@dataclass
class Figures:
    """What a process measured of itself.

    Attributes
    ----------
    first_s, first_cpu_s : float
        From the start of the interpreter to the first answer; and what processor time that took.
    stall_s, stall_at_s : float
        The slowest read after that, and when it began.
    switch_s : float
        The slowest from `SWITCH_S` before the compiled kernels were in use: while they are loaded, and after.
    warm_s : float
        When the compiled kernels were in use; 0 if they never were.
    before_s, after_s : float
        What a read took in the middle (median), on the kernels of before and of after.
    reads : int
    kernels : str
        In use at the end.
    """

    first_s: float
    first_cpu_s: float
    stall_s: float = 0.0
    stall_at_s: float = 0.0
    switch_s: float = 0.0
    warm_s: float = 0.0
    before_s: float = 0.0
    after_s: float = 0.0
    reads: int = 0
    kernels: str = ""


def child(begun_s: float) -> Figures:
    """Be the fresh process."""
    import crescando
    from crescando.engine import kernels

    with crescando.open() as store:
        table = store.create_table("t", like={"k": [1], "v": [1]}, primary_key="k")
        table.insert({"k": [1, 2, 3], "v": [7, 8, 7]}).result()
        assert table.count("v = 7") == 2
        figures = Figures(time.time() - begun_s, time.process_time())

        for first in range(10, ROWS, 10_000):
            keys = list(range(first, first + 10_000))
            table.insert({"k": keys, "v": keys}).result()
        read = table.prepare_select(["k"], "v = ?")
        took_s: dict[bool, list[float]] = {False: [], True: []}
        recent: deque[tuple[float, float]] = deque()
        is_warm = kernels.active().name == "numba"
        end_s = time.perf_counter() + LIMIT_S
        while len(took_s[True]) < READS_AFTER and time.perf_counter() < end_s:
            now_s = time.perf_counter()
            assert len(read((10 + figures.reads % 1_000,)).result()) == 1
            each_s = time.perf_counter() - now_s
            figures.reads += 1
            took_s[is_warm].append(each_s)
            recent.append((now_s, each_s))
            while not is_warm and recent[0][0] < now_s - SWITCH_S:
                recent.popleft()
            if each_s > figures.stall_s:
                figures.stall_s, figures.stall_at_s = each_s, time.time() - begun_s
            if not is_warm and kernels.active().name == "numba":
                is_warm, figures.warm_s = True, time.time() - begun_s
            time.sleep(0.002)
    figures.before_s, figures.after_s = (_median(took_s[each]) for each in (False, True))
    figures.switch_s = max(each_s for _, each_s in recent)
    figures.kernels = kernels.active().name
    return figures


def _median(values: list[float]) -> float:
    return sorted(values)[len(values) // 2] if values else 0.0


def measure(cache: Path) -> Figures:
    """Run a fresh process whose compiled kernels lie, or will lie, in a folder."""
    environment = os.environ | {"XDG_CACHE_HOME": str(cache), "CRESCANDO_KERNELS": ""}
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-m", "tests.engine.cold_start", "--child", repr(time.time())],
        capture_output=True,
        text=True,
        timeout=LIMIT_S + 60,
        env=environment,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    return Figures(**json.loads(done.stdout))


def main() -> int:
    """Print the figures of a cold start and of a warm one; exit 1 where a bound is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--child", type=float, default=None, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child is not None:
        print(json.dumps(asdict(child(options.child))))
        return 0
    is_missed = False
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            figures = measure(Path(cache))
            print(f"{name}: {figures}")
            is_missed |= figures.first_s > FIRST_S or figures.stall_s > STALL_S
            is_missed |= figures.kernels != "numba"
    print(f"bounds: first answer {FIRST_S} s, slowest read {STALL_S} s: {'missed' if is_missed else 'met'}")
    return int(is_missed)


if __name__ == "__main__":
    sys.exit(main())
