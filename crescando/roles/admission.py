"""What waits at a storage process for a cycle, and which of it shares the next one.

Rules of the file: writes enter in the order. A read must see exactly the writes before it,
so it may overtake other reads, but no write; a write enters when every read before it has.
Between two writes, each client therefore has a fair share: clients take turns, a few reads
at a time, and the shapes of one client take turns too, so that neither one client's million
reads nor its one slow shape holds up anybody else. A cycle is bounded in operations and in
the time that it is expected to take; whatever comes first in it enters in any case.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Generic, TypeVar

import msgspec

from crescando.engine.statement import Kind, Operation, Shape
from crescando.roles.costs import Costs
from crescando.types import ProcessId

C = TypeVar("C")
"""What changes tables, and means nothing here."""

QUANTUM = 64
"""Reads of one client and shape that enter before it is another's turn."""

WEIGHT_BYTES = 1024
"""So many bytes of an operation count as one more when its time is estimated: an insert has many rows."""


class Item(msgspec.Struct, Generic[C], eq=False, gc=False):
    """One entry of the order.

    Attributes
    ----------
    work : Operation, tuple of Operation, or a change of tables
        The writes of a transaction come together and are executed together.
    position : int
    n_bytes : int
        What it takes in memory, about.
    place : int
        Among all entries that ever waited.
    weight : float
        How many plain operations it counts as.
    each_s : float
        The time it was expected to take when it came, the scan apart.
    """

    work: Operation | tuple[Operation, ...] | C
    position: int
    n_bytes: int
    place: int = 0
    weight: float = 1.0
    each_s: float = 0.0

    @property
    def operations(self) -> tuple[Operation, ...]:
        """Its operations; none if it changes tables."""
        if isinstance(self.work, Operation):
            return (self.work,)
        return self.work if isinstance(self.work, tuple) else ()


@dataclass(slots=True)
class _Queue(Generic[C]):
    """Reads of one client between two writes, by shape."""

    client: ProcessId
    by_shape: dict[int, deque[Item[C]]] = field(default_factory=dict)


@dataclass(slots=True)
class _Run(Generic[C]):
    """Reads that have no write between them, and the writes behind them that have no read between."""

    queues: dict[ProcessId, _Queue[C]] = field(default_factory=dict)
    turns: deque[_Queue[C]] = field(default_factory=deque)
    writes: deque[Item[C]] = field(default_factory=deque)


class Load:
    """What a cycle has taken on, and how much more it may.

    Parameters
    ----------
    costs : Costs
    operations_max : int
    target_s : float

    Attributes
    ----------
    n : int
        Operations taken on.
    weights : dict of int to float
        By shape: the weight of its operations together.
    """

    def __init__(self, costs: Costs, operations_max: int, target_s: float) -> None:
        self._costs = costs
        self._operations_max = operations_max
        self._target_s = target_s
        self._scans_s = 0.0
        self._each_s = 0.0
        self._has_writes = False
        self._scanned: set[int] = set()
        self.n = 0
        self.weights: dict[int, float] = {}

    @property
    def expected_s(self) -> float:
        """How long it is expected to take."""
        return self._scans_s + self._each_s

    def room(self, shape: Shape, weight: float) -> int:
        """Give how many operations of a shape may enter, each of some weight.

        Operations may take the target's time, or as long as the scans that they
        share if that is more: a cycle on a large table is worth its scans. Reads
        alone lose nothing if some of their shapes are scanned for in the next
        cycle; behind writes the order would make them wait for ever more cycles.
        """
        cost = self._costs.of(shape)
        scans_s = self._scans_s
        if id(shape) not in self._scanned:
            scans_s += cost.scan_s
            is_alone = shape.kind is Kind.READ and not self._has_writes
            if is_alone and self.n and scans_s + self._each_s > self._target_s:
                return 0
        left_s = max(self._target_s - scans_s, scans_s) - self._each_s
        room = min(self._operations_max - self.n, int(left_s / (cost.each_s * weight)))
        return max(room, int(self.n == 0))

    def add(self, operation: Operation, weight: float, n: int = 1) -> None:
        """Take on one operation, or `n` like it that weigh so much together."""
        shape = operation.shape
        cost, key = self._costs.of(shape), id(shape)
        if key not in self._scanned:
            self._scanned.add(key)
            self._scans_s += cost.scan_s
        self._each_s += cost.each_s * weight
        self._has_writes = self._has_writes or shape.kind is not Kind.READ
        self.weights[key] = self.weights.get(key, 0.0) + weight
        self.n += n

    def has_scan(self, shape: int) -> bool:
        """Whether a shape's scan is taken on already."""
        return shape in self._scanned

    def begin_batch(self) -> None:
        """A table changes: what follows is scanned for apart."""
        self._scanned.clear()


class Admission(Generic[C]):
    """The entries that wait.

    Parameters
    ----------
    operations_max : int
        Operations of one cycle.
    target_s : float
        The time that one cycle is to take.

    Attributes
    ----------
    n, n_bytes : int
        How many entries wait, and what they take.
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
        self._place = 0

    def __len__(self) -> int:
        return self.n

    def put(self, work: Operation | Sequence[Operation] | C, position: int, n_bytes: int) -> None:
        """Let an entry wait behind all others."""
        self._place += 1
        kept = tuple(work) if isinstance(work, (list, tuple)) else work
        item: Item[C] = Item(kept, position, n_bytes, self._place)  # type: ignore[arg-type]
        item.weight = max(1.0, n_bytes / WEIGHT_BYTES)
        operations = item.operations
        if operations:
            item.each_s = item.weight * self.costs.of(operations[0].shape).each_s
        self.n += 1
        self.n_bytes += n_bytes
        self.backlog_s += item.each_s
        is_read = len(operations) == 1 and operations[0].shape.kind is Kind.READ
        if not self._runs or (is_read and self._runs[-1].writes):
            self._runs.append(_Run())
        run = self._runs[-1]
        if not is_read:
            run.writes.append(item)
            return
        read = operations[0]
        queue = run.queues.get(read.sender)
        if queue is None:
            queue = run.queues[read.sender] = _Queue(read.sender)
            run.turns.append(queue)
        items = queue.by_shape.get(id(read.shape))
        if items is None:
            items = queue.by_shape[id(read.shape)] = deque()
        items.append(item)

    def put_all(self, operations: Sequence[Operation], sizes: Sequence[int]) -> None:
        """Let operations of one client wait behind all others, as `put` does one by one."""
        shape: Shape | None = None
        queued: deque[Item[C]] | None = None
        each_s = 0.0
        for operation, n_bytes in zip(operations, sizes, strict=True):
            if operation.shape is not shape:
                self.put(operation, operation.position, n_bytes)
                shape, queued = operation.shape, self._queued_last(operation)
                each_s = self.costs.of(shape).each_s
                continue
            if queued is None:
                self.put(operation, operation.position, n_bytes)
                continue
            # Behind a read of the same client and shape, with no write between.
            self._place += 1
            weight = n_bytes / WEIGHT_BYTES if n_bytes > WEIGHT_BYTES else 1.0
            queued.append(Item(operation, operation.position, n_bytes, self._place, weight, weight * each_s))
            self.n += 1
            self.n_bytes += n_bytes
            self.backlog_s += weight * each_s

    def _queued_last(self, operation: Operation) -> deque[Item[C]] | None:
        """Give the queue in which a read that has just been put waits; None for a write."""
        if operation.shape.kind is not Kind.READ:
            return None
        return self._runs[-1].queues[operation.sender].by_shape[id(operation.shape)]

    def take(self) -> tuple[list[Item[C]], Load]:
        """Give what shares the next cycle, in order, and what that weighs."""
        load = Load(self.costs, self._operations_max, self._target_s)
        taken: list[Item[C]] = []
        while self._runs:
            run = self._runs[0]
            start = len(taken)
            _take_reads(run, load, taken)
            taken[start:] = sorted(taken[start:], key=attrgetter("place"))
            if run.turns:
                break
            _take_writes(run, load, taken)
            if run.writes:
                break
            self._runs.popleft()
        self._left(taken)
        return taken, load

    def drop(self, client: ProcessId, wanted: Callable[[Operation], bool]) -> list[Item[C]]:
        """Forget the waiting reads of a client that are not wanted any more; gives them."""
        dropped: list[Item[C]] = []
        for run in self._runs:
            queue = run.queues.get(client)
            if queue is None:
                continue
            for key, items in list(queue.by_shape.items()):
                kept: deque[Item[C]] = deque()
                for item in items:
                    (kept if wanted(item.operations[0]) else dropped).append(item)
                queue.by_shape[key] = kept
                if not kept:
                    del queue.by_shape[key]
            if not queue.by_shape:
                del run.queues[client]
                run.turns.remove(queue)
        self._left(dropped)
        while self._runs and not (self._runs[0].turns or self._runs[0].writes):
            self._runs.popleft()
        return dropped

    def _left(self, items: Sequence[Item[C]]) -> None:
        self.n -= len(items)
        self.n_bytes -= sum([item.n_bytes for item in items])
        # Sums of many small floats drift.
        self.backlog_s = max(0.0, self.backlog_s - sum([item.each_s for item in items])) if self.n else 0.0


def _take_writes(run: _Run[C], load: Load, taken: list[Item[C]]) -> None:
    """Take writes and changes of tables, in order, while there is room."""
    while run.writes:
        item = run.writes[0]
        operations = item.operations
        if not operations:
            load.begin_batch()
        elif not load.room(operations[0].shape, item.weight):
            return
        for operation in operations:
            load.add(operation, item.weight / len(operations))
        taken.append(run.writes.popleft())


def _take_reads(run: _Run[C], load: Load, taken: list[Item[C]]) -> None:
    """Take reads, client by client in turn, while there is room."""
    n_in_vain = 0
    while run.turns and n_in_vain < len(run.turns):
        queue = run.turns.popleft()
        n_in_vain = 0 if _take_turn(queue, load, taken) else n_in_vain + 1
        if queue.by_shape:
            run.turns.append(queue)
        else:
            del run.queues[queue.client]


def _take_turn(queue: _Queue[C], load: Load, taken: list[Item[C]]) -> bool:
    """Take a few reads of one client and shape, of one that is scanned for anyway if it has any."""
    shapes = sorted(queue.by_shape, key=lambda shape: not load.has_scan(shape))
    for key in shapes:
        items = queue.by_shape[key]
        first = items[0]
        room = min(load.room(first.operations[0].shape, first.weight), QUANTUM, len(items))
        if room <= 0:
            continue
        entering = [items.popleft() for _ in range(room)]
        load.add(first.operations[0], sum([item.weight for item in entering]), room)
        taken.extend(entering)
        # Its other shapes come first in its next turn.
        del queue.by_shape[key]
        if items:
            queue.by_shape[key] = items
        return True
    return False
