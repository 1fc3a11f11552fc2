"""Sessions inside an event loop, and with processes outside of it once the loop serves.

Rules of the file: nobody in here asks anybody outside for a session; those who
come are taken. Which of the two ways a session goes is known to no process.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from crescando.errors import CredentialsError
from crescando.transport.base import Endpoint, Transport
from crescando.transport.inprocess import InProcessHub
from crescando.types import ProcessId

logger = logging.getLogger(__name__)

CLIENT = "client"
"""The role of those whom nobody outside asks for anything."""

Admit = Callable[[ProcessId], None]
"""Called before a process is made reachable from outside."""


class JointTransport(Transport):
    """A hub whose processes can be reached from outside, too.

    Parameters
    ----------
    near : InProcessHub
    """

    def __init__(self, near: InProcessHub) -> None:
        self._near = near
        self._far: Transport | None = None
        self._admit: Admit = _nobody_asks
        self._endpoints: dict[ProcessId, Endpoint] = {}

    def join(self, far: Transport, admit: Admit) -> None:
        """Make every process reachable through another transport as well, those that come later included."""
        self._far, self._admit = far, admit
        for process, endpoint in self._endpoints.items():
            self._attach_far(process, endpoint)

    def is_inside(self, process: ProcessId) -> bool:
        """Say whether a process lives in this event loop: nobody outside can be it."""
        return process in self._endpoints

    def part(self) -> None:
        """Reach nobody outside any more."""
        self._far = None

    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        self._near.attach(process, endpoint)
        self._endpoints[process] = endpoint
        try:
            self._attach_far(process, endpoint)
        except CredentialsError as error:
            # It is of use to those inside all the same.
            logger.error("%s cannot be reached from outside: %s", process, error)

    def detach(self, process: ProcessId) -> None:
        self._near.detach(process)
        self._endpoints.pop(process, None)
        if self._far is not None and process.role != CLIENT:
            self._far.detach(process)

    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        self._near.connect(process, peer)

    def flush(self) -> None:
        if self._far is not None:
            self._far.flush()

    def _attach_far(self, process: ProcessId, endpoint: Endpoint) -> None:
        if self._far is not None and process.role != CLIENT:
            self._admit(process)
            self._far.attach(process, endpoint)


def _nobody_asks(process: ProcessId) -> None:
    """Admit whoever it is: there is no outside."""
