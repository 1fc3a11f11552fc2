"""Codes that count up: whatever comes, in whatever order, is given back as it was, in less than a byte."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescando.engine import kernels
from crescando.engine.counted import Counted
from crescando.engine.export import extract
from crescando.engine.kernels.coding import NO_MASK
from crescando.engine.segment import Block, Segment
from crescando.schema import DataType
from tests.engine.compiled import compiled_module, using

CAPACITY = 1_000
N_TEXTS = 5_000


@pytest.fixture(params=["numpy", "numba"])
def made(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


def _arrivals(rng: np.random.Generator, n: int, share: float, after: int) -> Any:
    """Draw codes that count up from `after`, but for a share of them, and where they are valid."""
    codes = after + 1 + np.arange(n, dtype=np.int32)
    odd = rng.random(n) < share
    codes[odd] = rng.integers(0, N_TEXTS, int(odd.sum()))
    return codes, rng.random(n) >= rng.choice([0.0, 0.3, 1.0], p=[0.5, 0.4, 0.1])


@pytest.mark.parametrize("seed", range(60))
def test_both_kernels_count_alike(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sets = kernels._PLAIN.counts, compiled_module().KERNELS.counts
    held = [(np.full(20, seed, np.uint64), np.full(20, 7, np.int32)) for _ in sets]
    first, last = 0, 0
    for _ in range(6):
        n = int(rng.integers(0, 200))
        codes, valid = _arrivals(rng, n, 0.1 * (seed % 3), last)
        mask = NO_MASK if seed % 2 else valid
        before = [(words.copy(), bases.copy()) for words, bases in held]
        found = [
            each.count_up(codes, mask, first, last, *lane) for each, lane in zip(sets, held, strict=True)
        ]
        assert found[0][0] == found[1][0]
        assert found[0][1].tolist() == found[1][1].tolist()
        n_words = -(-(first + n) // 64)
        for place in (0, 1):
            assert held[0][place][:n_words].tolist() == held[1][place][:n_words].tolist()
        given_back = []
        for each, lane in zip(sets, held, strict=True):
            into = np.empty(n, np.int32)
            each.spread_counted(*lane, first, into)
            given_back.append(into)
            rows = rng.permutation(first + n)[:50]
            none = np.zeros(0, np.int32)
            whole = np.empty(first + n, np.int32)
            each.spread_counted(*lane, 0, whole)
            assert each.take_counted(*lane, none, none, rows).tolist() == whole[rows].tolist()
            odd_rows = np.flatnonzero(rng.random(first + n) < 0.2).astype(np.int32)
            whole[odd_rows] = odd_rows + 9
            assert each.take_counted(*lane, odd_rows, odd_rows + 9, rows).tolist() == whole[rows].tolist()
        assert given_back[0].tolist() == given_back[1].tolist()
        wrong = (given_back[0] != codes) & (valid | (len(mask) == 0))
        assert found[0][1].tolist() == (np.flatnonzero(wrong) + first).tolist()
        assert given_back[0].min(initial=0) >= 0, "even what NULLs have is a code"
        assert given_back[0].max(initial=0) <= found[0][0]
        old = np.empty(first, np.int32)
        for lane, was in zip(held, before, strict=True):
            again = np.empty(first, np.int32)
            sets[0].spread_counted(*lane, 0, again)
            sets[0].spread_counted(*was, 0, old)
            assert again.tolist() == old.tolist(), "rows before are as they were"
        first, last = first + n, found[0][0]


@settings(max_examples=150, deadline=None)
@given(st.data(), st.integers(0, 1 << 30))
@pytest.mark.usefixtures("made")
def test_a_segment_gives_back_what_was_stored(data: Any, seed: int) -> None:
    rng = np.random.default_rng(seed)
    segment = Segment(0, CAPACITY, {1: DataType.STRING})
    share = data.draw(st.sampled_from([0.0, 0.01, 0.5]))
    model: list[int | None] = []
    stills: list[tuple[Any, list[int | None]]] = []
    after = data.draw(st.sampled_from([-1, 0, 200, 300, 40_000]))

    def shown(stored: Any) -> list[int | None]:
        codes, mask = stored.data[1][: stored.n_rows], stored.valid.get(1)
        assert codes.min(initial=0) >= 0
        known = np.ones(stored.n_rows, np.bool_) if mask is None else mask[: stored.n_rows]
        return [code if is_known else None for code, is_known in zip(codes.tolist(), known, strict=True)]

    def store(rows: Any, codes: Any, valid: Any) -> None:
        model.extend([None] * (max(rows.tolist(), default=-1) + 1 - len(model)))
        for row, code, is_known in zip(rows.tolist(), codes.tolist(), valid.tolist(), strict=True):
            model[row] = code if is_known else None

    for _ in range(data.draw(st.integers(1, 8))):
        if data.draw(st.booleans()):
            stills.append((segment.still(), list(model)))
        step = data.draw(st.sampled_from(["append", "append", "change", "recode", "compact"]))
        n = data.draw(st.sampled_from([0, 1, 3, 64, 100]))
        if step == "append":
            codes, valid = _arrivals(rng, n, share, after)
            rows = np.arange(len(model), len(model) + n)
            segment.store(1, slice(len(model), len(model) + n), codes, valid)
            segment.n_rows += n
            store(rows, codes, valid)
            after += n + data.draw(st.sampled_from([0, 0, 17]))
        elif step == "change" and model:
            rows = rng.permutation(len(model))[: n // 8]
            codes, valid = _arrivals(rng, len(rows), 1.0, 0)
            segment.store(1, rows, codes, valid)
            store(rows, codes, valid)
        elif step == "recode":
            codes = rng.permutation(60_000).astype(np.int32) if share else np.arange(60_000, dtype=np.int32)
            segment.recode(1, codes, np.dtype(np.int32))
            model = [None if code is None else int(codes[code]) for code in model]
        elif step == "compact" and model:
            killed = np.flatnonzero(rng.random(len(model)) < 0.3)
            segment.kill(killed)
            segment.compact()
            model = [each for row, each in enumerate(model) if row not in set(killed.tolist())]
        assert shown(segment) == model
        some = rng.permutation(len(model))[:40]
        whole = segment.data[1][: len(model)]
        assert segment.data[1][some].tolist() == whole[some].tolist()
        start = int(rng.integers(0, len(model) + 1))
        stop = min(start + 70, len(model))
        assert segment.data[1][start:stop].tolist() == whole[start:stop].tolist()
        assert all(shown(still) == before for still, before in stills)
        keys = np.unique(rng.choice([*(each for each in model if each is not None), 3, 70_000], 20))
        for stored, known in (
            (segment, model),
            *((Segment.of_still(each, 0, {1}), it) for each, it in stills),
        ):
            low = min(start, len(known))
            block = Block(stored, low, min(stop, len(known)), {1: DataType.STRING}, {})
            if block.counts_up(1):
                rows, places = block.find(1, keys.astype(np.int64))
                assert list(zip(rows.tolist(), keys[places].tolist(), strict=True)) == [
                    (row, code) for row, code in enumerate(known[low:stop]) if code in set(keys.tolist())
                ]


def _stored(n: int, codes: Any, valid: Any = None) -> Segment:
    segment = Segment(0, n, {1: DataType.STRING})
    segment.store(1, slice(0, n), np.asarray(codes, np.int32), valid)
    segment.n_rows = n
    return segment


@pytest.mark.usefixtures("made")
def test_texts_that_are_new_take_a_fifth_of_a_byte() -> None:
    n = 64_000
    valid = np.arange(n) % 3 > 0
    is_old = valid & (np.arange(n) % 1_000 == 500)
    codes = np.where(valid, np.cumsum(valid & ~is_old) + 1_000, 0)
    codes[is_old] = 17

    segment = _stored(n, codes, valid)

    assert isinstance(segment.data[1], Counted)
    assert segment.n_bytes == 8 * n + n // 8 + n // 64 * 12 + 8 * int(is_old.sum())
    assert np.where(valid, segment.data[1][:n], 0).tolist() == np.where(valid, codes, 0).tolist()


@pytest.mark.usefixtures("made")
def test_many_odd_rows_have_the_column_written_out() -> None:
    segment = _stored(6_400, np.arange(300, 6_700))

    for start in range(0, 6_400, 400):
        was_counted = isinstance(segment.data[1], Counted)
        segment.store(1, np.arange(start, start + 30), np.arange(30, dtype=np.int32), None)
        still_few = (start // 400 + 1) * 30 * 16 <= 6_400
        assert isinstance(segment.data[1], Counted) == still_few

    assert not was_counted
    expected = np.arange(300, 6_700)
    expected.reshape(-1, 400)[:, :30] = np.arange(30)
    assert segment.data[1][:6_400].tolist() == expected.tolist()
    assert segment.data[1].dtype == np.int16


@pytest.mark.usefixtures("made")
def test_texts_that_repeat_are_not_counted() -> None:
    codes = np.random.default_rng(1).integers(0, 20_000, 6_000)

    segment = _stored(6_000, codes)

    assert segment.data[1].dtype == np.int16
    assert segment.data[1][:6_000].tolist() == codes.tolist()


@pytest.mark.usefixtures("made")
@pytest.mark.parametrize("of_each", [37, 2_048])
def test_what_comes_first_does_not_decide_for_ever(of_each: int) -> None:
    """Texts of rows that came with others, for another arc, have every third code or so."""
    n_first, n = 3_000, 140_000
    codes = np.append(np.arange(n_first) * 7 % 2_999 + 500, np.arange(n - n_first) + 10_000).astype(np.int32)
    segment = Segment(0, n, {1: DataType.STRING})
    kinds, stills = [], []
    for start in range(0, n, of_each):
        if start // of_each % 10 == 0:
            stills.append(segment.still())
        some = codes[start : start + of_each]
        segment.store(1, slice(start, start + len(some)), some, None)
        segment.n_rows += len(some)
        kinds.append(isinstance(segment.data[1], Counted))

    assert (kinds[n_first // of_each], kinds[-1]) == (False, True)
    for stored in (segment, *stills):
        assert stored.data[1][: stored.n_rows].tolist() == codes[: stored.n_rows].tolist()


@pytest.mark.usefixtures("made")
def test_changes_leave_a_still_and_its_bytes_as_they_were() -> None:
    segment = _stored(640, np.arange(1_000, 1_640))
    still = segment.still()

    segment.store(1, np.array([3, 630]), np.array([5, 6], np.int32), None)
    segment.store(1, np.array([3]), np.array([7], np.int32), np.array([True]))

    assert isinstance(segment.data[1], Counted)
    assert still.data[1][np.array([3, 630])].tolist() == [1_003, 1_630]
    assert segment.data[1][np.array([3, 630])].tolist() == [7, 6]
    only_the_still_has = still.array_bytes().keys() - segment.array_ids()
    assert sum(still.array_bytes()[array_id] for array_id in only_the_still_has) == 0


@pytest.mark.usefixtures("made")
def test_an_extract_gathers_runs_and_rows() -> None:
    codes = np.arange(1_000, 1_640)
    codes[100] = 4
    segment = _stored(640, codes)
    segment.kill(np.arange(50, 60))

    in_runs = extract(segment, None, 0, 640)
    segment.kill(np.arange(0, 640, 2))
    in_rows = extract(segment, None, 0, 640)

    for found in (in_runs, in_rows):
        target = np.empty(found.n_rows, np.int32)
        found.gather(segment.data[1], target)
        assert target.tolist() == [codes[found.place_of(index)] for index in range(found.n_rows)]
    assert len(in_runs.runs) == 2
    assert not in_rows.runs


def test_a_block_works_a_column_out_once_while_it_keeps_it() -> None:
    segment = _stored(640, np.arange(1_000, 1_640))
    block = Block(segment, 10, 200, {1: DataType.STRING}, {})

    block.keep(True)

    assert block.column(1).data is block.column(1).data
    assert block.column(1).data.tolist() == list(range(1_010, 1_200))
