"""When a session renews the leases of what it works on: whoever makes progress keeps it.

Rules of the file: a lease ends what nobody works on any more, so it is renewed by work itself, where that is
done: by rows that are staged, or read. That costs nothing to speak of, since a session renews
each lease at its first piece of work and then a few times in the lease's length, whatever else it does.
"""

from __future__ import annotations

import threading
import time
from collections import OrderedDict
from collections.abc import Hashable

PER_LEASE = 3
"""How often a lease is renewed in its length: one renewal that comes late, or not at all, ends nothing."""

KEPT_MAX = 4096
"""Leases of which it is known when they were renewed; more than may be open at once."""


class Progress:
    """What one session has renewed."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._due_s: OrderedDict[Hashable, float] = OrderedDict()
        """When each lease is to be renewed; the one that was renewed longest ago first."""

    def is_due(self, what: Hashable, lease_s: float) -> bool:
        """Say whether a lease is to be renewed by whoever asks, and nobody else for a while."""
        now_s = time.monotonic()
        with self._lock:
            if now_s < self._due_s.get(what, now_s):
                return False
            self._due_s[what] = now_s + lease_s / PER_LEASE
            self._due_s.move_to_end(what)
            if len(self._due_s) > KEPT_MAX:
                self._due_s.popitem(last=False)
            return True
