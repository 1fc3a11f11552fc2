"""An operation on its way, as something to wait for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from crescando.client.eventloop import Waker
from crescando.client.promise import ASKING, Promise, lock_of_process


class Pending(Promise[Any], gc=False, eq=False):
    """An operation on its way; as a promise, that of its outcome.

    Attributes
    ----------
    number : int
        The session's sequence number; 0 until it is submitted.
    """

    number: int = 0
    _is_stable: bool = False
    _stable: Promise[None] | None = None

    @property
    def outcome(self) -> Promise[Any]:
        """Kept with a `ReadOutcome` or `WriteOutcome` when it is executed.

        A read fails with `ReadFailedError` or `ReadLostError`; both kinds with
        what `stable` fails with. A write that met rejected rows does *not* fail
        here: its counts tell. `SchemaChanged` asks to prepare the statement again.
        """
        return self

    @property
    def stable(self) -> Promise[None]:
        """Kept when every correct replica has the operation; fails with `RefusedError` or `LostError`."""
        with _STABLE_LOCK:
            if self._stable is None:
                self._stable = Promise()
            stable = self._stable
        # Either this thread or the one that settles it finds what the other one has done.
        if self._is_stable or self._is_kept:
            self._tell_stable(stable)
        return stable

    def settle_stable(self) -> None:
        """Tell those who wait that it is stable."""
        self._is_stable = True
        if self._stable is not None:
            self._tell_stable(self._stable)

    def failed(self) -> None:
        """Called when it has failed, before anybody is told; perhaps more than once."""

    def tell(self) -> None:
        """Call whoever has asked for the outcome, and whoever has asked whether it is stable."""
        if self._error is not None:
            self.failed()
        if self._stable is not None:
            self._tell_stable(self._stable)
        if self._first is not None:
            super().tell()

    @staticmethod
    def keep_all(pendings: Sequence[Pending], outcomes: Sequence[Any]) -> None:
        """Let many be kept; as `keep`."""
        for pending, outcome in zip(pendings, outcomes, strict=True):
            pending._value = outcome
            pending._is_kept = True

    @staticmethod
    def tell_all(pendings: Sequence[Pending]) -> None:
        """Tell of many; as `tell`."""
        wakers: list[Waker] = []
        others: list[Pending] = []
        with ASKING:
            for pending in pendings:
                first = pending._first
                is_alone = pending._error is None and pending._stable is None and pending._more is None
                if is_alone and type(first) is Waker:
                    # As most are waited for. Whoever else comes now finds that it is kept, and calls himself.
                    pending._first = None
                    wakers.append(first)
                else:
                    others.append(pending)
        Waker.call_all(wakers)
        for pending in others:
            pending.tell()

    def _tell_stable(self, stable: Promise[None]) -> None:
        with _STABLE_LOCK:
            if stable.done():
                pass
            elif self._is_stable or self._error is None:
                stable.keep(None)
            else:
                stable.fail(self._error)
        stable.tell()


_STABLE_LOCK = lock_of_process()
"""Guards the making of promises of stability, which few ask for."""
