"""Numbers in fewer bytes: whatever comes, in whatever order, is given back as it was."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescando.engine.narrowed import Narrowed
from crescando.engine.segment import Segment
from crescando.engine.statement import PHYSICAL
from crescando.schema import DataType

CAPACITY = 60
KINDS = (DataType.INT16, DataType.INT32, DataType.INT64, DataType.DATE, DataType.TIMESTAMP)
STEPS = (1, 50, 1_000, 1_000_000, 60_000_000)


def _clipped(values: list[int], kind: DataType) -> Any:
    bounds = np.iinfo(PHYSICAL[kind])
    return np.array([min(max(each, bounds.min), bounds.max) for each in values], PHYSICAL[kind])


@st.composite
def _arrivals(draw: Any, kind: DataType, n: int) -> Any:
    bounds = np.iinfo(PHYSICAL[kind])
    middle = draw(st.sampled_from([0, 19_700, 1_702_098_000_000_000, bounds.min, bounds.max]))
    step = draw(st.sampled_from(STEPS))
    width = draw(st.sampled_from([1, 100, 30_000, 1 << 31, 1 << 62]))
    several = draw(st.lists(st.integers(-width, width), min_size=n, max_size=n))
    valid = np.array(draw(st.lists(st.booleans(), min_size=n, max_size=n)), np.bool_)
    return _clipped([middle + step * each for each in several], kind), valid


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_a_segment_gives_back_what_was_stored(data: Any) -> None:
    kind = data.draw(st.sampled_from(KINDS))
    segment = Segment(0, CAPACITY, {1: kind})
    model: list[int | None] = []
    stills: list[tuple[Any, list[int | None]]] = []

    def shown(stored: Any) -> list[int | None]:
        values, mask = stored.data[1][: stored.n_rows], stored.valid.get(1)
        assert values.dtype == PHYSICAL[kind]
        known = [True] * stored.n_rows if mask is None else mask[: stored.n_rows].tolist()
        return [value if is_known else None for value, is_known in zip(values.tolist(), known, strict=True)]

    for _ in range(data.draw(st.integers(1, 6))):
        if data.draw(st.booleans()):
            stills.append((segment.still(), list(model)))
        in_use = bool(model) and data.draw(st.booleans())
        n = data.draw(st.integers(1, min(8, len(model)) if in_use else 10))
        values, valid = data.draw(_arrivals(kind, n))
        if in_use:
            rows = np.array(data.draw(st.permutations(range(len(model)))))[:n]
            segment.store(1, rows, values, valid)
        else:
            rows = np.arange(len(model), len(model) + n)
            segment.store(1, slice(len(model), len(model) + n), values, valid)
            segment.n_rows += n
            model += [None] * n
        for row, value, is_known in zip(rows.tolist(), values.tolist(), valid.tolist(), strict=True):
            model[row] = value if is_known else None
        some = np.arange(0, len(model), 2)
        assert shown(segment) == model
        assert segment.data[1][some].tolist() == segment.data[1][: len(model)][::2].tolist()
        assert all(shown(still) == before for still, before in stills)
    segment.kill(np.arange(0, len(model), 3))
    segment.compact()
    assert shown(segment) == [each for place, each in enumerate(model) if place % 3]
    assert all(shown(still) == before for still, before in stills)


@pytest.mark.parametrize(
    ("kind", "values", "n_bytes"),
    [
        (DataType.INT64, 2_200_000_000_000 + np.arange(50_000), 2),
        (DataType.INT64, np.arange(70_000) * 1_000, 4),
        (DataType.INT64, np.arange(70_000) * 100, 3),
        (DataType.INT64, np.arange(50) << 40, None),
        (DataType.INT32, np.arange(70_000) * 100, None),
        (DataType.INT64, np.arange(50) << 50, None),
        (DataType.INT32, 10_000_000 + np.arange(200), 1),
        (DataType.DATE, np.arange(-15_000, 15_000), 2),
        (DataType.TIMESTAMP, 1_702_098_000_000_000 + 60_000_000 * np.arange(300), 2),
        (DataType.TIMESTAMP, 1_702_098_000_000_000 + 60_000_000 * np.arange(0, 1_000_000, 50), 3),
        (DataType.TIMESTAMP, 1_702_098_000_000_000 + 1_000_000 * np.arange(0, 60_000, 7), 2),
        (DataType.TIMESTAMP, 1_702_098_000_000_000 + np.arange(0, 1 << 40, 1 << 29), None),
        (DataType.TIMESTAMP, np.arange(0, 1 << 50, 1 << 39), None),
        (DataType.INT16, np.arange(100), 1),
    ],
)
def test_values_lie_in_as_few_bytes_as_hold_them(kind: DataType, values: Any, n_bytes: int | None) -> None:
    segment = Segment(0, len(values), {1: kind})
    values = values.astype(PHYSICAL[kind])
    valid = np.ones(len(values), np.bool_)
    valid[0] = False

    segment.store(1, slice(0, len(values)), np.where(valid, values, 0), valid)
    segment.n_rows = len(values)
    lane = segment.data[1]

    assert lane[1 : len(values)].tolist() == values[1:].tolist()
    per_row = 8 + (PHYSICAL[kind].itemsize if n_bytes is None else n_bytes)
    assert segment.n_bytes == per_row * len(values) + -(-len(values) // 8)
    assert isinstance(lane, Narrowed) is (n_bytes is not None)


@pytest.mark.parametrize(
    ("values", "n_bytes"),
    [
        (np.arange(-100, 100) / 100, 1),
        (np.arange(20_000) / 10, 2),
        (np.round(np.random.default_rng(1).random(500) * 6_000, 2), 3),
        (np.round(np.random.default_rng(1).random(500) * 1e6, 2), 4),
        (np.round(np.random.default_rng(1).random(500) * 9, 4), 3),
        (np.arange(50) * 1e9, 8),
        (np.arange(50) * 1e16, 8),
        (np.arange(50) / 3, 8),
        (np.array([1.5, np.nan]), 8),
        (np.array([1.5, np.inf, -np.inf]), 8),
        (np.array([0.0, -0.0]), 8),
        (np.array([1e300, 5e-324]), 8),
    ],
)
def test_floats_that_are_decimals_lie_in_fewer_bytes(values: Any, n_bytes: int) -> None:
    segment = Segment(0, len(values), {1: DataType.FLOAT64})

    segment.store(1, slice(0, len(values)), values, None)
    segment.n_rows = len(values)

    lane = segment.data[1]
    rows = np.arange(len(values))[::-1]
    assert lane[: len(values)].view(np.int64).tolist() == values.view(np.int64).tolist()
    assert lane[rows].view(np.int64).tolist() == values[rows].view(np.int64).tolist()
    assert segment.n_bytes == (8 + n_bytes) * len(values)


def test_floats_are_given_back_bit_by_bit_in_whatever_order_they_come() -> None:
    rng = np.random.default_rng(2)
    kinds = [
        lambda n: rng.integers(-9, 9, n) / 1,
        lambda n: np.round(rng.random(n) * 90, 1),
        lambda n: np.round(rng.random(n) * 1e4, 2),
        lambda n: np.round(rng.random(n) * 1e4, 4),
        lambda n: rng.random(n) * 10.0 ** rng.integers(-300, 300, n),
        lambda n: rng.choice([0.0, -0.0, np.nan, np.inf, -np.inf], n),
    ]
    forms = set()
    for turn in range(200):
        segment = Segment(0, CAPACITY, {1: DataType.FLOAT64})
        model, known = np.zeros(0), np.zeros(0, np.bool_)
        for _ in range(6):
            values = np.concatenate([kinds[rng.integers(0, 1 + turn % 6)](2) for _ in range(4)])
            valid = rng.random(8) < 0.8
            if len(model) >= 8 and rng.random() < 0.4:
                rows = rng.permutation(len(model))[:8]
                segment.store(1, rows, values, valid)
                model, known = model.copy(), known.copy()
                model[rows], known[rows] = values, valid
            else:
                segment.store(1, slice(len(model), len(model) + 8), values, valid)
                segment.n_rows += 8
                model, known = np.append(model, values), np.append(known, valid)
            shown = segment.data[1][: len(model)]
            assert shown[known].view(np.int64).tolist() == model[known].view(np.int64).tolist()
            lane = segment.data[1]
            forms.add((lane.width, lane.scale) if isinstance(lane, Narrowed) else None)
    assert len(forms) > 6


def test_a_column_is_written_anew_a_few_times_only() -> None:
    segment = Segment(0, 4_096, {1: DataType.TIMESTAMP})
    rng = np.random.default_rng(1)
    forms = {}
    for row in range(4_096):
        value = 1_702_098_000_000_000 + rng.integers(0, 1 << min(8 + row // 64, 60), 1)
        segment.store(1, slice(row, row + 1), value, None)
        segment.n_rows += 1
        # Kept, so that none takes the identity of another.
        forms[id(segment.data[1])] = segment.data[1]

    assert len(forms) <= 8


@pytest.mark.parametrize("kind", [DataType.INT64, DataType.TIMESTAMP, DataType.DATE])
def test_rows_that_are_all_null_say_nothing_about_those_that_come(kind: DataType) -> None:
    segment = Segment(0, 8, {1: kind})
    far = np.full(1, 10_000 if kind is DataType.DATE else 1_702_098_000_000_000, PHYSICAL[kind])
    segment.store(1, slice(0, 3), np.zeros(3, PHYSICAL[kind]), np.zeros(3, np.bool_))
    segment.n_rows = 3
    segment.add_column(2, kind)

    segment.store(1, slice(3, 4), far, None)
    segment.store(2, np.array([1]), far, None)
    segment.n_rows = 4

    for column, row in ((1, 3), (2, 1)):
        lane = segment.data[column]
        assert isinstance(lane, Narrowed)
        assert lane.width == 1
        assert lane[row : row + 1].tolist() == far.tolist()
        assert segment.valid[column][:4].nonzero()[0].tolist() == [row]
