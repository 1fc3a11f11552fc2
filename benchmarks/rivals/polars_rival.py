"""Polars: a batch of reads as a join with a frame of constants, written by hand."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from benchmarks.rivals.base import Rival, Ways, exploded, hex_buckets
from benchmarks.tickets.work import DAY_US, OUTPUTS, Points, Prefixes, Spans, TextSpans

BUCKET_DIGITS = 4


class Polars(Rival):
    """The frame, as strings and with the joined column as a category too."""

    name = "polars"
    module = "polars"
    package = "polars"
    lacks = "no order between reads and writes, no writes in place, no concurrent clients"

    def load(self, table: pa.Table) -> None:
        import polars as pl

        self.frame: Any = pl.from_arrow(table)
        coded: Any = self.frame
        self.coded = coded.with_columns(pl.col("rloc").cast(pl.Categorical))

    def close(self) -> None:
        self.__dict__.pop("frame", None)
        self.__dict__.pop("coded", None)

    def one(self, key: str) -> Any:
        """One read of one value by a call of its own."""
        import polars as pl

        return self.frame.filter(pl.col("rloc") == key).select(OUTPUTS)

    def one_coded(self, key: str) -> Any:
        """The same on a category."""
        import polars as pl

        return self.coded.filter(pl.col("rloc") == key).select(OUTPUTS)

    def points(self) -> Ways:
        """Ways to do reads of one value each."""
        import polars as pl

        def keys(work: Points) -> Any:
            return pl.DataFrame({"op": range(len(work)), work.column: work.keys}).lazy()

        def outputs(work: Points) -> tuple[str, ...]:
            # A text column that is looked up is given back too, as ours does with `document`.
            return OUTPUTS if work.column == "rloc" else ("ticket_id", "document")

        def from_keys(work: Points) -> pa.Table:
            joined = keys(work).join(self.frame.lazy(), on=work.column, maintain_order="left")
            return joined.select("op", *outputs(work)).collect().to_arrow()

        def from_rows(work: Points) -> pa.Table:
            joined = self.frame.lazy().join(keys(work), on=work.column)
            return joined.select("op", *outputs(work)).sort("op").collect().to_arrow()

        def streaming(work: Points) -> pa.Table:
            joined = self.frame.lazy().join(keys(work), on=work.column).select("op", *outputs(work))
            return joined.sort("op").collect(engine="streaming").to_arrow()

        def filtered(work: Points) -> pa.Table:
            wanted: Any = keys(work).collect()
            kept = self.frame.lazy().filter(pl.col(work.column).is_in(wanted[work.column].implode()))
            joined = kept.join(wanted.lazy(), on=work.column).select("op", *outputs(work))
            return joined.sort("op").collect().to_arrow()

        def coded(work: Points) -> pa.Table:
            if work.column != "rloc":
                return from_keys(work)
            wanted = keys(work).with_columns(pl.col("rloc").cast(pl.Categorical))
            joined = wanted.join(self.coded.lazy(), on="rloc", maintain_order="left")
            return joined.select("op", *OUTPUTS).collect().to_arrow()

        return {
            "constants joined with rows": from_keys,
            "rows joined with constants": from_rows,
            "streaming": streaming,
            "filter, then join": filtered,
            "categories": coded,
        }

    def days(self) -> Ways:
        """Ways to do reads of an origin on some days."""
        import polars as pl

        def equal(work: Spans) -> pa.Table:
            ops, keys, days = exploded(work.keys, work.lows, work.highs)
            wanted: Any = pl.DataFrame(
                {"op": ops, "origin": keys, "dep_date": pl.Series(days, dtype=pl.Int32)}
            )
            wanted = wanted.with_columns(pl.col("dep_date").cast(pl.Date))
            joined = self.frame.lazy().join(wanted.lazy(), on=["origin", "dep_date"])
            return joined.select("op", *OUTPUTS).sort("op").collect().to_arrow()

        def equal_from_keys(work: Spans) -> pa.Table:
            ops, keys, days = exploded(work.keys, work.lows, work.highs)
            wanted: Any = pl.DataFrame(
                {"op": ops, "origin": keys, "dep_date": pl.Series(days, dtype=pl.Int32)}
            )
            wanted = wanted.with_columns(pl.col("dep_date").cast(pl.Date)).lazy()
            joined = wanted.join(self.frame.lazy(), on=["origin", "dep_date"], maintain_order="left")
            return joined.select("op", *OUTPUTS).collect().to_arrow()

        return {
            "days as keys": equal,
            "days as keys, constants first": equal_from_keys,
            "join and filter": lambda work: self._ranged(work, pl.Int32, pl.Date),
        }

    def instants(self) -> Ways:
        """Ways to do reads of an origin between two instants."""
        import polars as pl

        def where(work: Spans) -> pa.Table:
            wanted = self._ranges(work, pl.Int64, pl.Datetime("us", "UTC"))
            joined = self.frame.lazy().join_where(
                wanted.rename({"origin": "key"}),
                pl.col("origin") == pl.col("key"),
                pl.col("departure") >= pl.col("low"),
                pl.col("departure") <= pl.col("high"),
            )
            return joined.select("op", *OUTPUTS).sort("op").collect().to_arrow()

        return {
            "join and filter": lambda work: self._ranged(work, pl.Int64, pl.Datetime("us", "UTC")),
            "join_where": where,
        }

    def instants_by_hand(self) -> Ways:
        """The trick of an expert: instants cut into days, joined on these, and filtered."""
        import polars as pl

        def bucketed(work: Spans) -> pa.Table:
            lows, highs = [low // DAY_US for low in work.lows], [high // DAY_US for high in work.highs]
            ops, keys, days = exploded(work.keys, lows, highs)
            wanted = pl.DataFrame({"op": ops, "origin": keys, "day": pl.Series(days, dtype=pl.Int32)})
            bounds = self._ranges(work, pl.Int64, pl.Datetime("us", "UTC")).select("op", "low", "high")
            rows = self.frame.lazy().with_columns(pl.col("departure").dt.date().cast(pl.Int32).alias("day"))
            joined = rows.join(wanted.lazy(), on=["origin", "day"]).join(bounds, on="op")
            kept = joined.filter(pl.col("departure").is_between(pl.col("low"), pl.col("high")))
            return kept.select("op", *OUTPUTS).sort("op").collect().to_arrow()

        return {"days as buckets": bucketed}

    def _ranges(self, work: Spans, physical: Any, kind: Any) -> Any:
        import polars as pl

        wanted = pl.DataFrame(
            {
                "op": range(len(work)),
                "origin": work.keys,
                "low": pl.Series(work.lows, dtype=physical),
                "high": pl.Series(work.highs, dtype=physical),
            }
        )
        return wanted.with_columns(pl.col("low").cast(kind), pl.col("high").cast(kind)).lazy()

    def _ranged(self, work: Spans, physical: Any, kind: Any) -> pa.Table:
        import polars as pl

        joined = self.frame.lazy().join(self._ranges(work, physical, kind), on="origin")
        kept = joined.filter(pl.col(work.column).is_between(pl.col("low"), pl.col("high")))
        return kept.select("op", *OUTPUTS).sort("op").collect().to_arrow()

    def prefixes(self) -> Ways:
        """Ways to do reads by the beginning of a text."""
        import polars as pl

        def by_length(work: Prefixes) -> pa.Table:
            wanted = pl.DataFrame({"op": range(len(work)), "prefix": work.prefixes})
            parts = []
            for length in sorted(set(map(len, work.prefixes))):
                some = wanted.filter(pl.col("prefix").str.len_bytes() == length).lazy()
                rows = self.frame.lazy().select("ticket_id", "document")
                rows = rows.with_columns(pl.col("document").str.slice(0, length).alias("prefix"))
                parts.append(rows.join(some, on="prefix").select("op", "ticket_id", "document"))
            return pl.concat(parts).sort("op").collect().to_arrow()

        return {"a join per length": by_length}

    def text_spans(self) -> Ways:
        """Ways to do reads of a range of texts."""
        import polars as pl

        def bounds(work: TextSpans) -> Any:
            return pl.DataFrame({"op": range(len(work)), "low": work.lows, "high": work.highs}).lazy()

        def where(work: TextSpans) -> pa.Table:
            rows = self.frame.lazy().select("ticket_id", "document")
            joined = rows.join_where(
                bounds(work), pl.col("document") >= pl.col("low"), pl.col("document") <= pl.col("high")
            )
            return joined.select("op", "ticket_id", "document").sort("op").collect().to_arrow()

        def bucketed(work: TextSpans) -> pa.Table:
            ops, keys = hex_buckets(work.lows, work.highs, BUCKET_DIGITS)
            wanted = pl.DataFrame({"op": ops, "bucket": keys}).lazy().join(bounds(work), on="op")
            rows = self.frame.lazy().select("ticket_id", "document")
            rows = rows.with_columns(pl.col("document").str.slice(0, BUCKET_DIGITS).alias("bucket"))
            joined = rows.join(wanted, on="bucket").filter(
                (pl.col("document") >= pl.col("low")) & (pl.col("document") <= pl.col("high"))
            )
            return joined.select("op", "ticket_id", "document").sort("op").collect().to_arrow()

        return {"beginnings as buckets": bucketed, "join_where": where}

    def n_bytes(self) -> dict[str, int]:
        """What the rows take: as strings, and with repeating strings as categories."""
        import polars as pl

        repeating = [
            name
            for name, kind in self.frame.schema.items()
            if kind == pl.String and self.frame[name].n_unique() < len(self.frame) // 4
        ]
        coded = self.frame.with_columns(pl.col(repeating).cast(pl.Categorical))
        return {"strings": self.frame.estimated_size(), "categoricals": coded.estimated_size()}
