"""Statement shapes as a storage process knows them: decoded once, and remembered."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import msgspec

from crescando.engine.calls import layout_of
from crescando.engine.statement import Shape
from crescando.schema import DataType


@dataclass(frozen=True, slots=True)
class KnownShape:
    """A decoded shape.

    Attributes
    ----------
    shape : Shape
    layout : tuple of DataType, or None
        The types of its parameters by index, if its operations may be a run: each
        is one value of one type.
    """

    shape: Shape
    layout: tuple[DataType, ...] | None


class Shapes:
    """The shapes that came last, by their encoding.

    Parameters
    ----------
    n_max, bytes_max : int
        How many are remembered, and what their encodings may take; the oldest give way.
    """

    def __init__(self, n_max: int, bytes_max: int) -> None:
        self._n_max = n_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._known: dict[bytes, KnownShape | None] = {}

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._known)

    def of(self, body: bytes) -> KnownShape | None:
        """Give the shape of an encoding; None if it is malformed."""
        if body not in self._known:
            self._bytes += len(body)
            while self._known and (len(self._known) >= self._n_max or self._bytes > self._bytes_max):
                oldest = next(iter(self._known))
                del self._known[oldest]
                self._bytes -= len(oldest)
            try:
                shape = Shape.decode(body)
                self._known[body] = KnownShape(shape, layout_of(shape))
            except (msgspec.MsgspecError, ValueError, RecursionError):
                self._known[body] = None
        return self._known[body]
