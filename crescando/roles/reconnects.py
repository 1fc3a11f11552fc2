"""Peers with which a client wants sessions: who they are, whom to try again, and when.

Rules of the file: a client is told by the pings of supers which supers and storage
processes there are. Supers follow the order, some later than others: a storage process is
wanted as long as any super that has spoken names it.
"""

from __future__ import annotations

from collections.abc import Iterable

from crescando.roles.contact import Contact
from crescando.roles.messages import Ping
from crescando.types import ProcessId


class Reconnects:
    """Whom to keep sessions with, beside the routers.

    Parameters
    ----------
    wanted : iterable of ProcessId
    """

    def __init__(self, wanted: Iterable[ProcessId]) -> None:
        self.wanted = dict.fromkeys(wanted)
        self._due_s: dict[ProcessId, float] = {}
        self._named: dict[ProcessId, tuple[ProcessId, ...]] = {}
        """The storage processes that each super named last."""

    def hear(
        self, super_: ProcessId, ping: Ping, storages: dict[ProcessId, None], contact: Contact
    ) -> list[ProcessId]:
        """Learn of a super who there is; gives with whom a session is to be asked for.

        Parameters
        ----------
        super_ : ProcessId
        ping : Ping
        storages : dict of ProcessId to None
            The storage processes that are known; brought up to date.
        contact : Contact
            Told who is new and who is gone.
        """
        new = self.want(super_.role, ping.supers)
        if not ping.storages:
            return new
        self._named[super_] = ping.storages
        for gone in [known for known in self._named if known not in self.wanted]:
            del self._named[gone]
        named = dict.fromkeys(storage for some in self._named.values() for storage in some)
        for gone in [known for known in storages if known not in named]:
            del storages[gone]
            self.wanted.pop(gone, None)
            self.drop(gone)
            contact.forget(gone)
        return new + self.meet(tuple(named), storages, contact)

    def meet(
        self, named: tuple[ProcessId, ...], storages: dict[ProcessId, None], contact: Contact
    ) -> list[ProcessId]:
        """Learn of storage processes, whoever names them; gives with whom a session is to be asked for."""
        met = [process for process in named if process not in storages]
        for process in met:
            storages[process] = self.wanted[process] = None
            contact.meet(process)
        return met

    def want(self, role: str, processes: tuple[ProcessId, ...]) -> list[ProcessId]:
        """Take what processes of a role there are, if any are named; give those that are new."""
        if not processes:
            return []
        for gone in [peer for peer in self.wanted if peer.role == role and peer not in processes]:
            del self.wanted[gone]
            self.drop(gone)
        new = [process for process in processes if process not in self.wanted]
        self.wanted.update(dict.fromkeys(new))
        return new

    def lost(self, peer: ProcessId, due_s: float) -> None:
        """Try a peer again at a time, if it is wanted."""
        if peer in self.wanted:
            self._due_s[peer] = due_s

    def is_planned(self, peer: ProcessId) -> bool:
        """Say whether a peer will be tried at some time."""
        return peer in self._due_s

    def drop(self, peer: ProcessId) -> None:
        """Try a peer no more: it is there."""
        self._due_s.pop(peer, None)

    def take_due(self, now_s: float) -> list[ProcessId]:
        """Give whom to try now."""
        due = [peer for peer, due_s in self._due_s.items() if now_s >= due_s]
        for peer in due:
            del self._due_s[peer]
        return due

    @property
    def wake_at_s(self) -> float | None:
        """When the next one is due."""
        return min(self._due_s.values(), default=None)
