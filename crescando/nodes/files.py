"""The certificates of a cluster file's processes: found, or issued where the authority's key is."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from crescando.errors import CredentialsError
from crescando.roles.description import NODE
from crescando.transport.credentials import FileCredentials
from crescando.transport.identity import ADMINISTRATOR

if TYPE_CHECKING:
    from crescando.clusterfile import ClusterFile, Seat


def file_of(folder: Path, role: str, node: str) -> Path:
    """Give where the certificate of a process is kept."""
    return folder / f"{role}-{node}.pem"


def certificate_for(file: ClusterFile, seat: Seat) -> Path:
    """Give the file of a seat's node, issued if there is none and the authority's key is here.

    Raises
    ------
    CredentialsError
        If there is none, and what mends that.
    """
    return _file(file.certificates, file.name, seat.role, seat.node, (f"{NODE}/{seat.node}",))


def client_credentials(place: Path | str, name: str = "app") -> FileCredentials:
    """Give the credentials of a client.

    Parameters
    ----------
    place : path
        Its file, or the folder that ``crescando certs`` keeps files in.
    name : str
        Of the client, if `place` is a folder. The client ``admin`` has the right to administer the
        cluster if its file is issued here.
    """
    path = Path(place)
    if not path.exists():
        raise CredentialsError(str(path), "there is no such file or folder; run: crescando certs init")
    rights = (f"{ADMINISTRATOR}/{name}",) if name == ADMINISTRATOR else ()
    return FileCredentials(_file(path, None, "client", name, rights) if path.is_dir() else path)


def _file(folder: Path, cluster: str | None, role: str, node: str, further: tuple[str, ...]) -> Path:
    path = file_of(folder, role, node)
    try:
        from crescando.certificates import AUTHORITY_KEY_FILE, Authority
    except ImportError:
        # Without cryptography certificates can be used, and not made.
        has_authority = False
    else:
        has_authority = (folder / AUTHORITY_KEY_FILE).exists()
    if has_authority:
        authority = Authority(folder)
        if cluster is not None and authority.cluster != cluster:
            raise CredentialsError(
                str(folder), f"it is the authority of {authority.cluster!r}, and the cluster is {cluster!r}"
            )
        return authority.ensure(f"{role}/{node}", *further)
    if not path.exists():
        names = " ".join((f"{role}/{node}", *further))
        raise CredentialsError(
            str(path),
            "there is none; run: crescando certs init, "
            f"or where the authority is: crescando certs issue --together {path} {names}",
        )
    return path
