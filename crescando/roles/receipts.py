"""What a client lets the owners forget: outcomes that have arrived, and reads that nobody waits for.

Rules of the file: only reads are called off; a write that was handed over happens. Whatever
the owners do with what they are told here changes no other answer.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from crescando.roles.direct import DirectReads
from crescando.roles.flight import InFlight
from crescando.roles.messages import Answered, Forget
from crescando.roles.requests import Requests
from crescando.roles.runs import Runs

ANSWERED_STEP = 256
"""Owners are told when so many more outcomes have arrived, or all."""


class Receipts:
    """What one client has told its owners that they may forget.

    Attributes
    ----------
    answered : int
        Every outcome up to this number has arrived, and the owners know.
    """

    def __init__(self) -> None:
        self.answered = 0
        self._tokens: set[int] = set()
        self._numbers: list[int] = []

    def cancel(self, tokens: Iterable[int]) -> None:
        """Call off reads, by what the user calls them; others than reads are left alone."""
        self._tokens.update(tokens)

    @property
    def has_cancelled(self) -> bool:
        """Whether something was called off since the last turn."""
        return bool(self._tokens)

    def take_cancelled(
        self,
        requests: Requests,
        operations: Runs,
        direct: DirectReads,
    ) -> tuple[list[int], list[InFlight]]:
        """Give what was called off: tokens of what was not sent, which is forgotten, and operations."""
        tokens, self._tokens = self._tokens, set()
        unsent = requests.call_off(tokens)
        more, attempts = direct.take_some(tokens)
        sent = [each for each in operations.called(tokens) if each.is_read] + attempts
        self._numbers += [operation.number for operation in sent]
        return unsent + more, sent

    def take(self, lowest: int, *, is_idle: bool) -> list[Any]:
        """Give what to tell every owner now.

        Parameters
        ----------
        lowest : int
            Number of the first operation without an outcome.
        is_idle : bool
            Whether there is none.
        """
        messages: list[Any] = []
        if self._numbers:
            messages.append(Forget(tuple(self._numbers)))
            self._numbers = []
        if lowest > self.answered + ANSWERED_STEP or (is_idle and lowest - 1 > self.answered):
            self.answered = lowest - 1
            messages.append(Answered(self.answered))
        return messages
