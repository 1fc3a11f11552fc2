"""One Spark session for all tests, and an embedded store that serves its workers.

All tests here are run by one worker (a session costs seconds), and are skipped
with the reason where there is no Java or no pyspark.
"""

from __future__ import annotations

import importlib.util
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from crescando.nodes.doctor import java
from crescando.warming import VARIABLE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from crescando import Store
    from crescando.cluster import Cluster

HERE = Path(__file__).parent

PATIENCE_S = 120.0
"""For machines that are slow and busy."""

_HAS_PYSPARK = importlib.util.find_spec("pyspark") is not None


class _Skipped(pytest.Module):
    """A module that cannot even be imported."""

    def collect(self) -> Iterator[Any]:
        pytest.skip(_missing(), allow_module_level=True)


def pytest_pycollect_makemodule(module_path: Path, parent: Any) -> pytest.Module | None:
    """Skip what imports pyspark where there is none."""
    if HERE in module_path.parents and not _HAS_PYSPARK:
        return _Skipped.from_parent(parent, path=module_path)
    return None


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what lies here: for ``-m spark``, and for one worker."""
    reason = _missing()
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.spark)
            if item.config.pluginmanager.hasplugin("xdist"):
                item.add_marker(pytest.mark.xdist_group("spark"))
            if reason:
                item.add_marker(pytest.mark.skip(reason=reason))


def _missing() -> str:
    if not _HAS_PYSPARK:
        return "pyspark is not installed (crescando[spark])"
    found = java()
    return "" if found.grade == "good" else f"{found.text}; {found.mend}"


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, loopback only, nothing printed; tasks are tried three times."""
    from pyspark.sql import SparkSession

    from crescando.spark import configure

    folder = tmp_path_factory.mktemp("spark")
    settings: dict[str, Any] = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.local.dir": str(folder / "local"),
        # A busy machine starts processes slowly; Spark gives a Python worker 15 s by default.
        "spark.python.authenticate.socketTimeout": "300s",
        "spark.network.timeout": "600s",
        # Plans are small; compiling them costs more than it saves.
        "spark.sql.codegen.wholeStage": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "numpy")
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        patch.setenv("PYSPARK_DRIVER_PYTHON", sys.executable)
        patch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
        patch.setenv("PYTHONPATH", os.pathsep.join([str(HERE.parent.parent), *sys.path[1:]]))
        builder = configure(SparkSession.builder.master("local[2,3]").appName("crescando"))
        for name, value in settings.items():
            builder = builder.config(name, value)
        on_interrupt = signal.getsignal(signal.SIGINT)
        made = builder.getOrCreate()
    # Its processes have the environment now; the other tests of this worker want theirs, and interrupts.
    signal.signal(signal.SIGINT, on_interrupt)
    yield made
    made.stop()


@pytest.fixture(scope="package")
def certs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an authority."""
    from crescando.certificates import Authority

    folder = tmp_path_factory.mktemp("spark-certs") / "certs"
    Authority.create(folder, cluster="served")
    return folder


@pytest.fixture(scope="package")
def store(certs: Path) -> Iterator[Store[Cluster]]:
    """A store whose tables the tests share; each test makes its own ones."""
    import crescando

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "numpy")
        store = crescando.open(routers=1, storages=3, supers=1, replication=2, timeout_s=PATIENCE_S)
    with store:
        yield store


@pytest.fixture(scope="package")
def at(store: Store[Cluster], certs: Path) -> dict[str, str]:
    """The options that lead to the store, and give it the time that a busy machine takes."""
    return {"url": store.serve(tls=certs), "tls": str(certs), "timeout_s": str(PATIENCE_S)}
