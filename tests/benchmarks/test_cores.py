"""A destination keeps what it was delivered, however long the payloads are."""

from __future__ import annotations

import asyncio
import random
from itertools import pairwise

import numpy as np
import pytest

from benchmarks.ordering.cores import KEY_BYTES, Destination, Sender
from benchmarks.ordering.embedded import Embedded
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


class _Noting(asyncio.Future[None]):
    """A future that notes what was stable when it was done."""

    upto = 0

    def __init__(self, sender: Sender) -> None:
        super().__init__()
        self._sender = sender

    def set_result(self, result: None) -> None:
        self.upto = self._sender.upto
        super().set_result(result)


def test_a_block_is_done_when_its_own_last_put_is_stable() -> None:
    """Also after single puts, which take numbers of their own."""

    async def run() -> None:
        async with Embedded() as embedded:
            sender = embedded.sender
            sender._batch_max = 10  # Else all blocks are one submission.
            singles = [_Noting(sender) for _ in range(200)]
            for key, single in enumerate(singles):
                sender.put(key, b"v", single)
            await asyncio.gather(*singles)
            keys = np.arange(5, dtype=np.uint64)
            blocks = [_Noting(sender) for _ in range(40)]
            first = sender.upto + 1
            for done in blocks:
                sender.put_block(keys, keys.tobytes(), done)
            await asyncio.gather(*blocks)
            for place, done in enumerate(blocks):
                assert done.upto >= first + 5 * place + 4

    asyncio.run(run())
