"""Operations that are delivered together, as columns and one by one: nobody can tell."""

from __future__ import annotations

import random
from typing import Any

import pytest

from crescando.client.base import Request
from crescando.engine.base import Results
from crescando.engine.operations import Interleaved, Operations
from crescando.roles import decoding
from crescando.roles.limits import StorageLimits
from crescando.roles.messages import Forget
from crescando.testing.workload import GROUPS, KEYS
from crescando.types import FULL_RING, KeyRange, Scope
from tests.roles.test_storage import ALICE, BOB, WORK, Desk, counts

NEVER = 1 << 60
HALF: Scope = (KeyRange(0, 1 << 63),)


def draw(rng: random.Random) -> Request:
    """Draw an operation that may be part of a run."""
    key, group, amount = rng.randrange(KEYS), rng.randrange(GROUPS), rng.randint(1, 9)
    name, parameters = rng.choice(
        [
            ("add_by_key", (amount, key)),
            ("add_by_group", (amount, group)),
            ("move_group", (rng.randrange(GROUPS), group)),
            ("delete_by_key", (key,)),
            ("read_by_key", (key,)),
            ("read_by_key", (key,)),
            ("read_by_group", (group,)),
            ("read_all", ()),
        ]
    )
    return WORK._where(name, parameters)


def told(results: list[Results]) -> dict[Any, Any]:
    """Give what each operation was told, by its sender and number."""
    found: dict[Any, Any] = {}
    for each in results:
        for rows in each.rows:
            columns = [column.to_list() for column in rows.columns]
            tuples = list(zip(*columns, strict=True))
            for place, (number, at) in enumerate(
                zip(rows.number.tolist(), rows.position.tolist(), strict=True)
            ):
                own = tuples[int(rows.offsets[place]) : int(rows.offsets[place + 1])]
                scope = rows.scopes[int(rows.scope[place])]
                found[each.to, number] = at, scope, sorted(own)
        for number, affected in counts(each):
            found[each.to, number] = affected
        for failed in each.failed:
            found[each.to, failed.number] = failed.kind, failed.text
    return found


@pytest.mark.parametrize("seed", range(25))
def test_what_comes_as_columns_is_answered_as_if_it_came_one_by_one(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = random.Random(seed)
    limits = StorageLimits(cycle_operations=rng.choice((7, 40, 10_000)))
    desks = [Desk(limits=limits), Desk(limits=limits)]
    answers: list[dict[Any, Any]] = [{}, {}]
    numbers = {ALICE: 1, BOB: 1}
    n_runs = 0
    for _ in range(12):
        client, scope = rng.choice((ALICE, BOB)), rng.choice(((FULL_RING,), HALF))
        pick = rng.choice((WORK.draw, draw, draw, draw))
        requests = [pick(rng) for _ in range(rng.choice((1, 10, 60)))]
        unwanted = rng.sample(range(numbers[client], numbers[client] + len(requests)), len(requests) // 10)
        runs_now = rng.random() < 0.7
        for desk, answer, run_min in zip(desks, answers, (NEVER, 3), strict=True):
            monkeypatch.setattr(decoding, "RUN_MIN", run_min)
            desk.deliver(client, numbers[client], *requests, scope=scope)
            desk.flush()
            n_runs += sum(
                isinstance(entry, (Operations, Interleaved))
                for work in desk.work
                for step in work.steps
                if isinstance(step, list)
                for entry in step
            )
            desk.tell(client, Forget(tuple(unwanted)))
            if runs_now:
                answer |= told(desk.run())
        numbers[client] += len(requests)
    for desk, answer in zip(desks, answers, strict=True):
        answer |= told(desk.run())
        for client in (ALICE, BOB):
            assert not any(not is_write for _, is_write in desk.core.reporter.ledger(client).scopes.values())

    one_by_one, as_columns = answers
    called_off = one_by_one.keys() ^ as_columns.keys()
    assert len(called_off) <= len(one_by_one) // 5
    assert all(as_columns[key] == one_by_one[key] for key in one_by_one.keys() & as_columns.keys())
    assert desks[0].rows() == desks[1].rows()
    assert n_runs > 0
