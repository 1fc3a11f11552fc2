"""The Rubberband routing configuration: a ring with successor replication (RB13 §6)."""

from crescando.routing.rubberband.catalog import Catalog
from crescando.routing.rubberband.config import Rubberband
from crescando.routing.rubberband.membership import Membership
from crescando.routing.rubberband.messages import (
    AddColumn,
    ConfigMessage,
    CreateTable,
    DropColumn,
    DropTable,
    Join,
    Leave,
    MessageId,
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
    "CreateTable",
    "DropColumn",
    "DropTable",
    "Join",
    "Leave",
    "Membership",
    "MessageId",
    "Ring",
    "Rubberband",
    "Suspect",
    "Trust",
    "decode_message",
    "encode_message",
]
