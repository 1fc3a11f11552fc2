"""A node from its beginning to its end, in the main thread of a process: signals, and an exit status."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType

from crescando.clusterfile import ClusterFile
from crescando.errors import CrescandoError
from crescando.interpreter import tune_interpreter
from crescando.nodes.files import certificate_for
from crescando.nodes.node import Node
from crescando.roles.following import LEFT
from crescando.transport.credentials import FileCredentials

ENDED, FAILED, STOPPED = 0, 2, 3
"""Exit statuses: somebody ended the node; it could not begin; its process stopped by itself."""

READY_S = 120.0
"""How long a node may take to take part: of a cluster on several hosts the last one decides."""

END_S = 10.0
"""How long a node may take to end before it is killed, or kills itself."""

LOOK_S = 0.05


def make_node(
    file: ClusterFile,
    name: str,
    incarnation: int,
    *,
    certificate: Path | str | None = None,
    compiles: bool = True,
) -> Node:
    """Make the node of one process of a cluster file.

    Parameters
    ----------
    file : ClusterFile
    name : str
        The process's.
    incarnation : int
        Which life of it.
    certificate : path, optional
        Its file, if not the one in the cluster file's folder.
    compiles : bool
        See `Node`.
    """
    seat = file.seat(name)
    path = certificate_for(file, seat) if certificate is None else certificate
    return Node(file, seat, FileCredentials(path), incarnation=incarnation, compiles=compiles)


def run_node(
    node: Node,
    *,
    ready: Callable[[], object],
    failed: Callable[[str], object],
    parent: threading.Event | None = None,
    ready_s: float = READY_S,
) -> int:
    """Run a node until it is told to end, or stops.

    Parameters
    ----------
    node : Node
    ready : callable
        Called once the process takes part in the cluster.
    failed : callable
        Called with the reason, if it cannot begin or stops by itself.
    parent : threading.Event, optional
        Set when nobody is left who wants the node.
    ready_s : float
        How long it may take to take part.

    Returns
    -------
    int
        `ENDED`, also if it left the cluster because somebody had it leave; `FAILED` or `STOPPED`.
    """
    is_told = threading.Event()

    def tell(_: int, __: FrameType | None) -> None:
        is_told.set()

    signal.signal(signal.SIGTERM, tell)
    signal.signal(signal.SIGINT, tell)

    def is_over() -> bool:
        return is_told.is_set() or (parent is not None and parent.is_set())

    try:
        node.start()
        if node.wait_ready(ready_s, is_over):
            tune_interpreter()
            ready()
        while not is_over() and not node.ended.is_set():
            is_told.wait(LOOK_S)
    except CrescandoError as error:
        failed(str(error))
        return FAILED
    finally:
        # Read before the end, which is a reason too.
        reason = node.reason
        node.stop()
    if is_over():
        return ENDED
    failed(reason)
    # Whoever starts nodes again is not to start this one.
    return ENDED if reason.startswith(LEFT) else STOPPED
