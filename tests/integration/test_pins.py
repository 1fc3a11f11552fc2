"""Pinned snapshots through the public surface: one position, whoever reads and whatever happens."""

from __future__ import annotations

import pickle
import time
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

import crescando
from crescando import PinnedPart, PinTicket, agg, col
from crescando.certificates import Authority
from crescando.cli import elastic
from crescando.client import pin
from crescando.client import pinned as pinned_values
from crescando.client.pinned import Hold
from crescando.clusterfile import Seat
from crescando.errors import (
    DeadlineError,
    ReadFailedError,
    SnapshotExpiredError,
    SpecError,
    StatementError,
    UnknownColumnError,
    UnknownTableError,
)
from crescando.nodes.health import Health, NodeHealth
from crescando.roles import pinning
from crescando.roles.description import Hosts
from crescando.types import ProcessId
from tests.integration.stores import N_COUNTERS, with_counters

N_ROWS = 20_000


def filled(store: crescando.Store) -> None:
    rows = store.create_table("rows", like={"k": [1], "v": [1], "s": ["a"]}, primary_key="k")
    keys = range(N_ROWS)
    rows.insert({"k": list(keys), "v": [0] * N_ROWS, "s": [f"{key:050d}" for key in keys]}).result()


def read(store: crescando.Session, ticket: PinTicket, parts: tuple[PinnedPart, ...]) -> list[Any]:
    """Read parts as workers do that were sent bytes."""
    ticket = PinTicket.decode(ticket.encode())
    found = []
    for part in parts:
        for piece in store.read_pinned(ticket, PinnedPart.decode(part.encode())):
            assert piece.position == ticket.position
            found += piece.rows()
    return found


def test_all_parts_are_at_one_position_behind_what_the_session_has_written() -> None:
    with with_counters(routers=3, storages=4, replication=2) as store:
        table = store.table("counters")
        add = table.prepare_update("k >= 0", "v = v + 1")
        for _ in range(5):
            add(())
        with store.pin("counters") as pinned:
            for _ in range(5):
                add(())
            table.delete(col("k") < 10)
            other = store.session("worker")
            for n in (None, 1, 7):
                rows = read(other, pinned.ticket, pinned.parts("counters", n))
                assert sorted(row[:2] for row in rows) == [(key, 5) for key in range(N_COUNTERS)]
            assert len(pinned.parts("counters", 7)) == 7
        assert table.aggregate(top=agg.max("v"), n=agg.count()).rows() == [(10, N_COUNTERS - 10)]


def test_columns_and_predicates_are_pushed_down() -> None:
    with with_counters(storages=3, replication=2) as store, store.pin("counters") as pinned:
        found = [
            piece.rows()
            for part in pinned.parts("counters")
            for piece in store.read_pinned(
                pinned.ticket, part, columns=["k", "v + k AS w"], where="k % ? = 0", params=(10,)
            )
        ]
        assert sorted(row for rows in found for row in rows) == [(k, k) for k in (0, 10, 20, 30)]
        one = [
            piece
            for part in pinned.parts("counters")
            for piece in store.read_pinned(pinned.ticket, part, where=col("k") == 7)
        ]
        assert [row[0] for piece in one for row in piece.rows()] == [7]
        assert all(piece.names == ("k", "v", "label", "at") for piece in one)
        faults = []
        for part in pinned.parts("counters"):
            try:
                list(store.read_pinned(pinned.ticket, part, where="10 / (k - 5) > 0"))
            except ReadFailedError as error:
                faults.append(str(error))
        assert faults == ["division by zero (smallest key (5,))"]


def test_a_stand_in_goes_on_where_a_holder_died(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pinned_values, "STRIP_BYTES", 20_000)
    monkeypatch.setattr(pinning, "PIECE_BYTES", 40_000)
    with crescando.open(routers=3, storages=3, replication=2, seed=2) as store:
        filled(store)
        with store.pin("rows") as pinned:
            store.table("rows").update(None, {"v": 1}).result()
            (part, *others) = pinned.parts("rows")
            assert part.n_strips > 20
            pieces = store.read_pinned(pinned.ticket, part)
            found = next(pieces).rows()
            store.cluster.kill(part.owners[0].node)
            found += [row for piece in pieces for row in piece.rows()]
            found += read(store, pinned.ticket, tuple(others))
            assert len(found) == N_ROWS
            assert {row[0] for row in found} == set(range(N_ROWS))
            assert {row[1] for row in found} == {0}


def test_a_pin_outlives_the_layout_it_was_taken_in() -> None:
    with crescando.open(routers=1, storages=3, supers=1, replication=1, seed=3) as store:
        filled(store)
        with store.pin("rows") as pinned:
            store.cluster.expand(store.cluster.start_storage()).result(120)
            store.table("rows").delete("k < 15000").result()
            found = read(store, pinned.ticket, pinned.parts("rows", 6))
            assert {row[0] for row in found} == set(range(N_ROWS))
            assert len(found) == N_ROWS


def test_what_is_over_says_so_and_what_to_do() -> None:
    with with_counters(storages=2) as store:
        pinned = store.pin("counters")
        (part, *_) = pinned.parts("counters")
        pinned.renew(120.0)
        pinned.close()
        pinned.close()
        with pytest.raises(SnapshotExpiredError, match=r"it was closed.*pin a new one") as closed:
            list(store.read_pinned(pinned.ticket, part))
        again = pickle.loads(pickle.dumps(closed.value))
        assert str(again) == str(closed.value)
        with pytest.raises(SnapshotExpiredError, match="it was closed"):
            pinned.renew()


def test_mistakes_are_told_before_anything_is_sent() -> None:
    with with_counters() as store:
        with pytest.raises(UnknownTableError, match="did you mean 'counters'"):
            store.pin("counter")
        with pytest.raises(StatementError, match="name the tables"):
            store.pin()
        for lease_s in (0, -1, float("nan"), 1e9, "long"):
            with pytest.raises(StatementError, match="lease_s must be above 0"):
                store.pin("counters", lease_s=lease_s)  # type: ignore[arg-type]
        with store.pin("counters") as pinned:
            (part, *_) = pinned.parts("counters")
            for n in (0, -1, 1.5, True, 10**9):
                with pytest.raises(SpecError, match="at least one part"):
                    pinned.parts("counters", n)  # type: ignore[arg-type]
            with pytest.raises(UnknownTableError):
                pinned.parts("others")
            with pytest.raises(UnknownColumnError, match="did you mean 'label'"):
                store.read_pinned(pinned.ticket, part, columns=["lable"])
            with pytest.raises(StatementError, match=r"PinTicket\.decode"):
                store.read_pinned(pinned.ticket.encode(), part)  # type: ignore[arg-type]
            with pytest.raises(SpecError, match="not the ticket"):
                PinTicket.decode(b"something else")
            with pytest.raises(SpecError, match="not a part"):
                PinnedPart.decode(pinned.ticket.encode())


def test_workers_on_the_network_read_what_the_driver_pinned(tmp_path: Path) -> None:
    Authority.create(tmp_path / "certs", cluster="served")
    with crescando.open(routers=3, storages=3, replication=2, seed=4) as store:
        filled(store)
        url = store.serve(tls=tmp_path / "certs")
        with (
            crescando.connect(url, tls=tmp_path / "certs") as driver,
            crescando.connect(url, tls=tmp_path / "certs") as worker,
            driver.pin("rows") as pinned,
        ):
            store.table("rows").delete(None).result()
            found = read(worker, pinned.ticket, pinned.parts("rows", 5))
            assert {row[0] for row in found} == set(range(N_ROWS))
            assert len(found) == N_ROWS


def n_pins(store: crescando.Store[Any]) -> int:
    return sum(counted.get("pins", 0) for counted in store.cluster.statistics().values())


def eventually(holds: Callable[[], bool]) -> bool:
    deadline_s = time.monotonic() + 60.0
    while not holds() and time.monotonic() < deadline_s:
        time.sleep(0.01)
    return holds()


def test_closing_reaches_a_holder_that_kept_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pin, "STANDINS_S", 0.0)
    with with_counters(storages=2, replication=2) as store:
        backend = store._desk.backend
        ask = backend.ask_pinned
        silent = backend.holders().result(60.0)[1]

        def say_nothing(process: ProcessId, question: Any) -> Any:
            return Future() if process == silent and isinstance(question, Hold) else ask(process, question)

        monkeypatch.setattr(backend, "ask_pinned", say_nothing)
        with store.pin("counters") as pinned:
            assert all(silent not in part.owners for part in pinned.parts("counters"))
            assert n_pins(store) == 2
        assert eventually(lambda: n_pins(store) == 0)


def test_what_is_pinned_when_nobody_waits_any_more_is_let_go_of(monkeypatch: pytest.MonkeyPatch) -> None:
    with with_counters(storages=2, replication=2) as store:
        backend = store._desk.backend
        order, told = backend.pin, []

        def tell_late(tables: tuple[int, ...], lease_s: float) -> Any:
            late: Future[Any] = Future()
            told.append((late, order(tables, lease_s).result(60.0)))
            return late

        monkeypatch.setattr(backend, "pin", tell_late)
        with pytest.raises(DeadlineError):
            store.pin("counters", timeout_s=0.5)
        assert eventually(lambda: n_pins(store) == 2)
        ((late, pin_id),) = told
        late.set_result(pin_id)
        assert eventually(lambda: n_pins(store) == 0)


def test_what_pins_keep_is_told() -> None:
    with with_counters(storages=2, replication=2) as store, store.pin("counters"):
        store.table("counters").update(None, {"v": 7}).result()
        assert eventually(
            lambda: all(
                each["pinned_bytes"] for each in store.cluster.statistics().values() if "pins" in each
            )
        )
        counted = store.cluster.statistics()
        table, *_ = elastic._table({}, counted, 1.0).split("\n\n")
        heads, *lines = map(str.split, table.splitlines())
        assert heads[3:6] == ["pins", "their", "MiB"]
        assert [(line[0][:7], line[3]) for line in lines] == [("storage", "1")] * 2
    process, counters = next((name, each) for name, each in counted.items() if "pins" in each)
    role, node = process.split("#")[0].split("/")
    host = Hosts(ProcessId(role, node), True, True, "", None, 5, counters)
    described = NodeHealth(Seat(role, node, "127.0.0.1", 1), host, "")
    health = Health("flights", (described,), None, None)
    assert "1 pins for which 0.0 MiB are kept" in str(health)
    assert health.to_json()["nodes"][0]["counters"]["pins"] == 1
