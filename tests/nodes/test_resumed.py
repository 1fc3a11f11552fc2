"""A storage process that was stopped and goes on shows nothing old, whoever asks in its first moment.

Real processes. A client asks again what it had asked by the layout of before,
over the connection of before: the question waits in the socket when the process
goes on. Meanwhile its place was taken, and the rows were changed.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

import crescando
from crescando import col
from crescando.client.store import Store
from crescando.clusterfile import ClusterFile
from crescando.engine.base import Results
from crescando.nodes.runs import end_running, find_running
from crescando.remote import RemoteCluster
from crescando.roles.messages import ReadBasic
from crescando.transport.link import SocketChannel
from crescando.types import ProcessId
from tests.nodes.careless import CARELESS
from tests.nodes.clusters import PATIENCE_S, until, write_cluster

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
CAREFUL = "s1"
N_ROWS = 20
OLD, NEW = 1, 2
AGAIN_S = 0.05
"""For so long after the process goes on the question is asked again and again."""


class Wire:
    """What passes between a store's client and storage processes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[str, ReadBasic] = {}
        """The last basic read that each node was sent."""
        self.answers: list[tuple[str, Any]] = []
        send = SocketChannel.send

        def spy(channel: SocketChannel, message: Any) -> None:
            if isinstance(message, ReadBasic):
                self.asked[channel.peer.node] = message
            send(channel, message)

        monkeypatch.setattr(SocketChannel, "send", spy)

    def listen(self, channel: SocketChannel) -> None:
        """Note what comes over a session from now on."""
        channel.endpoint = Witness(self, channel.endpoint)  # type: ignore[assignment]

    def values(self, node: str) -> list[int]:
        """Give the values of all rows that a node answered with."""
        return [
            value
            for peer, message in self.answers
            if peer == node and isinstance(message, Results)
            for rows in message.rows
            for value in rows.columns[rows.names.index("value")].values.tolist()
        ]


class Witness:
    """An endpoint that tells what comes, and passes it on."""

    def __init__(self, wire: Wire, inner: Any) -> None:
        self._wire = wire
        self._inner = inner

    def received(self, channel: SocketChannel, message: Any) -> None:
        self._wire.answers.append((channel.peer.node, message))
        self._inner.received(channel, message)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


@pytest.fixture
def file(tmp_path: Path) -> Iterator[ClusterFile]:
    """A cluster of three owners of everything, of which one is careless, and one that stands by."""
    file = write_cluster(tmp_path, routers=1, storages=3, standby=1, supers=1, action="replace")
    command = [sys.executable, "-m", "tests.nodes.torture.up", str(file.path), "tests.nodes.careless"]
    log = (tmp_path / "launcher.log").open("wb")
    launcher = subprocess.Popen(
        command,
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.DEVNULL,
        stdout=log,
        stderr=log,
    )
    folder = tmp_path / ".crescando"
    try:
        until(lambda: (found := find_running(folder=folder)) is not None and found.is_ready, "ready")
        yield file
    finally:
        found = find_running(folder=folder)
        if found is not None:
            for pid in found.nodes.values():
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGCONT)
            end_running(found, folder=folder)
        launcher.wait(PATIENCE_S)
        log.close()


def test_a_process_that_goes_on_answers_no_old_question_with_old_rows(
    file: ClusterFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wire = Wire(monkeypatch)
    pids = find_running(folder=tmp_path / ".crescando").nodes  # type: ignore[union-attr]
    stopped = {node: ProcessId("storage", node, 1) for node in (CAREFUL, CARELESS)}
    url = f"crescando://{file.seat('r1').address}"
    with crescando.connect(url, tls=tmp_path / "certs", timeout_s=PATIENCE_S) as store:
        table = store.create_table("kept", like={"key": [1], "value": [1]}, primary_key="key")
        table.insert([{"key": key, "value": OLD} for key in range(N_ROWS)]).result()

        def is_asked() -> bool:
            assert len(table.select(where=col("value") == OLD, isolation="basic").rows()) == N_ROWS
            return stopped.keys() <= wire.asked.keys()

        until(is_asked, "both have been asked")
        old = {node: wire.asked[node] for node in stopped}
        channels = channels_of(store, stopped.values())
        for node in stopped:
            os.kill(pids[node], signal.SIGSTOP)

        def is_moved() -> bool:
            config = store.cluster.config()
            placed = {process.node for process in config.ring.processes}
            return config.storages.isdisjoint(stopped.values()) and "s4" in placed

        until(is_moved, "both are voted out, and the one that stood by has a place")
        assert table.update(None, {"value": NEW}).result().affected == N_ROWS
        for channel in channels.values():
            assert channel.is_open
            store.cluster._loop.call(lambda channel=channel: wire.listen(channel))

        def ask() -> None:
            for node, channel in channels.items():
                if channel.is_open:
                    channel.send(old[node])
            store.cluster._transport.flush()

        # It is there before the process runs again, and comes with everything else that waits.
        store.cluster._loop.call(ask)
        for node in stopped:
            os.kill(pids[node], signal.SIGCONT)
        end_s = time.monotonic() + AGAIN_S
        while time.monotonic() < end_s:
            store.cluster._loop.call(ask)
            time.sleep(0.001)
        until(lambda: wire.values(CARELESS), "the careless one answers")
        # The careful one has ended when it has learned that it is out.
        until(lambda: not channels[CAREFUL].is_open, "the careful one is gone")

    assert OLD in wire.values(CARELESS)
    assert wire.values(CAREFUL) == []


def channels_of(store: Store[RemoteCluster], processes: Any) -> dict[str, SocketChannel]:
    """Give the sessions of the store's client with some processes."""
    cluster = store.cluster
    channels = cluster._loop.call(lambda: dict(cluster._transport._channels[cluster.default.core.me]))
    return {process.node: channels[process] for process in processes}
