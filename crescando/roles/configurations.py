"""A client's configuration messages on their way, each until it is stable or refused, and its questions."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from crescando.errors import RefusedError
from crescando.roles.completion import Completion
from crescando.routing.base import NotStable
from crescando.routing.ecast.messages import ConfigState


class Configurations:
    """Those that have no outcome.

    Attributes
    ----------
    asked : list of int
        What the users call their questions for the present configuration.
    """

    def __init__(self) -> None:
        self.asked: list[int] = []
        self._tokens: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._tokens)

    def add(self, number: int, token: int) -> None:
        """Wait for one more."""
        self._tokens[number] = token

    def answered(self, state: ConfigState) -> list[Completion]:
        """Give what the answer of the router that leads ends; one without a configuration was to others."""
        return [] if not state.config else [Completion(token, outcome=state) for token in self.take_asked()]

    def take_asked(self) -> list[int]:
        """Give the questions, of which none is left then."""
        asked, self.asked = self.asked, []
        return asked

    def settle(self, upto: int, excepted: Mapping[int, NotStable]) -> list[Completion]:
        """Learn what is stable, and what was refused; gives what ends with that."""
        completions = []
        for number in [known for known in self._tokens if known <= upto or known in excepted]:
            exception = excepted.get(number)
            error = None if exception is None else RefusedError(exception.reason)
            completions.append(Completion(self._tokens.pop(number), is_stable=error is None, error=error))
        return completions

    def end(self, error: Exception, which: Callable[[int], bool] = lambda number: True) -> list[Completion]:
        """Wait no more for those with some numbers."""
        ended = [number for number in self._tokens if which(number)]
        return [Completion(self._tokens.pop(number), error=error) for number in ended]
