"""Measure one peer: ``python -m benchmarks.peers --peer redis --in-flight 64``.

Rules of the file: prints, measures nothing itself. Whatever happens, the peer is stopped.
"""

from __future__ import annotations

import argparse
import json
import sys
from dataclasses import asdict

from benchmarks.peers.base import PEERS, PeerError


def main(arguments: list[str] | None = None) -> int:
    """Run the command; give 0 if a figure was printed."""
    by_name = {peer.name: peer for peer in PEERS}
    parser = argparse.ArgumentParser(prog="python -m benchmarks.peers", description=__doc__)
    parser.add_argument("--peer", required=True, choices=by_name)
    parser.add_argument("--in-flight", type=int, default=64, help="requests outstanding")
    parser.add_argument("--payload", type=int, default=100, help="bytes of a value")
    parser.add_argument("--seconds", type=float, default=3.0)
    parser.add_argument("--batch", type=int, default=1, help="writes in one request")
    parser.add_argument("--kill-leader", type=int, default=0, metavar="TIMES", help="measure fail-over")
    options = parser.parse_args(arguments)
    peer = by_name[options.peer]
    if reason := peer.available():
        print(f"{peer.name} cannot run: {reason}", file=sys.stderr)
        return 1
    try:
        peer.start()
        result = peer.run(
            in_flight=options.in_flight,
            payload_bytes=options.payload,
            seconds=options.seconds,
            batch=options.batch,
        )
        gaps_ms = [peer.kill_leader_gap_ms() for _ in range(options.kill_leader)]
    except PeerError as error:
        print(f"{peer.name}: {error}", file=sys.stderr)
        return 1
    finally:
        peer.stop()
    print(json.dumps(asdict(result) | ({"kill_leader_gap_ms": gaps_ms} if gaps_ms else {}), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
