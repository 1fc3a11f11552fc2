"""Sides of one comparison, taking turns on the same batches, with equal answers required.

Rules of the file: sides run in one process and alternate, batch by batch, so
that both meet the same machine; each batch is new to both. The first batch is a
warm-up and not counted. What a side answers is compared outside the time that
is measured, on every batch.
"""

from __future__ import annotations

import gc
import hashlib
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa

from benchmarks.verdicts import spread

B = TypeVar("B")

Side = Callable[[B], Any]
"""Does the work of one batch and gives the answer."""


class DisagreementError(AssertionError):
    """Two sides gave different answers to the same batch: no figure counts."""


@dataclass(frozen=True, slots=True)
class Timing:
    """Times of one side, one per counted batch.

    Attributes
    ----------
    seconds : tuple of float
    n_operations : int
        Per batch.
    """

    seconds: tuple[float, ...]
    n_operations: int

    @property
    def median_s(self) -> float:
        """The median time of a batch."""
        return statistics.median(self.seconds)

    @property
    def rate_s(self) -> float:
        """Operations per second at the median time."""
        return self.n_operations / self.median_s

    def told(self) -> dict[str, Any]:
        """Give rate and spread."""
        return {
            "rate_s": spread([self.n_operations / s for s in self.seconds], 0),
            "ms": spread([1e3 * s for s in self.seconds]),
        }


def timed(side: Side[B], batch: B) -> tuple[float, Any]:
    """Give how long a side takes for a batch, in seconds, and its answer."""
    # The young are collected, so that a side does not pay for what another left behind;
    # all others were set aside when the rows were loaded (`Stock`).
    gc.collect(1)
    begin_s = time.perf_counter()
    answer = side(batch)
    return time.perf_counter() - begin_s, answer


def contest(
    sides: Mapping[str, Side[B]], batches: Sequence[B], checksum: Callable[[Any], Any]
) -> dict[str, Timing]:
    """Let sides take turns on each batch.

    Parameters
    ----------
    sides : mapping
    batches : sequence
        Of equal length; the first is the warm-up.
    checksum : callable
        Gives what of an answer must be equal.

    Raises
    ------
    DisagreementError
        If answers differ.
    """
    names = list(sides)
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for turn, batch in enumerate(batches):
        told: dict[str, Any] = {}
        for place in range(len(names)):
            name = names[(turn + place) % len(names)]
            taken_s, answer = timed(sides[name], batch)
            told[name] = checksum(answer)
            del answer
            if turn:
                seconds[name].append(taken_s)
        require_equal(told)
    n = len(batches[0])  # type: ignore[arg-type]
    return {name: Timing(tuple(taken), n) for name, taken in seconds.items()}


def require_equal(told: Mapping[str, Any]) -> None:
    """Raise `DisagreementError` unless all sides told the same."""
    first = next(iter(told))
    for name, value in told.items():
        if value != told[first]:
            raise DisagreementError(f"{first} answers {told[first]!r}, {name} answers {value!r}")


HOPELESS = 8
"""A way that is so many times slower on a small batch is not tried on a larger one."""


def fastest(variants: Mapping[str, Side[B]], batches: Sequence[B], checksum: Callable[[Any], Any]) -> str:
    """Give the name of the way in which a peer does the last batch fastest; all must agree.

    Batches grow: some ways would take minutes and all memory for a whole one, and are left out where
    that shows.
    """
    hopeful, chosen = dict(variants), next(iter(variants))
    for batch in batches:
        if len(hopeful) == 1:
            break
        taken = _taken(hopeful, batch, checksum)
        chosen = min(taken, key=taken.__getitem__)
        hopeful = {name: variants[name] for name in taken if taken[name] <= HOPELESS * taken[chosen]}
    return chosen


def _taken(variants: Mapping[str, Side[B]], batch: B, checksum: Callable[[Any], Any]) -> dict[str, float]:
    """Give the time of each way; the better of two, as the first may have built something that is kept."""
    told: dict[str, Any] = {}
    taken: dict[str, float] = {}
    for name, side in variants.items():
        taken_s, answer = timed(side, batch)
        told[name] = checksum(answer)
        del answer
        taken[name] = min(taken_s, timed(side, batch)[0])
    require_equal(told)
    return taken


def arrow_checksum(answer: pa.Table) -> tuple[int, str]:
    """Give the number of rows and a digest over them, in whatever order an operation's rows come.

    The table has a column ``op``, ascending, and `ticket_id`; texts may be in any of Arrow's forms.
    """
    op = answer.column("op").to_numpy()
    if len(op) > 1 and (np.diff(op) < 0).any():
        raise DisagreementError("answers are not in the order of the operations")
    order = np.lexsort((answer.column("ticket_id").to_numpy(), op))
    state = hashlib.blake2b(op[order].astype(np.int64).tobytes(), digest_size=16)
    rows = pa.array(order)
    for name in sorted(set(answer.column_names) - {"op"}):
        column = answer.column(name).take(rows)
        kind = column.type
        if pa.types.is_integer(kind):
            state.update(column.cast(pa.int64()).to_numpy().tobytes())
            continue
        if pa.types.is_dictionary(kind):
            column = column.cast(kind.value_type)
        state.update("\0".join("\1" if each is None else str(each) for each in column.to_pylist()).encode())
    return len(op), state.hexdigest()


def rows_checksum(answer: Sequence[Sequence[tuple[Any, ...]]]) -> tuple[int, str]:
    """Give the number of rows of all reads and a digest, in whatever order a read's rows come."""
    state = hashlib.blake2b(digest_size=16)
    n = 0
    for rows in answer:
        n += len(rows)
        state.update(repr(sorted(map(tuple, rows))).encode())
    return n, state.hexdigest()
