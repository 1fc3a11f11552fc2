"""The page about Spark keeps its word: its blocks run, in order, in the session of all tests."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.test_docs import SPARKS, script

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_blocks_of_the_page_run(spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    source = script(SPARKS.read_text(encoding="utf-8"))
    names: dict[str, Any] = {}

    with ExitStack() as stack:
        stack.callback(lambda: "store" in names and names["store"].close())
        exec(compile(source, SPARKS.name, "exec"), names)

    # The page's session is the one of all tests, which goes on.
    assert names["spark"].range(3).count() == spark.range(3).count()
    assert source.count("assert") >= 8
