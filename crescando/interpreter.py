"""How a program that does much with a store, or is a process of a cluster, has Python's interpreter set.

Rules of the file: everything here is the whole program's, so no other module of the library
calls it on its own: whoever owns the program does.
"""

from __future__ import annotations

import gc
import sys

COLLECTOR_THRESHOLDS = 100_000, 20, 50
"""The default collects after every 700 objects, and in the end walks through everything again and again. The
rows of ten thousand answers are forty thousand objects, mostly gone before there are so many; to look at a
hundred thousand that are not takes some ten milliseconds."""

SWITCH_S = 0.0005
"""After so long whoever has the interpreter is asked for it; the default is ten times as long, and an answer
needs it again and again: at each step of a scan, and between the loop and whoever waits."""


def tune_interpreter() -> None:
    """Set the interpreter up for many small operations and several threads: less collecting, sooner turns.

    What is in memory now is passed over by the collector of cycles for good, which runs rarely from
    now on; a thread that computes gives way to others after half a millisecond instead of five, or as
    soon as it does already. To be called when a program has started, once; it holds for the whole program.

    >>> import crescando
    >>> crescando.tune_interpreter()
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(*COLLECTOR_THRESHOLDS)
    if sys.getswitchinterval() > SWITCH_S:
        sys.setswitchinterval(SWITCH_S)
