"""What the engine's tests share: both sets of kernels."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crescando.engine import kernels


@pytest.fixture(params=["numpy", "numba"])
def kernel_set(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run a test once on each set of kernels."""
    before = kernels.active()
    if request.param == "numba":
        pytest.importorskip("numba")
        from crescando.engine.kernels.compiled import KERNELS

        kernels.use(KERNELS)
    else:
        kernels.use(None)
    yield kernels.active().name
    kernels.use(before)
