"""Columns of codes on their way in: both sets of kernels against Python, and arrays on fresh pages."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crescando.engine import incoming, kernels
from crescando.engine.dictionary import Pool
from crescando.engine.heap import Texts
from crescando.engine.incoming import own
from crescando.engine.kernels import coding
from crescando.engine.pages import fresh_array
from crescando.engine.statement import Column
from crescando.schema import DataType
from tests.engine.compiled import using

N = 300


@pytest.fixture(params=["numpy", "numba"])
def made(request: pytest.FixtureRequest) -> Iterator[coding.CodeKernels]:
    with using(request.param):
        yield kernels.active().codes


LISTS = [
    ([0], b"", coding.PLAIN_ASCII),
    ([0, 0, 0], b"", coding.PLAIN_ASCII),
    ([0, 3, 3, 11], b"abcdefgh\0\x7fz", coding.PLAIN_ASCII),
    ([0, 3, 10], b"abcdefgh\0\xc3", coding.OTHER),
    ([0, 3, 17], b"abcdefghabcdefgh\x80", coding.OTHER),
    ([0, 17], b"\xffbcdefghabcdefghi", coding.OTHER),
    ([1, 3], b"abc", coding.UNFIT),
    ([0, 2], b"abc", coding.UNFIT),
    ([0, 4], b"abc", coding.UNFIT),
    ([0, 2, 1, 3], b"abc", coding.UNFIT),
    ([0, 9, 3], b"abc", coding.UNFIT),
    ([3], b"abc", coding.UNFIT),
]


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize(("offsets", "data", "found"), LISTS)
def test_lists_are_examined(
    offsets: list[int], data: bytes, found: int, dtype: type, made: coding.CodeKernels
) -> None:
    heap = np.frombuffer(data, np.uint8)
    assert made.examine_list(heap, np.array(offsets, dtype)) == found


def test_offsets_that_end_below_zero_do_not_fit(made: coding.CodeKernels) -> None:
    heap = np.frombuffer(b"abc", np.uint8)
    assert made.examine_list(heap, np.array([0, -1, 3])) == coding.UNFIT
    assert made.examine_list(heap, np.array([0, -(1 << 62), 3])) == coding.UNFIT


def draw(seed: int) -> tuple[Any, Any, int]:
    rng = np.random.default_rng(seed)
    n_texts = int(rng.choice((1, 2, 40, N, 5_000)))
    codes = rng.integers(0, n_texts, N).astype(np.int32)
    if n_texts == N and seed % 2:
        codes = np.arange(N, dtype=np.int32)
    valid = coding.NO_MASK if seed % 3 == 0 else rng.random(N) < (0.0, 0.5, 0.9, 1.0)[seed % 4]
    if len(valid):
        # Whatever lies under NULL is nobody's business.
        codes[~valid] = rng.choice((-7, 0, n_texts, 1 << 30))
    return codes, valid, n_texts


@pytest.mark.parametrize("seed", range(40))
def test_codes_are_looked_at_as_python_would(seed: int, made: coding.CodeKernels) -> None:
    codes, valid, n_texts = draw(seed)
    present = [row for row in range(N) if not len(valid) or valid[row]]
    assert made.are_within(codes, valid, n_texts)
    used, is_in_order = made.used_texts(codes, valid, n_texts)
    assert used.dtype == np.int64
    assert used.tolist() == sorted({int(codes[row]) for row in present})
    assert is_in_order == (not len(valid) and codes.tolist() == list(range(n_texts)))
    known = np.random.default_rng(seed).permutation(n_texts).astype(np.int32)
    spread = made.spread_codes(known, codes, valid)
    assert spread.dtype == np.int32
    assert spread.tolist() == [known[codes[row]] if row in set(present) else 0 for row in range(N)]
    for row, wrong in ((present[0], n_texts), (present[-1], -1)) if present else ():
        bad = codes.copy()
        bad[row] = wrong
        assert not made.are_within(bad, valid, n_texts)


ODD = [b"", b"\0", b"\0\0", b"a\0", b"\0a", b"1234567", b"12345678", b"12345678\0", b"123456789", b"x" * 40]


def numbered(items: list[bytes], valid: list[bool] | None) -> tuple[list[int], list[int]]:
    """Number texts as Python would."""
    firsts: dict[bytes, int] = {}
    rows = [row for row in range(len(items)) if valid is None or valid[row]]
    for row in rows:
        firsts.setdefault(items[row], row)
    known = {item: number for number, item in enumerate(firsts)}
    return [known[items[row]] if row in set(rows) else 0 for row in range(len(items))], list(firsts.values())


@pytest.mark.parametrize("dtype", [np.uint32, np.int64])
@pytest.mark.parametrize("seed", range(12))
def test_texts_are_numbered_as_they_come(seed: int, dtype: type, made: coding.CodeKernels) -> None:
    rng = np.random.default_rng(seed)
    n, n_distinct = int(rng.choice((0, 1, 9, 700))), int(rng.choice((1, 3, 60, 2_000)))
    # Such as differ in length only, in their last byte only, and in a byte amid two words.
    some = [b"%d" % i for i in range(n_distinct)] + [
        b"common beginning %04d and end" % i for i in range(n_distinct)
    ]
    items = [(ODD + some)[place] for place in rng.integers(0, len(ODD) + len(some), n).tolist()]
    for valid in (None, rng.random(n) < (0.0, 0.5, 1.0)[seed % 3]):
        texts = Texts.of(items) if items else Texts(np.zeros(0, np.uint8), np.zeros(1, np.uint32), True)
        mask = coding.NO_MASK if valid is None else valid
        numbers, firsts = made.number_texts(texts.heap, texts.offsets.astype(dtype), mask)
        assert numbers.dtype == np.int32
        assert firsts.dtype == np.int64
        expected = numbered(items, None if valid is None else valid.tolist())
        assert (numbers.tolist(), firsts.tolist()) == expected


@pytest.mark.parametrize("n_distinct", [255, 256, 257, 5_000])
def test_any_number_of_texts_is_numbered(n_distinct: int, made: coding.CodeKernels) -> None:
    items = [b"%x" % (i * 7919 % n_distinct) for i in range(2 * n_distinct)]
    texts = Texts.of(items)
    numbers, firsts = made.number_texts(texts.heap, texts.offsets, coding.NO_MASK)
    assert (numbers.tolist(), firsts.tolist()) == numbered(items, None)


@pytest.mark.parametrize("seed", range(24))
def test_only_used_texts_enter_a_pool(seed: int, made: coding.CodeKernels) -> None:
    codes, valid, n_texts = draw(seed)
    texts = Texts.of([f"text {i * i % 4_999}" for i in range(n_texts)])
    column = Column(DataType.STRING, codes, valid if len(valid) else None, texts)
    pool = Pool()
    for rows in (slice(None), slice(5, 50), np.array([7, 3, 250])):
        value = own(column, rows, pool)
        some = column.values[rows]
        kept = np.ones(len(some), np.bool_) if not len(valid) else valid[rows]
        found = pool.decode(value.data[kept])
        assert found == [texts[code] for code in some[kept].tolist()]
        assert int(value.data.min()) >= 0
        assert int(value.data.max()) < len(pool)
    present = codes[valid] if len(valid) else codes
    assert set(pool.texts) == {"", *(texts[code] for code in present.tolist())}


def test_a_pool_expects_what_a_load_goes_on_to_bring(
    made: coding.CodeKernels, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(incoming, "_ROWS_ALONE", 1)
    sizes: list[int] = []
    resized = Pool._resize

    def counted(pool: Pool, size: int) -> None:
        sizes.append(size)
        resized(pool, size)

    monkeypatch.setattr(Pool, "_resize", counted)
    whole = Texts.of([f"text {i}" for i in range(64_000)])
    columns = [
        Column(DataType.STRING, np.arange(1_000, dtype=np.int32), None, whole.slice(at, at + 1_000))
        for at in range(0, 64_000, 1_000)
    ]
    pool = Pool()
    value = incoming._gather(columns, slice(None), pool)
    assert pool.decode(value.data) == whole.to_list()
    # The table grows little by little for the first operation, and once for all others.
    assert len([size for size in sizes if size > 2_000]) == 1


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64])
@pytest.mark.parametrize("n", [0, 1, 1_000, 3_000_000])
def test_fresh_arrays_are_arrays(n: int, dtype: type) -> None:
    array = fresh_array(n, np.dtype(dtype), n // 2)
    assert array.dtype == dtype
    assert array.shape == (n,)
    array[:] = 7
    assert array.flags.writeable
    assert int(array.sum()) == 7 * n


def resident_bytes() -> int:
    with open("/proc/self/statm", encoding="ascii") as statm:
        return int(statm.read().split()[1]) * 4096


def test_room_that_is_not_used_is_not_in_memory() -> None:
    try:
        before = resident_bytes()
    except OSError:
        pytest.skip("this system does not say what is in memory")
    # What the allocator got back, it would hand out again.
    used = [np.ones(1 << 20, np.uint8) for _ in range(64)]
    del used
    rooms = [fresh_array(1 << 20, np.dtype(np.uint8), 1 << 10) for _ in range(256)]
    for room in rooms:
        room[: 1 << 10] = 1
    assert resident_bytes() - before < 64 << 20
    assert sum(room.nbytes for room in rooms) == 256 << 20
