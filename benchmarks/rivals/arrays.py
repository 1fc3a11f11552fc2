"""Naive scans, one per read: NumPy and numexpr on the codes of the column, and pandas.

They are given codes of the text column and never have to build them.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from benchmarks.rivals.base import Rival, Ways
from benchmarks.tickets.work import OUTPUTS, Points


class Arrays(Rival):
    """Codes of ``rloc``, and of the five columns that are given."""

    name = "numpy"
    module = "numpy"
    package = "numpy"
    lacks = "codes and row numbers only: no texts, no writes, one read at a time"

    def load(self, table: pa.Table) -> None:
        encoded = table.column("rloc").combine_chunks().dictionary_encode()
        self._codes = {text: code for code, text in enumerate(encoded.dictionary.to_pylist())}
        self._column = encoded.indices.to_numpy()
        self._outputs = []
        for name in OUTPUTS:
            values = table.column(name).combine_chunks()
            if pa.types.is_string(values.type):
                values = values.dictionary_encode().indices
            self._outputs.append(values.to_numpy(zero_copy_only=False))

    def close(self) -> None:
        for name in ("_codes", "_column", "_outputs"):
            self.__dict__.pop(name, None)

    def one(self, key: str) -> list[Any]:
        """One read by NumPy."""
        rows = (self._column == self._codes[key]).nonzero()[0]
        return [values[rows] for values in self._outputs]

    def one_numexpr(self, key: str) -> list[Any]:
        """One read by numexpr."""
        import numexpr

        column, code = self._column, np.int32(self._codes[key])
        mask = numexpr.evaluate("column == code", local_dict={"column": column, "code": code})
        rows = mask.nonzero()[0]
        return [values[rows] for values in self._outputs]


class Pandas(Rival):
    """The frame, texts as Arrow keeps them."""

    name = "pandas"
    module = "pandas"
    package = "pandas"
    lacks = "one thread; no order, no concurrent clients"

    def load(self, table: pa.Table) -> None:
        import pandas as pd

        self._frame = table.to_pandas(types_mapper=pd.ArrowDtype)

    def close(self) -> None:
        self.__dict__.pop("_frame", None)

    def points(self) -> Ways:
        """Ways to do reads of one value each."""
        import pandas as pd

        def merged(work: Points) -> pa.Table:
            text = pd.ArrowDtype(pa.string())
            keys = pd.DataFrame({"op": range(len(work)), work.column: pd.array(work.keys, dtype=text)})
            joined = keys.merge(self._frame[[work.column, *OUTPUTS]], on=work.column, how="inner")
            found = joined[["op", *OUTPUTS]].sort_values("op", kind="stable")
            return pa.Table.from_pandas(found, preserve_index=False)

        return {"merge": merged}

    def n_bytes(self) -> dict[str, int]:
        """What the rows take: as strings, and with repeating strings as categories."""
        coded = self._frame.copy()
        for name in coded.columns:
            if coded[name].dtype == "string[pyarrow]" and coded[name].nunique() < len(coded) // 4:
                coded[name] = coded[name].astype("category")
        return {
            "strings": int(self._frame.memory_usage(deep=True).sum()),
            "categoricals": int(coded.memory_usage(deep=True).sum()),
        }
