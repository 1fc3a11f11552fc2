"""What takes the right to administer the cluster, and what becomes of it without.

A client has the right by its certificate (`transport.identity.ADMINISTRATOR`). Whoever reads and writes
tables may make and drop them too, since it can empty them as well; but who holds which range and who
orders is a matter of all tables and all clients, and no operation on rows can do as much harm.

Rules of the file: nothing is dropped here. What comes from a client without the right goes on with
why it is refused, so that whoever is asked answers with that: an ordered message in its own place,
alike at every router. It is looked at where bytes become messages (`wire.decoder_for`), so a sender
cannot leave it out, and whoever marks a message so itself denies only itself.
"""

from __future__ import annotations

from typing import Any

import msgspec

from crescando.errors import RemoteProtocolError
from crescando.roles.description import ChangeRouters
from crescando.roles.messages import Retire
from crescando.routing.batch import CONFIG, Submission, fault_of, offsets_of
from crescando.routing.ecast.messages import Route
from crescando.routing.rubberband.messages import (
    AbortLoad,
    AddColumn,
    BeginLoad,
    CloseLoad,
    CommitLoad,
    CreateTable,
    Denied,
    DropColumn,
    DropTable,
    ExpireLoad,
    HaveLoad,
    Join,
    Leave,
    Pin,
    PublishLoad,
    Ready,
    RenewLoad,
    SealLoad,
    Suspect,
    Trust,
    decode_message,
    encode_message,
)

ASKED = (ChangeRouters, Retire)
"""What only administrators ask of a process."""

FREE = (
    Join,
    Leave,
    # Tables, and what is read and loaded of them.
    CreateTable,
    DropTable,
    AddColumn,
    DropColumn,
    BeginLoad,
    RenewLoad,
    CloseLoad,
    CommitLoad,
    SealLoad,
    PublishLoad,
    AbortLoad,
    Pin,
    # No client may order these whatever its right: the order says who may.
    ExpireLoad,
    HaveLoad,
    Ready,
    Suspect,
    Trust,
)
"""What is ordered without the right; all other configuration messages take it."""


def without_right(message: Any, denial: str) -> Any:
    """Give what a message becomes that comes from a client without the right to administer.

    Parameters
    ----------
    message : wire message
    denial : str
        Why it has none.
    """
    if isinstance(message, ASKED):
        return msgspec.structs.replace(message, denial=denial)
    if isinstance(message, Route) and message.submission.has_config:
        return Route(_without_orders(message.submission, denial))
    return message


def _without_orders(batch: Submission, denial: str) -> Submission:
    """Put the denial in the place of orders that take the right."""
    if fault_of(batch):
        # Its payloads cannot be told apart; the router refuses all of it.
        return batch
    kinds = batch.kind.tolist()
    payloads = [batch.payload_of(index) for index in range(len(batch))]
    denied = [index for index, kind in enumerate(kinds) if kind == CONFIG and not _is_free(payloads[index])]
    if not denied:
        return batch
    answer = encode_message(Denied(denial))
    for index in denied:
        payloads[index] = answer
    return msgspec.structs.replace(
        batch, payload=b"".join(payloads), payload_offsets=offsets_of([len(payload) for payload in payloads])
    )


def _is_free(payload: bytes) -> bool:
    try:
        return isinstance(decode_message(payload), FREE)
    except RemoteProtocolError:
        # No message at all: the order refuses it, and says what it is not.
        return True
