"""Real processes over mutual TLS: a cluster from a file, clients that find it, deaths, and a clean end."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import crescando
from crescando import col
from crescando.certificates import Authority
from crescando.cli.main import main
from crescando.clusterfile import ClusterFile
from crescando.errors import CredentialsError, DeadlineError, SessionRefusedError, SpecError
from crescando.nodes.runs import Running, find_running, is_alive
from tests.nodes.clusters import PATIENCE_S, free_ports, listens, until, write_cluster

# One cluster for all of them, which change it: they belong to one worker, in their order.
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("a cluster of nodes")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cluster")


@pytest.fixture(scope="module")
def file(folder: Path) -> Iterator[ClusterFile]:
    """A whole cluster, started and ended by the commands."""
    before = Path.cwd()
    os.chdir(folder)
    file = write_cluster(folder, standby=1, action="replace")
    try:
        assert main(["up", "-d", "--timeout", str(PATIENCE_S)]) == 0
        try:
            yield file
        finally:
            running = find_running()
            assert main(["down"]) == 0
        assert running is not None
        assert [pid for pid in (running.pid, *running.nodes.values()) if is_alive(pid)] == []
        assert [seat for seat in file.seats if listens(seat.port)] == []
        assert sorted(os.listdir(folder)) == ["certs", "cluster.toml"]
    finally:
        os.chdir(before)


def url(file: ClusterFile) -> str:
    return "crescando://" + ",".join(seat.address for seat in file.seats if seat.role == "router")


def running() -> Running:
    found = find_running()
    assert found is not None
    return found


def test_clients_work_as_with_an_embedded_store(file: ClusterFile, folder: Path) -> None:
    with crescando.connect(url(file), tls=folder / "certs") as store:
        seats = store.create_table("seats", like={"flight": [1], "seat": ["1A"]}, primary_key="flight")
        done = seats.insert([{"flight": i, "seat": f"{i}A"} for i in range(500)]).result()
        assert (done.affected, done.rejected) == (500, 0)
        assert sorted(seats.select(where=col("flight") < 3).rows()) == [(0, "0A"), (1, "1A"), (2, "2A")]
        for isolation in ("snapshot", "basic"):
            assert seats.select(where="flight = 7", isolation=isolation).rows() == [(7, "7A")]
        other = store.session("other")
        assert other.table("seats").update(col("flight") == 7, {"seat": "9F"}).result().affected == 1
        assert len(store.cluster.config().ring.processes) == 4
        for process, key_range in store.cluster.replicas("seats"):
            rows = store.cluster.read_replica(process, key_range, "seats").rows()
            assert len(rows) == len(set(rows)) > 0
        counted = store.cluster.statistics()
        assert sum(counted[f"storage/s{i}#1"]["rows"] for i in range(1, 5)) == 3 * 500

    # Any process is an entry, and one that is not there does no harm.
    nowhere = free_ports(1)[0]
    entry = f"crescando://127.0.0.1:{nowhere},{file.seat('s3').address}"

    async def ask() -> list[tuple[object, ...]]:
        async with await crescando.connect_async(entry, tls=folder / "certs", client="other") as store:
            table = await store.table_nowait("seats")
            answer = await table.select_nowait(where=col("flight") == 7)
            return answer.rows()

    assert asyncio.run(ask()) == [(7, "9F")]


def test_strangers_and_wrong_addresses_are_told_why(file: ClusterFile, folder: Path, tmp_path: Path) -> None:
    other = Authority.create(tmp_path / "others", cluster="test")
    with pytest.raises(SessionRefusedError, match=r"127.0.0.1:\d+: .* not among the authorities"):
        crescando.connect(url(file), tls=other.issue("client/app"))
    elsewhere = Authority.create(tmp_path / "elsewhere", cluster="elsewhere")
    with pytest.raises(SessionRefusedError):
        crescando.connect(url(file), tls=elsewhere.issue("client/app"))
    with pytest.raises(CredentialsError, match="client/NAME"):
        crescando.connect(url(file), tls=folder / "certs" / "router-r1.pem")
    with pytest.raises(SpecError, match="crescando://host:port"):
        crescando.connect("http://127.0.0.1:80", tls=folder / "certs")
    with pytest.raises(SpecError, match="port of 1 to 65535"):
        crescando.connect("crescando://127.0.0.1", tls=folder / "certs")
    nowhere = free_ports(1)[0]
    with pytest.raises(DeadlineError, match=f"127.0.0.1:{nowhere}"):
        crescando.connect(f"crescando://127.0.0.1:{nowhere}", tls=folder / "certs", connect_s=0.1)


def test_the_same_cluster_is_not_started_twice(
    file: ClusterFile, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["up"]) == 2
    assert "runs already; end it with: crescando down" in capsys.readouterr().err

    taken = folder / "other.toml"
    taken.write_text(file.path.read_text().replace("'test'", "'other'", 1))
    assert main(["up", "-f", str(taken)]) == 2
    assert f"r1 cannot listen at {file.seat('r1').address}: Address already in use" in capsys.readouterr().err
    assert main(["up", "-d", "-f", str(taken)]) == 2
    taken.unlink()
    assert find_running("other") is None
    assert sorted(os.listdir(folder / ".crescando")) == ["test"]


def test_killed_processes_are_missed_by_nobody_and_come_back(
    file: ClusterFile, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["status", "--json"]) == 0
    lead = json.loads(capsys.readouterr().out)["lead_router"]
    with crescando.connect(url(file), tls=folder / "certs") as store:
        table = store.create_table("kept", like={"key": [1]}, primary_key="key")
        written = 0
        for victim in (lead.split("/")[1].split("#")[0], "s2"):
            handles = [table.insert([{"key": written + i}]) for i in range(100)]
            os.kill(running().nodes[victim], signal.SIGKILL)
            handles += [table.insert([{"key": written + 100 + i}]) for i in range(100)]
            assert [handle.result(PATIENCE_S).affected for handle in handles] == [1] * 200
            written += 200
            assert sorted(table.select(timeout_s=PATIENCE_S).rows()) == [(key,) for key in range(written)]

        def lives() -> dict[str, int]:
            return {
                status.process.node: status.process.incarnation for status in store.cluster.status().routers
            }

        until(lambda: sorted(lives().values()) == [1, 1, 2], "the router is back, in its second life")
        until(
            lambda: any(router.incarnation == 2 for router in store.cluster.default.core.multicast.routers),
            "a member",
        )
        assert table.insert([{"key": written}]).result(PATIENCE_S).affected == 1


def test_the_ring_heals_and_is_changed_from_the_command_line(
    file: ClusterFile, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with crescando.connect(url(file), tls=folder / "certs") as store:

        def ring() -> list[str]:
            return sorted(map(str, store.cluster.config().ring.processes))

        def standbys() -> list[str]:
            return sorted(set(map(str, store.cluster.config().storages)) - set(ring()))

        def is_healed() -> bool:
            config = store.cluster.config()
            placed = config.ring.processes
            # Whichever standby had the place: the one there was, or the killed one in its second life.
            return len(placed) == 4 and config.storages.issuperset(placed) and "storage/s2#1" not in ring()

        def how_it_is() -> str:
            events = list(map(str, store.cluster.events(timeout_s=5.0)))
            return f"healed; on the ring are {ring()}, on standby {standbys()}; {events}"

        # What the test before leaves behind, where that has not run.
        if "kept" not in store.tables():
            kept = store.create_table("kept", like={"key": [1]}, primary_key="key")
            assert kept.insert([{"key": key} for key in range(400)]).result(PATIENCE_S).affected == 400
            os.kill(running().nodes["s2"], signal.SIGKILL)
        until(is_healed, how_it_is)
        until(lambda: len(standbys()) == 1, "one stands by again")
        (newcomer,) = standbys()
        leaver = ring()[0]
        node = newcomer.split("/")[1].split("#")[0]
        table = store.table("kept")
        n_rows = len(table.select().rows())
        assert main(["plan", "expand", "--json"]) == 0
        assert json.loads(capsys.readouterr().out)["refusal"] == ""
        assert main(["expand", node, "--json"]) == 0
        assert len(ring()) == 5
        assert main(["contract", leaver, "--json"]) == 0
        assert len(ring()) == 4
        assert newcomer in ring()
        assert leaver not in ring()
        capsys.readouterr()
        assert main(["contract", "s9"]) == 2
        assert "s9" in capsys.readouterr().err
        assert main(["ring"]) == 0
        assert f"on standby: {leaver}" in capsys.readouterr().out
        assert main(["moves"]) == 0
        assert main(["top", "--times", "1"]) == 0
        shown = capsys.readouterr().out
        assert newcomer in shown
        # The same of routers, one of which leads, and of supers, who look after all others.
        lines = {line.split()[0].partition("#")[0]: line.split() for line in shown.splitlines() if line}
        assert sorted(lines[f"router/r{n}"][1] for n in (1, 2, 3)) == ["no", "no", "yes"]
        assert all(int(lines[f"super/u{n}"][1]) > 4 for n in (1, 2, 3))

        held: dict[object, list[object]] = {}
        for process, key_range in store.cluster.replicas("kept"):
            rows = sorted(store.cluster.read_replica(process, key_range, "kept").rows())
            held.setdefault(key_range, []).append(rows)
        assert all(len(copies) == 3 and copies[0] == copies[1] == copies[2] for copies in held.values())
        assert sum(len(copies[0]) for copies in held.values()) == n_rows == len(table.select().rows())

        # A session that begins now finds the processes that there are now.
        late = store.session("late")
        assert len(late.table("kept").select(isolation="basic").rows()) == n_rows


def test_a_router_that_was_removed_stands_by_and_can_be_added(
    file: ClusterFile, capsys: pytest.CaptureFixture[str]
) -> None:
    def members() -> list[str]:
        capsys.readouterr()
        assert main(["routers", "--json"]) == 0
        told: list[str] = json.loads(capsys.readouterr().out)["routers"]
        return told

    assert main(["status", "--json"]) == 0
    lead = json.loads(capsys.readouterr().out)["lead_router"]
    removed = next(member for member in members() if member != lead)
    node = removed.split("/")[1].split("#")[0]
    assert main(["routers", "remove"]) == 2
    assert "remove which router" in capsys.readouterr().err
    assert main(["routers", "remove", node]) == 0
    assert f"{removed} is no member any more" in capsys.readouterr().out
    assert len(members()) == 2

    # Its node is started again, as a later life, which stands by until somebody wants it.
    until(lambda: main(["routers", "add", node]) == 0, "it is a member again")
    assert len(members()) == 3
    assert removed not in members()


def test_the_demo_runs_on_real_processes(
    file: ClusterFile, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("rich")
    with crescando.connect(url(file), tls=folder / "certs") as store:
        store.create_table("flights", like={"mine": [1]}, primary_key="mine")
        assert main(["demo", "--cluster", "--quick"]) == 2
        assert "has a table 'flights', which the demo would take away" in capsys.readouterr().err
        store.drop_table("flights")

    # Whether enough is in flight to kill anybody is the machine's matter; what is told must be right anyway.
    main(["demo", "--cluster", "--quick", "--operations", "1200", "--json"])

    output, errors = capsys.readouterr()
    assert output, errors
    told = json.loads(output)
    assert (told["checked"], told["unanswered"], told["order_faults"]) == (1200, 0, 0)
    assert (told["writes_lost"], told["answers_differ"]) == (0, 0)
    assert told["replicas"] > 0
    assert "replicas differ" not in " ".join(told["failures"])
    with crescando.connect(url(file), tls=folder / "certs") as store:
        assert "flights" not in store.tables()


def test_status_tells_of_a_node_that_hangs(file: ClusterFile, capsys: pytest.CaptureFixture[str]) -> None:
    pid = running().nodes["u2"]
    os.kill(pid, signal.SIGSTOP)
    try:
        assert main(["status", "--json"]) == 1
    finally:
        os.kill(pid, signal.SIGCONT)

    told = json.loads(capsys.readouterr().out)
    faults = {node["node"]: node["fault"] for node in told["nodes"] if node["fault"]}
    assert "does not answer" in faults["u2"]
    assert not told["is_well"]


def begin(file: ClusterFile, *arguments: str) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "crescando", "up", "-f", str(file.path), "--node", *arguments]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)


def test_nodes_can_be_started_one_by_one_and_come_back_as_a_later_life(tmp_path: Path) -> None:
    file = write_cluster(tmp_path, routers=1, storages=1, supers=1)
    nodes = {node: begin(file, node, "--found") for node in ("u1", "s1", "r1")}
    try:
        for node, process in nodes.items():
            assert process.stdout is not None
            assert (
                process.stdout.readline()
                == f"{file.seat(node).process} takes part, at {file.seat(node).address}\n"
            )
        with crescando.connect(url(file), tls=tmp_path / "certs") as store:
            table = store.create_table("kept", like={"key": [1]}, primary_key="key")
            table.insert([{"key": 1}]).result(PATIENCE_S)
            nodes["u1"].send_signal(signal.SIGINT)
            assert nodes["u1"].wait(PATIENCE_S) == 0
            nodes["u1"] = begin(file, "u1")
            assert nodes["u1"].stdout is not None
            line = nodes["u1"].stdout.readline()
            assert line.startswith("super/u1#")
            assert not line.startswith("super/u1#1 ")
            assert table.select().rows() == [(1,)]
            until(
                lambda: any(process.incarnation > 1 for process in store.cluster.config().supers),
                "u1 has joined",
            )
    finally:
        for process in nodes.values():
            process.terminate()
        statuses = [process.wait(PATIENCE_S) for process in nodes.values()]
        for process in nodes.values():
            assert process.stdout is not None
            process.stdout.close()
    assert statuses == [0, 0, 0]
    assert not any(listens(seat.port) for seat in file.seats)


def test_the_first_routers_wait_for_the_last_of_them(tmp_path: Path) -> None:
    # A majority would begin without the third, and remove it before it comes.
    file = write_cluster(tmp_path, routers=3, storages=1, supers=1, more="[consensus]\nremoval_s = 1.0\n")
    nodes: dict[str, subprocess.Popen[str]] = {}
    try:
        for node in ("r1", "r2", "s1", "u1"):
            nodes[node] = begin(file, node, "--found")
        until(lambda: all(listens(file.seat(node).port) for node in nodes), "those there are listen")
        time.sleep(3.0)
        nodes["r3"] = begin(file, "r3", "--found")
        for process in nodes.values():
            assert process.stdout is not None
            assert "#1 takes part" in process.stdout.readline()
        with crescando.connect(url(file), tls=tmp_path / "certs") as store:
            assert list(map(str, store.cluster.members())) == ["router/r1#1", "router/r2#1", "router/r3#1"]
    finally:
        for process in nodes.values():
            process.terminate()
        statuses = {process.wait(PATIENCE_S) for process in nodes.values()}
        for process in nodes.values():
            assert process.stdout is not None
            process.stdout.close()
    assert statuses == {0}


def test_a_node_that_cannot_begin_says_why(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write_cluster(tmp_path, routers=1, storages=1, supers=1)

    assert main(["up", "-f", str(file.path), "--node", "r9", "--found"]) == 2
    assert "has no process 'r9' (did you mean 'r1'?); it has r1, s1, u1" in capsys.readouterr().err
    assert main(["up", "-f", str(file.path), "--found"]) == 2
    assert "--found goes with --node" in capsys.readouterr().err
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", file.seat("r1").port))
        taken.listen()
        assert main(["up", "-f", str(file.path), "--node", "r1", "--found"]) == 2
        assert f"r1 cannot listen at {file.seat('r1').address}" in capsys.readouterr().err
    for kept in (tmp_path / "certs").glob("authority*"):
        kept.unlink()
    (tmp_path / "certs" / "router-r1.pem").unlink()
    assert main(["up", "-f", str(file.path), "--node", "r1", "--found"]) == 2
    assert "run: crescando certs init" in capsys.readouterr().err
