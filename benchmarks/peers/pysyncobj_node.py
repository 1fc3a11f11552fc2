"""A member of a PySyncObj group, as a program: a replicated dictionary, and the load on it.

Rules of the file: one thread ticks and loads, another only reads commands. The
load runs inside the leader, as the library is meant to be used: its writes cross
no client's socket, an advantage over every other peer. Commands are lines of
JSON on standard input, answers lines of JSON on standard output, in order.
"""

from __future__ import annotations

import json
import logging
import queue
import sys
import threading
import time
from functools import partial
from typing import Any

import pysyncobj  # type: ignore[import-untyped,unused-ignore]
from pysyncobj.config import FAIL_REASON  # type: ignore[import-untyped,unused-ignore]

from benchmarks.peers.lane import key_of
from benchmarks.peers.result import percentile_ms

PROBE_EVERY_S = 0.01
DRAIN_LIMIT_S = 30.0


class Map(pysyncobj.SyncObj):  # type: ignore[misc]
    """A dictionary that every member applies the same writes to."""

    def __init__(self, own: str, others: list[str], options: dict[str, Any]) -> None:
        super().__init__(own, others, pysyncobj.SyncObjConf(autoTick=False, **options))
        self.values: dict[bytes, bytes] = {}

    @pysyncobj.replicated  # type: ignore[untyped-decorator,unused-ignore]
    def put(self, key: bytes, value: bytes) -> None:
        self.values[key] = value

    @pysyncobj.replicated  # type: ignore[untyped-decorator,unused-ignore]
    def put_many(self, keys: list[bytes], value: bytes) -> None:
        for key in keys:
            self.values[key] = value


class Node:
    """Ticks a member and does what it is told."""

    def __init__(self, member: Map, commands: queue.SimpleQueue[dict[str, Any] | None]) -> None:
        self.member = member
        self._commands = commands

    def serve(self) -> None:
        """Tick until standard input closes."""
        while True:
            self.member.doTick(self.member.conf.autoTickPeriod)
            try:
                command = self._commands.get_nowait()
            except queue.Empty:
                continue
            if command is None:
                return
            match command.pop("do"):
                case "status":
                    answer = self._status()
                case "read":
                    value = self.member.values.get(key_of(command["write"]))
                    answer = {"value": None if value is None else value.decode()}
                case "run":
                    answer = self._run(**command)
                case "probe":
                    self._probe(**command)
                    continue
            print(json.dumps(answer), flush=True)

    def _status(self) -> dict[str, Any]:
        leader = self.member._getLeader()
        return {
            "leader": str(leader) if leader is not None and self.member.isReady() else "",
            "applied": len(self.member.values),
        }

    def _run(self, first: int, in_flight: int, payload: str, seconds: float, batch: int) -> dict[str, Any]:
        """Keep `in_flight` commands open for a while, then wait for the last."""
        value, waits_s, refused = payload.encode(), list[float](), list[int]()
        following, open_commands = first, 0
        began_s = last_s = time.monotonic()
        end_s = began_s + seconds

        def submit() -> None:
            nonlocal following, open_commands
            sent_s = time.monotonic()
            open_commands += 1
            start, following = following, following + batch
            if batch == 1:
                self.member.put(key_of(start), value, callback=partial(settled, sent_s))
            else:
                keys = [key_of(write) for write in range(start, following)]
                self.member.put_many(keys, value, callback=partial(settled, sent_s))

        def settled(sent_s: float, _result: Any, error: int) -> None:
            nonlocal open_commands, last_s
            open_commands -= 1
            if error != FAIL_REASON.SUCCESS:
                refused.append(error)
                return
            last_s = time.monotonic()
            waits_s.append(last_s - sent_s)
            if last_s < end_s:
                submit()

        for _ in range(in_flight):
            submit()
        while open_commands and not refused and time.monotonic() < end_s + DRAIN_LIMIT_S:
            self.member.doTick(self.member.conf.autoTickPeriod)
        if open_commands or refused:
            return {
                "error": f"{open_commands} commands unanswered, refused for reasons {sorted(set(refused))}"
            }
        waits_s.sort()
        return {
            "operations": len(waits_s) * batch,
            "seconds": last_s - began_s,
            "p50_ms": percentile_ms(waits_s, 0.5),
            "p99_ms": percentile_ms(waits_s, 0.99),
        }

    def _probe(self, first: int, seconds: float) -> None:
        """Offer a write every 10 ms; print the times of each acknowledged one."""
        end_s = time.monotonic() + seconds
        next_s = 0.0
        print(json.dumps({"probing": True}), flush=True)

        def settled(sent_s: float, _result: Any, error: int) -> None:
            if error == FAIL_REASON.SUCCESS:
                print(json.dumps({"sent_s": sent_s, "acknowledged_s": time.monotonic()}), flush=True)

        while time.monotonic() < end_s:
            if time.monotonic() >= next_s:
                next_s = time.monotonic() + PROBE_EVERY_S
                self.member.put(key_of(first), b"v", callback=partial(settled, time.monotonic()))
                first += 1
            self.member.doTick(self.member.conf.autoTickPeriod)


def main() -> None:
    """Be the member named on the command line: own address, others' addresses, options as JSON."""
    # Its warnings ("state machine may have diverged") would fill the log under load.
    logging.disable(logging.WARNING)
    commands: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()

    def read_commands() -> None:
        for line in sys.stdin:
            commands.put(json.loads(line))
        commands.put(None)

    threading.Thread(target=read_commands, daemon=True).start()
    own, others, options = sys.argv[1], sys.argv[2].split(","), json.loads(sys.argv[3])
    Node(Map(own, others, options), commands).serve()


if __name__ == "__main__":
    main()
