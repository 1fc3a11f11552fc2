"""The end of stores that nobody closes."""

from __future__ import annotations

import atexit
from collections.abc import Callable
from functools import partial
from typing import Protocol, TypeVar

from crescando.client.store import Store


class Ended(Protocol):
    """What tells when a store is over."""

    on_shutdown: Callable[[], object] | None


E = TypeVar("E", bound=Ended)


def close_at_exit(store: Store[E]) -> None:
    """End a store that its user forgot, within a second, without a word."""

    def close() -> None:
        store.close(0.5)

    atexit.register(close)
    store.cluster.on_shutdown = partial(atexit.unregister, close)
