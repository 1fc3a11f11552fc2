"""A node whose router writes down what it learns; the launcher runs ``python -m tests.nodes.torture.node``.

Everything else is the node that `crescando.nodes` runs. A batch is in the file
before anything of it leaves the process, so what a killed router had let
anybody know is there.
"""

from __future__ import annotations

import os
import random
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import crescando.nodes.node
from crescando import wire
from crescando.assembly import Assembly
from crescando.consensus.base import BroadcastOutput
from crescando.consensus.multipaxos.messages import Decided
from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.quorum import Membership
from crescando.nodes.__main__ import main
from crescando.routing.ecast.messages import Batch
from crescando.spec import ClusterSpec
from crescando.testing.trace import RecordedBroadcast, Trace
from crescando.types import ProcessId

FOLDER = "CRESCANDO_TORTURE_LEARNED"
"""The variable that names where learned batches are written."""

_HEAD = struct.Struct("<I")


class WrittenBroadcast(RecordedBroadcast):
    """An atomic broadcast member that writes down what it learns, and keeps none of it."""

    def __init__(self, me: ProcessId, inner: Replica[Batch], folder: Path) -> None:
        super().__init__(me, inner, Trace())
        self._file = os.open(
            folder / f"{me.node}#{me.incarnation}", os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600
        )

    def flush(self, now_s: float) -> BroadcastOutput[Batch]:
        output = super().flush(now_s)
        for instance, batch in output.learned:
            data = wire.encode(Decided(instance, (batch,), instance))
            os.write(self._file, _HEAD.pack(len(data)) + data)
        self.trace.learned.clear()
        return output


def learned_in(path: Path) -> Iterator[tuple[int, Batch | None]]:
    """Give what a router wrote; the last piece may have been torn."""
    data, at = path.read_bytes(), 0
    while at + _HEAD.size <= len(data):
        (length,) = _HEAD.unpack_from(data, at)
        at += _HEAD.size
        if at + length > len(data):
            return
        decided = wire.decode(data[at : at + length])
        yield decided.first, decided.values[0]
        at += length


def recording(spec: ClusterSpec) -> Assembly:
    """Give a parts list whose routers write down what they learn."""

    def broadcast(me: ProcessId, membership: Membership, rng: random.Random) -> Any:
        return WrittenBroadcast(me, Replica(me, membership, spec.paxos, rng), Path(os.environ[FOLDER]))

    return Assembly(spec, broadcast=broadcast)


if __name__ == "__main__":
    crescando.nodes.node.Assembly = recording  # type: ignore[misc, assignment]
    sys.exit(main())
