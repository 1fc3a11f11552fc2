"""The layout as a client knows it: a hint that is checked by whoever it leads to (RB13 §6.7).

Rules of the file: a client is no destination of configuration messages, so that it learns of
changes from refusals, from answers to others' questions, and by asking. Of two layouts that of the
higher position is right. That it is out of date harms nothing but speed.
"""

from __future__ import annotations

from crescando.errors import RemoteProtocolError
from crescando.routing.base import Config
from crescando.routing.ecast.messages import ConfigRequest
from crescando.types import NO_POSITION, ProcessId

ASK_S = 0.1
"""How often the lead router is asked while there is reason to."""


class KnownLayout:
    """The newest configuration that one client has heard of.

    Parameters
    ----------
    me : ProcessId
        The client.
    config_type : type
        Of the configuration.

    Attributes
    ----------
    position : int
        The position after which it was the configuration.
    n_told : int
        How often a router has told of one, newer or not.
    reached : int
        The highest position that one has told of.
    wake_at_s : float or None
        When to ask again.
    """

    def __init__(self, me: ProcessId, config_type: type[Config]) -> None:
        self.me = me
        self.position: int = NO_POSITION
        self.n_told = 0
        self.reached: int = NO_POSITION
        self.wake_at_s: float | None = None
        self._config_type = config_type
        self._config: Config | None = None
        self._is_wanted = False
        self._asked_s: float | None = None

    @property
    def config(self) -> Config | None:
        """The configuration, if it is one of which this client is a member."""
        return self._config if self._config is not None and self._config.is_member(self.me) else None

    def answered(self, position: int, encoded: bytes) -> None:
        """Hear a router's answer."""
        self.take(position, encoded)
        self.n_told += 1
        self.reached = max(self.reached, position)
        self._is_wanted = False

    def take(self, position: int, encoded: bytes) -> None:
        """Hear of a configuration after a position; one that is malformed is not heard."""
        if not encoded:
            return
        if position > self.position:
            try:
                self._config = self._config_type.decode(encoded)
            except RemoteProtocolError:
                return
            self.position = position

    def want(self) -> None:
        """Ask soon: what is known leads nowhere, or is none."""
        self._is_wanted = True

    def ask(self, now_s: float, lead: ProcessId | None) -> list[tuple[ProcessId, ConfigRequest]]:
        """Give what to ask the lead router now, if anything."""
        self.wake_at_s = None
        if not self._is_wanted or lead is None:
            return []
        if self._asked_s is not None and now_s < self._asked_s + ASK_S:
            self.wake_at_s = self._asked_s + ASK_S
            return []
        self._asked_s = now_s
        self.wake_at_s = now_s + ASK_S
        return [(lead, ConfigRequest())]
