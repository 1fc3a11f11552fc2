"""Which role may say what to which role: what is not listed here is refused.

Rules of the file: a table and nothing else. It is read where bytes become
messages (`wire.decoder_for`), so that what may not come is never built. A new
kind of message travels once it stands in the union of `wire` *and* here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from crescando.consensus.multipaxos.messages import (
    Accept,
    Accepted,
    Canvass,
    CanvassReply,
    Decided,
    Fetch,
    Heartbeat,
    HeartbeatReply,
    Nack,
    Petition,
    Prepare,
    Promise,
    Removed,
    Snapshot,
)
from crescando.engine.base import Results
from crescando.roles.copy_messages import (
    AskCopies,
    CopiesTold,
    CopyHead,
    CopyUnknown,
    FetchParcels,
    Parcel,
)
from crescando.roles.description import NODE, ChangeRouters, Describe, Described, RoutersChanged
from crescando.roles.load_messages import AskStaged, Bring, Brought, Lack, StagedTold, Unknown
from crescando.roles.messages import (
    Answered,
    AskPinned,
    Attach,
    BasicRefused,
    Explain,
    Explains,
    Forget,
    Inquire,
    Inquired,
    PinAnswered,
    Ping,
    Pong,
    ReadBasic,
    ReadReplica,
    Retire,
    Retires,
    Taken,
    Watch,
    Watched,
    Weigh,
    Weighs,
)
from crescando.routing.ecast.messages import (
    ConfigRequest,
    ConfigState,
    Confirm,
    Deliver,
    DeliverRead,
    Expelled,
    Fenced,
    Hello,
    Inject,
    Lease,
    LeaseRequest,
    Outdated,
    Pulse,
    Quorum,
    ReadRefused,
    Resume,
    Route,
    Routers,
    Stable,
    StableUpTo,
    Welcome,
)
from crescando.types import ProcessId

CLIENT, STORAGE, SUPER, ROUTER = "client", "storage", "super", "router"

ROLES = (ROUTER, STORAGE, SUPER, CLIENT, NODE)
"""Every role there is; no other one gets a certificate or a session."""

_TO_THE_ORDER = (Hello, Resume, Route, Fenced, Confirm, ConfigRequest)
_FROM_THE_ORDER = (
    Welcome,
    Routers,
    Deliver,
    DeliverRead,
    Stable,
    Pulse,
    Expelled,
    Outdated,
    ConfigState,
    ReadRefused,
    Quorum,
)

PERMITS: Mapping[tuple[str, str], tuple[type, ...]] = {
    (ROUTER, ROUTER): (
        Accept,
        Accepted,
        Canvass,
        CanvassReply,
        Decided,
        Fetch,
        Heartbeat,
        HeartbeatReply,
        Nack,
        Petition,
        Prepare,
        Promise,
        Removed,
        Snapshot,
        StableUpTo,
    ),
    (ROUTER, CLIENT): _FROM_THE_ORDER,
    (ROUTER, STORAGE): (*_FROM_THE_ORDER, Lease),
    (ROUTER, SUPER): _FROM_THE_ORDER,
    (CLIENT, ROUTER): (*_TO_THE_ORDER, Inject),
    (STORAGE, ROUTER): (*_TO_THE_ORDER, LeaseRequest),
    (SUPER, ROUTER): _TO_THE_ORDER,
    (CLIENT, STORAGE): (
        Answered,
        AskCopies,
        AskPinned,
        AskStaged,
        Attach,
        Bring,
        Explain,
        Forget,
        Inquire,
        Ping,
        ReadBasic,
        ReadReplica,
        Retire,
        Taken,
        Unknown,
        Weigh,
    ),
    (STORAGE, CLIENT): (
        BasicRefused,
        Brought,
        CopiesTold,
        Explains,
        Inquired,
        Lack,
        PinAnswered,
        Pong,
        ReadRefused,
        Results,
        Retires,
        StagedTold,
        Weighs,
    ),
    (STORAGE, STORAGE): (Bring, CopyHead, CopyUnknown, FetchParcels, Lack, Parcel, Unknown),
    (SUPER, STORAGE): (Ping, Weigh),
    (STORAGE, SUPER): (Pong, Weighs),
    (SUPER, CLIENT): (Ping, Retires, Watched),
    (CLIENT, SUPER): (Pong, Retire, Watch),
    (SUPER, SUPER): (Ping, Pong),
    (CLIENT, NODE): (ChangeRouters, Describe),
    (NODE, CLIENT): (Described, RoutersChanged),
    (NODE, NODE): (Describe, Described),
}
"""What may travel, by sender's and receiver's role; pairs that are not here have no session."""

SENDERS: Mapping[type, Callable[[Any], ProcessId]] = {
    Accept: lambda message: message.ballot.node,
    Prepare: lambda message: message.ballot.node,
    Heartbeat: lambda message: message.ballot.node,
    Deliver: lambda message: message.ballot.node,
    DeliverRead: lambda message: message.ballot.node,
    Pulse: lambda message: message.ballot.node,
    Route: lambda message: message.submission.sender,
    Inject: lambda message: message.reads.sender,
    ReadBasic: lambda message: message.reads.sender,
    Results: lambda message: message.process,
    Explains: lambda message: message.explanation.process,
}
"""Whom a message names as the one that sends it; it must be the peer of the session (RB13 §5.2)."""
