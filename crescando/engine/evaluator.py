"""Fused arithmetic: the one module that sees numexpr.

Rules of the file: numexpr gets only text that this module writes (operands by
number, ``+ - *`` and brackets: no names, no constants, nothing from outside),
with operands given one by one and never looked up in a caller's frame; only
operators that are exactly NumPy's, on float64 (integers would wrap, decimals
are exact); only pieces small enough for one thread; and never a change of its
global settings. A compiled object keeps buffers of its own, which two threads
must not use at once: whoever runs one takes it out of the stock, and compiles
another if there is none. Everything else, and every comparison, is faster in
NumPy.
"""

from __future__ import annotations

from typing import Any

import numexpr
import numpy as np
from numpy.typing import NDArray

from crescando.engine.statement import Apply, Term
from crescando.schema import DataType

_FUSED = frozenset({"+", "-", "*", "neg"})

OPERATORS_MIN = 3
"""Below this, one temporary array per operator is cheaper than a call (measured)."""

OPERANDS_MAX = 16
"""numexpr refuses a few dozen operands; a wider tree is split: NumPy works its top, and its parts are
fused as far as they are narrow enough."""

ROWS_MIN = 32_768
"""Below this NumPy's temporaries stay in the cache and win (measured)."""

_PIECE = 2_000
"""Rows per call: numexpr wakes its threads from 2,048 rows on (measured by their CPU time)."""

_PROGRAMS_MAX = 256


class Evaluator:
    """Compiles and keeps fused programs; any number of threads may use it."""

    def __init__(self) -> None:
        # Taking from and adding to a list are atomic, so that no lock is needed.
        self._programs: dict[str, list[Any]] = {}
        self._plans: dict[int, tuple[Term, tuple[str, tuple[Term, ...]] | None]] = {}

    def plan(self, term: Apply) -> tuple[str, tuple[Term, ...]] | None:
        """Give a tree's program text and the sub-terms it takes, or None if NumPy is to run it."""
        found = self._plans.get(id(term))
        if found is not None and found[0] is term:
            return found[1]
        operands: list[Term] = []
        text, n_operators = _write(term, operands)
        planned = None
        if n_operators >= OPERATORS_MIN and len(operands) <= OPERANDS_MAX:
            planned = text, tuple(operands)
        if len(self._plans) >= _PROGRAMS_MAX:
            self._plans.clear()
        self._plans[id(term)] = term, planned
        return planned

    def run(self, text: str, operands: list[NDArray[Any]], n_rows: int) -> NDArray[np.float64]:
        """Run a program on float64 operands of shape (n_rows,)."""
        stock = self._programs.get(text)
        if stock is None:
            if len(self._programs) >= _PROGRAMS_MAX:
                self._programs.clear()
            stock = self._programs.setdefault(text, [])
        try:
            program = stock.pop()
        except IndexError:
            program = _compile(text, len(operands))
        result = np.empty(n_rows, np.float64)
        for start in range(0, n_rows, _PIECE):
            piece = slice(start, min(start + _PIECE, n_rows))
            pieces = [operand[piece] for operand in operands]
            program(*pieces, out=result[piece], ex_uses_vml=False)
        # Not if it failed: what state its buffers are in then is unknown.
        stock.append(program)
        return result


def _compile(text: str, n_operands: int) -> Any:
    # In a signature Python's `float` would mean single precision.
    return numexpr.NumExpr(text, [(f"x{index}", np.float64) for index in range(n_operands)])


def _write(term: Term, operands: list[Term]) -> tuple[str, int]:
    """Write a tree as text; equal sub-terms share one operand."""
    fused = isinstance(term, Apply) and term.op in _FUSED and term.type is DataType.FLOAT64
    if not fused or len(operands) > OPERANDS_MAX:
        if term not in operands:
            operands.append(term)
        return f"x{operands.index(term)}", 0
    assert isinstance(term, Apply)
    if term.op == "neg":
        text, count = _write(term.args[0], operands)
        return f"(-{text})", count + 1
    left, n_left = _write(term.args[0], operands)
    right, n_right = _write(term.args[1], operands)
    return f"({left} {term.op} {right})", n_left + n_right + 1
