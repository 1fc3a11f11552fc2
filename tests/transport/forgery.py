"""Certificates that nobody ought to accept, and peers that show them."""

from __future__ import annotations

import datetime
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from crescando.certificates import Authority
from crescando.transport.credentials import PROTOCOL_NAME, Credentials, Tls
from crescando.transport.identity import Certificate, Identity

Key = ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey

DAY = datetime.timedelta(days=1)
BOTH_SIDES = (ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH)


@dataclass(frozen=True)
class Forgery:
    """How a certificate differs from a good one.

    Attributes
    ----------
    uris : sequence of str
        Its names.
    issuer : str
        ``ours``; ``stranger``: another authority; ``namesake``: another key with our
        authority's name; ``itself``; ``node``: signed by a node's certificate.
    """

    uris: Sequence[str] = ("crescando://crescando/client/a",)
    dns: Sequence[str] = ()
    begins: datetime.timedelta = -DAY
    ends: datetime.timedelta = DAY
    uses: Sequence[x509.ObjectIdentifier] = BOTH_SIDES
    issuer: str = "ours"
    common_name: str = "client/a"
    is_rsa: bool = False
    serial: int = field(default_factory=x509.random_serial_number)


class Forger:
    """Makes certificates beside those of a cluster's authority, in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority.create(folder)
        self.trusted = (folder / "authority.pem").read_bytes()
        self.name = x509.load_pem_x509_certificate(self.trusted).subject
        key = serialization.load_pem_private_key((folder / "authority.key.pem").read_bytes(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self.key = key
        self._n_made = 0

    def make(self, forgery: Forgery) -> Path:
        """Write a node's file with such a certificate."""
        key: Key = (
            rsa.generate_private_key(65537, 2048)
            if forgery.is_rsa
            else ec.generate_private_key(ec.SECP256R1())
        )
        now = datetime.datetime.now(datetime.UTC)
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, forgery.common_name)])
        issuer, signer, chain = self._issuer(forgery, subject, key)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(issuer)
            .public_key(key.public_key())
            .serial_number(forgery.serial)
            .not_valid_before(now + forgery.begins)
            .not_valid_after(now + forgery.ends)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        )
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(uri) for uri in forgery.uris]
        names += [x509.DNSName(name) for name in forgery.dns]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        if forgery.uses:
            builder = builder.add_extension(x509.ExtendedKeyUsage(forgery.uses), critical=False)
        certificate = builder.sign(signer, hashes.SHA256())
        return self._write(pem_of(key) + certificate.public_bytes(serialization.Encoding.PEM) + chain)

    def _issuer(self, forgery: Forgery, subject: x509.Name, key: Key) -> tuple[x509.Name, Key, bytes]:
        if forgery.issuer == "ours":
            return self.name, self.key, b""
        if forgery.issuer == "itself":
            return subject, key, b""
        if forgery.issuer == "namesake":
            return self.name, ec.generate_private_key(ec.SECP256R1()), b""
        if forgery.issuer == "stranger":
            stranger = Forger(self.folder / f"stranger{self._n_made}")
            return stranger.name, stranger.key, stranger.trusted
        node = self.make(Forgery(common_name="another node")).read_bytes()
        certificate = x509.load_pem_x509_certificate(node)
        signer = serialization.load_pem_private_key(node, None)
        assert isinstance(signer, ec.EllipticCurvePrivateKey)
        return certificate.subject, signer, certificate.public_bytes(serialization.Encoding.PEM)

    def revoke(self, serial: int, *, ends: datetime.timedelta = DAY) -> Path:
        """Write a revocation list of our authority."""
        now = datetime.datetime.now(datetime.UTC)
        revoked = (
            x509.RevokedCertificateBuilder().serial_number(serial).revocation_date(now - DAY / 2).build()
        )
        listed = (
            x509.CertificateRevocationListBuilder()
            .issuer_name(self.name)
            .last_update(now - 2 * DAY)
            .next_update(now + ends)
            .add_revoked_certificate(revoked)
            .sign(self.key, hashes.SHA256())
        )
        return self._write(listed.public_bytes(serialization.Encoding.PEM))

    def _write(self, data: bytes) -> Path:
        self._n_made += 1
        path = self.folder / f"forged{self._n_made}.pem"
        path.touch(mode=0o600)
        path.write_bytes(data)
        return path


def pem_of(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


class Shown(Credentials):
    """Credentials that nobody has checked.

    Parameters
    ----------
    path : Path or None
        The key and certificate to show.
    trusted : bytes
        PEM of the authorities.
    claims : Identity
        What the process itself takes its certificate for.
    protocol : str
        The protocol named in the handshake.
    version : ssl.TLSVersion
        The only one spoken.
    """

    def __init__(
        self,
        path: Path | None,
        trusted: bytes,
        *claims: Identity,
        protocol: str = PROTOCOL_NAME,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
    ) -> None:
        sides = []
        for kind in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
            context = ssl.SSLContext(kind)
            context.check_hostname = False
            context.minimum_version = context.maximum_version = version
            context.verify_mode = ssl.CERT_REQUIRED
            context.load_verify_locations(cadata=trusted.decode())
            if protocol:
                context.set_alpn_protocols([protocol])
            if path is not None:
                context.load_cert_chain(path)
            sides.append(context)
        self._tls = Tls(*sides, certificate=Certificate(frozenset(claims), "0", 0.0, float("inf")))

    @property
    def tls(self) -> Tls:
        return self._tls

    def refresh(self) -> bool:
        return False

    def denial_of(self, certificate: Certificate) -> str:
        return ""
