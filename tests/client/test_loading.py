"""Large loads are cut along the ring: every row once, equal positions in their order."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import crescando
from crescando import col, param
from crescando.client import loading
from crescando.client.base import REQUEST_BYTES_MAX
from crescando.client.columns import Deal, column_from_list, deal, take
from crescando.client.intake import take_in
from crescando.client.loading import load_requests
from crescando.client.sizes import bytes_of_all
from crescando.engine.statement import Column, Kind
from crescando.errors import StatementError
from crescando.roles.limits import ClientLimits
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.spec import ClusterSpec
from crescando.transport.handshake import SocketLimits

SCHEMA = TableSchema(
    "t",
    (
        ColumnDef("k", DataType.INT64, False),
        ColumnDef("n", DataType.INT64),
        ColumnDef("few", DataType.STRING),
        ColumnDef("many", DataType.STRING),
    ),
    "k",
).with_ids(1)


def loaded(columns: dict[str, list[Any]]) -> list[list[tuple[Any, ...]]]:
    """Give the rows of each operation."""
    requests = load_requests(Kind.INSERT, SCHEMA, take_in(SCHEMA, columns))
    return [list(zip(*(c.to_list() for c in request.parameters), strict=True)) for request in requests]


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("n_keys", [2, 40, 10_000])
def test_every_row_is_sent_once_and_equal_keys_in_order(
    seed: int, n_keys: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "ROWS_MAX", 16)
    monkeypatch.setattr(loading, "PARTS", 3)
    rng = np.random.default_rng(seed)
    n = int(rng.integers(17, 200))
    columns: dict[str, list[Any]] = {
        "k": rng.integers(0, n_keys, n).tolist(),
        "n": list(range(n)),
        "few": [None if i % 7 == 0 else f"f{i % 3}" for i in range(n)],
        "many": [None if i % 5 == 0 else "x" * (i % 11) + f"-{i}" for i in range(n)],
    }
    operations = loaded(columns)
    assert max(map(len, operations)) <= 16
    # Few operations are sent half full.
    assert len(operations) <= -(-n // 8)
    sent = [row for rows in operations for row in rows]
    assert sorted(sent, key=lambda row: row[1]) == list(zip(*columns.values(), strict=True))
    for key in set(columns["k"]):
        numbers = [row[1] for row in sent if row[0] == key]
        assert numbers == sorted(numbers)


@pytest.mark.parametrize("kind", ["few", "many", "all NULL"])
def test_parts_of_a_column_are_its_rows(kind: str) -> None:
    texts: dict[str, list[Any]] = {
        "few": [None if i % 9 == 0 else "ab"[i % 2] for i in range(5_000)],
        "many": [None if i % 9 == 0 else f"text {i * i % 4_999}" for i in range(5_000)],
        "all NULL": [None] * 5_000,
    }
    column: Column = column_from_list(texts[kind], ColumnDef("c", DataType.STRING))
    rng = np.random.default_rng(1)
    rows = rng.permutation(5_000)[:3_000]
    share = rng.choice((0, 0, 0, 1, 3, 3, 4), 3_000).astype(np.uint8)
    dealt = Deal.of(rows, share, 6)
    parts = list(dealt.parts())
    assert [part.tolist() for part in parts] == [rows[share == number].tolist() for number in range(6)]
    for part, taken in zip(parts, deal(column, dealt), strict=True):
        expected = [texts[kind][row] for row in part.tolist()]
        assert taken.to_list() == expected
        assert take(column, part).to_list() == expected
        taken.texts.check()


def test_what_is_too_long_for_one_message_is_not_sent() -> None:
    """It would be sent again and again, since nobody takes it: neither a row nor a transaction nor a read."""
    with crescando.open(spec=ClusterSpec(client=ClientLimits(request_bytes=3 << 20))) as store:
        table = store.create_table(SCHEMA)
        for place in range(2):
            table.insert({"k": [place], "n": [1], "few": ["f"], "many": ["x" * (2 << 20)]}).result()

        with pytest.raises(StatementError, match=r"one row would be 4 MiB long, and 3 MiB are sent at most"):
            table.insert({"k": [2, 3], "many": ["x", "y" * (4 << 20)]})
        long = ["é" * (1 << 20), "x" * (2 << 20)]
        with pytest.raises(StatementError, match="the statement's values would be 4 MiB long, and 3 MiB are"):
            table.select(["k"], where=col("many").isin(long))
        with pytest.raises(StatementError, match="the statement's values would be 4 MiB long"):
            table.update(col("k") == 1, {"few": long[0], "many": long[1]})
        prepared = table.prepare_select(["k"], where=col("n").isin(param("list")))
        for ask in (prepared, prepared.bind, prepared.explain, lambda params: prepared.many([params])):
            with pytest.raises(StatementError, match="the statement's values would be 4 MiB long"):
                ask({"list": list(range(500_000))})
        transaction = store.transaction()
        for place in (4, 5):
            transaction.table("t").insert({"k": [place], "many": ["z" * (2 << 20)]})
        with pytest.raises(StatementError, match="the transaction would be 4 MiB long"):
            transaction.__exit__(None, None, None)

        assert sorted(table.select(["k"]).rows()) == [(0,), (1,)]
        # Rows are cut apart: each of these can be sent, and all of them together cannot.
        written = table.insert({"k": [6, 7, 8], "many": ["x" * (2 << 20), "y" * (2 << 20), None]}).result()
        assert written.affected == 3
        assert len(table.select(["k"], where=col("many").length() == 2 << 20).rows()) == 4


@pytest.mark.parametrize("n_rows", [20, 300])
def test_long_rows_are_cut_into_operations_that_can_be_sent(
    n_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However long some are among the others, and however few: every row once, equal keys in order."""
    monkeypatch.setattr(loading, "PIECE_BYTES", 4_000)
    rng = np.random.default_rng(n_rows)
    columns: dict[str, list[Any]] = {
        "k": rng.integers(0, n_rows // 4, n_rows).tolist(),
        "n": list(range(n_rows)),
        "many": [chr(97 + i % 26) * int(2 ** rng.uniform(0, 13)) + str(i) for i in range(n_rows)],
    }
    requests = list(load_requests(Kind.INSERT, SCHEMA, take_in(SCHEMA, columns), bytes_max=10_000))
    operations = [list(zip(*(c.to_list() for c in each.parameters), strict=True)) for each in requests]

    assert len(operations) < n_rows // 2
    assert max(bytes_of_all(request.parameters) for request in requests) <= 10_000
    sent = [(row[0], row[1], row[-1]) for rows in operations for row in rows]
    assert sorted(sent, key=lambda row: row[1]) == list(zip(*columns.values(), strict=True))
    for key in set(columns["k"]):
        numbers = [row[1] for row in sent if row[0] == key]
        assert numbers == sorted(numbers)


def test_clients_send_what_clusters_take() -> None:
    assert SocketLimits().request_bytes == REQUEST_BYTES_MAX == ClientLimits().request_bytes
