"""A client on a host of its own: a JSON question on each line of standard input, an answer on each of output.

``python -m tests.nodes.hosts_client URL CERTIFICATES``
"""

from __future__ import annotations

import json
import sys
import time

import crescando
from crescando.client.store import Store
from crescando.errors import CrescandoError
from crescando.remote import RemoteCluster
from tests.nodes.clusters import PATIENCE_S, until


def main() -> int:
    """Answer questions until there are no more."""
    url, certificates = sys.argv[1:]
    with crescando.connect(url, tls=certificates, connect_s=PATIENCE_S, timeout_s=PATIENCE_S) as store:
        store.create_table("kept", like={"key": [1]}, primary_key="key")
        print(json.dumps("ready"), flush=True)
        for line in sys.stdin:
            print(json.dumps(answer(store, *json.loads(line))), flush=True)
    return 0


def answer(store: Store[RemoteCluster], what: str, *arguments: int) -> object:
    """Answer one question."""
    table = store.table("kept")
    match what:
        case "write":
            slowest_s = 0.0
            for key in range(*arguments):
                began_s = time.monotonic()
                assert table.insert([{"key": key}]).result().affected == 1
                slowest_s = max(slowest_s, time.monotonic() - began_s)
            return slowest_s
        case "read":
            levels = ("sequential", "snapshot", "basic")
            return [len(table.select(isolation=level).rows()) for level in levels]
        case "without":
            (host,) = arguments
            until(lambda: on_host(store, host) == "", lambda: f"without host {host}: {on_host(store, host)}")
            return True
        case "whole":
            until(lambda: fault(store) == "", lambda: f"the cluster is whole: {fault(store)}")
            return sorted(map(str, store.cluster.config().ring.processes))
        case "replicas":
            return [
                len(store.cluster.read_replica(process, key_range, "kept").rows())
                for process, key_range in store.cluster.replicas("kept")
            ]
    raise ValueError(what)


def on_host(store: Store[RemoteCluster], host: int) -> str:
    """Say which first lives of a host's processes are members; empty if none."""
    try:
        config, members = store.cluster.config(), store.cluster.members()
    except CrescandoError as error:
        return str(error)
    there = {*config.storages, *config.supers, *members}
    return ", ".join(sorted(str(p) for p in there if p.node.endswith(str(host)) and p.incarnation == 1))


def fault(store: Store[RemoteCluster]) -> str:
    """Say what the cluster lacks; empty if nothing."""
    try:
        config, members = store.cluster.config(), store.cluster.members()
    except CrescandoError as error:
        return str(error)
    dead = [str(p) for p in config.ring.processes if p not in config.storages]
    if dead or config.changes:
        return f"on the ring are the failed {dead}, {len(config.changes)} changes are under way"
    if len(members) < 3 or len(config.supers) < 3:
        return f"the routers are {list(map(str, members))}, the supers {list(map(str, config.supers))}"
    return ""


if __name__ == "__main__":
    sys.exit(main())
