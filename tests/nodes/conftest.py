"""Nodes of tests scan with NumPy's kernels: nobody compiles for a cluster that lives for seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from crescando.warming import VARIABLE


@pytest.fixture(autouse=True, scope="module")
def plain_kernels() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(VARIABLE, "numpy")
        yield
