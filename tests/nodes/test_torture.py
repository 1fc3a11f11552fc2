"""One loop of the torture, and that its judge finds what it is there to find."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import msgspec
import pytest

from crescando.client.base import ReadInParts, ReadOutcome, WriteOutcome
from crescando.errors import RefusedError
from crescando.types import Position, instance_of
from tests.nodes.clusters import PATIENCE_S, free_ports, until
from tests.nodes.torture.__main__ import WELL_MAX_S, WELL_P50_S, figures
from tests.nodes.torture.bulk import Loaded, rows_of
from tests.nodes.torture.history import Asked, History
from tests.nodes.torture.judging import Evidence, Replica, check_loads, judge
from tests.nodes.torture.loop import Seen, run_loop
from tests.nodes.torture.plan import FAULTS, draw_plan
from tests.nodes.torture.relays import KINDS, Relays

pytestmark = pytest.mark.slow

SEED = 4
"""Whose one episode kills a storage process while the ring grows."""


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Seen:
    return run_loop(SEED, tmp_path_factory.mktemp("torture"), episodes=1, only="kill_storage")


@pytest.fixture
def evidence(seen: Seen) -> Evidence:
    assert seen.evidence is not None
    return seen.evidence


@pytest.mark.xdist_group("a torture")
def test_a_killed_process_costs_no_write_and_no_right_answer(seen: Seen) -> None:
    assert seen.found.violations == []
    assert seen.found.counted["written"] > 50
    assert min(seen.found.counted[f"{level}_reads"] for level in ("sequential", "snapshot", "basic")) > 5
    assert seen.found.counted["replicas"] >= 12
    assert min(seen.found.counted[what] for what in ("loads_shown", "extracts")) > 0
    # How fast that is, is measured where nothing else runs.
    assert [hit.fault for hit, _ in seen.first_s] == ["kill_storage"]
    assert seen.first_s[0][1] < PATIENCE_S


def with_asked(evidence: Evidence, changed: Asked) -> Evidence:
    """Give the evidence with one operation seen in another way."""
    key = changed.client, changed.token
    histories = [
        replace(
            history,
            asked=[changed if (each.client, each.token) == key else each for each in history.asked],
        )
        for history in evidence.histories
    ]
    return replace(evidence, histories=histories)


@pytest.mark.xdist_group("a torture")
def test_a_lost_write_is_found_in_the_order_and_in_a_replica(evidence: Evidence) -> None:
    written = [each for each in evidence.asked if isinstance(each.outcome, WriteOutcome)]
    last = max(written, key=lambda each: each.outcome.position)  # type: ignore[union-attr]
    assert isinstance(last.outcome, WriteOutcome)
    gone = instance_of(last.outcome.position)
    learned = {
        router: [(instance, None if instance == gone else batch) for instance, batch in known]
        for router, known in evidence.learned.items()
    }
    assert any("Q has no operation" in text for text in judge(replace(evidence, learned=learned)).lost)

    full = next(index for index, each in enumerate(evidence.replicas) if each.rows)
    key, value, group = evidence.replicas[full].rows[0]
    stale = [(key, value - 1, group), *evidence.replicas[full].rows[1:]]
    for rows in (evidence.replicas[full].rows[1:], stale):
        replicas = list(evidence.replicas)
        replicas[full] = replace(replicas[full], rows=rows)
        assert any(text.startswith("replica: ") for text in judge(replace(evidence, replicas=replicas)).lost)


@pytest.mark.xdist_group("a torture")
def test_routers_that_disagree_and_errors_that_lie_are_found(evidence: Evidence) -> None:
    (router, known), (_, others) = list(evidence.learned.items())[:2]
    both = dict(known).keys() & {instance for instance, batch in others if batch is not None}
    forgotten = max(both)
    mine = [(instance, None if instance == forgotten else batch) for instance, batch in known]
    found = judge(replace(evidence, learned={**evidence.learned, router: mine}))
    assert any("learned another value" in text for text in found.other)

    write = next(each for each in evidence.asked if each.is_written and each.number)
    refused = with_asked(evidence, replace(write, outcome=RefusedError("planted")))
    assert any("but was routed" in text for text in judge(refused).other)


@pytest.mark.xdist_group("a torture")
@pytest.mark.parametrize("isolation", ["sequential", "snapshot", "basic"])
def test_an_answer_that_is_not_right_is_found(evidence: Evidence, isolation: str) -> None:
    read = next(
        each
        for each in reversed(evidence.asked)
        if each.isolation == isolation and isinstance(each.outcome, ReadOutcome) and each.outcome.pieces
        if sum(map(len, each.outcome.pieces))
    )
    assert isinstance(read.outcome, ReadOutcome)
    nothing = ReadInParts(read.outcome.position)
    assert judge(with_asked(evidence, replace(read, outcome=nothing))).wrong
    assert judge(with_asked(evidence, replace(read, outcome=None))).other


@pytest.mark.xdist_group("a torture")
def test_an_answer_of_former_times_is_found(evidence: Evidence) -> None:
    """Right rows of a position that is behind what somebody had been told."""
    reads = [each for each in evidence.asked if each.isolation == "snapshot"]
    early = next(each for each in reads if isinstance(each.outcome, ReadOutcome))
    late = next(each for each in reversed(reads) if each.step == early.step and each is not early)
    found = judge(with_asked(evidence, replace(late, outcome=early.outcome)))
    assert any("had seen" in text or "had been told" in text for text in found.wrong)

    writes = [each for each in evidence.asked if isinstance(each.outcome, WriteOutcome)]
    last = writes[-1]
    assert isinstance(last.outcome, WriteOutcome)
    swapped = msgspec.structs.replace(last.outcome, position=Position(1))
    assert any(
        "real time" in text for text in judge(with_asked(evidence, replace(last, outcome=swapped))).wrong
    )


def loads_of(evidence: Evidence, **changes: Any) -> list[Loaded]:
    """Give the loads, the first one that was shown seen in another way."""
    first = next(load for load in evidence.loads if load.fate == "shown")
    return [replace(load, **changes) if load is first else load for load in evidence.loads]


@pytest.mark.xdist_group("a torture")
def test_a_load_that_is_torn_doubled_or_ought_not_to_be_there_is_found(evidence: Evidence) -> None:
    def found(loads: list[Loaded], replicas: list[Replica]) -> str:
        return "\n".join(check_loads(loads, [], replicas, evidence.schema))

    number = next(load.number for load in evidence.loads if load.fate == "shown")
    place = next(i for i, each in enumerate(evidence.loaded) if number in {row[-1] for row in each.rows})
    holder = evidence.loaded[place]
    row = next(row for row in holder.rows if row[-1] == number)

    def held(rows: list[tuple[int, ...]]) -> list[Replica]:
        return [replace(each, rows=rows) if each is holder else each for each in evidence.loaded]

    assert found(evidence.loads, evidence.loaded) == ""
    assert f"lacks [{row}]" in found(evidence.loads, held([each for each in holder.rows if each != row]))
    assert f"has [{row}] more" in found(evidence.loads, held([*holder.rows, row]))
    assert "more" in found(loads_of(evidence, fate="dropped"), evidence.loaded)
    assert "nobody else has" in found(loads_of(evidence, fate="conflict"), evidence.loaded)
    # Of one that nobody knows of: all, or nothing.
    unknown = loads_of(evidence, fate="unknown", position=-1)
    nothing = [
        replace(each, rows=[row for row in each.rows if row[-1] != number]) for each in evidence.loaded
    ]
    half = [
        replace(each, rows=[row for row in each.rows if row[-1] != number or row[0] % 2])
        for each in evidence.loaded
    ]
    assert found(unknown, evidence.loaded) == found(unknown, nothing) == ""
    assert "lacks" in found(unknown, half)
    assert "lacks" in found(loads_of(evidence), nothing)


@pytest.mark.xdist_group("a torture")
def test_an_extract_that_is_not_one_position_is_found(evidence: Evidence) -> None:
    real = max(evidence.extracts, key=lambda each: each.position)
    # One more load, as if there had been one.
    load = Loaded(10**6, "shown", real.position - 1, real.asked_s - 1.0, real.asked_s)
    whole = replace(real, loaded=(*real.loaded, *rows_of(load.number)))
    loads = [*evidence.loads, load]

    def found(loads: list[Loaded] = loads, **changes: Any) -> str:
        changed = replace(whole, **changes)
        history = History(list(evidence.asked), loads, [changed])
        return "\n".join(judge(replace(evidence, histories=[history])).wrong)

    assert found() == ""
    assert "extract: at" in found(accounts=whole.accounts[1:] or ((1, 1, 1),))
    assert "is a part of load" in found(loaded=whole.loaded[:-1])
    assert "is missing" in found(loaded=real.loaded)
    assert "had been told" in found(position=1)
    assert "of nobody's load" in found(loaded=(*whole.loaded, (-1, -1)))
    assert "which is dropped" in found([*evidence.loads, replace(load, fate="dropped")])
    # It is shown nowhere before its own position, and may be shown whole if nobody knows.
    assert "which is shown" in found([*evidence.loads, replace(load, position=real.position + 1)])
    assert found([*evidence.loads, replace(load, fate="unknown", position=-1)]) == ""


@pytest.mark.xdist_group("a torture")
def test_two_operations_at_one_position_are_found(evidence: Evidence) -> None:
    one, other = [each for each in evidence.asked if each.is_written][:2]
    # It has the answer of another operation, which means the same.
    taken = replace(other, step=one.step, outcome=one.outcome)
    assert any("all say they are at" in text for text in judge(with_asked(evidence, taken)).wrong)


def test_nothing_asked_for_is_nothing_shown() -> None:
    nothing = figures([Seen(1)])
    assert (nothing["acknowledged_writes_lost"], nothing["ok"]) == (0, False)


@pytest.mark.parametrize(
    ("well_s", "is_ok"),
    [
        ((3.0, 8.2, 40.0), True),
        ((3.0, 8.2, WELL_MAX_S + 1), False),
        ((3.0, WELL_P50_S + 1, WELL_P50_S + 2), False),
    ],
)
def test_a_cluster_that_heals_slowly_is_not_well(well_s: tuple[float, ...], is_ok: bool) -> None:
    seen = Seen(1, well_s=list(well_s))
    seen.found.counted.update(written=1, loads_shown=1, extracts=1)

    assert figures([seen])["ok"] is is_ok


def test_a_seed_is_a_plan() -> None:
    assert draw_plan(7, 3) == draw_plan(7, 3)
    assert {episode.fault for seed in range(25) for episode in draw_plan(seed, 3)} == set(FAULTS)
    gusts = {gust.kind for seed in range(25) for episode in draw_plan(seed, 3) for gust in episode.gusts}
    assert gusts == set(KINDS)


# The relays.


@pytest.fixture
def echo() -> Iterator[tuple[Relays, int]]:
    """Something that gives back what it is sent, behind a relay."""
    (port,) = free_ports(1)
    server = socket.create_server(("127.0.0.1", port))

    def answer() -> None:
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            threading.Thread(target=serve, args=(connection,), daemon=True).start()

    def serve(connection: socket.socket) -> None:
        with connection:
            try:
                while data := connection.recv(65536):
                    connection.sendall(data)
            except OSError:
                return

    threading.Thread(target=answer, daemon=True).start()
    relays = Relays([("echo", ("127.0.0.2", port), ("127.0.0.1", port))], 1)
    yield relays, port
    relays.close()
    server.shutdown(socket.SHUT_RDWR)
    server.close()


def dial(port: int) -> socket.socket:
    connection = socket.create_connection(("127.0.0.2", port), timeout=PATIENCE_S)
    connection.sendall(b"hello")
    assert connection.recv(5) == b"hello"
    return connection


def received(connection: socket.socket, sent: bytes) -> bytes:
    """Send something, and give everything that comes until the connection ends."""
    got = b""
    try:
        connection.sendall(sent)
        while data := connection.recv(65536):
            got += data
            if len(got) >= len(sent):
                break
    except ConnectionError:
        pass
    return got


def test_a_relay_spoils_what_it_is_told_to(echo: tuple[Relays, int]) -> None:
    relays, port = echo
    sent = bytes(range(256)) * 16
    for kind in KINDS:
        with dial(port) as connection:
            relays.afflict("echo", kind, delay_s=0.05)
            if kind in ("blackhole", "freeze"):
                connection.settimeout(0.3)
                connection.sendall(sent)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
                connection.settimeout(PATIENCE_S)
                relays.relieve("echo")
                # What was held comes; what was swallowed ends the connection.
                got = received(connection, b"")
                assert bool(got) == (kind == "freeze")
            else:
                got = received(connection, sent)
                relays.relieve("echo")
            if kind in ("drop", "blackhole", "half_close"):
                assert got == b""
            elif kind == "truncate":
                assert len(got) < len(sent)
            elif kind == "garbage":
                assert len(got) == len(sent)
                assert got != sent
            elif kind == "delay":
                assert got == sent
    with dial(port) as connection:
        assert received(connection, sent) == sent
    # Both ends have said that they are done: nothing of it is kept.
    until(lambda: not relays.n_connections("echo"), "the relay has forgotten them")
