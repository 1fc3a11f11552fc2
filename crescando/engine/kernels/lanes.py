"""Tests of sixteen keys at once against a bitmap, for compiled kernels.

Rules of the file: a test looks at ``keys[at : at + LANES]``, all of which must
exist, and gives a word in which bit i tells of key ``at + i``. It is written in
LLVM's vectors, which become the processor's own where it has any (a gather of
sixteen words is the bulk of it) and plain instructions elsewhere; the result is
the same. Bitmaps hold their bits in words of 64, of which the halves are read, as those of
wide keys are: the lower one comes first wherever numba compiles for.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from crescando.engine.kernels.plain import HASH_HIGH, HASH_LOW

LANES = 16

_BIT, _WORD, _WIDE = ir.IntType(1), ir.IntType(32), ir.IntType(64)
_BITS, _WORDS, _WIDES = (ir.VectorType(kind, LANES) for kind in (_BIT, _WORD, _WIDE))


class _Lanes:
    """The code of one test, as it is written."""

    def __init__(self, target: Any, builder: Any, signature: Any, arguments: Any) -> None:
        self.target = target
        self.builder = builder
        self._signature = signature
        self._arguments = arguments
        self.keys = self._load()

    def _data(self, argument: int) -> Any:
        kind = self._signature.args[argument]
        return self.target.make_array(kind)(self.target, self.builder, self._arguments[argument]).data

    def _load(self) -> Any:
        builder, width = self.builder, self._signature.args[0].dtype.bitwidth
        kind = ir.VectorType(ir.IntType(width), LANES)
        at = builder.gep(self._data(0), [self._arguments[1]])
        return builder.load(builder.bitcast(at, kind.as_pointer()), align=width // 8)

    def every(self, argument: int) -> Any:
        """Give an argument, a 64-bit integer, in every lane."""
        return _spread(self.builder, _WIDES, self._arguments[argument])

    def widened(self, kind: Any) -> Any:
        """Give the keys as wider integers of the same value."""
        if self.keys.type == kind:
            return self.keys
        signed = self._signature.args[0].dtype.signed
        return (self.builder.sext if signed else self.builder.zext)(self.keys, kind)

    def halves(self) -> tuple[Any, Any]:
        """Give the lower and the upper half of every key, as one of 64 bits."""
        builder = self.builder
        if self.keys.type == _WIDES:
            # One shuffle each; narrowing sixteen wide numbers takes several instructions.
            halves = builder.bitcast(self.keys, ir.VectorType(_WORD, 2 * LANES))
            lower, upper = (
                builder.shuffle_vector(halves, halves, ir.Constant(_WORDS, list(range(start, 2 * LANES, 2))))
                for start in (0, 1)
            )
            return lower, upper
        lower = self.widened(_WORDS)
        return lower, builder.ashr(lower, _same(_WORDS, 31))

    def equals(self, argument: int) -> Any:
        """Give as a vector of bits which keys equal an argument of their type."""
        return self.builder.icmp_unsigned(
            "==", self.keys, _spread(self.builder, self.keys.type, self._arguments[argument])
        )

    def word(self, hits: Any) -> Any:
        """Give a vector of bits as a word."""
        return self.builder.zext(self.builder.bitcast(hits, ir.IntType(LANES)), _WIDE)

    def tested(self, argument: int, places: Any, wanted: Any) -> Any:
        """Give as a word which lanes are wanted and have their bit in a bitmap set."""
        builder = self.builder
        words = builder.lshr(places, _same(_WORDS, 5))
        at = builder.gep(self._data(argument), [words], source_etype=_WORD)
        at.type = ir.VectorType(ir.PointerType(), LANES)
        kind = ir.FunctionType(_WORDS, [at.type, _WORD, _BITS, _WORDS])
        gather = _function(builder, kind, f"llvm.masked.gather.v{LANES}i32.v{LANES}p0")
        found = builder.call(gather, [at, _WORD(4), wanted, _same(_WORDS, 0)])
        bit = builder.and_(builder.lshr(found, builder.and_(places, _same(_WORDS, 31))), _same(_WORDS, 1))
        return self.word(builder.icmp_unsigned("!=", bit, _same(_WORDS, 0)))


def _hashed(context: Any, keys: Any, at: Any, shift: Any, bits: Any) -> Any:
    """Test the bits that the keys' hashes choose."""

    def generate(lanes: _Lanes) -> Any:
        builder = lanes.builder
        low, high = lanes.halves()
        low = builder.mul(low, _same(_WORDS, int(HASH_LOW)))
        hashed = builder.add(low, builder.mul(high, _same(_WORDS, int(HASH_HIGH))))
        places = builder.lshr(hashed, builder.trunc(lanes.every(2), _WORDS))
        return lanes.tested(3, places, _same(_BITS, 1))

    return types.uint64(keys, types.int64, types.int64, bits), _generator(generate)


def _direct(context: Any, keys: Any, at: Any, base: Any, span: Any, bits: Any) -> Any:
    """Test the bits ``key - base`` of the keys for which that lies within `span`."""

    def generate(lanes: _Lanes) -> Any:
        builder = lanes.builder
        offsets = builder.sub(lanes.widened(_WIDES), lanes.every(2))
        inside = builder.icmp_unsigned("<", offsets, lanes.every(3))
        return lanes.tested(4, builder.trunc(offsets, _WORDS), inside)

    return types.uint64(keys, types.int64, types.int64, types.int64, bits), _generator(generate)


def _bucketed(context: Any, keys: Any, at: Any, base: Any, shift: Any, last: Any, bits: Any) -> Any:
    """Test the bits ``(key - base) >> shift``, at most `last`, of the keys that are not below `base`."""

    def generate(lanes: _Lanes) -> Any:
        builder, wide = lanes.builder, lanes.widened(_WIDES)
        buckets = builder.lshr(builder.sub(wide, lanes.every(2)), lanes.every(3))
        above = builder.icmp_unsigned(">", buckets, lanes.every(4))
        buckets = builder.select(above, lanes.every(4), buckets)
        inside = builder.icmp_signed(">=", wide, lanes.every(2))
        return lanes.tested(5, builder.trunc(buckets, _WORDS), inside)

    return types.uint64(keys, *[types.int64] * 4, bits), _generator(generate)


def _few(context: Any, keys: Any, at: Any, first: Any, second: Any, third: Any, fourth: Any) -> Any:
    """Test whether the keys are one of four."""

    def generate(lanes: _Lanes) -> Any:
        builder = lanes.builder
        hits = [lanes.equals(argument) for argument in range(2, 6)]
        return lanes.word(builder.or_(builder.or_(hits[0], hits[1]), builder.or_(hits[2], hits[3])))

    return types.uint64(keys, types.int64, *[keys.dtype] * 4), _generator(generate)


def _between(context: Any, keys: Any, at: Any, low: Any, span: Any) -> Any:
    """Test whether the keys are at least `low`, and no further above it than `span`."""

    def generate(lanes: _Lanes) -> Any:
        builder = lanes.builder
        above = builder.sub(lanes.widened(_WIDES), lanes.every(2))
        return lanes.word(builder.icmp_unsigned("<=", above, lanes.every(3)))

    return types.uint64(keys, types.int64, types.int64, types.int64), _generator(generate)


def _generator(generate: Callable[[_Lanes], Any]) -> Callable[[Any, Any, Any, Any], Any]:
    def written(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return generate(_Lanes(target, builder, signature, arguments))

    return written


def _put_aside(context: Any, word: Any, first: Any, into: Any, count: Any) -> Any:
    """Write ``first + i`` for each bit i of a word behind the first `count` numbers of an array.

    Gives how many numbers it has then. There is room for `LANES` more, whatever is overwritten.
    """

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        bits = builder.trunc(arguments[0], ir.IntType(LANES))
        numbers = builder.add(
            _spread(builder, _WORDS, builder.trunc(arguments[1], _WORD)),
            ir.Constant(_WORDS, list(range(LANES))),
        )
        kind = ir.FunctionType(_WORDS, [_WORDS, _BITS, _WORDS])
        compress = _function(builder, kind, f"llvm.experimental.vector.compress.v{LANES}i32")
        chosen = builder.call(compress, [numbers, builder.bitcast(bits, _BITS), _same(_WORDS, 0)])
        data = target.make_array(signature.args[2])(target, builder, arguments[2]).data
        at = builder.bitcast(builder.gep(data, [arguments[3]]), _WORDS.as_pointer())
        # No branch: whether a key is wanted cannot be foretold.
        builder.store(chosen, at, align=4)
        return builder.add(arguments[3], builder.zext(builder.ctpop(bits), _WIDE))

    return types.int64(types.uint64, types.int64, into, types.int64), generate


def _count_bits(context: Any, word: Any) -> Any:
    """Give how many bits of a word are set."""

    def generate(target: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        return builder.ctpop(arguments[0])

    return types.uint64(types.uint64), generate


def _function(builder: Any, kind: Any, name: str) -> Any:
    """Give one of LLVM's own functions."""
    known = builder.module.globals.get(name)
    return ir.Function(builder.module, kind, name) if known is None else known


def _spread(builder: Any, kind: Any, value: Any) -> Any:
    """Give a value in every lane."""
    first = builder.insert_element(ir.Constant(kind, ir.Undefined), value, _WORD(0))
    return builder.shuffle_vector(first, first, ir.Constant(_WORDS, [0] * LANES))


def _same(kind: Any, value: int) -> Any:
    return ir.Constant(kind, [value] * LANES)


test_hashed: Any = intrinsic(_hashed)
test_direct: Any = intrinsic(_direct)
test_buckets: Any = intrinsic(_bucketed)
test_few: Any = intrinsic(_few)
test_between: Any = intrinsic(_between)
put_aside: Any = intrinsic(_put_aside)
count_bits: Any = intrinsic(_count_bits)
