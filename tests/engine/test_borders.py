"""Where the texts of a pool lie: in plain offsets, or sixteen of them in twenty bytes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crescando.engine import dictionary, kernels
from crescando.engine.dictionary import Pool
from crescando.engine.heap import Texts
from crescando.engine.kernels.borders import end_of, group_bytes, note_texts, slices_of
from tests.engine.compiled import compiled_module, using


@pytest.fixture(params=["numpy", "numba"])
def made(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


@pytest.mark.parametrize("dtype", [np.uint8, np.uint32, np.int64])
@pytest.mark.parametrize("most", [0, 1, 255])
def test_borders_are_found_in_every_form(dtype: Any, most: int) -> None:
    rng = np.random.default_rng(most)
    lengths = rng.integers(0, most, 300, endpoint=True)
    lengths[100:140] = most
    starts = np.append(0, np.cumsum(lengths))
    offsets = np.zeros(group_bytes(300), dtype)
    if dtype == np.uint8:
        offsets[4:] = 0xEE  # What was there before says nothing.
    for first in range(0, 300, 25):
        note_texts(offsets, first, int(starts[first]), lengths[first : first + 25])
        assert end_of(offsets, first + 25) == starts[first + 25]
    codes = np.append(rng.permutation(300), np.arange(300))

    for find in (slices_of, compiled_module().KERNELS.texts.slices_of):
        found, sizes = find(offsets, codes)
        assert found.tolist() == starts[codes].tolist()
        assert sizes.tolist() == lengths[codes].tolist()
    weights = []
    for each in (kernels._PLAIN, compiled_module().KERNELS):
        weight = np.ones(600, np.int64)
        each.add_lengths(weight, offsets, np.where(codes % 3, codes, -1).astype(np.int32))
        weights.append(weight.tolist())
    assert weights[0] == weights[1] == np.where(codes % 3, lengths[codes] + 1, 1).tolist()


@pytest.mark.usefixtures("made")
def test_a_pool_that_grows_keeps_all_it_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "DECODED_MAX", 50)
    rng = np.random.default_rng(3)
    pool, model, forms = Pool(), [""], []
    for turn in range(30):
        fresh = [f"{turn} {'x' * int(rng.integers(0, 60))} {number}" for number in range(20)]
        if turn == 20:
            fresh[3] = "y" * 256
        sought = [*fresh, *(model[place] for place in rng.integers(0, len(model), 10).tolist())]
        codes = pool.intern(sought)
        model += fresh
        assert codes.tolist() == [model.index(text) for text in sought]
        some = rng.permutation(len(model))[:30]
        wanted = [model[code] for code in some.tolist()]
        assert pool.take(some).to_list() == pool.decode(some) == wanted
        assert pool.texts.to_list() == model
        assert pool.bytes_of(some) == sum(map(len, wanted))
        assert pool.text_bytes == sum(map(len, model)) + 4 * len(model)
        assert [pool.find(text) for text in wanted] == some.tolist()
        assert pool.sorted_texts() == sorted(model)
        forms.append(pool._offsets.dtype.itemsize)
    # Plain while they are few, and again once there is a text that is too long.
    assert forms == [4] * 3 + [1] * 17 + [4] * 10
    kept = np.arange(0, len(model), 2)
    rebuilt = pool.rebuilt(kept)
    assert rebuilt.texts.to_list() == model[::2]
    assert rebuilt.intern(model[::2]).tolist() == list(range(len(kept)))


def test_texts_in_groups_take_a_byte_and_a_quarter_for_their_borders() -> None:
    pool = Pool()
    for first in range(0, 16_000, 4_000):
        pool.intern_texts(Texts.of([f"{first + number:09d}" for number in range(4_000)]))

    assert pool._offsets.dtype == np.uint8
    assert pool.n_bytes == 9 * 16_000 + group_bytes(16_001) + pool._table.nbytes
