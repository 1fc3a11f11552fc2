"""Results of a batch, sorted by who is to be told.

Rules of the file: senders come in the order in which they first spoke, so that
equal batches give equal results.
"""

from __future__ import annotations

from typing import Any

from crescando.engine.base import Failed, Partials, Results, Rows
from crescando.engine.cutting import PIECE_BYTES
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
        pieces, failures = reader.answers()
        for sender, piece in pieces:
            self._parts[sender][isinstance(piece, Partials)].append(piece)
        for local, failed in failures.items():
            self._parts[reader.operations[local].sender][3].append(failed)

    def wrote(self, group: Group, tally: Tally) -> None:
        """Tell what the writes of a group did."""
        for operation, written in zip(group.operations, tally.written(group), strict=True):
            self._parts[operation.sender][2].append(written)

    def results(self, executed: int) -> list[Results]:
        """Give the `Results` of each sender, further ones for long answers; `process` is left to the role."""
        nobody = ProcessId("", "")
        given = []
        for sender, (rows, partials, written, failed) in self._parts.items():
            first, *others = _packed([*rows, *partials])
            given.append(Results(nobody, sender, executed, *_by_kind(first), tuple(written), tuple(failed)))
            given.extend(Results(nobody, sender, executed, *_by_kind(pack)) for pack in others)
        return given


def _packed(pieces: list[Rows | Partials]) -> list[list[Rows | Partials]]:
    """Put pieces into packs of about `PIECE_BYTES`, in order; at least one pack, perhaps of none."""
    packs: list[list[Rows | Partials]] = [[]]
    n_bytes = 0
    for piece in pieces:
        if packs[-1] and n_bytes + piece.n_bytes > PIECE_BYTES:
            packs.append([])
            n_bytes = 0
        packs[-1].append(piece)
        n_bytes += piece.n_bytes
    return packs


def _by_kind(pack: list[Rows | Partials]) -> tuple[tuple[Rows, ...], tuple[Partials, ...]]:
    rows = tuple(piece for piece in pack if isinstance(piece, Rows))
    return rows, tuple(piece for piece in pack if isinstance(piece, Partials))
