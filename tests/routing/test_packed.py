"""Submissions and deliveries come back as they were packed, and what does not add up is refused."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando import wire
from crescando.errors import RemoteProtocolError
from crescando.routing import packed
from crescando.routing.batch import Delivery, Submission, fault_of, offsets_of
from crescando.routing.ecast.messages import Deliver, DeliverRead, Inject, Route
from crescando.types import FULL_RING, KeyRange, MessageKind, ProcessId
from tests.transport.test_wire import BALLOT, same

CLIENT = ProcessId("client", "c1", 2)
COLUMNS = "kind", "table", "replica_offset", "range_offsets", "range_low", "range_high", "payload_offsets"
PLACES = "number", "position", "kind", "table", "scope", "payload_offsets"


def points(n: int, *, kind: int = MessageKind.WRITE, table: int = 1) -> Submission:
    """Give messages of one kind and table with one point each, as most are."""
    keys = np.arange(n, dtype=np.uint64) << np.uint64(40)
    return Submission(
        CLIENT,
        7,
        np.full(n, kind, np.uint8),
        np.full(n, table, np.int64),
        np.zeros(n, np.uint32),
        np.arange(n + 1),
        keys,
        keys,
        offsets_of([3] * n),
        b"abc" * n,
        b"shared",
        5,
    )


def drawn(rng: random.Random) -> Submission:
    """Give a submission any column of which may be alike or not."""
    n = rng.choice([1, 2, 3, 127, 128, 129, 1023, 1024, 1025])
    kinds = [rng.randint(1, 3)] * n if rng.random() < 0.5 else rng.choices((1, 2, 3), k=n)
    tables = [rng.choice([-1, 0, 1 << 62])] * n if rng.random() < 0.5 else rng.choices((-1, 9, 1 << 40), k=n)
    offsets = [0] * n if rng.random() < 0.5 else [rng.getrandbits(32) for _ in range(n)]
    counts = [1] * n if rng.random() < 0.5 else rng.choices((0, 1, 3), k=n)
    low = np.array([rng.getrandbits(63) for _ in range(sum(counts))], np.uint64)
    high = rng.choice([low, low.copy(), low + np.uint64(1)])
    lengths = rng.choices((0, 1, 9), k=n)
    return Submission(
        CLIENT,
        rng.randint(1, 1 << 60),
        np.array(kinds, np.uint8),
        np.array(tables, np.int64),
        np.array(offsets, np.uint32),
        offsets_of(counts),
        low,
        high,
        offsets_of(lengths),
        rng.randbytes(sum(lengths)),
        rng.choice([b"", b"shape"]),
        rng.randint(0, 9),
    )


def delivery(rng: random.Random) -> Delivery:
    n = rng.choice([1, 2, 128, 129, 1025])
    lengths = rng.choices((0, 1, 9), k=n)
    scopes = ((FULL_RING,), (KeyRange(0, 3), KeyRange(9, 10)), ())
    return Delivery(
        CLIENT,
        np.array(sorted(rng.sample(range(10_000), n)), np.int64),
        np.arange(n, dtype=np.int64) + (77 << 20),
        np.array([2] * n if rng.random() < 0.5 else rng.choices((1, 2, 3), k=n), np.uint8),
        np.array([4] * n if rng.random() < 0.5 else rng.choices((4, 5), k=n), np.int64),
        np.array([0] * n if rng.random() < 0.5 else rng.choices((0, 1, 2), k=n), np.int64),
        scopes,
        offsets_of(lengths),
        rng.randbytes(sum(lengths)),
        b"shape",
    )


def carried(message: Any) -> Any:
    return wire.decode(wire.encode(message))


@pytest.mark.parametrize("seed", range(60))
def test_a_submission_comes_back_as_it_was(seed: int) -> None:
    batch = drawn(random.Random(seed))

    for message in (Route(batch), Inject(batch, -1, 3)):
        assert same(carried(message), message), seed


@pytest.mark.parametrize("seed", range(40))
def test_a_delivery_comes_back_as_it_was(seed: int) -> None:
    rng = random.Random(seed)
    parts = delivery(rng), delivery(rng)

    for message in (Deliver(BALLOT, 3, -1, 9, parts), DeliverRead(BALLOT, 9, -1, parts)):
        assert same(carried(message), message), seed


def test_a_form_of_its_own_leaves_no_field_out() -> None:
    for message, form in wire._OWN_FORMS.items():
        kind, packed_kind = (getattr(one, "__origin__", one) for one in (message, form))
        assert kind.__struct_fields__ == packed_kind.__struct_fields__
        assert kind.__struct_config__.tag == packed_kind.__struct_config__.tag


@pytest.mark.parametrize("n", [1, 2, 127, 128, 1024, 1025])
@pytest.mark.parametrize("kind", list(MessageKind))
@pytest.mark.parametrize("table", [-1, 0, 5, -(1 << 63), (1 << 63) - 1])
def test_what_is_alike_does_not_travel(n: int, kind: MessageKind, table: int) -> None:
    batch = points(n, kind=kind, table=table)

    data = wire.encode(Route(batch))

    assert same(wire.decode(data).submission, batch)
    # An offset, a point and the payload of each message; the rest is said once.
    assert len(data) <= n * (8 + 8 + 3) + 100


def test_equal_submissions_have_equal_bytes() -> None:
    batch = points(20)
    apart = {name: np.repeat(getattr(batch, name), 2)[::2] for name in COLUMNS}
    other = msgspec.structs.replace(batch, **apart)

    assert other.range_low is not other.range_high
    assert wire.encode(Route(other)) == wire.encode(Route(batch))
    assert same(carried(Route(other)).submission, batch)


@pytest.mark.parametrize("seed", range(20))
def test_columns_are_aligned_and_nobody_can_write_to_them(seed: int) -> None:
    rng = random.Random(seed)
    batch = carried(Route(drawn(rng))).submission
    (part,) = carried(Deliver(BALLOT, 3, -1, 9, (delivery(rng),))).parts

    for holder, names in ((batch, COLUMNS), (part, PLACES)):
        for name in names:
            column = getattr(holder, name)
            assert column.flags.aligned, (seed, name)
            assert not column.flags.writeable, (seed, name)


def test_few_submissions_do_not_pin_the_message_they_came_with() -> None:
    batch = carried(Route(points(3))).submission

    for name in COLUMNS:
        base = getattr(batch, name)
        while isinstance(base, np.ndarray):
            base = base.base
        # Either the columns' own bytes, or the array that all share.
        assert base is None or len(base) == (3 + 1 + 3) * 8, name


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize(
    "change", [lambda c: c.astype(np.float64), lambda c: c[:-1], lambda c: np.append(c, c)]
)
def test_a_submission_that_cannot_be_one_does_not_travel(name: str, change: Any) -> None:
    batch = points(3)
    batch = msgspec.structs.replace(batch, **{name: change(getattr(batch, name))})

    assert fault_of(batch)
    with pytest.raises(TypeError, match="not travel"):
        wire.encode(Route(batch))


@pytest.mark.parametrize("name", PLACES)
@pytest.mark.parametrize("change", [lambda c: c.astype(np.float64), lambda c: c[:-1]])
def test_a_delivery_that_cannot_be_one_does_not_travel(name: str, change: Any) -> None:
    part = delivery(random.Random(3))
    part = msgspec.structs.replace(part, **{name: change(getattr(part, name))})

    with pytest.raises(TypeError, match="not travel"):
        wire.encode(Deliver(BALLOT, 3, -1, 9, (part,)))


# What comes from outside.


def refused(value: Any) -> bool:
    """Say whether a message with such a packed submission, or delivery, is refused."""
    is_submission = isinstance(value, packed.PackedSubmission)
    raw = ["route", value] if is_submission else ["deliver", BALLOT, 3, -1, 9, [value]]
    try:
        message = wire.decode(msgspec.msgpack.encode(raw))
    except RemoteProtocolError:
        return True
    # What is not refused is well-formed as an object: whoever looks at it gets an answer.
    if is_submission:
        fault_of(message.submission)
        wire.encode(message)
    else:
        for part in message.parts:
            assert all(len(getattr(part, name)) == len(part) for name in PLACES[:-1])
        wire.encode(message)
    return False


@pytest.mark.parametrize(
    "change",
    [
        {"n": 4},
        {"n": 2},
        {"n": 0},
        {"n": -1},
        {"n": 1 << 60},
        {"form": 0},
        {"form": 128},
        {"form": -1},
        {"form": 2 | 4},
        {"form": 2 | 8},
        {"form": 2 | 32},
        {"table": 1 << 63},
        {"columns": b""},
        {"columns": bytes(7)},
        {"columns": bytes(56 + 8)},
        {"columns": bytes(56 - 1)},
    ],
)
def test_a_submission_that_does_not_add_up_is_refused(change: dict[str, Any]) -> None:
    good = packed.pack_submission(points(3))

    assert not refused(good)
    assert refused(msgspec.structs.replace(good, **change))


@pytest.mark.parametrize(
    "change",
    [
        {"n": 129},
        {"n": 0},
        {"n": -1},
        {"n": 1 << 60},
        {"form": 32},
        {"form": 64 | 128},
        {"columns": bytes(9)},
    ],
)
def test_a_delivery_that_does_not_add_up_is_refused(change: dict[str, Any]) -> None:
    rng = random.Random(5)
    good = packed.pack_delivery(delivery(rng))

    assert not refused(good)
    assert refused(msgspec.structs.replace(good, **change))


@pytest.mark.parametrize("seed", range(400))
def test_any_change_gives_something_well_formed_or_nothing(seed: int) -> None:
    rng = random.Random(seed)
    good: Any = rng.choice(
        [
            packed.pack_submission(drawn(rng)),
            packed.pack_submission(points(3)),
            packed.pack_delivery(delivery(rng)),
        ]
    )
    columns = bytearray(good.columns)
    match rng.randrange(4):
        case 0:
            columns[rng.randrange(len(columns))] = rng.randrange(256)
        case 1:
            del columns[rng.randrange(len(columns)) :]
        case 2:
            columns += rng.randbytes(rng.choice([1, 8, 16, 24]))
        case _:
            pass
    changes = {"form": rng.randrange(256), "n": max(0, good.n + rng.randint(-2, 2))}
    change = {name: value for name, value in changes.items() if rng.random() < 0.5}

    refused(msgspec.structs.replace(good, columns=bytes(columns), **change))


def test_as_many_tables_as_somebody_names_take_no_more_memory() -> None:
    for table in range(1000):
        carried(Route(points(2, table=table)))

    assert len(packed._OF_TABLE) <= packed._TABLES_MAX
