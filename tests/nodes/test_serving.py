"""An embedded store that serves: clients over mutual TLS beside those inside, while processes come and go."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import crescando
from crescando import Store, col
from crescando.certificates import Authority, check
from crescando.cluster import Cluster
from crescando.errors import (
    CredentialsError,
    CrescandoError,
    DeadlineError,
    RefusedError,
    SpecError,
    StatementError,
)
from crescando.remote import RemoteCluster
from crescando.routing.rubberband.messages import DropChange, MessageId, Reconfigure
from crescando.spec import ClusterSpec
from crescando.transport.handshake import CLIENT_ROOM_BYTES, SocketLimits
from crescando.types import ProcessId
from tests.nodes.clusters import PATIENCE_S, listens, until


@pytest.fixture
def certs(tmp_path: Path) -> Path:
    Authority.create(tmp_path / "certs", cluster="served")
    return tmp_path / "certs"


@pytest.fixture
def store() -> Iterator[Store[Cluster]]:
    with crescando.open(routers=3, storages=3, supers=1, replication=2) as store:
        store.create_table("seats", like={"flight": [1], "seat": ["1A"]}, primary_key="flight")
        yield store


def port_of(url: str) -> int:
    return int(url.rpartition(":")[2])


def test_clients_outside_see_what_those_inside_do(store: Store[Cluster], certs: Path) -> None:
    url = store.serve(tls=certs)
    with crescando.connect(url, tls=certs) as outside:
        inside, far = store.table("seats"), outside.table("seats")
        inside.insert([{"flight": 1, "seat": "1A"}]).result()
        assert far.select().rows() == [(1, "1A")]
        far.update(col("flight") == 1, {"seat": "2B"}).result()
        assert inside.select().rows() == [(1, "2B")]
        rows = [{"flight": number, "seat": "3C"} for number in range(2, 2002)]
        assert far.insert(rows).result().affected == 2000
        assert len(inside.select().rows()) == len(far.select(isolation="snapshot").rows()) == 2001
        assert len(outside.cluster.status().routers) == 3
        with pytest.raises(SpecError, match="serves already; connect to that"):
            outside.serve(tls=certs)
    # The store goes on without its clients.
    assert len(store.table("seats").select().rows()) == 2001
    with pytest.raises(SpecError, match="serves already; it has one address"):
        store.serve(tls=certs)
    store.close()
    assert not listens(port_of(url))


def test_one_store_too_many_hears_why_it_is_refused(store: Store[Cluster], certs: Path) -> None:
    url = store.serve(tls=certs)
    server = store.cluster._server
    assert server is not None
    assert server._far is not None
    places = server._far._places
    with crescando.connect(url, tls=certs) as first:
        first.table("seats").insert([{"flight": 1, "seat": "1A"}]).result()
        places._n_of_holder_max = len(places)

        with pytest.raises(
            DeadlineError, match="sessions with the certificate of client/app are here, and none"
        ):
            crescando.connect(url, tls=certs, connect_s=0.5)
        with crescando.connect(url, tls=certs, client="other") as other:
            assert len(other.table("seats").select().rows()) == 1
        first.table("seats").insert([{"flight": 2, "seat": "1A"}]).result()
        assert len(first.table("seats").select().rows()) == 2
    with crescando.connect(url, tls=certs) as second:
        assert len(second.table("seats").select().rows()) == 2


def test_clients_learn_how_long_a_request_may_be(store: Store[Cluster], certs: Path) -> None:
    """What is longer is cut, or refused where it was asked for, and everything else goes on."""
    url = store.serve(tls=certs)
    server = store.cluster._server
    assert server is not None
    assert server._far is not None
    server._far.limits = SocketLimits(client_bytes_max=CLIENT_ROOM_BYTES + (1 << 20))
    with crescando.connect(url, tls=certs) as outside:
        seats = outside.table("seats")
        reached = len(outside.cluster.default.core.reachable)
        with pytest.raises(StatementError, match="one row would be 2 MiB long, and 1 MiB are sent at most"):
            seats.insert([{"flight": 1, "seat": "x" * (2 << 20)}])
        with pytest.raises(StatementError, match="the statement's values would be 2 MiB long, and 1 MiB"):
            seats.select(where=col("seat").isin([f"{n}" * (1 << 19) for n in range(4)]), isolation="snapshot")
        rows = [{"flight": number, "seat": "x" * (1 << 19)} for number in range(6)]
        assert seats.insert(rows).result().affected == 6
        assert len(store.table("seats").select().rows()) == 6
        assert len(outside.cluster.default.core.reachable) == reached


def test_processes_that_die_and_come_are_reached_too(store: Store[Cluster], certs: Path) -> None:
    url = store.serve("127.0.0.1:0", tls=certs)
    with crescando.connect(url, tls=certs) as outside:
        far = outside.table("seats")
        far.insert([{"flight": number, "seat": "1A"} for number in range(100)]).result()
        lead = store.cluster.status().lead_router
        assert lead is not None
        store.cluster.kill(lead)
        store.cluster.kill("storage/s1")
        assert far.insert([{"flight": 100, "seat": "1A"}]).result(PATIENCE_S).affected == 1
        assert len(far.select(timeout_s=PATIENCE_S).rows()) == 101

        newcomer = store.cluster.start_storage(timeout_s=PATIENCE_S)
        until(lambda: newcomer in outside.cluster.default.core.reachable, f"{newcomer} is reached")
        router = store.cluster.restart_router(lead, timeout_s=PATIENCE_S)
        until(lambda: router in outside.cluster.default.core.multicast.routers, f"{router} is known")
        assert len(far.select(timeout_s=PATIENCE_S).rows()) == 101


def test_what_cannot_be_served_is_told(store: Store[Cluster], certs: Path, tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="port of 0 to 65535"):
        store.serve("here", tls=certs)
    with pytest.raises(CredentialsError, match="crescando certs init"):
        store.serve(tls=tmp_path)
    url = store.serve(tls=certs)
    with crescando.open() as other, pytest.raises(SpecError, match=r"cannot listen at .*in use"):
        other.serve(f"127.0.0.1:{port_of(url)}", tls=certs)
    with crescando.open() as other, pytest.raises(CredentialsError, match=r"names .*router/r9, not .*/r1"):
        other.serve(tls=Authority(certs).issue("router/r9"))


def test_a_newcomer_whom_the_certificate_does_not_name_serves_those_inside(
    store: Store[Cluster], certs: Path, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"router/r{i}" for i in (1, 2, 3)] + [f"storage/s{i}" for i in (1, 2, 3)] + ["super/u1"]
    url = store.serve(tls=Authority(certs).issue("node/store", *names, path=certs / "fixed.pem"))
    newcomer = store.cluster.start_storage(timeout_s=PATIENCE_S)

    assert f"{newcomer} cannot be reached from outside" in caplog.text
    with crescando.connect(url, tls=certs) as outside:
        outside.table("seats").insert([{"flight": 7, "seat": "1A"}]).result()
    assert store.table("seats").select().rows() == [(7, "1A")]


def test_the_routers_grow_and_shrink_from_outside(certs: Path) -> None:
    spec = ClusterSpec(routers=3, standby_routers=1)
    with (
        crescando.open(spec=spec) as store,
        crescando.connect(store.serve(tls=certs), tls=certs, client="admin") as outside,
    ):
        cluster = outside.cluster
        assert [process.node for process in cluster.members()] == ["r1", "r2", "r3"]
        assert str(cluster.add_router("r4", timeout_s=PATIENCE_S)) == "router/r4#1"
        assert [process.node for process in cluster.members()] == ["r1", "r2", "r3", "r4"]
        assert cluster.add_router("router/r4").node == "r4"
        for gone in ("r2", "r4"):
            assert cluster.remove_router(gone, timeout_s=PATIENCE_S).node == gone
        assert [process.node for process in cluster.members()] == ["r1", "r3"]
        with pytest.raises(SpecError, match="'r9': no router of that name runs; there are r1"):
            cluster.add_router("r9")
        with pytest.raises(SpecError, match="'r2': no member has that name; there are r1, r3"):
            cluster.remove_router("r2")
        outside.create_table("kept", like={"key": [1]}, primary_key="key").insert([{"key": 1}]).result(
            PATIENCE_S
        )
        assert store.table("kept").select().rows() == [(1,)]


def test_an_ordinary_client_changes_rows_and_tables_and_nothing_else(
    store: Store[Cluster], certs: Path
) -> None:
    newcomer = store.cluster.start_storage(timeout_s=PATIENCE_S)
    url = store.serve(tls=certs)
    denial = r"client/app gives no right to administer the cluster 'served'.* --admin client/app$"
    with crescando.connect(url, tls=certs) as outside:
        cluster = outside.cluster
        before = cluster.config()
        wishes: list[Callable[[], object]] = [
            lambda: cluster.expand(newcomer).result(PATIENCE_S),
            lambda: cluster.contract("s1").result(PATIENCE_S),
            lambda: cluster.replace("s1").result(PATIENCE_S),
            lambda: cluster.rebalance().result(PATIENCE_S),
            lambda: cluster.remove(newcomer, timeout_s=PATIENCE_S),
        ]
        for wish in wishes:
            with pytest.raises(RefusedError, match=denial):
                wish()
        with pytest.raises(CrescandoError, match=denial):
            cluster.remove_router("r2")

        # One that does not look at its own certificate is refused by the order itself.
        plan = cluster.plan("expand")
        assert plan.transformation is not None
        for order in (
            Reconfigure(plan.transformation, plan.instructions, plan.layout),
            DropChange(MessageId(ProcessId("client", "other", 1), 1), "since I say so"),
        ):
            with pytest.raises(RefusedError, match=denial):
                cluster.default.order(order, lambda number: None).result(PATIENCE_S)

        after = cluster.config()
        assert (after.ring, after.changes, after.storages) == (before.ring, before.changes, before.storages)
        assert [process.node for process in cluster.members()] == ["r1", "r2", "r3"]
        assert len(cluster.status().routers) == 3
        table = outside.create_table("own", like={"key": [1]}, primary_key="key")
        table.insert([{"key": 1}]).result(PATIENCE_S)
        assert table.select().rows() == [(1,)]
        outside.drop_table("own")

    with crescando.connect(url, tls=certs, client="admin") as outside:
        outside.cluster.expand(newcomer).result(PATIENCE_S)
        assert newcomer in outside.cluster.config().ring.processes


def test_the_right_to_administer_comes_and_goes_with_the_file(store: Store[Cluster], certs: Path) -> None:
    newcomer = store.cluster.start_storage(timeout_s=PATIENCE_S)
    url, authority = store.serve(tls=certs), Authority(certs)
    path = authority.issue("client/ops", "admin/ops")
    with crescando.connect(url, tls=certs, client="ops") as outside:
        outside.cluster.expand(newcomer).result(PATIENCE_S)
    # Whoever only connects neither loses the right nor gets it.
    assert check(path).names == ("client/ops", "admin/ops")
    authority.issue("client/ops")
    with (
        crescando.connect(url, tls=certs, client="ops") as outside,
        pytest.raises(RefusedError, match="no right to administer"),
    ):
        outside.cluster.contract(newcomer).result(PATIENCE_S)
    assert check(path).names == ("client/ops",)


def test_an_entry_that_is_somebody_elses_by_now_keeps_nobody_out(store: Store[Cluster], certs: Path) -> None:
    def answer() -> None:
        connection, _ = stranger.accept()
        with connection:
            connection.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

    port = port_of(store.serve(tls=certs))
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        thread = threading.Thread(target=answer)
        thread.start()
        entry = f"crescando://127.0.0.1:{stranger.getsockname()[1]},127.0.0.1:{port}"
        with crescando.connect(entry, tls=certs, connect_s=PATIENCE_S) as outside:
            assert outside.table("seats").select().rows() == []
        thread.join(PATIENCE_S)


def test_nobody_outside_is_taken_for_a_client_inside(
    store: Store[Cluster], certs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Inside, clients have proven nothing: a certificate of the same name makes nobody one of them."""
    inside = store.cluster.default.core.me
    url, path = store.serve(tls=certs), Authority(certs).issue(f"client/{inside.node}")
    lives = iter([inside._replace(incarnation=1 << 20), inside])
    monkeypatch.setattr(RemoteCluster, "_next_process", lambda self: next(lives))
    with crescando.connect(url, tls=path) as impostor:
        with pytest.raises(CrescandoError):
            impostor.table("seats", timeout_s=1.0)

        table = store.table("seats")
        table.insert([{"flight": 7, "seat": "1A"}]).result(PATIENCE_S)
        assert table.select(timeout_s=PATIENCE_S).rows() == [(7, "1A")]
    monkeypatch.undo()
    with crescando.connect(url, tls=path) as outside:
        assert outside.table("seats").select().rows() == [(7, "1A")]
