"""Whose time a load or an extract takes: seconds of processor by kind of process.

Rules of the file: read from ``/proc``, before and after. On a machine whose cores
are all busy these seconds, and not those of the clock, say what limits a side.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the machine's list: who started it, and its seconds of processor so far.

    They include those of its children that have ended.
    """

    parent: int
    seconds: float


def processes() -> dict[int, Process]:
    """Give all processes of the machine by pid."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                text = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue  # It has ended meanwhile.
            # The second field is the program's name in parentheses and may hold anything (proc(5)).
            fields = text.rpartition(")")[2].split()
            found[int(entry.name)] = Process(int(fields[1]), sum(map(int, fields[11:15])) / _TICKS)
    return found


def by_kind(seen: Mapping[int, Process], roots: Mapping[int, str]) -> dict[str, float]:
    """Sum seconds by kind: a process is of the kind of the next root above it, or of its own."""
    told = dict.fromkeys(roots.values(), 0.0)
    for pid, process in seen.items():
        above, at = pid, process
        while above not in roots and at.parent in seen:
            above, at = at.parent, seen[at.parent]
        if above in roots:
            told[roots[above]] += process.seconds
    return told


class Account:
    """Counts the processor time of some kinds of processes, from now on.

    Parameters
    ----------
    kinds : callable
        Gives the processes that there are by what they do; what they start counts with
        them, unless it has a kind itself.
    """

    def __init__(self, kinds: Callable[[], Mapping[str, Iterable[int]]]) -> None:
        self._kinds = kinds
        self._before = self._now()

    def spent(self) -> dict[str, float]:
        """Give the seconds by kind since the account was opened."""
        now = self._now()
        return {kind: round(seconds - self._before.get(kind, 0.0), 2) for kind, seconds in now.items()}

    def _now(self) -> dict[str, float]:
        roots = {pid: kind for kind, pids in self._kinds().items() for pid in pids}
        return by_kind(processes(), roots)


def children(pid: int) -> list[int]:
    """Give the processes that one has started and that live."""
    return [child for child, process in processes().items() if process.parent == pid]
