"""Starts a cluster whose nodes are run by some module: ``python -m tests.nodes.torture.up FILE MODULE``."""

from __future__ import annotations

import sys

from crescando.clusterfile import read_cluster_file
from crescando.nodes.launcher import Launcher
from tests.nodes.clusters import PATIENCE_S


def main() -> int:
    """Run the cluster until somebody ends it."""
    launcher = Launcher(read_cluster_file(sys.argv[1]), module=sys.argv[2])
    with launcher.running():
        if launcher.wait_ready(PATIENCE_S):
            launcher.watch()
    return 0


if __name__ == "__main__":
    sys.exit(main())
