"""Whether a client may still hope that its operations are ordered.

Rules of the file: hope ends when every router with a session says that it has
long known no leader with a majority, or when no router has been reached for as
long; it returns with the first sign to the contrary. A router that has not said
so is hoped for as long as its session lasts and *some* such router speaks, as a
leader does all the time: one that hangs keeps its session and says nothing.
Silence is counted from look to look, and no more of it than lies between two
looks that come when they should, so that a pause of this very process is none.
Nothing is guessed: of what was sent before, nobody knows.
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
    silence_s : float
        Time without a word of any router of which there is hope.

    Attributes
    ----------
    is_lost : bool
        As of the last `look`.
    """

    def __init__(self, patience_s: float, silence_s: float) -> None:
        self.patience_s = patience_s
        self.silence_s = silence_s
        self.is_lost = False
        self._says_there: dict[ProcessId, bool] = {}
        self._alone_since_s: float | None = None
        self._silent_s = 0.0
        self._looked_s = 0.0
        self._is_asked = False

    def on_connected(self, router: ProcessId) -> None:
        """Take a router for hopeful until it says otherwise."""
        self._says_there[router] = True
        self._silent_s = 0.0

    def on_disconnected(self, router: ProcessId) -> None:
        """Forget what a router has said."""
        self._says_there.pop(router, None)

    def on_quorum(self, router: ProcessId, *, is_there: bool) -> None:
        """Hear whether a router knows of a leader with a majority."""
        if router in self._says_there:
            self._says_there[router] = is_there
            self.hear(router)

    def hear(self, router: ProcessId) -> None:
        """Take any word of a router that may know a leader for a sign of one."""
        if self._says_there.get(router):
            self._silent_s = 0.0

    def look(self, now_s: float, *, is_asked: bool = True, is_member: bool = True) -> bool:
        """Give whether there is no hope any more.

        Parameters
        ----------
        now_s : float
        is_asked : bool
            Whether anybody waits: else nothing need be known before the next look.
        is_member : bool
            Whether a leader keeps speaking to this client.
        """
        self._is_asked = is_asked
        if is_member:
            self._silent_s += min(now_s - self._looked_s, self._look_s)
        self._looked_s = now_s
        if self._says_there:
            self._alone_since_s = None
            self.is_lost = not any(self._says_there.values()) or self._silent_s >= self.silence_s
        elif self._alone_since_s is None:
            self._alone_since_s = now_s
        elif now_s >= self._alone_since_s + self.patience_s:
            self.is_lost = True
        return self.is_lost

    @property
    def _look_s(self) -> float:
        """How often to look while silence is counted."""
        return self.silence_s / 4

    @property
    def wake_at_s(self) -> float | None:
        """When to look again if nothing happens before, and anybody waits."""
        if self.is_lost:
            return None
        if self._alone_since_s is None:
            return self._looked_s + self._look_s if self._is_asked else None
        return self._alone_since_s + self.patience_s

    @property
    def hopeless(self) -> NoQuorumError | None:
        """Why nothing can be ordered now, if there is no hope."""
        return self.error("no") if self.is_lost else None

    def error(self, applied: Literal["no", "unknown"]) -> NoQuorumError:
        """Give the error that says so, for an operation that had this effect."""
        if any(self._says_there.values()):
            reason = f"no router that may know a leader has said anything for {self.silence_s:g} s"
        elif self._says_there:
            routers = ", ".join(map(str, sorted(self._says_there)))
            reason = f"no router that is reached knows a leader with a majority of the routers ({routers})"
        else:
            reason = f"no router has been reached for {self.patience_s:g} s"
        return NoQuorumError(reason, applied)
