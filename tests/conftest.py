"""What holds for every test."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest


def pytest_collection_finish() -> None:
    """Leave what is there by now out of every look for garbage; each elastic seed asks for a whole one."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Let no test, and no tool that a test runs, silence the log of the tests after it."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)
