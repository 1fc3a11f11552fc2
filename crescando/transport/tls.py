"""TLS of one connection, apart from how its bytes travel: plain bytes and sealed bytes, in and out.

The event loop's own TLS asks OpenSSL for a quarter of a megabyte at each
receive, which makes the C library map and unmap memory every time; that alone
costs more than everything done here. Memory is asked for by the record.

Rules of the file: nothing is received before the handshake is over; whatever a
call leaves to be sent is taken with `outgoing` before anything else happens.
"""

from __future__ import annotations

import contextlib
import ssl

RECORD_BYTES = 16384
"""The most that one TLS record holds."""

_ANY_NAME = "crescando"
"""Names are checked by the transport, against the certificate; this one only has to be there."""


class TlsStream:
    """One side of a TLS session.

    Parameters
    ----------
    context : ssl.SSLContext
    is_server : bool
        Whether this side answers; the other one begins.

    Attributes
    ----------
    ssl_object : ssl.SSLObject
        Knows the peer's certificate once the handshake is over.
    is_ready : bool
        Whether the handshake is over: from then on bytes can be sealed.
    is_over : bool
        Whether the peer has said that nothing more comes.
    """

    def __init__(self, context: ssl.SSLContext, *, is_server: bool) -> None:
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.ssl_object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=is_server,
            server_hostname=None if is_server else _ANY_NAME,
        )
        self.is_ready = False
        self.is_over = False

    def shake(self) -> None:
        """Go on with the handshake, as far as what was received allows.

        Raises
        ------
        ssl.SSLError
            If it fails; `outgoing` then tells the peer why.
        """
        try:
            self.ssl_object.do_handshake()
        except ssl.SSLWantReadError:
            return
        self.is_ready = True

    def receive(self, data: bytes) -> bytes:
        """Take sealed bytes; give the plain ones that are complete, perhaps none.

        Raises
        ------
        ssl.SSLError
            If the bytes are not what the peer has sealed, or the handshake fails.
        """
        self._incoming.write(data)
        if not self.is_ready:
            self.shake()
            if not self.is_ready:
                return b""
        read, incoming = self.ssl_object.read, self._incoming
        pieces = []
        try:
            while incoming.pending:
                piece = read(RECORD_BYTES)
                if not piece:
                    self.is_over = True
                    break
                pieces.append(piece)
        except ssl.SSLWantReadError:
            # A record that is not complete, or none of the application's.
            pass
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)

    def seal(self, data: bytes | memoryview) -> bytes:
        """Give what to send so that the peer receives `data`."""
        write = self.ssl_object.write
        n_sealed = write(data)
        if n_sealed < len(data):
            # One record is sealed at a time.
            rest = memoryview(data)
            while n_sealed < len(data):
                n_sealed += write(rest[n_sealed:])
        return self._outgoing.read()

    def outgoing(self) -> bytes:
        """Give what the handshake, or the session itself, has to send; perhaps nothing."""
        return self._outgoing.read() if self._outgoing.pending else b""

    def end(self) -> bytes:
        """Give what tells the peer that nothing more comes."""
        if self.is_ready:
            # The peer's own end is not waited for.
            with contextlib.suppress(ssl.SSLError):
                self.ssl_object.unwrap()
        return self.outgoing()
