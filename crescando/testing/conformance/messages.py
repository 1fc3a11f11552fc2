"""Random messages for a Config, in the vocabulary that stores send.

Rules of the file: what is drawn depends on the generator and the Config's
members alone, in sorted order; some of it is out of place on purpose, and must
be refused.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from crescando.routing.base import Config
from crescando.routing.batch import Message
from crescando.routing.rubberband.keyspace import Rebalance
from crescando.routing.rubberband.messages import (
    AddColumn,
    ConfigMessage,
    CreateTable,
    DropChange,
    DropColumn,
    DropTable,
    Join,
    Leave,
    MessageId,
    Pin,
    Ready,
    Reconfigure,
    Suspect,
    Trust,
    encode_message,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId

Draw = Callable[[random.Random, Config, ProcessId, int], Message]
"""Gives the next message of a sender, with its number; of a process that is no member, one that joins it."""

DATA_SHARE = 0.8
"""Of the messages of clients."""
TABLES = 3


def draw_message(rng: random.Random, config: Config, sender: ProcessId, number: int) -> Message:
    """Give a random message: a read or write of a client, or a configuration message."""
    if not config.is_member(sender):
        return _configure(sender, number, Join(sender))
    if sender.role == "client" and rng.random() < DATA_SHARE:
        kind = rng.choice((MessageKind.READ, MessageKind.WRITE))
        table = rng.randrange(-1, TABLES)
        return Message(sender, number, kind, table, draw_ranges(rng), rng.getrandbits(32), b"x")
    if rng.random() < 0.05:
        return Message(sender, number, MessageKind.CONFIG, -1, (), 0, rng.randbytes(rng.randrange(9)))
    return _configure(sender, number, _draw_body(rng, config, sender))


def draw_ranges(rng: random.Random) -> tuple[KeyRange, ...]:
    """Give what a data message touches: a point, a range, the whole ring, or several ranges."""
    style = rng.randrange(6)
    if style == 0:
        return (FULL_RING,)
    if style < 3:
        at = rng.choice((0, RING_MAX, rng.randrange(RING_MAX)))
        return (KeyRange(at, at),)
    ends = sorted({rng.randrange(RING_MAX) for _ in range(2 * rng.randint(1, 3))})
    return tuple(KeyRange(low, high) for low, high in zip(ends[::2], ends[1::2], strict=False))


def _draw_body(rng: random.Random, config: Config, sender: ProcessId) -> ConfigMessage:
    everyone = sorted(config.members())
    name = f"t{rng.randrange(TABLES)}"
    match rng.randrange(13):
        case 12:
            return Pin(tuple(rng.choices(range(TABLES), k=rng.randint(0, 2))), rng.choice((0.0, 1.0, 1e9)))
        case 10:
            return Reconfigure(Rebalance(rng.choice(everyone), rng.randrange(RING_MAX)), (), None)
        case 11:
            change = MessageId(rng.choice(everyone), rng.randrange(9))
            return Ready(change, rng.randrange(3)) if rng.random() < 0.5 else DropChange(change, "by chance")
        case 0 | 1 | 2 | 3:
            return Suspect(rng.choice(everyone))
        case 4:
            return Trust(rng.choice(everyone))
        case 5:
            return Leave(sender if rng.random() < 0.8 else rng.choice(everyone))
        case 6:
            return AddColumn(name, ColumnDef(f"x{rng.randrange(3)}", DataType.DATE))
        case 7:
            columns = (DropTable(name), DropColumn(name, rng.choice(("k", "x0", "x1"))))
            return columns[rng.randrange(2)]
        case 8:
            return Join(rng.choice(everyone))
    columns_of_table = (ColumnDef("k", DataType.INT64, False), ColumnDef("v", DataType.STRING))
    return CreateTable(TableSchema(name, columns_of_table, "k"))


def _configure(sender: ProcessId, number: int, body: ConfigMessage) -> Message:
    return Message(sender, number, MessageKind.CONFIG, -1, (), 0, encode_message(body))
