"""What a Config decides on a message, as text that two processes can compare."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from crescando.routing.base import Config, Refusal
from crescando.routing.batch import Message
from crescando.types import MessageKind, ProcessId, Scope

Target = Mapping[ProcessId, Scope] | str
"""Destinations with their scopes, or the reason of a refusal."""


@dataclass(frozen=True, slots=True)
class Decision:
    """Everything that follows from one message at one Config.

    Attributes
    ----------
    target : Target
    suspects : frozenset of ProcessId
    after : Config
        The next Config; the same one for data messages and refusals.
    """

    target: Target
    suspects: frozenset[ProcessId]
    after: Any

    def text(self) -> str:
        """Give all of it as one line, equal for equal decisions."""
        gone = ", ".join(map(str, sorted(self.suspects)))
        return f"{told(self.target)}; suspects {{{gone}}}; then {self.after.digest().hex()}"


def told(target: Target) -> str:
    """Give a target as text, in an order of its own."""
    if isinstance(target, str):
        return f"refused: {target}"
    parts = sorted((str(process), list(map(tuple, scope))) for process, scope in target.items())
    return f"to {parts}"


def target_of(config: Config, message: Message) -> Target:
    """Ask a Config where a message goes; only its refusal is caught."""
    try:
        return config.destset(message)
    except Refusal as refusal:
        return refusal.reason


def decide(config: Config, message: Message) -> Decision:
    """Ask a Config everything, as a router does."""
    target = target_of(config, message)
    if isinstance(target, str) or message.kind is not MessageKind.CONFIG:
        return Decision(target, frozenset(), config)
    return Decision(target, frozenset(config.suspects(message)), config.apply(message))
