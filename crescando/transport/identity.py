"""Who a certificate is for: the names in it, and whether they are those that a peer claims.

A process is named ``crescando://<cluster>/<role>/<node>`` in the subject's
alternative names. A certificate may name several, for the processes of one
operating-system process. The incarnation is the process's own word, since
certificates outlive it.

Rules of the file: words and checks only; a name is compared whole, never by
pattern, and one that is malformed is nobody's.
"""

from __future__ import annotations

import re
import ssl
from dataclasses import dataclass
from typing import Any, NamedTuple

from crescando.types import ProcessId

SCHEME = "crescando://"

ADMINISTRATOR = "admin"
"""No role of a process but a right: whoever is ``client/x`` and ``admin/x`` may administer the cluster."""

NAME_CHARACTERS_MAX = 63

_NAME = re.compile(rf"[A-Za-z0-9][A-Za-z0-9._-]{{0,{NAME_CHARACTERS_MAX - 1}}}")
"""Of a cluster, a role or a node; nothing in it means anything to a URI, a file system or a log."""


class Identity(NamedTuple):
    """A process's name, whatever its incarnation."""

    cluster: str
    role: str
    node: str

    def __str__(self) -> str:
        return f"{SCHEME}{self.cluster}/{self.role}/{self.node}"


def is_name(text: str) -> bool:
    """Say whether a text can name a cluster, a role or a node."""
    return _NAME.fullmatch(text) is not None


def identity_of(uri: str) -> Identity | None:
    """Give the identity that a URI states, or None if it states none."""
    parts = uri.removeprefix(SCHEME).split("/")
    if not uri.startswith(SCHEME) or len(parts) != 3 or not all(map(is_name, parts)):
        return None
    return Identity(*parts)


@dataclass(frozen=True, slots=True)
class Certificate:
    """What matters of a certificate that was verified.

    Attributes
    ----------
    identities : frozenset of Identity
    serial : str
        In hexadecimal digits.
    begins_s, expires_s : float
        Seconds since 1970, by the calendar's clock.
    malformed : tuple of str
        Names that begin as one of ours does, and are none.
    """

    identities: frozenset[Identity]
    serial: str
    begins_s: float
    expires_s: float
    malformed: tuple[str, ...] = ()

    def is_aging(self, today_s: float) -> bool:
        """Whether it ought to have been renewed: less than a quarter of its life is left."""
        return self.expires_s - today_s < (self.expires_s - self.begins_s) / 4

    def fault_of(self, cluster: str, process: ProcessId) -> str:
        """Say why this is not the certificate of a process; empty if it is."""
        wanted = Identity(cluster, process.role, process.node)
        if self.malformed:
            return f"a certificate must not name {self.malformed[0]!r:.200}, which is no process"
        if wanted in self.identities:
            return ""
        if not self.identities:
            return f"the certificate {self.serial} names no process; it must name {wanted}"
        names = ", ".join(sorted(map(str, self.identities)))
        if all(identity.cluster != cluster for identity in self.identities):
            return f"the certificate is of another cluster: it names {names}, not {wanted}"
        return f"the certificate names {names}, not {wanted}"

    def right_fault_of(self, cluster: str, process: ProcessId) -> str:
        """Say why a client may not administer the cluster; empty if it may.

        Of other roles nothing is said: what they may do follows from the role.
        """
        if process.role != "client" or Identity(cluster, ADMINISTRATOR, process.node) in self.identities:
            return ""
        return (
            f"the certificate {self.serial} of client/{process.node} gives no right to administer "
            f"the cluster {cluster!r}; one that does is made by: "
            f"crescando certs issue --admin client/{process.node}"
        )


def certificate_of(ssl_object: Any) -> Certificate | None:
    """Give what the peer's certificate says once a handshake is over; None without one.

    Parameters
    ----------
    ssl_object : ssl.SSLObject
        Of a context that verifies the peer: of others nothing is believed.
    """
    shown = ssl_object.getpeercert()
    if not shown:
        return None
    names = [value for kind, value in shown.get("subjectAltName", ()) if kind == "URI"]
    ours = [name for name in names if name.lower().startswith(SCHEME)]
    identities = {name: identity_of(name) for name in ours}
    return Certificate(
        identities=frozenset(known for known in identities.values() if known is not None),
        serial=shown["serialNumber"].lower(),
        begins_s=float(ssl.cert_time_to_seconds(shown["notBefore"])),
        expires_s=float(ssl.cert_time_to_seconds(shown["notAfter"])),
        malformed=tuple(name for name, known in identities.items() if known is None),
    )
