"""Peers that are not who they say: refused by the right side, and told why, with its mend (K23, K24, K26)."""

from __future__ import annotations

import asyncio
import datetime
import errno
import logging
import socket
import ssl
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("cryptography")

from cryptography.x509.oid import ExtendedKeyUsageOID

from crescando import wire
from crescando.transport import sockets, tending
from crescando.transport.audit import LINES_MAX, Audit
from crescando.transport.credentials import Credentials, FileCredentials
from crescando.transport.framing import FrameKind
from crescando.transport.handshake import PROTOCOL, Address, Hello, SocketLimits, Welcome, encode_word
from crescando.transport.identity import Certificate, Identity
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId
from tests.transport.forgery import DAY, Forger, Forgery, Shown
from tests.transport.witness import Witness

A, ROUTER, STORAGE = ProcessId("client", "a", 1), ProcessId("router", "r0", 1), ProcessId("storage", "s0", 1)
OTHER = ProcessId("router", "r1", 1)
WAIT_S = 30.0
LIMITS = SocketLimits(refresh_s=0.02)


def uri(process: ProcessId, cluster: str = "crescando") -> str:
    return f"crescando://{cluster}/{process.role}/{process.node}"


def claims(process: ProcessId, cluster: str = "crescando") -> Identity:
    return Identity(cluster, process.role, process.node)


class Site:
    """One operating-system process's transport, and one process of it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        process: ProcessId,
        credentials: Credentials | None,
        cluster: str = "crescando",
        limits: SocketLimits = LIMITS,
    ) -> None:
        self.loop = loop
        self.address: Address | None = None
        self.transport = SocketTransport(
            loop,
            codec=(wire.encode, wire.decoder_for),
            locate=lambda peer: self.address,
            cluster=cluster,
            limits=limits,
            credentials=credentials,
        )
        self.witness = Witness(self, process)  # type: ignore[arg-type]
        self.process = process

    def listen(self) -> Address:
        return self.loop.run_until_complete(self.transport.listen(("127.0.0.1", 0)))

    def dial(self, peer: ProcessId) -> None:
        """Ask for a session; returns with the answer."""
        told = len(self.witness.log)
        self.transport.connect(self.process, peer)
        until(self.loop, lambda: len(self.witness.log) > told)


def until(loop: asyncio.AbstractEventLoop, is_so: Callable[[], bool]) -> None:
    async def wait() -> None:
        async with asyncio.timeout(WAIT_S):
            while not is_so():
                await asyncio.sleep(0.001)

    loop.run_until_complete(wait())


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(tmp_path_factory.mktemp("forger") / "certs")


@dataclass(frozen=True)
class Case:
    """A peer that is refused.

    Attributes
    ----------
    forgery : Forgery or None
        What it shows; None for no certificate.
    told : str
        What the one that is refused learns.
    logged : str
        What the one that refuses writes down; by default the same.
    process : ProcessId
        Whom it claims to be.
    """

    forgery: Forgery | None
    told: str
    logged: str = ""
    process: ProcessId = A


SERVER, CLIENT = ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH
NO_NAME = "names no process; it must name|another cluster|which is no process|names no process"

DIALLERS = {
    "expired": Case(Forgery(ends=-DAY / 2), "expired; renew it", "has expired; renew it"),
    "not yet valid": Case(
        Forgery(begins=DAY / 2), "compare the clocks of the two hosts", "not valid yet; compare the clocks"
    ),
    "of a strange authority": Case(
        Forgery(issuer="stranger"), "does not trust the authority", "not among the authorities"
    ),
    "signed by itself": Case(Forgery(issuer="itself"), "does not trust the authority", "signed by itself"),
    "of our authority's namesake": Case(
        Forgery(issuer="namesake"), "key does not belong|does not trust|not accept|invalid", "is refused"
    ),
    "signed by a node": Case(
        Forgery(issuer="node"), "does not trust|invalid|not accept", "no authority|not among the authorities"
    ),
    "none": Case(None, "this process showed none", "showed no certificate"),
    "for servers only": Case(Forgery(uses=[SERVER]), "may not be used for this side"),
    "for code only": Case(Forgery(uses=[ExtendedKeyUsageOID.CODE_SIGNING]), "may not be used for this side"),
    "without names": Case(Forgery(uris=[]), "names no process"),
    "with a common name only": Case(Forgery(uris=[], common_name="client/a"), "names no process"),
    "with a host's name only": Case(Forgery(uris=[], dns=["client.a"]), "names no process"),
    "of another scheme": Case(Forgery(uris=["spiffe://crescando/client/a"]), "names no process"),
    "of another cluster": Case(
        Forgery(uris=[uri(A, "other")]), "of another cluster: it names crescando://other"
    ),
    "of another node": Case(
        Forgery(uris=["crescando://crescando/client/b"]), "client/b, not crescando://crescando/client/a"
    ),
    "of another role": Case(
        Forgery(uris=["crescando://crescando/storage/a"]), "storage/a, not crescando://crescando/client/a"
    ),
    "of a longer name": Case(Forgery(uris=[uri(A) + "a"]), "client/aa, not crescando://crescando/client/a"),
    "in other letters": Case(
        Forgery(uris=["crescando://crescando/client/A"]), "client/A, not crescando://crescando/client/a"
    ),
    "with a scheme in capitals": Case(
        Forgery(uris=["CRESCANDO://crescando/client/a"]), "which is no process"
    ),
    "with a pattern": Case(Forgery(uris=["crescando://crescando/client/*"]), "which is no process"),
    "with a longer path": Case(Forgery(uris=[uri(A) + "/b"]), "which is no process"),
    "with escapes": Case(Forgery(uris=["crescando://crescando/client/%61"]), "which is no process"),
    "with a user": Case(Forgery(uris=["crescando://x@crescando/client/a"]), "which is no process"),
    "with a query": Case(Forgery(uris=[uri(A) + "?node=a"]), "which is no process"),
    "with an empty node": Case(Forgery(uris=["crescando://crescando/client/"]), "which is no process"),
    "with a good name and a bad one": Case(Forgery(uris=[uri(A), uri(A) + "/*"]), "which is no process"),
    "a client's, as a router": Case(
        Forgery(), "client/a, not crescando://crescando/router/r1", process=ProcessId("router", "r1", 1)
    ),
    "a client's, as a super": Case(
        Forgery(), "client/a, not crescando://crescando/super/u0", process=ProcessId("super", "u0", 1)
    ),
    "a storage's, as its neighbour": Case(
        Forgery(uris=["crescando://crescando/storage/s2"]),
        "storage/s2, not crescando://crescando/storage/s1",
        process=ProcessId("storage", "s1", 1),
    ),
    "a router's, as the router it dials": Case(
        Forgery(uris=["crescando://crescando/router/r1"]),
        "router/r1, not crescando://crescando/router/r0",
        process=ROUTER._replace(incarnation=2),
    ),
}


@pytest.mark.parametrize("name", DIALLERS)
def test_a_dialler_with_a_certificate_of_no_use_is_refused_by_the_other_side(
    name: str, forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    case = DIALLERS[name]
    caplog.set_level(logging.WARNING)
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    path = forger.make(case.forgery) if case.forgery is not None else None
    far = Site(loop, case.process, Shown(path, forger.trusted, claims(case.process)))
    far.address = near.listen()

    far.dial(ROUTER)
    until(loop, lambda: near.transport.audit.n_refused > 0)

    error = far.transport.error_of(ROUTER)
    assert error is not None
    assert error.is_permanent, error
    assert matches(case.told, error.reason), error.reason
    assert matches(case.logged or case.told, caplog.text), caplog.text
    assert (far.witness.log, near.witness.log) == ([("refused", ROUTER)], [])
    near.transport.close()
    far.transport.close()


def matches(pattern: str, text: str) -> bool:
    return any(part in text for part in pattern.split("|"))


ANSWERERS = {
    "expired": Case(Forgery([uri(ROUTER)], ends=-DAY / 2), "has expired; renew it"),
    "not yet valid": Case(Forgery([uri(ROUTER)], begins=DAY / 2), "not valid yet; compare the clocks"),
    "of a strange authority": Case(Forgery([uri(ROUTER)], issuer="stranger"), "not among the authorities"),
    "signed by itself": Case(Forgery([uri(ROUTER)], issuer="itself"), "signed by itself"),
    "for clients only": Case(Forgery([uri(ROUTER)], uses=[CLIENT]), "may not be used for this side"),
    "of another router": Case(
        Forgery(["crescando://crescando/router/r1"]), "router/r1, not crescando://crescando/router/r0"
    ),
    "of a storage process": Case(Forgery([uri(STORAGE)]), "storage/s0, not crescando://crescando/router/r0"),
    "of another cluster": Case(Forgery([uri(ROUTER, "other")]), "of another cluster"),
    "without names": Case(Forgery([]), "names no process"),
}


@pytest.mark.parametrize("name", ANSWERERS)
def test_an_answerer_with_a_certificate_of_no_use_is_refused_by_the_dialler(
    name: str, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    case = ANSWERERS[name]
    assert case.forgery is not None
    near = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))
    far = Site(loop, ROUTER, Shown(forger.make(case.forgery), forger.trusted, claims(ROUTER)))
    near.address = far.listen()

    near.dial(ROUTER)
    until(loop, lambda: far.transport.audit.n_refused > 0)

    error = near.transport.error_of(ROUTER)
    assert error is not None
    assert error.is_permanent, error
    assert matches(case.told, error.reason), error.reason
    assert (near.witness.log, far.witness.log) == ([("refused", ROUTER)], [])
    near.transport.close()
    far.transport.close()


GOOD = {
    "one name": Forgery(),
    "several names": Forgery(uris=["crescando://crescando/client/b", uri(A)]),
    "names of other kinds": Forgery(uris=["https://example.org/a", uri(A)], dns=["a.example.org"]),
    "any use": Forgery(uses=[]),
    "RSA": Forgery(is_rsa=True),
}


@pytest.mark.parametrize("name", GOOD)
def test_a_good_certificate_is_accepted(name: str, forger: Forger, loop: asyncio.AbstractEventLoop) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, Shown(forger.make(GOOD[name]), forger.trusted, claims(A)))
    far.address = near.listen()

    far.dial(ROUTER)
    until(loop, lambda: bool(near.witness.log))

    assert far.witness.log == [("opened", ROUTER)]
    assert near.witness.log == [("opened", A)]
    assert far.transport.error_of(ROUTER) is None
    assert near.transport.n_half_open == 0
    near.transport.close()
    far.transport.close()


def answered(loop: asyncio.AbstractEventLoop, near: Site, far: Site) -> str:
    """Let `far` dial `near`'s router; give why it was refused."""
    far.address = near.listen()
    far.dial(ROUTER)
    assert (far.witness.log, near.witness.log) == ([("refused", ROUTER)], [])
    error = far.transport.error_of(ROUTER)
    assert error is not None
    near.transport.close()
    far.transport.close()
    return f"{error.reason}; {'permanent' if error.is_permanent else 'for now'}"


def test_older_tls_is_refused(forger: Forger, loop: asyncio.AbstractEventLoop) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    path = forger.make(Forgery())
    old = Shown(path, forger.trusted, claims(A), version=ssl.TLSVersion.TLSv1_2)

    assert answered(loop, near, Site(loop, A, old)).endswith("speaks no TLS 1.3; permanent")


@pytest.mark.parametrize("protocol", ["", "http/1.1"])
def test_another_protocol_within_tls_is_refused(
    protocol: str, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    other = Shown(forger.make(Forgery()), forger.trusted, claims(A), protocol=protocol)

    assert "does not speak crescando's protocol" in answered(loop, near, Site(loop, A, other))


def test_whoever_greets_in_another_clusters_name_is_refused(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    both = Forgery(uris=[uri(A), uri(A, "other")])
    far = Site(loop, A, Shown(forger.make(both), forger.trusted, claims(A, "other")), cluster="other")
    far.transport._prove = lambda link: ""  # type: ignore[method-assign]
    sockets_fault = sockets.fault_of
    try:
        sockets.fault_of = lambda *args: "" if args[2] == "other" else sockets_fault(*args)
        told = answered(loop, near, far)
    finally:
        sockets.fault_of = sockets_fault

    assert "is of the cluster 'other' and this process of 'crescando'; permanent" in told


def tampered(site: Site, kind: FrameKind, body: bytes) -> None:
    """Let a transport say something else than it would."""
    say = site.transport._say

    def lie(connection: Any, spoken: FrameKind, said: bytes = b"") -> None:
        say(connection, spoken, body if spoken is kind else said)

    site.transport._say = lie  # type: ignore[method-assign]


@pytest.mark.parametrize(
    ("hello", "told"),
    [
        (Hello(PROTOCOL + 1, "crescando", A, ROUTER, 1), "bring both to one version of crescando"),
        (Hello(PROTOCOL, "crescando", A._replace(node="../a"), ROUTER, 1), "no proper name"),
        (Hello(PROTOCOL, "crescando", A._replace(node="a\nb"), ROUTER, 1), "no proper name"),
        (Hello(PROTOCOL, "x" * 3000, A, ROUTER, 1), "is of the cluster"),
        (Hello(PROTOCOL, "crescando", A, ROUTER._replace(incarnation=9), 1), "router/r0#9 is not here"),
        (Hello(PROTOCOL, "crescando", A, A, 1), "a client has nothing to say to a client"),
        (Hello(PROTOCOL, "crescando", STORAGE, ROUTER, 1), "names crescando://crescando/client/a, not"),
    ],
)
def test_a_greeting_that_is_wrong_is_refused_and_told_why(
    hello: Hello, told: str, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))
    tampered(far, FrameKind.HELLO, encode_word(hello))

    reason = answered(loop, near, far)

    assert told in reason
    assert len(reason) < 500


@pytest.mark.parametrize(
    "welcome",
    [
        Welcome(PROTOCOL, "crescando", ProcessId("router", "r1", 1)),
        Welcome(PROTOCOL, "crescando", ROUTER._replace(incarnation=2)),
        Welcome(PROTOCOL, "other", ROUTER),
        Welcome(PROTOCOL + 1, "crescando", ROUTER),
    ],
)
def test_a_welcome_of_somebody_else_is_none(
    welcome: Welcome, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    tampered(near, FrameKind.WELCOME, encode_word(welcome))

    told = answered(loop, near, Site(loop, A, FileCredentials(forger.authority.issue("client/a"))))

    assert matches("answers for|bring both to one version", told), told
    assert told.endswith("permanent")


ONE_SIDED = "TLS is spoken on one side only: one has certificates and the other has none; permanent"


def test_plain_frames_to_a_tls_port_are_refused_and_told(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))

    told = answered(loop, near, Site(loop, A, None))

    assert ONE_SIDED in told
    assert "TLS is spoken on one side only" in caplog.text


def test_tls_to_a_plain_port_is_refused_and_told(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    far = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))

    told = answered(loop, Site(loop, ROUTER, None), far)

    assert ONE_SIDED in told
    assert "TLS is spoken to a plain port" in caplog.text


def files(forger: Forger, serial: int) -> dict[str, Callable[[Path], dict[str, Path]]]:
    """Give what may be said of a certificate beside the authorities that are trusted."""

    def deny(path: Path, line: str) -> dict[str, Path]:
        path.write_text(f"# of no use any more\n{line}  # since it was stolen\n\n")
        return {"denied": path}

    return {
        "revoked": lambda path: {"revoked": forger.revoke(serial)},
        "serial denied": lambda path: deny(path, f"{serial:X}"),
        "name denied": lambda path: deny(path, "client/a"),
    }


@pytest.mark.parametrize(
    ("what", "told"),
    [
        ("revoked", "is revoked"),
        ("serial denied", "is on the deny-list"),
        ("name denied", "client/a is on the deny-list"),
    ],
)
def test_a_certificate_that_was_taken_back_is_refused(
    what: str, told: str, forger: Forger, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    forgery = Forgery()
    lists = files(forger, forgery.serial)[what](tmp_path / "list")
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0"), **lists))

    assert told in answered(loop, near, Site(loop, A, Shown(forger.make(forgery), forger.trusted, claims(A))))


@pytest.mark.parametrize("what", ["serial denied", "name denied"])
def test_whoever_is_denied_loses_its_session_and_gets_no_other(
    what: str, forger: Forger, loop: asyncio.AbstractEventLoop, tmp_path: Path
) -> None:
    forgery = Forgery()
    denied = tmp_path / "denied"
    denied.write_text("")
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0"), denied=denied))
    far = Site(loop, A, Shown(forger.make(forgery), forger.trusted, claims(A)))
    far.address = near.listen()
    far.dial(ROUTER)
    until(loop, lambda: near.witness.log == [("opened", A)])

    files(forger, forgery.serial)[what](denied)
    until(loop, lambda: bool(far.witness.told("closed")))
    far.dial(ROUTER)

    assert far.witness.log == [("opened", ROUTER), ("closed", ROUTER), ("refused", ROUTER)]
    error = far.transport.error_of(ROUTER)
    assert error is not None
    assert "on the deny-list" in error.reason
    near.transport.close()
    far.transport.close()


def test_nobody_dials_on_and_on_where_it_is_of_no_use(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, Shown(forger.make(Forgery(ends=-DAY / 2)), forger.trusted, claims(A)))
    far.address = near.listen()

    for _ in range(500):
        far.dial(ROUTER)

    assert far.witness.told("refused") == [ROUTER] * 500
    assert far.transport.n_dials <= 20
    # Whoever reads the log of the one that is refused finds why, once per dial.
    assert 1 <= caplog.text.count(f"no session of {A} with {ROUTER}: the peer refused this process") <= 20
    near.transport.close()
    far.transport.close()


def test_a_renewed_certificate_is_used_without_a_restart(
    forger: Forger, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    """New sessions show the new one at once, and the old ones come to an end (K25)."""
    monkeypatch.setattr(tending, "RENEWAL_S", 0.05)
    path = forger.authority.issue("router/r7", lifetime=datetime.timedelta(hours=1))
    router = ProcessId("router", "r7", 1)
    near = Site(loop, router, FileCredentials(path))
    far = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))
    far.address = near.listen()
    far.dial(router)
    first = near.transport.certificate_serial

    forger.authority.issue("router/r7")
    until(loop, lambda: bool(near.witness.told("closed")) and bool(far.witness.told("closed")))
    far.dial(router)

    assert near.transport.certificate_serial != first
    (channel,) = [link for link in far.transport._links.values() if link.channel is not None]
    assert channel.certificate is not None
    assert channel.certificate.serial == near.transport.certificate_serial
    near.transport.close()
    far.transport.close()


def test_a_file_of_no_use_replaces_nothing(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    path = forger.authority.issue("router/r8")
    credentials = FileCredentials(path)
    serial = credentials.certificate.serial

    path.write_text("half a fi")
    assert not credentials.refresh()
    assert not credentials.refresh()

    assert credentials.certificate.serial == serial
    assert caplog.text.count(f"{serial} stays in use") == 1
    forger.authority.issue("router/r8")
    assert credentials.refresh()
    assert credentials.certificate.serial != serial


def test_a_list_beside_the_certificate_is_taken_up_when_it_appears(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    forgery = Forgery()
    folder = forger.folder / "with-lists"
    folder.mkdir(exist_ok=True)
    credentials = FileCredentials(forger.authority.issue("router/r0", path=folder / "node.pem"))
    certificate = Shown(forger.make(forgery), forger.trusted, claims(A))
    near, far = Site(loop, ROUTER, credentials), Site(loop, A, certificate)
    far.address = near.listen()
    far.dial(ROUTER)
    until(loop, lambda: bool(near.witness.log))

    (folder / "denied.txt").write_text(f"{forgery.serial:x}\n")
    until(loop, lambda: bool(far.witness.told("closed")))
    far.dial(ROUTER)
    (folder / "denied.txt").write_text("")
    forger.revoke(forgery.serial).replace(folder / "revoked.pem")
    until(loop, lambda: near.transport._credentials.denial_of(link_certificate(forgery)) == "")  # type: ignore[union-attr]
    again = Site(loop, A._replace(incarnation=2), certificate)
    again.address = far.address
    again.dial(ROUTER)

    first, second = far.transport.error_of(ROUTER), again.transport.error_of(ROUTER)
    assert first is not None
    assert second is not None
    assert "on the deny-list" in first.reason
    assert "is revoked" in second.reason
    for site in (near, far, again):
        site.transport.close()


def link_certificate(forgery: Forgery) -> Certificate:
    return Certificate(frozenset({claims(A)}), f"{forgery.serial:x}", 0.0, 0.0)


def test_whoever_ought_to_renew_its_certificate_is_told_so_once(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    path = forger.make(Forgery([uri(ROUTER)], begins=-3 * DAY, ends=DAY / 2))
    path.write_bytes(path.read_bytes() + forger.trusted)
    aging = Site(loop, ROUTER, FileCredentials(path), limits=SocketLimits(refresh_s=0.01))
    fresh = Site(
        loop, OTHER, FileCredentials(forger.authority.issue("router/r1")), limits=SocketLimits(refresh_s=0.01)
    )

    aging.listen()
    fresh.listen()
    until(loop, lambda: "renew it" in caplog.text)
    looked = loop.time()
    until(
        loop,
        lambda: (
            aging.transport._tending.refreshed_s > looked and fresh.transport._tending.refreshed_s > looked
        ),
    )

    assert "expires in 11:59:" in caplog.text
    assert caplog.text.count("renew it") == 1
    aging.transport.close()
    fresh.transport.close()


def test_a_session_ends_with_the_certificate_that_began_it(
    forger: Forger, loop: asyncio.AbstractEventLoop, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, Shown(forger.make(Forgery()), forger.trusted, claims(A)))
    far.address = near.listen()
    far.dial(ROUTER)
    until(loop, lambda: bool(near.witness.log))

    class Tomorrow:
        @staticmethod
        def time() -> float:
            return (datetime.datetime.now(datetime.UTC) + DAY).timestamp()

    monkeypatch.setattr(tending, "time", Tomorrow)
    until(loop, lambda: bool(near.witness.told("closed")))

    assert near.witness.log == [("opened", A), ("closed", A)]
    near.transport.close()
    far.transport.close()


# Who is there.


def test_whoever_knows_only_an_address_is_told_who_is_there(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))

    assert loop.run_until_complete(far.transport.ask(near.listen())) == (ROUTER,)
    assert (near.witness.log, far.witness.log) == ([], [])
    until(loop, lambda: near.transport.n_half_open == 0)
    near.transport.close()
    far.transport.close()


@pytest.mark.parametrize(
    ("forgery", "cluster", "told"),
    [
        (Forgery(issuer="stranger"), "crescando", "does not trust the authority"),
        (Forgery(ends=-DAY / 2), "crescando", "expired"),
        (Forgery(uris=[]), "crescando", "names no process"),
        (Forgery(uris=[uri(A, "other")]), "other", "of another cluster"),
    ],
)
def test_strangers_are_not_told_who_is_there(
    forgery: Forgery, cluster: str, told: str, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, Shown(forger.make(forgery), forger.trusted, claims(A, cluster)), cluster=cluster)
    address = near.listen()

    with pytest.raises(sockets.SessionRefusedError, match=told) as refused:
        loop.run_until_complete(far.transport.ask(address))

    assert refused.value.is_permanent
    near.transport.close()
    far.transport.close()


def test_nobody_may_answer_for_others(forger: Forger, loop: asyncio.AbstractEventLoop) -> None:
    liar = Site(
        loop,
        ROUTER,
        Shown(forger.make(Forgery(["crescando://crescando/router/r1"])), forger.trusted, claims(ROUTER)),
    )
    far = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))
    address = liar.listen()

    with pytest.raises(sockets.SessionRefusedError, match="router/r1, not crescando://crescando/router/r0"):
        loop.run_until_complete(far.transport.ask(address))
    liar.transport.close()
    far.transport.close()


def test_where_nobody_listens_the_question_is_refused(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    gone = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    address = gone.listen()
    gone.transport.close()
    far = Site(loop, A, FileCredentials(forger.authority.issue("client/a")))

    with pytest.raises(sockets.SessionRefusedError) as refused:
        loop.run_until_complete(far.transport.ask(address))

    assert not refused.value.is_permanent
    far.transport.close()


# The log.


@pytest.mark.parametrize(("code", "told"), [(errno.ENOTCONN, 0), (errno.ETIMEDOUT, 1)])
def test_whoever_leaves_in_the_middle_is_not_told_of_as_refused(
    forger: Forger, loop: asyncio.AbstractEventLoop, code: int, told: int
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    address = near.listen()
    with socket.create_connection(address):  # type: ignore[arg-type]
        until(loop, lambda: bool(near.transport._links))
        (connection,) = near.transport._links
        connection.connection_lost(OSError(code, "as the kernel has it"))
        loop.run_until_complete(asyncio.sleep(0.01))

    assert near.transport.audit.n_refused == told
    near.transport.close()


def test_a_flood_of_strangers_is_told_in_numbers(caplog: pytest.LogCaptureFixture) -> None:
    clock = [0.0]
    audit = Audit(lambda: clock[0])

    for _ in range(5000):
        audit.refuse("somebody", "noise")
    clock[0] = 60.0
    audit.refuse("somebody", "noise")

    assert audit.n_refused == 5001
    assert len(caplog.records) == LINES_MAX + 2
    assert f"{5000 - LINES_MAX} more connections were refused" in caplog.text
