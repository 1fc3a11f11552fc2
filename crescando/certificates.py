"""A cluster's own certificate authority: one folder, one file per node.

Keys are on the curve P-256. The authority's key stays where the folder is; a
node needs its own file and nothing else: key, certificate, and the authority it
trusts. A certificate names processes as ``crescando://<cluster>/<role>/<node>``
and lives shortly: a running process takes up a new file by itself.

An authority is changed in three steps, since a node must trust the new one
before it meets the first certificate of it: nodes' files that trust both, then
such that the new one has signed, then such that trust the new one only. Which
step is being taken is written down before anything changes, and each part of a
step can be done again: whoever opens the folder after an interruption mends what
is needed to issue certificates, and the step is finished before the next begins.

Rules of the file: a file appears whole, readable by its owner only, or not at
all; what is not a file of ours is not overwritten.
"""

from __future__ import annotations

import contextlib
import datetime
import fcntl
import os
import stat
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from crescando.errors import CredentialsError
from crescando.permits import ROLES
from crescando.transport.causes import words_of
from crescando.transport.credentials import REVOKED_FILE, FileCredentials, check_private
from crescando.transport.handshake import CLUSTER
from crescando.transport.identity import ADMINISTRATOR, SCHEME, Identity, identity_of, is_name

AUTHORITY_FILE = "authority.pem"
AUTHORITY_KEY_FILE = "authority.key.pem"
NEXT_FILE, NEXT_KEY_FILE = "next-authority.pem", "next-authority.key.pem"
FORMER_FILE = "former-authority.pem"

STEP_FILE = "rotation.txt"
"""Names the step to a new authority that is being taken; there is none while nobody takes one."""

ANNOUNCED, REPLACED, FINISHED = "announced", "replaced", "finished"

_OWN_FILES = frozenset(
    {AUTHORITY_FILE, AUTHORITY_KEY_FILE, NEXT_FILE, NEXT_KEY_FILE, FORMER_FILE, STEP_FILE, REVOKED_FILE}
)

NODE_LIFETIME = datetime.timedelta(days=30)
AUTHORITY_LIFETIME = datetime.timedelta(days=5 * 365)

SKEW = datetime.timedelta(minutes=5)
"""Clocks of hosts differ; a certificate is valid a little before it is made."""

RENEWAL_PART = 0.5
"""Of its life a certificate has this part left when it is time for a new one."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What is known of one node's file.

    Attributes
    ----------
    path : Path
    names : tuple of str
        ``role/node`` of every process it is for.
    begins, expires : datetime or None
        In UTC.
    serial : str
    fault : str
        Why no peer would accept it, and what mends that; empty if one would.
    is_due : bool
        Whether it is time for a new one.
    """

    path: Path
    names: tuple[str, ...] = ()
    begins: datetime.datetime | None = None
    expires: datetime.datetime | None = None
    serial: str = ""
    fault: str = ""
    is_due: bool = False


class Authority:
    """Issues the certificates of one cluster.

    Parameters
    ----------
    folder : path
        Where `create` has put the authority, and where the nodes' files are.

    Raises
    ------
    CredentialsError
        If there is none that can be used.
    """

    def __init__(self, folder: Path | str) -> None:
        self.folder = Path(folder)
        key_path = self.folder / AUTHORITY_KEY_FILE
        if not key_path.exists():
            raise CredentialsError(str(key_path), "there is no authority's key; run: crescando certs init")
        with _alone_in(self.folder):
            if _step_begun(self.folder) == REPLACED:
                write_private(self.folder / STEP_FILE, REPLACED.encode())
                _replace_authority(self.folder)
            self._load()

    def _load(self) -> None:
        key_path, path = self.folder / AUTHORITY_KEY_FILE, self.folder / AUTHORITY_FILE
        check_private(key_path)
        try:
            key = _read_key(key_path)
            self._certificate = x509.load_pem_x509_certificate(path.read_bytes())
        except (OSError, ValueError, TypeError) as error:
            raise CredentialsError(
                str(self.folder),
                f"there is no authority in it ({words_of(error)}); run: crescando certs init",
            ) from error
        if not _are_pair(key, self._certificate):
            raise CredentialsError(str(key_path), f"it is not the key of {AUTHORITY_FILE}")
        assert isinstance(key, ec.EllipticCurvePrivateKey)
        self._key = key
        self.cluster = _cluster_of(self._certificate, path)

    @classmethod
    def create(
        cls,
        folder: Path | str,
        *,
        cluster: str = CLUSTER,
        lifetime: datetime.timedelta = AUTHORITY_LIFETIME,
    ) -> Authority:
        """Make a new authority in a folder, which is made if need be.

        Raises
        ------
        CredentialsError
            If there is one already, or the cluster's name is none.
        """
        folder = Path(folder)
        if not is_name(cluster):
            raise CredentialsError(
                repr(cluster), "a cluster's name is of letters, digits, dots, hyphens and underscores"
            )
        for file in (AUTHORITY_KEY_FILE, AUTHORITY_FILE):
            if (folder / file).exists():
                raise CredentialsError(
                    str(folder / file), "there is an authority already; its nodes would not know a new one"
                )
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_authority(folder / AUTHORITY_FILE, folder / AUTHORITY_KEY_FILE, cluster, lifetime)
        return cls(folder)

    def issue(
        self,
        *names: str,
        path: Path | str | None = None,
        lifetime: datetime.timedelta = NODE_LIFETIME,
        begins: datetime.datetime | None = None,
    ) -> Path:
        """Write the file of a node, with a new key; an older one is replaced.

        Parameters
        ----------
        names : str
            ``role/node`` of every process that the node runs; behind ``client/x`` also ``admin/x``, which
            gives that client the right to administer the cluster.
        path : path, optional
            Where to; by default ``role-node.pem`` of the first name, in the folder.
        lifetime : timedelta
        begins : datetime, optional
            Now, by default.

        Raises
        ------
        CredentialsError
            If a name is none, or the file cannot be written.
        """
        identities = [self._identity(name) for name in names]
        if not identities:
            raise CredentialsError(str(path or self.folder), "name at least one process, as role/node")
        for right in identities:
            if right.role == ADMINISTRATOR and right._replace(role="client") not in identities:
                raise CredentialsError(
                    str(path or self.folder),
                    f"admin/{right.node} is a right and no process; name client/{right.node} too",
                )
        first = identities[0]
        target = Path(path) if path is not None else self.folder / f"{first.role}-{first.node}.pem"
        if target.name in _OWN_FILES:
            raise CredentialsError(str(target), "this is the authority's own file")
        key = ec.generate_private_key(ec.SECP256R1())
        start = begins or datetime.datetime.now(datetime.UTC)
        end = min(start + lifetime, self._certificate.not_valid_after_utc)
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, self.cluster),
                x509.NameAttribute(NameOID.COMMON_NAME, f"{first.role}/{first.node}"[:64]),
            ]
        )
        uris = [x509.UniformResourceIdentifier(str(identity)) for identity in identities]
        issuer_id = self._certificate.extensions.get_extension_for_class(x509.SubjectKeyIdentifier)
        certificate = (
            _builder(subject, self._certificate.subject, key.public_key(), start - SKEW, end)
            .add_extension(x509.SubjectAlternativeName(uris), critical=False)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs_certificates=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]),
                critical=False,
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(issuer_id.value),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        parts = _pem_of_key(key), certificate.public_bytes(serialization.Encoding.PEM), self._trusted()
        write_private(target, b"".join(parts))
        return target

    def ensure(self, *names: str) -> Path:
        """Give the file of a node, which is issued if there is none or it is time for a new one.

        A right to administer that it gives already stays.
        """
        first = self._identity(names[0])
        path = self.folder / f"{first.role}-{first.node}.pem"
        if path.exists():
            finding = check(path)
            right = f"{ADMINISTRATOR}/{first.node}"
            if first.role == "client" and right in finding.names and right not in names:
                names = (*names, right)
            if not finding.fault and not finding.is_due and finding.names == names:
                return path
        return self.issue(*names)

    def rotate(self, *, is_forced: bool = False) -> list[Path]:
        """Issue anew the nodes' files of the folder for which it is time, or all of them.

        Names and length of life stay as they are. Files that cannot be read
        are left alone; `check` tells of them.
        """
        renewed = []
        for path in node_files(self.folder):
            found = check(path)
            if found.begins is None or found.expires is None or not found.names:
                continue
            if is_forced or found.is_due:
                self.issue(*found.names, path=path, lifetime=found.expires - found.begins - SKEW)
                renewed.append(path)
        return renewed

    def rotate_authority(self, lifetime: datetime.timedelta = AUTHORITY_LIFETIME) -> str:
        """Take the next of the three steps to a new authority, and issue all nodes' files anew.

        Every node must have its new file before the step after this one. A step that was
        interrupted is finished, and no other one taken.

        Returns
        -------
        str
            What was done: ``announced``, ``replaced`` or ``finished``.
        """
        folder = self.folder
        with _alone_in(folder):
            step = _step_begun(folder) or _step_due(folder)
            write_private(folder / STEP_FILE, step.encode())
            if step == ANNOUNCED and not _holds_next(folder):
                _write_authority(folder / NEXT_FILE, folder / NEXT_KEY_FILE, self.cluster, lifetime)
            elif step == REPLACED:
                _replace_authority(folder)
            elif step == FINISHED:
                (folder / FORMER_FILE).unlink(missing_ok=True)
            self._load()
            self.rotate(is_forced=True)
            (folder / STEP_FILE).unlink()
        return step

    def _trusted(self) -> bytes:
        """Give the authorities that nodes are to trust now."""
        others = (self.folder / NEXT_FILE, self.folder / FORMER_FILE)
        kept = [path.read_bytes() for path in others if path.exists()]
        return b"".join([self._certificate.public_bytes(serialization.Encoding.PEM), *kept])

    def _identity(self, name: str) -> Identity:
        identity = identity_of(f"{SCHEME}{self.cluster}/{name}")
        if identity is None or identity.role not in (*ROLES, ADMINISTRATOR):
            raise CredentialsError(
                repr(name),
                f"a process is named role/node, with a role of {', '.join(ROLES)}, "
                "and a node of letters, digits, dots, hyphens and underscores",
            )
        return identity


@contextlib.contextmanager
def _alone_in(folder: Path) -> Iterator[None]:
    """Keep others from reading or changing the authority meanwhile."""
    lock = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
    finally:
        os.close(lock)


def _step_begun(folder: Path) -> str:
    """Give the step to a new authority that was begun and not ended; empty if there is none.

    Raises
    ------
    CredentialsError
        If the file that names it names none.
    """
    path = folder / STEP_FILE
    if path.exists():
        step = path.read_text("utf-8", errors="replace").strip()
        if step not in (ANNOUNCED, REPLACED, FINISHED):
            raise CredentialsError(str(path), f"{step!r:.40} is no step of a change of authority; remove it")
        return step
    # Versions that wrote no step down were interrupted in the middle of this one.
    has_next_key = (folder / NEXT_KEY_FILE).exists()
    has_former = (folder / FORMER_FILE).exists()
    return REPLACED if (folder / NEXT_FILE).exists() and (has_former or not has_next_key) else ""


def _step_due(folder: Path) -> str:
    if (folder / FORMER_FILE).exists():
        return FINISHED
    return REPLACED if (folder / NEXT_FILE).exists() else ANNOUNCED


def _holds_next(folder: Path) -> bool:
    """Say whether the next authority is there, with its key."""
    try:
        key = _read_key(folder / NEXT_KEY_FILE)
        return _are_pair(key, x509.load_pem_x509_certificate((folder / NEXT_FILE).read_bytes()))
    except (OSError, ValueError, TypeError):
        return False


def _replace_authority(folder: Path) -> None:
    """Put the next authority in the place of the present one, or go on with that."""
    following, following_key = folder / NEXT_FILE, folder / NEXT_KEY_FILE
    try:
        if following.exists():
            # Its certificate comes last: as long as it is here, the one in its place is the former.
            write_private(folder / FORMER_FILE, (folder / AUTHORITY_FILE).read_bytes())
            if following_key.exists():
                following_key.replace(folder / AUTHORITY_KEY_FILE)
            following.replace(folder / AUTHORITY_FILE)
    except OSError as error:
        raise CredentialsError(
            str(folder), f"the change of authority that was begun in it cannot go on: {error.strerror}"
        ) from error


def with_right(name: str) -> tuple[str, str]:
    """Give a client's name, and that of its right to administer.

    Raises
    ------
    CredentialsError
        If it is no client's.
    """
    role, _, node = name.partition("/")
    if role != "client":
        raise CredentialsError(repr(name), "only a client is given the right to administer")
    return name, f"{ADMINISTRATOR}/{node}"


def node_files(folder: Path) -> list[Path]:
    """Give the files of a folder that are nodes'."""
    return [path for path in sorted(folder.glob("*.pem")) if path.name not in _OWN_FILES]


def check(path: Path) -> Finding:
    """Say what a node's file holds, and whether a peer would accept it."""
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
        names = _identities_of(certificate)
    except (OSError, ValueError) as error:
        return Finding(path, fault=f"it holds no certificate: {words_of(error)}")
    fault = ""
    try:
        FileCredentials(path)
    except CredentialsError as error:
        fault = error.fault
    begins, expires = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    left = expires - datetime.datetime.now(datetime.UTC)
    return Finding(
        path=path,
        names=tuple(f"{identity.role}/{identity.node}" for identity in names),
        begins=begins,
        expires=expires,
        serial=f"{certificate.serial_number:x}",
        fault=fault,
        is_due=left < RENEWAL_PART * (expires - begins),
    )


def write_private(path: Path, data: bytes) -> None:
    """Write a file that only its owner can read, whole or not at all.

    Raises
    ------
    CredentialsError
        If it cannot be written.
    """
    # Two threads may write the same file: the last one stays, whole.
    draft = path.with_name(f".{path.name}.{os.getpid()}.{os.urandom(4).hex()}")
    try:
        descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, stat.S_IRUSR | stat.S_IWUSR)
        try:
            with os.fdopen(descriptor, "wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            draft.replace(path)
        except BaseException:
            draft.unlink(missing_ok=True)
            raise
    except OSError as error:
        raise CredentialsError(str(path), f"it cannot be written: {error.strerror}") from error


def _write_authority(path: Path, key_path: Path, cluster: str, lifetime: datetime.timedelta) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime.now(datetime.UTC)
    # One that follows another must not be taken for it.
    common = f"authority {os.urandom(8).hex()} of {cluster}"[:64]
    name = x509.Name(
        [
            x509.NameAttribute(NameOID.ORGANIZATION_NAME, cluster),
            x509.NameAttribute(NameOID.COMMON_NAME, common),
        ]
    )
    certificate = (
        _builder(name, name, key.public_key(), now - SKEW, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.SubjectAlternativeName([x509.UniformResourceIdentifier(f"{SCHEME}{cluster}")]),
            critical=False,
        )
        .sign(key, hashes.SHA256())
    )
    # The key first: an authority without one is no authority, a key without one is only a file.
    write_private(key_path, _pem_of_key(key))
    write_private(path, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name,
    issuer: x509.Name,
    key: ec.EllipticCurvePublicKey,
    begins: datetime.datetime,
    expires: datetime.datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins)
        .not_valid_after(expires)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        encipher_only=False,
        decipher_only=False,
    )


def _read_key(path: Path) -> object:
    return serialization.load_pem_private_key(path.read_bytes(), None)


def _are_pair(key: object, certificate: x509.Certificate) -> bool:
    return isinstance(key, ec.EllipticCurvePrivateKey) and key.public_key() == certificate.public_key()


def _pem_of_key(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _uris_of(certificate: x509.Certificate) -> Sequence[str]:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return ()
    return names.get_values_for_type(x509.UniformResourceIdentifier)


def _identities_of(certificate: x509.Certificate) -> list[Identity]:
    return [identity for identity in map(identity_of, _uris_of(certificate)) if identity is not None]


def _cluster_of(certificate: x509.Certificate, path: Path) -> str:
    named = [uri.removeprefix(SCHEME) for uri in _uris_of(certificate) if uri.startswith(SCHEME)]
    if len(named) != 1 or not is_name(named[0]):
        raise CredentialsError(str(path), "it is not the authority of a cluster; run: crescando certs init")
    return named[0]
