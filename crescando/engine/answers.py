"""Results of a batch, sorted by who is to be told.

Rules of the file: senders come in the order in which they first spoke, so that
equal batches give equal results.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crescando.engine.base import Failed, Partials, Results, Rows
from crescando.engine.cutting import PIECE_BYTES
from crescando.engine.group import Group
from crescando.engine.operations import Members
from crescando.engine.parallel import Workers
from crescando.engine.reader import Reader
from crescando.engine.transactions import Transactions
from crescando.engine.writer import Tally
from crescando.engine.written import Written, cut_written, join_written
from crescando.types import ProcessId


class Answers:
    """Results by sender, in the order in which senders first spoke.

    Parameters
    ----------
    senders : iterable of ProcessId
        Whoever sent something, as often as they did.
    """

    def __init__(self, senders: Iterable[ProcessId]) -> None:
        self._parts: dict[ProcessId, tuple[list[Any], list[Any], list[Any], list[Any]]] = {
            sender: ([], [], [], []) for sender in dict.fromkeys(senders)
        }
        self.transactions = Transactions()

    def failed(self, members: Members, local: int, kind: str, text: str) -> None:
        """Tell that an operation was not executed."""
        number, position = int(members.number[local]), int(members.position[local])
        fault = Failed(number, position, members.scope_of(local), kind, (), text)
        step = int(members.step[local])
        if step >= 0:
            self.transactions.refuse(members.sender_of(local), step, fault)
        else:
            self._parts[members.sender_of(local)][3].append(fault)

    def refused(self, members: Members, kind: str, text: str) -> None:
        """Tell that none of some operations was executed."""
        for local in range(len(members)):
            self.failed(members, local, kind, text)

    def read(self, reader: Reader, workers: Workers) -> None:
        """Tell what the reads of a group answered."""
        pieces, failures = reader.answers(workers)
        for sender, piece in pieces:
            self._parts[sender][isinstance(piece, Partials)].append(piece)
        for local, failed in failures.items():
            self._parts[reader.members.sender_of(local)][3].append(failed)

    def wrote(self, group: Group, tally: Tally) -> None:
        """Tell what the writes of a group did."""
        written = tally.written(group)
        for sender, places in group.members.by_sender(group.every):
            some = written if len(places) == len(written) else written.keep(places)
            self._parts[sender][2].append(some)

    def loaded(self, sender: ProcessId, outcome: Written | Failed) -> None:
        """Tell what a step of a load did."""
        self._parts[sender][3 if isinstance(outcome, Failed) else 2].append(outcome)

    def results(self, executed: int) -> list[Results]:
        """Give the `Results` of each sender, further ones for long answers; `process` is left to the role."""
        nobody = ProcessId("", "")
        for sender, fault in self.transactions.failed():
            self._parts[sender][3].append(fault)
        given: list[Results] = []
        for sender, (rows, partials, written, failed) in self._parts.items():
            first, *others = _packed([*rows, *partials])
            packs = cut_written(join_written(written), PIECE_BYTES) if written else []
            given.extend(Results(nobody, sender, executed, written=(pack,)) for pack in packs[:-1])
            given.append(
                Results(nobody, sender, executed, *_by_kind(first), tuple(packs[-1:]), tuple(failed))
            )
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
