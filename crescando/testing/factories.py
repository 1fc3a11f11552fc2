"""What a simulated world builds its processes from."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from crescando.consensus.multipaxos.replica import Replica
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.router import Router


@dataclass(frozen=True, slots=True)
class Factories:
    """What a run builds its processes from; a test plants a fault by replacing one."""

    router: Callable[..., Router[Any]] = Router
    replica: Callable[..., Replica[Any]] = Replica
    application: Callable[..., Application] = Application
