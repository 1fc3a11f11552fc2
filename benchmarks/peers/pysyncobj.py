"""PySyncObj: Raft in Python, ticking every millisecond, loaded from inside its leader.

Rules of the file: starts the members (`pysyncobj_node.py`) and speaks to them in
lines of JSON; nothing of the library is imported here.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import queue
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import Any

from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.peers.result import PeerError, PeerResult
from benchmarks.peers.servers import (
    APPLIED_LIMIT_S,
    GAP_LIMIT_S,
    MEMBERS,
    SAMPLES,
    STARTS,
    WARM_UP_S,
    member_name,
)

OPTIONS = {
    # The defaults are 50 ms and 100 ms and give about 10 writes per second one at a time.
    "autoTickPeriod": 0.001,
    "appendEntriesPeriod": 0.001,
    "commandsQueueSize": 1_000_000,
    "connectionRetryTime": 0.1,
    # No compaction of the log during a run.
    "logCompactionMinEntries": 1 << 40,
    "logCompactionMinTime": 1 << 30,
}
ANSWER_LIMIT_S = 10.0
ROOT = Path(__file__).parents[2]


class Member:
    """One process and the lines it prints."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self._lines: queue.SimpleQueue[str] = queue.SimpleQueue()
        threading.Thread(target=self._read, daemon=True).start()

    def tell(self, do: str, **arguments: Any) -> None:
        """Send one command."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
        except OSError as error:
            raise PeerError("a member has ended") from error

    def answer(self, limit_s: float = ANSWER_LIMIT_S) -> dict[str, Any]:
        """Give the next answer."""
        try:
            line = self._lines.get(timeout=max(0.0, limit_s))
        except queue.Empty:
            raise PeerError(f"a member did not answer within {limit_s:g} s") from None
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise PeerError(answer["error"])
        return answer

    def ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Send one command and give its answer."""
        self.tell(do, **arguments)
        return self.answer()

    def _read(self) -> None:
        assert self._process.stdout is not None
        try:
            for line in self._process.stdout:
                self._lines.put(line)
        except ValueError:
            # The group was closed, and the pipe with it.
            return


class PySyncObj:
    """Three members, each a Python process."""

    name = "pysyncobj"

    def __init__(self) -> None:
        self.group: Group | None = None
        self._members: list[Member] = []
        self._addresses: list[str] = []
        self._next_write = 0

    def available(self) -> str:
        """Give "" if this peer can run here, else why not."""
        if importlib.util.find_spec("pysyncobj") is None:
            return "pysyncobj is not installed; install pysyncobj (PyPI)"
        return ""

    def start(self) -> None:
        """Start the members; PeerError if they do not serve, after tries on other ports."""
        for attempt in range(STARTS):
            self.group = Group(self.name)
            self._next_write = 0
            try:
                self._launch(self.group)
                return
            except PeerError:
                self.stop()
                if attempt == STARTS - 1:
                    raise
            except BaseException:
                self.stop()
                raise

    def stop(self) -> None:
        """End the members; harmless when there are none."""
        self._members.clear()
        if self.group is not None:
            self.group.close()
            self.group = None

    def run(self, *, in_flight: int, payload_bytes: int, seconds: float, batch: int = 1) -> PeerResult:
        """Measure a closed loop inside the leader and read back what it wrote; see `ServerPeer.run`."""
        self._load(in_flight, payload_bytes, WARM_UP_S, batch)
        before = self._next_write
        measured = self._load(in_flight, payload_bytes, seconds, batch)
        return PeerResult(
            name=self.name,
            version=importlib.metadata.version("pysyncobj"),
            in_flight=in_flight,
            payload_bytes=payload_bytes,
            operations=measured["operations"],
            seconds=measured["seconds"],
            rate_s=measured["operations"] / measured["seconds"],
            p50_ms=measured["p50_ms"],
            p99_ms=measured["p99_ms"],
            checksum=self._read_back(before, payload_bytes),
            note=f"loaded inside its leader: no client's socket, batch {batch}, plain TCP, ticks of 1 ms",
        )

    def kill_leader_gap_ms(self) -> float | None:
        """Kill the leader; give the time until a survivor acknowledges a write sent after it.

        The group is started anew afterwards.
        """
        group, leader = self._group(), self._leader()
        survivors = [member for number, member in enumerate(self._members) if number != leader]
        for number, member in enumerate(survivors):
            member.tell("probe", first=(number + 1) << 40, seconds=GAP_LIMIT_S)
        for member in survivors:
            member.answer()
        killed_s = group.kill(member_name(leader))
        acknowledged_s = min(self._first_after(member, killed_s) for member in survivors)
        self.stop()
        self.start()
        return (acknowledged_s - killed_s) * 1e3

    def _launch(self, group: Group) -> None:
        self._addresses = [f"{HOST}:{port}" for port in free_ports(MEMBERS)]
        for number, own in enumerate(self._addresses):
            others = ",".join(address for address in self._addresses if address != own)
            node = [sys.executable, "-m", "benchmarks.peers.pysyncobj_node", own, others, json.dumps(OPTIONS)]
            environment = {"PYTHONPATH": str(ROOT)}
            process = group.start(member_name(number), node, environment=environment, piped=True)
            self._members.append(Member(process))
        group.wait_until(self._is_led, "a leader")

    def _is_led(self) -> bool:
        leaders = {member.ask("status")["leader"] for member in self._members}
        return len(leaders) == 1 and leaders != {""}

    def _leader(self) -> int:
        return self._addresses.index(self._members[0].ask("status")["leader"])

    def _load(self, in_flight: int, payload_bytes: int, seconds: float, batch: int) -> dict[str, Any]:
        self._group().wait_until(self._is_led, "a leader")
        leader = self._members[self._leader()]
        leader.tell(
            "run",
            first=self._next_write,
            in_flight=in_flight,
            payload=payload_bytes,
            seconds=seconds,
            batch=batch,
        )
        measured = leader.answer(seconds + APPLIED_LIMIT_S + ANSWER_LIMIT_S)
        self._next_write = measured["next"]
        return measured

    def _read_back(self, before: int, payload_bytes: int) -> int:
        """Give the writes since `before` that every member has applied."""
        counts: list[int] = []

        def all_applied() -> bool:
            counts[:] = [member.ask("status")["applied"] for member in self._members]
            return min(counts) >= self._next_write

        self._group().wait_until(all_applied, f"members that hold {self._next_write} writes", APPLIED_LIMIT_S)
        if max(counts) != self._next_write:
            raise PeerError(f"{self._next_write} writes were acknowledged, the members applied {counts}")
        follower = (self._leader() + 1) % MEMBERS
        step = max(1, (self._next_write - before) // SAMPLES)
        for write in range(before, self._next_write, step):
            if self._members[follower].ask("read", write=write)["value"] != "v" * payload_bytes:
                raise PeerError("pysyncobj: a member has another value than was acknowledged")
        return counts[follower] - before

    def _first_after(self, member: Member, killed_s: float) -> float:
        end_s = killed_s + GAP_LIMIT_S
        while True:
            answer = member.answer(end_s - time.monotonic())
            if answer["sent_s"] > killed_s:
                acknowledged_s: float = answer["acknowledged_s"]
                return acknowledged_s

    def _group(self) -> Group:
        if self.group is None:
            raise PeerError(f"{self.name} is not started")
        return self.group
