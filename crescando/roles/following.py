"""The configuration as a process follows it: message by message, from its first one on.

Rules of the file: a process that is there from the beginning is given the first
configuration. One that comes later joins by its own first message, whose
delivery carries the configuration after it (RB13 §6.1): until then it knows
nothing, and nothing is delivered to it.
"""

from __future__ import annotations

from typing import Generic, TypeVar

from crescando.routing.base import Config, ExpelledEvent, Multicast, StableEvent
from crescando.routing.batch import Delivery, Message, submission
from crescando.routing.rubberband.messages import ConfigMessage, Join, encode_message
from crescando.types import NO_POSITION, MessageKind, Position, ProcessId

C = TypeVar("C", bound=Config)

LEFT = "left the cluster"
"""With this the reason begins for which a process stops that has left by its own will."""


def configure(multicast: Multicast, me: ProcessId, body: ConfigMessage) -> int:
    """Submit a configuration message of a process; gives its number."""
    number = multicast.next_number
    message = Message(me, number, MessageKind.CONFIG, -1, (), 0, encode_message(body))
    multicast.submit(submission([message], acknowledged=multicast.acknowledged))
    return number


class Following(Generic[C]):
    """What a process knows of the configuration.

    Parameters
    ----------
    me : ProcessId
    config : Config or None
        The configuration before the first message; None for one that joins.
    config_type : type
        Of the configuration that a joiner will be told.

    Attributes
    ----------
    position : int
        Of the last configuration message that was taken.
    is_expelled : bool
        Whether the process is no member any more, though it lives.
    is_leaving : bool
        Whether it leaves by its own will.
    """

    def __init__(self, me: ProcessId, config: C | None, config_type: type[C]) -> None:
        self.me = me
        self.position: Position = NO_POSITION
        self.is_expelled = False
        self.is_leaving = False
        self._config = config
        self._config_type = config_type

    @property
    def is_joined(self) -> bool:
        """Whether there is a configuration yet."""
        return self._config is not None

    @property
    def config(self) -> C:
        """The configuration after everything that was taken; there is none before the process has joined."""
        assert self._config is not None, f"{self.me} has not joined"
        return self._config

    def is_member(self, process: ProcessId) -> bool:
        """Say whether a process is a member, as far as is known."""
        return self._config is not None and self._config.is_member(process)

    def join(self, multicast: Multicast) -> None:
        """Become a member, unless this process is one from the beginning; said once."""
        if not self.is_joined:
            configure(multicast, self.me, Join(self.me))

    def settle(self, event: StableEvent) -> str:
        """Learn what became of own messages; gives why this process stops, if its join was refused."""
        if not self.is_joined:
            for exception in event.exceptions:
                if exception.number == 1:
                    return f"it could not join: {exception.reason}"
        return ""

    def expel(self, event: ExpelledEvent) -> str:
        """Learn that this process is no member any more; gives why it stops."""
        self.is_expelled = True
        return f"{LEFT} at position {event.position}" if self.is_leaving else event.reason

    def take(self, part: Delivery, index: int) -> tuple[Message, C | None]:
        """Follow a delivered configuration message.

        Returns
        -------
        (Message, Config or None)
            The message, and the configuration before it, if this process knew one.
        """
        message = Message(
            part.sender, int(part.number[index]), MessageKind.CONFIG, -1, (), 0, part.payload_of(index)
        )
        before = self._config
        if part.config:
            self._config = self._config_type.decode(part.config)
        else:
            self._config = self.config.apply(message)
        self.position = Position(int(part.position[index]))
        return message, before
