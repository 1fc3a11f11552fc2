"""Agents: clients that keep many operations in flight and note what became of each.

Rules of the file: an agent is a thread with one session of its own. It submits
without waiting until its window is full, then takes outcomes, oldest first,
until half of it is free. It judges nothing; it only records.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from crescando import Session
from crescando.demo.operations import Operation, is_read
from crescando.demo.record import Answered, Record, Unanswered, Written
from crescando.demo.verbs import submit
from crescando.errors import OperationError, ReadLostError

WINDOW = 128
"""Operations that one agent keeps in flight: a few agents fill a scan."""

ATTEMPTS_MAX = 8
"""A read whose owner died is submitted again; so many times, since no demo kills more owners."""

OUTCOME_TIMEOUT_S = 30.0


@dataclass(slots=True)
class _Flying:
    sequence: int
    operation: Operation
    handle: Any
    submitted_s: float
    n_attempts: int


class Agent(threading.Thread):
    """One client at work.

    Parameters
    ----------
    number : int
    session : Session
        Used by this agent alone.
    table_name : str
    operations : iterator of Operation
    window : int
        How many operations it keeps in flight.

    Attributes
    ----------
    records : list of Record
        Grows while the agent works.
    error : BaseException or None
        What ended it before its time: a fault of the demo or of the store.
    """

    def __init__(
        self,
        number: int,
        session: Session,
        table_name: str,
        operations: Iterator[Operation],
        *,
        window: int = WINDOW,
    ) -> None:
        super().__init__(name=f"agent-{number}", daemon=True)
        self.number = number
        self.session = session
        self.records: list[Record] = []
        self.error: BaseException | None = None
        self._table = session.table(table_name)
        self._operations = operations
        self._window = window
        self._n_submitted = 0
        self._flying: deque[_Flying] = deque()

    def run(self) -> None:
        """Submit everything and take every outcome."""
        try:
            for operation in self._operations:
                self._submit(operation, time.monotonic(), 1)
                if len(self._flying) >= self._window:
                    self._take_until(self._window // 2)
            self._take_until(0)
        except BaseException as error:  # noqa: BLE001  # It is told by the thread that waits for this one.
            self.error = error

    def _submit(self, operation: Operation, submitted_s: float, n_attempts: int) -> None:
        handle = submit(self._table, operation)
        self._flying.append(_Flying(self._n_submitted, operation, handle, submitted_s, n_attempts))
        self._n_submitted += 1

    def _take_until(self, n_left: int) -> None:
        while len(self._flying) > n_left:
            self._take(self._flying.popleft())

    def _take(self, flying: _Flying) -> None:
        outcome: Answered | Written | Unanswered
        try:
            if is_read(flying.operation):
                answer = flying.handle.result(OUTCOME_TIMEOUT_S)
                outcome = Answered(answer.position, answer)
            else:
                result = flying.handle.result(OUTCOME_TIMEOUT_S, check=False)
                outcome = Written(result.position, result.affected, result.rejected)
        except ReadLostError:
            if flying.n_attempts < ATTEMPTS_MAX:
                # The API's word: nothing was answered, ask again. It is a new submission.
                self._submit(flying.operation, flying.submitted_s, flying.n_attempts + 1)
                return
            outcome = Unanswered(f"lost {flying.n_attempts} times")
        except OperationError as error:
            outcome = Unanswered(f"{type(error).__name__} (applied {error.applied}): {error}")
        latency_s = time.monotonic() - flying.submitted_s
        self.records.append(
            Record(self.number, flying.sequence, flying.operation, outcome, latency_s, flying.n_attempts)
        )
