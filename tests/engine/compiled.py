"""Both sets of kernels; the compiled one from the folder in which all processes of a machine keep it.

Imported as they are, each of the workers that run tests would compile all kernels beside
the sources, which takes a core for minutes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import pytest

from crescando import warming
from crescando.engine import kernels

_MODULE = "crescando.engine.kernels.compiled"


def compiled_module() -> ModuleType:
    """Give the module of the compiled kernels; whoever comes first has them compiled, the others wait.

    Which kernels are in use stays as it is. Skips where numba is not installed.
    """
    pytest.importorskip("numba")
    if _MODULE not in sys.modules:
        before, place = kernels.active(), warming.folder()
        command = [sys.executable, "-m", "crescando.warming", str(place)]
        # If that fails, what is wrong shows below, where the same is done here.
        subprocess.run(command, stdin=subprocess.DEVNULL, check=False)
        warming.load(place)
        kernels.use(before)
    return sys.modules[_MODULE]


@contextmanager
def using(name: str) -> Iterator[str]:
    """Put the kernels of ``numpy`` or ``numba`` in use for a while."""
    before = kernels.active()
    kernels.use(compiled_module().KERNELS if name == "numba" else None)
    try:
        yield kernels.active().name
    finally:
        kernels.use(before)
