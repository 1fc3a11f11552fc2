"""etcd: three members whose logs lie on a disk in memory.

Rules of the file: the messages Put and Txn as protocol buffers, written by hand;
everything that is not measured goes through etcd's own JSON gateway.
"""

from __future__ import annotations

import base64
import json
import urllib.request
from typing import Any, ClassVar

from benchmarks.peers.http2 import GrpcLane
from benchmarks.peers.lane import Lane, Listener, key_of
from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.peers.servers import ServerPeer
from benchmarks.peers.trio import MEMBERS, member_name, stated_version

PUT, TXN = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn"
REQUEST_LIMIT_S = 10.0
TXN_WRITES_MAX = 4096


def field(number: int, body: bytes) -> bytes:
    """Encode a length-delimited field of a protocol buffer; numbers below 16."""
    size, length = len(body), bytearray()
    while size > 0x7F:
        length.append(size & 0x7F | 0x80)
        size >>= 7
    length.append(size)
    return bytes([number << 3 | 2]) + bytes(length) + body


class EtcdLane(GrpcLane):
    """A request is one Put, or a Txn of several."""

    def __init__(self, payload: bytes, batch: int, listener: Listener, authority: str) -> None:
        super().__init__(payload, batch, listener, PUT if batch == 1 else TXN, authority)
        self._value = field(2, payload)

    def request(self, writes: range) -> bytes:
        if self.batch == 1:
            return self._put(writes.start)
        # TxnRequest.success, a list of RequestOp.request_put.
        return b"".join([field(2, field(2, self._put(write))) for write in writes])

    def _put(self, write: int) -> bytes:
        return b"\x0a\x10" + key_of(write) + self._value


class Etcd(ServerPeer):
    """Three members with etcd's own time-outs (heartbeat 100 ms, election 1 s)."""

    name: ClassVar[str] = "etcd"
    program: ClassVar[str] = "etcd"
    package: ClassVar[str] = "etcd-server (Debian)"
    lacks: ClassVar[str] = "keeps every version of a key, writes its log to a file (here in memory)"

    def version(self) -> str:
        return stated_version(
            [self.program, "--version"], lambda text: text.split("etcd Version:")[1].split()[0]
        )

    def launch(self, group: Group) -> None:
        ports = free_ports(2 * MEMBERS)
        self._ports, peer_ports = ports[:MEMBERS], ports[MEMBERS:]
        peers = ",".join(f"{member_name(n)}=http://{HOST}:{port}" for n, port in enumerate(peer_ports))
        for member in range(MEMBERS):
            name = member_name(member)
            client, peer = f"http://{HOST}:{self._ports[member]}", f"http://{HOST}:{peer_ports[member]}"
            options = {
                "--name": name,
                "--data-dir": str(group.folder / name),
                "--listen-client-urls": client,
                "--advertise-client-urls": client,
                "--listen-peer-urls": peer,
                "--initial-advertise-peer-urls": peer,
                "--initial-cluster": peers,
                "--max-txn-ops": str(TXN_WRITES_MAX),
                "--quota-backend-bytes": str(8 << 30),
                # No snapshots of the log during a run.
                "--snapshot-count": str(100_000_000),
                "--log-level": "error",
                "--logger": "zap",
            }
            group.start(name, [self.program, *(word for option in options.items() for word in option)])
        group.wait_until(self._is_led, "a leader")

    def port(self, member: int) -> int:
        return self._ports[member]

    def leader(self) -> int:
        for member in range(MEMBERS):
            status = self._ask(member, "maintenance/status", {})
            if status["leader"] == status["header"]["member_id"]:
                return member
        # An election is on; any member forwards.
        return 0

    def lane(self, payload: bytes, batch: int, listener: Listener) -> Lane:
        return EtcdLane(payload, batch, listener, HOST)

    def applied(self, member: int) -> int:
        # All keys, counted by this member alone ("serializable").
        everything = {
            "key": _text(b"\0"),
            "range_end": _text(b"\0"),
            "count_only": True,
            "serializable": True,
        }
        return int(self._ask(member, "kv/range", everything).get("count", 0))

    def read(self, member: int, write: int) -> bytes | None:
        found = self._ask(member, "kv/range", {"key": _text(key_of(write)), "serializable": True})
        return base64.b64decode(found["kvs"][0].get("value", "")) if "kvs" in found else None

    def _is_led(self) -> bool:
        try:
            return all(
                self._ask(member, "maintenance/status", {}).get("leader", "0") != "0"
                for member in range(MEMBERS)
            )
        except OSError:
            return False

    def _ask(self, member: int, method: str, body: dict[str, Any]) -> dict[str, Any]:
        url = f"http://{HOST}:{self._ports[member]}/v3/{method}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=REQUEST_LIMIT_S) as reply:
            answer: dict[str, Any] = json.load(reply)
            return answer


def _text(key: bytes) -> str:
    return base64.b64encode(key).decode()
