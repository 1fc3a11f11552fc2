"""The contracts of the routing layer: `Config`, a plug-in's value, `Routes`, and `Multicast`.

A Config decides, as a pure function of itself and one message, where the
message goes, what it changes and whom it declares failed (RB13 §6.3, Alg. 3).
Routers call it at the message's own *prefix*: the Config that all earlier
messages of the order have produced.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Protocol, Self, TypeVar, cast, runtime_checkable

import msgspec
import numpy as np
from numpy.typing import NDArray

from crescando.process import Output
from crescando.routing.batch import Delivery, Message, Submission
from crescando.types import MessageKind, ProcessId, Scope


class Refusal(Exception):  # noqa: N818  # It is an outcome a Config declares, not a fault.
    """Raised by `Config.destset` for a message that must not take effect.

    Every router computes the same refusal at the same position; the sender
    learns *applied no* and the reason. `apply` is not called.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason


@runtime_checkable
class Config(Protocol):
    """An immutable routing configuration (RB13 §5.6, §6.3).

    Equal values encode to equal bytes, whatever path led to them; no method
    may depend on a clock, on chance, on ``hash()`` or on anything but `self`
    and the message. Instances are never changed after construction.
    """

    def is_member(self, process: ProcessId) -> bool:
        """Say whether messages of `process` have effect."""
        ...

    def members(self) -> frozenset[ProcessId]:
        """Give every process that is part of the system."""
        ...

    def destset(self, message: Message) -> Mapping[ProcessId, Scope]:
        """Give the destinations of a message, each with its scope.

        The scopes of one data message partition its ranges. A read goes to no
        destination whose scope is empty; a write goes to every live owner of a
        range it overlaps, and the scope says which ranges that owner reports.
        Configuration messages have empty scopes.

        Raises
        ------
        Refusal
            If the message must not take effect (unknown table, a range with no
            live owner, …).
        """
        ...

    def apply(self, message: Message) -> Self:
        """Give the Config after a configuration message; `self` if nothing changes.

        Called only for members (or for a join) and only if `destset` did not
        refuse. Data messages never reach it.
        """
        ...

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        """Give the processes that this message, at this prefix, declares failed."""
        ...

    def encode(self) -> bytes:
        """Give the canonical encoding."""
        ...

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Give the Config that `encode` wrote."""
        ...

    def digest(self) -> bytes:
        """Give 16 bytes that differ, as far as anyone can tell, iff values differ."""
        ...


Route = Mapping[ProcessId, Scope] | Refusal
"""Where the messages of one group go, or why they go nowhere."""


class Routes(msgspec.Struct, frozen=True):
    """The routing of a run of messages, all at one Config.

    Attributes
    ----------
    group : ndarray of int64, shape (n,)
        Index into `routes` per message.
    routes : tuple of Route
    """

    group: NDArray[np.int64]
    routes: tuple[Route, ...]


@runtime_checkable
class VectorConfig(Config, Protocol):
    """A Config that also routes whole runs at once."""

    def route(self, batch: Submission, start: int, stop: int) -> Routes:
        """Route data messages ``start:stop``; equal to `destset` on each of them."""
        ...


_FIRST = np.zeros(1, np.int64)
_FIRST.flags.writeable = False


@lru_cache(maxsize=64)
def _routes_runs(config_type: type) -> bool:
    """Say whether Configs of a type are `VectorConfig`s; asking a protocol each time is slow."""
    return issubclass(config_type, VectorConfig)


def route(config: Config, batch: Submission, start: int, stop: int) -> Routes:
    """Route a run of messages by the vectorised form if there is one, else one by one.

    A plug-in that raises anything but `Refusal`, or names a process that is no
    member, fails alike everywhere: what it could not route is refused by its
    name, and the order goes on.
    """
    # One message is routed faster by itself, with the same outcome.
    if stop - start > 1 and _routes_runs(type(config)):
        try:
            return _checked(config, cast(VectorConfig, config).route(batch, start, stop), stop - start)
        except Exception:  # noqa: BLE001  # The scalar form below names the message at fault.
            pass
    if stop - start == 1:
        return Routes(_FIRST, (destset(config, batch.message(start)),))
    routes = tuple(destset(config, batch.message(index)) for index in range(start, stop))
    return Routes(np.arange(len(routes), dtype=np.int64), routes)


def destset(config: Config, message: Message) -> Route:
    """Give a message's destinations, or the refusal, whatever the plug-in does."""
    try:
        destinations = config.destset(message)
        strangers = _strangers(config, destinations)
        if strangers and message.kind is MessageKind.CONFIG:
            # A joiner is told of its own join, before which it is no member.
            strangers = _strangers(config.apply(message), strangers)
        return _stranger_refusal(config, strangers) if strangers else destinations
    except Refusal as refusal:
        return refusal
    except Exception as error:  # noqa: BLE001  # A plug-in may raise anything.
        return _fault_refusal(config, error)


C = TypeVar("C", bound=Config)


def transition(config: C, message: Message) -> tuple[C, frozenset[ProcessId]] | Refusal:
    """Give what an admitted configuration message leads to, or the refusal, whatever the plug-in does.

    Returns
    -------
    (Config, frozenset of ProcessId) or Refusal
        The next Config, and whom the message declares failed.
    """
    try:
        suspected = frozenset(config.suspects(message))
        after = config.apply(message)
        # A leaver may have joined by this very message.
        strangers = _strangers(after, _strangers(config, suspected))
        return _stranger_refusal(config, strangers) if strangers else (after, suspected)
    except Exception as error:  # noqa: BLE001  # A plug-in may raise anything, and was asked before.
        return _fault_refusal(config, error)


def _checked(config: Config, routes: Routes, n: int) -> Routes:
    """Give the routes of a vectorised form with those that name a stranger refused.

    Raises
    ------
    ValueError
        If they do not route `n` messages.
    """
    group = routes.group
    if group.shape != (n,) or (n and not 0 <= int(group.min()) <= int(group.max()) < len(routes.routes)):
        raise ValueError(f"the groups do not route {n} messages")
    named = set[ProcessId]().union(*(r for r in routes.routes if not isinstance(r, Refusal)))
    strangers = set(_strangers(config, named))
    if not strangers:
        return routes
    return Routes(group, tuple(_without_strangers(config, target, strangers) for target in routes.routes))


def _without_strangers(config: Config, target: Route, strangers: set[ProcessId]) -> Route:
    if isinstance(target, Refusal):
        return target
    met = [process for process in target if process in strangers]
    return _stranger_refusal(config, met) if met else target


def _strangers(config: Config, processes: Iterable[ProcessId]) -> list[ProcessId]:
    return [process for process in processes if not config.is_member(process)]


def _stranger_refusal(config: Config, strangers: Iterable[ProcessId]) -> Refusal:
    # Of many the least by its text, since they need not even be comparable.
    named = min(map(str, strangers))
    return Refusal(f"routing plug-in {type(config).__qualname__} names {named}, which is no member")


def _fault_refusal(config: Config, error: Exception) -> Refusal:
    return Refusal(f"routing plug-in {type(config).__qualname__} failed: {error!r}")


class NotStable(msgspec.Struct, frozen=True, array_like=True):
    """A message that did not simply become stable: its number, verdict and reason."""

    number: int
    verdict: str
    reason: str


class StableEvent(msgspec.Struct, frozen=True):
    """Every own number up to `upto` is decided upon, with these exceptions.

    Refusals may be told ahead, for numbers above `upto`, and told again later.
    """

    upto: int
    exceptions: tuple[NotStable, ...]


@dataclass(frozen=True, slots=True)
class ExpelledEvent:
    """This process is no member since `position`; own numbers above `learned` are void.

    If it `is_outdated` it has lost what it confirmed up to `position`, and
    must end although it is a member; none of its numbers is known to be void.
    """

    position: int
    learned: int
    is_outdated: bool = False

    @property
    def reason(self) -> str:
        """Why the process must end, for people."""
        if self.is_outdated:
            return f"what this process confirmed up to position {self.position} is lost; it must begin anew"
        return f"expelled at position {self.position}"


@dataclass(frozen=True, slots=True)
class ReadsEvent:
    """Snapshot reads, injected at a position behind everything delivered so far.

    Attributes
    ----------
    position : int
        Not below anything delivered; what follows lies above it.
    parts : tuple of Delivery
        Numbered by their senders in a series apart from that of messages.
    refusal : str
        Not empty: why this process must not run them.
    """

    position: int
    parts: tuple[Delivery, ...]
    refusal: str = ""


MulticastEvent = Delivery | StableEvent | ExpelledEvent | ReadsEvent


class Multicast(Protocol):
    """An application process's end of a multicast: submit, deliver, stable (EC11 §3).

    Guarantees: *Correct Routing* (RB13 App. 1): valid, minimal, complete,
    gap-free, submit-ordered, delivery-ordered and terminated; and
    *Quiescence* (EC11 §4.6).
    """

    @property
    def next_number(self) -> int:
        """The number of the next message to be submitted, from 1."""
        ...

    @property
    def acknowledged(self) -> int:
        """The number up to which this process has been told what became of its messages."""
        ...

    @property
    def n_unstable(self) -> int:
        """How many submissions have not become stable."""
        ...

    @property
    def routers(self) -> tuple[ProcessId, ...]:
        """The routers as far as this process has heard."""
        ...

    @property
    def lead(self) -> ProcessId | None:
        """The router believed to lead, if there is one."""
        ...

    @property
    def delivered(self) -> int:
        """The position up to which everything for this process has been given out as events, or will be."""
        ...

    def submit(self, batch: Submission) -> None:
        """Take consecutive messages, to be multicast in order; a number is never taken back."""
        ...

    def hold_confirms(self, hold: bool) -> None:
        """Withhold confirmations while the application cannot take more."""
        ...

    def take_events(self) -> list[MulticastEvent]:
        """Give what was delivered and decided since the last call, in order."""
        ...

    def on_start(self, now_s: float) -> None:
        """Begin."""
        ...

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session has begun; of no interest unless with a router."""
        ...

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session has ended."""
        ...

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session cannot be had now."""
        ...

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        """Take a message of a router; others are ignored."""
        ...

    def flush(self, now_s: float) -> Output:
        """End the turn."""
        ...
