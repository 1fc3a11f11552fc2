"""The simulated clients' operations hold transactions, and the model carries out every step of one."""

from __future__ import annotations

import random

from crescando.testing.workload import SCHEMA, Model, Step, Workload


def test_one_write_in_four_is_a_transaction() -> None:
    work, rng = Workload(SCHEMA.with_ids(0)), random.Random(1)
    requests = [work.draw(rng) for _ in range(2_000)]
    steps = [work.interpret_request(request) for request in requests]
    writes = [step for step in steps if not step.is_read]
    assert 0.15 < sum(bool(step.then) for step in writes) / len(writes) < 0.35
    assert [len(step.then) for step in steps] == [len(request.then) for request in requests]
    assert not any(step.then for step in steps if step.is_read)


def test_the_model_carries_out_all_of_it_in_order() -> None:
    model = Model({1: (10, 0)})
    add = Step("add_by_key", (5, 2))
    assert model.write(Step("insert", (1, 2, 7, 8, 0, 0), (add, Step("delete_by_key", (1,))))) == (3, 1)
    assert model.rows == {2: (13, 0)}
