"""crescando: a main-memory, scan-only, elastic and strongly consistent relational store.

>>> import crescando
>>> from crescando import col
>>> with crescando.open() as store:
...     seats = store.create_table("seats", like={"flight": [1], "seat": ["1A"]}, primary_key="flight")
...     done = seats.insert([{"flight": 7, "seat": "3C"}, {"flight": 8, "seat": "9F"}]).result()
...     seats.select(where=col("seat").like("9%")).rows()
[(8, '9F')]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from crescando import errors
from crescando.client import agg, functions
from crescando.client.answer import Answer
from crescando.client.expression import Expr, col, lit, param
from crescando.client.handles import ReadHandle, TransactionHandle, WriteHandle
from crescando.client.inference import schema_from
from crescando.client.load import Load, StagedPart
from crescando.client.outcome import WriteResult
from crescando.client.pin import Pinned
from crescando.client.pinned import PinnedPart, PinTicket
from crescando.client.store import Session, Store
from crescando.client.table import Table
from crescando.client.textual import expr
from crescando.client.tickets import LoadOutcome, LoadTicket, PartReceipt
from crescando.client.transaction import Transaction
from crescando.interpreter import tune_interpreter
from crescando.schema import ColumnDef, DataType, HashPartition, RangePartition, TableSchema

if TYPE_CHECKING:
    from crescando.cluster import open
    from crescando.remote import connect, connect_async

__all__ = [
    "Answer",
    "ColumnDef",
    "DataType",
    "Expr",
    "HashPartition",
    "Load",
    "LoadOutcome",
    "LoadTicket",
    "PartReceipt",
    "PinTicket",
    "Pinned",
    "PinnedPart",
    "RangePartition",
    "ReadHandle",
    "Session",
    "StagedPart",
    "Store",
    "Table",
    "TableSchema",
    "Transaction",
    "TransactionHandle",
    "WriteHandle",
    "WriteResult",
    "agg",
    "col",
    "connect",
    "connect_async",
    "errors",
    "expr",
    "functions",
    "lit",
    "open",
    "param",
    "schema_from",
    "tune_interpreter",
]


def __getattr__(name: str) -> Any:
    # The composition root pulls in every layer; those who only build statements need none of it.
    if name == "open":
        from crescando.cluster import open as open_store

        return open_store
    if name in ("connect", "connect_async"):
        from crescando import remote

        return getattr(remote, name)
    raise AttributeError(f"module 'crescando' has no attribute {name!r}")
