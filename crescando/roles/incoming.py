"""The receiving side of one copy: parcels are fetched, handed to the engine's thread, and caught up with.

Rules of the file: parcels come in the order of their numbers, and in a new session they go on where
they were. What is on its way or not taken in yet is bounded by a window. A copy is ready as
soon as the engine holds all of it; that is said once, and so is that it shall be dropped.
"""

from __future__ import annotations

from collections import deque

from crescando.engine.base import Piece
from crescando.engine.loads import LoadStep
from crescando.process import earliest
from crescando.roles.areas import AreaState, Hand
from crescando.roles.copy_messages import CopyHead, CopyId, CopyProgress, FetchParcels, Outcomes, Parcel
from crescando.roles.limits import StorageLimits
from crescando.roles.load_messages import LateChunk
from crescando.roles.staging import step_of
from crescando.routing.rubberband.messages import DropChange, Ready
from crescando.types import ProcessId, Scope

ASK_AGAIN_S = 0.1
"""When to ask a sender again that does not know the copy yet."""


class Incoming:
    """One copy that this process receives.

    Parameters
    ----------
    copy : CopyId
    sender, receiver : ProcessId
    scope, missing : Scope
        What it is to hold, and what it lacked of it when the change began.
    limits : StorageLimits

    Attributes
    ----------
    has_begun : bool
        Whether its area is to be opened, or is; see `areas`.
    is_over : bool
        Whether it was said to be ready, or to be dropped; nothing more is fetched.
    is_ready : bool
        Whether that it is ready was ordered.
    ask_at_s : float or None
        When to ask the sender again.
    """

    def __init__(
        self,
        copy: CopyId,
        sender: ProcessId,
        receiver: ProcessId,
        scope: Scope,
        missing: Scope,
        limits: StorageLimits,
    ) -> None:
        self.copy = copy
        self.sender = sender
        self.receiver = receiver
        self.scope = scope
        self.missing = missing
        self.has_begun = False
        self.is_over = self.is_ready = False
        self.ask_at_s: float | None = None
        self._limits = limits
        self._next = 0
        self._head: CopyHead | None = None
        self._state: AreaState | None = None
        self._to_hand: deque[Piece] = deque()
        self._late: deque[LoadStep] = deque()
        self._held: deque[int] = deque()
        """The bytes of each piece that is here and not taken in."""
        self._held_bytes = 0
        self._n_taken = 0
        self._is_handed = False
        self._fresh_bytes = 0
        """What has come since the sender was last told how much may come."""
        self._arrived_bytes = 0
        self._lonely_since_s: float | None = None
        self._began_s = 0.0

    @property
    def needs_session(self) -> bool:
        """Whether it needs its sender."""
        return self.has_begun and bool(self.missing) and not self.is_ready

    @property
    def is_whole(self) -> bool:
        """Whether every parcel has arrived."""
        return not self.missing or (self._head is not None and self._next == self._head.n_parcels)

    # In a session.

    def begin(self, now_s: float) -> None:
        """Learn that the sender holds everything, from here on in the order."""
        self.has_begun = True
        self._began_s = now_s
        self._lonely_since_s = now_s

    def on_connected(self) -> FetchParcels:
        """Begin to fetch, or go on."""
        self._lonely_since_s = None
        return self.fetch()

    def on_disconnected(self, now_s: float) -> None:
        """Learn that the session has ended, or cannot be had."""
        self.ask_at_s = None
        if self._lonely_since_s is None:
            self._lonely_since_s = now_s

    def fetch(self) -> FetchParcels:
        """Ask for what is still to come."""
        self.ask_at_s = None
        self._fresh_bytes = 0
        credit = max(0, self._limits.copy_window_bytes - self._held_bytes)
        return FetchParcels(self.copy, self._next, credit)

    def on_unknown(self, now_s: float) -> None:
        """Learn that the sender is not as far in the order."""
        self.ask_at_s = now_s + ASK_AGAIN_S

    def on_head(self, head: CopyHead) -> None:
        """Learn how much there is."""
        self._head = head

    def on_parcel(self, parcel: Parcel) -> Outcomes | None:
        """Take a parcel, if it is the next one; gives outcomes that it holds.

        Raises
        ------
        ValueError
            If one is missing before it.
        """
        if self._head is None or parcel.number > self._next:
            raise ValueError(f"parcel {parcel.number} came instead of {self._next}")
        if parcel.number < self._next:
            return None
        self._next += 1
        self._fresh_bytes += parcel.n_bytes
        self._arrived_bytes += parcel.n_bytes
        if isinstance(parcel.content, Outcomes):
            return parcel.content
        if isinstance(parcel.content, LateChunk):
            self._take_late(parcel.content)
            return None
        self._to_hand.append(parcel.content)
        self._held.append(parcel.n_bytes)
        self._held_bytes += parcel.n_bytes
        return None

    def _take_late(self, late: LateChunk) -> None:
        if late.payload:
            step = step_of(late.order, late.sender, late.number, late.position, (), late.payload)
            # What is malformed is so for all.
            if isinstance(step, LoadStep):
                self._late.append(step)

    @property
    def wants_more(self) -> bool:
        """Whether the sender should be told that more may come, since much has."""
        room = self._limits.copy_window_bytes - self._held_bytes
        return not self.is_whole and 2 * self._fresh_bytes >= self._limits.copy_window_bytes and room > 0

    # To and from the engine's thread.

    @property
    def has_to_hand(self) -> bool:
        """Whether there is something for the area, which is open."""
        if self._state is None or self.is_over or self._is_handed or not self.missing:
            return False
        return bool(self._to_hand) or self.is_whole

    def hand(self) -> Hand:
        """Give the pieces that have come."""
        pieces, late = tuple(self._to_hand), tuple(self._late)
        self._to_hand.clear()
        self._late.clear()
        self._is_handed = self.is_whole
        return Hand(self.copy, pieces, self._is_handed, late)

    def on_state(self, state: AreaState) -> bool:
        """Learn how far the area is; says whether more may be fetched."""
        self._state = state
        freed = state.n_taken - self._n_taken
        self._n_taken = state.n_taken
        for _ in range(freed):
            self._held_bytes -= self._held.popleft()
        return freed > 0 and not self.is_whole

    def verdict(self, now_s: float, *, is_full: bool) -> Ready | DropChange | None:
        """Give what is to be said in the order: that it is ready, or that it shall be dropped; once."""
        if self.is_over:
            return None
        if self._state is not None and self._state.is_held:
            self.is_over = True
            return Ready(self.copy.change, self.copy.number)
        reason = self._obstacle(now_s, is_full)
        if reason:
            self.is_over = True
            return DropChange(
                self.copy.change, f"{self.receiver} gives the copy of {self.sender} up: {reason}"
            )
        return None

    def _obstacle(self, now_s: float, is_full: bool) -> str:
        if is_full and self.has_begun and self.missing:
            # Else it would go on until it has to stop, and take along what it serves.
            return (
                f"{self.receiver} holds more than its memory's watermark allows; give it less, or more memory"
            )
        waiting = self._held_bytes + (0 if self._state is None else self._state.log_bytes)
        if waiting > self._limits.copy_bytes:
            return (
                f"{waiting:,} bytes of it wait to be executed, and {self._limits.copy_bytes:,} may; "
                "move less at once, or write less meanwhile"
            )
        if self._gives_up_at_s is not None and now_s >= self._gives_up_at_s:
            return f"it has had no session with its sender for {self._limits.copy_patience_s:g} s"
        return ""

    @property
    def _gives_up_at_s(self) -> float | None:
        """When it waits for a session no more."""
        if self._lonely_since_s is None or not self.needs_session or self.is_whole:
            return None
        return self._lonely_since_s + self._limits.copy_patience_s

    @property
    def wake_at_s(self) -> float | None:
        """When to look again, if nothing happens before; what was said once is not said again."""
        if self.is_over or not self.needs_session:
            return None
        return earliest(self._gives_up_at_s, self.ask_at_s)

    def progress(self, now_s: float) -> CopyProgress:
        """Tell how it gets on."""
        state, head = self._state, self._head
        stage, blocker = self._stage
        rows = 0 if state is None else state.n_rows
        return CopyProgress(
            self.copy,
            self.sender,
            self.receiver,
            self.scope,
            stage,
            blocker,
            0 if head is None else head.n_rows,
            0 if head is None else head.n_bytes,
            rows,
            self._arrived_bytes,
            rows / (now_s - self._began_s) if now_s > self._began_s and self.has_begun else 0.0,
            0 if state is None else state.log_bytes,
        )

    @property
    def _stage(self) -> tuple[str, str]:
        """How far it is, and what it waits for."""
        if self._state is not None and self._state.is_held:
            return "ready", "" if self.is_over else "the other copies of its change"
        if not self.has_begun:
            return "queued", f"{self.sender} is still to receive the range by an earlier change"
        if not self.missing:
            return "queued", "an earlier change brings the range"
        if self.is_whole:
            return "catching up", ""
        if self._lonely_since_s is not None:
            return "connecting", f"there is no session with {self.sender}"
        if self._head is None:
            return "connecting", f"{self.sender} has not come to this place in the order"
        if self._held_bytes >= self._limits.copy_window_bytes:
            return "copying", "what has arrived is not taken in yet"
        return "copying", ""
