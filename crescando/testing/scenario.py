"""What a simulation of the order needs to know of a Config and its messages.

Users test their own routing plug-ins by writing a `Scenario` for them; the
world, the faults and the checkers stay the same.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from crescando.routing.base import Config
from crescando.testing.judge import Judge
from crescando.types import KeyRange, MessageKind, ProcessId


@dataclass(frozen=True, slots=True)
class Draft:
    """A message that some process is about to send; its number and sender come later."""

    kind: MessageKind
    table: int
    ranges: tuple[KeyRange, ...]
    payload: bytes


class Scenario(Protocol):
    """A Config under test: how it begins, and what is sent.

    Every draw must come from the given `rng`, or a run cannot be repeated by
    its seed.

    Attributes
    ----------
    judge : Judge
        Says a second time, independently, who receives what; `ConfigJudge()`
        takes the Config's own scalar methods for it.
    """

    @property
    def judge(self) -> Judge: ...

    def founders(self, rng: random.Random) -> tuple[ProcessId, ...]:
        """Give the processes that the first Config has as members, two at least."""
        ...

    def genesis(self, rng: random.Random, founders: Sequence[ProcessId]) -> Config:
        """Give the Config before the first message."""
        ...

    def view(self, config: Config) -> Any:
        """Turn the first Config into what the judge works on."""
        ...

    def join(self, process: ProcessId) -> bytes:
        """Give the configuration message by which a new process joins; its first one."""
        ...

    def suspect(self, process: ProcessId) -> bytes:
        """Give the configuration message that makes a process fail, by one member's word."""
        ...

    def draw(self, rng: random.Random, me: ProcessId, processes: Sequence[ProcessId]) -> Draft:
        """Draw a message of `me`; `processes` are all that ever were, ascending."""
        ...
