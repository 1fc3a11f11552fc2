"""Random configurations and messages for the routing tests; seeded, never global chance."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

from crescando.errors import SpecError
from crescando.routing.batch import Message
from crescando.routing.rubberband import (
    AddColumn,
    ConfigMessage,
    Contract,
    Copy,
    CreateTable,
    DropChange,
    DropColumn,
    DropTable,
    Expand,
    Join,
    Leave,
    MessageId,
    Ready,
    Rebalance,
    Reconfigure,
    Replace,
    Rubberband,
    Suspect,
    Transformation,
    Trust,
    encode_message,
)
from crescando.routing.rubberband.planner import make_plan
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import RING_MAX, KeyRange, MessageKind, ProcessId

CLIENT = ProcessId("client", "c0")
OUTSIDER = ProcessId("client", "nobody")


def storage(index: int) -> ProcessId:
    return ProcessId("storage", f"s{index}")


def super_(index: int) -> ProcessId:
    return ProcessId("super", f"u{index}")


def schema(name: str) -> TableSchema:
    return TableSchema(name, (ColumnDef("k", DataType.INT64, False), ColumnDef("v", DataType.STRING)), "k")


def config_message(sender: ProcessId, body: ConfigMessage, number: int = 1) -> Message:
    return Message(sender, number, MessageKind.CONFIG, -1, (), 0, encode_message(body))


def data_message(
    kind: MessageKind,
    ranges: Sequence[KeyRange],
    offset: int = 0,
    *,
    table: int = 0,
    sender: ProcessId = CLIENT,
    number: int = 1,
) -> Message:
    return Message(sender, number, kind, table, tuple(ranges), offset, b"x")


def after(config: Rubberband, *steps: tuple[ProcessId, ConfigMessage]) -> Rubberband:
    """Apply configuration messages that must not be refused, numbered from 1 per sender."""
    numbers: Counter[ProcessId] = Counter()
    for sender, body in steps:
        numbers[sender] += 1
        message = config_message(sender, body, numbers[sender])
        config.destset(message)
        config = config.apply(message)
    return config


def simple(n: int, f: int, *, n_supers: int = 1, ring_ids: Sequence[int] | None = None) -> Rubberband:
    """Give a ring of n storage processes with one table, whose id is 0."""
    genesis = Rubberband.genesis(
        storages=[storage(i) for i in range(n)],
        replication=f,
        supers=[super_(i) for i in range(n_supers)],
        clients=[CLIENT],
        ring_ids=ring_ids,
    )
    return after(genesis, (CLIENT, CreateTable(schema("t"))))


def random_ids(rng: random.Random, n: int) -> list[int]:
    """Give distinct ring ids, edges and neighbours more often than chance would."""
    special = [0, 1, RING_MAX, RING_MAX - 1, 1 << 63, (1 << 63) - 1, 12345, 12346]
    chosen: set[int] = set()
    while len(chosen) < n:
        chosen.add(rng.choice(special) if rng.random() < 0.4 else rng.randrange(1 << 64))
    ids = list(chosen)
    rng.shuffle(ids)
    return ids


def random_ring(rng: random.Random) -> Rubberband:
    """Give 1 to 12 storage processes at random ids, f from 1 to 5, up to 3 supers, one table."""
    n = rng.randint(1, 12)
    f = rng.randint(1, min(5, n))
    ids = None if rng.random() < 0.2 else random_ids(rng, n)
    return simple(n, f, n_supers=rng.randint(1, 3), ring_ids=ids)


def random_config(rng: random.Random) -> Rubberband:
    """Give a random ring after some random votes, joins and leaves."""
    config = random_ring(rng)
    for number in range(1, rng.randint(1, 30)):
        config = config.apply(random_config_message(rng, config, number))
    return config


def random_config_message(rng: random.Random, config: Rubberband, number: int) -> Message:
    """Give a configuration message: mostly a vote, sometimes one that is void or refused."""
    everyone = [*sorted(config.members() | set(config.ring.processes)), OUTSIDER]
    supers = sorted(config.supers) or everyone
    some_name = rng.choice(["t", "t1", "t2"])
    body: ConfigMessage
    if rng.random() < 0.35:
        keyspace = random_keyspace_message(rng, config, number)
        if keyspace is not None:
            return keyspace
    match rng.randrange(16):
        case 0:
            process = ProcessId(rng.choice(["client", "storage", "super", "router"]), f"n{rng.randrange(5)}")
            sender = process if rng.random() < 0.9 else rng.choice(everyone)
            return config_message(sender, Join(process), rng.choice([1, 1, 1, 2]))
        case 1:
            sender = rng.choice(everyone)
            return config_message(sender, Leave(sender if rng.random() < 0.8 else CLIENT), number)
        case 2:
            body = Trust(rng.choice(everyone))
            return config_message(rng.choice(supers), body, number)
        case 3:
            added = ColumnDef(f"x{rng.randrange(3)}", DataType.DATE, rng.random() < 0.8)
            changes: tuple[ConfigMessage, ...] = (
                CreateTable(schema(some_name)),
                DropTable("t2"),
                AddColumn(some_name, added),
                DropColumn(some_name, rng.choice(["k", "v", "x0", "x1"])),
            )
            return config_message(rng.choice(everyone), changes[rng.randrange(4)], number)
        case 4:
            sender = rng.choice(everyone)
            return Message(sender, number, MessageKind.CONFIG, -1, (), 0, rng.randbytes(rng.randrange(9)))
        case 5:
            return config_message(rng.choice(everyone), Suspect(rng.choice(everyone)), number)
        case _:
            accused = rng.choice(everyone)
            if accused == CLIENT and rng.random() < 0.9:
                # Most worlds keep the client whose data messages the tests route.
                accused = rng.choice(config.ring.processes)
            return config_message(rng.choice(supers), Suspect(accused), number)


def random_transformation(rng: random.Random, config: Rubberband) -> Transformation:
    """Give any change of the keyspace, possible more often than not."""
    at = random_position(rng, config)
    in_ring = rng.choice(config.target.processes)
    standby = sorted(config.storages - set(config.target.processes) - set(config.ring.processes)) or [in_ring]
    match rng.randrange(5):
        case 0 | 4:
            return Expand(rng.choice(standby), at)
        case 1:
            return Contract(in_ring, rng.random() < 0.3)
        case 2:
            return Replace(in_ring, rng.choice(standby))
    return Rebalance(in_ring, at)


def random_keyspace_message(rng: random.Random, config: Rubberband, number: int) -> Message | None:
    """Give a change that begins, a copy that arrives, or a change that is dropped; mostly a proper one."""
    everyone = [*sorted(config.members()), OUTSIDER]
    if config.changes and rng.random() < 0.6:
        change = rng.choice(config.changes)
        wanted = change.id if rng.random() < 0.9 else MessageId(CLIENT, 99)
        if rng.random() < 0.15:
            sender = rng.choice(everyone)
            return config_message(sender, DropChange(wanted, "chance"), number)
        missing = [place for place in range(len(change.copies)) if place not in change.ready] or [0]
        index = rng.randrange(-1, len(change.copies) + 1) if rng.random() < 0.1 else rng.choice(missing)
        receiver = change.copies[index].receiver if 0 <= index < len(change.copies) else CLIENT
        if rng.random() < 0.1:
            receiver = rng.choice(everyone)
        return config_message(receiver, Ready(wanted, index), number)
    transformation = random_transformation(rng, config)
    failed = frozenset(config.target.processes) - config.storages
    try:
        copies = make_plan(config.target, transformation, failed=failed, steps_max=20).copies
    except SpecError:
        copies = ()
    if rng.random() < 0.2:
        copies = _spoilt(rng, config, copies)
    layout = config.layout if rng.random() < 0.9 else MessageId(CLIENT, 98)
    sender = rng.choice(everyone) if rng.random() < 0.1 else CLIENT
    return config_message(sender, Reconfigure(transformation, copies, layout), number)


def _spoilt(rng: random.Random, config: Rubberband, copies: tuple[Copy, ...]) -> tuple[Copy, ...]:
    """Give an instruction list with a fault, or one that only looks odd."""
    some = list(copies) or [Copy(config.ring.processes[0], CLIENT, (KeyRange(0, 9),))]
    place = rng.randrange(len(some))
    sender, receiver, scope = some[place].sender, some[place].receiver, some[place].scope
    match rng.randrange(7):
        case 0:
            del some[place]
        case 1:
            some.append(some[place])
        case 2:
            some[place] = Copy(rng.choice(config.ring.processes), receiver, scope)
        case 3:
            some[place] = Copy(sender, rng.choice(config.ring.processes), scope)
        case 4:
            some[place] = Copy(sender, receiver, scope[1:])
        case 5:
            low, high = scope[0]
            some[place] = Copy(sender, receiver, (KeyRange(low, max(low, high - 1)), *scope[1:]))
        case _:
            rng.shuffle(some)
    return tuple(some)


def random_position(rng: random.Random, config: Rubberband) -> int:
    """Give a ring position, often at or beside the border of an arc."""
    if rng.random() < 0.5:
        return rng.randrange(1 << 64)
    at = rng.choice(config.ring.ids) + rng.choice([-1, 0, 1])
    return min(max(at, 0), RING_MAX)


def random_ranges(rng: random.Random, config: Rubberband) -> tuple[KeyRange, ...]:
    """Give what a message touches: a point, a range, the whole ring, or several of them."""
    match rng.randrange(10):
        case 0 | 1 | 2:
            at = random_position(rng, config)
            return (KeyRange(at, at),)
        case 3 | 4 | 5:
            low, high = sorted(random_position(rng, config) for _ in range(2))
            return (KeyRange(low, high),)
        case 6:
            return (KeyRange(0, RING_MAX),)
    ends = sorted({random_position(rng, config) for _ in range(2 * rng.randint(1, 4))})
    return tuple(KeyRange(*pair) for pair in zip(ends[::2], ends[1::2], strict=False)) or (KeyRange(0, 0),)


def random_data_message(
    rng: random.Random, config: Rubberband, *, sender: ProcessId = CLIENT, number: int = 1
) -> Message:
    """Give a read or a write, now and then a malformed one or one for a table that is not there."""
    ranges = random_ranges(rng, config)
    if rng.random() < 0.03:
        ranges = rng.choice([(), (KeyRange(9, 3),), (*ranges, KeyRange(RING_MAX, 0))])
    table = 0 if rng.random() < 0.95 else rng.choice([-1, 1, 2, 7])
    kind = rng.choice([MessageKind.READ, MessageKind.WRITE])
    offset = rng.randrange(1 << 32)
    return data_message(kind, ranges, offset, table=table, sender=sender, number=number)
