"""How much memory a storage process holds, against how much it may.

Rules of the file: what is delivered is executed everywhere, so memory never refuses it.
Above the watermark a process says so; at the limit it stops, as one that fails, and the
others go on. How full one is is nobody else's business: no answer depends on it.
"""

from __future__ import annotations

UNLIMITED = 1 << 62
"""More than there is."""


class Memory:
    """What one process holds.

    Parameters
    ----------
    bytes_max : int
        Above so many it stops.
    watermark : float
        Share of that from which it calls itself full.

    Attributes
    ----------
    n_bytes : int
        What it held when it looked last: rows, texts, work and answers.
    """

    def __init__(self, bytes_max: int, watermark: float) -> None:
        self._bytes_max = bytes_max
        self._watermark = watermark
        self.n_bytes = 0

    @property
    def is_limited(self) -> bool:
        """Whether there is a limit, so that looking is worth while."""
        return self._bytes_max < UNLIMITED

    @property
    def is_full(self) -> bool:
        """Whether it holds more than its watermark allows."""
        return self.n_bytes > self._watermark * self._bytes_max

    def look(self, n_bytes: int) -> str:
        """Take what is held now; gives why to stop, empty while there is room."""
        self.n_bytes = n_bytes
        if n_bytes <= self._bytes_max:
            return ""
        return (
            f"memory is exhausted: it holds {n_bytes:,} bytes and may hold {self._bytes_max:,}; "
            "start a process with more memory in its place, or spread the rows over more processes"
        )
