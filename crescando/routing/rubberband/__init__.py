"""The Rubberband routing configuration: a ring with successor replication (RB13 §6)."""

from crescando.routing.rubberband.catalog import Catalog
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.keyspace import Contract, Copy, Expand, Rebalance, Replace, Transformation
from crescando.routing.rubberband.membership import Membership
from crescando.routing.rubberband.messages import (
    AddColumn,
    ConfigMessage,
    CreateTable,
    DropChange,
    DropColumn,
    DropTable,
    Join,
    Leave,
    MessageId,
    Pin,
    Ready,
    Reconfigure,
    Suspect,
    Trust,
    decode_message,
    encode_message,
)
from crescando.routing.rubberband.ring import Ring

__all__ = [
    "AddColumn",
    "Catalog",
    "ConfigMessage",
    "Contract",
    "Copy",
    "CreateTable",
    "DropChange",
    "DropColumn",
    "DropTable",
    "Expand",
    "Join",
    "Leave",
    "Membership",
    "MessageId",
    "Pin",
    "Ready",
    "Rebalance",
    "Reconfigure",
    "Replace",
    "Ring",
    "Rubberband",
    "Suspect",
    "Transformation",
    "Trust",
    "decode_message",
    "encode_message",
]
