"""A client's questions to exactly one process, which go around the order and are never sent again."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import get_args

from crescando.client.base import Groups, Piece, ReadInParts
from crescando.errors import CrescandoError
from crescando.roles.completion import Completion
from crescando.roles.copy_messages import CopiesTold
from crescando.roles.messages import Explains, PinAnswered, Retires, Watched, Weighs
from crescando.types import Position, ProcessId

Answer = CopiesTold | Explains | PinAnswered | Retires | Watched | Weighs
"""What answers a question that is no read."""

ANSWERS = get_args(Answer)


def no_session(token: int, process: ProcessId) -> Completion:
    """Tell that a process cannot be asked."""
    return Completion(token, error=CrescandoError(f"no session with {process}; it may have failed"))


class ReplicaReads:
    """The replica reads of one client; answers to them are numbered below 0.

    Parameters
    ----------
    numbers : iterator of int
        Gives numbers above 0 for what is asked outside the order, each once.
    """

    def __init__(self, numbers: Iterator[int]) -> None:
        self._numbers = numbers
        self._open: dict[int, tuple[int, ProcessId]] = {}

    def __len__(self) -> int:
        return len(self._open)

    def ask(self, token: int, process: ProcessId) -> int:
        """Give the number of a question to a process."""
        request = next(self._numbers)
        self._open[request] = (token, process)
        return request

    def answered(self, message: Answer) -> list[Completion]:
        """Give what the answer to a question ends."""
        token = self.take(-message.request)
        outcome = message.explanation if isinstance(message, Explains) else message
        return [] if token is None else [Completion(token, outcome=outcome)]

    def is_open(self, number: int) -> bool:
        """Say whether an answer is to one of these."""
        return -number in self._open

    def complete(self, number: int, at: int, whole: Sequence[Piece | Groups]) -> Completion:
        """Give what an answer says, which is wholly there."""
        token, _ = self._open.pop(-number)
        pieces = tuple(piece for piece in whole if isinstance(piece, Piece))
        return Completion(token, outcome=ReadInParts(Position(at), pieces))

    def take(self, number: int) -> int | None:
        """Give the token of the read that an answer ends, if it is one of these."""
        return self._open.pop(-number, (None, None))[0]

    def end(self, process: ProcessId, reason: str) -> list[Completion]:
        """Wait for a process no more."""
        ended = [request for request, (_, asked) in self._open.items() if asked == process]
        error = CrescandoError(f"{process} {reason}")
        return [Completion(self._open.pop(request)[0], error=error) for request in ended]
