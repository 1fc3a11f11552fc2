"""The pipeline of the examples gives what pandas makes of the raw files, and tells when it does not."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import spark_flights

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

N_FLIGHTS = 3_000


@pytest.fixture(autouse=True)
def few_claims(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_flights, "N_CLAIMS", 500)


def test_the_pipeline_differs_in_nothing(spark: SparkSession, tmp_path: Path) -> None:
    assert spark_flights.run(spark, tmp_path, N_FLIGHTS) == 0


def test_one_value_that_is_loaded_wrongly_is_told(
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    cleaned = spark_flights.cleaned

    def wrongly(session: SparkSession, path: Path) -> DataFrame:
        from pyspark.sql import functions as f

        is_it = (f.col("carrier") == "UA") & (f.col("flight") == 1545) & (f.col("day") == 1)
        return cleaned(session, path).withColumn(
            "distance", f.when(is_it, f.col("distance") + 1).otherwise(f.col("distance"))
        )

    monkeypatch.setattr(spark_flights, "cleaned", wrongly)

    assert spark_flights.run(spark, tmp_path, N_FLIGHTS) == 1
    assert "flights: distance of row" in capsys.readouterr().out
