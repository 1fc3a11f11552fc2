"""The cluster file: what it says, and every way in which it says something that cannot be."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from crescando.clusterfile import ClusterFile, read_cluster_file
from crescando.errors import SpecError
from crescando.roles.costs import CYCLE_S
from crescando.transport.addresses import parse_address
from crescando.transport.handshake import SocketLimits


def read(folder: Path, text: str) -> ClusterFile:
    path = folder / "cluster.toml"
    path.write_text(text)
    return read_cluster_file(path)


def test_an_empty_file_is_a_whole_cluster(tmp_path: Path) -> None:
    file = read(tmp_path, "")

    names = "r1 r2 r3 s1 s2 s3 s4 u1 u2 u3"
    assert [seat.node for seat in file.seats] == names.split()
    assert [seat.port for seat in file.seats] == [7401, 7402, 7403, 7421, 7422, 7423, 7424, 7461, 7462, 7463]
    assert (file.name, file.spec.replication, file.certificates, file.restart) == (
        "crescando",
        3,
        Path("certs"),
        True,
    )
    assert all(seat.is_founding for seat in file.seats)


def test_the_example_says_what_is_the_default_anyway(tmp_path: Path) -> None:
    example = read_cluster_file(Path(__file__).parents[2] / "docs" / "examples" / "cluster.toml")

    assert replace(example, path=Path()) == replace(read(tmp_path, ""), path=Path())


def test_every_part_can_be_set(tmp_path: Path) -> None:
    file = read(
        tmp_path,
        """
        [cluster]
        name = "flights"
        replication = 2
        engine = "kv"
        certificates = "/etc/crescando"
        restart = false
        listen = "0.0.0.0"
        [routers]
        count = 1
        standby = 1
        [storages]
        count = 2
        standby = 1
        host = "10.0.0.7"
        port = 9000
        scan_threads = 2
        [supers]
        count = 1
        [addresses]
        s2 = "10.0.0.8:9000"
        [supervision]
        suspicion_s = 2
        [healing]
        action = "replace"
        [consensus]
        election_s = 0.5
        [storage]
        memory_bytes = 1_000_000_000
        [network]
        sessions_of_certificate_max = 8
        idle_s = 20
        """,
    )

    places = {seat.node: (seat.address, seat.is_founding) for seat in file.seats}
    assert places == {
        "r1": ("127.0.0.1:7401", True),
        "r2": ("127.0.0.1:7402", True),
        "s1": ("10.0.0.7:9000", True),
        "s2": ("10.0.0.8:9000", True),
        "s3": ("10.0.0.7:9002", False),
        "u1": ("127.0.0.1:7461", True),
    } | {"r2": ("127.0.0.1:7402", False)}
    spec = file.spec
    assert (file.name, file.certificates, file.restart, file.listen) == (
        "flights",
        Path("/etc/crescando"),
        False,
        "0.0.0.0",
    )
    assert (spec.routers, spec.standby_routers, spec.storages, spec.supers, spec.replication) == (
        1,
        1,
        2,
        1,
        2,
    )
    assert (spec.engine, spec.scan_threads) == ("kv", 2)
    assert (spec.super_.suspicion_s, spec.paxos.election_s, spec.healing.action) == (2, 0.5, "replace")
    assert (spec.storage.memory_bytes, spec.storage.cycle_s) == (1_000_000_000, CYCLE_S)
    assert (file.network.sessions_of_certificate_max, file.network.idle_s) == (8, 20)
    assert file.network.client_sessions_max == SocketLimits().client_sessions_max


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[cluster", "no TOML"),
        ("[clusters]", r"\[clusters\] \(did you mean 'cluster'"),
        ("cluster = 3", r"write \[cluster\]"),
        ("[cluster]\nreplicas = 3", r"'replicas' \(did you mean 'replication'"),
        ("[routers]\nscan_threads = 3", r"\[routers\] has no key 'scan_threads'"),
        ("[supervision]\nsuspicion = 3", "did you mean 'suspicion_s'"),
        ('[storages]\ncount = "4"', "storages.count must be a whole number, not '4'"),
        ("[storages]\ncount = true", "storages.count must be a whole number, not True"),
        ("[storages]\ncount = 4.0", "storages.count must be a whole number"),
        ("[storages]\ncount = 1_000_000_000", "storages.count must be at most 10,000"),
        ("[routers]\nstandby = 1_000_000_000", "routers.standby must be at most 10,000"),
        ("[supervision]\nsuspicion_s = inf", "supervision.suspicion_s must be a finite number"),
        ("[cluster]\nrestart = 1", "cluster.restart must be true or false"),
        ("[cluster]\nname = 'a/b'", "cluster.name must be of letters"),
        ("[cluster]\nreplication = 5", "replication 5 needs as many storage processes"),
        ("[cluster]\nengine = 'disk'", "engine must be one of"),
        ("[supers]\nstandby = -1", "supers.standby must be at least 0"),
        ("[healing]\naction = 'heal'", "healing.action must be one of replace, shrink, wait"),
        ("[supervision]\nping_s = 0", "supervision.ping_s must be greater than 0"),
        ("[supervision]\nping_s = 2", "supervision.suspicion_s must be at least twice supervision.ping_s"),
        ("[storage]\nmemory_watermark = 80", "storage.memory_watermark is a share of memory_bytes"),
        ("[client]\nsnapshot_bytes = 0", "client.snapshot_bytes must be greater than 0"),
        ("[consensus]\nelection_s = 0.1", "consensus.election_s must be at least three heartbeats"),
        ("[ordering]\nmax_lag_s = 0.1", "ordering.max_lag_s must exceed consensus.election_s"),
        ("[routers]\ncount = 0", "routers.count must be at least 1"),
        ("[routers]\nstandby = -1", "routers.standby must be at least 0"),
        ("[storages]\nscan_threads = 0", "storages.scan_threads must be at least 1"),
        ("[storages]\nscan_threads = 1_000_000", "storages.scan_threads must be at most 10,000"),
        ("[network]\nclient_session_max = 9", "did you mean 'client_sessions_max'"),
        ("[network]\nclient_bytes_max = 1_000_000", "network.client_bytes_max must be at least 50331648"),
        ("[network]\nclient_sessions_max = 0", "network.client_sessions_max must be greater than 0"),
        ("[addresses]\ns9 = '10.0.0.1:80'", "names 's9', which is no process"),
        ("[addresses]\ns1 = '10.0.0.1'", "s1 must be host:port"),
        ("[addresses]\ns1 = 7", "s1 must be host:port"),
        ("[addresses]\ns1 = '127.0.0.1:7401'", "r1 and s1 both listen at 127.0.0.1:7401"),
        ("[routers]\nport = 65535", "r2 must be host:port with a port of 1 to 65535"),
    ],
)
def test_what_cannot_be_is_refused_with_its_key_and_the_mend(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(SpecError, match=words) as refused:
        read(tmp_path, text)

    assert str(tmp_path / "cluster.toml") in str(refused.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere.toml cannot be read: No such file .* with -f"):
        read_cluster_file(tmp_path / "nowhere.toml")


def test_a_process_is_found_by_name_and_missed_with_the_nearest(tmp_path: Path) -> None:
    file = read(tmp_path, "")

    assert file.seat("s2") is file.seat("storage/s2")
    assert str(file.seat("s2").process) == "storage/s2#1"
    with pytest.raises(SpecError, match=r"no process 'storage-2'.*it has r1, r2"):
        file.seat("storage-2")


def test_addresses_may_be_of_the_sixth_version() -> None:
    assert parse_address("[::1]:7401") == ("::1", 7401)
    assert parse_address("host.example:1") == ("host.example", 1)
