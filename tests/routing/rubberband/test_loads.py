"""Which loads are open, who may end them, and what is a repeat: rule by rule."""

from __future__ import annotations

from typing import Any

import pytest

from crescando.routing.base import Refusal
from crescando.routing.rubberband import loads as loads_module
from crescando.routing.rubberband.loads import NO_LOADS, Loads, digest_of
from crescando.routing.rubberband.messages import (
    BeginLoad,
    CloseLoad,
    CommitLoad,
    ExpireLoad,
    HaveLoad,
    PublishLoad,
    RenewLoad,
    SealLoad,
    Winner,
)
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.types import LoadId, ProcessId

TABLE = TableSchema(
    "t",
    (ColumnDef("id", DataType.INT64, False, id=1), ColumnDef("v", DataType.INT64, True, id=2)),
    partition_key="id",
    primary_key=("id",),
    id=7,
    version=3,
)
CLIENT = ProcessId("client", "c", 1)
AT = LoadId(CLIENT, 1)


def begin(rule: str = "keep", job: str = "j", epoch: int = 0) -> BeginLoad:
    return BeginLoad(7, 3, job, epoch, "insert", rule, (1, 2), 1000)


def ordered(loads: Loads, body: Any, at: LoadId = AT, role: str = "client") -> Loads:
    loads.check(body, role, (TABLE,))
    return loads.after(body, at)


def test_a_lease_that_was_renewed_is_not_over() -> None:
    loads = ordered(ordered(NO_LOADS, begin()), RenewLoad(AT))

    with pytest.raises(Refusal, match="renewed"):
        ordered(loads, ExpireLoad(AT, 0), role="super")
    assert ordered(loads, ExpireLoad(AT, 1), role="super").open == ()


@pytest.mark.parametrize(
    ("body", "role"), [(ExpireLoad(AT, 0), "client"), (CommitLoad(AT, 7, "j", 0, ()), "super")]
)
def test_supers_end_what_is_over_and_nothing_else(body: Any, role: str) -> None:
    with pytest.raises(Refusal, match="may not order"):
        ordered(ordered(NO_LOADS, begin()), body, role=role)


def test_a_load_that_may_fail_is_sealed_once_and_published() -> None:
    loads = ordered(NO_LOADS, begin("fail"))
    with pytest.raises(Refusal, match="not sealed"):
        ordered(loads, PublishLoad(AT, 7, "j", 0))
    with pytest.raises(Refusal, match="sealed and published"):
        ordered(loads, CommitLoad(AT, 7, "j", 0, ()))
    sealed = ordered(loads, SealLoad(AT, 7, "j", 0, ()))
    with pytest.raises(Refusal, match="sealed, with other attempts"):
        ordered(sealed, SealLoad(AT, 7, "j", 0, (Winner(0, 4, 1, 10),)))
    assert ordered(sealed, PublishLoad(AT, 7, "j", 0)).jobs == ((7, "j", 0),)


@pytest.mark.parametrize("partitions", [(1, 0), (0, 0)])
def test_partitions_are_named_once_and_in_order(partitions: tuple[int, ...]) -> None:
    winners = tuple(Winner(partition, 0, 1, 1) for partition in partitions)
    with pytest.raises(Refusal, match="each named once, in order"):
        ordered(ordered(NO_LOADS, begin()), CommitLoad(AT, 7, "j", 0, winners))


@pytest.mark.parametrize("winner", [(-1, 0), (1 << 20, 0), (0, -1), (0, 1 << 42)])
def test_a_winner_that_no_engine_takes_ends_no_load(winner: tuple[int, int]) -> None:
    with pytest.raises(Refusal, match="partitions are numbers up to"):
        ordered(ordered(NO_LOADS, begin()), CommitLoad(AT, 7, "j", 0, (Winner(*winner, 1, 1),)))


def test_the_job_that_committed_longest_ago_is_forgotten_first(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads_module, "JOBS_MAX", 2)
    loads = NO_LOADS
    for number, job in enumerate(("a", "b", "a", "c")):
        at = LoadId(CLIENT, number)
        loads = ordered(ordered(loads, begin(job=job, epoch=number), at), CommitLoad(at, 7, job, number, ()))

    assert loads.jobs == ((7, "a", 2), (7, "c", 3))


def test_jobs_that_nobody_named_displace_none_that_can_come_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads_module, "JOBS_MAX", 2)
    monkeypatch.setattr(loads_module, "NAMELESS_MAX", 1)
    loads = NO_LOADS
    for number, job in enumerate(("a", "~1", "b", "~2", "~3", "c", "a")):
        at = LoadId(CLIENT, number)
        loads = ordered(ordered(loads, begin(job=job, epoch=number), at), CommitLoad(at, 7, job, number, ()))

    assert loads.jobs == ((7, "~3", 4), (7, "c", 5), (7, "a", 6))


def test_a_table_that_goes_takes_its_loads_and_jobs_along() -> None:
    loads = ordered(NO_LOADS, begin())
    loads = ordered(loads, CommitLoad(AT, 7, "j", 0, ()))
    loads = ordered(loads, begin(epoch=1), LoadId(CLIENT, 2))

    assert loads.without_tables((TABLE,)) is loads
    assert loads.without_tables(()) == NO_LOADS


def test_a_load_is_sealed_again_with_the_same_attempts_only() -> None:
    winners = (Winner(0, 4, 1, 10),)
    sealed = ordered(ordered(NO_LOADS, begin("fail")), SealLoad(AT, 7, "j", 0, winners))
    again = ordered(sealed, SealLoad(AT, 7, "j", 0, winners))

    assert [order.kind for order in sealed.orders(SealLoad(AT, 7, "j", 0, winners), again)] == ["seal"]
    assert again.open[0].sealed == sealed.open[0].sealed
    with pytest.raises(Refusal, match="sealed, with other attempts"):
        ordered(again, SealLoad(AT, 7, "j", 0, (Winner(0, 5, 1, 10),)))
    assert ordered(again, PublishLoad(AT, 7, "j", 0)).jobs == ((7, "j", 0),)


def test_where_no_more_can_be_open_a_job_may_begin_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loads_module, "LOADS_MAX", 1)
    loads = ordered(NO_LOADS, begin())
    with pytest.raises(Refusal, match="1 loads are open"):
        ordered(loads, begin(job="other"), LoadId(CLIENT, 2))
    assert [load.id.number for load in ordered(loads, begin(), LoadId(CLIENT, 3)).open] == [3]


STORAGES = tuple(ProcessId("storage", f"s{number}") for number in range(3))


def test_a_load_ends_when_everybody_who_holds_it_has_said_that_he_has_all_of_it() -> None:
    def said(loads: Loads, who: ProcessId, attempt: int = 4) -> Loads:
        return ordered(loads, HaveLoad(AT, digest_of([(0, attempt)])), LoadId(who, 5), role="storage")

    loads = ordered(NO_LOADS, begin())
    commit = CommitLoad(AT, 7, "j", 0, (Winner(0, 4, 1, 10),))
    with pytest.raises(Refusal, match="not closed"):
        said(loads, STORAGES[0])
    loads = ordered(loads, CloseLoad(AT))
    assert ordered(loads, CloseLoad(AT)) == loads
    with pytest.raises(Refusal, match="may not order"):
        ordered(loads, HaveLoad(AT, digest_of([(0, 4)])))
    loads = said(said(said(loads, STORAGES[0]), STORAGES[1], attempt=5), STORAGES[2])
    with pytest.raises(Refusal, match=r"storage/s1#0$"):
        loads.check_held(commit, STORAGES)
    loads = said(loads, STORAGES[1])
    loads.check_held(commit, STORAGES)
    assert said(loads, STORAGES[1]) == loads
    with pytest.raises(Refusal, match="all of the load"):
        loads.check_held(CommitLoad(AT, 7, "j", 0, (Winner(0, 6, 1, 10),)), STORAGES)
    committed = ordered(loads, commit)
    committed.check_held(commit, STORAGES)
