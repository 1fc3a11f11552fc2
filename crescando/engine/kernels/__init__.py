"""Inner loops of the scan: one set in NumPy, a compiled twin of the same signatures.

Rules of the file: every kernel is a pure function of flat arrays, and both sets
give bit-identical results, so that which one runs changes the time and nothing
else. NumPy serves from the start; a composition root may put the compiled set
in its place at any moment, also between two blocks of one scan.
"""

from __future__ import annotations

from crescando.engine.kernels import coding, counting, plain, posting, searching, texts
from crescando.engine.kernels.base import Kernels

_PLAIN = Kernels(
    name="numpy",
    intervals_alone=4,
    find_few=plain.find_few,
    find_between=plain.find_between,
    find_direct=plain.find_direct,
    find_hashed=plain.find_hashed,
    find_intervals=plain.find_intervals,
    fold=plain.fold,
    within=plain.within,
    pair_up=plain.pair_up,
    post_direct=posting.post_direct,
    append_digit=plain.append_digit,
    pair_within=plain.pair_within,
    group_order=plain.group_order,
    search_order=searching.search_order,
    group_places=plain.group_places,
    scatter=plain.scatter,
    divide=plain.divide,
    pack=plain.pack,
    pack_bytes=plain.pack_bytes,
    widen_bytes=plain.widen_bytes,
    take_bytes=plain.take_bytes,
    take_bits=plain.take_bits,
    widen=plain.widen,
    number_codes=plain.number_codes,
    add_lengths=plain.add_lengths,
    texts=texts.PLAIN,
    codes=coding.PLAIN,
    counts=counting.PLAIN,
)

_active = _PLAIN


def active() -> Kernels:
    """Give the kernels in use."""
    return _active


def use(kernels: Kernels | None) -> None:
    """Put a set of kernels in use; None for the NumPy ones."""
    global _active
    _active = _PLAIN if kernels is None else kernels
