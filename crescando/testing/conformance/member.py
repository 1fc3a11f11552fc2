"""A process around one member of an atomic broadcast: its log, its sessions, its snapshots."""

from __future__ import annotations

import hashlib
from typing import Any

import msgspec

from crescando.consensus.base import AtomicBroadcast
from crescando.process import Output, earliest
from crescando.testing.conformance.rules import ConformanceError
from crescando.types import ProcessId

RECONNECT_S = 0.05
ATTEST_EVERY = 4

Log = list[tuple[int, bytes | None]]


class MemberProcess:
    """A `ProcessCore` whose state machine is the log of what was learned.

    Parameters
    ----------
    me : ProcessId
    broadcast : AtomicBroadcast
    """

    def __init__(self, me: ProcessId, broadcast: AtomicBroadcast[bytes]) -> None:
        self.me = me
        self.broadcast = broadcast
        self.log: Log = []
        self.installed: list[int] = []
        self.lies = False
        self._sessions: set[ProcessId] = set()
        self._asked: set[ProcessId] = set()
        self._again_s: dict[ProcessId, float] = {}

    @property
    def learned(self) -> int:
        """The last instance in the log; the core may have learned more, and not told it yet."""
        return self.log[-1][0] if self.log else 0

    @property
    def values(self) -> list[bytes]:
        """What was learned, without no-ops."""
        return [value for _, value in self.log if value is not None]

    def on_start(self, now_s: float) -> None:
        self.broadcast.on_start(now_s)

    def on_connected(self, peer: ProcessId, now_s: float) -> None:
        self._asked.discard(peer)
        self._sessions.add(peer)
        self.broadcast.on_connected(peer, now_s)

    def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
        self._sessions.discard(peer)
        self.broadcast.on_disconnected(peer, now_s)

    def on_refused(self, peer: ProcessId, now_s: float) -> None:
        self._asked.discard(peer)
        self._again_s[peer] = now_s + RECONNECT_S
        self.broadcast.on_refused(peer, now_s)

    def on_message(self, peer: ProcessId, message: Any, now_s: float) -> None:
        self.broadcast.on_message(peer, message, now_s)

    def on_executed(self, result: Any, now_s: float) -> None:
        """Nothing is executed here."""

    def flush(self, now_s: float) -> Output:
        result = self.broadcast.flush(now_s)
        if result.install is not None:
            instance, state = result.install
            self.log = list(state)
            self.installed.append(instance)
            if self.log and self.log[-1][0] != instance:
                self._broken(
                    "snapshot", f"the state of instance {self.log[-1][0]} came as that of {instance}"
                )
        for instance, value in result.learned:
            self._learn(instance, value)
        send = list(result.send)
        for peer in result.snapshot_for:
            self.broadcast.provide_snapshot(peer, self.broadcast.learned, tuple(self.log))
        wake_at_s, stop = result.wake_at_s, result.stop
        if result.snapshot_for or result.learned:
            # Attesting and providing may have given more to send.
            again = self.broadcast.flush(now_s)
            if again.learned or again.install is not None:
                self._broken("gaps", "one turn gave something to learn in its second flush")
            send += again.send
            wake_at_s, stop = again.wake_at_s, stop or again.stop
        connect = self._wanted(now_s)
        return Output(
            connect=connect,
            send=send,
            wake_at_s=earliest(wake_at_s, min(self._again_s.values(), default=None)),
            stop=stop,
        )

    def _learn(self, instance: int, value: bytes | None) -> None:
        if instance != self.learned + 1:
            self._broken("gaps", f"instance {instance} was learned where {self.learned + 1} was due")
        self.log.append((instance, value))
        if instance % ATTEST_EVERY == 0:
            state = msgspec.msgpack.encode((self.log, self.lies))
            self.broadcast.attest(instance, hashlib.blake2b(state, digest_size=16).digest())

    def _wanted(self, now_s: float) -> list[ProcessId]:
        """Give the peers to ask for a session; of two members either may ask."""
        wanted = []
        for peer in self.broadcast.peers:
            due_s = self._again_s.get(peer, now_s)
            if peer not in self._sessions | self._asked and now_s >= due_s:
                wanted.append(peer)
        for peer in list(self._again_s):
            if peer in self._sessions or now_s >= self._again_s[peer]:
                del self._again_s[peer]
        self._asked.update(wanted)
        return wanted

    def _broken(self, rule: str, text: str) -> None:
        raise ConformanceError(rule, f"{self.me}: {text}")
