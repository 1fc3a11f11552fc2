"""Explores the small scopes further than the tests do, and scopes that are too large for them."""

from __future__ import annotations

import sys
import time

from crescando.testing.exhaustive import Explorer
from crescando.testing.membership_scope import MembershipScope
from tests.simulation.membership_scopes import CHANGES, LARGER_CHANGES, follow_up
from tests.simulation.small_scopes import CASES, LARGER_CASES


def main(states_max: int = 1_500_000) -> int:
    """Explore every case further; gives how many showed a violation."""
    wrong = 0
    for name, case in (CASES | LARGER_CASES | CHANGES | LARGER_CHANGES).items():
        begun = time.monotonic()
        explorer = Explorer(case.scope, case.left, case.script)
        found = explorer.explore(case.deeper or case.depth, states_max=states_max)
        violations = dict(found.violations)
        if isinstance(case.scope, MembershipScope):
            judged, later = follow_up(explorer)
            violations |= later
            print(f"{name}: time went on from {judged:,} states at rest")
        print(f"{name}: {found}; {time.monotonic() - begun:.1f} s", flush=True)
        for violation in violations.values():
            print(violation)
        wrong += bool(violations)
    return wrong


if __name__ == "__main__":
    sys.exit(main(*map(int, sys.argv[1:])))
