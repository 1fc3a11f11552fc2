"""Why there is no session, in words that name the mend.

TLS tells the side that is refused little, and that late: under TLS 1.3 a
client learns of it with its first answer. What it does tell is translated here.

Rules of the file: translations only. A cause is *permanent* if trying again
cannot help until somebody changes a file or a setting.
"""

from __future__ import annotations

import os
import ssl
from typing import NamedTuple

MAGIC_BYTES = b"CRDO"
"""What every frame begins with."""


class Cause(NamedTuple):
    """Why a connection has ended, or was never made."""

    text: str
    is_permanent: bool = False


PEER_CLOSED = Cause("the peer closed the connection")

CLOSED_IN_HANDSHAKE = Cause(
    "the peer closed the connection within the TLS handshake; if it always does, its port does not speak TLS"
)

_VERIFY = {
    2: "its certificate's issuer is not among the authorities this process trusts",
    3: "there is no revocation list of its issuer; give one, or turn the check off",
    9: "its certificate is not valid yet; compare the clocks of the two hosts",
    10: "its certificate has expired; renew it with `crescando certs rotate`",
    11: "the revocation list is not valid yet; compare the clocks of the two hosts",
    12: "the revocation list has expired; fetch a new one",
    18: "its certificate is signed by itself and not by an authority this process trusts",
    19: "its certificate's issuer is not among the authorities this process trusts",
    20: "its certificate's issuer is not among the authorities this process trusts",
    21: "its certificate's issuer is not among the authorities this process trusts",
    23: "its certificate is revoked",
    24: "its certificate's issuer is no authority",
    26: "its certificate may not be used for this side of a connection",
    79: "its certificate's issuer is no authority",
}
"""By OpenSSL's number of the fault; `X509_V_ERR_…`."""

_ALERTS = {
    "CERTIFICATE_REQUIRED": "the peer demands a certificate and this process showed none",
    "CERTIFICATE_EXPIRED": "the peer holds this process's certificate for expired; renew it with "
    "`crescando certs rotate`, and compare the clocks of the two hosts",
    "CERTIFICATE_REVOKED": "the peer knows that this process's certificate is revoked; issue a new one",
    "CERTIFICATE_UNKNOWN": "the peer does not accept this process's certificate",
    "UNSUPPORTED_CERTIFICATE": "this process's certificate may not be used for this side of a connection",
    "BAD_CERTIFICATE": "the peer holds this process's certificate for invalid; compare the clocks of the "
    "two hosts, and check it with `crescando certs check`",
    "UNKNOWN_CA": "the peer does not trust the authority that issued this process's certificate",
    "PROTOCOL_VERSION": "the peer speaks no TLS 1.3",
    "HANDSHAKE_FAILURE": "the peer shares no way of encryption with this process",
    "DECRYPT_ERROR": "this process's key does not belong to its certificate",
    "NO_APPLICATION_PROTOCOL": "the peer does not speak crescando's protocol",
}
"""By the alert's name, as OpenSSL has it behind ``ALERT_``."""

_SPOKEN = {
    b"\x16\x03": "TLS is spoken to a plain port: one side has certificates and the other has none",
    b"\x15\x03": "a TLS port answers: one side has certificates and the other has none",
    b"GET ": "HTTP is spoken to this port",
    b"POST": "HTTP is spoken to this port",
    b"PUT ": "HTTP is spoken to this port",
    b"HEAD": "HTTP is spoken to this port",
    b"OPTI": "HTTP is spoken to this port",
    b"PRI ": "HTTP/2 is spoken to this port",
    b"SSH-": "SSH is spoken to this port",
    MAGIC_BYTES: "TLS is spoken on one side only: one has certificates and the other has none",
}
"""By what a stream begins with that is not what was expected."""


def words_of(error: Exception) -> str:
    """Give what the system says of a fault, without its number and without Python's own wording."""
    if isinstance(error, OSError) and error.errno is not None:
        # Those of looking up names are negative, and no number of the system.
        return os.strerror(error.errno) if error.errno > 0 else error.strerror or str(error)
    return str(error)


def spoken(first: bytes) -> str:
    """Say what a stream seems to be that begins so; empty if nobody knows."""
    for begin, text in _SPOKEN.items():
        if first.startswith(begin):
            return text
    return ""


def cause_of(error: ssl.SSLError, first: bytes) -> Cause:
    """Say what a failed TLS handshake, or a broken TLS stream, means.

    Parameters
    ----------
    error : ssl.SSLError
    first : bytes
        What the peer said first.
    """
    if isinstance(error, ssl.SSLCertVerificationError):
        text = _VERIFY.get(error.verify_code, f"its certificate is not valid: {error.verify_message}")
        return Cause(f"the peer is refused: {text}", is_permanent=True)
    reason = error.reason or ""
    if reason == "PEER_DID_NOT_RETURN_A_CERTIFICATE":
        return Cause("the peer is refused: it showed no certificate", is_permanent=True)
    if reason == "UNSUPPORTED_PROTOCOL":
        return Cause("the peer is refused: it speaks no TLS 1.3", is_permanent=True)
    _, is_alert, alert = reason.partition("ALERT_")
    if is_alert and alert in _ALERTS:
        return Cause(f"the peer refused this process: {_ALERTS[alert]}", is_permanent=True)
    if first[:1] not in (b"\x15", b"\x16"):
        # TLS begins with a handshake or an alert, always.
        return Cause(spoken(first) or "the other side does not speak TLS: is it the right port?", True)
    return Cause(f"the TLS stream is broken: {reason or error}")
