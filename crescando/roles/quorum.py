"""Whether a client may still hope that its operations are ordered.

Rules of the file: hope ends when every router with a session says that it has
long known no leader with a majority, or when no router has been reached for as
long; it returns with the first sign to the contrary. A router is believed until
its session ends. Nothing is guessed: of what was sent before, nobody knows.
"""

from __future__ import annotations

from typing import Literal

from crescando.errors import NoQuorumError
from crescando.types import ProcessId


class QuorumWatch:
    """What the routers say about their majority.

    Parameters
    ----------
    patience_s : float
        Time without any session after which there is no hope.

    Attributes
    ----------
    is_lost : bool
        As of the last `look`.
    """

    def __init__(self, patience_s: float) -> None:
        self.patience_s = patience_s
        self.is_lost = False
        self._says_there: dict[ProcessId, bool] = {}
        self._alone_since_s: float | None = None

    def on_connected(self, router: ProcessId) -> None:
        """Take a router for hopeful until it says otherwise."""
        self._says_there[router] = True

    def on_disconnected(self, router: ProcessId) -> None:
        """Forget what a router has said."""
        self._says_there.pop(router, None)

    def on_quorum(self, router: ProcessId, *, is_there: bool) -> None:
        """Hear whether a router knows of a leader with a majority."""
        if router in self._says_there:
            self._says_there[router] = is_there

    def look(self, now_s: float) -> bool:
        """Give whether there is no hope any more."""
        if self._says_there:
            self._alone_since_s = None
            self.is_lost = not any(self._says_there.values())
        elif self._alone_since_s is None:
            self._alone_since_s = now_s
        elif now_s >= self._alone_since_s + self.patience_s:
            self.is_lost = True
        return self.is_lost

    @property
    def wake_at_s(self) -> float | None:
        """When to look again if nothing happens before."""
        if self._alone_since_s is None or self.is_lost:
            return None
        return self._alone_since_s + self.patience_s

    def error(self, applied: Literal["no", "unknown"]) -> NoQuorumError:
        """Give the error that says so, for an operation that had this effect."""
        if self._says_there:
            routers = ", ".join(map(str, sorted(self._says_there)))
            reason = f"no router that is reached knows a leader with a majority of the routers ({routers})"
        else:
            reason = f"no router has been reached for {self.patience_s:g} s"
        return NoQuorumError(reason, applied)
