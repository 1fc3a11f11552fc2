"""A program that ends a benchmark's servers when the benchmark itself has ended, however it ended.

Rules of the file: standard library only, run by path, no import of ours, so that
it starts in milliseconds. It reads ``+pid`` and ``-pid`` lines from its standard
input and, when that closes, kills the pids it still knows and removes the folder
named on its command line. The pipe closes when its one writer dies, even by
SIGKILL; a signal to the children "when the parent dies" would not do, since
Linux sends that when the *thread* that started them ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys


def birth(pid: int) -> str:
    """Give the start time of a process, which tells it from a later one with the same pid."""
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii", errors="replace") as stat:
            # The second field is the program's name in parentheses and may hold
            # anything; the start time is the 20th field after it (proc(5)).
            return stat.read().rpartition(")")[2].split()[19]
    except (OSError, IndexError):
        return ""


def main() -> None:
    """Wait for the pipe to close, then leave nothing behind."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    births: dict[int, str] = {}
    for line in sys.stdin:
        pid = int(line[1:])
        if line[0] == "+":
            births[pid] = birth(pid)
        else:
            births.pop(pid, None)
    for pid, born in births.items():
        if birth(pid) == born:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
    shutil.rmtree(sys.argv[1], ignore_errors=True)


if __name__ == "__main__":
    main()
