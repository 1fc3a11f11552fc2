"""What is delivered to a storage process becomes operations that wait for a cycle.

Rules of the file: everything waits in the order in which it came; what no honest client could
have sent fails at its place, alone. Reads outside the order run where they came, and are numbered
below 0 from here on, since their numbers are no messages'.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from crescando.engine.base import Failed
from crescando.engine.statement import (
    Kind,
    Operation,
    Shape,
    decode_call,
    decode_parameters,
    decode_shapes,
    encode_call,
)
from crescando.roles.admission import Admission
from crescando.roles.areas import Barrier
from crescando.roles.bunches import Bunch
from crescando.roles.decoding import OPERATION_BYTES, decode_together
from crescando.roles.ledger import Ledger
from crescando.roles.limits import StorageLimits
from crescando.roles.load_messages import ORDERED_CHUNK, ChunkOrder, decode_chunk
from crescando.roles.pinning import TakePin
from crescando.roles.shapes import KnownShape, Shapes
from crescando.routing.batch import Delivery
from crescando.types import MessageKind, ProcessId, Scope

_CONFIG = int(MessageKind.CONFIG)

_WRITE = int(MessageKind.WRITE)

_ORDERED_CHUNK = encode_call(ORDERED_CHUNK, b"")[:2]
"""How the payload of such a message begins."""

Stage = Callable[[ChunkOrder, ProcessId, int, int, Scope], None]

MALFORMED = "the operation's payload is malformed"
"""Why an operation fails that cannot be decoded, or is not what its header says."""


class Arrivals:
    """Decodes deliveries and lets their operations wait.

    Parameters
    ----------
    limits : StorageLimits
    ledger : callable
        Gives the ledger of a client.
    apply : callable
        Takes the configuration message of a delivery at an index, at its place.
    fail : callable
        Tells a client that an operation has failed.
    stage : callable
        Takes the order of a chunk of a load, its sender, number, position and scope.

    Attributes
    ----------
    waiting : Admission
    shapes : Shapes
    """

    def __init__(
        self,
        limits: StorageLimits,
        *,
        ledger: Callable[[ProcessId], Ledger],
        apply: Callable[[Delivery, int], None],
        fail: Callable[[ProcessId, Failed], None],
        stage: Stage,
    ) -> None:
        self.waiting: Admission[Barrier | TakePin] = Admission(limits.cycle_operations, limits.cycle_s)
        self.shapes = Shapes(limits.shapes, limits.shapes_bytes)
        self._records_max = limits.records
        self._ledger = ledger
        self._apply = apply
        self._fail = fail
        self._stage = stage

    def take(self, part: Delivery) -> None:
        """Queue what was delivered in the order."""
        shapes = _shapes_of(part)
        together = None if (part.kind == _CONFIG).any() else self._decode_together(part, shapes)
        if together is not None:
            ledger = self._ledger(part.sender)
            together = _without_called_off(together, ledger)
            for bunch in together:
                ledger.enter(bunch)
            self.waiting.put_all(together)
            return
        for index in range(len(part)):
            at, number = int(part.position[index]), int(part.number[index])
            if part.kind[index] == _CONFIG:
                self._apply(part, index)
                continue
            scope = part.scope_of(index)
            ledger = self._ledger(part.sender)
            chunk = _chunk_of(part, index)
            if chunk is not None:
                ledger.scopes[number] = scope, True
                self._stage(chunk, part.sender, number, at, scope)
                continue
            operations = self._decode(part, index, shapes)
            if not operations:
                failed = Failed(number, at, scope, "invalid", (), MALFORMED)
                ledger.keep_failed(failed, self._records_max)
                self._fail(part.sender, failed)
                continue
            is_write = operations[0].shape.kind is not Kind.READ
            if _is_called_off(operations[0], ledger):
                continue
            ledger.scopes[number] = (scope, is_write)
            self._append(part, index, operations)

    def take_reads(self, part: Delivery, at: int) -> None:
        """Queue reads outside the order of one client at a position, behind everything delivered."""
        shapes = _shapes_of(part)
        attempts = msgspec.structs.replace(part, number=-part.number)
        together = self._decode_together(attempts, shapes)
        ledger = self._ledger(part.sender)
        if together is not None and all(bunch.is_read for bunch in together):
            self.waiting.put_all(_without_called_off(together, ledger))
            return
        for index in range(len(attempts)):
            operations = self._decode(attempts, index, shapes)
            if operations and operations[0].shape.kind is Kind.READ:
                if not _is_called_off(operations[0], ledger):
                    self._append(attempts, index, operations)
                continue
            number, scope = int(attempts.number[index]), attempts.scope_of(index)
            self._fail(part.sender, Failed(number, at, scope, "invalid", (), MALFORMED))

    def call_off(self, client: ProcessId, numbers: set[int]) -> set[int]:
        """Drop reads for whose answers nobody waits; gives those that do not wait here."""
        ledger = self._ledger(client)
        left = numbers - self.waiting.drop(client, numbers)
        for number in numbers:
            _, is_write = ledger.scopes.get(number, ((), False))
            if not is_write:
                ledger.scopes.pop(number, None)
        for number in left:
            ledger.call_off(number)
        return left

    def _append(self, part: Delivery, index: int, operations: tuple[Operation, ...]) -> None:
        n_bytes = int(part.payload_offsets[index + 1] - part.payload_offsets[index])
        n_bytes += OPERATION_BYTES * len(operations)
        work = operations[0] if len(operations) == 1 else operations
        self.waiting.put(work, operations[0].position, n_bytes)

    def _decode_together(self, part: Delivery, shapes: tuple[bytes, ...]) -> list[Bunch] | None:
        """Give the operations, shape by shape; None if any message has to be looked at alone."""

        def shape_of(code: int) -> KnownShape | None:
            return self.shapes.of(shapes[code]) if 0 <= code < len(shapes) else None

        return decode_together(part, shape_of)

    def _decode(self, part: Delivery, index: int, shapes: tuple[bytes, ...]) -> tuple[Operation, ...]:
        """Give the operation, or a transaction's; none if no honest client could have sent it."""
        found: list[tuple[Shape, tuple[Any, ...]]] = []
        try:
            calls = decode_call(part.payload_of(index)).steps
            for call in calls:
                known = self.shapes.of(shapes[call.shape]) if call.shape >= 0 else None
                if known is None or not _is_routed_as(known.shape, part, index, step=len(found)):
                    return ()
                found.append((known.shape, decode_parameters(known.shape, call.parameters)))
        except (msgspec.MsgspecError, ValueError, IndexError, TypeError, RecursionError):
            return ()
        at, number, scope = int(part.position[index]), int(part.number[index]), part.scope_of(index)
        if len(found) == 1:
            return (Operation(at, part.sender, number, *found[0], scope),)
        return tuple(
            Operation(at, part.sender, number, *shape_and_parameters, scope, step)
            for step, shape_and_parameters in enumerate(found)
        )


def _chunk_of(part: Delivery, index: int) -> ChunkOrder | None:
    """Give the order of a chunk, if that is what a message is."""
    payload = part.payload_of(index)
    if payload[:2] != _ORDERED_CHUNK or part.kind[index] != _WRITE:
        return None
    try:
        return decode_chunk(decode_call(payload).parameters)
    except (msgspec.MsgspecError, ValueError, TypeError, IndexError, RecursionError):
        return None


def _shapes_of(part: Delivery) -> tuple[bytes, ...]:
    """Give the shapes that a delivery's payloads share; none if they are malformed."""
    try:
        return decode_shapes(part.shared) if part.shared else ()
    except (msgspec.MsgspecError, ValueError):
        return ()


def _is_called_off(operation: Operation, ledger: Ledger) -> bool:
    """Whether an operation is a read that was called off before it came; asked once."""
    if operation.shape.kind is not Kind.READ or operation.number not in ledger.forgotten:
        return False
    del ledger.forgotten[operation.number]
    return True


def _without_called_off(bunches: list[Bunch], ledger: Ledger) -> list[Bunch]:
    """Leave out reads that were called off before they came."""
    if not ledger.forgotten:
        return bunches
    left = []
    for bunch in bunches:
        wanted, unwanted = bunch.without_reads(ledger.forgotten)
        for number in unwanted:
            del ledger.forgotten[number]
        if len(wanted):
            left.append(wanted)
    return left


def _is_routed_as(shape: Shape, part: Delivery, index: int, *, step: int) -> bool:
    """Whether the routing header tells the truth: a write sent as a read would reach one replica only.

    It names the table of a transaction's first write; all others are writes too.
    """
    is_read = bool(part.kind[index] == MessageKind.READ)
    if step:
        return not is_read and shape.kind is not Kind.READ
    return (shape.kind is Kind.READ) == is_read and shape.table == part.table[index]
