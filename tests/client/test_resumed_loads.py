"""Loads that are driven from elsewhere, and such as are named only by who commits them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import crescando
from crescando import LoadOutcome, LoadTicket, Store, Table
from crescando.cluster import Cluster
from crescando.errors import LoadConflictError, LoadGoneError, RefusedError, StatementError
from crescando.types import AT_COMMIT


@pytest.fixture(scope="module")
def store() -> Iterator[Store[Cluster]]:
    with crescando.open(routers=1, storages=3, supers=1, replication=2) as store:
        yield store


@pytest.fixture
def table(store: Store[Cluster], request: pytest.FixtureRequest) -> Table:
    name = request.node.name.partition("[")[0]
    return store.create_table(name, like={"id": [1], "amount": [0]}, primary_key="id")


def begun(store: Store[Cluster], table: Table, write: str = "insert") -> LoadTicket:
    with store.session("begins") as session:
        load = session.begin_load(table.name, job="feed", epoch=AT_COMMIT, write=write)  # type: ignore[arg-type]
        return LoadTicket.decode(load.ticket.encode())


def ended(
    store: Store[Cluster], ticket: LoadTicket, ids: range, job: str | None = None, epoch: int | None = None
) -> LoadOutcome:
    with store.session("ends") as session:
        with session.stage(ticket, 0, 0) as part:
            part.write([{"id": number, "amount": epoch} for number in ids])
            receipt = part.finish()
        return session.resume_load(ticket, job=job, epoch=epoch).commit([receipt])


def test_a_load_is_of_the_epoch_that_its_commit_names(store: Store[Cluster], table: Table) -> None:
    def load(job: str, epoch: int, ids: range, write: str = "insert") -> bool:
        return ended(store, begun(store, table, write), ids, job, epoch).is_repeat

    assert [load("a", 5, range(10)), load("a", 5, range(10, 20)), load("a", 4, range(10, 20))] == [
        False,
        True,
        True,
    ]
    # Another job counts for itself; a load without an end is taken over by the next one.
    assert [load("b", 0, range(10, 12)), load("a", 6, range(3), "upsert")] == [False, False]
    assert sorted(table.select().rows()) == sorted(
        [(number, 6) for number in range(3)]
        + [(number, 5) for number in range(3, 10)]
        + [(number, 0) for number in range(10, 12)]
    )


def test_a_later_load_of_the_job_takes_its_place(store: Store[Cluster], table: Table) -> None:
    first = begun(store, table)
    second = begun(store, table)
    with pytest.raises((LoadGoneError, RefusedError)):
        ended(store, first, range(5), "feed", 1)
    assert ended(store, second, range(5, 9), "feed", 1).inserted == 4
    assert table.count() == 4


def test_one_that_clashes_leaves_its_epoch_to_the_next(store: Store[Cluster], table: Table) -> None:
    table.insert([{"id": 3, "amount": 9}]).result()
    with pytest.raises(LoadConflictError):
        ended(store, begun(store, table), range(5), "feed", 1)
    assert ended(store, begun(store, table), range(4, 6), "feed", 1).inserted == 2


def test_what_is_no_name_is_told(store: Store[Cluster], table: Table) -> None:
    ticket = begun(store, table)
    with pytest.raises(StatementError, match="epoch is a whole number from 0 on"):
        store.resume_load(ticket, job="feed", epoch=AT_COMMIT)
    with pytest.raises(StatementError, match="job is a name of 1 to"):
        store.resume_load(ticket, job="", epoch=1)
    with pytest.raises(StatementError, match="a ticket is what"):
        store.resume_load(b"ticket")  # type: ignore[arg-type]
    with pytest.raises(RefusedError, match="must name a job, and an epoch of it"):
        ended(store, ticket, range(1))
    named = store.begin_load(table.name, job="other", epoch=1).ticket
    with pytest.raises(StatementError, match="is one of job 'other'; only one begun with AT_COMMIT"):
        store.resume_load(named, job="another", epoch=1)
    store.resume_load(named).abort()
    with pytest.raises((LoadGoneError, RefusedError)):
        ended(store, named, range(1))


def test_a_session_that_knows_a_table_of_the_same_name_loads_into_the_new_one(store: Store[Cluster]) -> None:
    with store.session("long") as long:
        for time in range(3):
            store.create_table("anew", like={"id": [1], f"amount_{time}": [0]}, primary_key="id")
            load = long.begin_load("anew", job="feed")
            with long.stage(load.ticket, 0, 0) as part:
                part.write([{"id": 1, f"amount_{time}": time}])
                receipt = part.finish()
            assert long.resume_load(load.ticket).commit([receipt]).inserted == 1
            assert store.table("anew").select().rows() == [(1, time)]
            store.drop_table("anew")
