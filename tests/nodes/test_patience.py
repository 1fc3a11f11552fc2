"""How long a status waits for nodes that hang."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from crescando.nodes.asking import ANSWER_S
from crescando.nodes.places import AddressBook
from crescando.remote import SILENT_S, STATUS_S, RemoteCluster
from crescando.roles.description import NODE, Place
from crescando.types import ProcessId


class _Asking:
    """Answers for some nodes, and notes how long it was given for each."""

    def __init__(self, silent: set[str]) -> None:
        self.silent = silent
        self.given_s: dict[str, float] = {}

    async def ask(self, node: ProcessId, timeout_s: float) -> Any:
        self.given_s[node.node] = timeout_s
        return None if node.node in self.silent else object()


class _Done:
    def __init__(self, value: Any) -> None:
        self._value = value

    def result(self, timeout_s: float) -> Any:
        return self._value


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> RemoteCluster:
    found = object.__new__(RemoteCluster)
    found._book = AddressBook([Place(NODE, name, "127.0.0.1", 1) for name in ("r1", "s1")])
    found._silent = set()
    monkeypatch.setattr(found, "_run", lambda coroutine: _Done(asyncio.run(coroutine)))
    return found


def test_who_was_silent_is_not_waited_for_again_until_it_answers(cluster: RemoteCluster) -> None:
    asking = _Asking({"s1"})
    cluster._asking = asking  # type: ignore[assignment]

    told = cluster.described(patience_s=STATUS_S)
    assert (told["r1"] is None, told["s1"]) == (False, None)
    assert asking.given_s == {"r1": STATUS_S, "s1": STATUS_S}
    asking.silent = set()
    assert None not in cluster.described(patience_s=STATUS_S).values()
    assert asking.given_s == {"r1": STATUS_S, "s1": SILENT_S}
    cluster.described()
    assert asking.given_s == {"r1": ANSWER_S, "s1": ANSWER_S}
