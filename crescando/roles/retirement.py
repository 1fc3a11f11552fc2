"""A process that is asked to leave: a storage process on standby, or a super.

Rules of the file: a process leaves by its own message, which the order refuses
while it holds a ring position or has a part in a change. Whoever asked is told
why if it is refused; that it was not shows in the configuration, and the process
ends, as anybody does who is no member any more. Asking again is harmless.
"""

from __future__ import annotations

from typing import Any

from crescando.roles.following import Following, configure
from crescando.roles.messages import Retire, Retires
from crescando.routing.base import Multicast, StableEvent
from crescando.routing.rubberband.messages import Leave
from crescando.types import ProcessId


class Retirement:
    """One process's leave.

    Parameters
    ----------
    following : Following
    multicast : Multicast
    """

    def __init__(self, following: Following[Any], multicast: Multicast) -> None:
        self._following = following
        self._multicast = multicast
        self._number = 0
        self._askers: dict[ProcessId, int] = {}

    def take(self, peer: ProcessId, question: Retire) -> list[tuple[ProcessId, Retires]]:
        """Take the request to leave; gives what can be answered at once."""
        if question.denial:
            return [(peer, Retires(question.request, question.denial))]
        if not self._following.is_joined:
            return [(peer, Retires(question.request, f"{self._following.me} has not joined yet"))]
        self._askers[peer] = question.request
        if not self._following.is_leaving:
            self._following.is_leaving = True
            self._number = configure(self._multicast, self._following.me, Leave(self._following.me))
        return []

    def settle(self, event: StableEvent) -> list[tuple[ProcessId, Retires]]:
        """Give what is to be answered if the leave was refused."""
        for exception in event.exceptions:
            if self._following.is_leaving and exception.number == self._number:
                self._following.is_leaving = False
                askers, self._askers = self._askers, {}
                return [(peer, Retires(request, exception.reason)) for peer, request in askers.items()]
        return []

    def end_session(self, peer: ProcessId) -> None:
        """Forget whoever asked and has gone."""
        self._askers.pop(peer, None)
