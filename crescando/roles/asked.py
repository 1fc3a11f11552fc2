"""What the users of a client ask for, before it is in a submission: alone, or together.

Rules of the file: what was asked for together stays together as long as it is looked at as a whole; so
does what many asked for in one turn of their loop.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from crescando.client.base import Request

Waiting = tuple[int, Request]
"""A request, and what the user calls it."""


class Asked(msgspec.Struct, frozen=True, gc=False, eq=False):
    """Requests that were asked for together, and what the user calls each."""

    tokens: Sequence[int]
    requests: Sequence[Request]

    def __len__(self) -> int:
        return len(self.tokens)

    def each(self) -> list[Waiting]:
        """Give them one by one."""
        return list(zip(self.tokens, self.requests, strict=True))

    def after(self, n: int) -> Asked:
        """Give those behind the first n."""
        return Asked(self.tokens[n:], self.requests[n:])


def n_requests(asked: Waiting | Asked) -> int:
    """Give how many requests there are."""
    return len(asked) if isinstance(asked, Asked) else 1
