"""What a client process tells the one who asked it for something."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import msgspec

from crescando.client.base import ReadOutcome, WriteOutcome


class Completion(msgspec.Struct, frozen=True, gc=False):
    """Something a user waits for has happened.

    Attributes
    ----------
    token : int
        What the user called it.
    is_stable : bool
        True if this tells only that the operation is stable.
    outcome : ReadOutcome, WriteOutcome, or what was answered
        Of a data operation; of a question, the answer: a `ConfigState` from the router that leads.
    error : Exception or None
    """

    token: int
    is_stable: bool = False
    outcome: Any = None
    error: Exception | None = None


class Stable(msgspec.Struct, frozen=True, gc=False):
    """Some data operations, one at least, are stable."""

    tokens: Sequence[int]


class Executed(msgspec.Struct, frozen=True, gc=False):
    """Some data operations, one at least, have their outcomes."""

    tokens: Sequence[int]
    outcomes: Sequence[ReadOutcome | WriteOutcome]


Told = Completion | Stable | Executed


def one_by_one(told: Iterable[Told]) -> Iterator[Completion]:
    """Give what was told of many, each as if it had been alone."""
    for each in told:
        if isinstance(each, Completion):
            yield each
        elif isinstance(each, Stable):
            for token in each.tokens:
                yield Completion(token, is_stable=True)
        else:
            for token, outcome in zip(each.tokens, each.outcomes, strict=True):
                yield Completion(token, outcome=outcome)
