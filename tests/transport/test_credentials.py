"""Files of no use are refused with their fault and its mend; contexts are what they must be."""

from __future__ import annotations

import os
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from crescando.errors import CredentialsError
from crescando.transport.credentials import FileCredentials, Tls, check_context
from crescando.transport.identity import identity_of
from tests.transport.forgery import DAY, Forger, Forgery, pem_of

CERTIFICATE = "-----BEGIN CERTIFICATE-----"


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(tmp_path_factory.mktemp("credentials") / "certs")


@pytest.fixture
def path(forger: Forger) -> Path:
    return forger.authority.issue("storage/s0")


def without_key(path: Path, _: Forger) -> None:
    path.write_text(CERTIFICATE + path.read_text().partition(CERTIFICATE)[2])


def with_another_key(path: Path, forger: Forger) -> None:
    path.write_bytes(
        pem_of(forger.key) + path.read_text().partition("-----END PRIVATE KEY-----\n")[2].encode()
    )


def without_authority(path: Path, _: Forger) -> None:
    path.write_text(CERTIFICATE.join(path.read_text().split(CERTIFICATE)[:2]))


def with_another_authority(path: Path, forger: Forger) -> None:
    without_authority(path, forger)
    stranger = Forger(path.parent / f"other{os.urandom(4).hex()}")
    path.write_bytes(path.read_bytes() + stranger.trusted)


def broken(path: Path, _: Forger) -> None:
    path.write_bytes(path.read_bytes()[:300])


def forged(forgery: Forgery) -> Callable[[Path, Forger], None]:
    def forge(path: Path, forger: Forger) -> None:
        path.write_bytes(forger.make(forgery).read_bytes() + forger.trusted)

    return forge


@pytest.mark.parametrize(
    ("spoil", "told"),
    [
        (lambda path, _: path.unlink(), "cannot be read: No such file"),
        (lambda path, _: path.chmod(0o640), r"others may read the key in it \(mode 0640\); run: chmod 600"),
        (lambda path, _: path.chmod(0o604), "chmod 600"),
        (lambda path, _: path.write_bytes(b""), "must hold a key, its certificate and the authorities"),
        (broken, "must hold a key, its certificate and the authorities"),
        (without_key, "must hold a key, its certificate and the authorities"),
        (with_another_key, "KEY_VALUES_MISMATCH"),
        (without_authority, "trust some authority"),
        (with_another_authority, "not among the authorities"),
        (forged(Forgery(ends=-DAY / 2)), "has expired; renew it with `crescando certs rotate`"),
        (forged(Forgery(begins=DAY / 2)), "not valid yet; compare the clocks"),
        (forged(Forgery(uris=[])), "names no process"),
        (forged(Forgery(uris=["crescando://crescando/client/*"])), "names no process"),
        (forged(Forgery(uses=Forgery().uses[:1])), "may not be used for this side"),
        (forged(Forgery(uses=Forgery().uses[1:])), "may not be used for this side"),
    ],
)
def test_a_file_of_no_use_is_refused_with_its_mend(
    spoil: Callable[[Path, Forger], None], told: str, path: Path, forger: Forger
) -> None:
    spoil(path, forger)

    with pytest.raises(CredentialsError, match=told) as refused:
        FileCredentials(path)

    assert refused.value.file
    assert "PRIVATE KEY" not in str(refused.value)


@pytest.mark.parametrize("what", ["authorities", "revoked", "denied"])
@pytest.mark.parametrize("content", [None, b"\xff\xfe nothing"])
def test_a_list_of_no_use_is_refused(what: str, content: bytes | None, path: Path, tmp_path: Path) -> None:
    given = tmp_path / "list"
    if content is not None:
        given.write_bytes(content)

    with pytest.raises(CredentialsError, match="read"):
        FileCredentials(path, **{what: given})


def test_whoever_is_revoked_or_has_no_list_does_not_start(forger: Forger, path: Path) -> None:
    with pytest.raises(CredentialsError, match="revocation list has expired"):
        FileCredentials(path, revoked=forger.revoke(7, ends=-DAY))
    with pytest.raises(CredentialsError, match="is revoked"):
        FileCredentials(path, revoked=forger.revoke(int(FileCredentials(path).certificate.serial, 16)))
    FileCredentials(path, revoked=forger.revoke(7))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_key_of_another_users_is_refused(path: Path) -> None:
    os.chown(path, 4711, -1)

    with pytest.raises(CredentialsError, match="another user"):
        FileCredentials(path)


SPOILT: dict[str, Callable[[ssl.SSLContext], object]] = {
    "TLS 1.3 and nothing older": lambda context: setattr(context, "minimum_version", ssl.TLSVersion.TLSv1_2),
    "TLS 1.3 and": lambda context: setattr(context, "maximum_version", ssl.TLSVersion.TLSv1_2),
    "certificate of the peer": lambda context: setattr(context, "verify_mode", ssl.CERT_OPTIONAL),
    "resume": lambda context: setattr(context, "options", context.options & ~ssl.OP_NO_TICKET),
    "keys to a log": lambda context: setattr(context, "keylog_filename", os.devnull),
}


@pytest.mark.parametrize("demand", SPOILT)
@pytest.mark.parametrize("side", ["server", "client"])
def test_a_context_that_allows_too_much_is_noticed(demand: str, side: str, path: Path) -> None:
    context: ssl.SSLContext = getattr(FileCredentials(path).tls, side)
    check_context(context)

    SPOILT[demand](context)

    with pytest.raises(CredentialsError, match=demand):
        check_context(context)


def test_a_variable_of_the_environment_makes_nobody_log_keys(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SSLKEYLOGFILE", str(tmp_path / "keys"))

    tls: Tls = FileCredentials(path).tls

    assert tls.server.keylog_filename is None
    assert not (tmp_path / "keys").exists()


def test_a_file_that_did_not_change_is_not_read_again(path: Path) -> None:
    credentials = FileCredentials(path)
    before = credentials.tls

    assert not credentials.refresh()
    assert credentials.tls is before


@pytest.mark.parametrize(
    "uri",
    [
        "",
        "crescando://",
        "crescando://a/b",
        "crescando://a/b/",
        "crescando://a//c",
        "crescando:///b/c",
        "crescando://a/b/c/d",
        "crescando://a/b/c?d",
        "crescando://a/b/c#d",
        "crescando://a:1/b/c",
        "crescando://a/b/.c",
        "crescando://a/b/c d",
        "crescando://a/b/c\n",
        "crescando://a/b/c\0",
        "crescando://a/b/é",
        "crescando://a/b/" + "c" * 64,
        "CRESCANDO://a/b/c",
        "https://a/b/c",
        " crescando://a/b/c",
    ],
)
def test_what_is_no_name_names_nobody(uri: str) -> None:
    assert identity_of(uri) is None


@pytest.mark.parametrize("uri", ["crescando://a/b/c", "crescando://A-1/storage/s0.eu_1"])
def test_a_name_is_given_back_as_it_was(uri: str) -> None:
    assert str(identity_of(uri)) == uri
