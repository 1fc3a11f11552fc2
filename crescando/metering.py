"""Where a node's CPU time goes, layer by layer.

Rules of the file: time is the running thread's own, so that what waits for a
core or for the interpreter's lock counts nothing. Cores read no clock: their
methods are taken over from outside, and only where somebody asked for it, since
two readings cost as much as a short message.
"""

from __future__ import annotations

from collections.abc import Callable
from time import process_time_ns, thread_time_ns
from typing import Any

INPUTS = ("on_start", "on_connected", "on_disconnected", "on_refused", "on_message", "on_executed", "flush")
"""What a process core is told; a multicast has some of these too, and its events."""

_NS_PER_MS = 1_000_000


class Meter:
    """Counts the CPU time of the processes of one event loop.

    Everything that the loop's thread does outside the cores that are watched is
    transport: sockets, encryption, frames, their encoding, and the loop itself.

    Attributes
    ----------
    spent_ns : dict of str to int
        By layer, what has been measured in it and in no layer below.
    """

    def __init__(self) -> None:
        self.spent_ns: dict[str, int] = {}
        self._below_ns = 0

    def watch(self, layer: str, part: Any) -> None:
        """Count what a core, or a part of one, does in the loop's thread from now on."""
        self.spent_ns.setdefault(layer, 0)
        for name in (*INPUTS, "take_events"):
            method = getattr(part, name, None)
            if method is not None:
                setattr(part, name, self._timed(layer, method))

    def _timed(self, layer: str, method: Callable[..., Any]) -> Callable[..., Any]:
        spent_ns = self.spent_ns

        def timed(*arguments: Any) -> Any:
            outside_ns, self._below_ns = self._below_ns, 0
            began_ns = thread_time_ns()
            try:
                return method(*arguments)
            finally:
                took_ns = thread_time_ns() - began_ns
                spent_ns[layer] += took_ns - self._below_ns
                self._below_ns = outside_ns + took_ns

        return timed

    def scanning(self, work: Callable[[], Any]) -> Callable[[], Any]:
        """Give work for a scanning thread that counts as the engine's; one thread at a time may do it."""

        def timed() -> Any:
            began_ns = thread_time_ns()
            try:
                return work()
            finally:
                self.spent_ns["engine"] = self.spent_ns.get("engine", 0) + thread_time_ns() - began_ns

        return timed

    def counters(self) -> dict[str, int]:
        """Give milliseconds by layer, and of the whole process; called in the loop's thread."""
        spent_ns = dict(self.spent_ns)
        in_cores_ns = sum(ns for layer, ns in spent_ns.items() if layer != "engine")
        spent_ns["transport"] = thread_time_ns() - in_cores_ns
        spent_ns["all"] = process_time_ns()
        return {f"cpu_{layer}_ms": ns // _NS_PER_MS for layer, ns in spent_ns.items()}
