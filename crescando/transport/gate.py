"""Connections that have not proven who they are: how many there may be, and who makes room.

Rules of the file: bookkeeping only. A flood of connections that say nothing
must not keep out those that do: above a bound the oldest is given up, and
whoever is quick has long ceased to be one of them (K22).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Generic, TypeVar

C = TypeVar("C")


class Gate(Generic[C]):
    """Counts half-open connections, in all and by address.

    Parameters
    ----------
    n_max, n_of_address_max : int
    give_up : callable
        Ends a connection at once; it is not counted any more.
    """

    def __init__(self, n_max: int, n_of_address_max: int, give_up: Callable[[C], None]) -> None:
        self._n_max = n_max
        self._n_of_address_max = n_of_address_max
        self._give_up = give_up
        self._waiting: dict[C, str] = {}
        self._by_address: dict[str, dict[C, None]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def enter(self, connection: C, address: str) -> None:
        """Count a connection; one that is older may be given up for it."""
        same = self._by_address.get(address, {})
        if len(same) >= self._n_of_address_max:
            self._evict(next(iter(same)))
        elif len(self._waiting) >= self._n_max:
            # Whoever has the most there loses the oldest; a lone peer keeps its place.
            crowd = max(self._by_address.values(), key=len)
            self._evict(next(iter(crowd)))
        self._waiting[connection] = address
        self._by_address.setdefault(address, {})[connection] = None

    def leave(self, connection: C) -> None:
        """Count a connection no more: it has become a session, or is over."""
        address = self._waiting.pop(connection, None)
        if address is None:
            return
        same = self._by_address[address]
        del same[connection]
        if not same:
            del self._by_address[address]

    def _evict(self, connection: C) -> None:
        self.leave(connection)
        self._give_up(connection)
