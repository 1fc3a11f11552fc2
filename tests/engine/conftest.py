"""What the engine's tests share: both sets of kernels."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator

import pytest

from crescando.engine import kernels


@pytest.fixture(params=["numpy", "numba"])
def kernel_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test once on each set of kernels."""
    if request.param == "numba":
        pytest.importorskip("numba")
    yield from _use(request.param)


@pytest.fixture
def kernels_in_turn(chunk: int) -> Iterator[str]:
    """Run every other chunk of a long test on the compiled kernels, where numba is installed."""
    yield from _use("numba" if chunk % 2 and importlib.util.find_spec("numba") else "numpy")


def _use(name: str) -> Iterator[str]:
    before = kernels.active()
    if name == "numba":
        from crescando.engine.kernels.compiled import KERNELS

        kernels.use(KERNELS)
    else:
        kernels.use(None)
    yield kernels.active().name
    kernels.use(before)
