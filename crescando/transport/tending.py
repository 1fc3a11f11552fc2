"""Sessions as time passes: who is silent, whose certificate has expired, what files have changed.

Rules of the file: a session is ended for a reason that is told, and for nothing
that happened while this process did not run itself. The monotonic clock decides
about silence, the calendar's clock about certificates only.
"""

from __future__ import annotations

import asyncio
import datetime
import logging
import random
import time
from collections.abc import Callable, Collection

from crescando.transport.connection import Connection
from crescando.transport.credentials import Credentials
from crescando.transport.handshake import SocketLimits
from crescando.transport.link import Link

logger = logging.getLogger(__name__)

RENEWAL_S = 60.0
"""Within how long after a change of credentials every session is begun anew."""

_LOOKS = 3
"""Looks without a sign of life after which a session is over; the first asks for one."""


class Tending:
    """Looks after the sessions of a transport, now and then.

    Parameters
    ----------
    loop : asyncio.AbstractEventLoop
    limits : SocketLimits
    rng : random.Random
        Draws when a session is begun anew, so that not all are at once.
    credentials : Credentials or None
    links : callable
        Gives all connections, those without a session too.
    probe : callable
        Asks the peer of a session for a sign of life.
    renewed : callable
        Called when other credentials are used from now on.
    """

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limits: SocketLimits,
        rng: random.Random,
        credentials: Credentials | None,
        *,
        links: Callable[[], Collection[Link]],
        probe: Callable[[Connection], object],
        renewed: Callable[[], object],
    ) -> None:
        self._loop = loop
        self._limits = limits
        self._rng = rng
        self._credentials = credentials
        self._links = links
        self._probe = probe
        self._renewed = renewed
        self._timer: asyncio.TimerHandle | None = None
        self.refreshed_s = loop.time()
        self._warned = ""

    def start(self) -> None:
        """Look after a while, if nobody does so already."""
        if self._timer is None:
            interval_s = min(self._limits.idle_s / _LOOKS, self._limits.refresh_s)
            due_s = self._loop.time() + interval_s
            self._timer = self._loop.call_at(due_s, self._look_again, due_s)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look_again(self, due_s: float) -> None:
        self._timer = None
        self.start()
        self.look(due_s)

    def look(self, due_s: float) -> None:
        """Look now.

        Parameters
        ----------
        due_s : float
            When this was to be done.
        """
        now_s, today_s = self._loop.time(), time.time()
        if self._credentials is not None and now_s - self.refreshed_s >= self._limits.refresh_s:
            self.refreshed_s = now_s
            self._refresh(self._credentials, today_s)
        for link in [link for link in self._links() if link.channel is not None]:
            # While this process did not run, it did not listen either.
            link.heard_s += now_s - due_s
            self._look_at(link, now_s, today_s)

    def _refresh(self, credentials: Credentials, today_s: float) -> None:
        if credentials.refresh():
            self._renew(credentials, today_s)
        certificate = credentials.tls.certificate
        if certificate.is_aging(today_s) and self._warned != certificate.serial:
            self._warned = certificate.serial
            left = datetime.timedelta(seconds=int(certificate.expires_s - today_s))
            logger.warning("the certificate %s expires in %s; renew it", certificate.serial, left)

    def _renew(self, credentials: Credentials, today_s: float) -> None:
        """Have every session begun anew with the credentials there are now, little by little."""
        self._renewed()
        for link in self._links():
            left_s = link.ends_s - today_s
            link.ends_s = today_s + self._rng.uniform(0.0, max(0.0, min(RENEWAL_S, left_s / 2)))
            if link.certificate is not None and credentials.denial_of(link.certificate):
                link.ends_s = today_s

    def _look_at(self, link: Link, now_s: float, today_s: float) -> None:
        connection = link.connection
        if today_s >= link.ends_s:
            connection.close("the certificates that began it are over")
        elif connection.is_heard:
            connection.is_heard, link.heard_s = False, now_s
        elif now_s - link.heard_s >= self._limits.idle_s:
            connection.abort(f"nothing was heard for {self._limits.idle_s:g} s")
        elif now_s - link.heard_s >= self._limits.idle_s / _LOOKS:
            self._probe(connection)
