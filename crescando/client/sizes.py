"""How long a request may be: whoever takes it takes no longer ones, and is not to be asked in vain.

Rules of the file: what is too long is refused before anything is sent, since it would be sent again
and again; only values that can be of any length are looked at.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from typing import Any

from crescando.client.base import Request
from crescando.engine.statement import Column
from crescando.errors import StatementError

_NUMBER_BYTES = 9
"""Of a value in the list of an IN, at most."""

_FEW, _SHORT = 1024, 1024
"""So few texts that are so short are never too long."""


def are_short(parameters: Sequence[object]) -> bool:
    """Say whether it is seen at a glance that constants are not too long: most never are."""
    if len(parameters) > _FEW:
        return False
    for value in parameters:
        kind = type(value)
        if kind is tuple or ((kind is str or kind is bytes) and len(value) > _SHORT):  # type: ignore[arg-type]
            return False
    return True


def are_all_short(columns: Sequence[Sequence[object]]) -> bool:
    """Say of many operations, whose constants come column by column, what `are_short` says of each."""
    if len(columns) > _FEW:
        return False
    for column in columns:
        kinds = set(map(type, column))
        if tuple in kinds:
            return False
        if not kinds.isdisjoint((str, bytes)):
            texts: Iterable[Any] = column
            if len(kinds) > 1:
                texts = [value for value in column if isinstance(value, (str, bytes))]
            if max(map(len, texts)) > _SHORT:
                return False
    return True


def bytes_of(parameter: object) -> int:
    """Give about how long a parameter is on its way; of a single number, 0."""
    if isinstance(parameter, Column):
        n_valid = 0 if parameter.valid is None else parameter.valid.nbytes
        return parameter.values.nbytes + n_valid + parameter.texts.n_bytes
    if isinstance(parameter, str):
        return len(parameter) if parameter.isascii() else len(parameter.encode(errors="surrogatepass"))
    if isinstance(parameter, bytes):
        return len(parameter)
    if isinstance(parameter, tuple):
        return _NUMBER_BYTES * len(parameter) + bytes_of_all(parameter)
    return 0


def bytes_of_all(parameters: Iterable[object]) -> int:
    """Give about how long parameters are together."""
    return sum(map(bytes_of, parameters))


def checked_size(request: Request, bytes_max: int) -> Request:
    """Give a request as it is, if it can be sent.

    Parameters
    ----------
    request : Request
    bytes_max : int
        How long it may be; see `Backend.request_bytes_max`.

    Raises
    ------
    StatementError
        If it is longer.
    """
    n_bytes = bytes_of_all(chain(request.parameters, *(step.parameters for step in request.then)))
    if n_bytes > bytes_max:
        if request.then:
            what, mend = "the transaction", "write fewer rows in one, or store large values in pieces"
        elif request.shape.columns:
            what, mend = "one row", "store large values in pieces"
        else:
            what, mend = "the statement's values", "give shorter lists and texts, in several statements"
        raise StatementError(
            f"{what} would be {n_bytes / 2**20:,.0f} MiB long, and {bytes_max >> 20} MiB are sent at "
            f"most; nothing was sent: {mend}"
        )
    return request
