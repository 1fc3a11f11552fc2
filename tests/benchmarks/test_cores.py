"""A destination keeps what it was delivered, however long the payloads are."""

from __future__ import annotations

import random
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.ordering.cores import KEY_BYTES, Destination
from crescando.routing.batch import Delivery, offsets_of
from crescando.routing.ecast.application import Application
from crescando.types import ProcessId

ME = ProcessId("storage", "s1", 1)


@pytest.mark.parametrize(
    "lengths", [[100], [100] * 64, [100, 9, 50], [KEY_BYTES], [KEY_BYTES, KEY_BYTES], [9, 9, 10]], ids=str
)
def test_what_is_put_is_kept_by_its_key(lengths: list[int]) -> None:
    offsets = offsets_of(lengths)
    payload = random.Random(7).randbytes(sum(lengths))
    zeros = np.zeros(len(lengths), np.int64)
    part = Delivery(
        sender=ProcessId("client", "c1", 1),
        number=np.arange(1, len(lengths) + 1),
        position=np.arange(len(lengths)),
        kind=np.full(len(lengths), 2, np.uint8),
        table=zeros,
        scope=zeros,
        scopes=((),),
        payload_offsets=offsets,
        payload=payload,
        shared=b"",
    )
    destination = Destination(ME, Application(ME, ()), keeps=True)

    destination._apply(part)

    puts = [payload[begin:end] for begin, end in pairwise(offsets.tolist())]
    assert destination.map == {put[:KEY_BYTES]: put[KEY_BYTES:] for put in puts}
    assert destination.n_applied == len(lengths)
