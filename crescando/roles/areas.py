"""What a storage process's scanning thread keeps of copies: images that it sends, areas that it fills.

Rules of the file: everything here belongs to the thread that executes, and is touched nowhere
else. An *area* is an engine beside the main one that holds the rows of one incoming copy. From
the place in the order at which it is opened, whatever changes anything in the main engine is
noted in its log. When all rows have been taken in, the log is executed on it, some of it after
each cycle; as soon as nothing is left the main engine adopts the area, and from then on one
pass does both. So each operation is executed once on each row: on a row that came before
the place it is in the copy, on one that came after it is in the log, or the row is the main
engine's by then. Work is bounded in each cycle, so that serving goes on.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

from crescando.engine.base import Engine, Image, Piece, Results
from crescando.engine.loads import LoadStep
from crescando.engine.operations import Entry, Interleaved, Operations, Part
from crescando.engine.statement import Kind
from crescando.errors import InvariantError
from crescando.roles.copy_messages import CopyId
from crescando.schema import TableSchema
from crescando.scopes import common, covers, cut, merged, subtract
from crescando.types import Scope

T = TypeVar("T")

_READ = Kind.READ

REPLAYS_MIN = 2
"""Batches of the log that are executed after each cycle at least, each as large as a cycle may
be: a cycle adds no more than one, so the log becomes shorter whatever is sent."""


@dataclass(frozen=True, slots=True)
class TableChange:
    """A table before and after a configuration message; None where it does not exist."""

    before: TableSchema | None
    after: TableSchema | None

    def carry_out(self, engine: Engine) -> None:
        """Tell an engine."""
        if self.before is None and self.after is not None:
            engine.create_table(self.after)
        elif self.after is None and self.before is not None:
            engine.drop_table(self.before.id)
        elif self.after is not None:
            engine.alter_table(self.after)


@dataclass(frozen=True, slots=True)
class Recut:
    """The layout changes: arcs end where they may not be cut later, and what is not wanted is deleted.

    Attributes
    ----------
    owned : Scope
        What the process owns from here on.
    wanted : Scope
        That, and what it is to own; kept as far as it is held.
    borders : tuple of int
        Where arcs begin.
    is_first : bool
        Whether the process begins with this: what it owns is there, and empty.
    """

    owned: Scope
    wanted: Scope
    borders: tuple[int, ...]
    is_first: bool = False


@dataclass(frozen=True, slots=True)
class OpenArea:
    """The process is to receive a copy, of which it lacks some ranges."""

    copy: CopyId
    scope: Scope
    missing: Scope
    borders: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class TakeImage:
    """The process is to send the rows of some ranges, as they are at this place."""

    copy: CopyId
    scope: Scope
    at: int


@dataclass(frozen=True, slots=True)
class EndCopy:
    """A copy has arrived, or shall not; nothing is kept of it but what was adopted."""

    copy: CopyId


Barrier = TableChange | Recut | OpenArea | TakeImage | EndCopy
"""What changes an engine between two operations, at its place in the order."""


@dataclass(frozen=True, slots=True)
class Make:
    """Make some pieces of an image, from one on, as long as they take no more than some bytes."""

    copy: CopyId
    first: int
    bytes_max: int


@dataclass(frozen=True, slots=True)
class Hand:
    """Take some pieces into an area, and chunks of loads that belong to it and came after its image."""

    copy: CopyId
    pieces: tuple[Piece, ...]
    is_last: bool
    late: tuple[LoadStep, ...] = ()


@dataclass(frozen=True, slots=True)
class ImageTaken:
    """There is something to send, with all the writes below a position in it."""

    copy: CopyId
    at: int
    n_pieces: int
    n_rows: int
    n_bytes: int


@dataclass(frozen=True, slots=True)
class Made:
    """Pieces that were asked for, from the first one on."""

    copy: CopyId
    first: int
    pieces: tuple[Piece, ...]


@dataclass(frozen=True, slots=True)
class AreaState:
    """How far an incoming copy is.

    Attributes
    ----------
    n_taken, n_rows : int
        Pieces taken in, and their rows.
    log_bytes, n_logged : int
        What is to be executed yet, in bytes and steps.
    is_held : bool
        Whether the main engine holds all of its ranges, and executes what comes on them.
    """

    copy: CopyId
    n_taken: int
    n_rows: int
    log_bytes: int
    n_logged: int
    is_held: bool


@dataclass(frozen=True, slots=True)
class Moved:
    """What came of the copies' work in one cycle.

    Attributes
    ----------
    images : tuple of ImageTaken
    made : tuple of Made
    states : tuple of AreaState
        Of every incoming copy.
    replayed : tuple of Results
        What the logs' writes did.
    is_behind : bool
        Whether there is more to do at once.
    n_bytes : int
        What all that takes.
    """

    images: tuple[ImageTaken, ...] = ()
    made: tuple[Made, ...] = ()
    states: tuple[AreaState, ...] = ()
    replayed: tuple[Results, ...] = ()
    is_behind: bool = False
    n_bytes: int = 0


@dataclass(slots=True)
class _Logged:
    """Writes that the main engine has executed together, or what changed it."""

    work: tuple[Entry, ...] | TableChange | Recut
    n_operations: int = 0
    n_bytes: int = 0


@dataclass(slots=True)
class _Area:
    """One incoming copy."""

    scope: Scope
    missing: Scope
    engine: Engine | None
    """None as soon as there is nothing to fill any more."""
    log: deque[_Logged] = field(default_factory=deque)
    log_bytes: int = 0
    pieces: deque[Piece] = field(default_factory=deque)
    late: deque[LoadStep] = field(default_factory=deque)
    is_whole: bool = False
    n_taken: int = 0
    n_rows: int = 0

    @property
    def is_idle(self) -> bool:
        """Whether it waits for more pieces."""
        return self.engine is None or not (self.pieces or self.is_whole)

    def note(self, logged: _Logged) -> None:
        """Note what the main engine has executed."""
        if self.engine is not None:
            self.log.append(logged)
            self.log_bytes += logged.n_bytes


class Budget:
    """How long one cycle may work on copies.

    A piece may take longer than there is time: what one cycle takes too much is owed, and
    the next ones do less.

    Parameters
    ----------
    clock : callable or None
        Gives seconds; without one every copy advances by one step.
    seconds : float
    owed_s : float
        What cycles before took too much.

    Attributes
    ----------
    n_pieces : int
        Pieces that were made or taken in.
    """

    def __init__(self, clock: Callable[[], float] | None, seconds: float, owed_s: float = 0.0) -> None:
        self._clock = clock
        self._seconds = seconds
        self._begin_s = 0.0 if clock is None else clock()
        self._spent_s = owed_s
        self.n_pieces = 0

    def allows(self, *, is_first: bool) -> bool:
        """Whether there is time for a piece, the first one of its copy or a further one."""
        return is_first if self._clock is None else self._spent_s < self._seconds

    def spend(self, step: Callable[[], T]) -> T:
        """Make a piece, or take it in."""
        self.n_pieces += 1
        if self._clock is None:
            return step()
        begin_s = self._clock()
        done = step()
        self._spent_s += self._clock() - begin_s
        return done

    @property
    def is_left(self) -> bool:
        """Whether there is time for more of a log than was to be done in any case."""
        return self._clock is not None and self._clock() < self._begin_s + self._seconds

    @property
    def owed_s(self) -> float:
        """What was taken too much."""
        return max(0.0, self._spent_s - self._seconds)


class Areas:
    """The images and areas of one engine."""

    def __init__(self) -> None:
        self._areas: dict[CopyId, _Area] = {}
        self._images: dict[CopyId, Image] = {}
        self._held: Scope = ()
        self._taken: list[ImageTaken] = []
        self._turn = 0
        self._owed_s = 0.0

    def __len__(self) -> int:
        return len(self._areas) + len(self._images)

    # In the order.

    def carry_out(self, step: Barrier, engine: Engine) -> None:
        """Do what is to be done between two operations."""
        match step:
            case TableChange():
                step.carry_out(engine)
                self._note(_Logged(step))
            case Recut():
                self._recut(step, engine)
            case OpenArea():
                beside = engine.beside(cut(step.missing, step.borders)) if step.missing else None
                self._areas[step.copy] = _Area(step.scope, step.missing, beside)
            case TakeImage():
                image = self._images[step.copy] = engine.image(step.scope)
                self._taken.append(
                    ImageTaken(step.copy, step.at, image.n_pieces, image.n_rows, image.n_bytes)
                )
            case EndCopy():
                self._areas.pop(step.copy, None)
                sent = self._images.pop(step.copy, None)
                if sent is not None:
                    sent.close()

    def note(self, entries: Sequence[Entry], n_bytes: int) -> None:
        """Note what the main engine has executed in one go."""
        if not any(area.engine is not None for area in self._areas.values()):
            return
        writes = tuple(writes_of(entries))
        if writes:
            self._note(_Logged(writes, sum(map(_count, writes)), n_bytes))

    def _note(self, logged: _Logged) -> None:
        for area in self._areas.values():
            area.note(logged)

    def _recut(self, step: Recut, engine: Engine) -> None:
        held = step.wanted if step.is_first else merged(common(step.wanted, self._held))
        if not covers(held, step.owned):
            lacking = subtract(step.owned, held)
            raise InvariantError(f"ring ranges {lacking} are owned from here on and were never copied")
        self._held = held
        engine.set_arcs(cut(held, step.borders))
        self._note(_Logged(step))

    # After a cycle's operations.

    def budget(self, clock: Callable[[], float] | None, seconds: float, *, is_shared: bool) -> Budget:
        """Give how long a cycle may work on copies; what is owed is owed to operations beside them."""
        return Budget(clock, seconds, self._owed_s if is_shared else 0.0)

    def advance(
        self,
        engine: Engine,
        makes: Iterable[Make],
        hands: Iterable[Hand],
        budget: Budget,
        operations_max: int,
        weighs: bool,
    ) -> Moved:
        """Work on the copies for a while.

        Parameters
        ----------
        engine : Engine
            The main one.
        makes : iterable of Make
        hands : iterable of Hand
        budget : Budget
        operations_max : int
            As many as one cycle may have.
        weighs : bool
            Whether to tell what is held.
        """
        for hand in hands:
            area = self._areas.get(hand.copy)
            # Of a copy that ended meanwhile nothing is kept.
            if area is not None:
                area.pieces.extend(hand.pieces)
                area.late.extend(hand.late)
                area.is_whole = hand.is_last
        made: list[Made] = []
        replayed: list[Results] = []
        busy: list[Make | _Area] = [*makes, *(area for area in self._areas.values() if not area.is_idle)]
        # Each, sending or receiving, has its turn to be the first: there may be no time for more.
        start = self._turn % len(busy) if busy else 0
        for work in busy[start:] + busy[:start]:
            if isinstance(work, Make):
                made.append(Made(work.copy, work.first, self._make(work, budget)))
            else:
                replayed += self._advance(work, engine, budget, operations_max)
        # Cycles in which there was time for nothing are nobody's turn.
        self._turn += bool(budget.n_pieces)
        self._owed_s = budget.owed_s
        images, self._taken = tuple(self._taken), []
        return Moved(
            images,
            tuple(made),
            tuple(self._state(copy, area) for copy, area in self._areas.items()),
            tuple(replayed),
            any(not area.is_idle for area in self._areas.values()),
            sum(map(_bytes_of, self._areas.values())) if weighs else 0,
        )

    def _make(self, make: Make, budget: Budget) -> tuple[Piece, ...]:
        image = self._images.get(make.copy)
        pieces: list[Piece] = []
        if image is not None:
            n_bytes = 0
            while make.first + len(pieces) < image.n_pieces and n_bytes < make.bytes_max:
                if not budget.allows(is_first=not pieces):
                    break
                pieces.append(budget.spend(partial(image.piece, make.first + len(pieces))))
                n_bytes += pieces[-1].n_bytes
        return tuple(pieces)

    def _advance(self, area: _Area, engine: Engine, budget: Budget, operations_max: int) -> Iterable[Results]:
        """Take in, or catch up, and adopt what has caught up."""
        beside = area.engine
        assert beside is not None
        is_first = True
        while area.pieces and budget.allows(is_first=is_first):
            piece = area.pieces.popleft()
            budget.spend(partial(beside.take_in, piece))
            area.n_taken += 1
            area.n_rows += len(piece.position)
            is_first = False
        if area.pieces or not area.is_whole:
            return ()
        replayed: list[Results] = []
        while area.late:
            # As if they had been in the image: before everything that came behind it.
            replayed += beside.execute((area.late.popleft(),))
        n_batches = 0
        while area.log and (n_batches < REPLAYS_MIN or budget.is_left):
            replayed += _replay(area, beside, operations_max)
            n_batches += 1
        if not area.log:
            engine.adopt(beside)
            area.engine = None
            self._held = merged((*self._held, *area.missing))
        return replayed

    def _state(self, copy: CopyId, area: _Area) -> AreaState:
        is_held = area.engine is None and covers(self._held, area.scope)
        return AreaState(copy, area.n_taken, area.n_rows, area.log_bytes, len(area.log), is_held)


def _bytes_of(area: _Area) -> int:
    rows = 0 if area.engine is None else area.engine.statistics()["bytes"]
    return rows + area.log_bytes + sum(piece.n_bytes for piece in area.pieces)


def _replay(area: _Area, engine: Engine, operations_max: int) -> list[Results]:
    """Execute what comes first in the log: operations that share a pass, and what changes the engine."""
    batch: list[Entry] = []
    n_operations = 0
    while area.log:
        first = area.log[0]
        if isinstance(first.work, tuple):
            if batch and n_operations + first.n_operations > operations_max:
                break
            batch += first.work
            n_operations += first.n_operations
        elif batch:
            break
        elif isinstance(first.work, Recut):
            engine.set_arcs(cut(area.missing, first.work.borders))
        else:
            first.work.carry_out(engine)
        area.log_bytes -= first.n_bytes
        area.log.popleft()
    return engine.execute(batch) if batch else []


def writes_of(entries: Iterable[Entry]) -> Iterable[Entry]:
    """Give what changes anything of what was executed, in the same order."""
    for entry in entries:
        if isinstance(entry, LoadStep):
            yield entry
            continue
        if not isinstance(entry, Interleaved):
            if entry.shape.kind is not _READ:
                yield entry
            continue
        written = [place for place, part in enumerate(entry.parts) if not _is_read(part)]
        if len(written) == len(entry.parts):
            yield entry
        elif written:
            # Where reads were, places are left out; those of the others ascend as before.
            parts = tuple(entry.parts[place] for place in written)
            yield Interleaved(parts, tuple(entry.places[place] for place in written))


def _is_read(part: Part) -> bool:
    shape = part.shape if isinstance(part, Operations) else part[0].shape
    return shape.kind is _READ


def _count(entry: Entry) -> int:
    if isinstance(entry, Interleaved):
        return sum(map(len, entry.parts))
    return len(entry) if isinstance(entry, Operations) else 1
