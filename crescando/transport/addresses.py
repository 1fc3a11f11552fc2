"""Where a process listens, as people write it."""

from __future__ import annotations

from typing import Any

from crescando.errors import SpecError

PORT_MAX = 65_535


def parse_address(text: Any, what: str = "an address", *, may_be_free: bool = False) -> tuple[str, int]:
    """Give host and port of ``host:port``; IPv6 addresses stand in brackets.

    Parameters
    ----------
    text : str
    what : str
        Whose it is, for the error.
    may_be_free : bool
        Whether port 0 may be given, for any that is free.

    Raises
    ------
    SpecError
        If it is none.
    """
    host, _, port = text.rpartition(":") if isinstance(text, str) else ("", "", "")
    host = host.removeprefix("[").removesuffix("]")
    lowest = 0 if may_be_free else 1
    if not host or not port.isascii() or not port.isdigit() or not lowest <= int(port) <= PORT_MAX:
        raise SpecError(f"{what} must be host:port with a port of {lowest} to {PORT_MAX}, not {text!r}")
    return host, int(port)
