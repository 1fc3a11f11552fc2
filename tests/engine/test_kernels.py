"""Both sets of kernels give bit-identical results, for every physical type."""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

import numpy as np
import pytest

from crescando.engine import index as index_module
from crescando.engine import kernels
from crescando.engine.composite import CompositeIndex
from crescando.engine.index import IntervalIndex, PointIndex
from crescando.engine.kernels import plain
from crescando.engine.kernels.base import Kernels
from crescando.engine.kernels.plain import FEW
from crescando.engine.kernels.posting import post_direct as plain_postings
from tests.engine.compiled import compiled_module, using

compiled = compiled_module()

TYPES = [np.dtype(name) for name in compiled.PHYSICAL]


@pytest.fixture(params=["numpy", "numba"])
def active(request: pytest.FixtureRequest) -> Any:
    with using(request.param):
        yield kernels.active()


def _keys(rng: np.random.Generator, dtype: np.dtype[Any], n: int) -> Any:
    bounds = np.iinfo(dtype)
    near = rng.integers(max(bounds.min, -100), min(bounds.max, 100), n, endpoint=True)
    far = rng.integers(bounds.min, bounds.max, n, dtype=dtype, endpoint=True)
    keys = np.where(rng.random(n) < 0.7, near, far).astype(dtype)
    keys[: min(n, 2)] = [bounds.min, bounds.max][: min(n, 2)]
    return keys


def _pairs(index: PointIndex | IntervalIndex, keys: Any) -> set[tuple[int, int]]:
    found = [
        pair
        for rows, operations in index.probe(keys)
        for pair in zip(rows.tolist(), operations.tolist(), strict=True)
    ]
    assert len(found) == len(set(found))
    return set(found)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
def test_points_are_found_exactly(dtype: np.dtype[Any], seed: int, active: Kernels) -> None:
    rng = np.random.default_rng(seed)
    keys = _keys(rng, dtype, (0, 1, 700, 9_000)[seed])
    constants = np.concatenate((_keys(rng, np.dtype(np.int64), 40), _keys(rng, dtype, 20).astype(np.int64)))
    if seed % 2:
        constants = constants[np.abs(constants) < 1_000]
    operations = rng.permutation(len(constants))
    expected = {
        (row, int(operation))
        for row, key in enumerate(keys.tolist())
        for constant, operation in zip(constants.tolist(), operations, strict=True)
        if key == constant
    }
    assert _pairs(PointIndex(constants, operations), keys) == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("n", range(FEW + 3))
def test_few_points_are_found_exactly(dtype: np.dtype[Any], n: int, active: Kernels) -> None:
    rng = np.random.default_rng(n)
    for n_rows in (0, 1, 15, 16, 17, 9_000):
        keys = _keys(rng, dtype, n_rows)
        # Also such as no key of the type can be, though some have its lower bytes.
        near = np.append(_keys(rng, dtype, n).astype(np.int64), _keys(rng, dtype, n).astype(np.int64) + 256)
        constants = rng.permutation(near)[:n]
        operations = rng.permutation(n)
        expected = {
            (row, int(operation))
            for row, key in enumerate(keys.tolist())
            for constant, operation in zip(constants.tolist(), operations, strict=True)
            if key == constant
        }
        index = PointIndex(constants, operations)
        assert _pairs(index, keys) == expected
        _are_told_by_their_order(index, constants, keys, expected)


@pytest.mark.parametrize("n", [FEW, 40, 900])
@pytest.mark.parametrize("far", [1, 1 << 40])
def test_constants_and_their_places_are_told(n: int, far: int, active: Kernels) -> None:
    rng = np.random.default_rng(n)
    keys, constants = (rng.integers(-n, n, size) * far for size in (500, n))
    index = PointIndex(constants, np.arange(n))
    _are_told_by_their_order(index, constants, keys, _pairs(index, keys))


def _are_told_by_their_order(index: PointIndex, constants: Any, keys: Any, expected: Any) -> None:
    """Check what an index says of its constants: who knows which one a row has need not probe."""
    told, places = index.keys()
    assert told.tolist() == sorted(set(constants.tolist()))
    assert len(told) == index.n_keys
    rows = np.isin(keys.astype(np.int64), told).nonzero()[0]
    found = list(index.pairs(rows, places[np.searchsorted(told, keys[rows].astype(np.int64))]))
    assert {
        pair for some in found for pair in zip(*(each.tolist() for each in some), strict=True)
    } == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("n", [0, 1, 2, 5])
def test_few_intervals_are_found_exactly(dtype: np.dtype[Any], n: int, active: Kernels) -> None:
    rng = np.random.default_rng(n)
    bounds = np.iinfo(np.int64)
    for n_rows in (0, 1, 15, 16, 17, 9_000):
        keys = _keys(rng, dtype, n_rows)
        for low, high in ((-3, 5), (bounds.min, 0), (0, bounds.max), (bounds.min, bounds.max), (90, 90)):
            inside = [row for row, key in enumerate(keys.tolist()) if low <= key <= high]
            assert active.find_between(keys, low, high).tolist() == inside
            assert low == high or not len(active.find_between(keys, high, low))
            ends = np.array([[low, high], [-50, 60], [5, 5], [-9, 90], [0, bounds.max]])[:n]
            expected = {
                (row, place)
                for row, key in enumerate(keys.tolist())
                for place, (first, last) in enumerate(ends.tolist())
                if first <= key <= last
            }
            index = IntervalIndex(ends[:, 0].copy(), ends[:, 1].copy(), np.arange(n))
            assert _pairs(index, keys) == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("cover", [8, 0], ids=["cut", "sorted"])
def test_intervals_are_found_exactly(
    dtype: np.dtype[Any], seed: int, cover: int, active: Kernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("crescando.engine.index._COVER_MAX", cover)
    monkeypatch.setattr("crescando.engine.index._COVER_MIN", cover << 16)
    rng = np.random.default_rng(seed)
    keys = _keys(rng, dtype, (0, 1, 700, 9_000)[seed])
    ends = np.sort(np.stack((_keys(rng, np.dtype(np.int64), 30), _keys(rng, np.dtype(np.int64), 30))), axis=0)
    operations = rng.permutation(30)
    expected = {
        (row, int(operation))
        for row, key in enumerate(keys.tolist())
        for low, high, operation in zip(*ends.tolist(), operations, strict=True)
        if low <= key <= high
    }
    assert _pairs(IntervalIndex(ends[0], ends[1], operations), keys) == expected


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("has_range", [False, True])
def test_several_columns_are_joined_as_one(
    dtype: np.dtype[Any], seed: int, has_range: bool, active: Kernels
) -> None:
    rng = np.random.default_rng(seed)
    n_rows, n = (0, 700, 3_000, 3_000, 900, 900)[seed], (3, 0, 40, 40, 40, 40)[seed]
    # The last seeds have keys that together fill more than 64 bits, which are then mixed.
    far = 1 if seed < 4 else 1 << 40
    keys = [
        _keys(rng, dtype, n_rows) % dtype.type(5),
        rng.integers(-3, 3, n_rows) * far,
        _keys(rng, dtype, n_rows),
    ]
    low = [rng.integers(0, 5, n), rng.integers(-3, 3, n) * far, _keys(rng, np.dtype(np.int64), n)]
    high = [low[0], low[1], low[2]]
    if seed == 3:
        low[2] = high[2] = low[2] % 20
    if has_range:
        high[2] = np.maximum(low[2], _keys(rng, np.dtype(np.int64), n))
    operations = np.sort(rng.permutation(n)[: n - n // 8])
    expected = {
        (row, operation)
        for row in range(n_rows)
        for operation in operations.tolist()
        if all(low[part][operation] <= keys[part][row] <= high[part][operation] for part in range(3))
    }
    index = CompositeIndex(list(zip(low, high, strict=True)), operations, has_range)
    pairs = [
        pair for rows, found in index.probe(keys) for pair in zip(rows.tolist(), found.tolist(), strict=True)
    ]
    assert len(pairs) == len(set(pairs))
    assert set(pairs) == expected


@pytest.mark.parametrize("far", [1, 1 << 40])
def test_ranges_of_all_numbers_leave_nothing_out(far: int, active: Kernels) -> None:
    bounds = np.iinfo(np.int64)
    keys = [np.arange(6) % 2 * far, np.array([bounds.min, -7, -1, 0, 12, bounds.max])]
    low, high = np.array([0, far]), np.full(2, bounds.max)
    index = CompositeIndex([(low, low), (np.full(2, bounds.min), high)], np.arange(2), True)

    pairs = [
        pair for rows, found in index.probe(keys) for pair in zip(rows.tolist(), found.tolist(), strict=True)
    ]
    assert sorted(pairs) == [(row, row % 2) for row in range(6)]


def _same(name: str, *arguments: Any) -> None:
    one: Callable[..., Any] = getattr(plain, name)
    other = getattr(compiled, name)
    copies = [[a.copy() if isinstance(a, np.ndarray) else a for a in arguments] for _ in range(2)]
    left, right = one(*copies[0]), other(*copies[1])
    for mine, theirs in zip((left, *copies[0]), (right, *copies[1]), strict=True):
        for a, b in zip(
            mine if isinstance(mine, tuple) else (mine,),
            theirs if isinstance(theirs, tuple) else (theirs,),
            strict=True,
        ):
            assert type(a) is type(b)
            if isinstance(a, np.ndarray):
                assert a.dtype == b.dtype
                assert np.array_equal(a, b)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("dtype", TYPES, ids=str)
def test_folds_and_bounds_are_the_same(dtype: np.dtype[Any], seed: int) -> None:
    rng = np.random.default_rng(seed)
    keys = _keys(rng, dtype, 500)
    _same("fold", rng.integers(0, 1 << 63, 500).astype(np.uint64), keys, int(rng.integers(0, 60)))
    rows, operations = rng.integers(0, 500, 800), rng.integers(0, 20, 800)
    low, high = _keys(rng, np.dtype(np.int64), 20), _keys(rng, np.dtype(np.int64), 20)
    _same("within", keys, rows, operations, low, high)
    for wide in (np.int32, np.int64):
        into = rng.integers(-1, 1_000, 500).astype(wide)
        shift, size = int(rng.integers(0, 20)), int(rng.integers(1, 1 << 20))
        _same("append_digit", into, keys, int(_keys(rng, dtype, 3)[-1]) >> shift, shift, size)
    counts = rng.integers(0, 4, 30)
    starts, n = np.cumsum(counts) - counts, int(counts.sum())
    found = np.sort(rng.integers(0, 500, 300)), rng.integers(0, 30, 300)
    ends = np.sort(np.stack((_keys(rng, np.dtype(np.int64), n), _keys(rng, np.dtype(np.int64), n))), axis=0)
    _same("pair_within", *found, starts, counts, rng.permutation(n), keys, *ends)


@pytest.mark.parametrize("seed", range(5))
def test_postings_are_the_same_and_complete(seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, spread, base = (0, 1, 50, 500, 500)[seed], (1, 64, 63, 40, 4_000)[seed], -20
    keys, operations = rng.integers(base, base + spread, n), rng.permutation(n)
    expected = plain_postings(keys, operations, base, spread)
    for one, other in zip(compiled.post_direct(keys, operations, base, spread), expected, strict=True):
        assert one.dtype == other.dtype
        assert np.array_equal(one, other)
    bits, heads, starts, counts, posted = expected
    place = 0
    for offset in range(64 * len(bits)):
        wanted = operations[keys == base + offset].tolist()
        if offset % 64 == 0:
            assert heads[offset // 64] == place
        assert (int(bits[offset >> 6]) >> (offset & 63)) & 1 == bool(wanted)
        if wanted:
            assert posted[starts[place] : starts[place] + counts[place]].tolist() == wanted
            place += 1
    assert place == len(starts) == len(counts)


@pytest.mark.parametrize("seed", range(5))
def test_pairs_and_groups_are_the_same(seed: int) -> None:
    rng = np.random.default_rng(seed)
    counts = rng.integers(0, 5, 30)
    starts = np.cumsum(counts) - counts
    rows, places = np.arange(200), rng.integers(0, 30, 200)
    _same("pair_up", rows, places, starts, counts, rng.permutation(int(counts.sum())))
    for n_groups in (1, 50, 40_000):
        _same("group_order", rng.integers(-1, n_groups, 300 * seed), n_groups)
        _same("group_places", rng.integers(-1, n_groups, 300 * seed), n_groups)


WIDTHS = [("uint8", "uint8"), ("int16", "int16"), ("int32", "int32"), ("int64", "int64")]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(("narrow", "wide"), [*WIDTHS, ("uint8", "int32"), ("int16", "int32")])
def test_values_are_scattered_alike(narrow: str, wide: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n = 400 * seed
    data = _keys(rng, np.dtype(narrow), 700)
    _same("scatter", np.zeros(n + 1, wide), rng.permutation(n + 1)[:n], data, rng.integers(0, 700, n))


@pytest.mark.parametrize("scale", [1, 1_000, 60_000_000])
@pytest.mark.parametrize(("narrow", "wide"), list(combinations(("int8", "int16", "int32", "int64"), 2)))
def test_numbers_are_widened_alike(narrow: str, wide: str, scale: int) -> None:
    rng = np.random.default_rng(scale)
    numbers = _keys(rng, np.dtype(narrow), 700)
    scale = scale if wide == "int64" else 1
    bounds = np.iinfo(wide)
    for base in (0, -7, int(bounds.min), int(bounds.max)):
        _same("widen", numbers, base, scale, np.zeros(len(numbers), wide))
        values = np.zeros(len(numbers), wide)
        plain.widen(numbers, base, scale, values)
        wrapped = (base + scale * int(numbers[3]) - bounds.min) % (1 << bounds.bits) + bounds.min
        assert int(values[3]) == wrapped


@pytest.mark.parametrize("divisor", [1, 10, 10_000])
@pytest.mark.parametrize("kind", ["int8", "int16", "int32", "int64"])
def test_numbers_are_divided_alike(kind: str, divisor: int) -> None:
    numbers = _keys(np.random.default_rng(divisor), np.dtype(kind), 700)
    _same("divide", numbers, divisor, np.zeros(700))
    values = np.zeros(700)
    plain.divide(numbers, divisor, values)
    assert values.tolist() == [float(int(number)) / divisor for number in numbers]


@pytest.mark.parametrize("wide", ["int32", "int64"])
@pytest.mark.parametrize("width", [3, 5, 6])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 500])
def test_numbers_of_a_few_bytes_are_widened_alike(wide: str, width: int, n: int) -> None:
    rng = np.random.default_rng(n + width)
    numbers = rng.integers(0, 256, (n, width)).astype(np.uint8)
    numbers[:2] = 0xFF
    numbers[2:3] = [*[0] * (width - 1), 0x80]
    rows = rng.permutation(n)
    for base, scale in ((0, 1), (-7, 1), (1 << 20, 60_000_000)):
        _same("widen_bytes", numbers, base, scale, np.zeros(n, wide))
        _same("take_bytes", numbers, rows, base, scale, np.zeros(n, wide))
    values = np.zeros(n, np.int64)
    plain.widen_bytes(numbers, 5, 2, values)
    read = [int.from_bytes(number.tobytes(), "little", signed=True) for number in numbers]
    assert values.tolist() == [2 * number + 5 for number in read]


@pytest.mark.parametrize("wide", ["int32", "int64"])
@pytest.mark.parametrize("width", [1, 2, 3, 4, 5, 6])
@pytest.mark.parametrize("n", [0, 1, 2, 3, 500, 9_000])
def test_numbers_are_packed_alike_into_so_many_bytes(wide: str, width: int, n: int) -> None:
    rng = np.random.default_rng(n + width)
    whole = {1: np.int8, 2: np.int16, 4: np.int32}.get(width)
    for high in (1 << (8 * width - 2), 1 << (8 * width + 3)):
        given = rng.integers(-high, high, n)
        if wide == "int32":
            given = np.clip(given, -2_000_000_000, 2_000_000_000)
        given = given.astype(wide)
        given.flags.writeable = False
        for valid in (np.zeros(0, np.bool_), rng.random(n) < 0.1):
            for base, scale in ((0, 1), (1_000, 1), (0, 50), (7, 60_000_000)):
                values = given if scale == 1 else ((given - base) // scale * scale + base).astype(wide)
                known = valid if len(valid) else np.ones(n, np.bool_)
                values = np.where(known, values, -1 << 31).astype(wide)
                fits = all(
                    -1 << (8 * width - 1) <= (each - base) // scale < 1 << (8 * width - 1)
                    for each in values[known].tolist()
                )
                _is_packed(values, valid, base, scale, width, whole, fits=fits)
                if n > 1 and known.any() and scale > 1:
                    # One that is not whole, wherever it lies.
                    off = values.copy()
                    off[rng.choice(known.nonzero()[0])] += 1
                    _is_packed(off, valid, base, scale, width, whole, fits=False)


def _is_packed(values: Any, valid: Any, base: int, scale: int, width: int, whole: Any, *, fits: bool) -> None:
    """Check that both kernels say whether values fit, and write those that do as they are read."""
    known = valid if len(valid) else np.ones(len(values), np.bool_)
    for kernel_set in (kernels._PLAIN, compiled_module().KERNELS):
        packed = np.full((len(values), width), 0xAA, np.uint8)
        if whole is None:
            assert kernel_set.pack_bytes(values, valid, base, scale, packed) == fits
        else:
            assert kernel_set.pack(values, valid, base, scale, packed.view(whole).reshape(-1)) == fits
        if fits:
            numbers = [int.from_bytes(each.tobytes(), "little", signed=True) for each in packed]
            back = np.array(numbers, object) * scale + base
            assert back[known].tolist() == values[known].tolist()
            assert not any(number for number, each in zip(numbers, known, strict=True) if not each)


@pytest.mark.parametrize("n_codes", [1, 3, 200, 5_000, 3_000_000])
@pytest.mark.parametrize("seed", range(4))
def test_codes_are_numbered_alike(n_codes: int, seed: int) -> None:
    rng = np.random.default_rng(seed)
    codes = rng.integers(0, n_codes, 300 * seed, dtype=np.int32)
    if seed == 3:  # Hashes of neighbours in one place.
        codes[::2] = (np.arange(len(codes[::2])) * 17 % n_codes).astype(np.int32)
    _same("number_codes", codes, n_codes)
    used, numbers = plain.number_codes(codes, n_codes)
    assert np.array_equal(used[numbers], codes)
    assert used.tolist() == list(dict.fromkeys(codes.tolist()))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
def test_lengths_are_added_alike(dtype: type, seed: int) -> None:
    rng = np.random.default_rng(seed)
    offsets = np.append(0, np.cumsum(rng.integers(0, 50, 30))).astype(dtype)
    codes = rng.integers(-1, 30, 200 * seed, dtype=np.int32)
    _same("add_lengths", rng.integers(0, 9, len(codes)), offsets, codes)


def test_a_broad_interval_comes_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(index_module, "PIECE_PAIRS", 64)
    index = IntervalIndex(np.array([0]), np.array([199]), np.array([3]))
    pieces = list(index.probe(np.arange(1_000)))
    assert [len(rows) for rows, _ in pieces] == [64, 64, 64, 8]
    assert np.concatenate([rows for rows, _ in pieces]).tolist() == list(range(200))
    assert {operation for _, operations in pieces for operation in operations.tolist()} == {3}
