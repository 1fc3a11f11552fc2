"""Coverage-guided hostile frames: ``python -m fuzz.atheris_frames corpus/ -max_len=4096``.

Needs atheris (``pip install atheris``), which is for some Pythons only; nothing
else of crescando needs it.
"""

from __future__ import annotations

import sys

import atheris

with atheris.instrument_imports(
    include=["crescando.transport", "crescando.wire", "crescando.routing.packed"]
):
    from fuzz.frames import Target

_TARGET = Target()


def one_input(data: bytes) -> None:
    """Take one input."""
    _TARGET.feed(data)


if __name__ == "__main__":
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
