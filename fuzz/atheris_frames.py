"""Coverage-guided hostile frames: ``python -m fuzz.atheris_frames corpus -max_len=4096``.

Needs atheris (``pip install atheris``), which is for some Pythons only; nothing
else of crescando needs it. A folder that is empty is filled with a seed of every
message first.
"""

from __future__ import annotations

import sys
from pathlib import Path

import atheris

with atheris.instrument_imports(include=["crescando.transport", "crescando.wire"]):
    from fuzz.frames import Target, seeds

_TARGET = Target()


def one_input(data: bytes) -> None:
    """Take one input."""
    _TARGET.feed(data)


def fill(folder: Path) -> None:
    """Write a seed per message into an empty folder."""
    if not any(folder.iterdir()):
        for number, seed in enumerate(seeds()):
            (folder / f"seed{number}").write_bytes(seed)


if __name__ == "__main__":
    for argument in sys.argv[1:]:
        if Path(argument).is_dir():
            fill(Path(argument))
    atheris.Setup(sys.argv, one_input)
    atheris.Fuzz()
