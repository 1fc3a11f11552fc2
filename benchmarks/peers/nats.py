"""NATS JetStream: a key-value bucket in memory with three replicas.

Rules of the file: the protocol as far as PUB, its acknowledgement, and requests
of the JetStream API. A bucket is a stream that keeps the last message of each
subject; a write is a publication that its stream's leader acknowledges when a
quorum holds it.
"""

from __future__ import annotations

import base64
import json
import socket
import urllib.request
from typing import Any, ClassVar

from benchmarks.peers.lane import Lane, Listener, key_of
from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.peers.result import PeerError
from benchmarks.peers.servers import ServerPeer
from benchmarks.peers.trio import MEMBERS, member_name, stated_version

STREAM = "KV_bench"
SUBJECT = b"$KV.bench."
REQUEST_LIMIT_S = 5.0
CONNECT = b'CONNECT {"verbose":false,"pedantic":false,"headers":true,"no_responders":true,"lang":"raw"}\r\n'
# Not guarded against being had by two clients: one client at a time publishes.
INBOX = b"_INBOX.bench"

CONFIGURATION = """\
server_name: {name}
listen: {host}:{client_port}
http: {host}:{monitor_port}
jetstream {{ store_dir: "{folder}", max_memory_store: 4GB, max_file_store: 1GB }}
cluster {{ name: bench, listen: {host}:{cluster_port}, routes: [{routes}] }}
"""


class NatsLane(Lane):
    """A request is publications that share an inbox; each gets a ``MSG`` line and a line of JSON."""

    def __init__(self, payload: bytes, batch: int, listener: Listener) -> None:
        super().__init__(payload, batch, listener)
        self._inbox = b"%s.%x" % (INBOX, id(self))
        self._head = b"PUB " + SUBJECT
        self._tail = b" %s %d\r\n%s\r\n" % (self._inbox, len(payload), payload)
        self._rest = b""
        self._acknowledged = 0

    def greet(self) -> None:
        self.transport.write(CONNECT + b"SUB %s 1\r\nPING\r\n" % self._inbox)

    def request(self, writes: range) -> bytes:
        head, tail = self._head, self._tail
        return b"".join([head + key_of(write) + tail for write in writes])

    def data_received(self, data: bytes) -> None:
        lines = (self._rest + data).split(b"\r\n")
        self._rest = lines.pop()
        for line in lines:
            match line[:4]:
                case b"MSG " | b"INFO" | b"":
                    pass
                case b'{"st':
                    # A stream's acknowledgement; a refusal starts with {"error".
                    self._acknowledged += 1
                case b"PING":
                    self.transport.write(b"PONG\r\n")
                case b"PONG":
                    self.greeted()
                case b"HMSG":
                    # Only "no responders" comes with a header: no leader at present.
                    self.refuse("nobody leads the stream")
                case b"NATS":
                    pass
                case _:
                    self.refuse(line.decode(errors="replace"))
        whole, self._acknowledged = divmod(self._acknowledged, self.batch)
        self.settle(whole)


class Nats(ServerPeer):
    """Three servers with JetStream; the leader is that of the bucket's stream."""

    name: ClassVar[str] = "nats"
    program: ClassVar[str] = "nats-server"
    package: ClassVar[str] = "nats-server (Debian)"
    lacks: ClassVar[str] = "one stream is one Raft group, a batch is not atomic"

    def version(self) -> str:
        return stated_version(
            [self.program, "--version"], lambda text: text.split(":")[1].strip().lstrip("v")
        )

    def launch(self, group: Group) -> None:
        ports = free_ports(3 * MEMBERS)
        self._ports, cluster_ports, self._monitor_ports = (ports[n::MEMBERS] for n in range(MEMBERS))
        routes = ", ".join(f"nats://{HOST}:{port}" for port in cluster_ports)
        for member in range(MEMBERS):
            name = member_name(member)
            configuration = group.folder / f"{name}.conf"
            configuration.write_text(
                CONFIGURATION.format(
                    name=name,
                    host=HOST,
                    client_port=self._ports[member],
                    cluster_port=cluster_ports[member],
                    monitor_port=self._monitor_ports[member],
                    folder=group.folder / name,
                    routes=routes,
                ),
                encoding="utf-8",
            )
            group.start(name, [self.program, "--config", str(configuration)])
        group.wait_until(self._bucket_is_made, "a bucket with three replicas")

    def port(self, member: int) -> int:
        return self._ports[member]

    def leader(self) -> int:
        leader: str = self._stream(0)["cluster"]["leader"]
        return [member_name(member) for member in range(MEMBERS)].index(leader)

    def lane(self, payload: bytes, batch: int, listener: Listener) -> Lane:
        return NatsLane(payload, batch, listener)

    def applied(self, member: int) -> int:
        # What the server itself holds, which only its monitoring page tells: the API answers for the leader.
        url = f"http://{HOST}:{self._monitor_ports[member]}/jsz?accounts=true&streams=true"
        with urllib.request.urlopen(url, timeout=REQUEST_LIMIT_S) as page:
            accounts = json.load(page)["account_details"]
        streams = [stream for account in accounts for stream in account.get("stream_detail", ())]
        return sum(stream["state"]["messages"] for stream in streams if stream["name"] == STREAM)

    def read(self, member: int, write: int) -> bytes | None:
        # The stream's leader answers, whoever is asked.
        subject = (SUBJECT + key_of(write)).decode()
        reply = self._api(member, f"STREAM.MSG.GET.{STREAM}", {"last_by_subj": subject})
        return base64.b64decode(reply["message"]["data"]) if "message" in reply else None

    def _bucket_is_made(self) -> bool:
        wanted = {
            "name": STREAM,
            "subjects": [SUBJECT.decode() + ">"],
            "storage": "memory",
            "num_replicas": MEMBERS,
            "max_msgs_per_subject": 1,
            "discard": "new",
            "allow_rollup_hdrs": True,
            "deny_delete": True,
            "allow_direct": True,
        }
        try:
            reply = self._api(0, f"STREAM.CREATE.{STREAM}", wanted)
            cluster = reply.get("cluster") or self._stream(0)["cluster"]
        except (OSError, PeerError, KeyError):
            # There is no leader for a while after the servers have met.
            return False
        followers = cluster.get("replicas") or ()
        return bool(cluster.get("leader")) and sum(each["current"] for each in followers) == MEMBERS - 1

    def _stream(self, member: int) -> dict[str, Any]:
        return self._api(member, f"STREAM.INFO.{STREAM}", {})

    def _api(self, member: int, subject: str, body: dict[str, Any]) -> dict[str, Any]:
        """Give the JetStream API's reply to one request, asked of `member`."""
        text = json.dumps(body).encode()
        with socket.create_connection((HOST, self._ports[member]), timeout=REQUEST_LIMIT_S) as connection:
            inbox = b"%s.control" % INBOX
            connection.sendall(
                CONNECT
                + b"SUB %s 1\r\nPUB $JS.API.%s %s %d\r\n" % (inbox, subject.encode(), inbox, len(text))
                + text
                + b"\r\n"
            )
            received = b""
            while True:
                part = connection.recv(1 << 16)
                if not part:
                    raise PeerError("nats closed a connection")
                received += part
                start = received.find(b"\r\nMSG ")
                if start < 0:
                    if b"\r\nHMSG " in received:
                        raise PeerError("nobody serves the JetStream API yet")
                    continue
                line, end, rest = received[start + 2 :].partition(b"\r\n")
                if end and len(rest) >= (size := int(line.rsplit(b" ", 1)[1])):
                    reply: dict[str, Any] = json.loads(rest[:size])
                    return reply
