"""One node, as the launcher starts it: ``python -m crescando.nodes FILE NAME …``.

Rules of the file: one JSON line on standard output when the process takes part,
or has failed; the node ends on SIGTERM, and when its standard input ends, since
then nobody is left who could end it. Then it does not matter how.
"""

from __future__ import annotations

import argparse
import json
import logging
import os
import sys
import threading
import time
from collections.abc import Sequence

from crescando.clusterfile import read_cluster_file
from crescando.errors import CrescandoError
from crescando.nodes.running import END_S, FAILED, make_node, run_node


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a node until somebody ends it.

    Returns
    -------
    int
        0 if it was ended, 2 if it could not begin, 3 if its process stopped by itself.
    """
    parser = argparse.ArgumentParser(prog="python -m crescando.nodes")
    parser.add_argument("file")
    parser.add_argument("name")
    parser.add_argument("--incarnation", type=int, required=True)
    parser.add_argument("--certificate", required=True)
    parsed = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.WARNING, stream=sys.stderr, format=f"{parsed.name}: %(levelname)s %(name)s: %(message)s"
    )
    try:
        node = make_node(
            read_cluster_file(parsed.file),
            parsed.name,
            parsed.incarnation,
            certificate=parsed.certificate,
            compiles=False,
        )
    except CrescandoError as error:
        _say(failed=str(error))
        return FAILED
    return run_node(
        node, ready=lambda: _say(ready=str(node.me)), failed=lambda why: _say(failed=why), parent=_parent()
    )


def _parent() -> threading.Event:
    """Give an event that is set when whoever started this process is gone; who hangs then is ended."""
    gone = threading.Event()

    def wait() -> None:
        # Not the text stream: it must not be locked while the interpreter ends.
        while os.read(0, 4096):
            pass
        gone.set()
        time.sleep(END_S)
        os._exit(FAILED)

    threading.Thread(target=wait, name="crescando-parent", daemon=True).start()
    return gone


def _say(**line: str) -> None:
    print(json.dumps(line), flush=True)


if __name__ == "__main__":
    raise SystemExit(main())
