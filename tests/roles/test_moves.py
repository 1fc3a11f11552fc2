"""Ranges move between storage processes while written and read, and nothing is lost or done twice."""

from __future__ import annotations

import os
import random

import pytest

from crescando.roles.limits import StorageLimits
from crescando.routing.rubberband import (
    AddColumn,
    Contract,
    CreateTable,
    DropChange,
    DropColumn,
    Expand,
    Rebalance,
    Replace,
    Transformation,
)
from crescando.schema import ColumnDef, DataType
from crescando.testing.workload import KEYS, SCHEMA
from crescando.types import RING_MAX
from tests.roles.moving import ADMIN, ALICE, BOB, WORK, Town
from tests.routing.worlds import storage

S = [storage(i) for i in range(8)]
QUARTERS = [0, 1 << 62, 1 << 63, 3 << 62]
SMALL = StorageLimits(copy_window_bytes=300, cycle_operations=8)


def town(n: int = 4, replication: int = 2, n_standbys: int = 2, **options: object) -> Town:
    made = Town(
        S[:n], replication=replication, standbys=S[n : n + n_standbys], ring_ids=QUARTERS[:n], **options
    )  # type: ignore[arg-type]
    made.order_config(ADMIN, CreateTable(SCHEMA))
    made.order_data(ALICE, [WORK._put("insert", list(range(KEYS)), [10 * k for k in range(KEYS)], 1)])
    return made


CHANGES = {
    "expand": Expand(S[4], 1 << 61),
    "expand over the end": Expand(S[4], RING_MAX - 5),
    "contract": Contract(S[1]),
    "replace": Replace(S[2], S[4]),
    "rebalance": Rebalance(S[3], 1 << 61),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_moves_exactly_what_it_must(name: str) -> None:
    world = town()
    assert world.change(CHANGES[name]) is not None
    world.settle()
    world.order_data(BOB, [WORK._where("add_by_group", (5, 1)), WORK._where("read_all", ())])
    world.settle()
    world.check()
    world.check_reported()


@pytest.mark.parametrize("seed", range(int(os.environ.get("MOVES_SEEDS", "40"))))
def test_changes_under_writes_and_reads_equal_one_engine_that_never_moved(seed: int) -> None:
    rng = random.Random(seed)
    limits = StorageLimits(
        copy_window_bytes=rng.choice((200, 2000, 1 << 20)), cycle_operations=rng.choice((1, 3, 8, 100))
    )
    n = rng.choice((3, 4))
    world = town(n, rng.choice((1, 2, 3)), 3, limits=limits)
    for _ in range(rng.randrange(4, 12)):
        what = rng.random()
        if what < 0.35:
            transformation = draw(rng, world)
            if transformation is not None:
                world.change(transformation)
        elif what < 0.4 and world.config.changes:
            world.order_config(ADMIN, DropChange(rng.choice(world.config.changes).id, "no more"))
        elif what < 0.45:
            name = f"x{rng.randrange(2)}"
            has = any(column.name == name for column in world.config.table("accounts").columns)
            body = (
                DropColumn("accounts", name)
                if has
                else AddColumn("accounts", ColumnDef(name, DataType.STRING))
            )
            world.order_config(ADMIN, body)
        for _ in range(rng.randrange(1, 4)):
            world.order_data(
                rng.choice((ALICE, BOB)), [WORK.draw(rng) for _ in range(rng.choice((1, 2, 12)))]
            )
            for _ in range(rng.randrange(60)):
                world.random_step(rng)
    world.settle()
    world.check()
    world.check_reported()
    assert world.n_answered


def draw(rng: random.Random, world: Town) -> Transformation | None:
    """Draw a transformation of the ring that the changes under way will give."""
    target = world.config.target
    standbys = sorted(world.config.storages - set(target.processes))
    at = rng.choice((rng.randrange(RING_MAX), rng.choice(QUARTERS) + rng.randrange(1000)))
    process = rng.choice(target.processes)
    kinds: list[Transformation] = [Rebalance(process, at)]
    if standbys:
        kinds += [Expand(rng.choice(standbys), at), Replace(process, rng.choice(standbys))]
    if len(target.processes) > target.replication:
        kinds.append(Contract(process))
    return rng.choice(kinds)
