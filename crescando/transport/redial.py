"""When a peer is dialled again, and what is answered meanwhile.

Rules of the file: pauses are drawn, so that those who lost the same peer do not
all come back at once; of a peer that no trying again helps with, the answer is
repeated and nobody dials (K23).
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from crescando.errors import SessionRefusedError
from crescando.transport.causes import Cause
from crescando.transport.handshake import SocketLimits
from crescando.types import ProcessId

PEERS_MAX = 4096
"""Peers remembered; each life of a process is one of its own."""

_DOUBLINGS_MAX = 16

SETTLED_S = 1.0
"""A session that was lost sooner does not end what was the matter before: else two that cannot bear each
other would dial on and on, without a pause, as long as both live."""


@dataclass(slots=True)
class _Trouble:
    n_failures: int
    error: SessionRefusedError | None
    until_s: float
    begun_s: float = 0.0
    """When the session began that there is, if there is no error."""


class Redials:
    """What is known of peers with which there is no session.

    Parameters
    ----------
    limits : SocketLimits
    rng : random.Random

    Attributes
    ----------
    n_dials : int
        How many dials were made in all.
    """

    def __init__(self, limits: SocketLimits, rng: random.Random) -> None:
        self.n_dials = 0
        self._limits = limits
        self._rng = rng
        self._troubles: dict[ProcessId, _Trouble] = {}

    def error_of(self, peer: ProcessId) -> SessionRefusedError | None:
        """Say why the last attempt came to nothing; None if there was none, or it succeeded."""
        trouble = self._troubles.get(peer)
        return trouble.error if trouble is not None else None

    def is_denied(self, peer: ProcessId, now_s: float) -> bool:
        """Whether dialling is of no use yet."""
        error = self.error_of(peer)
        return error is not None and error.is_permanent and now_s < self._troubles[peer].until_s

    def pause_s(self, peer: ProcessId) -> float:
        """Give how long to wait before the next dial."""
        trouble = self._troubles.get(peer)
        if trouble is None:
            return 0.0
        grown = self._limits.redial_s * 2 ** min(trouble.n_failures, _DOUBLINGS_MAX)
        return self._rng.uniform(0.0, min(grown, self._limits.redial_s_max))

    def fail(self, peer: ProcessId, cause: Cause, now_s: float) -> None:
        """Take that a dial came to nothing, or that a session was lost."""
        known = self._troubles.pop(peer, None)
        is_settled = known is None or (known.error is None and now_s - known.begun_s >= SETTLED_S)
        n_failures = 1 if known is None or is_settled else known.n_failures + 1
        grown = self._limits.handshake_s / 16 * 2 ** min(n_failures, _DOUBLINGS_MAX)
        until_s = now_s + self._rng.uniform(0.5, 1.0) * min(grown, self._limits.denied_s_max)
        error = SessionRefusedError(str(peer), cause.text, cause.is_permanent)
        self._troubles[peer] = _Trouble(n_failures, error, until_s)
        if len(self._troubles) > PEERS_MAX:
            del self._troubles[next(iter(self._troubles))]

    def succeed(self, peer: ProcessId, now_s: float) -> None:
        """Take that there is a session."""
        known = self._troubles.get(peer)
        if known is not None:
            known.error, known.begun_s = None, now_s

    def try_all_again(self) -> None:
        """Forget what was of no use: this process has changed."""
        self._troubles.clear()
