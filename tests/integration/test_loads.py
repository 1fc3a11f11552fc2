"""Atomic loads through the API: shown whole at one place or not at all, whoever is repeated or killed."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import crescando
from crescando import ColumnDef, DataType, LoadOutcome, LoadTicket, PartReceipt, TableSchema, col
from crescando.certificates import Authority
from crescando.client.base import Pending, Request
from crescando.cluster import Cluster
from crescando.engine.statement import Kind, Shape
from crescando.errors import (
    ClosedError,
    LoadConflictError,
    LoadGoneError,
    RefusedError,
    StatementError,
    TypeMismatchError,
    UnknownColumnError,
    UnknownTableError,
)
from crescando.roles.load_messages import ChunkOrder, encode_chunk
from crescando.routing.rubberband.messages import CloseLoad, CommitLoad, Winner
from crescando.types import FULL_RING
from tests.integration.test_failures import wait_for

SCHEMA = TableSchema(
    "seats",
    (
        ColumnDef("flight", DataType.INT64, nullable=False),
        ColumnDef("seat", DataType.STRING),
        ColumnDef("price", DataType.FLOAT64),
    ),
    partition_key="flight",
    primary_key=("flight",),
)

SECONDS = 120.0
"""Longer than anything here takes on any machine."""


@pytest.fixture
def store() -> Iterator[crescando.Store[Cluster]]:
    with crescando.open(routers=1, storages=3, supers=1, replication=2, timeout_s=SECONDS) as store:
        store.create_table(SCHEMA)
        yield store


def rows(keys: range, seat: str = "1A") -> dict[str, object]:
    return {"flight": list(keys), "seat": [seat] * len(keys), "price": [float(key) for key in keys]}


def staged(
    store: crescando.Session, ticket: LoadTicket, partition: int, given: object, attempt: int = 0
) -> PartReceipt:
    with store.stage(ticket, partition, attempt) as part:
        part.write(given)
        return part.finish()


def keys(store: crescando.Session) -> list[int]:
    return [flight for (flight,) in store.table("seats").select(["flight"], order_by=["flight"]).rows()]


def test_workers_stage_and_one_commit_shows_everything(store: crescando.Store[Cluster]) -> None:
    with store.begin_load("seats", job="night") as load:
        ticket = LoadTicket.decode(load.ticket.encode())
        receipts = [staged(store.session(f"w{n}"), ticket, n, rows(range(n, 3000, 3))) for n in range(3)]
        assert keys(store) == []
        outcome = load.commit([PartReceipt.decode(each.encode()) for each in receipts])

    assert (outcome.inserted, outcome.is_repeat) == (3000, False)
    assert keys(store) == list(range(3000))
    assert store.table("seats").select(where=col("flight") == 7).rows() == [(7, "1A", 7.0)]


def test_of_attempts_that_were_repeated_one_counts(store: crescando.Store[Cluster]) -> None:
    with store.begin_load("seats", job="speculative", rule="keep") as load:
        first = staged(store.session("w1"), load.ticket, 0, rows(range(10), "first"), attempt=0)
        again = staged(store.session("w2"), load.ticket, 0, rows(range(10), "again"), attempt=1)
        killed = store.session("w3").stage(load.ticket, 0, 2)
        killed.write(rows(range(5), "killed"))
        with pytest.raises(StatementError, match=r"partition 0 has two receipts, of attempts 0 and 1"):
            load.commit([first, again])
        # The same receipt twice is one.
        assert load.commit([again, again]).inserted == 10

    assert {seat for (seat,) in store.table("seats").select(["seat"]).rows()} == {"again"}


def test_two_writers_of_one_attempt_are_not_taken_for_one(store: crescando.Store[Cluster]) -> None:
    with store.begin_load("seats", job="twins", rule="keep") as load:
        one = staged(store.session("w1"), load.ticket, 0, rows(range(10), "one"))
        other = staged(store.session("w2"), load.ticket, 0, rows(range(20), "other"))
        with pytest.raises(StatementError, match="two receipts"):
            load.commit([one, other])
        load.commit([other])

    assert keys(store) == list(range(20))


@pytest.mark.parametrize(
    ("write", "rule", "wanted"),
    [
        ("insert", "keep", LoadOutcome(0, inserted=2, kept=2)),
        ("insert", "replace", LoadOutcome(0, inserted=2, replaced=2)),
        ("upsert", "fail", LoadOutcome(0, inserted=2, updated=2)),
        ("update", "fail", LoadOutcome(0, updated=2, missing=2)),
        ("overwrite", "fail", LoadOutcome(0, inserted=4, deleted=4)),
    ],
)
def test_every_way_to_write(
    store: crescando.Store[Cluster], write: str, rule: str, wanted: LoadOutcome
) -> None:
    store.table("seats").insert(rows(range(4), "old")).result()
    with store.begin_load("seats", job="j", write=write, rule=rule) as load:  # type: ignore[arg-type]
        outcome = load.commit([staged(store, load.ticket, 0, rows(range(2, 6), "new"))])

    told = [getattr(outcome, name) for name in LoadOutcome.__struct_fields__[1:]]
    assert told == [getattr(wanted, name) for name in LoadOutcome.__struct_fields__[1:]]
    present = dict(store.table("seats").select(["flight", "seat"]).rows())
    new = range(2, 4) if write == "update" else range(2, 6)
    kept = dict.fromkeys(range(4), "old") if write != "overwrite" else {}
    fresh = {key: "new" for key in new if rule != "keep" or key not in kept}
    assert present == {**kept, **fresh}


def test_a_delete_takes_keys_only(store: crescando.Store[Cluster]) -> None:
    store.table("seats").insert(rows(range(4))).result()
    with store.begin_load("seats", job="j", write="delete") as load:
        outcome = load.commit([staged(store, load.ticket, 0, {"flight": [1, 3, 9]})])

    assert (outcome.deleted, outcome.missing) == (2, 1)
    assert keys(store) == [0, 2]


def test_only_the_columns_of_a_load_are_written(store: crescando.Store[Cluster]) -> None:
    store.table("seats").insert(rows(range(2), "old")).result()
    with store.begin_load("seats", job="j", write="upsert", columns=["flight", "price"]) as load:
        load.commit([staged(store, load.ticket, 0, {"flight": [1, 2], "price": [5.0, 6.0]})])

    assert store.table("seats").select(order_by=["flight"]).rows() == [
        (0, "old", 0.0),
        (1, "old", 5.0),
        (2, None, 6.0),
    ]


def test_by_the_rule_fail_clashes_are_named_and_nothing_is_shown(store: crescando.Store[Cluster]) -> None:
    store.table("seats").insert(rows(range(100, 110))).result()
    load = store.begin_load("seats", job="j")
    receipt = staged(store, load.ticket, 0, rows(range(50, 105)))
    with pytest.raises(LoadConflictError) as caught:
        load.commit([receipt])

    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.n_conflicts, error.table, error.applied) == (5, "seats", "no")
    assert min(error.keys) == (100,)
    assert keys(store) == list(range(100, 110))
    # The keys of a load that has ended are nobody's.
    assert store.table("seats").insert(rows(range(50, 60))).result().affected == 10
    with pytest.raises(LoadGoneError, match="the load is not open"):
        load.renew()


def test_a_job_commits_an_epoch_once_whoever_asks(store: crescando.Store[Cluster]) -> None:
    first = store.begin_load("seats", job="stream", epoch=7, rule="keep")
    receipt = staged(store, first.ticket, 0, rows(range(5)))
    first.commit([receipt])
    again = store.session("driver2").begin_load("seats", job="stream", epoch=7, rule="keep")
    below = store.begin_load("seats", job="stream", epoch=6, rule="keep")
    above = store.begin_load("seats", job="stream", epoch=8, rule="keep")

    assert again.ticket.is_committed
    assert below.ticket.is_committed
    assert not above.ticket.is_committed
    assert again.commit([]).is_repeat
    assert first.commit([receipt]).inserted == 5, "what is known is told again"
    with pytest.raises(StatementError, match="has nothing to stage"):
        store.stage(again.ticket, 0, 0)
    assert above.commit([staged(store, above.ticket, 0, rows(range(5, 9)))]).inserted == 4
    assert len(keys(store)) == 9


def test_a_new_driver_of_a_job_fences_the_old_one_off(store: crescando.Store[Cluster]) -> None:
    old = store.begin_load("seats", job="j", rule="keep")
    receipt = staged(store, old.ticket, 0, rows(range(5), "old"))
    new = store.session("driver2").begin_load("seats", job="j", rule="keep")
    with pytest.raises(LoadGoneError, match="begin the load again"):
        old.commit([receipt])
    with pytest.raises(LoadGoneError):
        staged(store, old.ticket, 1, rows(range(5)))
    new.commit([staged(store, new.ticket, 0, rows(range(3), "new"))])

    assert keys(store) == [0, 1, 2]


def test_a_load_whose_lease_is_over_is_ended_by_a_super(store: crescando.Store[Cluster]) -> None:
    sealed = store.begin_load("seats", job="orphan", lease_s=0.2)
    receipt = staged(store, sealed.ticket, 0, rows(range(5)))

    def is_gone() -> bool:
        # Whoever staged anything would renew it.
        return store.cluster.config().loads.find(sealed.ticket.load) is None

    wait_for(is_gone, "its lease is over", SECONDS)
    with pytest.raises(LoadGoneError):
        staged(store, sealed.ticket, 1, rows(range(1)), attempt=1)
    with pytest.raises(LoadGoneError):
        sealed.commit([receipt])
    assert keys(store) == []


def test_leaving_the_block_without_a_commit_aborts(store: crescando.Store[Cluster]) -> None:
    with store.begin_load("seats", job="j") as load:
        receipt = staged(store, load.ticket, 0, rows(range(5)))
    with pytest.raises(LoadGoneError):
        load.commit([receipt])
    load.abort()

    assert keys(store) == []


def test_reads_at_every_level_see_a_load_whole_or_not(store: crescando.Store[Cluster]) -> None:
    seen: list[tuple[str, int]] = []
    is_over = threading.Event()

    def look(isolation: str) -> None:
        session = store.session(f"reader-{isolation}")
        while not is_over.is_set():
            seen.append((isolation, session.table("seats").count(isolation=isolation)))  # type: ignore[arg-type]

    readers = [threading.Thread(target=look, args=(level,)) for level in ("sequential", "snapshot")]
    for reader in readers:
        reader.start()
    try:
        for epoch in range(5):
            with store.begin_load("seats", job="j", epoch=epoch, rule="keep") as load:
                first = 1000 * epoch
                receipts = [
                    staged(store, load.ticket, n, rows(range(first + n, first + 1000, 2))) for n in range(2)
                ]
                load.commit(receipts)
    finally:
        is_over.set()
        for reader in readers:
            reader.join(SECONDS)

    assert {count % 1000 for _, count in seen} == {0}
    assert store.table("seats").count() == 5000


def test_a_load_survives_a_crash_and_an_expansion_between_staging_and_commit() -> None:
    with crescando.open(routers=1, storages=3, supers=3, replication=2, timeout_s=SECONDS) as store:
        store.create_table(SCHEMA)
        load = store.begin_load("seats", job="moved", rule="keep")
        receipts = [staged(store, load.ticket, n, rows(range(n, 4000, 2))) for n in range(2)]
        newcomer = store.cluster.start_storage(timeout_s=SECONDS)
        store.cluster.expand(newcomer).result(SECONDS)
        receipts.append(staged(store, load.ticket, 2, rows(range(4000, 5000))))
        store.cluster.kill("s1")
        outcome = load.commit(receipts)

        assert outcome.inserted == 5000
        assert keys(store) == list(range(5000))


def test_workers_elsewhere_load_over_tls(store: crescando.Store[Cluster], tmp_path: Path) -> None:
    Authority.create(tmp_path / "certs", cluster="loaded")
    url = store.serve(tls=tmp_path / "certs")
    load = store.begin_load("seats", job="far", write="upsert")
    with crescando.connect(url, tls=tmp_path / "certs", timeout_s=SECONDS) as worker:
        ticket = LoadTicket.decode(load.ticket.encode())
        with worker.stage(ticket, 0, 0) as part:
            for first in range(0, 120_000, 20_000):
                part.write(
                    {
                        "flight": np.arange(first, first + 20_000),
                        "seat": [f"seat {key}" for key in range(first, first + 20_000)],
                        "price": np.ones(20_000),
                    }
                )
            receipt = part.finish()
    assert len(receipt.chunks) > 6
    assert load.commit([receipt]).inserted == 120_000
    assert store.table("seats").count() == 120_000


BAD_BEGINNINGS = [
    ({"table": "seets", "job": "j"}, UnknownTableError, "did you mean 'seats'"),
    ({"table": "seats", "job": ""}, StatementError, "job is a name"),
    ({"table": "seats", "job": "j" * 201}, StatementError, "job is a name"),
    ({"table": "seats", "job": "j", "epoch": -1}, StatementError, "epoch is a whole number from 0"),
    ({"table": "seats", "job": "j", "write": "append"}, StatementError, "write is one of insert"),
    ({"table": "seats", "job": "j", "rule": "ignore"}, StatementError, "rule is one of fail"),
    (
        {"table": "seats", "job": "j", "write": "upsert", "rule": "keep"},
        StatementError,
        "write='insert' only",
    ),
    ({"table": "seats", "job": "j", "columns": ["seat"]}, StatementError, "'flight'.*must be among"),
    ({"table": "seats", "job": "j", "columns": ["flight", "seet"]}, UnknownColumnError, "'seat'"),
    ({"table": "seats", "job": "j", "columns": ["flight", "flight"]}, StatementError, "named twice"),
    ({"table": "seats", "job": "j", "columns": "flight"}, StatementError, "a list of names"),
    ({"table": "seats", "job": "j", "write": "delete", "columns": ["flight", "seat"]}, StatementError, "key"),
    ({"table": "seats", "job": "j", "lease_s": 0}, StatementError, "lease_s must lie"),
]


@pytest.mark.parametrize(("arguments", "error", "text"), BAD_BEGINNINGS)
def test_what_cannot_be_loaded_is_said_at_once(
    store: crescando.Store[Cluster], arguments: dict[str, object], error: type[Exception], text: str
) -> None:
    with pytest.raises(error, match=text):
        store.begin_load(**arguments)  # type: ignore[arg-type]


def test_rows_that_do_not_fit_are_refused_where_they_are_written(store: crescando.Store[Cluster]) -> None:
    load = store.begin_load("seats", job="j", write="update", columns=["flight", "seat"])
    part = store.stage(load.ticket, 0, 0)
    for given, error, text in (
        ({"flight": [None], "seat": ["a"]}, TypeMismatchError, "flight"),
        ({"flight": [1]}, TypeMismatchError, "'seat' is one of the load's"),
        ({"flight": [1], "seat": ["a"], "price": [1.0]}, TypeMismatchError, "none of the load's"),
        ({"flight": [1], "seet": ["a"]}, UnknownColumnError, "seat"),
        ({"flight": ["x"], "seat": ["a"]}, TypeMismatchError, "flight"),
    ):
        with pytest.raises(error, match=text):
            part.write(given)
    part.write({"flight": [1], "seat": ["a"]})
    receipt = part.finish()
    assert (receipt.n_rows, part.finish()) == (1, receipt)
    with pytest.raises(StatementError, match="partition 0 is finished"):
        part.write({"flight": [2], "seat": ["b"]})


def test_receipts_and_tickets_that_are_none_are_refused(store: crescando.Store[Cluster]) -> None:
    load = store.begin_load("seats", job="j", rule="keep")
    other = store.begin_load("seats", job="k", rule="keep")
    receipt = staged(store, other.ticket, 0, rows(range(1)))
    for given, text in (
        ([], "there are no receipts"),
        ([receipt], "is one of load"),
        ([b"x"], "not a bytes"),
    ):
        with pytest.raises(StatementError, match=text):
            load.commit(given)  # type: ignore[arg-type]
    with pytest.raises(StatementError, match="no ticket of a load"):
        LoadTicket.decode(b"junk")
    with pytest.raises(StatementError, match="no receipt of a part"):
        PartReceipt.decode(load.ticket.encode())
    with pytest.raises(StatementError, match="not a str"):
        store.stage("ticket", 0, 0)  # type: ignore[arg-type]
    with pytest.raises(StatementError, match="partition is a whole number"):
        store.stage(load.ticket, -1, 0)
    store.drop_table("seats")
    store.create_table(SCHEMA)
    with pytest.raises(StatementError, match="dropped and made anew"):
        store.stage(load.ticket, 0, 0)
    with pytest.raises(RefusedError, match="table was dropped"):
        load.commit([staged_of_nothing(load.ticket)])


def staged_of_nothing(ticket: LoadTicket) -> PartReceipt:
    return PartReceipt(ticket.load, 0, 0, 0, (), 0, -1)


def test_a_closed_store_loads_nothing() -> None:
    with crescando.open() as store:
        store.create_table(SCHEMA)
        load = store.begin_load("seats", job="j")
        part = store.stage(load.ticket, 0, 0)
    for call in (
        lambda: part.write(rows(range(1))),
        part.finish,
        lambda: store.stage(load.ticket, 0, 0),
        lambda: store.begin_load("seats", job="k"),
        load.renew,
    ):
        with pytest.raises(ClosedError):
            call()


def test_a_client_that_ends_a_load_whose_bytes_nobody_has_holds_up_nobody(
    store: crescando.Store[Cluster],
) -> None:
    liar = store.session("liar")
    backend: Any = liar._desk.backend
    load = liar.begin_load("seats", job="lies", rule="keep")
    chunk = ChunkOrder(load.ticket.load, 0, 7, 0, 5, bytes(16), (FULL_RING,), ())
    schema = store.table("seats").schema
    request = Request(
        Shape(Kind.UPDATE, schema.id, schema.version), (), (FULL_RING,), order=encode_chunk(chunk)
    )
    backend.submit(request, Pending())
    commit = CommitLoad(load.ticket.load, schema.id, "lies", -1, (Winner(0, 7, 1, 5),))
    for end in (commit, CloseLoad(load.ticket.load), commit):
        ordered = backend.order(end, lambda number: None)
        if end is commit:
            with pytest.raises(RefusedError, match="said that he has all of the load"):
                ordered.result(SECONDS)
    # All that comes behind is executed.
    store.table("seats").insert(rows(range(3))).result()
    assert keys(store) == [0, 1, 2]
    with store.begin_load("seats", job="honest", rule="keep") as honest:
        assert honest.commit([staged(store, honest.ticket, 0, rows(range(5)))]).inserted == 2
    load.abort()
