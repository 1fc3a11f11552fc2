"""Connections of drivers and Python workers: one per place and process, closed when it rests.

Rules of the file: what travels between Spark's processes is a `Place`, words
only; the certificate is read from its path by each process. Spark ends idle
workers without letting them clean up, so a connection that rests is closed
before that; and a forked child never uses its parent's.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crescando.errors import CrescandoError, StatementError

if TYPE_CHECKING:
    from crescando.client.store import Store
    from crescando.remote import RemoteCluster

IDLE_S = 20.0
"""Spark's workers are ended after a minute of rest; a client that is gone without a word is a burden."""

CONNECT_S = 30.0
"""How long a cluster is looked for: it may just be electing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A cluster, and as whom it is asked.

    Attributes
    ----------
    url : str
        As `crescando.connect` takes it.
    tls : str
        The path of the client's certificate, or of the folder that has it: the same on every host.
    client : str
        The client's name, if `tls` is a folder. Any number of workers may share it.
    """

    url: str
    tls: str
    client: str = "app"


@dataclass(slots=True)
class _Kept:
    store: Store[RemoteCluster]
    n_users: int = 0
    n_uses: int = 0
    """Tells a timer whether the connection has rested since it was set."""


@dataclass(slots=True)
class _Connections:
    """What this process has open."""

    kept: dict[Place, _Kept] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def forget(self) -> None:
        """Begin anew in a forked child; its parent's connections are no concern of it."""
        self.kept, self.lock = {}, threading.Lock()

    def take(self, place: Place, connect_s: float) -> _Kept:
        from crescando import connect

        with self.lock:
            found = self.kept.get(place)
            if found is None or found.store.is_closed:
                store = connect(place.url, tls=place.tls, client=place.client, connect_s=connect_s)
                found = self.kept[place] = _Kept(store)
            found.n_users += 1
            found.n_uses += 1
            return found

    def give_back(self, place: Place, used: _Kept) -> None:
        with self.lock:
            used.n_users -= 1
            if used.n_users == 0:
                timer = threading.Timer(IDLE_S, self._close_rested, (place, used, used.n_uses))
                timer.daemon = True
                timer.start()

    def _close_rested(self, place: Place, kept: _Kept, n_uses: int) -> None:
        with self.lock:
            if kept.n_users or kept.n_uses != n_uses:
                return
            if self.kept.get(place) is kept:
                del self.kept[place]
        kept.store.close()

    def drop(self, place: Place, broken: _Kept) -> None:
        with self.lock:
            if self.kept.get(place) is broken:
                del self.kept[place]


_connections = _Connections()
os.register_at_fork(after_in_child=_connections.forget)


@contextmanager
def connected(place: Place, timeout_s: float | None = None) -> Iterator[Store[RemoteCluster]]:
    """Lend this process's connection to a place; made if there is none.

    Parameters
    ----------
    place : Place
    timeout_s : float, optional
        How long the cluster is looked for, if that is less than usual.

    Raises
    ------
    CrescandoError
        As `crescando.connect` says it.
    """
    lent = _connections.take(place, CONNECT_S if timeout_s is None else min(timeout_s, CONNECT_S))
    try:
        yield lent.store
    except StatementError:
        raise
    except CrescandoError:
        # It may be the connection's own fault: the next one who asks gets another.
        _connections.drop(place, lent)
        raise
    finally:
        _connections.give_back(place, lent)
