"""A certificate authority for one run: made in memory, written to one folder, of use to nobody else.

Every process gets a certificate of its own, ECDSA on P-256, whose common name
is ``role/node``; both sides of a connection must show one (TLS 1.3, mutual).
"""

from __future__ import annotations

import datetime
import ssl
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from crescando.transport.handshake import Tls
from crescando.types import ProcessId

LIFETIME = datetime.timedelta(days=1)


class Authority:
    """Signs the certificates of one run.

    Parameters
    ----------
    folder : Path
        Where keys and certificates are written, readable by their owner only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("crescando-run")
        basic = x509.BasicConstraints(ca=True, path_length=0)
        certificate = (
            _builder(self._name, self._name, self._key)
            .add_extension(basic, critical=True)
            .sign(self._key, hashes.SHA256())
        )
        _write(folder / "authority.pem", certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, process: ProcessId) -> None:
        """Write the key and certificate of a process."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _builder(_name(f"{process.role}/{process.node}"), self._name, key).sign(
            self._key, hashes.SHA256()
        )
        secret = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path = _path(self._folder, process)
        _write(path, secret + certificate.public_bytes(serialization.Encoding.PEM))


def contexts(folder: Path, process: ProcessId) -> Tls:
    """Give the two sides' TLS contexts of a process, from what an `Authority` wrote."""
    sides = []
    for protocol in (ssl.PROTOCOL_TLS_SERVER, ssl.PROTOCOL_TLS_CLIENT):
        context = ssl.SSLContext(protocol)
        context.minimum_version = ssl.TLSVersion.TLSv1_3
        # The transport checks names itself: they are roles and nodes, not hosts.
        context.check_hostname = False
        context.verify_mode = ssl.CERT_REQUIRED
        context.load_verify_locations(folder / "authority.pem")
        context.load_cert_chain(_path(folder, process))
        sides.append(context)
    return Tls(*sides)


def _path(folder: Path, process: ProcessId) -> Path:
    return folder / f"{process.role}-{process.node}.pem"


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - LIFETIME)
        .not_valid_after(now + LIFETIME)
    )


def _write(path: Path, data: bytes) -> None:
    path.touch(mode=0o600)
    path.write_bytes(data)
