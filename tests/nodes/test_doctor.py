"""The doctor: every finding with its grade, and with what mends it."""

from __future__ import annotations

import datetime
import resource
import socket
from pathlib import Path

import pytest

from crescando.certificates import Authority
from crescando.clusterfile import ClusterFile, read_cluster_file
from crescando.nodes import doctor, health
from crescando.nodes.asking import Heard
from crescando.nodes.doctor import Finding, examine
from crescando.nodes.looks import VERSION
from crescando.roles.description import Described, Hosts
from tests.nodes.clusters import write_cluster


def found(file: ClusterFile, what: str) -> list[Finding]:
    return [finding for finding in examine(file, client="admin") if finding.what == what]


def texts(findings: list[Finding]) -> str:
    return "\n".join(map(str, findings))


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> ClusterFile:
    return write_cluster(tmp_path_factory.mktemp("doctor"), storages=3)


def test_a_good_cluster_has_no_fault(file: ClusterFile) -> None:
    assert [finding for finding in examine(file, client="admin") if finding.grade == "fault"] == []
    assert "9 of 9 ports are free" in texts(found(file, "ports"))


def test_a_taken_port_is_named(file: ClusterFile) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", file.seat("s2").port))
        taken.listen()
        (fault, rest) = found(file, "ports")
    assert fault.grade == "fault"
    assert f"s2 cannot listen at {file.seat('s2').address}" in fault.text
    assert "choose another address" in fault.mend
    assert "8 of 9" in rest.text


def test_shapes_that_survive_nothing_are_warned_of(tmp_path: Path) -> None:
    path = tmp_path / "cluster.toml"
    path.write_text(
        "[cluster]\nreplication = 1\ncertificates = 'nowhere'\n[routers]\ncount = 4\n[supers]\ncount = 1\n"
    )
    file = read_cluster_file(path)

    told = texts(found(file, "cluster"))
    assert "4 routers tolerate no more failures than 3" in told
    assert "with 1 supers no failure of one is survived" in told
    assert "each row is kept once" in told
    (fault,) = found(file, "certificates")
    assert (fault.grade, fault.mend) == ("fault", "run: crescando certs init --dir nowhere")


def test_certificates_that_are_of_no_use_are_told_with_the_command_that_mends_them(tmp_path: Path) -> None:
    file = write_cluster(tmp_path, routers=1, storages=1, supers=1)
    authority = Authority(file.certificates)
    authority.issue("router/r1")
    authority.issue("storage/s1", "node/s1", lifetime=datetime.timedelta(hours=5))
    authority.issue("super/u1", "node/u1").chmod(0o644)

    told = texts(found(file, "certificates"))
    assert "names router/r1\n" in told
    assert f"--together {file.certificates / 'router-r1.pem'} router/r1 node/r1" in told
    assert "storage-s1.pem expires at" in told
    assert "crescando certs rotate" in told
    assert "chmod 600" in told

    for kept in file.certificates.glob("authority*"):
        kept.unlink()
    (file.certificates / "router-r1.pem").unlink()
    (file.certificates / "client-admin.pem").unlink()
    assert "router-r1.pem is missing" in texts(found(file, "certificates"))
    assert "they cannot be asked" in texts(found(file, "nodes"))


def test_few_files_and_an_old_java_are_warned_of(
    file: ClusterFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 512))
    (finding,) = found(file, "file limit")
    assert finding.grade == "warning"
    assert "the hard limit is 512" in finding.mend

    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert "there is no" in texts(found(file, "Java"))
    for version, grade in (("1.8.0_392", "warning"), ("11.0.2", "warning"), ("21.0.1", "good")):
        java.write_text(f"#!/bin/sh\necho 'openjdk version \"{version}\"' >&2\n")
        java.chmod(0o755)
        assert [finding.grade for finding in found(file, "Java")] == [grade]
    java.write_text("#!/bin/sh\necho hello\n")
    assert "does not say its version" in texts(found(file, "Java"))


def test_nodes_of_other_versions_and_with_other_clocks_are_named(
    file: ClusterFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    def described(version: str, ahead_s: float) -> Described:
        now_s = datetime.datetime.now().timestamp() + ahead_s
        process = file.seat("s1").process
        host = Hosts(process, True, True, "", process, 1, {})
        return Described(version, 1, now_s, (host,), (), b"", ())

    now_s = datetime.datetime.now().timestamp()

    def heard(version: str, ahead_s: float, ago_s: float = 0.0) -> Heard:
        return Heard(described(version, ahead_s - ago_s), now_s - ago_s, now_s - ago_s + 0.1)

    told: dict[str, Heard | str] = {seat.node: heard(VERSION, 0.0) for seat in file.seats}
    told |= {"s1": heard("0.0.1", 0.0), "s2": heard(VERSION, -60.0), "s3": "nobody there"}
    # While another one was waited for, some seconds have passed.
    told["r1"] = heard(VERSION, 4.0, ago_s=6.0)
    monkeypatch.setattr(health, "describe_all", lambda *_: told)

    assert "s1 runs crescando 0.0.1" in texts(found(file, "versions"))
    assert "the clock of s2 is 60" in texts(found(file, "clocks"))
    assert "the clock of r1 is 3.9 s ahead" in texts(found(file, "clocks"))
    assert "behind" in texts(found(file, "clocks"))
    assert "s3 at " in texts(found(file, "nodes"))
    assert doctor.CLOCK_S < 60.0


def test_every_node_that_is_not_well_is_told_with_what_mends_it(
    file: ClusterFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = datetime.datetime.now().timestamp()

    def heard(*hosts: Hosts) -> Heard:
        return Heard(Described(VERSION, 1, now_s, hosts, (), b"", ()), now_s, now_s)

    def host(node: str, *, runs: bool, ready: bool) -> Hosts:
        return Hosts(file.seat(node).process, runs, ready, "expelled", None, 1, {})

    told: dict[str, Heard | str] = {
        seat.node: heard(host(seat.node, runs=True, ready=True)) for seat in file.seats
    }
    told |= {
        "s1": "Connection refused",
        "s2": heard(),
        "s3": heard(host("s3", runs=False, ready=False)),
        "r1": heard(host("r1", runs=True, ready=False)),
    }
    monkeypatch.setattr(health, "describe_all", lambda *_: told)

    faults = {finding.text.split()[0]: finding.mend for finding in found(file, "nodes")}
    assert sorted(faults) == ["r1", "s1", "s2", "s3"]
    assert f"crescando up -f {file.path} --node s1" in faults["s1"]
    assert "start them" in faults["s2"]
    assert "later life" in faults["s3"]
    assert "majority of the routers" in faults["r1"]


def test_what_lies_on_other_hosts_is_no_fault_of_this_one(tmp_path: Path) -> None:
    # Of TEST-NET-1: nobody's address.
    file = write_cluster(tmp_path, routers=1, storages=1, supers=1)
    file.path.write_text(file.path.read_text().replace(file.seat("s1").address, "192.0.2.7:7421"))
    file = read_cluster_file(file.path)
    authority = Authority(file.certificates)
    for name in ("router/r1", "super/u1"):
        authority.issue(name, f"node/{name.partition('/')[2]}")
    for kept in file.certificates.glob("authority*"):
        kept.unlink()

    findings = examine(file, client="admin")

    assert [finding for finding in findings if finding.grade == "fault"] == []
    assert "the files of s1 are not here" in texts(list(findings))
    assert "2 of 2 ports are free here" in texts(list(findings))
