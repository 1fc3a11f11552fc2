"""The wire codec: every message comes back as it was, and anything else is refused as a whole (K27, K28)."""

from __future__ import annotations

import gc
import random
import time
import tracemalloc
from typing import Any, get_args, get_type_hints

import msgspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from crescando import wire
from crescando.client import pinned
from crescando.client.base import Explanation
from crescando.consensus.base import NO_BALLOT, Ballot
from crescando.consensus.membership import Change, Memberships
from crescando.consensus.multipaxos import messages as paxos
from crescando.consensus.quorum import Membership
from crescando.engine.aggregate import States
from crescando.engine.base import (
    AccessPath,
    Explained,
    Failed,
    Partials,
    Piece,
    Results,
    Rows,
)
from crescando.engine.statement import Column
from crescando.engine.written import Count, Rejection, Written
from crescando.errors import RemoteProtocolError
from crescando.permits import PERMITS, ROLES, SENDERS
from crescando.roles import copy_messages as copying
from crescando.roles import description
from crescando.roles import load_messages as loading
from crescando.roles import messages as direct
from crescando.routing.base import NotStable
from crescando.routing.ecast import messages as ecast
from crescando.routing.ecast.snapshot import take_snapshot
from crescando.routing.rubberband import Copy, Expand, MessageId, Suspect, happenings
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange, LoadId, ProcessId
from tests.ecast.parties import CLIENT, OTHER, S0, S1, U0, batch, configure, of, point, read, write
from tests.ecast.test_stability import Learner

BALLOT = Ballot(7, ProcessId("router", "r1", 3))
MEMBERSHIPS = Memberships.begin(8, Membership(0, (BALLOT.node,)))
MEMBERSHIPS.learn(4, Change(0, add=ProcessId("router", "r2", 1)))
SUBMISSION = of(write(1, point(S0, S1)), read(2), write(3), acknowledged=2)
BATCH = batch(SUBMISSION, of(write(1, sender=OTHER)))
SCOPE = (KeyRange(0, 9), KeyRange(11, RING_MAX))
TEXT = Column(
    DataType.STRING, np.array([1, 0, -1], np.int32), np.array([True, True, False]), ("", "a\0é\U0001f600")
)
NUMBERS = Column(DataType.FLOAT64, np.array([0.0, -0.0, np.nan, np.inf]))
ROWS = Rows(
    np.array([5]), np.array([9]), np.array([0]), (SCOPE,), np.array([0, 3]), ("a", "b"), (TEXT, NUMBERS)
)
COUNTS = States("count", DataType.INT64, np.array([0, 1]), np.array([252, 252], np.uint8), np.array([3, 4]))
PARTIALS = Partials(
    np.array([4]), np.array([9]), np.array([0]), (SCOPE,), np.array([0, 2]), (TEXT.slice(0, 2),), (COUNTS,)
)
WRITTEN = Written.of(5, 9, (Count(FULL_RING, 3, 1, Rejection((None, 7, 1.5, "k", True), "duplicate")),))
PATH = AccessPath("k = ?", "point", 1.0)
CHANGE = MessageId(CLIENT, 3)
PIN = pinned.PinId(CLIENT, 4)
EVENTS = tuple(
    happenings.Event(1 << 30, what)
    for what in (
        happenings.Joined(S0),
        happenings.Left(S0),
        happenings.Failed(S0),
        happenings.Unavailable(S0, SCOPE),
        happenings.Available(S0),
        happenings.Began(CHANGE, Expand(S0, 7), (Copy(S1, S0, SCOPE),)),
        happenings.Readied(CHANGE, 0),
        happenings.Ended(CHANGE),
        happenings.Dropped(CHANGE, "é"),
        happenings.TableChanged("t", "altered"),
    )
)
LOAD = LoadId(CLIENT, 7)
DIGEST = bytes(range(16))
CHUNK = loading.ChunkOrder(LOAD, 1, 2, 3, 4, DIGEST, (FULL_RING,), (CLIENT,))
HOLDING = pinned.Holding(
    9, (KeyRange(0, 9),), (TableSchema("t", (ColumnDef("k", DataType.INT64),), "k"),), ((4,),), ((99,),)
)
COPY = copying.CopyId(MessageId(CLIENT, 3), 1)
PROGRESS = copying.CopyProgress(COPY, S0, S1, SCOPE, "copying", "é", 100, 6400, 50, 3200, 12.5, 0)
FAILED = Failed(6, 9, SCOPE, "read", ("k", None), "division by zero")


def snapshot() -> Any:
    learner = Learner()
    learner.learn(batch(of(write(1), write(2, table=9)), of(configure(1, Suspect(OTHER), sender=U0))))
    learner.learn(batch(of(write(3))))
    return take_snapshot(learner.mseq, learner.window)


def deliveries() -> Any:
    return tuple(part for parts in Learner().learn(BATCH).deliveries.values() for part in parts)


MESSAGES: list[Any] = [
    paxos.Accept(BALLOT, 3, BATCH, 2),
    paxos.Accept(BALLOT, 3, None, 2),
    paxos.Accept(BALLOT, 3, Change(4, remove=BALLOT.node), 2),
    paxos.Accepted(BALLOT, 1),
    paxos.Canvass(4, 3),
    paxos.CanvassReply(4, True, NO_BALLOT, 3),
    paxos.Decided(4, (BATCH, None, BATCH), 9),
    paxos.Fetch(1),
    paxos.Heartbeat(BALLOT, 8, 4, 123.456, paxos.Attestation(7, b"digest")),
    paxos.HeartbeatReply(BALLOT, 8, -0.5),
    paxos.Nack(BALLOT),
    paxos.Prepare(BALLOT, 1),
    paxos.Promise(BALLOT, (paxos.Vote(3, BALLOT, BATCH), paxos.Vote(4, BALLOT, None, True)), 2, 1),
    paxos.Petition(2),
    paxos.Removed(2, 7),
    paxos.Snapshot(4, snapshot(), MEMBERSHIPS.encode()),
    ecast.ConfigRequest(),
    ecast.ConfigState(5, b"\x00\xffconfig"),
    ecast.Confirm(-1),
    ecast.Deliver(BALLOT, 1, -1, 99, deliveries()),
    ecast.DeliverRead(BALLOT, 99, -1, deliveries()),
    ecast.Expelled(5, 0),
    ecast.Fenced(BALLOT),
    ecast.Hello(),
    ecast.Inject(of(read(1)), -1, 4),
    ecast.Lease(1.5, 9),
    ecast.LeaseRequest(1.5),
    ecast.Pulse(BALLOT, 1 << 40),
    ecast.Quorum(False),
    ecast.ReadRefused((3, 4), "é"),
    ecast.Resume(BALLOT, -1, -1),
    ecast.Outdated(7),
    ecast.Route(SUBMISSION),
    ecast.Routers(1, 4, (BALLOT.node,)),
    ecast.Stable(7, (NotStable(3, "lost", "é"), NotStable(4, "refused", ""))),
    ecast.StableUpTo(7, ((CLIENT, 3),)),
    ecast.Welcome(BALLOT, False, None, 0),
    ecast.Welcome(BALLOT, True, BALLOT.node, 9),
    Results(S0, CLIENT, 9, (ROWS,), (PARTIALS,), (WRITTEN,), (FAILED,)),
    direct.Answered(3),
    direct.Attach(),
    direct.Inquire(1, (1, 2, 3)),
    direct.Inquired(1, (direct.Queued(3, SCOPE, True),), (WRITTEN,)),
    direct.Retire(3),
    direct.Retires(3, "é"),
    direct.Watch(3, -1),
    direct.Watched(3, -1, 1 << 40, EVENTS),
    direct.Ping(1.5),
    description.Describe(),
    description.ChangeRouters(remove=ProcessId("router", "r1", 1)),
    description.RoutersChanged("no router leads"),
    description.Described("1", 4, 0.5, (), (), b"config", (description.Place("node", "r1", "127.0.0.1", 7),)),
    direct.Pong(1.5),
    direct.Forget((3, -4)),
    direct.Explain(5, b"shape", b"parameters"),
    direct.Explains(
        5,
        Explanation(S1, Explained("read", "t", 9, 1, (PATH,), "numpy"), 0.1, 2.5, 3, 0.0, 1.0, 2.0),
    ),
    direct.ReadBasic(deliveries()[0], 7, 5),
    direct.BasicRefused((3, 4), "é", False, 9, b"layout"),
    direct.ReadReplica(1, 0, FULL_RING, (0, 1)),
    direct.Taken(2),
    direct.Weigh(6, SCOPE),
    direct.AskPinned(7, pinned.Hold(PIN)),
    direct.AskPinned(7, pinned.Fetch(PIN, b"shape", b"parameters", KeyRange(0, 9), 5, 2, 1)),
    direct.AskPinned(7, pinned.Renew(PIN, 2.5)),
    direct.AskPinned(7, pinned.Release(PIN)),
    direct.PinAnswered(7, pinned.Kept(HOLDING)),
    direct.PinAnswered(7, pinned.Fetched(ROWS.names, ROWS.columns, 3, 0)),
    direct.PinAnswered(7, pinned.PinFault("read", "overflow", (3, "x", None))),
    direct.Weighs(6, ((10, 640), (0, 0))),
    copying.FetchParcels(COPY, 4, 1 << 20),
    copying.CopyHead(COPY, 5, 100, 6400),
    copying.Parcel(COPY, 3, copying.Outcomes(CLIENT, (WRITTEN,), (FAILED,))),
    copying.Parcel(COPY, 4, Piece(0, 1, np.array([0, RING_MAX, 5, 7], np.uint64), (NUMBERS, NUMBERS))),
    copying.CopyUnknown(COPY),
    copying.Parcel(COPY, 2, loading.LateChunk(CHUNK, CLIENT, 9, 3 << 20, b"rows")),
    loading.Bring(DIGEST, b"rows"),
    loading.Brought(DIGEST, "no room"),
    loading.Lack(DIGEST),
    loading.Unknown(DIGEST),
    loading.AskStaged(4, LOAD, 1 << 40),
    loading.StagedTold(4, -1, "lost"),
    copying.AskCopies(7),
    copying.CopiesTold(7, (PROGRESS,), ()),
]

ENCODED = [wire.encode(message) for message in MESSAGES]


def same(a: Any, b: Any) -> bool:
    """Compare messages that contain arrays: types, dtypes and values, NaN as itself."""
    if isinstance(a, np.ndarray):
        return isinstance(b, np.ndarray) and a.dtype == b.dtype and a.tobytes() == b.tobytes()
    if isinstance(a, msgspec.Struct):
        fields = a.__struct_fields__
        return type(a) is type(b) and all(same(getattr(a, f), getattr(b, f)) for f in fields)
    if isinstance(a, tuple):
        return type(a) is type(b) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_every_message_comes_back_as_it_was(message: Any) -> None:
    data = wire.encode(message)

    decoded = wire.decode(data)

    assert same(decoded, message)
    assert wire.encode(decoded) == data


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_nothing_decoded_refers_to_what_arrived(message: Any) -> None:
    arrived = bytearray(wire.encode(message))
    decoded = wire.decode(memoryview(arrived))

    arrived.clear()  # Python refuses this while anything still looks at it.

    assert same(decoded, message)


def test_no_kind_of_message_is_left_out() -> None:
    kinds = {getattr(kind, "__origin__", kind) for kind in get_args(wire.WireMessage)}

    assert {type(message) for message in MESSAGES} == kinds


def test_decoded_arrays_cannot_be_written_to() -> None:
    submission = wire.decode(wire.encode(ecast.Route(SUBMISSION))).submission

    with pytest.raises(ValueError, match="read-only"):
        submission.kind[0] = 3


@pytest.mark.parametrize("dtype", ["?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f4", "f8"])
def test_every_physical_type_travels(dtype: str) -> None:
    values = np.array([0, 1, 0], dtype)
    message = Results(
        S0, CLIENT, 0, (msgspec.structs.replace(ROWS, columns=(Column(DataType.INT8, values),)),)
    )

    assert same(wire.decode(wire.encode(message)), message)


def test_an_array_that_is_not_contiguous_travels_by_value() -> None:
    message = msgspec.structs.replace(ROWS, number=np.arange(10)[::2])

    (rows,) = wire.decode(wire.encode(Results(S0, CLIENT, 0, (message,)))).rows

    assert rows.number.tolist() == [0, 2, 4, 6, 8]


@pytest.mark.parametrize(
    "value", [object(), np.array(["x"], object), np.array(["x"]), np.array([1j]), lambda: None]
)
def test_what_is_no_message_part_does_not_travel(value: Any) -> None:
    with pytest.raises(TypeError):
        wire.encode(ecast.ConfigState(1, value))


# What a session lets through.


def test_every_kind_of_message_is_permitted_between_some_roles() -> None:
    kinds = {getattr(kind, "__origin__", kind) for kind in get_args(wire.WireMessage)}

    assert {kind for permitted in PERMITS.values() for kind in permitted} == kinds
    assert set(SENDERS) <= kinds


def test_roles_that_are_not_listed_have_nothing_to_say_to_one_another() -> None:
    for sender in (*ROLES, "member", ""):
        for receiver in (*ROLES, "member", ""):
            decode = wire.decoder_for(ProcessId(sender, "a"), ProcessId(receiver, "b"))
            assert (decode is not None) == ((sender, receiver) in PERMITS)


@pytest.mark.parametrize("roles", PERMITS)
def test_what_a_role_may_not_say_is_refused(roles: tuple[str, str]) -> None:
    decode = wire.decoder_for(ProcessId(roles[0], "a"), ProcessId(roles[1], "b"))
    assert decode is not None
    for message, data in zip(MESSAGES, ENCODED, strict=True):
        if type(message) in PERMITS[roles]:
            continue
        with pytest.raises(RemoteProtocolError, match=f"a {roles[0]} may not send {type(message).__name__}"):
            decode(data)


@pytest.mark.parametrize("message", MESSAGES, ids=lambda m: type(m).__name__)
def test_whoever_names_another_as_the_sender_is_refused(message: Any) -> None:
    named = SENDERS[type(message)](message) if type(message) in SENDERS else None
    for sender, receiver in [roles for roles in PERMITS if type(message) in PERMITS[roles]]:
        stranger = wire.decoder_for(ProcessId(sender, "stranger"), ProcessId(receiver, "b"))
        assert stranger is not None
        data = wire.encode(message)
        if named is None:
            assert same(stranger(data), message)
            continue
        with pytest.raises(RemoteProtocolError, match=f"of {named} came from {sender}/stranger"):
            stranger(data)
        itself = wire.decoder_for(named._replace(role=sender), ProcessId(receiver, "b"))
        assert itself is not None
        if named.role == sender:
            assert same(itself(data), message)


SPEAKING_OF_OTHERS = {
    description.ChangeRouters,
    paxos.Accepted,
    paxos.CanvassReply,
    paxos.HeartbeatReply,
    paxos.Nack,
    paxos.Promise,
    direct.Ping,
    ecast.ConfigState,
    ecast.Fenced,
    ecast.Resume,
    ecast.Routers,
    ecast.StableUpTo,
    ecast.Welcome,
    description.Described,
}
"""Those that name processes, and not the one that sends them."""


def test_whatever_names_its_sender_is_compared_with_the_session() -> None:
    naming = {
        kind
        for kind in {getattr(kind, "__origin__", kind) for kind in get_args(wire.WireMessage)}
        for hint in get_type_hints(kind).values()
        if any(name in str(hint) for name in ("ProcessId", "Ballot", "Submission", "Delivery", "Explanation"))
    }

    assert naming == set(SENDERS) | SPEAKING_OF_OTHERS


# What comes from outside.


def refused(data: bytes) -> bool:
    try:
        wire.decode(data)
    except RemoteProtocolError:
        return True
    return False


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x80",
        b"\x90",
        b"GET / HTTP/1.1\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"\x80\x05cos\nsystem\n(S'true'\ntR.",
        msgspec.msgpack.encode(["no-such-message", 1]),
        msgspec.msgpack.encode(["hello", *range(9), {"a": 1}]) + b"\x00",
        msgspec.msgpack.encode(["confirm", "not a number"]),
        msgspec.msgpack.encode(["confirm"]),
        msgspec.msgpack.encode({"tag": "hello"}),
        msgspec.msgpack.encode(["fetch", 1, 1]) + b"trailing",
        b"\x91" * 100_000,
        msgspec.msgpack.encode(["state", 1, b"x"])[:-1],
    ],
)
def test_what_is_no_message_is_refused(data: bytes) -> None:
    assert refused(data)


@pytest.mark.parametrize(
    "ext",
    [
        msgspec.msgpack.Ext(0, bytes(8)),
        msgspec.msgpack.Ext(12, bytes(8)),
        msgspec.msgpack.Ext(127, b"<i8" + bytes(8)),
        msgspec.msgpack.Ext(6, bytes(7)),
        msgspec.msgpack.Ext(-1, bytes(4)),
        [1, 2, 3],
        b"bytes",
        None,
    ],
)
def test_what_is_no_array_is_refused(ext: Any) -> None:
    fields = [getattr(ROWS, name) for name in ROWS.__struct_fields__]
    fields[0] = ext
    raw = msgspec.msgpack.encode(
        ["results", list(S0), list(CLIENT), 0, [fields], [], [], []], enc_hook=wire._encode_array
    )

    assert refused(raw)


@pytest.mark.parametrize(
    "header",
    [
        b"\xdd\xff\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
        b"\xdb\xff\xff\xff\xff",
        b"\xc9\xff\xff\xff\xff\x01",
        b"\xdf\xff\xff\xff\xff",
    ],
)
@pytest.mark.parametrize("prefix", [b"", b"\x92\xa5route", b"\x92\xa5route\x9c", b"\x93\xa7decided\x01"])
def test_announced_sizes_are_bounded_by_the_bytes_present(header: bytes, prefix: bytes) -> None:
    gc.collect()
    tracemalloc.start()
    begin = time.perf_counter()

    assert refused(prefix + header)

    seconds, (_, peak) = time.perf_counter() - begin, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 1 << 20
    assert seconds < 0.5


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=80))
def test_random_bytes_are_decoded_or_refused(data: bytes) -> None:
    refused(data)


@settings(max_examples=400, deadline=None)
@given(st.data())
def test_a_mutated_message_is_decoded_or_refused(data: st.DataObject) -> None:
    original = bytearray(data.draw(st.sampled_from(ENCODED)))
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(original) - 1))
        match data.draw(st.sampled_from(["set", "cut", "insert"])):
            case "set":
                original[at] = data.draw(st.integers(0, 255))
            case "cut":
                del original[at : at + data.draw(st.integers(1, 8))]
            case _:
                original[at:at] = data.draw(st.binary(min_size=1, max_size=8))
        if not original:
            return

    refused(bytes(original))


@settings(max_examples=300, deadline=None)
@given(
    st.sampled_from(MESSAGES),
    st.recursive(
        st.none()
        | st.booleans()
        | st.integers(-(1 << 63), (1 << 64) - 1)
        | st.floats()
        | st.text(max_size=4)
        | st.binary(max_size=4),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
        max_leaves=6,
    ),
    st.integers(0, 8),
)
def test_a_message_with_one_field_of_another_type_is_decoded_or_refused(
    message: Any, value: Any, index: int
) -> None:
    raw = msgspec.msgpack.decode(wire.encode(message))
    raw[index % len(raw)] = value

    refused(msgspec.msgpack.encode(raw))


def test_what_is_said_of_a_message_that_is_none_is_short() -> None:
    data = msgspec.msgpack.encode(["x" * 100_000 + "\n", 1])

    with pytest.raises(RemoteProtocolError) as refused:
        wire.decode(data)

    assert len(str(refused.value)) < 300
    assert str(refused.value).isprintable()


def test_prefixes_of_messages_are_refused() -> None:
    rng = random.Random(1)
    for data in ENCODED:
        for cut in rng.sample(range(len(data)), min(20, len(data))):
            assert refused(data[:cut])
