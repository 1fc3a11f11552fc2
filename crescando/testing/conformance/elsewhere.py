"""The same walk in a second Python process, whose ``hash()`` differs.

The parent sends the genesis and the messages of each walk as bytes; the child
imports the plug-in's class, decides on every message and sends back its
decisions as text. Run as a module, this file is the child.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any

import msgspec

from crescando.routing.batch import Message
from crescando.testing.conformance.decisions import decide
from crescando.testing.conformance.rules import ConformanceError

LIMIT_S = 300.0


@dataclass(slots=True)
class Walked:
    """One walk: where it began, its messages, and what was decided on each."""

    genesis: bytes
    messages: list[Message] = field(default_factory=list)
    decisions: list[str] = field(default_factory=list)


class _Walk(msgspec.Struct, array_like=True):
    genesis: bytes
    messages: tuple[Message, ...]


class _Order(msgspec.Struct, array_like=True):
    module: str
    name: str
    walks: tuple[_Walk, ...]


_ENCODER = msgspec.msgpack.Encoder()
_ORDERS = msgspec.msgpack.Decoder(_Order)
_ANSWERS = msgspec.msgpack.Decoder(list[list[str]])


def replay_elsewhere(kind: type[Any], walks: Sequence[Walked]) -> None:
    """Replay walks in a second process and compare.

    Raises
    ------
    ConformanceError
        If the other process decides otherwise, or fails.
    ValueError
        If the class cannot be imported there.
    """
    if kind.__module__ == "__main__" or "<" in kind.__qualname__:
        raise ValueError(
            f"{kind.__qualname__} cannot be imported by a second process: put it in a module, "
            "or do without that process (elsewhere=False)"
        )
    order = _Order(
        kind.__module__, kind.__qualname__, tuple(_Walk(w.genesis, tuple(w.messages)) for w in walks)
    )
    # Not this process's own seed, if it has a fixed one.
    seed = "1" if os.environ.get("PYTHONHASHSEED") != "1" else "2"
    environment = {
        **os.environ,
        "PYTHONHASHSEED": seed,
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
    }
    done = subprocess.run(
        [sys.executable, "-m", __name__],
        input=_ENCODER.encode(order),
        capture_output=True,
        timeout=LIMIT_S,
        env=environment,
        check=False,
    )
    if done.returncode != 0:
        text = done.stderr.decode(errors="replace").strip().rpartition("\n")[2]
        raise ConformanceError("second process", f"the walks failed there: {text}")
    for seed_of_walk, (walk, found) in enumerate(zip(walks, _ANSWERS.decode(done.stdout), strict=True)):
        for message, here, there in zip(walk.messages, walk.decisions, found, strict=True):
            if here != there:
                raise ConformanceError(
                    "second process", f"it decides {there}, not {here}", f"seed {seed_of_walk}, {message}"
                )


def main() -> None:
    """Answer the order on standard input."""
    order = _ORDERS.decode(sys.stdin.buffer.read())
    kind: Any = import_module(order.module)
    for part in order.name.split("."):
        kind = getattr(kind, part)
    answers = []
    for walk in order.walks:
        config = kind.decode(walk.genesis)
        texts = []
        for message in walk.messages:
            decision = decide(config, message)
            texts.append(decision.text())
            config = decision.after
        answers.append(texts)
    sys.stdout.buffer.write(_ENCODER.encode(answers))


if __name__ == "__main__":
    main()
