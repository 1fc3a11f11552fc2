"""``crescando certs``: what it writes is of use to a process, and to nobody else."""

from __future__ import annotations

import datetime
import json
import stat
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from crescando.certificates import NODE_LIFETIME, Authority, check
from crescando.cli.main import main
from crescando.errors import CredentialsError
from crescando.transport.credentials import FileCredentials
from crescando.transport.tls import TlsStream
from crescando.types import ProcessId


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "certs"
    assert main(["certs", "init", "--dir", str(folder)]) == 0
    return folder


def said(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 0) -> Any:
    """Run a command; give the object it prints."""
    capsys.readouterr()
    assert main(["certs", *arguments, "--json"]) == status
    return json.loads(capsys.readouterr().out)


def meets(near: Path, far: Path) -> bool:
    """Say whether two nodes accept each other, as client and server."""
    client = TlsStream(FileCredentials(near).tls.client, is_server=False)
    server = TlsStream(FileCredentials(far).tls.server, is_server=True)
    client.shake()
    try:
        for _ in range(4):
            server.receive(client.outgoing())
            client.receive(server.outgoing())
    except OSError:
        return False
    return client.is_ready and server.is_ready


def test_an_authority_and_its_nodes_are_readable_by_their_owner_only(folder: Path) -> None:
    main(["certs", "issue", "--dir", str(folder), "storage/s0", "router/r0"])

    files = sorted(path.name for path in folder.iterdir())
    assert files == [
        "authority.key.pem",
        "authority.pem",
        "client-admin.pem",
        "router-r0.pem",
        "storage-s0.pem",
    ]
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE((folder / name).stat().st_mode) for name in files} == {0o600}
    assert meets(folder / "storage-s0.pem", folder / "router-r0.pem")


def test_the_file_of_a_node_holds_its_own_names(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    both = folder / "host1.pem"
    said(capsys, "issue", "--dir", str(folder), "--together", str(both), "storage/s0", "router/r0")

    certificate = FileCredentials(both).certificate
    assert certificate.fault_of("crescando", ProcessId("storage", "s0", 7)) == ""
    assert certificate.fault_of("crescando", ProcessId("router", "r0")) == ""
    assert "not crescando://crescando/super/s0" in certificate.fault_of("crescando", ProcessId("super", "s0"))
    assert "another cluster" in certificate.fault_of("other", ProcessId("storage", "s0"))


def test_the_authority_is_of_the_cluster_it_was_made_for(tmp_path: Path) -> None:
    assert main(["certs", "init", "--dir", str(tmp_path / "a"), "--cluster", "flights"]) == 0

    assert Authority(tmp_path / "a").cluster == "flights"
    certificate = FileCredentials(tmp_path / "a" / "client-admin.pem").certificate
    assert {identity.cluster for identity in certificate.identities} == {"flights"}


def test_check_tells_what_is_there_and_what_is_of_no_use(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(folder)
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=20)
    authority.issue("storage/aging", begins=long_ago)
    authority.issue("storage/dead", begins=long_ago, lifetime=datetime.timedelta(days=1))
    (folder / "broken.pem").write_text("no certificate")

    told = said(capsys, "check", "--dir", str(folder), status=1)

    found = {Path(each["file"]).name: each for each in told["files"]}
    assert found["client-admin.pem"]["fault"] == ""
    assert not found["client-admin.pem"]["is_due"]
    assert found["storage-aging.pem"]["is_due"]
    assert found["storage-aging.pem"]["fault"] == ""
    assert "has expired" in found["storage-dead.pem"]["fault"]
    assert "crescando certs rotate" in found["storage-dead.pem"]["fault"]
    assert "holds no certificate" in found["broken.pem"]["fault"]


def test_good_files_end_with_0_and_a_line_each(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    capsys.readouterr()

    assert main(["certs", "check", "--dir", str(folder)]) == 0
    assert "client-admin.pem: client/admin, admin/admin, until " in capsys.readouterr().out


def test_rotate_renews_what_is_past_half_its_life(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    authority = Authority(folder)
    long_ago = datetime.datetime.now(datetime.UTC) - datetime.timedelta(days=20)
    aging = authority.issue("storage/s0", "super/u0", begins=long_ago)
    before = check(aging), check(folder / "client-admin.pem")

    assert said(capsys, "rotate", "--dir", str(folder)) == {"renewed": [str(aging)]}

    after = check(aging), check(folder / "client-admin.pem")
    assert after[0].names == ("storage/s0", "super/u0")
    assert after[0].serial != before[0].serial
    assert not after[0].is_due
    assert after[0].expires is not None
    assert after[0].begins is not None
    assert abs(after[0].expires - after[0].begins - NODE_LIFETIME) < datetime.timedelta(hours=1)
    assert after[1] == before[1]
    assert said(capsys, "rotate", "--dir", str(folder)) == {"renewed": []}
    assert len(said(capsys, "rotate", "--dir", str(folder), "--all")["renewed"]) == 2


class Killed(BaseException):
    """The process is gone: nothing more of it happens."""


class Killer:
    """Kills a process before one of its changes of a folder, and lets it change nothing any more."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.n_changes = 0
        self.dies_before = 0
        for name in ("replace", "unlink"):
            self._wrap(patch, name, getattr(Path, name))

    def _wrap(self, patch: pytest.MonkeyPatch, name: str, change: Any) -> None:
        def changed(path: Path, *args: Any, **kwargs: Any) -> Any:
            self.n_changes += 1
            if 0 < self.dies_before <= self.n_changes:
                raise Killed
            return change(path, *args, **kwargs)

        patch.setattr(Path, name, changed)

    def runs(self, call: Any, dies_before: int) -> bool:
        """Make a call; say whether it came to its end."""
        self.n_changes, self.dies_before = 0, dies_before
        try:
            call()
        except Killed:
            return False
        finally:
            self.dies_before = 0
        return True


def test_a_change_of_authority_that_is_interrupted_anywhere_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Killed before every change of a file in turn: the nodes' files are of use, and the step is finished."""
    killer = Killer(monkeypatch)
    n_killed = 0
    for n_steps, step in enumerate(("announced", "replaced", "finished")):
        for place in range(1, 100):
            folder = tmp_path / f"{step}-{place}"
            authority = Authority.create(folder)
            authority.issue("storage/s0")
            authority.issue("storage/s1")
            for _ in range(n_steps):
                authority.rotate_authority()
            kept = folder / "elsewhere" / "of-the-step-before.pem"
            kept.parent.mkdir()
            kept.write_bytes((folder / "storage-s0.pem").read_bytes())
            kept.chmod(0o600)
            if killer.runs(authority.rotate_authority, place):
                break
            n_killed += 1
            # Some nodes have their files from before, some from now, and one comes only now.
            newcomer = Authority(folder).issue("router/r0")
            nodes = [kept, newcomer, folder / "storage-s0.pem", folder / "storage-s1.pem"]
            assert all(meets(near, far) for near in nodes for far in nodes), (step, place)
            assert said(capsys, "rotate", "--dir", str(folder), "--authority") == {"step": step}
            assert all(meets(near, far) for near in nodes for far in nodes), (step, place)
            rest = [authority.rotate_authority() for authority in [Authority(folder)] * (2 - n_steps)]
            assert rest == ["replaced", "finished"][n_steps:]
            assert sorted(path.name for path in folder.glob("*.*") if not path.name.startswith(".")) == [
                "authority.key.pem",
                "authority.pem",
                "router-r0.pem",
                "storage-s0.pem",
                "storage-s1.pem",
            ]
    assert n_killed > 12


def test_a_change_of_authority_that_an_older_version_left_half_done_goes_on(folder: Path) -> None:
    authority = Authority(folder)
    authority.rotate_authority()
    (folder / "former-authority.pem").write_bytes((folder / "authority.pem").read_bytes())
    (folder / "next-authority.key.pem").replace(folder / "authority.key.pem")

    newcomer = Authority(folder).issue("storage/s0")

    assert meets(newcomer, folder / "client-admin.pem")
    assert meets(folder / "client-admin.pem", newcomer)
    # The nodes' files were not issued anew: that is to come first.
    assert Authority(folder).rotate_authority() == "replaced"
    assert Authority(folder).rotate_authority() == "finished"


def test_a_step_that_is_none_is_told_of(folder: Path) -> None:
    (folder / "rotation.txt").write_text("halfway")

    with pytest.raises(CredentialsError, match=r"rotation\.txt: 'halfway' is no step"):
        Authority(folder)


def test_nodes_meet_throughout_a_change_of_authority(
    folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = Authority(folder)
    node = authority.issue("storage/s0")
    first = authority.folder.joinpath("authority.pem").read_bytes()
    kept = tmp_path / "of-the-step-before.pem"

    def keep() -> None:
        kept.write_bytes(node.read_bytes())
        kept.chmod(0o600)

    for step in ("announced", "replaced", "finished"):
        keep()
        assert said(capsys, "rotate", "--dir", str(folder), "--authority") == {"step": step}
        # One node has its new file, the other one has not yet.
        assert meets(kept, folder / "client-admin.pem"), step
        assert meets(folder / "client-admin.pem", kept), step

    assert authority.folder.joinpath("authority.pem").read_bytes() != first
    assert first not in node.read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == [
        "authority.key.pem",
        "authority.pem",
        "client-admin.pem",
        "storage-s0.pem",
    ]


def test_a_file_is_made_anew_only_if_there_is_a_reason(folder: Path) -> None:
    authority = Authority(folder)
    path = authority.ensure("router/r0")
    serial = check(path).serial

    assert check(authority.ensure("router/r0")).serial == serial
    assert check(authority.ensure("router/r0", "storage/s0")).serial != serial
    path.chmod(0o644)
    assert check(authority.ensure("router/r0")).fault == ""


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["init"], "there is an authority already"),
        (["init", "--cluster", "a/b", "--dir", "elsewhere"], "a cluster's name is of letters"),
        (["issue", "storage"], "role/node"),
        (["issue", "storage/"], "role/node"),
        (["issue", "king/s0"], "a role of router, storage, super, client"),
        (["issue", "storage/../x"], "role/node"),
        (["issue", "storage/s0\n"], "role/node"),
        (["issue", "storage/s0", "--days", "0"], "at least a little"),
        (["issue", "storage/s0", "--days", "nan"], "at least a little"),
        (["issue", "storage/s0", "--together", "nowhere/at/all.pem"], "cannot be written"),
        (["issue", "storage/s0", "--dir", "empty"], "crescando certs init"),
        (["rotate", "--dir", "empty"], "crescando certs init"),
        (["check", "--dir", "empty"], "crescando certs issue"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_mend(
    folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    text: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()

    assert main(["certs", *arguments]) == 2

    told = capsys.readouterr().err
    assert text in told
    assert told.count("\n") <= 2
    assert not (tmp_path / "elsewhere").exists()


def test_the_authoritys_own_files_are_not_overwritten(folder: Path) -> None:
    before = folder.joinpath("authority.key.pem").read_bytes()

    with pytest.raises(CredentialsError, match="the authority's own file"):
        Authority(folder).issue("storage/s0", path=folder / "authority.key.pem")
    assert folder.joinpath("authority.key.pem").read_bytes() == before


def test_an_authoritys_key_that_others_may_read_is_not_used(folder: Path) -> None:
    (folder / "authority.key.pem").chmod(0o640)

    with pytest.raises(CredentialsError, match="chmod 600"):
        Authority(folder)


def test_no_certificate_outlives_its_authority(tmp_path: Path) -> None:
    authority = Authority.create(tmp_path / "c", lifetime=datetime.timedelta(days=3))

    node, own = check(authority.issue("storage/s0")), check(tmp_path / "c" / "authority.pem")

    assert node.expires is not None
    assert own.expires is not None
    assert node.expires <= own.expires


def test_a_file_gives_the_right_to_administer_if_it_is_told_to(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def faults(name: str) -> str:
        certificate = FileCredentials(folder / f"client-{name}.pem").certificate
        return certificate.right_fault_of("crescando", ProcessId("client", name))

    said(capsys, "issue", "--dir", str(folder), "client/app")
    said(capsys, "issue", "--dir", str(folder), "--admin", "client/ops", "client/boss")

    assert faults("admin") == faults("ops") == faults("boss") == ""
    assert faults("app").endswith("crescando certs issue --admin client/app")
    said(capsys, "rotate", "--dir", str(folder), "--all")
    assert faults("ops") == ""
    assert "no right" in faults("app")
    capsys.readouterr()
    assert main(["certs", "issue", "--dir", str(folder), "--admin", "storage/s0"]) == 2
    assert "'storage/s0': only a client is given the right to administer" in capsys.readouterr().err
    assert not (folder / "storage-s0.pem").exists()


def test_threads_that_want_the_same_file_at_once_get_it(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that all of them write at the same time.
    monkeypatch.setattr("crescando.certificates.os.fsync", lambda _: time.sleep(0.02))
    authority = Authority(folder)
    with ThreadPoolExecutor(8) as threads:
        paths = set(threads.map(lambda _: authority.issue("client/app"), range(24)))

    assert paths == {folder / "client-app.pem"}
    assert check(folder / "client-app.pem").fault == ""
    assert [path.name for path in folder.iterdir() if path.name.startswith(".")] == []
