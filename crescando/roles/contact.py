"""Whether what a client has submitted can still become stable, judged by which storage processes it hears.

Rules of the file: the last owner of a range is never declared failed, so what
was ordered for it before it died is told neither stable nor lost. What the
client can know is who keeps silent. An answer is owed from the moment a process
is asked for a sign of life, or from the end of its session; who owes it for long
is *silent* until it is heard again. A session alone is no sign of life: one that
begins is given as long as any other, but not again and again. Messages that were submitted as long ago and
are not stable while somebody is silent are *hopeless*, whoever it is: the client
does not know who owns what, and nobody waits for the dead where there is another
owner. A client that hears nobody is cut off itself, most likely, and is more
patient; once it is back, everybody else has as long to come back too.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from crescando.types import ProcessId

LOOKS = 4
"""How often the processes are looked after while one may become silent."""


class Contact:
    """What a client hears of the storage processes.

    Parameters
    ----------
    processes : iterable of ProcessId
    patience_s : float
        How long an answer may be owed while others can be heard.
    alone_s : float
        How long, if nobody is heard, whatever sessions there seem to be.

    Attributes
    ----------
    silent : frozenset of ProcessId
        As of the last look, less those that were heard since.
    hopeless : int
        Messages below this number will not become stable, it seems.
    wake_at_s : float or None
        When to look next; None while nothing waits.
    """

    def __init__(self, processes: Iterable[ProcessId], patience_s: float, alone_s: float) -> None:
        self.patience_s = patience_s
        self.alone_s = alone_s
        self.silent: frozenset[ProcessId] = frozenset()
        self.hopeless = 0
        self.wake_at_s: float | None = None
        self._owed_s: dict[ProcessId, float | None] = dict.fromkeys(processes)
        self._open: set[ProcessId] = set()
        self._mute: set[ProcessId] = set()
        """Those with a session since they were heard last."""
        self._is_alone = False
        self._marks: deque[tuple[float, int]] = deque()
        """When a look found which number to be the next."""

    def meet(self, process: ProcessId) -> None:
        """Learn that there is one more."""
        self._owed_s.setdefault(process, None)

    def forget(self, process: ProcessId) -> None:
        """Learn that there is one no more: nobody waits for it."""
        self._owed_s.pop(process, None)
        self._open.discard(process)
        self._mute.discard(process)
        self.silent -= {process}

    def on_connected(self, process: ProcessId, now_s: float) -> None:
        """Learn that a session has begun."""
        if process not in self._owed_s:
            return
        self._open.add(process)
        if process not in self._mute:
            self._mute.add(process)
            self._owed_s[process] = now_s
            self.silent -= {process}

    def on_disconnected(self, process: ProcessId, now_s: float) -> None:
        """Learn that a session has ended."""
        self._open.discard(process)
        if process in self._owed_s and self._owed_s[process] is None:
            self._owed_s[process] = now_s

    def hear(self, process: ProcessId, now_s: float) -> None:
        """Take any message for a sign of life."""
        if self._owed_s.get(process) is not None:
            if self._is_alone or self._hears_nobody:
                self._restart(now_s)
            self._mute.discard(process)
            self._owed_s[process] = None
            self.silent -= {process}

    def rest(self) -> None:
        """Look after nobody, since nothing waits."""
        if self.wake_at_s is not None:
            self._marks.clear()
            self.wake_at_s, self.hopeless = None, 0

    def look(self, now_s: float, next_number: int) -> list[ProcessId]:
        """Judge, if it is time; gives the processes to ask for a sign of life."""
        pause_s = self.patience_s / LOOKS
        if self.wake_at_s is not None and now_s < self.wake_at_s:
            return []
        if self.wake_at_s is None or now_s > self.wake_at_s + pause_s:
            # Nobody was asked, or this very process stood still; nobody else is to blame for that.
            self._restart(now_s)
        self.wake_at_s = now_s + pause_s
        self._is_alone = all(
            owed_s is not None and now_s >= owed_s + self.patience_s for owed_s in self._owed_s.values()
        )
        patience_s = self.alone_s if self._is_alone or self._hears_nobody else self.patience_s
        self._marks.append((now_s, next_number))
        # As many as the longer patience may ask for.
        while len(self._marks) > 1 and self._marks[1][0] <= now_s - self.alone_s:
            self._marks.popleft()
        self.silent = frozenset(
            process
            for process, owed_s in self._owed_s.items()
            if owed_s is not None and now_s >= owed_s + patience_s
        )
        old = [number for since_s, number in self._marks if since_s <= now_s - patience_s]
        self.hopeless = old[-1] if self.silent and old else 0
        for process, owed_s in self._owed_s.items():
            if owed_s is None:
                self._owed_s[process] = now_s
        return sorted(self._open)

    @property
    def _hears_nobody(self) -> bool:
        return self._open <= self._mute

    def _restart(self, now_s: float) -> None:
        """Count from now on."""
        self._is_alone = False
        self.silent, self.hopeless = frozenset(), 0
        self._marks.clear()
        for process, owed_s in self._owed_s.items():
            if owed_s is not None:
                self._owed_s[process] = now_s
