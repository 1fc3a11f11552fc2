"""Loads and copies of several bytes at any address, for compiled kernels.

Rules of the file: whoever calls sees to it that all bytes lie inside the
arrays; a kernel that reads in words reads the last slices of a heap byte by
byte instead. Little-endian machines only, which is all that numba compiles for.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from llvmlite import ir
from numba import njit, types
from numba.extending import intrinsic

_ONES, _EIGHT = np.uint64(0xFFFF_FFFF_FFFF_FFFF), np.uint64(8)

WIDE = 16
"""Bytes that `copy_wide` moves."""


def _load_word(context: Any, heap: Any, at: Any) -> Any:
    """Give ``heap[at : at + 8]`` as a little-endian word."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        pointer = _pointer(target, builder, signature.args[0], arguments[0], arguments[1], ir.IntType(64))
        return builder.load(pointer, align=1)

    return types.uint64(heap, types.int64), generate


def _copy_of(n_bytes: int) -> Any:
    """Give what copies ``heap[at : at + n_bytes]`` to ``copied[to : to + n_bytes]``."""

    def copy(context: Any, copied: Any, to: Any, heap: Any, at: Any) -> Any:
        def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
            kind = ir.VectorType(ir.IntType(8), n_bytes)
            source = _pointer(target, builder, signature.args[2], arguments[2], arguments[3], kind)
            sink = _pointer(target, builder, signature.args[0], arguments[0], arguments[1], kind)
            builder.store(builder.load(source, align=1), sink, align=1)
            return target.get_dummy_value()

        return types.void(copied, types.int64, heap, types.int64), generate

    return intrinsic(copy)


def _prefetch(context: Any, array: Any, at: Any) -> Any:
    """Begin to load what lies at ``array[at]``, without waiting for it."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        word = ir.IntType(32)
        item = target.get_value_type(signature.args[0].dtype)
        kind = signature.args[0]
        data = _pointer(target, builder, kind, arguments[0], arguments[1], item)
        address = builder.bitcast(data, ir.IntType(8).as_pointer())
        function = builder.module.declare_intrinsic(
            "llvm.prefetch", [address.type], ir.FunctionType(ir.VoidType(), [address.type, word, word, word])
        )
        # For reading, to stay in all caches, data.
        builder.call(function, [address, word(0), word(3), word(1)])
        return target.get_dummy_value()

    return types.void(array, types.int64), generate


def _pointer(target: Any, builder: Any, kind: Any, array: Any, at: Any, item: Any) -> Any:
    data = target.make_array(kind)(target, builder, array).data
    return builder.bitcast(builder.gep(data, [at]), item.as_pointer())


load_word: Any = intrinsic(_load_word)
copy_wide, copy_word, copy_half = map(_copy_of, (WIDE, 8, 4))
prefetch: Any = intrinsic(_prefetch)


@njit(cache=True, nogil=True, inline="always")
def load_bytes(heap: Any, at: Any, count: Any) -> Any:
    """Read one to eight bytes as a little-endian word."""
    if at + 8 <= heap.size:
        return load_word(heap, at) & (_ONES >> (np.uint64(8 - count) * _EIGHT))
    word: Any = np.uint64(0)
    for i in range(count):
        word |= np.uint64(heap[at + i]) << (np.uint64(i) * _EIGHT)
    return word
