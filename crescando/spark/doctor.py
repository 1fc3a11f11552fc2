"""What of Spark is missing, too old or set badly on this host: `crescando doctor spark`.

Rules of the file: no JVM and no session is started, and nothing is changed;
packages are looked at by their metadata, and the Python of workers by asking it.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from crescando.nodes.doctor import Finding, java
from crescando.nodes.looks import VERSION
from crescando.spark.session import SETTINGS

SOURCE_SINCE = (4, 1)
"""Older versions have no Python data source that takes Arrow and filters; `load`, `extract` and the
other functions work there."""

FUNCTIONS_SINCE = (3, 5)
UNKNOWN_FROM = (5, 0)

NEEDED = {"pyarrow": ((16,), None), "pandas": ((2, 2), (3,))}
"""From which version, and below which."""

PYTHON_S = 30.0
"""How long the Python of workers may take to import what it needs."""

_MEND = "install crescando[spark]"


def examine_spark() -> tuple[Finding, ...]:
    """Look at everything."""
    python = ".".join(map(str, sys.version_info[:3]))
    return (
        Finding("versions", "good", f"crescando {VERSION}, Python {python}"),
        *_java(),
        *_pyspark(),
        *_packages(),
        *_source(),
        *_interpreters(),
        *_settings(),
    )


def _java() -> Iterator[Finding]:
    found = java()
    # Elsewhere it is nothing but a warning: only Spark needs it.
    yield found if found.grade == "good" else Finding("Java", "fault", found.text, found.mend)


def _version(package: str) -> tuple[int, ...] | None:
    try:
        text = importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None
    return tuple(int(part) for part in re.findall(r"\d+", text)[:2])


def _shown(version: tuple[int, ...]) -> str:
    return ".".join(map(str, version))


def _pyspark() -> Iterator[Finding]:
    version = _version("pyspark")
    if version is None:
        yield Finding("pyspark", "fault", "pyspark is not installed", _MEND)
        return
    shown = importlib.metadata.version("pyspark")
    if version < FUNCTIONS_SINCE:
        yield Finding(
            "pyspark",
            "fault",
            f"pyspark {shown} is older than {_shown(FUNCTIONS_SINCE)}, and not tried",
            _MEND,
        )
    elif version < SOURCE_SINCE:
        yield Finding(
            "pyspark",
            "warning",
            f"pyspark {shown} has no format('crescando'), which needs {_shown(SOURCE_SINCE)}",
            "use crescando.spark.load, extract, lookup and update_from, or " + _MEND,
        )
    elif version >= UNKNOWN_FROM:
        yield Finding("pyspark", "warning", f"pyspark {shown} is newer than what was tried", _MEND)
    else:
        yield Finding("pyspark", "good", f"pyspark {shown}")
    home = os.environ.get("SPARK_HOME")
    if home and not Path(home, "jars").is_dir():
        yield Finding(
            "pyspark",
            "fault",
            f"SPARK_HOME is {home}, and there is no Spark in it",
            "unset SPARK_HOME: the package pyspark has all that is needed",
        )


def _packages() -> Iterator[Finding]:
    for package, (least, below) in NEEDED.items():
        version = _version(package)
        if version is None:
            yield Finding(package, "fault", f"{package} is not installed", _MEND)
            continue
        shown = importlib.metadata.version(package)
        if version < least:
            yield Finding(package, "fault", f"{package} {shown} is older than {_shown(least)}", _MEND)
        elif below is not None and version >= below:
            yield Finding(
                package, "fault", f"{package} {shown}: Spark works with versions below {_shown(below)}", _MEND
            )
        else:
            yield Finding(package, "good", f"{package} {shown}")


def _source() -> Iterator[Finding]:
    if importlib.util.find_spec("pyspark_crescando") is None:
        yield Finding(
            "format",
            "fault",
            "the package pyspark_crescando is not found, so Spark does not know format('crescando')",
            "install crescando again, here and where executors run",
        )
    else:
        yield Finding("format", "good", "Spark finds format('crescando') by itself")


def _interpreters() -> Iterator[Finding]:
    for variable in ("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"):
        path = os.environ.get(variable)
        if path and os.path.isabs(path) and not Path(path).exists():
            yield Finding(
                "interpreter", "fault", f"{variable} is {path}, which does not exist", f"unset {variable}"
            )
            return
    yield _workers_python()


def _workers_python() -> Finding:
    """See that the Python which Spark starts for its workers here is one that knows us."""
    named = os.environ.get("PYSPARK_PYTHON") or "python3"
    mend = f"export PYSPARK_PYTHON={sys.executable}, or activate the environment that it is of"
    path = shutil.which(named)
    if path is None:
        return Finding("interpreter", "fault", f"workers run {named}, and there is none", mend)
    probe = "import sys, crescando, pyarrow; print(*sys.version_info[:2], sep='.')"
    try:
        told = subprocess.run(
            [path, "-c", probe], capture_output=True, text=True, timeout=PYTHON_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("interpreter", "fault", f"workers run {path}, which does not run: {error}", mend)
    mine = f"{sys.version_info[0]}.{sys.version_info[1]}"
    if told.returncode:
        why = (told.stderr.strip().splitlines() or ["it says nothing"])[-1]
        return Finding("interpreter", "fault", f"workers run {path}, which cannot import us: {why}", mend)
    if told.stdout.strip() != mine:
        found = told.stdout.strip()
        return Finding("interpreter", "fault", f"workers run {path}, of Python {found}, not {mine}", mend)
    return Finding("interpreter", "good", f"workers run {path}, of Python {mine}")


def _settings() -> Iterator[Finding]:
    path = _defaults()
    told = {} if path is None else dict(_lines(path))
    for name, wanted in SETTINGS.items():
        found = told.get(name)
        if found is not None and found != wanted:
            yield Finding(
                "settings",
                "warning",
                f"{path} sets {name} to {found}, and {wanted} is best",
                "crescando.spark.configure(builder) sets it for a session",
            )
    where = "there is no spark-defaults.conf" if path is None else f"{path} is read"
    yield Finding(
        "settings", "good", f"{where}; crescando.spark.configure(builder) sets {', '.join(sorted(SETTINGS))}"
    )


def _defaults() -> Path | None:
    folder = os.environ.get("SPARK_CONF_DIR") or (
        str(Path(os.environ["SPARK_HOME"], "conf")) if os.environ.get("SPARK_HOME") else ""
    )
    path = Path(folder, "spark-defaults.conf") if folder else None
    return path if path is not None and path.is_file() else None


def _lines(path: Path) -> Iterator[tuple[str, str]]:
    for line in path.read_text(encoding="utf-8").splitlines():
        words = line.strip().split(None, 1)
        if len(words) == 2 and not words[0].startswith("#"):
            yield words[0], words[1].strip()
