"""Which write of its session a read outside the order must see."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True, eq=False)
class Behind:
    """The place of reads among the writes of their session.

    Attributes
    ----------
    written : int or None
        The number of the last write that the session had asked for before; 0 without one,
        None until it has a number.
    """

    written: int | None
