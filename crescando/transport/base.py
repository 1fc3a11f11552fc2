"""The contract of a transport: quasi-reliable FIFO channels between named processes.

If neither end fails, what is sent on a channel arrives, once and in order (RB13
§5.2). One channel's life is one *session*: when it ends, each end is told
exactly once, and whatever was on its way may be lost. Nothing is carried over
to the next session; the cores state their watermarks anew.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from types import UnionType
from typing import Any, Protocol, get_args, get_type_hints

import msgspec
import numpy as np

from crescando.types import ProcessId

Decode = Callable[[bytes | memoryview], Any]
"""Gives the message in some bytes; copies what it keeps, and raises `RemoteProtocolError`."""

Codec = tuple[Callable[[Any], bytes], Callable[[ProcessId, ProcessId, str], Decode | None]]
"""An encoder, and what gives the decoder of a sender's messages to a receiver.

None if the two have nothing to say to one another: they get no session. The third argument says why the
sender may not administer the cluster; it is empty if it may.
"""

QUEUE_BYTES = 64 << 20
"""What may be on its way in one direction of a session: more than any credit lets a core send."""

MESSAGE_BYTES = 128
"""What a message weighs beside what it carries; about."""


def weight_of(message: Any) -> int:
    """Give about how many bytes a message takes while it is on its way.

    A message states what it carries as ``n_bytes``; of one that does not, the
    parts are weighed.
    """
    kind = type(message)
    known = _LARGE.get(kind)
    if known is None:
        if not isinstance(message, msgspec.Struct):
            return MESSAGE_BYTES + _weight_of_parts(message)
        known = _LARGE[kind] = (hasattr(kind, "n_bytes"), _large_fields(kind))
    states_it, names = known
    if not names:
        return MESSAGE_BYTES
    if states_it:
        return MESSAGE_BYTES + int(message.n_bytes)
    weight = MESSAGE_BYTES
    for name in names:
        weight += _weight_of_parts(getattr(message, name))
    return weight


_LARGE: dict[type, tuple[bool, tuple[str, ...]]] = {}
"""Whether a kind of message states its ``n_bytes``, and its `_large_fields`; there are as many as kinds."""


def _large_fields(kind: type[msgspec.Struct]) -> tuple[str, ...]:
    """Name the fields that hold more than numbers and names: without any, all messages weigh alike."""
    hints = get_type_hints(kind)
    return tuple(name for name in kind.__struct_fields__ if not _holds_little(hints[name]))


def _holds_little(hint: Any) -> bool:
    if hint in (int, float, bool, type(None)):
        return True
    if isinstance(hint, UnionType):
        return all(map(_holds_little, get_args(hint)))
    # A named tuple's texts are names: of a role, of a node.
    is_named = isinstance(hint, type) and issubclass(hint, tuple) and hasattr(hint, "_fields")
    return is_named and all(part is str or _holds_little(part) for part in get_type_hints(hint).values())


_TEXTS = bytes | str
"""A union is not made anew for each of very many values."""


def _weight_of_parts(value: Any) -> int:
    kind = type(value)
    if kind is int or kind is float:
        return 8
    if kind is bytes or kind is str:
        return len(value)
    if isinstance(value, np.ndarray):
        return value.nbytes
    if isinstance(value, tuple):
        return sum(map(weight_of, value)) if value and not isinstance(value[0], int) else 8 * len(value)
    if isinstance(value, msgspec.Struct):
        return weight_of(value)
    return len(value) if isinstance(value, _TEXTS) else 8


class Channel(ABC):
    """One end of a session with `peer`, whose identity is known for certain."""

    peer: ProcessId

    @abstractmethod
    def send(self, message: Any) -> None:
        """Send an immutable message, at the latest with `Transport.flush`; on a closed channel it is dropped.

        A channel holds a bounded amount. A receiver that does not keep up has
        its session closed rather than filling the sender's memory.
        """

    @abstractmethod
    def close(self) -> None:
        """End the session; both ends are told."""


class Endpoint(Protocol):
    """What a process tells its transport to call."""

    def opened(self, channel: Channel) -> None:
        """Take a new session, whichever side asked for it."""
        ...

    def received(self, channel: Channel, message: Any) -> None:
        """Take a message."""
        ...

    def received_all(self, arrived: Iterable[tuple[Channel, Any]]) -> None:
        """Take all that has arrived, in order, of sessions that are open: the moment to answer it."""
        for channel, message in arrived:
            self.received(channel, message)

    def closed(self, channel: Channel) -> None:
        """Learn that a session has ended; told once."""
        ...

    def refused(self, peer: ProcessId) -> None:
        """Learn that a session asked for cannot be had now."""
        ...


class Transport(ABC):
    """Carries the sessions of the processes attached to it."""

    @abstractmethod
    def attach(self, process: ProcessId, endpoint: Endpoint) -> None:
        """Make a process reachable.

        Raises
        ------
        ValueError
            If this very process is attached already.
        """

    @abstractmethod
    def detach(self, process: ProcessId) -> None:
        """Make a process unreachable: its sessions end without a word to itself."""

    @abstractmethod
    def connect(self, process: ProcessId, peer: ProcessId) -> None:
        """Ask for a session; the answer is `opened` or `refused`.

        Harmless if there is one already.
        """

    def flush(self) -> None:  # noqa: B027  # Most transports have nothing to do.
        """Hand over what was sent; a driver says so at the end of each turn, and until then it may wait."""
