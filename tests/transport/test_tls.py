"""TLS apart from sockets: any cut gives the same plain bytes, and what was not sealed is refused."""

from __future__ import annotations

import random
import ssl
from collections.abc import Iterator
from pathlib import Path

import pytest

from crescando.transport.credentials import FileCredentials, Tls
from crescando.transport.identity import certificate_of
from crescando.transport.tls import RECORD_BYTES, TlsStream
from tests.transport.witness import A, B, C

pytest.importorskip("cryptography")

from crescando.certificates import Authority


@pytest.fixture(scope="module")
def tls(tmp_path_factory: pytest.TempPathFactory) -> Tls:
    return contexts(tmp_path_factory.mktemp("tls"))


def contexts(folder: Path) -> Tls:
    return FileCredentials(Authority.create(folder).issue(f"{A.role}/{A.node}")).tls


def shaken(tls: Tls) -> tuple[TlsStream, TlsStream]:
    """Give the two sides of a session, the one that dialled first."""
    client, server = TlsStream(tls.client, is_server=False), TlsStream(tls.server, is_server=True)
    client.shake()
    for _ in range(4):
        server.receive(client.outgoing())
        client.receive(server.outgoing())
    assert client.is_ready
    assert server.is_ready
    return client, server


def pieces_of(data: bytes, rng: random.Random) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        n = rng.choice([1, 5, 100, 5000, 70_000])
        yield data[at : at + n]
        at += n


def test_both_sides_know_whose_certificate_the_other_shows(tls: Tls) -> None:
    for side in shaken(tls):
        certificate = certificate_of(side.ssl_object)
        assert certificate is not None
        assert certificate.fault_of("crescando", A) == ""
        assert "another cluster" in certificate.fault_of("other", A)
        assert "not crescando://crescando/client/b" in certificate.fault_of("crescando", B)
        assert "not crescando://crescando/client/c" in certificate.fault_of("crescando", C)


@pytest.mark.parametrize(
    "n_bytes", [1, RECORD_BYTES - 1, RECORD_BYTES, RECORD_BYTES + 1, 5 * RECORD_BYTES + 7]
)
def test_what_is_sealed_comes_out_whole(tls: Tls, n_bytes: int) -> None:
    client, server = shaken(tls)
    data = random.Random(n_bytes).randbytes(n_bytes)

    assert server.receive(client.seal(data)) == data
    assert client.receive(server.seal(data)) == data
    assert not server.outgoing()


@pytest.mark.parametrize("seed", range(10))
def test_any_cut_gives_the_same_bytes(tls: Tls, seed: int) -> None:
    rng = random.Random(seed)
    client, server = shaken(tls)
    sent = [rng.randbytes(rng.choice([1, 300, 40_000])) for _ in range(20)]
    sealed = b"".join(map(client.seal, sent))

    assert b"".join(map(server.receive, pieces_of(sealed, rng))) == b"".join(sent), seed


def test_a_handshake_may_come_byte_by_byte(tls: Tls) -> None:
    client, server = TlsStream(tls.client, is_server=False), TlsStream(tls.server, is_server=True)
    client.shake()
    for _ in range(4):
        for byte in client.outgoing():
            server.receive(bytes([byte]))
        for byte in server.outgoing():
            client.receive(bytes([byte]))

    assert server.receive(client.seal(b"x")) == b"x"


def test_what_comes_with_the_last_of_the_handshake_is_not_lost(tls: Tls) -> None:
    client, server = TlsStream(tls.client, is_server=False), TlsStream(tls.server, is_server=True)
    client.shake()
    server.receive(client.outgoing())
    client.receive(server.outgoing())

    assert server.receive(client.outgoing() + client.seal(b"at once")) == b"at once"
    assert server.is_ready


def test_the_end_comes_behind_what_was_sent(tls: Tls) -> None:
    client, server = shaken(tls)

    assert server.receive(client.seal(b"last words") + client.end()) == b"last words"
    assert server.is_over
    assert not client.is_over


def test_ending_what_has_not_begun_is_harmless(tls: Tls) -> None:
    assert TlsStream(tls.server, is_server=True).end() == b""


@pytest.mark.parametrize("said", [b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\x00\x05hello"])
def test_what_is_no_handshake_is_refused(tls: Tls, said: bytes) -> None:
    with pytest.raises(ssl.SSLError):
        TlsStream(tls.server, is_server=True).receive(said)


def test_a_changed_byte_is_noticed(tls: Tls) -> None:
    client, server = shaken(tls)
    sealed = bytearray(client.seal(b"x" * 100))
    sealed[50] ^= 1

    with pytest.raises(ssl.SSLError):
        server.receive(bytes(sealed))


def test_a_stranger_is_refused_and_told(tls: Tls, tmp_path: Path) -> None:
    stranger = TlsStream(contexts(tmp_path).client, is_server=False)
    server = TlsStream(tls.server, is_server=True)
    stranger.shake()
    server.receive(stranger.outgoing())

    with pytest.raises(ssl.SSLError, match="CERTIFICATE_VERIFY_FAILED"):
        stranger.receive(server.outgoing())
    with pytest.raises(ssl.SSLError, match="ALERT"):
        server.receive(stranger.outgoing())


def test_without_a_certificate_there_is_no_session(tls: Tls) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    nobody = TlsStream(context, is_server=False)
    server = TlsStream(tls.server, is_server=True)
    nobody.shake()
    server.receive(nobody.outgoing())
    nobody.receive(server.outgoing())

    with pytest.raises(ssl.SSLError):
        server.receive(nobody.outgoing())
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        nobody.receive(server.outgoing())
