"""DuckDB, in memory: a batch of reads or updates as one statement over a table of constants."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.rivals.base import THREADS, Rival, Ways, exploded, hex_buckets
from benchmarks.tickets.work import DAY_US, OUTPUTS, Changes, Points, Prefixes, Spans, TextSpans

BUCKET_DIGITS = 4
FIVE = ", ".join(f"t.{name}" for name in OUTPUTS)
TEXT = "t.ticket_id, t.document"


class DuckDB(Rival):
    """One database in memory with a table of its own."""

    name = "duckdb"
    module = "duckdb"
    package = "duckdb"
    lacks = "no order between reads and writes of a batch; an UPDATE FROM needs distinct keys"

    def load(self, table: pa.Table) -> None:
        import duckdb

        self._base = duckdb.connect()
        self._base.execute(f"set threads = {THREADS}")
        self._base.register("rows_", table)
        self._base.execute("create table tickets as select * from rows_")
        self._base.unregister("rows_")
        self.has_index = False

    def close(self) -> None:
        base = self.__dict__.pop("_base", None)
        if base is not None:
            base.close()

    def make_index(self) -> None:
        """Give it an index on the bookings; a table of its own, since an index slows joins and updates."""
        self._base.execute("create table indexed as select * from tickets")
        self._base.execute("create index by_rloc on indexed (rloc)")

    def drop_index(self) -> None:
        """Free the indexed copy."""
        self._base.execute("drop table indexed")

    def one(self, key: str) -> Any:
        """One read of one value by a call of its own."""
        return self._base.execute(
            f"select {', '.join(OUTPUTS)} from tickets where rloc = ?", [key]
        ).fetchnumpy()

    def one_indexed(self, key: str) -> Any:
        """The same on the table with an index."""
        return self._base.execute(
            f"select {', '.join(OUTPUTS)} from indexed where rloc = ?", [key]
        ).fetchnumpy()

    def _joined(self, sql: str, **constants: pa.Table) -> pa.Table:
        for name, table in constants.items():
            self._base.register(name, table)
        try:
            return self._base.sql(sql).to_arrow_table()
        finally:
            for name in constants:
                self._base.unregister(name)

    def points(self) -> Ways:
        """Ways to do reads of one value each."""

        def columns(work: Points) -> str:
            return FIVE if work.column == "rloc" else TEXT

        def joined(work: Points) -> pa.Table:
            keys = pa.table({"op": range(len(work)), "key": work.keys})
            sql = (
                f"select k.op, {columns(work)} from tickets t join k on t.{work.column} = k.key order by k.op"
            )
            return self._joined(sql, k=keys)

        def listed(work: Points) -> pa.Table:
            sql = (
                f"select k.op, {columns(work)} from tickets t join "
                "(select unnest($1::varchar[]) as key, unnest(range(len($1))) as op) k "
                f"on t.{work.column} = k.key order by k.op"
            )
            return self._base.sql(sql, params=[work.keys]).to_arrow_table()

        return {"join with Arrow constants": joined, "join with a list parameter": listed}

    def days(self) -> Ways:
        """Ways to do reads of an origin on some days."""

        def equal(work: Spans) -> pa.Table:
            ops, keys, days = exploded(work.keys, work.lows, work.highs)
            wanted = pa.table({"op": ops, "key": keys, "day": pa.array(days, pa.int32()).cast(pa.date32())})
            sql = (
                f"select k.op, {FIVE} from tickets t join k "
                "on t.origin = k.key and t.dep_date = k.day order by k.op"
            )
            return self._joined(sql, k=wanted)

        return {
            "days as keys": equal,
            "join on equality and range": lambda work: self._ranged(work, pa.int32(), pa.date32()),
        }

    def instants(self) -> Ways:
        """Ways to do reads of an origin between two instants."""
        return {"join on equality and range": lambda work: self._ranged(work, pa.int64(), _INSTANT)}

    def instants_by_hand(self) -> Ways:
        """The trick of an expert: instants cut into days, joined on these, and filtered."""

        def bucketed(work: Spans) -> pa.Table:
            lows, highs = [low // DAY_US for low in work.lows], [high // DAY_US for high in work.highs]
            ops, keys, days = exploded(work.keys, lows, highs)
            wanted = pa.table(
                {
                    "op": ops,
                    "key": keys,
                    "day": days,
                    "low": [work.lows[op] for op in ops],
                    "high": [work.highs[op] for op in ops],
                }
            )
            sql = (
                f"select k.op, {FIVE} from (select *, epoch_us(departure) as us from tickets) t join k "
                f"on t.origin = k.key and t.us // {DAY_US} = k.day "
                "where t.us between k.low and k.high order by k.op"
            )
            return self._joined(sql, k=wanted)

        return {"days as buckets": bucketed}

    def _ranged(self, work: Spans, physical: Any, kind: Any) -> pa.Table:
        wanted = pa.table(
            {
                "op": range(len(work)),
                "key": work.keys,
                "low": pa.array(work.lows, physical).cast(kind),
                "high": pa.array(work.highs, physical).cast(kind),
            }
        )
        sql = (
            f"select k.op, {FIVE} from tickets t join k "
            f"on t.origin = k.key and t.{work.column} between k.low and k.high order by k.op"
        )
        return self._joined(sql, k=wanted)

    def prefixes(self) -> Ways:
        """Ways to do reads by the beginning of a text."""

        def by_length(work: Prefixes) -> pa.Table:
            wanted = pa.table({"op": range(len(work)), "prefix": work.prefixes})
            parts = " union all ".join(
                f"select k.op, {TEXT} from tickets t join "
                f"(select * from k where length(prefix) = {length}) k "
                f"on left(t.document, {length}) = k.prefix"
                for length in sorted(set(map(len, work.prefixes)))
            )
            return self._joined(f"select * from ({parts}) order by op", k=wanted)

        return {"a join per length": by_length}

    def text_spans(self) -> Ways:
        """Ways to do reads of a range of texts."""

        def ranged(work: TextSpans) -> pa.Table:
            wanted = pa.table({"op": range(len(work)), "low": work.lows, "high": work.highs})
            sql = (
                f"select k.op, {TEXT} from tickets t join k "
                "on t.document >= k.low and t.document <= k.high order by k.op"
            )
            return self._joined(sql, k=wanted)

        def bucketed(work: TextSpans) -> pa.Table:
            ops, keys = hex_buckets(work.lows, work.highs, BUCKET_DIGITS)
            wanted = pa.table(
                {
                    "op": ops,
                    "bucket": keys,
                    "low": [work.lows[op] for op in ops],
                    "high": [work.highs[op] for op in ops],
                }
            )
            sql = (
                f"select k.op, {TEXT} from tickets t join k on left(t.document, {BUCKET_DIGITS}) = k.bucket "
                "where t.document between k.low and k.high order by k.op"
            )
            return self._joined(sql, k=wanted)

        return {"beginnings as buckets": bucketed, "range join": ranged}

    def changes(self) -> Ways:
        """Ways to do updates of distinct bookings."""

        def from_arrow(work: Changes) -> int:
            wanted = pa.table({"key": work.keys, "delta": pa.array(work.deltas, pa.int32())})
            self._base.register("k", wanted)
            try:
                done = self._base.execute(
                    "update tickets set miles = miles + k.delta from k where rloc = k.key"
                ).fetchall()
            finally:
                self._base.unregister("k")
            return int(done[0][0])

        return {"UPDATE FROM": from_arrow}

    def miles(self) -> int:
        """Give a checksum of the column that updates change."""
        found = self._base.execute("select sum(miles::hugeint * (ticket_id % 1000)) from tickets").fetchall()
        return int(found[0][0])

    def n_bytes(self) -> int:
        """What the rows take."""
        found = self._base.execute(
            "select sum(memory_usage_bytes) from duckdb_memory() where tag in "
            "('BASE_TABLE', 'IN_MEMORY_TABLE', 'ART_INDEX')"
        ).fetchall()
        return int(found[0][0] or 0)


_INSTANT = pa.timestamp("us", tz="UTC")
