"""What a process proves itself with, and whom it believes: files in, TLS contexts out.

One file holds a process's key, its certificate and the authorities it trusts
(`crescando certs` writes such files). Contexts are built whole, looked at, and
tried on each other before anything uses them; a file that changed replaces
them without a restart, and one that is unusable replaces nothing.

Rules of the file: TLS 1.3, both sides verified, no resumption: whoever comes
back is verified anew. A key that others may read is no key. Nothing of a key is
ever in a message.
"""

from __future__ import annotations

import logging
import os
import ssl
import stat
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from crescando.errors import CredentialsError
from crescando.transport.causes import cause_of
from crescando.transport.identity import Certificate, certificate_of
from crescando.transport.tls import TlsStream

logger = logging.getLogger(__name__)

PROTOCOL_NAME = "crescando"
"""Said within the handshake (ALPN), so that no other protocol's peer is mistaken for one of ours."""

REVOKED_FILE, DENIED_FILE = "revoked.pem", "denied.txt"
"""Where lists are looked for beside a certificate's file, if nobody says where they are."""

_FLIGHTS = 4
"""Turns that a handshake takes at most."""


@dataclass(frozen=True, slots=True)
class Tls:
    """The contexts of the two sides of a connection, and the certificate that both show."""

    server: ssl.SSLContext
    client: ssl.SSLContext
    certificate: Certificate


class Credentials(Protocol):
    """What a transport needs to know of certificates."""

    @property
    def tls(self) -> Tls:
        """What new connections use."""
        ...

    def refresh(self) -> bool:
        """Look whether there is something newer; True if there is."""
        ...

    def denial_of(self, certificate: Certificate) -> str:
        """Say why the holder of a verified certificate is denied all the same; empty if it is not."""
        ...


class FileCredentials(Credentials):
    """Credentials kept in files, read again when these change.

    Parameters
    ----------
    path : path
        A PEM file with the key, its certificate, and the trusted authorities.
    authorities : path, optional
        The trusted authorities, if they are not in `path`.
    revoked : path, optional
        Certificate revocation lists (PEM), one of each authority. By default
        ``revoked.pem`` beside `path`, while there is such a file.
    denied : path, optional
        A text file of those denied whatever their certificate: a serial number
        in hexadecimal, or ``role/node``, per line; ``#`` begins a comment. By
        default ``denied.txt`` beside `path`, while there is such a file.

    Raises
    ------
    CredentialsError
        If they cannot be used; it names the file, the fault and the mend.
    """

    def __init__(
        self,
        path: Path | str,
        *,
        authorities: Path | str | None = None,
        revoked: Path | str | None = None,
        denied: Path | str | None = None,
    ) -> None:
        self.path = Path(path)
        self._authorities = Path(authorities) if authorities is not None else None
        self._revoked = Path(revoked) if revoked is not None else None
        self._denied_path = Path(denied) if denied is not None else None
        self._fault = ""
        self._stamps = self._stamp()
        self._tls = self._build()
        self._denied = self._read_denied()

    @property
    def tls(self) -> Tls:
        """What new connections use."""
        return self._tls

    @property
    def certificate(self) -> Certificate:
        """The certificate in use."""
        return self._tls.certificate

    def denial_of(self, certificate: Certificate) -> str:
        """Say why the holder of a verified certificate is denied all the same; empty if it is not."""
        if certificate.serial.lstrip("0") in self._denied:
            return f"the certificate {certificate.serial} is on the deny-list"
        for identity in certificate.identities:
            if f"{identity.role}/{identity.node}" in self._denied:
                return f"{identity.role}/{identity.node} is on the deny-list"
        return ""

    def refresh(self) -> bool:
        """Read the files again if they changed; True if what they say is used from now on.

        What cannot be used is told in the log, once, and replaces nothing.
        """
        stamps = self._stamp()
        if stamps == self._stamps and not self._fault:
            return False
        self._stamps = stamps
        try:
            tls, denied = self._build(), self._read_denied()
        except CredentialsError as error:
            if str(error) != self._fault:
                self._fault = str(error)
                logger.error("the certificate %s stays in use: %s", self.certificate.serial, error)
            return False
        self._tls, self._denied, self._fault = tls, denied, ""
        logger.info("the certificate %s is in use", self.certificate.serial)
        return True

    # Reading.

    def _stamp(self) -> tuple[tuple[int, int, int] | None, ...]:
        lists = self._list(self._revoked, REVOKED_FILE), self._list(self._denied_path, DENIED_FILE)
        paths = self.path, self._authorities, *lists
        return tuple(_stamp_of(path) if path is not None else None for path in paths)

    def _list(self, given: Path | None, name: str) -> Path | None:
        """Give where a list is kept: where it was said, or beside the certificate if there is one."""
        beside = self.path.with_name(name)
        return given if given is not None else beside if beside.exists() else None

    def _build(self) -> Tls:
        check_private(self.path)
        server, client = self._context(ssl.PROTOCOL_TLS_SERVER), self._context(ssl.PROTOCOL_TLS_CLIENT)
        certificate = _tried(server, client, self.path)
        if certificate.malformed or not certificate.identities:
            raise CredentialsError(
                str(self.path), f"its certificate names no process: {certificate.malformed or 'no name'}"
            )
        return Tls(server, client, certificate)

    def _context(self, protocol: int) -> ssl.SSLContext:
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # Names are those of processes, not of hosts; `Certificate.fault_of` compares them.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.options |= ssl.OP_NO_TICKET
        if protocol == ssl.PROTOCOL_TLS_SERVER:
            context.num_tickets = 0
        context.set_alpn_protocols([PROTOCOL_NAME])
        try:
            context.load_cert_chain(self.path)
        except (ssl.SSLError, OSError) as error:
            raise CredentialsError(
                str(self.path), f"it must hold a key, its certificate and the authorities: {_said(error)}"
            ) from error
        trusted = self._authorities
        try:
            if trusted is not None:
                context.load_verify_locations(trusted)
            else:
                trusted = self.path
                if authorities := _certificates_behind_the_first(self.path.read_text("ascii")):
                    context.load_verify_locations(cadata=authorities)
        except (ssl.SSLError, OSError, ValueError) as error:
            raise CredentialsError(str(trusted), f"no authorities can be read: {_said(error)}") from error
        revoked = self._list(self._revoked, REVOKED_FILE)
        if revoked is not None:
            try:
                context.load_verify_locations(revoked)
            except (ssl.SSLError, OSError) as error:
                raise CredentialsError(
                    str(revoked), f"no revocation list can be read: {_said(error)}"
                ) from error
            context.verify_flags |= ssl.VerifyFlags.VERIFY_CRL_CHECK_LEAF
        check_context(context, str(trusted))
        return context

    def _read_denied(self) -> frozenset[str]:
        path = self._list(self._denied_path, DENIED_FILE)
        if path is None:
            return frozenset()
        try:
            lines = path.read_text("utf-8").splitlines()
        except (OSError, ValueError) as error:
            raise CredentialsError(str(path), f"the deny-list cannot be read: {_said(error)}") from error
        entries = (line.partition("#")[0].strip() for line in lines)
        return frozenset(
            entry if "/" in entry else entry.replace(":", "").lower().lstrip("0")
            for entry in entries
            if entry
        )


def check_context(context: ssl.SSLContext, name: str = "a context") -> None:
    """See that a context does what mutual TLS 1.3 needs, however it was built.

    Raises
    ------
    CredentialsError
        If it does not; a setting of the system's may have changed it.
    """
    is_server = context.protocol == ssl.PROTOCOL_TLS_SERVER
    demands = {
        "it must speak TLS 1.3 and nothing older": context.minimum_version == ssl.TLSVersion.TLSv1_3
        and context.maximum_version in (ssl.TLSVersion.TLSv1_3, ssl.TLSVersion.MAXIMUM_SUPPORTED),
        "it must demand a certificate of the peer": context.verify_mode == ssl.CERT_REQUIRED,
        "it must not resume sessions": bool(context.options & ssl.OP_NO_TICKET)
        and (not is_server or context.num_tickets == 0),
        "it must trust some authority": context.cert_store_stats()["x509_ca"] > 0,
        # Named by an environment variable, it would hold the secrets of every session.
        "it must write no keys to a log": context.keylog_filename is None,
    }
    for demand, is_met in demands.items():
        if not is_met:
            raise CredentialsError(name, demand)


def _tried(server: ssl.SSLContext, client: ssl.SSLContext, path: Path) -> Certificate:
    """Let the two sides meet: what neither the files nor OpenSSL complained of shows here."""
    near, far = TlsStream(client, is_server=False), TlsStream(server, is_server=True)
    try:
        near.shake()
        for _ in range(_FLIGHTS):
            far.receive(near.outgoing())
            near.receive(far.outgoing())
        shown = certificate_of(near.ssl_object) if near.is_ready and far.is_ready else None
    except ssl.SSLError as error:
        why = cause_of(error, b"\x16").text.removeprefix("the peer is refused: ")
        raise CredentialsError(str(path), f"no peer would accept it: {why}") from error
    if shown is None or near.ssl_object.version() != "TLSv1.3":
        raise CredentialsError(str(path), "this system's OpenSSL makes no TLS 1.3 session with it")
    return shown


def check_private(path: Path) -> None:
    """See that nobody else can read a key.

    Raises
    ------
    CredentialsError
        If somebody can, or there is none.
    """
    try:
        status = os.stat(path)
    except OSError as error:
        raise CredentialsError(str(path), f"it cannot be read: {_said(error)}") from error
    if status.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(status.st_mode)
        raise CredentialsError(
            str(path), f"others may read the key in it (mode {mode:04o}); run: chmod 600 {path}"
        )
    if status.st_uid not in (os.geteuid(), 0):
        raise CredentialsError(str(path), f"it belongs to another user (number {status.st_uid})")


_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def _certificates_behind_the_first(pem: str) -> str:
    """Give the authorities of a file: all certificates but the process's own, which is the first."""
    _, *others = pem.split(_BEGIN)[1:]
    return "\n".join(f"{_BEGIN}{other.partition(_END)[0]}{_END}\n" for other in others)


def _stamp_of(path: Path) -> tuple[int, int, int] | None:
    try:
        status = os.stat(path)
    except OSError:
        return None
    return status.st_mtime_ns, status.st_ino, status.st_size


def _said(error: Exception) -> str:
    """Give an error's own words without the place in OpenSSL's source."""
    return getattr(error, "reason", None) or getattr(error, "strerror", None) or str(error)
