"""What becomes of processes at rest when nothing goes wrong any more.

Rules of the file: an exploration says what must not happen in any order of
events; that something comes to pass at all is judged from every state at rest,
by letting time go on, one clock for all, until a given while is over.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from crescando.process import Output
from crescando.testing.duplicate import duplicate
from crescando.testing.whole import State, Whole
from crescando.types import ProcessId


class Calm:
    """Copies of the running processes of a state at rest, with sessions between every two.

    Parameters
    ----------
    whole : Whole
    state : State
        Nothing is on its way, and every session is there.

    Attributes
    ----------
    live : dict of ProcessId to Subject
    stopped : dict of ProcessId to str
        Those that have stopped themselves meanwhile, and why.
    now_s : float
    """

    def __init__(self, whole: Whole, state: State) -> None:
        lives = [whole.turns.lives[life] for life in state.lives if life >= 0]
        running = [process for process, life in zip(whole.processes, state.lives, strict=True) if life >= 0]
        self.live: dict[ProcessId, Any] = {
            process: duplicate(life.subject) for process, life in zip(running, lives, strict=True)
        }
        self.stopped: dict[ProcessId, str] = {}
        self.now_s = max((life.now_s for life in lives), default=0.0)
        self._wake_at_s = {process: life.wake_at_s for process, life in zip(running, lives, strict=True)}
        self._scope = whole.scope
        self._sent: deque[tuple[ProcessId, ProcessId, Any]] = deque()

    def go_on(self, for_s: float) -> None:
        """Let time go on; messages take none."""
        end_s = self.now_s + for_s
        while True:
            while self._sent:
                sender, receiver, message = self._sent.popleft()
                if receiver in self.live:
                    self.live[receiver].on_message(sender, message, self.now_s)
                    self._flush(receiver)
            due = {process: at_s for process, at_s in self._wake_at_s.items() if at_s is not None}
            process = min(due, key=lambda one: due[one], default=None)
            if process is None or due[process] > end_s:
                return
            self.now_s = max(self.now_s, due[process])
            self._flush(process)

    def _flush(self, process: ProcessId) -> None:
        output: Output = self.live[process].flush(self.now_s)
        self._wake_at_s[process] = output.wake_at_s
        self._sent.extend(
            (process, peer, message)
            for peer, message in output.send
            if peer in self.live and self._scope.are_linked(process, peer)
        )
        if output.stop:
            self.stopped[process] = output.stop
            del self.live[process], self._wake_at_s[process]
            for peer in list(self.live):
                if peer in self.live and self._scope.are_linked(process, peer):
                    self.live[peer].on_disconnected(process, self.now_s)
                    self._flush(peer)
