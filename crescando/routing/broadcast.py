"""The smallest useful Config: every storage process gets everything.

An example for authors of routing plug-ins. It has no tables and no ring: each
storage process holds all data, the lowest-named one answers, and any member's
word is enough to declare another one failed. What it shows: a Config is a
frozen value, refuses by raising `Refusal`, and sorts before it iterates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

import msgspec

from crescando.errors import RemoteProtocolError
from crescando.routing.base import Refusal
from crescando.routing.batch import Message
from crescando.routing.rubberband.messages import ConfigMessage, Join, Leave, Suspect, decode_message
from crescando.types import FULL_RING, MessageKind, ProcessId, Scope

_ENCODER = msgspec.msgpack.Encoder(order="deterministic")
_DECODER = msgspec.msgpack.Decoder(tuple[ProcessId, ...])


@dataclass(frozen=True, slots=True)
class Broadcast:
    """Route every message to every storage process.

    Parameters
    ----------
    processes : frozenset of ProcessId
        Every unsuspected process; the storage processes are those of role ``storage``.
    """

    processes: frozenset[ProcessId]

    def is_member(self, process: ProcessId) -> bool:
        """Say whether messages of `process` have effect."""
        return process in self.processes

    def members(self) -> frozenset[ProcessId]:
        """Give every unsuspected process."""
        return self.processes

    def destset(self, message: Message) -> Mapping[ProcessId, Scope]:
        """Give all storage processes; of data messages, the first one reports for the whole ring.

        Raises
        ------
        Refusal
            If no storage process is left, or a configuration message is malformed or out of place.
        """
        if message.kind is MessageKind.CONFIG:
            after = self._after(message)
            # A joiner is told of its own join; clients are told of nothing.
            informed = {p for p in self.processes | after if p.role != "client"}
            is_void = message.sender not in self.processes | after
            return {} if is_void else dict.fromkeys(sorted(informed), ())
        if message.sender not in self.processes:
            return {}
        storages = self._storages(self.processes)
        if not storages:
            raise Refusal("no storage process is left")
        destinations = storages[:1] if message.kind is MessageKind.READ else storages
        return {process: (FULL_RING,) if process == storages[0] else () for process in destinations}

    def apply(self, message: Message) -> Self:
        """Give the Config after a configuration message; `self` if nothing changes."""
        after = self._after(message)
        return self if after == self.processes else replace(self, processes=after)

    def suspects(self, message: Message) -> frozenset[ProcessId]:
        """Give whom this message makes fail: the leaver, or the accused."""
        if message.kind is not MessageKind.CONFIG:
            return frozenset()
        try:
            return self.processes - self._after(message)
        except Refusal:
            return frozenset()

    def encode(self) -> bytes:
        """Give the canonical encoding."""
        return _ENCODER.encode(sorted(self.processes))

    @classmethod
    def decode(cls, data: bytes) -> Self:
        """Give the Config that `encode` wrote."""
        return cls(frozenset(_DECODER.decode(data)))

    def digest(self) -> bytes:
        """Give the 16-byte digest of the canonical encoding."""
        return hashlib.blake2b(self.encode(), digest_size=16).digest()

    def _storages(self, processes: frozenset[ProcessId]) -> list[ProcessId]:
        return sorted(process for process in processes if process.role == "storage")

    def _after(self, message: Message) -> frozenset[ProcessId]:
        """Give the processes after a configuration message, or raise `Refusal`."""
        sender = message.sender
        try:
            body: ConfigMessage | None = decode_message(message.payload)
        except RemoteProtocolError:
            body = None
        if sender not in self.processes:
            # Whoever was expelled has sent before, and must come back as a new incarnation.
            is_new = body == Join(sender) and message.number == 1
            return self.processes | {sender} if is_new else self.processes
        match body:
            case Leave(process) if process == sender:
                return self.processes - {sender}
            case Suspect(accused) if accused in self.processes:
                after = self.processes - {accused}
                if accused.role == "storage" and not self._storages(after):
                    raise Refusal("the last storage process cannot be suspected")
                return after
        raise Refusal(f"this is neither a leave nor a suspicion that {sender} may send")
