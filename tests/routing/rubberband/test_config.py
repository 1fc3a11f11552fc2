"""Membership, votes, refusals and encoding of the Rubberband configuration."""

from __future__ import annotations

import dataclasses
import os
import random
import subprocess
import sys
from collections import Counter

import pytest

from crescando.errors import RemoteProtocolError, SpecError, UnknownTableError
from crescando.routing.base import Config, Refusal, VectorConfig
from crescando.routing.batch import Message, submission
from crescando.routing.rubberband import (
    AddColumn,
    ConfigMessage,
    CreateTable,
    DropColumn,
    DropTable,
    Join,
    Leave,
    Membership,
    MessageId,
    Rubberband,
    Suspect,
    Trust,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import FULL_RING, RING_MAX, KeyRange, MessageKind, ProcessId
from tests.routing.worlds import (
    CLIENT,
    OUTSIDER,
    after,
    config_message,
    data_message,
    random_config,
    schema,
    simple,
    storage,
    super_,
)

READ, WRITE = MessageKind.READ, MessageKind.WRITE
STANDBY = ProcessId("storage", "standby")
NEW_CLIENT = ProcessId("client", "new")
POINT = [KeyRange(5, 5)]


def refusal(config: Rubberband, message: Message) -> str:
    with pytest.raises(Refusal) as refused:
        config.destset(message)
    assert config.apply(message) is config
    assert config.suspects(message) == frozenset()
    return refused.value.reason


# Genesis.


def test_genesis_spreads_ids_and_is_a_vector_config() -> None:
    config = simple(4, 3)

    assert config.ring.ids == (0, 1 << 62, 1 << 63, 3 << 62)
    assert isinstance(config, Config)
    assert isinstance(config, VectorConfig)
    assert config.members() == {CLIENT, super_(0), *map(storage, range(4))}
    assert config.table("t").id == 0
    with pytest.raises(UnknownTableError):
        config.table("u")


def test_ring_ids_belong_to_the_processes_in_their_order() -> None:
    config = simple(3, 1, ring_ids=[50, 7, 20])

    assert config.ring.ids == (7, 20, 50)
    assert config.ring.processes == (storage(1), storage(2), storage(0))


def test_more_replicas_than_storage_processes_are_refused() -> None:
    with pytest.raises(SpecError, match="more replicas than there are storage processes"):
        simple(2, 3)


def test_process_in_the_place_of_another_role_is_refused() -> None:
    with pytest.raises(SpecError, match="cannot be a storage"):
        Rubberband.genesis(storages=[CLIENT], replication=1)
    with pytest.raises(SpecError, match="cannot be a super"):
        Rubberband.genesis(storages=[storage(0)], replication=1, supers=[CLIENT])


def test_too_few_ring_ids_are_refused() -> None:
    with pytest.raises(SpecError, match="1 ring ids were given for 2"):
        simple(2, 1, ring_ids=[4])


# Joining and leaving.


@pytest.mark.parametrize("process", [NEW_CLIENT, STANDBY, super_(9)])
def test_join_adds_the_process_and_informs_it_unless_it_is_a_client(process: ProcessId) -> None:
    config = simple(2, 1)
    message = config_message(process, Join(process))

    destinations = config.destset(message)
    joined = config.apply(message)

    told = {storage(0), storage(1), super_(0)}
    assert dict(destinations) == dict.fromkeys(told | ({process} - {NEW_CLIENT}), ())
    assert not config.is_member(process)
    assert joined.is_member(process)
    assert joined.suspects(message) == frozenset()
    assert joined.layout == config.layout
    assert joined.owned_arcs(process) == ()


def test_standby_gets_configuration_but_no_data() -> None:
    config = after(simple(2, 2), (STANDBY, Join(STANDBY)))

    assert STANDBY in config.destset(config_message(CLIENT, DropTable("t")))
    assert STANDBY not in config.destset(data_message(WRITE, [FULL_RING]))


def test_leave_declares_the_leaver_failed() -> None:
    config = after(simple(2, 1), (STANDBY, Join(STANDBY)), (NEW_CLIENT, Join(NEW_CLIENT)))
    for process in (STANDBY, NEW_CLIENT):
        message = config_message(process, Leave(process), 2)

        assert config.suspects(message) == {process}
        assert config.apply(message).members() == config.members() - {process}


def test_messages_of_strangers_are_void() -> None:
    config = simple(2, 1)
    bodies: list[ConfigMessage] = [Leave(OUTSIDER), Suspect(storage(0)), DropTable("t")]
    messages = [
        *(config_message(OUTSIDER, body) for body in bodies),
        Message(OUTSIDER, 1, MessageKind.CONFIG, -1, (), 0, b"junk"),
        data_message(READ, POINT, sender=OUTSIDER),
        data_message(WRITE, POINT, sender=OUTSIDER, table=77),
    ]
    for message in messages:
        assert config.destset(message) == {}
        assert config.apply(message) is config
        assert config.suspects(message) == frozenset()
    routes = config.route(submission([messages[-1]]), 0, 1)
    assert routes.routes == ({},)


# Refusals.


@pytest.mark.parametrize(
    ("sender", "body", "number", "reason"),
    [
        (CLIENT, Join(CLIENT), 5, "is a member already"),
        (OUTSIDER, Join(STANDBY), 1, "cannot join for"),
        (CLIENT, Join(STANDBY), 1, "cannot join for"),
        (STANDBY, Join(STANDBY), 2, "new incarnation"),
        (ProcessId("router", "r"), Join(ProcessId("router", "r")), 1, "role 'router' cannot join"),
        (storage(0), Leave(storage(0)), 1, "holds a ring position"),
        (CLIENT, Leave(super_(0)), 1, "cannot leave for"),
        (super_(0), Leave(CLIENT), 1, "cannot leave for"),
        (CLIENT, Suspect(storage(0)), 1, "only supers vote"),
        (storage(0), Suspect(storage(1)), 1, "only supers vote"),
        (CLIENT, Trust(storage(0)), 1, "only supers vote"),
        (super_(0), Suspect(super_(0)), 1, "about itself"),
        (super_(0), Suspect(OUTSIDER), 1, "is no member"),
        (super_(0), Trust(OUTSIDER), 1, "is no member"),
        (storage(0), DropTable("t"), 1, "may not change tables"),
        (CLIENT, CreateTable(schema("t")), 1, "exists already"),
        (super_(0), DropTable("u"), 1, "no table is named"),
        (CLIENT, CreateTable(TableSchema("u", (), "k")), 1, "invalid schema"),
        (CLIENT, AddColumn("t", ColumnDef("x", DataType.INT8, False)), 1, "must be nullable"),
        (CLIENT, DropColumn("t", "k"), 1, "part of a key"),
    ],
)
def test_configuration_message_is_refused(
    sender: ProcessId, body: ConfigMessage, number: int, reason: str
) -> None:
    assert reason in refusal(simple(3, 2), config_message(sender, body, number))


def test_malformed_configuration_message_of_a_member_is_refused() -> None:
    message = Message(CLIENT, 1, MessageKind.CONFIG, -1, (), 0, b"\x00junk")

    assert "malformed" in refusal(simple(1, 1), message)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (data_message(READ, POINT, table=1), "table was dropped (id 1)"),
        (data_message(WRITE, POINT, table=2), "no table has the id 2"),
        (data_message(READ, POINT, table=-1), "no table has the id -1"),
        (data_message(READ, ()), "at least one ring range"),
        (data_message(WRITE, [KeyRange(4, 3)]), "at least one ring range"),
        (data_message(READ, POINT, sender=storage(0)), "only clients read and write"),
        (data_message(WRITE, POINT, sender=super_(0)), "only clients read and write"),
    ],
)
def test_data_message_is_refused_alone_and_in_a_run(message: Message, reason: str) -> None:
    config = after(simple(3, 2), (CLIENT, CreateTable(schema("u"))), (CLIENT, DropTable("u")))

    assert reason in refusal(config, message)
    good = data_message(READ, POINT, sender=message.sender, number=2)
    routes = config.route(submission([message, good]), 0, 2)
    first = routes.routes[routes.group[0]]
    assert isinstance(first, Refusal)
    assert reason in first.reason


def test_range_without_any_live_owner_is_named() -> None:
    config = simple(3, 1, ring_ids=[0, 100, 200])
    lost = dataclasses.replace(
        config,
        membership=dataclasses.replace(config.membership, storages=frozenset({storage(0), storage(2)})),
    )

    assert lost.failed == {storage(1)}
    for kind in (READ, WRITE):
        assert "[100, 199] is unavailable" in refusal(lost, data_message(kind, [KeyRange(50, 150)]))
        assert lost.destset(data_message(kind, [KeyRange(50, 99)])) == {storage(0): (KeyRange(0, 99),)}


def test_configuration_message_cannot_be_routed_in_a_run() -> None:
    with pytest.raises(ValueError, match="only data messages"):
        simple(1, 1).route(submission([config_message(CLIENT, DropTable("t"))]), 0, 1)


def test_empty_run_has_no_routes() -> None:
    batch = submission([data_message(READ, POINT)])

    routes = simple(1, 1).route(batch, 1, 1)

    assert (len(routes.group), routes.routes) == (0, ())


# Votes.


def test_single_super_suspects_alone() -> None:
    config = simple(3, 2, n_supers=1)
    message = config_message(super_(0), Suspect(storage(1)), 8)

    suspected = config.apply(message)

    assert config.suspects(message) == {storage(1)}
    assert suspected.failed == {storage(1)}
    assert suspected.layout == MessageId(super_(0), 8)
    assert not suspected.is_member(storage(1))
    assert suspected.ring == config.ring


def test_one_vote_of_three_is_not_enough_and_two_are() -> None:
    config = after(simple(4, 3, n_supers=3), (super_(0), Suspect(storage(2))))
    again = config_message(super_(0), Suspect(storage(2)), 2)
    second = config_message(super_(2), Suspect(storage(2)))

    assert config.is_member(storage(2))
    assert config.apply(again) is config
    assert config.suspects(second) == {storage(2)}
    assert config.apply(second).membership.votes == frozenset()


def test_accused_super_is_no_elector() -> None:
    config = after(simple(2, 1, n_supers=3), (super_(0), Suspect(super_(2))))
    assert config.is_member(super_(2))

    config = after(config, (super_(1), Suspect(super_(2))))

    assert config.supers == {super_(0), super_(1)}
    assert after(config, (super_(0), Suspect(super_(1)))).supers == {super_(0)}


def test_votes_of_a_super_that_is_gone_do_not_count() -> None:
    config = after(
        simple(4, 3, n_supers=5),
        (super_(0), Suspect(storage(1))),
        (super_(1), Suspect(storage(1))),
        (super_(0), Leave(super_(0))),
    )

    assert config.membership.votes == {(storage(1), super_(1))}
    # Four electors are left, so three votes are needed.
    config = after(config, (super_(2), Suspect(storage(1))))
    assert config.is_member(storage(1))
    assert not after(config, (super_(3), Suspect(storage(1)))).is_member(storage(1))


def test_leave_of_a_super_can_make_a_majority_of_the_rest() -> None:
    config = after(simple(4, 3, n_supers=3), (super_(0), Suspect(storage(1))))
    config = after(config, (super_(1), Leave(super_(1))))
    assert config.is_member(storage(1)), "one of two is no majority"
    leave = config_message(super_(2), Leave(super_(2)), 4)

    assert config.suspects(leave) == {super_(2), storage(1)}
    assert config.apply(leave).layout == MessageId(super_(2), 4)


def test_effective_suspicion_of_a_super_can_complete_another() -> None:
    config = after(
        simple(4, 3, n_supers=3), (super_(0), Suspect(storage(1))), (super_(0), Suspect(super_(2)))
    )
    config = after(config, (super_(1), Suspect(super_(2))))
    assert config.is_member(storage(1))
    message = config_message(super_(0), Suspect(super_(1)), 5)

    assert config.suspects(message) == {super_(1), storage(1)}


def test_withdrawn_vote_does_not_count() -> None:
    config = after(
        simple(4, 3, n_supers=3),
        (super_(0), Suspect(storage(1))),
        (super_(0), Trust(storage(1))),
        (super_(1), Suspect(storage(1))),
    )

    assert config.is_member(storage(1))
    assert config.apply(config_message(super_(0), Trust(storage(1)), 9)) is config


def test_suspected_client_is_out_and_the_layout_stays() -> None:
    config = simple(2, 1, n_supers=1)
    message = config_message(super_(0), Suspect(CLIENT))

    assert config.suspects(message) == {CLIENT}
    assert config.apply(message).layout is config.layout
    assert config.apply(message).destset(data_message(READ, POINT)) == {}


def test_expelled_process_cannot_return_as_itself() -> None:
    config = after(simple(3, 2), (super_(0), Suspect(storage(1))))

    assert "new incarnation" in refusal(config, config_message(storage(1), Join(storage(1)), 1))
    reborn = ProcessId("storage", "s1", 1)
    assert after(config, (reborn, Join(reborn))).is_member(reborn)


# The last live replica.


def test_last_live_replica_is_never_suspected_but_its_range_is_unavailable() -> None:
    config = simple(3, 2, n_supers=1, ring_ids=[0, 100, 200])
    config = after(config, (super_(0), Suspect(storage(0))))
    vote = config_message(super_(0), Suspect(storage(1)), 2)

    pending = config.apply(vote)

    # Arc [0, 99] had the owners 0 and 1, and now has 1 alone.
    assert config.suspects(vote) == frozenset()
    assert pending.is_member(storage(1))
    assert pending.pending == {storage(1)}
    assert pending.layout == config.layout
    for kind in (READ, WRITE):
        assert "[0, 99] is unavailable" in refusal(pending, data_message(kind, [KeyRange(0, 0)]))
    # Arc [100, 199] has the owners 1 and 2: read from 2, but a write would wait for 1.
    for offset in range(4):
        read = pending.destset(data_message(READ, [KeyRange(100, 100)], offset))
        assert read == {storage(2): (KeyRange(100, 199),)}
    assert "[100, 199] is unavailable" in refusal(pending, data_message(WRITE, [KeyRange(100, 100)]))
    assert storage(1) in pending.destset(config_message(CLIENT, DropTable("t")))


def test_pending_process_that_answers_again_is_trusted() -> None:
    config = after(simple(1, 1), (super_(0), Suspect(storage(0))))
    assert "unavailable" in refusal(config, data_message(READ, POINT))

    trusted = after(config, (super_(0), Trust(storage(0))))

    assert trusted.pending == frozenset()
    assert trusted.destset(data_message(READ, POINT)) == {storage(0): (FULL_RING,)}


def test_joining_super_can_end_a_majority() -> None:
    config = after(simple(1, 1, n_supers=1), (super_(0), Suspect(storage(0))))
    assert config.pending == {storage(0)}

    config = after(config, (super_(1), Join(super_(1))))

    assert config.pending == frozenset()
    assert config.destset(data_message(WRITE, POINT)) == {storage(0): (FULL_RING,)}


def test_of_two_last_replicas_due_together_the_lower_one_goes() -> None:
    config = after(
        simple(2, 2, n_supers=3), (super_(0), Suspect(storage(0))), (super_(0), Suspect(storage(1)))
    )
    config = after(config, (super_(1), Leave(super_(1))))
    leave = config_message(super_(2), Leave(super_(2)))

    assert config.suspects(leave) == {super_(2), storage(0)}
    assert config.apply(leave).pending == {storage(1)}


# Scopes and load.


def test_wrapping_partition_is_two_ranges_of_one_scope() -> None:
    config = simple(2, 1, ring_ids=[100, 200])

    assert config.destset(data_message(WRITE, [FULL_RING])) == {
        storage(0): (KeyRange(100, 199),),
        storage(1): (KeyRange(0, 99), KeyRange(200, RING_MAX)),
    }


def test_write_is_reported_once_and_by_the_first_live_owner() -> None:
    config = simple(3, 3, ring_ids=[0, 100, 200])
    point = data_message(WRITE, [KeyRange(100, 100)])
    mine = (KeyRange(100, 199),)

    assert config.destset(point) == {storage(1): mine, storage(2): (), storage(0): ()}
    config = after(config, (super_(0), Suspect(storage(1))))
    assert config.destset(point) == {storage(2): mine, storage(0): ()}


N_OFFSETS = 720
"""Divisible by every number of choices below."""


def loads(config: Rubberband, ranges: list[KeyRange]) -> Counter[ProcessId]:
    load: Counter[ProcessId] = Counter()
    for offset in range(N_OFFSETS):
        load.update(config.destset(data_message(READ, ranges, offset)).keys())
    return load


@pytest.mark.parametrize("f", [1, 2, 3, 4])
def test_offsets_spread_point_reads_evenly_over_live_owners(f: int) -> None:
    config = simple(5, f)

    assert loads(config, POINT) == {storage(i): N_OFFSETS // f for i in range(f)}
    if f > 1:
        config = after(config, (super_(0), Suspect(storage(0))))
        assert loads(config, POINT) == {storage(i): N_OFFSETS // (f - 1) for i in range(1, f)}


@pytest.mark.parametrize(("n", "f"), [(4, 1), (4, 2), (4, 3), (6, 3), (8, 3), (5, 2)])
def test_offsets_spread_whole_ring_reads_evenly(n: int, f: int) -> None:
    load = loads(simple(n, f), [FULL_RING])

    assert set(load) == {storage(i) for i in range(n)}
    assert max(load.values()) <= 1.25 * min(load.values())


def test_offsets_spread_every_group_of_a_read_of_distant_points() -> None:
    config = simple(9, 3)
    points = [KeyRange(config.ring.ids[i], config.ring.ids[i]) for i in (0, 3, 6)]

    assert loads(config, points) == {storage(i): N_OFFSETS // 3 for i in range(9)}


def test_live_owners_hold_all_of_a_range() -> None:
    config = simple(4, 2, ring_ids=[0, 100, 200, 300])

    assert config.live_owners(KeyRange(0, 99)) == (storage(0), storage(1))
    assert config.live_owners(KeyRange(0, 100)) == (storage(1),)
    assert config.live_owners(KeyRange(0, 200)) == ()
    config = after(config, (super_(0), Suspect(storage(1))))
    assert config.live_owners(KeyRange(0, 99)) == (storage(0),)
    assert config.owned_arcs(storage(1)) == (KeyRange(0, 99), KeyRange(100, 199))


# Values.


def test_value_cannot_be_changed() -> None:
    config = simple(2, 1)

    for name in ("ring", "membership", "catalog", "layout"):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(config, name, None)
    with pytest.raises(TypeError):
        config.destset(data_message(READ, POINT))[storage(0)] = ()  # type: ignore[index]
    with pytest.raises(TypeError):
        config.destset(config_message(CLIENT, DropTable("t")))[storage(0)] = ()  # type: ignore[index]


@pytest.mark.parametrize("seed", range(50))
def test_decoding_gives_an_equal_value_that_routes_alike(seed: int) -> None:
    config = random_config(random.Random(seed))
    before = config.encode()

    twin = Rubberband.decode(before)

    assert twin == config
    assert hash(twin) == hash(config)
    assert twin.encode() == before
    assert twin.digest() == config.digest()
    assert len(config.digest()) == 16
    assert twin.pending == config.pending


def test_equal_values_have_equal_bytes_whatever_the_path() -> None:
    first, second = (simple(4, 3, n_supers=5) for _ in range(2))
    processes = [NEW_CLIENT, STANDBY, super_(9), ProcessId("client", "a"), ProcessId("storage", "b")]
    for process in processes:
        first = first.apply(config_message(process, Join(process)))
    for process in reversed(processes):
        second = second.apply(config_message(process, Join(process)))
    for voter, accused in ((0, 1), (1, 2), (2, 1)):
        first = first.apply(config_message(super_(voter), Suspect(storage(accused))))
    for voter, accused in ((2, 1), (3, 3), (1, 2), (0, 1)):
        second = second.apply(config_message(super_(voter), Suspect(storage(accused))))
    # Route with one of them only: what a value remembers is no part of it.
    first.destset(data_message(READ, [FULL_RING]))
    assert first != second
    assert first.digest() != second.digest()

    second = second.apply(config_message(super_(3), Trust(storage(3)), 2))

    assert first == second
    assert first.encode() == second.encode()


def test_different_values_have_different_digests() -> None:
    config = simple(4, 3, n_supers=3)
    changes: list[tuple[ProcessId, ConfigMessage]] = [
        (super_(0), Suspect(storage(1))),
        (super_(1), Suspect(storage(1))),
        (STANDBY, Join(STANDBY)),
        (CLIENT, AddColumn("t", ColumnDef("x", DataType.INT8))),
        (CLIENT, DropColumn("t", "v")),
        (CLIENT, DropTable("t")),
    ]

    digests = {config.digest()} | {config.apply(config_message(*change)).digest() for change in changes}

    assert len(digests) == 1 + len(changes)


@pytest.mark.parametrize("data", [b"", b"\x91\xa1x", b"\xdd\xff\xff\xff\xff"])
def test_malformed_encoding_is_a_protocol_error(data: bytes) -> None:
    with pytest.raises(RemoteProtocolError):
        Rubberband.decode(data)


def test_encoding_of_an_impossible_ring_is_a_protocol_error() -> None:
    config = simple(2, 1)
    data = config.encode().replace(b"\xa7storage\xa2s1", b"\xa7storage\xa2s0")

    with pytest.raises(RemoteProtocolError, match="twice"):
        Rubberband.decode(data)


PRINT_DIGEST = """
import random
from tests.routing.worlds import *
config = random_config(random.Random(4))
for i in range(20):
    new = ProcessId(random.Random(i).choice(["client", "storage", "super"]), f"new{i}")
    config = config.apply(config_message(new, Join(new)))
told = config.destset(config_message(sorted(config.supers)[0], Suspect(sorted(config.clients)[0])))
print(config.digest().hex(), list(told), [list(config.destset(data_message(kind, [KeyRange(0, RING_MAX)])))
      for kind in (MessageKind.WRITE, MessageKind.READ)])
"""


def test_bytes_and_orders_do_not_depend_on_the_hash_seed() -> None:
    outputs = set()
    for seed in ("0", "1", "2"):
        done = subprocess.run(
            [sys.executable, "-c", PRINT_DIGEST],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        outputs.add(done.stdout)

    assert len(outputs) == 1
    assert len(outputs.pop()) > 100


def test_membership_refuses_a_role_it_does_not_know() -> None:
    with pytest.raises(ValueError, match="router"):
        Membership().joined(ProcessId("router", "r"))
