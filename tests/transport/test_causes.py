"""What the system says of a fault, in the words that a person is shown."""

from __future__ import annotations

import errno
import socket

from crescando.transport.causes import words_of


def test_a_fault_is_told_in_the_systems_words_and_without_its_number() -> None:
    assert words_of(ConnectionRefusedError(errno.ECONNREFUSED, "Connection refused")) == "Connection refused"
    # As asyncio has it.
    connecting = ConnectionRefusedError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 7401)")
    assert words_of(connecting) == "Connection refused"
    unknown = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
    assert words_of(unknown) == "Name or service not known"
    assert words_of(OSError("all of them failed")) == "all of them failed"
    assert words_of(ValueError("no PEM")) == "no PEM"
