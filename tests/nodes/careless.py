"""A node that, if it is s2, shows rows without a lease, and goes on though it was declared failed.

``python -m tests.nodes.careless``, as the launcher has it: a fault to be found.
"""

from __future__ import annotations

import sys

from crescando.nodes.__main__ import main
from crescando.roles.following import Following
from crescando.roles.lease import ServingLease

CARELESS = "s2"

if __name__ == "__main__":
    if sys.argv[2] == CARELESS:
        ServingLease.holds = lambda self, now_s: True  # type: ignore[method-assign]
        Following.expel = lambda self, event: ""  # type: ignore[method-assign]
    sys.exit(main())
