"""A node that takes part in nothing: it says that it is ready, and ends when nobody wants it any more."""

from __future__ import annotations

import json
import sys

if __name__ == "__main__":
    print(json.dumps({"ready": sys.argv[2]}), flush=True)
    sys.stdin.read()
