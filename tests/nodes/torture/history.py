"""What a client of a torture saw, operation by operation, in a form that passes between processes."""

from __future__ import annotations

import pickle
from dataclasses import dataclass, field
from pathlib import Path

from crescando.client.base import Isolation, ReadOutcome, WriteOutcome
from crescando.testing.workload import Step
from crescando.types import ProcessId
from tests.nodes.torture.bulk import Extracted, Loaded

Outcome = ReadOutcome | WriteOutcome | Exception


@dataclass(slots=True)
class Asked:
    """One operation from asking to outcome; times are of the host's monotonic clock.

    Attributes
    ----------
    client : ProcessId
    token : int
        Its number among the client's own.
    step : Step
    isolation : str
    is_everywhere : bool
        Whether it touches the whole ring, and so every process on it.
    seen : int
        The highest position that the client had been told when it asked.
    asked_s, told_s : float
    outcome : ReadOutcome, WriteOutcome, Exception or None
        None if it was never told.
    number : int
        Of the last message that carried it, as far as that was looked at; 0 if it was not.
    """

    client: ProcessId
    token: int
    step: Step
    isolation: Isolation
    is_everywhere: bool
    seen: int
    asked_s: float
    told_s: float = 0.0
    outcome: Outcome | None = None
    number: int = 0

    @property
    def is_written(self) -> bool:
        """Whether it is a write that was acknowledged with its counts."""
        return isinstance(self.outcome, WriteOutcome)


@dataclass(slots=True)
class History:
    """Everything one client process has asked, operation by operation and in bulk."""

    asked: list[Asked] = field(default_factory=list)
    loads: list[Loaded] = field(default_factory=list)
    extracts: list[Extracted] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    def save(self, path: Path) -> None:
        """Write it to a file, all of it or nothing."""
        draft = path.with_suffix(".new")
        draft.write_bytes(pickle.dumps(self))
        draft.replace(path)

    @staticmethod
    def load(path: Path) -> History:
        """Read what `save` wrote."""
        loaded = pickle.loads(path.read_bytes())  # Our own, of a moment ago.
        assert isinstance(loaded, History)
        return loaded
