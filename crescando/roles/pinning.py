"""What a storage process's scanning thread keeps of pinned snapshots: tables as they were, and reads of them.

Rules of the file: everything here belongs to the thread that executes, and is touched nowhere
else. A table is pinned between two operations, at the place of its message in the order. Reads are done in
steps, behind the operations of a cycle and for a bounded time, so that serving goes on; a
read that goes on finds again what it has found, as long as there is room for that.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from dataclasses import dataclass, field

from crescando.client.pinned import Fetch, Fetched, Holding, PinAnswer, PinFault, PinId
from crescando.engine.base import Engine, PinnedRead, PinnedTables, Strips
from crescando.engine.statement import Shape
from crescando.errors import StatementError
from crescando.roles.areas import Budget
from crescando.types import ProcessId, Scope

PIECE_BYTES = 4 << 20
"""About what is given at a time."""

READS_MAX = 64
"""Reads whose rows are kept found; whoever goes on with another one has them found again."""

TURNS_MAX = READS_MAX // 2
"""Questions that take turns; the others wait, lest each of them lets go of what the next has found."""


@dataclass(frozen=True, slots=True)
class TakePin:
    """Pin tables at this place in the order.

    Attributes
    ----------
    pin : PinId
    tables : tuple of int
    owned : Scope
        The arcs that the process owns here.
    at : int
    bytes_max : int
        If pins keep more in memory by now, this one is refused.
    """

    pin: PinId
    tables: tuple[int, ...]
    owned: Scope
    at: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Fetching:
    """Somebody wants rows of a pinned table.

    Attributes
    ----------
    asker : ProcessId
    request : int
    fetch : Fetch
    shape : Shape
    parameters : tuple
        As decoded.
    """

    asker: ProcessId
    request: int
    fetch: Fetch
    shape: Shape
    parameters: tuple[object, ...]


@dataclass(frozen=True, slots=True)
class PinsDone:
    """What a cycle did for pins.

    Attributes
    ----------
    taken : tuple of (PinId, Holding or PinFault)
    given : tuple of (Fetching, PinAnswer)
    is_behind : bool
        Whether there is more to do at once.
    n_bytes : int
        What reads under way keep.
    """

    taken: tuple[tuple[PinId, Holding | PinFault], ...] = ()
    given: tuple[tuple[Fetching, PinAnswer], ...] = ()
    is_behind: bool = False
    n_bytes: int = 0


_Key = tuple[PinId, bytes, bytes, tuple[int, int], int]


class PinnedImages:
    """The pinned tables of one engine, and the reads of them."""

    def __init__(self) -> None:
        self._pins: dict[PinId, PinnedTables] = {}
        self._reads: OrderedDict[_Key, PinnedRead] = OrderedDict()
        self._jobs: deque[Fetching] = deque()
        self._taken: list[tuple[PinId, Holding | PinFault]] = []
        self._owed_s = 0.0

    # In the order.

    def take(self, step: TakePin, engine: Engine) -> None:
        """Pin tables as they are now."""
        held = engine.statistics()["pinned_bytes"] if self._pins else 0
        if held > step.bytes_max:
            text = (
                f"it keeps {held:,} bytes for pinned snapshots already, and may keep {step.bytes_max:,}; "
                "close those that nobody reads any more"
            )
            self._taken.append((step.pin, PinFault("over", text)))
            return
        pin = self._pins[step.pin] = engine.pin(step.tables)
        weights = [[pin.weigh(schema.id, (arc,)) for arc in step.owned] for schema in pin.schemas]
        holding = Holding(
            step.at,
            step.owned,
            pin.schemas,
            tuple(tuple(n_rows for n_rows, _ in of_table) for of_table in weights),
            tuple(tuple(n_bytes for _, n_bytes in of_table) for of_table in weights),
        )
        self._taken.append((step.pin, holding))

    # Behind a cycle's operations.

    def end(self, pin: PinId) -> None:
        """Let go of a pin, if it is there."""
        tables = self._pins.pop(pin, None)
        if tables is not None:
            tables.close()
        for key in [key for key in self._reads if key[0] == pin]:
            del self._reads[key]

    def advance(
        self,
        fetches: tuple[Fetching, ...],
        clock: Callable[[], float] | None,
        seconds: float,
        *,
        is_shared: bool,
    ) -> tuple[tuple[Fetching, PinAnswer], ...]:
        """Work on reads for a while; gives what is answered."""
        self._jobs.extend(fetches)
        budget = Budget(clock, seconds, self._owed_s if is_shared else 0.0)
        given: list[tuple[Fetching, PinAnswer]] = []
        for _ in range(len(self._jobs)):
            if not budget.allows(is_first=True):
                break
            job = self._jobs.popleft()
            answer = self._work_on(job, budget)
            if answer is None:
                self._jobs.insert(TURNS_MAX, job)
            else:
                given.append((job, answer))
        self._owed_s = budget.owed_s
        return tuple(given)

    def _work_on(self, job: Fetching, budget: Budget) -> PinAnswer | None:
        """Do some steps of a read; gives the answer if there is one by then."""
        fetch = job.fetch
        key = fetch.pin, fetch.shape, fetch.parameters, fetch.key_range, fetch.n_strips
        try:
            read = self._read(key, job)
        except KeyError:
            return PinFault("over", "it was let go of")
        except StatementError as fault:
            return PinFault("invalid", str(fault))
        is_first = True
        while budget.allows(is_first=is_first):
            is_first = False
            if budget.spend(read.look):
                given = budget.spend(lambda: read.give(fetch.strip, fetch.offset, PIECE_BYTES))
                if not isinstance(given, Strips):
                    del self._reads[key]
                    return PinFault("read", given.text, given.key)
                if given.strip >= fetch.n_strips:
                    del self._reads[key]
                return Fetched(*given)
        return None

    def _read(self, key: _Key, job: Fetching) -> PinnedRead:
        read = self._reads.pop(key, None)
        if read is None:
            fetch = job.fetch
            read = self._pins[fetch.pin].read(job.shape, job.parameters, fetch.key_range, fetch.n_strips)
        self._reads[key] = read
        if len(self._reads) > READS_MAX:
            self._reads.popitem(last=False)
        return read

    def take_taken(self) -> tuple[tuple[PinId, Holding | PinFault], ...]:
        """Give what was pinned since the last call."""
        taken, self._taken = self._taken, []
        return tuple(taken)

    @property
    def is_behind(self) -> bool:
        """Whether some read waits for more steps."""
        return bool(self._jobs)

    @property
    def n_bytes(self) -> int:
        """What reads under way keep."""
        return sum(read.n_bytes for read in self._reads.values())


@dataclass(frozen=True, slots=True)
class PinWork:
    """What a cycle is to do for pins, behind its operations.

    Attributes
    ----------
    images : PinnedImages
        Where the thread keeps what it has of them.
    ends : tuple of PinId
    fetches : tuple of Fetching
    target_s : float
        How long it may take if there are no operations.
    """

    images: PinnedImages = field(default_factory=PinnedImages)
    ends: tuple[PinId, ...] = ()
    fetches: tuple[Fetching, ...] = ()
    target_s: float = 0.0

    def run(self, clock: Callable[[], float] | None, allowed_s: float | None) -> PinsDone:
        """Do it; called by the driver.

        Parameters
        ----------
        clock : callable or None
        allowed_s : float or None
            How long it may take beside operations; None if there were none.
        """
        images = self.images
        for pin in self.ends:
            images.end(pin)
        seconds = self.target_s if allowed_s is None else min(self.target_s, allowed_s)
        given = images.advance(self.fetches, clock, seconds, is_shared=allowed_s is not None)
        return PinsDone(images.take_taken(), given, images.is_behind, images.n_bytes)
