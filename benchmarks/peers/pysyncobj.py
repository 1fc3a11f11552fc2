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
from typing import Any, ClassVar

from benchmarks.peers.processes import HOST, Group, free_ports
from benchmarks.peers.result import PeerError
from benchmarks.peers.trio import APPLIED_LIMIT_S, MEMBERS, Load, Trio, member_name

TICK_MS = 1
OPTIONS = {
    # The defaults are 50 ms and 100 ms and give about 10 writes per second one at a time.
    "autoTickPeriod": TICK_MS / 1e3,
    "appendEntriesPeriod": TICK_MS / 1e3,
    "commandsQueueSize": 1_000_000,
    "connectionRetryTime": 0.1,
    # No compaction of the log during a run.
    "logCompactionMinEntries": 1 << 40,
    "logCompactionMinTime": 1 << 30,
}
ANSWER_LIMIT_S = 10.0
GAP_LIMIT_S = 60.0
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


class PySyncObj(Trio):
    """Three members, each a Python process."""

    name: ClassVar[str] = "pysyncobj"
    lacks: ClassVar[str] = f"ticks of {TICK_MS} ms where 50 is usual, log never compacted"

    def __init__(self) -> None:
        super().__init__()
        self._members: list[Member] = []
        self._addresses: list[str] = []

    def available(self) -> str:
        if importlib.util.find_spec("pysyncobj") is None:
            return "pysyncobj is not installed; install pysyncobj (PyPI)"
        return ""

    def version(self) -> str:
        return importlib.metadata.version("pysyncobj")

    def launch(self, group: Group) -> None:
        self._addresses = [f"{HOST}:{port}" for port in free_ports(MEMBERS)]
        self._members = []
        for number, own in enumerate(self._addresses):
            others = ",".join(address for address in self._addresses if address != own)
            node = [sys.executable, "-m", "benchmarks.peers.pysyncobj_node", own, others, json.dumps(OPTIONS)]
            environment = {"PYTHONPATH": str(ROOT)}
            process = group.start(member_name(number), node, environment=environment, piped=True)
            self._members.append(Member(process))
        group.wait_until(self._is_led, "a leader")

    def leader(self) -> int:
        # All agree: an election that is still on would be measured otherwise.
        self.group.wait_until(self._is_led, "a leader")
        return self._addresses.index(self._members[0].ask("status")["leader"])

    def load(self, first_write: int, in_flight: int, payload: bytes, seconds: float, batch: int) -> Load:
        leader = self._members[self.leader()]
        leader.tell(
            "run",
            first=first_write,
            in_flight=in_flight,
            payload=payload.decode(),
            seconds=seconds,
            batch=batch,
        )
        measured = leader.answer(seconds + APPLIED_LIMIT_S + ANSWER_LIMIT_S)
        return Load(**measured, how="loaded inside its leader, without a client's socket")

    def applied(self, member: int) -> int:
        applied: int = self._members[member].ask("status")["applied"]
        return applied

    def read(self, member: int, write: int) -> bytes | None:
        value: str | None = self._members[member].ask("read", write=write)["value"]
        return None if value is None else value.encode()

    def gap_s(self) -> float | None:
        leader = self.leader()
        survivors = [member for number, member in enumerate(self._members) if number != leader]
        for number, member in enumerate(survivors):
            member.tell("probe", first=(number + 1) << 40, seconds=GAP_LIMIT_S)
        for member in survivors:
            member.answer()
        killed_s = self.group.kill(member_name(leader))
        return min(_first_after(member, killed_s) for member in survivors) - killed_s

    def _is_led(self) -> bool:
        leaders = {member.ask("status")["leader"] for member in self._members}
        return len(leaders) == 1 and leaders != {""}


def _first_after(member: Member, killed_s: float) -> float:
    """Give when `member` saw the first of the writes acknowledged that it sent after the kill."""
    end_s = killed_s + GAP_LIMIT_S
    while True:
        answer = member.answer(end_s - time.monotonic())
        if answer.get("sent_s", 0.0) > killed_s:
            acknowledged_s: float = answer["acknowledged_s"]
            return acknowledged_s
