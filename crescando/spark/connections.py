"""Connections of drivers and Python workers: one per place and process, closed when it rests.

Rules of the file: what travels between Spark's processes is a `Place`, words
only; the certificate is read from its path by each process. Spark ends idle
workers without letting them clean up, so a connection that rests is closed
before that; and a forked child never uses its parent's.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from crescando.errors import ClosedError, CrescandoError, StatementError

if TYPE_CHECKING:
    from crescando.client.store import Store
    from crescando.remote import RemoteCluster

IDLE_S = 20.0
"""Spark's workers are ended after a minute of rest; a client that is gone without a word is a burden."""

TRUSTED_S, TRIED_S = 2.0, 2.0
"""After so long a rest a connection is tried before it is lent, and how long it is waited for."""

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
    is_timed: bool = False
    """Whether a timer is set: there is one at most, however often the connection is used."""
    used_s: float = field(default_factory=time.monotonic)
    """When it was known to be alive."""

    def is_alive(self) -> bool:
        """Say whether it may be lent; one that has rested is tried: the cluster may have given it up."""
        if self.store.is_closed or self.store.cluster.default.is_over:
            return False
        if time.monotonic() - self.used_s > TRUSTED_S:
            try:
                self.store.tables(timeout_s=TRIED_S)
            except ClosedError:
                return False
            except CrescandoError:
                # Another connection would fare no better, and what it is lent for says more.
                return True
            self.used_s = time.monotonic()
        return True


@dataclass(slots=True)
class _Connections:
    """What this process has open."""

    kept: dict[Place, _Kept] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)
    doors: dict[Place, threading.Lock] = field(default_factory=dict)
    """Held by who connects: a cluster that does not answer holds up nobody who wants another one."""

    def forget(self) -> None:
        """Begin anew in a forked child; its parent's connections are no concern of it."""
        self.kept, self.lock, self.doors = {}, threading.Lock(), {}

    def take(self, place: Place, connect_s: float) -> _Kept:
        from crescando import connect

        with self.lock:
            door = self.doors.setdefault(place, threading.Lock())
        with door:
            found = self._lend(place, None)
            if found is not None and not found.is_alive():
                self.drop(place, found)
                self.give_back(place, found)
                found = None
            if found is None:
                made = connect(place.url, tls=place.tls, client=place.client, connect_s=connect_s)
                found = self._lend(place, _Kept(made))
            assert found is not None
            return found

    def _lend(self, place: Place, made: _Kept | None) -> _Kept | None:
        """Count one user more of what is kept, be it just made; None if there is nothing."""
        with self.lock:
            if made is not None:
                self.kept[place] = made
            found = self.kept.get(place)
            if found is not None:
                found.n_users += 1
                found.n_uses += 1
            return found

    def give_back(self, place: Place, used: _Kept) -> None:
        with self.lock:
            used.n_users -= 1
            used.used_s = time.monotonic()
            if used.n_users == 0 and not used.is_timed:
                self._set_timer(place, used)

    def _set_timer(self, place: Place, kept: _Kept) -> None:
        kept.is_timed = True
        timer = threading.Timer(IDLE_S, self._close_rested, (place, kept, kept.n_uses))
        timer.daemon = True
        timer.start()

    def _close_rested(self, place: Place, kept: _Kept, n_uses: int) -> None:
        with self.lock:
            kept.is_timed = False
            if kept.n_users:
                return  # Who gives it back sets another one.
            if kept.n_uses != n_uses:
                self._set_timer(place, kept)
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
