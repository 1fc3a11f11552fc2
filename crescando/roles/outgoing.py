"""The sending side of one copy: an image of the rows goes out in parcels, as the receiver asks for them.

Rules of the file: parcels are numbered, first the outcomes of writes, then chunks of loads that
came after the image though they belong to it, then pieces of the image;
equal numbers hold equal things for as long as the copy lasts. No more is on its way than
the receiver allows, but for one parcel.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence

from crescando.roles.areas import ImageTaken, Made, Make
from crescando.roles.copy_messages import CopyHead, CopyId, CopyProgress, FetchParcels, Outcomes, Parcel
from crescando.roles.staging import Late
from crescando.types import ProcessId, Scope


class Outgoing:
    """One copy that this process sends.

    Parameters
    ----------
    copy : CopyId
    sender, receiver : ProcessId
    scope : Scope
        What the receiver is to hold.
    missing : Scope
        What it lacks of it, and is sent.

    Attributes
    ----------
    has_begun : bool
        Whether its image is to be taken, or is; see `areas`.
    late : sequence of Late
        Chunks of loads that the image will not have.
    """

    def __init__(
        self, copy: CopyId, sender: ProcessId, receiver: ProcessId, scope: Scope, missing: Scope
    ) -> None:
        self.copy = copy
        self.sender = sender
        self.receiver = receiver
        self.scope = scope
        self.missing = missing
        self.has_begun = False
        self._image: ImageTaken | None = None
        self._outcomes: Sequence[Outcomes | Late] = ()
        self.late: Sequence[Late] = ()
        self._next: int | None = None
        """What to send next; None before the receiver has asked in this session."""
        self._on_way: deque[tuple[int, int]] = deque()
        self._on_way_bytes = 0
        self._credit = 0
        self._is_headed = False
        self._is_making = False
        self._sent_rows = self._sent_bytes = 0
        self._counted = 0
        self._began_s = 0.0

    @property
    def needs_session(self) -> bool:
        """Whether it needs its receiver."""
        return self.has_begun

    def begin(self, now_s: float) -> None:
        """Learn that this process holds everything, from here on in the order."""
        self.has_begun = True
        self._began_s = now_s

    def end_session(self) -> None:
        """Learn that what was on its way is lost."""
        self._next = None
        self._on_way.clear()
        self._on_way_bytes = self._credit = 0
        self._is_headed = False

    def on_image(self, image: ImageTaken, outcomes: Sequence[Outcomes]) -> None:
        """Take what there is to send."""
        self._image, self._outcomes = image, (*outcomes, *self.late)

    def on_fetch(self, fetch: FetchParcels) -> None:
        """Learn what has arrived, and how much more may be on its way.

        Raises
        ------
        ValueError
            If more has arrived than was sent.
        """
        if self._next is None:
            self._next = fetch.next
        elif fetch.next > self._next:
            raise ValueError(f"{fetch.next} parcels are said to have arrived of {self._next}")
        while self._on_way and self._on_way[0][0] < fetch.next:
            self._on_way_bytes -= self._on_way.popleft()[1]
        self._credit = fetch.credit

    def messages(self) -> Iterator[CopyHead | Parcel]:
        """Give what can be sent without the engine's thread."""
        image = self._image
        if image is None or self._next is None:
            return
        if not self._is_headed:
            self._is_headed = True
            n_parcels = len(self._outcomes) + image.n_pieces
            yield CopyHead(self.copy, n_parcels, image.n_rows, image.n_bytes)
        while self._next < len(self._outcomes) and self._on_way_bytes < self._credit:
            content = self._outcomes[self._next]
            if isinstance(content, Late):
                if content.content is None:
                    # Its bytes are on their way here.
                    break
                yield self._sent(Parcel(self.copy, self._next, content.content))
            else:
                yield self._sent(Parcel(self.copy, self._next, content))

    @property
    def wants_make(self) -> bool:
        """Whether the engine's thread is to make more pieces of the image."""
        image = self._image
        if image is None or self._next is None or self._is_making:
            return False
        return 0 <= self._next - len(self._outcomes) < image.n_pieces and self._on_way_bytes < self._credit

    def make(self) -> Make:
        """Give what it is to make."""
        assert self._next is not None
        self._is_making = True
        return Make(self.copy, self._next - len(self._outcomes), self._credit - self._on_way_bytes)

    def on_made(self, made: Made) -> Iterator[Parcel]:
        """Send pieces; those of a session that ended meanwhile are made anew."""
        self._is_making = False
        if self._next != len(self._outcomes) + made.first:
            return
        for piece in made.pieces:
            if self._next >= self._counted:
                self._sent_rows += len(piece.position)
                self._sent_bytes += piece.n_bytes
                self._counted = self._next + 1
            yield self._sent(Parcel(self.copy, self._next, piece))

    def _sent(self, parcel: Parcel) -> Parcel:
        self._on_way.append((parcel.number, parcel.n_bytes))
        self._on_way_bytes += parcel.n_bytes
        self._next = parcel.number + 1
        return parcel

    def progress(self, now_s: float) -> CopyProgress:
        """Tell how it gets on."""
        image = self._image
        stage, blocker = self._stage
        return CopyProgress(
            self.copy,
            self.sender,
            self.receiver,
            self.scope,
            stage,
            blocker,
            0 if image is None else image.n_rows,
            0 if image is None else image.n_bytes,
            self._sent_rows,
            self._sent_bytes,
            self._sent_rows / (now_s - self._began_s) if now_s > self._began_s and self.has_begun else 0.0,
            0,
        )

    @property
    def _stage(self) -> tuple[str, str]:
        """How far it is, and what it waits for."""
        if not self.has_begun:
            return "queued", "this process is still to receive the range by an earlier change"
        if self._image is None:
            return "connecting", "what was ordered before is not executed yet"
        if self._next is None:
            return "connecting", f"{self.receiver} has not asked in this session"
        if self._next < len(self._outcomes) + self._image.n_pieces and self._on_way_bytes >= self._credit:
            return "sending", f"{self.receiver} takes no more at the moment"
        return "sending", ""
