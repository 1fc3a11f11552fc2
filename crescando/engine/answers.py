"""Results of a batch, sorted by who is to be told.

Rules of the file: senders come in the order in which they first spoke, so that
equal batches give equal results.
"""

from __future__ import annotations

from typing import Any

from crescando.engine.base import Failed, Results
from crescando.engine.group import Group
from crescando.engine.reader import Reader
from crescando.engine.statement import Operation
from crescando.engine.writer import Tally
from crescando.types import ProcessId


class Answers:
    """Results by sender, in the order in which senders first spoke."""

    def __init__(self) -> None:
        self._parts: dict[ProcessId, tuple[list[Any], list[Any], list[Any], list[Any]]] = {}

    def expect(self, sender: ProcessId) -> None:
        """Fix a sender's place."""
        if sender not in self._parts:
            self._parts[sender] = ([], [], [], [])

    def failed(self, operation: Operation, kind: str, text: str) -> None:
        """Tell that an operation was not executed."""
        fault = Failed(operation.number, operation.position, operation.scope, kind, (), text)
        self._parts[operation.sender][3].append(fault)

    def read(self, reader: Reader) -> None:
        """Tell what the reads of a group answered."""
        operations = reader.operations
        failures = reader.failed()
        for sender, rows in reader.rows():
            self._parts[sender][0].append(rows)
        for sender, partials in reader.partials():
            self._parts[sender][1].append(partials)
        for local, failed in failures.items():
            self._parts[operations[local].sender][3].append(failed)

    def wrote(self, group: Group, tally: Tally) -> None:
        """Tell what the writes of a group did."""
        for operation, written in zip(group.operations, tally.written(group), strict=True):
            self._parts[operation.sender][2].append(written)

    def results(self, executed: int) -> list[Results]:
        """Give one `Results` per sender; `process` is left to the role."""
        nobody = ProcessId("", "")
        return [
            Results(nobody, sender, executed, tuple(rows), tuple(partials), tuple(written), tuple(failed))
            for sender, (rows, partials, written, failed) in self._parts.items()
        ]
