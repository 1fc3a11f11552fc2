"""The contract of a rival: a store or library that is given the same rows and the same work.

Rules of the file: a rival offers every way in which it could do a batch, and the
contest keeps to the one that is fastest there. Nothing of it is tuned down; what
it does not do, compared with us, it says itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any, ClassVar

import pyarrow as pa

Ways = Mapping[str, Callable[[Any], Any]]
"""Ways to do a batch, by name; each gives the same answer."""

THREADS = 2
"""What rivals that use threads get."""


class Rival:
    """One rival, without rows until `load`.

    Attributes
    ----------
    name, package : str
        And where to get it.
    module : str
        What must be importable.
    lacks : str
        What it does not do.
    """

    name: ClassVar[str]
    module: ClassVar[str]
    package: ClassVar[str]
    lacks: ClassVar[str]

    def available(self) -> str:
        """Give "" if it can run here, else why not."""
        try:
            import_module(self.module)
        except ImportError as error:
            return f"{error}; install {self.package}"
        return ""

    def version(self) -> str:
        """Give the version."""
        return str(getattr(import_module(self.module), "__version__", "?"))

    def load(self, table: pa.Table) -> None:
        """Take in the rows."""
        raise NotImplementedError

    def close(self) -> None:
        """Free everything; harmless when there is nothing."""


def hex_buckets(lows: list[str], highs: list[str], digits: int) -> tuple[list[int], list[str]]:
    """Cut ranges of hexadecimal texts into the beginnings that they touch: (operation, beginning) pairs."""
    ops, keys = [], []
    for op, (low, high) in enumerate(zip(lows, highs, strict=True)):
        for number in range(int(low[:digits], 16), int(high[:digits], 16) + 1):
            ops.append(op)
            keys.append(f"{number:0{digits}x}")
    return ops, keys


def exploded(keys: list[str], lows: list[int], highs: list[int]) -> tuple[list[int], list[str], list[int]]:
    """Give one (operation, key, value) for each whole number of each range."""
    triples = [
        (op, key, value)
        for op, (key, low, high) in enumerate(zip(keys, lows, highs, strict=True))
        for value in range(low, high + 1)
    ]
    ops, names, values = zip(*triples, strict=True) if triples else ((), (), ())
    return list(ops), list(names), list(values)
