"""The nodes' logs: they end up in files of bounded length."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

BYTES_MAX = 16 << 20
"""What one log may hold."""

KEPT_BYTES = BYTES_MAX // 4
"""What is kept of a longer one: its end."""

_TAIL_BYTES = 1 << 16


def cut_logs(folder: Path) -> None:
    """Drop the older part of each log in a folder that has become too long.

    Whoever writes them must do so at the end, wherever that is (O_APPEND).
    """
    for path in folder.glob("*.log"):
        with suppress(OSError):
            if path.stat().st_size > BYTES_MAX:
                _keep_end(path)


def _keep_end(path: Path) -> None:
    with path.open("r+b") as log:
        log.seek(-KEPT_BYTES, os.SEEK_END)
        # Not in the middle of a line.
        log.readline()
        end = log.read()
        log.seek(0)
        log.truncate()
        log.write(end)


def last_lines(path: Path, n: int) -> list[str]:
    """Give the last lines of a log; none if there is no such file."""
    try:
        with path.open("rb") as log:
            log.seek(max(0, path.stat().st_size - _TAIL_BYTES))
            return log.read().decode(errors="replace").strip().splitlines()[-n:]
    except OSError:
        return []
