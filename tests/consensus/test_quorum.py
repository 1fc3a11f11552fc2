"""Majorities: any two quorums meet."""

from __future__ import annotations

from itertools import combinations

import pytest

from crescando.consensus.quorum import Membership
from tests.consensus.group import STRANGER, router


@pytest.mark.parametrize(("n", "majority"), [(1, 1), (2, 2), (3, 2), (4, 3), (5, 3), (6, 4), (7, 4)])
def test_majority_is_more_than_half(n: int, majority: int) -> None:
    assert Membership(0, tuple(router(i) for i in range(n))).majority == majority


@pytest.mark.parametrize("n", range(1, 7))
def test_any_two_quorums_share_a_member(n: int) -> None:
    members = tuple(router(i) for i in range(n))
    membership = Membership(0, members)
    subsets = [set(chosen) for size in range(n + 1) for chosen in combinations(members, size)]

    quorums = [subset for subset in subsets if membership.is_quorum(subset)]

    assert quorums
    assert all(a & b for a in quorums for b in quorums)


def test_strangers_do_not_count() -> None:
    membership = Membership(0, (router(1), router(2), router(3)))

    assert not membership.is_quorum({router(1), STRANGER, router(8)})
    assert membership.is_quorum({router(1), STRANGER, router(2)})
