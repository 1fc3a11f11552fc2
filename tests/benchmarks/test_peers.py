"""Peers are measured on writes that they really applied, and leave no process and no file behind."""

from __future__ import annotations

import asyncio
import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from benchmarks.peers.base import PEERS, Peer, PeerError
from benchmarks.peers.etcd import EtcdLane
from benchmarks.peers.http2 import DATA, END_HEADERS, END_STREAM, HEADERS, WINDOW_BYTES, frame
from benchmarks.peers.lane import Lane, key_of
from benchmarks.peers.nats import NatsLane
from benchmarks.peers.processes import Group
from benchmarks.peers.redis import RedisLane
from benchmarks.peers.trio import Load, Trio

ROOT = Path(__file__).parents[2]
EXIT_LIMIT_MS = 10_000


def installed(peer: Peer) -> Peer:
    if reason := peer.available():
        pytest.skip(reason)
    return peer


def wait_exit(pid: int) -> bool:
    """Tell whether a process ends in time."""
    try:
        handle = os.pidfd_open(pid)
    except ProcessLookupError:
        return True
    try:
        poll = select.poll()
        poll.register(handle, select.POLLIN)
        return bool(poll.poll(EXIT_LIMIT_MS))
    finally:
        os.close(handle)


@pytest.mark.slow
@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peer_applies_what_it_acknowledges_and_leaves_nothing(peer: Peer) -> None:
    installed(peer)
    assert isinstance(peer, Trio)
    try:
        peer.start()
        folder = peer.group.folder
        result = peer.run(in_flight=8, payload_bytes=100, seconds=0.2)
        batched = peer.run(in_flight=2, payload_bytes=50, seconds=0.2, batch=4)
    finally:
        peer.stop()

    assert result.checksum == result.operations > 0
    assert batched.checksum == batched.operations > 0
    assert batched.operations % 4 == 0
    assert 0 < result.p50_ms <= result.p99_ms
    assert result.version[0].isdigit()
    assert not folder.exists()


def test_keys_of_writes_differ() -> None:
    keys = {key_of(write) for write in range(50_000)}

    assert len(keys) == 50_000
    assert {len(key) for key in keys} == {16}


class Lying(Trio):
    """A peer whose members hold another number of writes, or other values, than it acknowledged."""

    name = "lying"
    lacks = ""

    def __init__(self, surplus: int, value: bytes) -> None:
        super().__init__()
        self._surplus, self._value = surplus, value

    def available(self) -> str:
        return ""

    def version(self) -> str:
        return "0"

    def launch(self, group: Group) -> None:
        group.start("idle", [sys.executable, "-c", "input()"], piped=True)

    def leader(self) -> int:
        return 0

    def load(self, first_write: int, in_flight: int, payload: bytes, seconds: float, batch: int) -> Load:
        self._held = first_write + 10 + self._surplus
        return Load(operations=10, seconds=1.0, p50_ms=1.0, p99_ms=1.0, how="")

    def applied(self, member: int) -> int:
        return self._held

    def read(self, member: int, write: int) -> bytes | None:
        return self._value

    def gap_s(self) -> float | None:
        return None


@pytest.mark.parametrize(
    ("surplus", "value", "fault"),
    [(0, b"v", None), (1, b"v", "the members applied"), (0, b"w", "another value")],
)
def test_run_that_is_not_what_was_acknowledged_raises(surplus: int, value: bytes, fault: str | None) -> None:
    peer = Lying(surplus, value)
    peer.start()
    try:
        if fault is None:
            assert peer.run(in_flight=1, payload_bytes=1, seconds=1.0).checksum == 10
        else:
            with pytest.raises(PeerError, match=fault):
                peer.run(in_flight=1, payload_bytes=1, seconds=1.0)
    finally:
        peer.stop()


def test_lost_writes_raise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.trio.APPLIED_LIMIT_S", 0.05)
    peer = Lying(-1, b"v")
    peer.start()
    try:
        with pytest.raises(PeerError, match="members that hold 20 writes"):
            peer.run(in_flight=1, payload_bytes=1, seconds=1.0)
    finally:
        peer.stop()


def test_process_that_ends_early_is_reported_with_what_it_printed() -> None:
    group = Group("test")
    try:
        group.start("brief", [sys.executable, "-c", "raise SystemExit('no such option')"])

        with pytest.raises(PeerError, match="no such option"):
            group.wait_until(lambda: False, "anything")
    finally:
        group.close()


def test_servers_end_when_the_benchmark_is_killed() -> None:
    script = (
        "import sys\nfrom benchmarks.peers.processes import Group\ngroup = Group('test')\n"
        "server = group.start('server', [sys.executable, '-c', 'import signal; signal.pause()'])\n"
        "print(server.pid, group.folder, flush=True)\nsys.stdin.read()\n"
    )
    benchmark = subprocess.Popen(
        [sys.executable, "-c", script], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT
    )
    assert benchmark.stdout is not None
    server_pid, _folder = benchmark.stdout.readline().split()

    os.kill(benchmark.pid, signal.SIGKILL)
    benchmark.communicate()

    assert wait_exit(int(server_pid)), "a server outlived its benchmark"


class Heard:
    """A listener and a transport that remember."""

    def __init__(self) -> None:
        self.settled, self.refused, self.written = 0, list[str](), b""

    def on_settled(self, lane: Lane, sent_s: Sequence[float]) -> None:
        self.settled += len(sent_s)

    def on_refused(self, lane: Lane, reason: str) -> None:
        self.refused.append(reason)

    def on_lost(self, lane: Lane) -> None:
        raise AssertionError("nothing was lost")

    def write(self, data: bytes) -> None:
        self.written += data


def talk(make: Callable[[Heard], Lane], replies: Sequence[bytes], requests: int = 2) -> Heard:
    """Send requests over a lane, then hand it replies, cut as given."""

    async def exchange() -> Heard:
        heard = Heard()
        lane = make(heard)
        lane.transport = heard  # type: ignore[assignment]
        lane.submit([range(n, n + 1) for n in range(requests)])
        for reply in replies:
            lane.data_received(reply)
        return heard

    return asyncio.run(exchange())


def test_redis_write_on_too_few_members_is_refused() -> None:
    heard = talk(lambda listener: RedisLane(b"v", 1, listener), [b"+OK\r\n:", b"2\r\n+OK\r\n", b":1\r\n"])

    assert (heard.settled, heard.refused) == (1, [":1"])


def test_nats_error_is_refused() -> None:
    heard = talk(
        lambda listener: NatsLane(b"v", 1, listener),
        [b'MSG x 1 9\r\n{"stream":"KV_b', b'ench"}\r\nMSG x 1 9\r\n{"error":{"code":503}}\r\n'],
    )

    assert (heard.settled, heard.refused) == (1, ['{"error":{"code":503}}'])


def test_etcd_call_without_a_message_is_refused() -> None:
    trailers = END_HEADERS | END_STREAM
    success = (
        frame(HEADERS, END_HEADERS, 1, b"") + frame(DATA, 0, 1, b"reply") + frame(HEADERS, trailers, 1, b"")
    )
    failure = frame(HEADERS, trailers, 3, b"")

    heard = talk(lambda listener: EtcdLane(b"v", 1, listener, "x"), [success[:20], success[20:] + failure])

    assert heard.settled == 1
    assert heard.refused == ["trailers without a message"]


def test_etcd_client_keeps_to_the_window() -> None:
    heard = talk(lambda listener: EtcdLane(b"v" * 1000, 1, listener, "x"), [], requests=100)

    # gRPC's 5 bytes, the key's field of 18, the value's of 1,003.
    assert heard.written.count(b"v" * 1000) == WINDOW_BYTES // (5 + 18 + 1003)
