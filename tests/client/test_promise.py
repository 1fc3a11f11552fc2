"""Locks of a process are free in its children."""

from __future__ import annotations

import os

import pytest

from crescando.client.promise import ASKING, lock_of_process


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_child_that_is_forked_while_a_lock_is_held_finds_it_free() -> None:
    mine = lock_of_process()
    with mine, ASKING:
        child = os.fork()
        if child == 0:
            is_free = mine.acquire(blocking=False) and ASKING.acquire(blocking=False)
            os._exit(0 if is_free else 1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
