from __future__ import annotations

import random

import pytest

from crescando.errors import RemoteProtocolError
from crescando.routing.rubberband import (
    AddColumn,
    ConfigMessage,
    CreateTable,
    DropColumn,
    DropTable,
    Join,
    Leave,
    Suspect,
    Trust,
    decode_message,
    encode_message,
)
from crescando.schema import ColumnDef, DataType, RangePartition, TableSchema
from tests.routing.worlds import CLIENT, schema, storage

EVERY_KIND: tuple[ConfigMessage, ...] = (
    Join(storage(1)),
    Leave(CLIENT),
    Suspect(storage(2)),
    Trust(storage(2)),
    CreateTable(schema("t")),
    CreateTable(
        TableSchema("r", (ColumnDef("k", DataType.DATE, False),), "k", ("k",), RangePartition(-3, 9.5))
    ),
    DropTable("t"),
    AddColumn("t", ColumnDef("x", DataType.FLOAT32)),
    DropColumn("t", "x"),
)


@pytest.mark.parametrize("message", EVERY_KIND, ids=lambda message: type(message).__qualname__)
def test_every_message_survives_the_wire(message: ConfigMessage) -> None:
    assert decode_message(encode_message(message)) == message


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\xc0", id="nil"),
        pytest.param(b"\x93\x01\x02\x03", id="untagged"),
        pytest.param(b"\x92\xa5expel\x93\xa6client\xa1c\x00", id="unknown tag"),
        pytest.param(b"\x92\xa4join\x93\xa6client\xa1c\xc3", id="bool for int"),
        pytest.param(b"\xdd\xff\xff\xff\xff", id="huge array"),
        pytest.param(b"\x92\xa6create\xdd\xff\xff\xff\xff", id="huge table"),
        pytest.param(b"\x92\xa4drop\xdb\xff\xff\xff\xff", id="huge text"),
        pytest.param(b"\x91" * 100_000, id="deep"),
        pytest.param(encode_message(Join(CLIENT)) + b"\x00", id="trailing byte"),
    ],
)
def test_malformed_payload_is_a_protocol_error(payload: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="malformed configuration message"):
        decode_message(payload)


def test_truncated_and_random_payloads_raise_nothing_else() -> None:
    rng = random.Random(7)
    whole = [encode_message(message) for message in EVERY_KIND]
    cut = [data[:at] for data in whole for at in range(len(data))]
    flipped = []
    for _ in range(2000):
        changed = bytearray(rng.choice(whole))
        changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
        flipped.append(bytes(changed))

    for data in cut:
        with pytest.raises(RemoteProtocolError):
            decode_message(data)
    for data in flipped:
        try:
            decode_message(data)
        except RemoteProtocolError:
            continue
