"""Routers that stand by: a cluster is ready and well with them, before they have a place and after."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from crescando.cli.main import main
from tests.nodes.clusters import PATIENCE_S, until, write_cluster

pytestmark = pytest.mark.slow


def test_a_cluster_is_well_while_a_router_stands_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    write_cluster(tmp_path, routers=1, standby_routers=1, storages=1, supers=1)

    def standbys() -> list[str]:
        status = main(["status"])
        lines = capsys.readouterr().out.splitlines()
        # Whoever stands by is no fault.
        return [line.split()[0] for line in lines if line.endswith("on standby")] if status == 0 else []

    assert main(["up", "-d", "--timeout", str(PATIENCE_S)]) == 0
    try:
        assert standbys() == ["router/r2#2"]
        assert main(["doctor"]) == 0
        assert main(["routers", "add", "r2"]) == 0
        assert standbys() == []
        # The one that leads leaves; started again, its node stands by.
        assert main(["routers", "remove", "r1"]) == 0
        until(lambda: standbys() == ["router/r1#2"], "r1 stands by")
        capsys.readouterr()
        assert main(["routers", "--json"]) == 0
        assert json.loads(capsys.readouterr().out) == {"routers": ["router/r2#2"]}
    finally:
        assert main(["down"]) == 0
