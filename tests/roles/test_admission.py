"""Who shares the next cycle: in order as far as order can be seen, and fair beyond."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence

import msgspec
import numpy as np
import pytest

from crescando.engine.operations import Operations, Part, singles
from crescando.engine.statement import Kind, Operation, Shape
from crescando.roles import costs
from crescando.roles.admission import FEW, QUANTUM, SHORT_FOR, SHORT_SHARE, Admission, Admitted
from crescando.roles.bunches import Bunch
from crescando.roles.costs import EACH_S, SCAN_S, Costs
from crescando.roles.load import WORTH_SCANS
from crescando.roles.restraint import HOLD_S, Restraint
from crescando.types import FULL_RING, ProcessId

READS = [Shape(Kind.READ, table, 0) for table in range(1, 5)]
WRITE = Shape(Kind.DELETE, 1, 0)
CLIENTS = [ProcessId("client", name, 1) for name in ("alice", "bob", "carol")]
ALICE, BOB, CAROL = CLIENTS


@pytest.fixture(autouse=True)
def tried(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let as many reads enter as if as many had before, where that is not what a test is about."""
    if "untried" not in request.node.name:
        monkeypatch.setattr(costs, "UNTRIED", 1e9)


def operation(at: int, shape: Shape, client: ProcessId = ALICE) -> Operation:
    return Operation(at, client, at, shape, (), (FULL_RING,))


def admission(operations_max: int = 1 << 14, target_s: float = 1e9) -> Admission[str]:
    return Admission(operations_max, target_s)


def put(waiting: Admission[str], at: int, shape: Shape = READS[0], client: ProcessId = ALICE) -> None:
    waiting.put(operation(at, shape, client), at, 100)


def positions(waiting: Admission[str]) -> list[int]:
    return order_of(waiting.take())


def order_of(admitted: Admitted[str]) -> list[int]:
    """Give the positions of what is executed, in order; a transaction's once."""
    done: list[int] = []
    for step in admitted.steps:
        if isinstance(step, str):
            done.append(int(step.removeprefix("change ")))
        else:
            done += [each.position for each in singles(step) if each.step <= 0]
    return done


def taken_by(waiting: Admission[str]) -> Counter[ProcessId]:
    return Counter(each.sender for each in singles(waiting.take().entries))


def bunches(operations: Sequence[Operation], size: int, *, run_min: int = 3) -> list[Bunch]:
    """Give operations that were delivered together as a storage process does: runs, and single ones."""
    found = []
    for shape in {id(each.shape): each.shape for each in operations}.values():
        places = np.array([place for place, each in enumerate(operations) if each.shape is shape])
        own = tuple(operations[place] for place in places.tolist())
        work: Part = own
        if len(own) >= run_min:
            at, scope = np.array([each.position for each in own]), np.zeros(len(own), np.int64)
            work = Operations(at, at, own[0].sender, shape, scope, ((FULL_RING,),), ())
        found.append(Bunch(shape, work, size, places))
    return found


@pytest.mark.parametrize("seed", range(60))
def test_no_read_sees_another_write_than_in_the_order_and_everything_is_taken_once(seed: int) -> None:
    rng = random.Random(seed)
    waiting = admission(rng.choice((1, 3, 50, 400)), rng.choice((1e-9, 3e-3, 1e9)))
    writes: list[int] = []
    done: list[int] = []
    n_cycles = at = 0
    while at < 600:
        roll, client = rng.random(), rng.choice(CLIENTS)
        if roll < 0.05:
            waiting.put(f"change {at}", at, 1)
            writes.append(at)
            at += 1
        elif roll < 0.15:
            steps = [msgspec.structs.replace(operation(at, WRITE), step=step) for step in range(2)]
            waiting.put(steps, at, 1)
            writes.append(at)
            at += 1
        else:
            share = rng.choice((0.0, 0.1, 0.5, 1.0))
            shapes = [
                WRITE if rng.random() < share else rng.choice(READS) for _ in range(rng.choice((1, 5, 60)))
            ]
            together = [operation(at + place, shape, client) for place, shape in enumerate(shapes)]
            writes += [each.position for each in together if each.shape is WRITE]
            waiting.put_all(bunches(together, 1))
            at += len(together)
        if rng.random() < 0.3:
            admitted = waiting.take()
            done += order_of(admitted)
            assert admitted.upto >= max(order_of(admitted))
            waiting.costs.learn(admitted.load.weights, rng.uniform(0, 0.1))
    while len(waiting):
        taken = positions(waiting)
        assert taken, "a cycle always takes something"
        n_cycles += 1
        done += taken

    assert sorted(done) == list(range(at))
    assert waiting.n == waiting.n_bytes == waiting.backlog_s == 0
    assert n_cycles <= at

    is_write = set(writes)
    assert [each for each in done if each in is_write] == writes
    n_before = 0
    for each in done:
        if each in is_write:
            n_before += 1
        else:
            assert n_before == sum(1 for write in writes if write < each), f"read {each} sees other writes"


def test_a_batch_is_whole_whoever_took_turns() -> None:
    waiting = admission()
    for at in range(500):
        put(waiting, at, READS[at % 3], CLIENTS[at % 3])

    assert sorted(positions(waiting)) == list(range(500))


def test_one_read_does_not_wait_behind_a_million_of_another_client() -> None:
    waiting = admission(operations_max=1_000)
    for at in range(50_000):
        put(waiting, at)
    put(waiting, 50_000, client=BOB)

    assert 50_000 in positions(waiting)


def many(waiting: Admission[str], n: int, client: ProcessId, first: int = 0, shape: Shape = READS[0]) -> None:
    for at in range(first, first + n):
        put(waiting, at, shape, client)


def test_few_reads_have_a_cycle_without_the_many_of_others() -> None:
    waiting = admission()
    many(waiting, 5_000, BOB)
    many(waiting, FEW, ALICE, 5_000, READS[1])
    many(waiting, 2, CAROL, 6_000, READS[2])

    assert taken_by(waiting) == {ALICE: FEW, CAROL: 2}
    assert taken_by(waiting) == {BOB: 5_000}


def test_who_always_waits_for_few_does_not_keep_out_who_waits_for_many() -> None:
    waiting = admission(operations_max=100)
    many(waiting, 1_000, BOB)
    taken = []
    for turn in range(10):
        many(waiting, 1, ALICE, 1_000 + turn)
        taken.append(taken_by(waiting))

    assert taken[0::2] == [{ALICE: 1}] * 5
    # Between, they share one as ever.
    assert taken[1::2] == [{ALICE: 1, BOB: 99}] * 5


def test_what_is_left_of_many_is_not_few() -> None:
    waiting = admission(operations_max=1_000)
    many(waiting, 505, ALICE)
    many(waiting, 505, BOB, 505)
    assert len(positions(waiting)) == 1_000
    many(waiting, 1_000, CAROL, 2_000)

    taken = taken_by(waiting)

    assert taken[CAROL] > 900
    assert taken[ALICE] + taken[BOB] == 10


def test_few_reads_share_a_cycle_if_nobody_waits_for_many() -> None:
    waiting = admission()
    for place, client in enumerate(CLIENTS):
        many(waiting, FEW, client, place * FEW)

    assert taken_by(waiting) == dict.fromkeys(CLIENTS, FEW)


@pytest.mark.parametrize("cost", ["scan_s", "each_s"])
def test_few_reads_that_take_long_have_no_cycle_of_their_own(cost: str) -> None:
    waiting = admission(target_s=0.02)
    setattr(waiting.costs.of(READS[1]), cost, 0.006)
    many(waiting, 500, BOB)
    many(waiting, 1, ALICE, 500, READS[1])

    assert BOB in taken_by(waiting)


def test_shapes_of_few_reads_are_scanned_for_once() -> None:
    waiting = admission(target_s=0.02)
    waiting.costs.of(READS[1]).scan_s = 0.004
    many(waiting, 5_000, BOB)
    many(waiting, 2, ALICE, 5_000, READS[1])
    many(waiting, 2, CAROL, 6_000, READS[1])

    assert taken_by(waiting) == {ALICE: 2, CAROL: 2}


def test_cycles_are_short_for_a_while_after_one_of_few_reads() -> None:
    waiting = admission(target_s=0.02)
    waiting.costs.of(READS[0]).each_s = 1e-5
    many(waiting, 100_000, BOB)
    long = len(positions(waiting))
    many(waiting, 1, ALICE, 200_000)
    assert taken_by(waiting) == {ALICE: 1}

    sizes = [len(positions(waiting)) for _ in range(SHORT_FOR + 2)]

    # What the scan leaves of the time is for operations.
    assert long == int((0.02 - SCAN_S) / 1e-5)
    assert set(sizes[:SHORT_FOR]) == {int((SHORT_SHARE * 0.02 - SCAN_S) / 1e-5)}
    assert sizes[SHORT_FOR:] == [long] * 2


def test_a_write_waits_for_few_reads_and_many_before_it() -> None:
    waiting = admission()
    many(waiting, 1_000, BOB)
    many(waiting, 1, ALICE, 1_000)
    put(waiting, 1_001, WRITE, ALICE)
    many(waiting, 1, ALICE, 1_002)

    assert positions(waiting) == [1_000]
    assert positions(waiting) == [*range(1_000), 1_001, 1_002]


def test_few_reads_share_a_cycle_with_others_that_take_hardly_longer() -> None:
    waiting = admission()
    many(waiting, FEW + 1, BOB)
    many(waiting, 1, ALICE, FEW + 1)

    assert taken_by(waiting) == {BOB: FEW + 1, ALICE: 1}


def test_a_slow_read_of_one_client_keeps_quick_ones_out_of_no_cycle() -> None:
    waiting = admission(target_s=0.02)
    waiting.costs.of(READS[1]).scan_s = 0.006
    many(waiting, 5_000, BOB)
    many(waiting, 1, ALICE, 5_000, READS[1])
    many(waiting, 1, CAROL, 5_001)

    assert taken_by(waiting) == {CAROL: 1}
    assert taken_by(waiting).keys() == {BOB}, "beside these it has no room"
    assert taken_by(waiting)[ALICE] == 1


def test_few_reads_that_came_one_by_one_are_weighed_together() -> None:
    waiting = admission(target_s=0.02)
    waiting.costs.of(READS[1]).each_s = 0.001
    many(waiting, 5_000, BOB)
    many(waiting, 5, ALICE, 5_000, READS[1])

    assert BOB in taken_by(waiting)


def test_who_was_left_waiting_is_first_after_a_cycle_of_few_reads() -> None:
    waiting = admission(operations_max=1)
    many(waiting, 5_000, BOB)
    many(waiting, 2, ALICE, 5_000)

    assert taken_by(waiting) == {ALICE: 1}
    assert taken_by(waiting) == {BOB: 1}


def test_what_was_called_off_counts_no_more() -> None:
    waiting = admission()
    many(waiting, 1_000, ALICE)
    many(waiting, 5_000, BOB, 1_000)
    waiting.drop(ALICE, set(range(1, 1_000)))

    assert taken_by(waiting) == {ALICE: 1}

    waiting = admission()
    many(waiting, FEW + 1, ALICE)
    many(waiting, 1, BOB, 100)
    waiting.drop(ALICE, set(range(1, FEW + 1)))

    assert taken_by(waiting) == {ALICE: 1, BOB: 1}


def test_who_never_waits_for_many_at_once_always_waits_for_few() -> None:
    waiting = admission(operations_max=1)
    many(waiting, 5_000, BOB)
    many(waiting, 12, ALICE, 5_000)
    for turn in range(20):
        many(waiting, 1, ALICE, 6_000 + turn)
        assert waiting.take().load.is_brief
        assert not waiting.take().load.is_brief


@pytest.mark.parametrize("n_few", [0, 50, 900])
@pytest.mark.parametrize("n", [1, FEW + 1])
def test_slow_reads_find_room_beside_quick_ones_without_end(n: int, n_few: int) -> None:
    waiting = admission(operations_max=400, target_s=0.01)
    waiting.costs.of(READS[1]).scan_s = 0.02
    many(waiting, 5_000, BOB)
    many(waiting, n, ALICE, 0, READS[1])
    many(waiting, 5_000, CAROL)

    for turn in range(12):
        for place in range(n_few):
            many(waiting, 1, ProcessId("client", f"{turn}.{place}"))
        if ALICE in taken_by(waiting):
            break
    else:
        pytest.fail("nobody's turn came in twelve cycles")


def test_a_slow_shape_of_a_client_has_its_turn_beside_a_fast_one_without_end() -> None:
    waiting = admission(operations_max=2 * QUANTUM, target_s=0.01)
    waiting.costs.of(READS[1]).scan_s = 0.02
    many(waiting, 5_000, BOB)
    many(waiting, 5_000, ALICE, 5_000)
    many(waiting, 1, ALICE, 10_000, READS[1])

    assert any(10_000 in positions(waiting) for _ in range(6))


def test_a_large_scan_makes_room_for_who_had_none_before() -> None:
    waiting = admission(target_s=0.01)
    for shape, scan_s, each_s in zip(READS, (0.001, 0.0001, 0.007), (0.001, 0.0085, 1e-6), strict=False):
        waiting.costs.of(shape).scan_s, waiting.costs.of(shape).each_s = scan_s, each_s
    for place, client in enumerate((BOB, ALICE, CAROL)):
        put(waiting, place, READS[place], client)

    assert taken_by(waiting) == dict.fromkeys(CLIENTS, 1)


def test_calling_off_what_waits_no_more_makes_many_not_few() -> None:
    waiting = admission(operations_max=1_000)
    many(waiting, 505, ALICE)
    many(waiting, 505, BOB, 505)
    waiting.take()
    many(waiting, 5_000, CAROL, 2_000)
    waiting.drop(BOB, {1 << 40})

    assert not waiting.take().load.is_brief


def test_scans_that_others_share_count_once() -> None:
    waiting = admission(target_s=0.01)
    waiting.costs.of(READS[1]).scan_s = 0.0015
    many(waiting, FEW + 1, BOB)
    many(waiting, FEW + 1, CAROL, 100)
    many(waiting, 1, ALICE, 200, READS[1])

    assert not waiting.take().load.is_brief


def test_clients_share_a_cycle_evenly() -> None:
    waiting = admission(operations_max=QUANTUM * 9)
    for client in CLIENTS:
        for at in range(5_000):
            put(waiting, at, client=client)

    assert taken_by(waiting) == dict.fromkeys(CLIENTS, QUANTUM * 3)


def test_who_was_last_is_first_in_the_next_cycle() -> None:
    waiting = admission(operations_max=QUANTUM)
    for client in CLIENTS:
        for at in range(1_000):
            put(waiting, at, client=client)

    assert [list(taken_by(waiting)) for _ in range(4)] == [[ALICE], [BOB], [CAROL], [ALICE]]


def test_reads_alone_are_cut_by_the_time_of_their_scans() -> None:
    waiting = admission(target_s=2.5 * SCAN_S)
    for at, shape in enumerate(READS):
        put(waiting, at, shape)
        put(waiting, 10 + at, shape)

    # Of two shapes everything enters, since they are scanned for anyway.
    assert sorted(positions(waiting)) == [0, 1, 10, 11]
    assert sorted(positions(waiting)) == [2, 3, 12, 13]


def test_a_slow_shape_does_not_hold_up_a_fast_one() -> None:
    waiting = admission(target_s=0.02)
    slow, fast = READS[:2]
    waiting.costs.of(slow).each_s = 0.005
    for at in range(100):
        put(waiting, at, slow)
    put(waiting, 100, fast, BOB)

    admitted = waiting.take()

    assert 100 in order_of(admitted)
    assert admitted.load.expected_s < 0.03


def test_operations_may_take_as_long_as_the_scans_they_share() -> None:
    waiting = admission(target_s=0.02)
    waiting.costs.of(READS[0]).scan_s = 1.0
    for at in range(20_000):
        put(waiting, at)

    assert len(positions(waiting)) == 16_384


def test_operations_may_take_twice_as_long_as_the_largest_scan() -> None:
    waiting = admission(target_s=0.01)
    cost = waiting.costs.of(WRITE)
    cost.scan_s, cost.each_s = 0.008, 1e-4
    for at in range(1_000):
        put(waiting, at, WRITE)

    assert len(positions(waiting)) == pytest.approx(WORTH_SCANS * 0.008 / 1e-4, abs=1)


def test_a_mixture_is_not_cut_into_a_cycle_for_each_write() -> None:
    waiting = admission(target_s=0.02)
    for shape in (*READS, WRITE):
        waiting.costs.of(shape).scan_s = 0.1
    for at in range(1_000):
        put(waiting, at, WRITE if at % 2 else READS[at % 4])

    n_cycles = 0
    while len(waiting):
        waiting.take()
        n_cycles += 1
    assert n_cycles <= 3


def test_writes_alone_are_cut_by_their_time() -> None:
    waiting = admission(target_s=0.02)
    for at in range(10_000):
        put(waiting, at, WRITE)

    admitted = waiting.take()

    assert len(order_of(admitted)) < 0.02 / EACH_S
    assert admitted.load.expected_s <= 0.02 + EACH_S


def test_what_a_client_wants_no_more_is_dropped() -> None:
    waiting = admission()
    for at in range(6):
        put(waiting, at, READS[at % 2])
        put(waiting, 10 + at, client=BOB)
    put(waiting, 6, WRITE)
    put(waiting, 7)

    dropped = waiting.drop(ALICE, {0, 1, 2, 3, 6, 7})

    assert dropped == {0, 1, 2, 3, 7}
    assert sorted(positions(waiting)) == [4, 5, 6, 10, 11, 12, 13, 14, 15]
    assert waiting.n == waiting.n_bytes == 0


def test_costs_are_learned_from_cycles_of_changing_company() -> None:
    costs = Costs()
    truth = {READS[0]: (0.003, 3e-6), READS[1]: (0.030, 1e-6), READS[2]: (0.0005, 1e-3)}
    rng = random.Random(1)
    for _ in range(400):
        company = {shape: rng.choice((1, 10, 3_000)) for shape in truth if rng.random() < 0.5}
        for shape in company:
            costs.of(shape)
        took_s = sum(truth[shape][0] + truth[shape][1] * n for shape, n in company.items())
        costs.learn({id(shape): float(n) for shape, n in company.items()}, took_s)

    for shape, (scan_s, each_s) in truth.items():
        told_s = costs.of(shape).scan_s + 1_000 * costs.of(shape).each_s
        assert told_s == pytest.approx(scan_s + 1_000 * each_s, rel=1.0), shape


def test_a_backlog_is_confirmed_by_and_by() -> None:
    restraint = Restraint(0.1)
    assert not restraint.look(0.1, 0.0)
    assert restraint.wake_at_s is None

    held = [restraint.look(9.0, 0.01 * step) for step in range(300)]

    assert held[0]
    assert held.count(False) == pytest.approx(3.0 / HOLD_S, abs=1), "it confirms every now and then"
    assert not restraint.look(0.0, 3.0)


def test_whoever_waits_to_confirm_asks_to_be_called_again() -> None:
    restraint = Restraint(0.1)
    assert restraint.look(1.0, 5.0)
    assert restraint.wake_at_s == 5.0 + HOLD_S
    assert not restraint.look(1.0, 5.0 + HOLD_S)


@pytest.mark.parametrize("seed", range(20))
def test_what_is_put_together_enters_as_if_put_one_by_one(seed: int) -> None:
    rng = random.Random(seed)
    operations_max = rng.choice((200, 5_000))
    apart, together = admission(operations_max), admission(operations_max)
    at = 0
    for _ in range(30):
        client, size = rng.choice(CLIENTS), rng.choice((1, 1500, 9000))
        kinds = rng.choice(([*READS], [WRITE], [*READS, WRITE]))
        batch = [operation(at + n, rng.choice(kinds), client) for n in range(rng.randint(1, 40))]
        at += len(batch)
        for each in batch:
            apart.put(each, each.position, size)
        together.put_all(bunches(batch, size))
        assert (apart.n, apart.n_bytes) == (together.n, together.n_bytes)
        assert together.backlog_s == pytest.approx(apart.backlog_s)
        if rng.random() < 0.4:
            left, right = apart.take(), together.take()
            if operations_max == 200:
                assert len(order_of(left)) == len(order_of(right))
                continue
            assert sorted(order_of(left)) == sorted(order_of(right))
            assert (left.upto, left.n_bytes) == (right.upto, right.n_bytes)
            assert right.load.weights == pytest.approx(left.load.weights)


def test_reads_among_writes_are_dropped_too() -> None:
    waiting = admission()
    mixed = [operation(at, WRITE if at in (2, 7) else READS[at % 2]) for at in range(10)]
    waiting.put_all(bunches(mixed, 100))

    assert waiting.drop(BOB, {0, 4}) == set()
    assert waiting.drop(ALICE, {0, 2, 4, 5, 8, 77}) == {0, 4, 5, 8}
    assert positions(waiting) == [1, 2, 3, 6, 7, 9]
    assert waiting.n == waiting.n_bytes == 0


def test_a_mixture_is_cut_where_there_is_no_more_room() -> None:
    waiting = admission(operations_max=7)
    waiting.put_all(
        bunches([operation(at, WRITE if at % 3 == 0 else READS[at % 2]) for at in range(20)], 100)
    )

    assert [sorted(positions(waiting)) for _ in range(3)] == [
        list(range(7)),
        list(range(7, 14)),
        list(range(14, 20)),
    ]


def test_a_mixture_is_cut_by_its_time() -> None:
    waiting = admission(target_s=0.02)
    slow = READS[1]
    waiting.costs.of(slow).each_s = 0.005
    waiting.put_all(bunches([operation(at, WRITE if at % 2 == 0 else slow) for at in range(101)], 100))

    admitted = waiting.take()

    assert admitted.load.expected_s < 0.03
    assert len(order_of(admitted)) < 10


@pytest.mark.parametrize("each_s", [1e-6, 1e-4, 2e-3, 2e-2])
@pytest.mark.parametrize("scan_s", [1e-3, 5e-2])
def test_untried_reads_are_no_cycle_of_a_minute(scan_s: float, each_s: float) -> None:
    """Three thousand reads of a shape that nobody has seen, each of which may find all there is."""
    waiting = admission(target_s=costs.CYCLE_S)
    for at in range(3_000):
        put(waiting, at, READS[0], CLIENTS[at % 3])
    took_s: list[float] = []
    sizes: list[int] = []
    while len(waiting):
        admitted = waiting.take()
        sizes.append(admitted.load.n)
        took_s.append(scan_s + each_s * sizes[-1])
        waiting.costs.learn(admitted.load.weights, took_s[-1])

    assert sum(sizes) == 3_000
    # Until it is known how long they take, twice as many are tried each time.
    assert max(took_s) <= max(3 * costs.CYCLE_S, 3 * scan_s + 4 * costs.UNTRIED * each_s)
    if each_s == 1e-6:
        assert len(sizes) <= 12, "what is cheap is soon done"


def run_cycle(
    waiting: Admission[str], scan_s: float, each_s: float, held_up_s: float = 0.0
) -> tuple[int, float]:
    """Execute what shares the next cycle; gives how many did, and the time."""
    admitted = waiting.take()
    took_s = scan_s * len(admitted.load.weights) + each_s * admitted.load.n + held_up_s
    admitted.load.learn(took_s)
    return admitted.load.n, took_s


def keep_busy(waiting: Admission[str], kinds: Sequence[Shape], at: int) -> int:
    """Let hundreds wait, as clients do that ask as fast as they are answered."""
    while len(waiting) < 300:
        waiting.put_all(bunches([operation(at + n, kinds[n % len(kinds)]) for n in range(100)], 100))
        at += 100
    return at


@pytest.mark.parametrize("wrong_s", [0.015, 0.3])
@pytest.mark.parametrize("kinds", [[READS[0]], [WRITE], [READS[0], WRITE]], ids=["reads", "writes", "both"])
def test_estimates_that_let_one_in_at_a_time_are_found_out(kinds: list[Shape], wrong_s: float) -> None:
    waiting = admission(target_s=costs.CYCLE_S)
    for shape in kinds:
        cost = waiting.costs.of(shape)
        cost.scan_s = cost.each_s = wrong_s
    at, sizes = 0, list[int]()
    for _ in range(60):
        at = keep_busy(waiting, kinds, at)
        sizes.append(run_cycle(waiting, 0.015, 1e-4)[0])

    assert sizes[0] <= WORTH_SCANS * len(kinds), "it is what shall be found out"
    assert min(sizes[30:]) >= 30


def test_estimates_are_found_out_though_somebody_always_waits_for_few() -> None:
    waiting = admission(target_s=costs.CYCLE_S)
    slow, quick = READS[:2]
    waiting.costs.of(slow).scan_s = waiting.costs.of(slow).each_s = 0.3
    at, sizes = 0, list[int]()
    for _ in range(400):
        at = keep_busy(waiting, [slow], at)
        put(waiting, at, quick, BOB)
        at += 1
        admitted = waiting.take()
        n_slow = int(admitted.load.weights.get(id(slow), 0.0))
        admitted.load.learn(0.0005 + (0.015 + 1e-4 * n_slow if n_slow else 0.0))
        if n_slow:
            sizes.append(n_slow)

    assert sizes[0] <= WORTH_SCANS
    assert 100 < len(sizes) < 300, "there must be cycles of few reads, and others"
    assert np.median(sizes[100:]) > 200


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kinds", [[READS[0]], [WRITE], [READS[0], WRITE]], ids=["reads", "writes", "both"])
def test_a_host_that_stood_still_does_not_make_operations_enter_one_by_one(
    kinds: list[Shape], seed: int
) -> None:
    """Seen beside thirty busy processes: one read a scan for minutes, though a thousand waited."""
    rng = random.Random(seed)
    waiting = admission(target_s=costs.CYCLE_S)
    at = 0
    for _ in range(300):
        at = keep_busy(waiting, kinds, at)
        run_cycle(waiting, 0.015, 1e-4, rng.uniform(0.1, 2.0) if rng.random() < 0.2 else 0.0)

    n_done, passed_s = 0, 0.0
    while passed_s < 3.0:
        at = keep_busy(waiting, kinds, at)
        n, took_s = run_cycle(waiting, 0.015, 1e-4)
        n_done, passed_s = n_done + n, passed_s + took_s

    # From when the host goes on, half of what could be done: twice as long for operations as for a scan.
    share = WORTH_SCANS / (len(kinds) + WORTH_SCANS)
    assert n_done / passed_s > 0.5 * share / 1e-4, f"seed {seed}"


@pytest.mark.parametrize("each_s", [1e-4, 1e-3, 0.05, 1.0])
def test_what_is_tried_beyond_the_estimates_costs_little_time(each_s: float) -> None:
    """Operations that are as slow as they look: few share a cycle, and hardly any cycle has more."""
    waiting = admission(target_s=costs.CYCLE_S)
    took: list[float] = []
    at = 0
    for _ in range(600):
        at = keep_busy(waiting, [WRITE], at)
        took.append(run_cycle(waiting, 0.015, each_s)[1])
    settled = took[100:]

    usual_s = 0.015 + max(WORTH_SCANS * 0.015, each_s)
    assert np.quantile(settled, 0.98) < 1.5 * usual_s
    assert max(settled) < 2.5 * usual_s


def test_a_trial_that_shows_nothing_is_ever_rarer_until_a_cycle_is_held_up() -> None:
    trials = costs.Trials()

    def pause() -> int:
        """Give how many cycles it takes until more are tried."""
        for n in range(1_000):
            if trials.is_one:
                trials.learn(20, 0.04, 0.04, is_full=True)
                return n
            trials.learn(10, 0.02, 0.02, is_full=True)
        raise AssertionError

    assert [pause() for _ in range(7)] == [16, 32, 64, 128, 256, 256, 256]
    trials.learn(10, 1.0, 0.02, is_full=True)
    assert pause() <= costs.TRIAL_PAUSE


def test_nothing_is_tried_when_nothing_is_left_waiting() -> None:
    trials = costs.Trials()
    for _ in range(1_000):
        trials.learn(10, 0.02, 0.02, is_full=False)
        assert not trials.is_one
