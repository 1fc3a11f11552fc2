"""Speaking with a child process: one JSON object a line, and one back for each.

Rules of the file: a child that dies or falls silent is an error that shows the
last of what it printed; it is ended by whoever started it.
"""

from __future__ import annotations

import json
import select
import subprocess
from pathlib import Path
from typing import Any

TAIL = 2000


class Lines:
    """Both ends of a child's pipes.

    Parameters
    ----------
    name : str
        Whose, for errors.
    child : subprocess.Popen
        Started with pipes, in text mode.
    log : Path
        Where its errors go.
    limit_s : float
        How long an answer may take if nobody says otherwise.
    """

    def __init__(self, name: str, child: subprocess.Popen[str], log: Path, limit_s: float) -> None:
        assert child.stdin is not None
        assert child.stdout is not None
        self.child = child
        self._name, self._log, self._limit_s = name, log, limit_s
        self._to, self._from = child.stdin, child.stdout

    def write(self, **line: Any) -> None:
        """Say something."""
        self._to.write(json.dumps(line) + "\n")
        self._to.flush()

    def has_line(self, limit_s: float) -> bool:
        """Say whether there is an answer, or the end."""
        return bool(select.select([self._from], [], [], limit_s)[0])

    def read(self, limit_s: float | None = None) -> dict[str, Any]:
        """Give the next answer.

        Raises
        ------
        RuntimeError
            If none comes, or the child says that it has failed.
        """
        line = self._from.readline() if self.has_line(self._limit_s if limit_s is None else limit_s) else ""
        if not line:
            said = self._log.read_text(errors="replace")[-TAIL:]
            raise RuntimeError(f"{self._name} does not answer:\n{said}")
        answer: dict[str, Any] = json.loads(line)
        if "failed" in answer:
            raise RuntimeError(f"{self._name}: {answer['failed']}")
        return answer
