"""What holds for every test."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def logging_as_before() -> Iterator[None]:
    """Let no test, and no tool that a test runs, silence the log of the tests after it."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)
