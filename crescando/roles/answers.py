"""The answers that results carry, one by one, and long ones put together again.

Rules of the file: the pieces of a long answer come over one session, in order; if
it ends between them the answer is lost, and what had come of it is forgotten.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from crescando.client.base import Block, Groups, Piece
from crescando.engine.base import Partials, Rows
from crescando.types import ProcessId


@dataclass(frozen=True, slots=True)
class Answer:
    """What one read is answered, or a part of it.

    Attributes
    ----------
    number, position : int
        Of the read.
    content : Piece or Groups
    part : int
        How many parts came before.
    has_more : bool
        Whether parts come after.
    """

    number: int
    position: int
    content: Piece | Groups
    part: int
    has_more: bool


def answers_of(answers: Rows | Partials) -> Iterator[Answer]:
    """Give each read's answer."""
    block = Block(answers.names, answers.columns) if isinstance(answers, Rows) else None
    numbers, positions = answers.number.tolist(), answers.position.tolist()
    scopes, last = answers.scope.tolist(), len(numbers) - 1
    for index, number in enumerate(numbers):
        content = _content(answers, block, index, scopes[index])
        part = 0 if index else answers.part
        yield Answer(number, positions[index], content, part, answers.has_more and index == last)


def _content(answers: Rows | Partials, block: Block | None, index: int, scope: int) -> Piece | Groups:
    if isinstance(answers, Partials):
        return Groups(answers.scopes[scope], *answers.of_read(index))
    assert block is not None
    start, stop = int(answers.offsets[index]), int(answers.offsets[index + 1])
    return Piece(answers.scopes[scope], block, start, stop)


class Parts:
    """The parts of long answers that have come so far."""

    def __init__(self) -> None:
        self._of: dict[tuple[ProcessId, int, int], list[Piece | Groups]] = {}

    def __len__(self) -> int:
        return len(self._of)

    def join(self, process: ProcessId, answer: Answer) -> list[Piece | Groups] | None:
        """Take one part; gives them all with the last one, in order."""
        key = process, answer.number, answer.position
        known = self._of.pop(key, [])
        if len(known) != answer.part:
            return None  # Its beginning came over a session that ended.
        known.append(answer.content)
        if not answer.has_more:
            return known
        self._of[key] = known
        return None

    def end_session(self, process: ProcessId) -> None:
        """Forget what a process had begun to answer."""
        for key in [key for key in self._of if key[0] == process]:
            del self._of[key]

    def end_read(self, number: int) -> None:
        """Forget what was answered to a read that has its outcome."""
        for key in [key for key in self._of if key[1] == number]:
            del self._of[key]
