"""What waits at a storage process for a cycle, and which of it shares the next one.

Rules of the file: writes enter in the order. A read must see exactly the writes before it,
so it may overtake other reads, but no write; a write enters when every read before it has.
Between two writes, each client therefore has a fair share: clients take turns, a few reads
at a time, and the shapes of one client take turns too, so that neither one client's million
reads nor its one slow shape holds up anybody else. Clients that wait for few quick reads have a
cycle without the others, but never two in turn: a brief one. Reads that were delivered between two
writes of their own client can gain nothing by that: they wait among these (`Mixture`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar, cast

import msgspec
import numpy as np

from crescando.engine.loads import LoadStep
from crescando.engine.operations import Entry
from crescando.engine.statement import Kind, Operation, Shape
from crescando.roles.bunches import WEIGHT_BYTES, Bunch, Mixture
from crescando.roles.costs import Costs
from crescando.roles.load import Load
from crescando.types import ProcessId

C = TypeVar("C")
"""What changes tables or the layout, and means nothing here."""

D = TypeVar("D", Bunch, Mixture)

QUANTUM = 64
"""Reads of one client and shape that enter before it is another's turn."""

FEW = 16
"""So many reads of one client are few: who waits for more wants them done, who for few wants them soon."""

BRIEF_SHARE = 0.25
"""Share of a cycle that few reads may be expected to take in one of their own."""

BRIEF_CLIENTS = 64
"""So many clients are looked at for one."""

SHORT_SHARE = 0.3
"""Share of a cycle's time that operations get while some clients wait for few reads and others for many: in
longer cycles more of them share a scan, but the few wait for the cycle that runs. A cycle of their own is
about as long, so that either kind has half of the time."""

SHORT_FOR = 64
"""So many cycles later nobody is expected to come with few reads again."""

_READ = Kind.READ


class Whole(msgspec.Struct, Generic[C], eq=False, gc=False):
    """What enters wholly: a transaction, a step of a load, or a change of tables or of the layout.

    Attributes
    ----------
    work : tuple of Operation, LoadStep, or a change of tables or of the layout
    last_position, n_bytes : int
    expected_s : float
        The time it was expected to take when it came, the scans apart.
    shape : Shape or None
        Under which it is learned what a step of a load costs.
    """

    work: tuple[Operation, ...] | LoadStep | C
    last_position: int
    n_bytes: int
    expected_s: float = 0.0
    shape: Shape | None = None

    def __len__(self) -> int:
        return 1

    @property
    def entries(self) -> tuple[Operation, ...]:
        """What the engine is to execute; nothing of such a change."""
        return cast("tuple[Operation, ...]", self.work) if isinstance(self.work, tuple) else ()


Waiting = Bunch | Mixture | Whole[C]


@dataclass(slots=True, eq=False)
class _Queue:
    """Reads of one client between two writes, by shape."""

    client: ProcessId
    by_shape: dict[int, deque[Bunch]] = field(default_factory=dict)
    n: int = 0
    were_many: bool = False
    """Whether more than `FEW` waited at once: what is left of many is not few."""

    def count(self, n_more: int) -> None:
        """Take note of reads that have come."""
        self.n += n_more
        self.were_many = self.were_many or self.n > FEW


@dataclass(slots=True)
class _Run(Generic[C]):
    """Reads that have no write between them, and what must come behind them in order."""

    queues: dict[ProcessId, _Queue] = field(default_factory=dict)
    turns: deque[_Queue] = field(default_factory=deque)
    ordered: deque[Waiting[C]] = field(default_factory=deque)


@dataclass(slots=True)
class Admitted(Generic[C]):
    """What shares a cycle.

    Attributes
    ----------
    load : Load
    steps : list of (list of Entry, or a change of tables or of the layout)
    written_bytes : list of int
        What the writes of each step take.
    upto : int
        The highest position in it; reads below that may have been left behind, writes are not.
    n_bytes : int
    """

    load: Load
    steps: list[list[Entry] | C] = field(default_factory=list)
    written_bytes: list[int] = field(default_factory=list)
    upto: int = -1
    n_bytes: int = 0

    @property
    def entries(self) -> list[Entry]:
        """Everything but changes of tables."""
        return [entry for step in self.steps if isinstance(step, list) for entry in step]

    def take(self, some: Iterable[Waiting[C]]) -> None:
        """Add what comes behind all others."""
        for each in some:
            self.n_bytes += each.n_bytes
            self.upto = max(self.upto, each.last_position)
            if isinstance(each, Whole) and isinstance(each.work, LoadStep):
                self.add((each.work,))
                self.written_bytes[-1] += each.n_bytes
                continue
            if isinstance(each, Whole) and not isinstance(each.work, tuple):
                self.steps.append(cast("C", each.work))
                self.written_bytes.append(0)
                continue
            self.add(each.entries)
            if not (isinstance(each, Bunch) and each.is_read):
                self.written_bytes[-1] += each.n_bytes

    def add(self, entries: Iterable[Entry]) -> None:
        """Add operations behind all others."""
        if not self.steps or not isinstance(self.steps[-1], list):
            self.steps.append([])
            self.written_bytes.append(0)
        cast("list[Entry]", self.steps[-1]).extend(entries)


class Admission(Generic[C]):
    """The operations that wait.

    Parameters
    ----------
    operations_max : int
        Operations of one cycle.
    target_s : float
        The time that one cycle is to take.

    Attributes
    ----------
    n, n_bytes : int
        How many operations wait (a transaction counts as one), and what they take.
    backlog_s : float
        How long they are expected to take, their scans apart.
    """

    def __init__(self, operations_max: int, target_s: float) -> None:
        self.costs = Costs()
        self.n = self.n_bytes = 0
        self.backlog_s = 0.0
        self._operations_max = operations_max
        self._target_s = target_s
        self._runs: deque[_Run[C]] = deque()
        self._arrivals = 0
        self._was_brief = False
        self._since_few = SHORT_FOR
        """How many cycles there were since some waited for few reads and others for many."""

    def __len__(self) -> int:
        return self.n

    def put(self, work: Operation | Sequence[Operation] | C, position: int, n_bytes: int) -> None:
        """Let an operation, a transaction or a change of tables or of the layout wait behind all others."""
        if isinstance(work, Operation):
            self.put_all([Bunch(work.shape, (work,), n_bytes)])
            return
        whole: Whole[C] = Whole(cast("C", work), position, n_bytes)
        if isinstance(work, (list, tuple)):
            whole.work = tuple(work)
            weight = max(1.0, n_bytes / WEIGHT_BYTES)
            whole.expected_s = weight * self.costs.of(work[0].shape).each_s
        self._come(whole)
        self._put_in_order(whole)

    def put_step(self, step: LoadStep, shape: Shape, n_bytes: int) -> None:
        """Let a step of a load wait behind all others."""
        each_s = self.costs.of(shape).each_s
        weight = max(1.0, n_bytes / WEIGHT_BYTES)
        whole: Whole[C] = Whole(step, step.position, n_bytes, weight * each_s, shape)
        self._come(whole)
        self._put_in_order(whole)

    def put_all(self, bunches: Sequence[Bunch]) -> None:
        """Let operations that one client was delivered together wait behind all others.

        Parameters
        ----------
        bunches : sequence of Bunch
            None is empty, and no place is in two of them.
        """
        for bunch in bunches:
            bunch.each_s = bunch.weight * self.costs.of(bunch.shape).each_s
            self._come(bunch)
        writes = [bunch for bunch in bunches if not bunch.is_read]
        if len(writes) == len(bunches) == 1:
            self._put_in_order(bunches[0])
        elif writes:
            self._put_mixed(bunches, writes)
        else:
            for bunch in bunches:
                self._put_reads(bunch)

    def _put_mixed(self, bunches: Sequence[Bunch], writes: Sequence[Bunch]) -> None:
        """Let reads wait that come before all writes, then what comes between these, then the rest."""
        first = min(int(bunch.places[0]) for bunch in writes)
        last = max(int(bunch.places[-1]) for bunch in writes)
        among, behind = [], []
        for bunch in bunches:
            if not bunch.is_read:
                among.append(bunch)
                continue
            start, stop = np.searchsorted(bunch.places, (first, last)).tolist()
            if start:
                self._put_reads(bunch.cut(0, start))
            if start < stop:
                among.append(bunch.cut(start, stop))
            if stop < len(bunch):
                behind.append(bunch.cut(stop, len(bunch)))
        self._put_in_order(Mixture(among) if len(among) > 1 else among[0])
        for bunch in behind:
            self._put_reads(bunch)

    def _put_in_order(self, what: Waiting[C]) -> None:
        if not self._runs:
            self._runs.append(_Run())
        self._runs[-1].ordered.append(what)

    def _put_reads(self, bunch: Bunch) -> None:
        self._arrivals += 1
        bunch.arrival = self._arrivals
        if not self._runs or self._runs[-1].ordered:
            self._runs.append(_Run())
        run, client = self._runs[-1], bunch.sender
        queue = run.queues.get(client)
        if queue is None:
            queue = run.queues[client] = _Queue(client)
            run.turns.append(queue)
        waiting = queue.by_shape.get(id(bunch.shape))
        if waiting is None:
            waiting = queue.by_shape[id(bunch.shape)] = deque()
        waiting.append(bunch)
        queue.count(len(bunch))

    def take(self) -> Admitted[C]:
        """Give what shares the next cycle, in order."""
        share = 1.0 if self._since_few >= SHORT_FOR else SHORT_SHARE
        load = Load(self.costs, self._operations_max, share * self._target_s)
        admitted: Admitted[C] = Admitted(load)
        self._since_few += 1
        few = self._few(self._runs[0].turns) if self._runs else []
        # Never twice in turn, or many who want little would keep out who wants much.
        self._was_brief = load.is_brief = bool(few) and not self._was_brief
        if load.is_brief:
            reads = _take_reads(self._runs[0], load, few)
            admitted.take(reads)
            self._gone(reads)
            return admitted
        while self._runs:
            run = self._runs[0]
            reads = _take_reads(run, load, run.turns)
            admitted.take(reads)
            self._gone(reads)
            if run.turns:
                break
            ordered = _take_ordered(run, load)
            admitted.take(ordered)
            self._gone(ordered)
            if run.ordered:
                break
            self._runs.popleft()
        load.is_full = bool(self._runs)
        return admitted

    def _few(self, turns: Sequence[_Queue]) -> list[_Queue]:
        """Give clients that wait for few reads, quick ones, if others wait for what takes longer."""
        few = [queue for queue in turns if not queue.were_many]
        if not few or len(few) == len(turns):
            return []
        self._since_few = 0
        chosen: list[_Queue] = []
        scanned: set[int] = set()
        expected_s, most_s = 0.0, BRIEF_SHARE * self._target_s
        for queue in few[:BRIEF_CLIENTS]:
            more_s = self._expected_s(queue, scanned, most_s - expected_s)
            if expected_s + more_s <= most_s:
                chosen.append(queue)
                expected_s += more_s
                scanned.update(queue.by_shape)
        others_s = 0.0
        for queue in turns:
            if queue.were_many:
                others_s += self._expected_s(queue, scanned, expected_s - others_s)
                if others_s > expected_s:
                    return chosen
                scanned.update(queue.by_shape)
        # Nobody waits noticeably longer if all share a cycle.
        return []

    def _expected_s(self, queue: _Queue, scanned: Collection[int], enough_s: float) -> float:
        """Give how long a client's reads are expected to take, or something above what is enough.

        Scans that there are anyway are left out.
        """
        expected_s = 0.0
        for key, waiting in queue.by_shape.items():
            cost = self.costs.of(waiting[0].shape)
            expected_s += 0.0 if key in scanned else cost.scan_s
            for bunch in waiting:
                expected_s += cost.each_s * bunch.weight * len(bunch)
                if expected_s > enough_s:
                    return expected_s
        return expected_s

    def drop(self, client: ProcessId, numbers: Collection[int]) -> set[int]:
        """Forget waiting reads of a client, by their numbers; gives those."""
        dropped: set[int] = set()
        for run in self._runs:
            queue = run.queues.get(client)
            if queue is not None:
                self._drop_from(queue, numbers, dropped)
                if not queue.by_shape:
                    del run.queues[client]
                    run.turns.remove(queue)
            for place, mixture in enumerate(run.ordered):
                if isinstance(mixture, Mixture) and mixture.sender == client:
                    run.ordered[place] = self._without(mixture, numbers, dropped)
        while self._runs and not (self._runs[0].turns or self._runs[0].ordered):
            self._runs.popleft()
        return dropped

    def _drop_from(self, queue: _Queue, numbers: Collection[int], dropped: set[int]) -> None:
        n_before = queue.n
        for key, waiting in list(queue.by_shape.items()):
            left = [self._without(bunch, numbers, dropped) for bunch in waiting]
            queue.by_shape[key] = kept = deque(bunch for bunch in left if len(bunch))
            queue.n += sum(map(len, kept)) - sum(map(len, waiting))
            if not kept:
                del queue.by_shape[key]
        if queue.n < n_before:
            queue.were_many = queue.n > FEW

    def _without(self, what: D, numbers: Collection[int], dropped: set[int]) -> D:
        """Leave reads out of what waits."""
        left, gone = what.without_reads(numbers)
        if gone:
            dropped.update(gone)
            self._gone([what])
            self._come(left)
        return left

    def _come(self, what: Waiting[C]) -> None:
        self.n += len(what)
        self.n_bytes += what.n_bytes
        self.backlog_s += what.expected_s

    def _gone(self, some: Sequence[Waiting[C]]) -> None:
        self.n -= sum(map(len, some))
        self.n_bytes -= sum(map(attrgetter("n_bytes"), some))
        # Sums of many small floats drift.
        self.backlog_s -= sum(map(attrgetter("expected_s"), some))
        self.backlog_s = max(0.0, self.backlog_s) if self.n else 0.0


def _take_ordered(run: _Run[C], load: Load) -> list[Waiting[C]]:
    """Take what is in order, while there is room."""
    taken: list[Waiting[C]] = []
    while run.ordered:
        entering, left = _enter(run.ordered[0], load)
        if entering is not None:
            taken.append(entering)
        if left is not None:
            run.ordered[0] = left
            break
        run.ordered.popleft()
    return taken


def _enter(what: Waiting[C], load: Load) -> tuple[Waiting[C] | None, Waiting[C] | None]:
    """Give what has room, and what has not."""
    if isinstance(what, Bunch):
        what.n_entering = min(load.room(what.shape, what.weight), len(what))
        if not what.n_entering:
            return None, what
        load.add(what.shape, what.n_entering * what.weight, what.n_entering)
        return what.enter()
    if isinstance(what, Mixture):
        n = load.room_in_order(what)
        if not n:
            return None, what
        front, rest = what.split(n)
        for bunch in front.bunches:
            load.add(bunch.shape, len(bunch) * bunch.weight, len(bunch))
        return front, rest
    operations = what.entries
    weight = max(1.0, what.n_bytes / WEIGHT_BYTES)
    if what.shape is not None:
        if not load.room(what.shape, weight):
            return None, what
        load.add(what.shape, weight)
        return what, None
    if not operations:
        load.begin_batch()
        return what, None
    if not load.room(operations[0].shape, weight):
        return None, what
    for operation in operations:
        load.add(operation.shape, weight / len(operations))
    return what, None


def _take_reads(run: _Run[C], load: Load, queues: Sequence[_Queue]) -> list[Bunch]:
    """Take reads of some clients, each in turn, while there is room; gives them as they came."""
    entering: list[Bunch] = []
    turns, in_vain = deque(queues), list[_Queue]()
    had_turn: dict[int, _Queue] = {}
    while turns:
        queue = turns.popleft()
        n_scans = load.n_scans
        if not _take_turn(queue, load, entering):
            in_vain.append(queue)
            continue
        had_turn.pop(id(queue), None)
        had_turn[id(queue)] = queue
        if queue.by_shape:
            turns.append(queue)
        else:
            del run.queues[queue.client]
        if load.n_scans > n_scans:
            # Nothing else makes room for them.
            turns.extendleft(reversed(in_vain))
            in_vain.clear()
    # Who had no turn keeps the place. Whoever comes first finds room whatever is wanted; everybody does once.
    others = [queue for queue in run.turns if id(queue) not in had_turn]
    again = deque(queue for queue in had_turn.values() if queue.by_shape)
    if not others:
        again.rotate(-1)
    run.turns = deque((*others, *again))
    taken: list[Bunch] = []
    for bunch in entering:
        front, rest = bunch.enter()
        taken.append(front)
        if rest is not None:
            run.queues[bunch.sender].by_shape[id(bunch.shape)][0] = rest
    return sorted(taken, key=attrgetter("arrival"))


def _take_turn(queue: _Queue, load: Load, entering: list[Bunch]) -> bool:
    """Take a few reads of one client and shape, of one that is scanned for anyway if it has any."""
    shapes = sorted(queue.by_shape, key=lambda shape: not load.has_scan(shape))
    for key in shapes:
        waiting = queue.by_shape[key]
        first = waiting[0]
        room = min(load.room(first.shape, first.weight), QUANTUM)
        if room <= 0:
            continue
        n, weight = _let_in(waiting, room, entering)
        load.add(first.shape, weight, n)
        queue.n -= n
        # Its other shapes come first in its next turn.
        del queue.by_shape[key]
        if waiting:
            queue.by_shape[key] = waiting
        return True
    return False


def _let_in(waiting: deque[Bunch], room: int, entering: list[Bunch]) -> tuple[int, float]:
    """Let the first reads of a shape enter; gives how many, and their weight."""
    n, weight = 0, 0.0
    while waiting and n < room:
        bunch = waiting[0]
        some = min(room - n, len(bunch) - bunch.n_entering)
        if not bunch.n_entering:
            entering.append(bunch)
        bunch.n_entering += some
        n += some
        weight += some * bunch.weight
        if bunch.n_entering == len(bunch):
            waiting.popleft()
    return n, weight
