"""How much of a cycle copies may take: half as long as the operations, on average, and each copy its turn."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest

from crescando.engine.base import Piece
from crescando.roles.areas import Areas, Hand, Make, OpenArea, TakeImage
from crescando.roles.copy_messages import CopyId
from crescando.roles.cycles import COPY_SHARE, CopyWork
from crescando.routing.rubberband.messages import MessageId
from crescando.types import FULL_RING, ProcessId

PIECE_S, OPERATIONS_S, IDLE_S = 0.003, 0.002, 0.005
PIECE = Piece(1, 1, np.zeros(1, np.uint64), ())
CHANGE = MessageId(ProcessId("client", "c", 1), 2)
SENT = (CopyId(CHANGE, 0), CopyId(CHANGE, 1))
RECEIVED = CopyId(CHANGE, 2)


class Busy:
    """An engine, and an image of it, of which each piece takes a while."""

    n_pieces = n_rows = n_bytes = 1 << 20

    def __init__(self) -> None:
        self.now_s = 0.0
        self.done: Counter[str] = Counter()

    def clock(self) -> float:
        return self.now_s

    def beside(self, _: Any) -> Busy:
        return self

    def image(self, _: Any) -> Busy:
        return self

    def piece(self, _: int) -> Piece:
        self.now_s += PIECE_S
        return PIECE

    def take_in(self, _: Piece) -> None:
        self.now_s += PIECE_S
        self.done["received"] += 1

    def statistics(self) -> dict[str, int]:
        return {"bytes": 0}


def cycles(n: int, operations_s: float | None) -> Busy:
    """Do cycles in which a process sends two copies and receives one."""
    engine: Any = Busy()
    areas = Areas()
    for copy in SENT:
        areas.carry_out(TakeImage(copy, (FULL_RING,), 1), engine)
    areas.carry_out(OpenArea(RECEIVED, (FULL_RING,), (FULL_RING,), ()), engine)
    hands: tuple[Hand, ...] = (Hand(RECEIVED, (PIECE,) * n * 9, is_last=False),)
    for _ in range(n):
        makes = tuple(Make(copy, 0, 1 << 30) for copy in SENT)
        work = CopyWork(areas, makes, hands, IDLE_S, 1)
        for made in work.run(engine, engine.clock, operations_s, weighs=False).made:
            engine.done[f"sent {made.copy.number}"] += len(made.pieces)
        hands = ()
    busy: Busy = engine
    return busy


def test_operations_keep_their_share_and_every_copy_advances() -> None:
    n = 300
    engine = cycles(n, OPERATIONS_S)

    assert COPY_SHARE * OPERATIONS_S * n - PIECE_S <= engine.now_s <= COPY_SHARE * OPERATIONS_S * n + PIECE_S
    n_pieces = sum(engine.done.values())
    assert all(engine.done[copy] >= n_pieces // 6 for copy in ("sent 0", "sent 1", "received")), engine.done


@pytest.mark.parametrize("operations_s", [None, 10.0])
def test_a_cycle_works_no_longer_on_copies_than_whoever_comes_may_wait(operations_s: float | None) -> None:
    n = 60
    engine = cycles(n, operations_s)

    assert IDLE_S * n - PIECE_S <= engine.now_s <= (IDLE_S + PIECE_S) * n
    assert all(engine.done[copy] >= n // 6 for copy in ("sent 0", "sent 1", "received")), engine.done
