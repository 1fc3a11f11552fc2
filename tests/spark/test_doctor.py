"""What of Spark is missing or too old on a host is told, with what mends it."""

from __future__ import annotations

import importlib.metadata
import os
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from crescando.cli.main import main
from crescando.errors import SpecError
from crescando.nodes.doctor import Finding
from crescando.spark import configure, doctor
from crescando.spark.session import SETTINGS


def found(what: str) -> Finding:
    return next(finding for finding in doctor.examine_spark() if finding.what == what)


@pytest.fixture(autouse=True)
def plain(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        monkeypatch.delenv(name, raising=False)
    # The python3 of this environment, whether or not that is activated.
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


def test_a_good_host_has_no_fault(capsys: pytest.CaptureFixture[str]) -> None:
    assert {finding.grade for finding in doctor.examine_spark()} == {"good"}
    assert main(["doctor", "spark"]) == 0
    assert "pyspark" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("package", "version", "grade", "text"),
    [
        ("pyspark", "3.3.1", "fault", "is older than 3.5"),
        ("pyspark", "3.5.9", "warning", "has no format('crescando'), which needs 4.1"),
        ("pyspark", "5.0.0", "warning", "is newer than what was tried"),
        ("pyspark", None, "fault", "is not installed"),
        ("pandas", "3.0.1", "fault", "versions below 3"),
        ("pyarrow", "15.0.0", "fault", "is older than 16"),
        ("pyarrow", None, "fault", "is not installed"),
    ],
)
def test_packages_that_do_not_fit_are_told(
    package: str, version: str | None, grade: str, text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    there = importlib.metadata.version

    def told(asked: str) -> str:
        if asked != package:
            return there(asked)
        if version is None:
            raise importlib.metadata.PackageNotFoundError(asked)
        return version

    monkeypatch.setattr(importlib.metadata, "version", told)
    finding = found(package)
    assert finding.grade == grade
    assert text in finding.text
    assert "install crescando[spark]" in finding.mend


def test_without_java_nothing_of_spark_works(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert found("Java").grade == "fault"
    assert main(["doctor", "spark"]) == 1
    assert "set JAVA_HOME" in capsys.readouterr().out
    with pytest.raises(SpecError, match=r"^Spark needs Java: JAVA_HOME is .* install a Java"):
        configure(SparkSession.builder)


@pytest.mark.parametrize(
    ("script", "text"),
    [
        ("echo \"ModuleNotFoundError: No module named 'msgspec'\" >&2; exit 1", "No module named 'msgspec'"),
        ("echo 3.9", "of Python 3.9, not"),
    ],
)
def test_a_python_of_workers_that_does_not_know_us_is_told(
    script: str, text: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    python = tmp_path / "python3"
    python.write_text(f"#!/bin/sh\n{script}\n")
    python.chmod(0o755)
    # As in a shell in which the environment of the driver is not activated.
    monkeypatch.setenv("PATH", f"{tmp_path}{os.pathsep}{os.environ['PATH']}")
    finding = found("interpreter")
    assert (finding.grade, text in finding.text) == ("fault", True)
    assert f"export PYSPARK_PYTHON={sys.executable}" in finding.mend
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "nowhere" / "python"))
    assert "does not exist" in found("interpreter").text
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    assert found("interpreter").grade == "good"


def test_settings_of_a_file_that_are_not_best_are_told(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = "spark.sql.python.filterPushdown.enabled"
    (tmp_path / "spark-defaults.conf").write_text(f"# none\n\n{name}   false\nspark.ui.enabled true\n")
    monkeypatch.setenv("SPARK_CONF_DIR", str(tmp_path))
    assert (found("settings").grade, f"sets {name} to false" in found("settings").text) == ("warning", True)
    (tmp_path / "spark-defaults.conf").write_text(f"{name} {SETTINGS[name]}\n")
    assert found("settings").grade == "good"


def test_paths_that_lead_nowhere_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", str(tmp_path / "python"))
    assert found("interpreter").mend == "unset PYSPARK_PYTHON"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    homes = [each for each in doctor.examine_spark() if each.what == "pyspark" and each.grade == "fault"]
    assert "there is no Spark in it" in homes[0].text
