"""How many connections there may be: of those who have proven nothing, and of those who have.

Rules of the file: bookkeeping only. A flood of connections that say nothing
must not keep out those that do: above a bound the oldest is given up, and
whoever is quick has long ceased to be one of them (K22). Sessions that are here
go on: above a bound it is the newest that is not taken. Descriptors that clients
cannot use up are left for the cluster's own processes.
"""

from __future__ import annotations

import resource
from collections import Counter
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar

from crescando.transport.handshake import SocketLimits

C = TypeVar("C")

HALF_OPEN_PART, CLIENTS_PART = 4, 2
"""Of the files that a process may have open: one in four for connections that have proven nothing, half
for clients; what is left is for the cluster's own processes, and for this one."""


def files_max() -> int:
    """Give how many sockets and files this process may have open."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return soft if soft != resource.RLIM_INFINITY else 1 << 20


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


class Places(Generic[C]):
    """Counts the sessions that peers asked for: of each certificate, and of clients in all.

    Parameters
    ----------
    limits : SocketLimits
    n_files : int
        How many sockets and files this process may have open.
    """

    def __init__(self, limits: SocketLimits, n_files: int) -> None:
        self._n_files = n_files
        self._n_clients_max = max(1, min(limits.client_sessions_max, n_files // CLIENTS_PART))
        # Whatever is set, one program's sessions never keep all other programs out.
        self._n_of_holder_max = max(1, min(limits.sessions_of_certificate_max, self._n_clients_max // 2))
        self._taken: dict[C, tuple[Hashable, bool]] = {}
        self._by_holder: Counter[Hashable] = Counter()
        self._n_clients = 0

    def __len__(self) -> int:
        return len(self._taken)

    def fault_of(self, holder: Hashable, name: str, *, is_client: bool) -> str:
        """Say why there is no place for one more, and what helps; empty if there is one.

        Parameters
        ----------
        holder : hashable
            What its certificate proves.
        name : str
            How to call it.
        is_client : bool
        """
        if self._by_holder[holder] >= self._n_of_holder_max:
            return (
                f"{self._n_of_holder_max} sessions with the certificate of {name} are here, and none may "
                "have more: close stores that are not used, give each program a certificate of its own, "
                "or raise sessions_of_certificate_max in [network] of the cluster file "
                f"(half of the {self._n_clients_max} that all clients may have is the most)"
            )
        if is_client and self._n_clients >= self._n_clients_max:
            return (
                f"{self._n_clients_max} sessions of clients are here, and may not be more: close stores "
                "that are not used, or raise client_sessions_max in [network] of the cluster file "
                f"(half of the {self._n_files} files that the process may have open, ulimit -n, is the most)"
            )
        return ""

    def enter(self, connection: C, holder: Hashable, *, is_client: bool) -> None:
        """Count a session."""
        self._taken[connection] = holder, is_client
        self._by_holder[holder] += 1
        self._n_clients += is_client

    def leave(self, connection: C) -> None:
        """Count it no more, if it was: its socket is closed."""
        taken = self._taken.pop(connection, None)
        if taken is None:
            return
        holder, is_client = taken
        self._n_clients -= is_client
        self._by_holder[holder] -= 1
        if not self._by_holder[holder]:
            del self._by_holder[holder]
