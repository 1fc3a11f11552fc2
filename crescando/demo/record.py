"""What became of one operation, as its agent saw it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from crescando.demo.operations import Operation


@dataclass(frozen=True, slots=True)
class Answered:
    """A read's complete answer.

    Attributes
    ----------
    position : int
        Where in the order it was read.
    answer : Any
        The store's own answer; `crescando.demo.verbs.plain_rows` makes rows of it.
    """

    position: int
    answer: Any


@dataclass(frozen=True, slots=True)
class Written:
    """An acknowledged write's position, and how many rows it wrote and rejected."""

    position: int
    affected: int
    rejected: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """An operation whose outcome the store did not tell."""

    reason: str


@dataclass(frozen=True, slots=True)
class Record:
    """One operation from submission to outcome.

    Attributes
    ----------
    agent : int
    sequence : int
        Place in the agent's own submissions. A read that was submitted again
        has the place of its last submission.
    operation : Operation
    outcome : Answered, Written or Unanswered
    latency_s : float
        From the first submission until the agent held the outcome.
    n_attempts : int
    """

    agent: int
    sequence: int
    operation: Operation
    outcome: Answered | Written | Unanswered
    latency_s: float
    n_attempts: int = 1

    @property
    def position(self) -> int | None:
        """The position that the store reports, if it reported one."""
        return None if isinstance(self.outcome, Unanswered) else self.outcome.position
