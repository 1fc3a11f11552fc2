"""What a client process tells the one who asked it for something."""

from __future__ import annotations

import msgspec

from crescando.client.base import Explanation, ReadOutcome, WriteOutcome


class Completion(msgspec.Struct, frozen=True, gc=False):
    """Something a user waits for has happened.

    Attributes
    ----------
    token : int
        What the user called it.
    is_stable : bool
        True if this tells only that the operation is stable.
    outcome : ReadOutcome, WriteOutcome, Explanation, bytes or None
        Of a data operation; of a configuration request, the encoded Config.
    error : Exception or None
    """

    token: int
    is_stable: bool = False
    outcome: ReadOutcome | WriteOutcome | Explanation | bytes | None = None
    error: Exception | None = None
