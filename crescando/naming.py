"""What people call processes: by identity, by role and node, or by node alone."""

from __future__ import annotations

from collections.abc import Iterable

from crescando.errors import SpecError, nearest_name
from crescando.types import ProcessId

Name = ProcessId | str
"""``ProcessId("storage", "s2", 1)``, ``"storage/s2#1"``, ``"storage/s2"`` or ``"s2"``."""


def identify(name: Name, known: Iterable[ProcessId], among: str = "") -> ProcessId:
    """Find a process; of a node's incarnations the last one is meant, unless the name says which.

    Parameters
    ----------
    name : ProcessId or str
    known : iterable of ProcessId
    among : str
        Says of which processes these are, for the error.

    Raises
    ------
    SpecError
        If there is none, with the nearest name.
    """
    processes = sorted(known, key=lambda process: process.incarnation, reverse=True)
    for process in processes:
        if name == process or str(name) in (str(process), f"{process.role}/{process.node}", process.node):
            return process
    names = tuple(sorted({f"{process.role}/{process.node}" for process in processes}))
    nearest = nearest_name(str(name), names)
    hint = f"did you mean {nearest}?" if nearest else f"there are {', '.join(names)}"
    raise SpecError(f"no process {among}{' ' if among else ''}is called {name}; {hint}")
