"""Redis: one primary and two replicas, each write followed by ``WAIT 2``.

Rules of the file: the protocol (RESP2) as far as SET, WAIT and their replies.
There is no consensus here: a write that WAIT acknowledged is on all three, but
nothing decides who leads next, and a primary that is cut off keeps writing.
"""

from __future__ import annotations

import socket
from typing import ClassVar

from benchmarks.peers.lane import Lane, Listener, key_of
from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.peers.result import PeerError
from benchmarks.peers.servers import ServerPeer
from benchmarks.peers.trio import MEMBERS, member_name, stated_version

WAIT_LIMIT_MS = 5_000
CONTROL_LIMIT_S = 10.0


def command(*words: bytes) -> bytes:
    """Encode one command."""
    return b"*%d\r\n" % len(words) + b"".join(b"$%d\r\n%s\r\n" % (len(word), word) for word in words)


WAIT = command(b"WAIT", b"%d" % (MEMBERS - 1), b"%d" % WAIT_LIMIT_MS)


class RedisLane(Lane):
    """A request is SETs and one WAIT: that many ``+OK`` lines, then ``:2``."""

    def __init__(self, payload: bytes, batch: int, listener: Listener) -> None:
        super().__init__(payload, batch, listener)
        self._head = b"*3\r\n$3\r\nSET\r\n$16\r\n"
        self._tail = b"\r\n$%d\r\n%s\r\n" % (len(payload), payload)
        self._rest = b""

    def greet(self) -> None:
        self.greeted()

    def request(self, writes: range) -> bytes:
        head, tail = self._head, self._tail
        return b"".join([head + key_of(write) + tail for write in writes]) + WAIT

    def data_received(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\r\n")
        self._rest = lines.pop()
        answered = lines.count(b":2")
        if answered + lines.count(b"+OK") != len(lines):
            wrong = next(line for line in lines if line not in (b":2", b"+OK"))
            self.refuse(wrong.decode(errors="replace"))
            return
        self.settle(answered)


class Redis(ServerPeer):
    """A primary (member 0) and two replicas."""

    name: ClassVar[str] = "redis"
    program: ClassVar[str] = "redis-server"
    package: ClassVar[str] = "redis-server (Debian)"
    lacks: ClassVar[str] = "no consensus, no fail-over without Sentinel, one primary executes all"

    # WAIT holds up its connection, hence many.
    lane_counts: ClassVar[tuple[int, ...]] = (8, 32, 64, 256)

    def version(self) -> str:
        return stated_version([self.program, "--version"], lambda text: text.split("v=")[1].split()[0])

    def launch(self, group: Group) -> None:
        self._ports = free_ports(MEMBERS)
        for member, port in enumerate(self._ports):
            arguments = {
                "--port": str(port),
                "--bind": HOST,
                "--save": "",
                "--appendonly": "no",
                "--repl-diskless-sync-delay": "0",
                "--repl-diskless-load": "on-empty-db",
                # More than a run writes while a replica is held up.
                "--repl-backlog-size": "256mb",
                "--client-output-buffer-limit": "replica 0 0 0",
                "--maxclients": "5000",
            }
            words = [self.program]
            for option, value in arguments.items():
                words += [option, value]
            if member:
                words += ["--replicaof", HOST, str(self._ports[0])]
            group.start(member_name(member), words)
        group.wait_until(self._replicas_follow, "two replicas in step")

    def port(self, member: int) -> int:
        return self._ports[member]

    def leader(self) -> int:
        return 0

    def lane(self, payload: bytes, batch: int, listener: Listener) -> Lane:
        return RedisLane(payload, batch, listener)

    def applied(self, member: int) -> int:
        # Every write has a key of its own, so keys count writes.
        return int(self._ask(member, b"DBSIZE")[1:])

    def read(self, member: int, write: int) -> bytes | None:
        reply = self._ask(member, b"GET", key_of(write))
        return None if reply == b"$-1" else reply.split(b"\r\n", 1)[1]

    def gap_s(self) -> float | None:
        """Give None: nothing takes over."""
        return None

    def _replicas_follow(self) -> bool:
        try:
            return self._ask(0, b"INFO", b"replication").count(b"state=online") == MEMBERS - 1
        except (OSError, PeerError):
            return False

    def _ask(self, member: int, *words: bytes) -> bytes:
        """Give the reply to one command, without the last line end."""
        with socket.create_connection((HOST, self._ports[member]), timeout=CONTROL_LIMIT_S) as connection:
            connection.sendall(command(*words))
            reply = b""
            while not _is_whole(reply):
                part = connection.recv(1 << 16)
                if not part:
                    raise PeerError("redis closed a connection")
                reply += part
        if reply.startswith(b"-"):
            raise PeerError(reply.decode(errors="replace").strip())
        return reply[:-2]


def _is_whole(reply: bytes) -> bool:
    line, end, body = reply.partition(b"\r\n")
    if not end:
        return False
    if line.startswith(b"$") and line != b"$-1":
        return len(body) == int(line[1:]) + 2
    return True
