"""What the engine's tests share: both sets of kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from tests.engine.compiled import using


@pytest.fixture(params=["numpy", "numba"])
def kernel_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test once on each set of kernels."""
    with using(request.param) as name:
        yield name


@pytest.fixture
def kernels_in_turn(chunk: int) -> Iterator[str]:
    """Run every other chunk of a long test on the compiled kernels, where numba is installed."""
    with using("numba" if chunk % 2 and importlib.util.find_spec("numba") else "numpy") as name:
        yield name
