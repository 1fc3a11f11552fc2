"""Many operations in stretches, between which others get the interpreter.

Rules of the file: most of what is done to many operations is a few calls of compiled code, in which no
other thread gets the interpreter, and a thread that computes without a pause is asked for it once
in several milliseconds only: what the store's loop and its scans do takes many such turns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

STRETCH = 1 << 11
"""Operations that are bound or submitted in one go: some two milliseconds."""

GIVE_WAY_S = 2e-5
"""A pause in which whoever waits for the interpreter gets it; of no time, it would be taken back first."""


def stretches(n: int) -> Iterator[slice]:
    """Cut n operations into stretches, and give way to other threads between two of them."""
    for first in range(0, n, STRETCH):
        if first:
            time.sleep(GIVE_WAY_S)
        yield slice(first, first + STRETCH)
