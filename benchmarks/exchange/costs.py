"""Whose time a load or an extract takes: seconds of processor by kind of process.

Rules of the file: read from ``/proc``, before and after. On a machine whose cores
are all busy these seconds, and not those of the clock, say what limits a side.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Process:
    """One line of the machine's list.

    Attributes
    ----------
    parent : int
        Who started it.
    seconds : float
        Of processor, so far.
    ended_s : float
        Of those that it started and that have ended.
    """

    parent: int
    seconds: float
    ended_s: float = 0.0


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
            own, ended = sum(map(int, fields[11:13])), sum(map(int, fields[13:15]))
            found[int(entry.name)] = Process(int(fields[1]), own / _TICKS, ended / _TICKS)
    return found


def by_kind(
    seen: Mapping[int, Process], roots: Mapping[int, str], below: Mapping[str, str] | None = None
) -> dict[str, float]:
    """Sum seconds by kind: a process is of the kind of the next root above it, or of its own.

    Parameters
    ----------
    seen : mapping of int to Process
    roots : mapping of int to str
        The kind of some processes.
    below : mapping of str to str, optional
        The kind of what processes of a kind start, if that is another one.
    """
    below = below or {}
    told = dict.fromkeys([*roots.values(), *below.values()], 0.0)
    for pid, process in seen.items():
        above, at = pid, process
        while above not in roots and at.parent in seen:
            above, at = at.parent, seen[at.parent]
        if above in roots:
            kind = roots[above]
            started = below.get(kind, kind)
            told[kind if above == pid else started] += process.seconds
            told[started] += process.ended_s
    return told


class Account:
    """Counts the processor time of some kinds of processes, from now on.

    Parameters
    ----------
    kinds : mapping of str to iterable of int
        Processes by what they do; what they start counts with them, unless it has a kind itself.
    below : mapping of str to str, optional
        See `by_kind`.
    """

    def __init__(self, kinds: Mapping[str, Iterable[int]], below: Mapping[str, str] | None = None) -> None:
        self._roots = {pid: kind for kind, pids in kinds.items() for pid in pids}
        self._below = below
        self._before = by_kind(processes(), self._roots, self._below)

    def spent(self) -> dict[str, float]:
        """Give the seconds by kind since the account was opened."""
        now = by_kind(processes(), self._roots, self._below)
        return {kind: round(seconds - self._before[kind], 2) for kind, seconds in now.items()}
