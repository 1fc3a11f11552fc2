"""Few messages take shorter ways than many: with the same outcome, whatever they are."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescando.routing import batch as batches
from crescando.routing.base import Refusal, Routes
from crescando.routing.batch import fault_of
from crescando.routing.ecast.split import Shares
from crescando.types import FULL_RING, KeyRange
from tests.ecast.parties import S0, S1, S2, of, read, write
from tests.transport.test_wire import same

SCOPES = ((), (FULL_RING,), (KeyRange(0, 9), KeyRange(20, 29)))


@settings(max_examples=300, deadline=None)
@given(st.data())
def test_few_messages_are_judged_as_many(data: st.DataObject) -> None:
    n = data.draw(st.integers(1, 4))
    small = st.integers(0, 5)

    def column(size: int, dtype: str) -> Any:
        return np.array(data.draw(st.lists(small, min_size=size, max_size=size)), dtype)

    offsets = np.sort(column(n + 1, "i8")) if data.draw(st.booleans()) else column(n + 1, "i8")
    if data.draw(st.booleans()):
        offsets = np.arange(n + 1)
    offsets[0] = 0
    wide = int(offsets[-1])
    messages = msgspec.structs.replace(
        of(*(write(number) for number in range(1, n + 1))),
        kind=column(n, "u1"),
        range_offsets=offsets,
        range_low=column(wide, "u8"),
        range_high=column(wide, "u8") + np.uint64(data.draw(small)),
    )

    told = fault_of(messages)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(batches, "FEW", -1)
        assert fault_of(messages) == told
        # Nor does it matter that each message has one point, as most have.
        patch.setattr(batches, "_POINTS_MAX", 0)
        assert fault_of(messages) == told


@settings(max_examples=100, deadline=None)
@given(
    st.integers(1, 5),
    st.data(),
    st.dictionaries(st.sampled_from([S0, S1, S2]), st.sampled_from(SCOPES), max_size=3),
)
def test_messages_that_all_go_one_way_are_split_like_any(n: int, data: st.DataObject, target: Any) -> None:
    messages = of(*((read if number % 2 else write)(number) for number in range(1, n + 1)))
    start = data.draw(st.integers(0, n - 1))
    positions = np.arange(70 + start, 70 + n)
    group = np.zeros(n - start, np.int64)

    one = Shares(messages, start, Routes(group, (target,)), positions)
    # A second route that no message takes makes them go the long way.
    other = Shares(messages, start, Routes(group, (target, Refusal("nobody"))), positions)

    assert (one.last, one.weights) == (other.last, other.weights)
    assert all(same(one.of(process), other.of(process)) for process in target)


def test_what_is_refused_alone_goes_nowhere() -> None:
    shares = Shares(of(write(1)), 0, Routes(np.zeros(1, np.int64), (Refusal("no"),)), np.arange(1))

    assert (shares.last, shares.weights) == ({}, {})
