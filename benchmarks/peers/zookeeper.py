"""ZooKeeper: three servers that do not force their logs, which lie on a disk in memory.

Rules of the file: the protocol (Jute) as far as a session, create, multi,
exists and getData. A write creates a node below one parent, whose count
of children then counts the writes.
"""

from __future__ import annotations

import socket
import struct
from pathlib import Path
from typing import ClassVar

from benchmarks.peers.lane import Lane, Listener, key_of
from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.peers.result import PeerError
from benchmarks.peers.servers import ServerPeer
from benchmarks.peers.trio import MEMBERS, member_name, stated_version

JAR = Path("/usr/share/java/zookeeper.jar")
MAIN = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
SERVER_OPTIONS = {
    "zookeeper.forceSync": "no",
    # Else a server stops reading from its clients at 1,000 requests.
    "zookeeper.globalOutstandingLimit": "100000",
    # No snapshot during a run.
    "zookeeper.snapCount": "100000000",
    "zookeeper.preAllocSize": "65536",
    "zookeeper.admin.enableServer": "false",
    "zookeeper.4lw.commands.whitelist": "srvr",
}
HEAP = "1g"
TICK_MS = 200
SESSION_MS = 60_000
COMPILE_S = 4.0
COMPILE_IN_FLIGHT = 64
CONTROL_LIMIT_S = 10.0

CREATE, EXISTS, GET_DATA, MULTI = 1, 3, 4, 14
NODE_EXISTS = -110
PARENT = b"/bench"

INT = struct.Struct(">i")
REPLY = struct.Struct(">iqi")
"""xid, zxid, error."""
STAT = struct.Struct(">qqqqiiiqiiq")
N_CHILDREN = 9
MULTI_HEADER = struct.Struct(">i?i")


def text(body: bytes) -> bytes:
    """Encode a string or a buffer."""
    return INT.pack(len(body)) + body


def framed(body: bytes) -> bytes:
    """Put a body's length before it."""
    return INT.pack(len(body)) + body


# protocolVersion, lastZxidSeen, timeOut, sessionId, passwd, readOnly.
HELLO = framed(struct.pack(">iqiq", 0, 0, SESSION_MS, 0) + text(bytes(16)) + b"\0")
# One entry: every right, for anyone; then the flags of a persistent node.
OPEN_TO_ALL = INT.pack(1) + INT.pack(31) + text(b"world") + text(b"anyone") + INT.pack(0)


class ZooKeeperLane(Lane):
    """A session; a request is one create, or a multi of several; replies come in order."""

    def __init__(self, payload: bytes, batch: int, listener: Listener) -> None:
        super().__init__(payload, batch, listener)
        self._tail = text(payload) + OPEN_TO_ALL
        self._xid = 0
        self._rest = b""

    def greet(self) -> None:
        self.transport.write(HELLO)

    def request(self, writes: range) -> bytes:
        self._xid += 1
        if self.batch == 1:
            return framed(struct.pack(">ii", self._xid, CREATE) + self._create(writes.start))
        header = MULTI_HEADER.pack(CREATE, False, -1)
        creates = b"".join([header + self._create(write) for write in writes])
        return framed(struct.pack(">ii", self._xid, MULTI) + creates + MULTI_HEADER.pack(-1, True, -1))

    def data_received(self, data: bytes) -> None:
        data = self._rest + data
        position, end, settled = 0, len(data), 0
        while position + INT.size <= end:
            after = position + INT.size + INT.unpack_from(data, position)[0]
            if after > end:
                break
            if not self.ready.done():
                self.greeted()
            else:
                # A multi that failed says so here too: it is applied whole or not at all.
                error = REPLY.unpack_from(data, position + INT.size)[2]
                if error:
                    self.refuse(f"error {error}")
                else:
                    settled += 1
            position = after
        self._rest = data[position:]
        self.settle(settled)

    def _create(self, write: int) -> bytes:
        return text(PARENT + b"/" + key_of(write)) + self._tail


class ZooKeeper(ServerPeer):
    """Three servers; member n has the id n + 1."""

    name: ClassVar[str] = "zookeeper"
    program: ClassVar[str] = "java"
    package: ClassVar[str] = "zookeeper (Debian)"
    lacks: ClassVar[str] = f"log not forced (forceSync=no), ticks of {TICK_MS} ms where 2,000 is usual"

    def available(self) -> str:
        return super().available() or ("" if JAR.exists() else f"{JAR} is missing; install {self.package}")

    def version(self) -> str:
        main = "org.apache.zookeeper.version.VersionInfoMain"
        pick = "Apache ZooKeeper, version "
        return stated_version(
            [self.program, "-cp", str(JAR), main], lambda out: out.split(pick)[1].split()[0].rstrip(",")
        )

    def launch(self, group: Group) -> None:
        ports = free_ports(3 * MEMBERS)
        self._ports, follow_ports, elect_ports = (ports[n::MEMBERS] for n in range(MEMBERS))
        servers = "".join(
            f"server.{member + 1}={HOST}:{follow_ports[member]}:{elect_ports[member]}\n"
            for member in range(MEMBERS)
        )
        java = [self.program, f"-Xms{HEAP}", f"-Xmx{HEAP}"]
        java += [f"-D{name}={value}" for name, value in SERVER_OPTIONS.items()]
        for member in range(MEMBERS):
            folder = group.folder / member_name(member)
            folder.mkdir()
            (folder / "myid").write_text(f"{member + 1}\n", encoding="ascii")
            configuration = folder / "zoo.cfg"
            configuration.write_text(
                f"dataDir={folder}\nclientPort={self._ports[member]}\nclientPortAddress={HOST}\n"
                f"tickTime={TICK_MS}\ninitLimit=50\nsyncLimit=25\nmaxClientCnxns=0\n"
                f"maxSessionTimeout={SESSION_MS}\nstandaloneEnabled=false\n{servers}",
                encoding="utf-8",
            )
            group.start(member_name(member), [*java, "-cp", str(JAR), MAIN, str(configuration)])
        group.wait_until(self._parent_is_made, "a leader")
        # Java compiles what runs often; a run must not measure that.
        self.measure(COMPILE_IN_FLIGHT, b"v", COMPILE_S, 1)

    def port(self, member: int) -> int:
        return self._ports[member]

    def leader(self) -> int:
        for member in range(MEMBERS):
            if b"Mode: leader" in self._four_letters(member, b"srvr"):
                return member
        raise PeerError("no server says that it leads")

    def lane(self, payload: bytes, batch: int, listener: Listener) -> Lane:
        return ZooKeeperLane(payload, batch, listener)

    def applied(self, member: int) -> int:
        error, reply = self._ask(member, EXISTS, text(PARENT) + b"\0")
        if error:
            raise PeerError(f"{PARENT.decode()} cannot be read: error {error}")
        children: int = STAT.unpack_from(reply)[N_CHILDREN]
        return children

    def read(self, member: int, write: int) -> bytes | None:
        error, reply = self._ask(member, GET_DATA, text(PARENT + b"/" + key_of(write)) + b"\0")
        return None if error else reply[INT.size : INT.size + INT.unpack_from(reply)[0]]

    def _parent_is_made(self) -> bool:
        try:
            error, _ = self._ask(0, CREATE, text(PARENT) + text(b"") + OPEN_TO_ALL)
            return error in (0, NODE_EXISTS) and all(
                self._ask(member, EXISTS, text(PARENT) + b"\0")[0] == 0 for member in range(MEMBERS)
            )
        except (OSError, PeerError):
            return False

    def _ask(self, member: int, operation: int, body: bytes) -> tuple[int, bytes]:
        """Give error and reply of one operation, asked of `member` in a session of its own."""
        with socket.create_connection((HOST, self._ports[member]), timeout=CONTROL_LIMIT_S) as connection:
            connection.sendall(HELLO)
            _receive_frame(connection)
            connection.sendall(framed(struct.pack(">ii", 1, operation) + body))
            reply = _receive_frame(connection)
            return REPLY.unpack_from(reply)[2], reply[REPLY.size :]

    def _four_letters(self, member: int, word: bytes) -> bytes:
        with socket.create_connection((HOST, self._ports[member]), timeout=CONTROL_LIMIT_S) as connection:
            connection.sendall(word)
            return b"".join(iter(lambda: connection.recv(1 << 16), b""))


def _receive_frame(connection: socket.socket) -> bytes:
    return _receive(connection, INT.unpack(_receive(connection, INT.size))[0])


def _receive(connection: socket.socket, size: int) -> bytes:
    received = b""
    while len(received) < size:
        part = connection.recv(size - len(received))
        if not part:
            raise PeerError("zookeeper closed a connection")
        received += part
    return received
