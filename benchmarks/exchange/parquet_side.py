"""Parquet files in memory, as Spark writes and reads them."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.exchange.side import Side
from benchmarks.peers.processes import memory_folder

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

ROOM_BYTES = 4 << 30


class Parquet(Side):
    """A folder of files; nothing waits for a disk."""

    name = "Parquet"
    lacks = "no process to talk to: written and read by the tasks themselves; files, so no updates, no keys"

    def open(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="bench-parquet-", dir=memory_folder(ROOM_BYTES)))

    def clear(self) -> None:
        shutil.rmtree(self._folder / "tickets", ignore_errors=True)

    def load(self, frame: DataFrame) -> None:
        frame.write.parquet(str(self._folder / "tickets"))

    def extract(self) -> DataFrame:
        return self.spark.read.schema(self.schema).parquet(str(self._folder / "tickets"))

    def close(self) -> None:
        folder = self.__dict__.pop("_folder", None)
        if folder is not None:
            shutil.rmtree(folder, ignore_errors=True)
