"""The simulator's commands: seeds that are soaked, replayed and shrunk, and what they say of bad input."""

from __future__ import annotations

import io
import multiprocessing
import os
import re
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

import pytest

from crescando.testing import soak as soak_module
from crescando.testing.__main__ import main
from crescando.testing.order_faults import INJECTIONS
from crescando.testing.order_run import draw_order_faults, run_order_seed
from crescando.testing.runs import WORLDS
from crescando.testing.situations import SITUATIONS
from crescando.testing.soak import SEEDS_A_TASK, Tally, shortfalls, soak, summary, tally_seeds
from tests.simulation.planted_worlds import BREAKING, DYING, SHY, run_shy

pytestmark = pytest.mark.simulation


@pytest.fixture(scope="module")
def shy_seed() -> int:
    """The first seed that finds the planted fault of `SHY`."""
    return next(seed for seed in range(200) if not run_shy(seed).is_correct)


# Replay.


@pytest.mark.parametrize("world", WORLDS)
def test_a_replay_prints_schedule_counters_and_violations(
    world: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["replay", "5", "--world", world]) == 0
    printed = capsys.readouterr().out

    verdict = WORLDS[world].run(5)
    assert printed.startswith(f"seed 5, {verdict.virtual_s:.2f} simulated s, trace {verdict.trace_digest}\n")
    assert verdict.faults
    for fault in verdict.faults:
        assert f"{fault.kind:16} for {fault.length_s:.4f} s  choice {fault.choice}" in printed
    assert re.search(rf"^  appended +{verdict.counted['appended']}$", printed, re.MULTILINE)
    assert printed.endswith("violations: 0\n")


@pytest.mark.parametrize("world", WORLDS)
def test_a_replay_is_the_same_in_another_process_with_other_hashes(
    world: str, capsys: pytest.CaptureFixture[str]
) -> None:
    command = ["replay", "8", "--world", world]
    printed = [
        subprocess.run(
            [sys.executable, "-m", "crescando.testing", *command],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        ).stdout
        for hash_seed in ("3", "44")
    ]

    assert main(command) == 0

    assert printed == [capsys.readouterr().out] * 2


def test_a_replay_of_another_seed_has_another_trace() -> None:
    assert len({run_order_seed(seed).trace_digest for seed in range(4)}) == 4


@pytest.mark.parametrize("world", WORLDS)
def test_the_schedule_of_a_seed_can_be_known_without_running_it(world: str) -> None:
    known = WORLDS[world]

    assert known.draw(5) == known.run(5).faults


def test_a_replay_prints_what_was_learned_and_delivered(capsys: pytest.CaptureFixture[str]) -> None:
    main(["replay", "5"])
    short = capsys.readouterr().out

    assert main(["replay", "5", "--trace"]) == 0
    printed = capsys.readouterr().out

    assert printed.endswith(short), "a trace more or less changes nothing of the run"
    assert re.search(r"^router/r\d+#1 learned:$", printed, re.MULTILINE)
    assert re.search(r"^ +\d+  member/m\d+#1:\d+-\d+", printed, re.MULTILINE)
    assert re.search(r"^member/m\d+#1 delivered:$", printed, re.MULTILINE)
    assert re.search(r"^member/m\d+#1 was told up to \d+; not stable: ", printed, re.MULTILINE)
    assert " -> " not in printed


def test_a_replay_prints_every_message_and_where_faults_begin(capsys: pytest.CaptureFixture[str]) -> None:
    main(["replay", "5"])
    short = capsys.readouterr().out

    assert main(["replay", "5", "--messages"]) == 0
    printed = capsys.readouterr().out

    assert printed.endswith(short), "who looks on changes nothing of the run"
    times = [float(t) for t in re.findall(r"^ *(\d+\.\d+)  \S+ -> \S+  \w+\(", printed, re.MULTILINE)]
    assert len(times) > 100
    assert times == sorted(times)
    assert printed.count("\n---- ") == len(draw_order_faults(5))


def test_a_replay_of_a_failing_seed_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shy_seed: int
) -> None:
    monkeypatch.setitem(WORLDS, "ecast", SHY)

    assert main(["replay", str(shy_seed)]) == 1

    assert re.search(r"^violations: [1-9]\d*\n  \S", capsys.readouterr().out, re.MULTILINE)


def test_a_replay_of_a_seed_that_breaks_down_names_its_schedule_and_the_place(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(WORLDS, "ecast", BREAKING)

    assert main(["replay", "3"]) == 1

    printed = capsys.readouterr().out
    assert "the run broke down: KeyError('planted') in run_breaking" in printed
    assert all(f"choice {fault.choice}" in printed for fault in draw_order_faults(3))


@pytest.mark.parametrize(
    ("command", "complaint"),
    [
        ("replay five", "argument seed: invalid int value: 'five'"),
        ("replay", "the following arguments are required: seed"),
        ("replay 5 --world moon", "argument --world: invalid choice: 'moon'"),
        ("shrink 5 --world moon", "argument --world: invalid choice: 'moon'"),
        ("soak --world moon", "argument --world: invalid choice: 'moon'"),
        ("replay 5 --world cluster --trace", "only the world 'ecast' prints its trace"),
        ("replay 5 --world cluster --messages", "only the world 'ecast' prints its trace"),
        ("soak --seeds 0", "argument --seeds: 0 is less than one"),
        ("soak --workers 0", "argument --workers: 0 is less than one"),
        ("dream", "invalid choice: 'dream'"),
        ("", "the following arguments are required: command"),
    ],
)
def test_what_is_unknown_gives_one_clear_error(
    command: str, complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(command.split())

    printed = capsys.readouterr()
    assert ended.value.code == 2
    assert printed.out == ""
    assert printed.err.count("error: ") == 1
    assert complaint in printed.err.splitlines()[-1]


# Shrink.


def test_shrinking_a_seed_that_passes_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["shrink", "5"]) == 0

    assert capsys.readouterr().out == "seed 5 does not fail\n"


def test_shrinking_prints_the_least_schedule(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shy_seed: int
) -> None:
    monkeypatch.setitem(WORLDS, "ecast", SHY)

    assert main(["shrink", str(shy_seed)]) == 1

    printed = capsys.readouterr().out
    n_all, n_least = map(int, re.findall(r"^(\d+) faults, of which it takes (\d+):", printed)[0])
    assert n_all == len(draw_order_faults(shy_seed))
    assert printed.count("  choice ") == n_least <= n_all
    assert re.search(r"^violations: [1-9]", printed, re.MULTILINE)


def test_a_seed_that_breaks_down_can_be_cut_down_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(WORLDS, "ecast", BREAKING)

    assert main(["shrink", "3"]) == 1

    assert re.match(r"\d+ faults, of which it takes 1:", capsys.readouterr().out)


# Soak.


def test_a_soak_adds_up_what_its_seeds_gave() -> None:
    seeds = range(3, 3 + SEEDS_A_TASK + 5)
    verdicts = [run_order_seed(seed) for seed in seeds]

    tally = soak("ecast", seeds, workers=2, progress=io.StringIO())

    assert tally.n_seeds == len(seeds)
    assert tally.violations == {}
    assert tally.virtual_s == pytest.approx(sum(verdict.virtual_s for verdict in verdicts))
    for name in {name for verdict in verdicts for name in verdict.counted}:
        counts = [verdict.counted.get(name, 0) for verdict in verdicts]
        assert tally.counted[name] == sum(counts), name
        assert tally.seeds_with[name] == sum(map(bool, counts)), name
    assert multiprocessing.active_children() == []


def test_parts_of_a_soak_add_up_to_the_whole() -> None:
    whole, parts = tally_seeds(BREAKING.attempt, range(30)), Tally()
    for part in (range(20, 30), range(12), range(12, 20)):
        parts.merge(tally_seeds(BREAKING.attempt, part))

    assert parts == whole
    assert whole.counted["pause"] == sum(1 + seed % 2 for seed in range(30) if seed % 3)
    assert sorted(whole.violations) == list(range(0, 30, 3))


def test_a_summary_names_everything_that_is_known_and_all_that_was_counted() -> None:
    tally = tally_seeds(BREAKING.attempt, range(1, 3))

    lines = summary("ecast", tally).splitlines()

    assert lines[0] == "2 seeds, 1.0 simulated hours"
    told = {parts[0]: parts[1:] for line in lines if line.startswith("  ") and (parts := line.split())}
    assert told.keys() == {*INJECTIONS, *SITUATIONS, "lost"}
    assert told["pause"] == ["3;", "2"]
    assert told["lost"] == ["3;", "2"]
    assert told["reset"] == ["0;", "0"]
    assert lines[-1] == "violations: 0 seeds"


@pytest.mark.parametrize("world", WORLDS)
def test_a_soak_without_a_finding_passes(world: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["soak", "--world", world, "--seeds", "3", "--first", "40", "--workers", "2"]) == 0

    printed = capsys.readouterr()
    assert printed.out.startswith("3 seeds, ")
    assert printed.out.endswith("violations: 0 seeds\n")
    assert "3/3 seeds" in printed.err
    assert multiprocessing.active_children() == []


def test_a_soak_with_a_violation_fails_and_names_its_seed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], shy_seed: int
) -> None:
    monkeypatch.setitem(WORLDS, "ecast", SHY)

    assert main(["soak", "--seeds", "2", "--first", str(shy_seed), "--workers", "1"]) == 1

    printed = capsys.readouterr()
    assert re.search(rf"^violations: [12] seeds\n  seed {shy_seed}: \S", printed.out, re.MULTILINE)
    assert re.search(r"2/2 seeds, .*, [12] failing$", printed.err.strip())
    assert multiprocessing.active_children() == []


def test_a_soak_goes_on_after_a_seed_that_breaks_down(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(WORLDS, "ecast", BREAKING)

    assert main(["soak", "--seeds", "60", "--workers", "2"]) == 1

    printed = capsys.readouterr().out
    assert printed.startswith("60 seeds, ")
    assert "violations: 20 seeds" in printed
    assert "seed 57: the run broke down: KeyError('planted')" in printed


def test_a_soak_whose_worker_dies_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(WORLDS, "ecast", DYING)

    with pytest.raises(BrokenProcessPool):
        soak("ecast", range(60), workers=2, progress=io.StringIO())

    assert multiprocessing.active_children() == []


def test_a_long_soak_fails_if_it_met_something_too_rarely(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(soak_module, "BOUNDS_FROM_SEEDS", 2)

    assert main(["soak", "--seeds", "2", "--workers", "1"]) == 1

    printed = capsys.readouterr().out
    assert printed.endswith("violations: 0 seeds\n")
    assert re.search(r"^too rare: crash_router: \d of 1000$", printed, re.MULTILINE)
    assert re.search(r"^too rare: hole_at_takeover: \d of 200$", printed, re.MULTILINE)


def _enough(n_seeds: int) -> Tally:
    known = WORLDS["ecast"]
    tally = Tally(n_seeds=n_seeds)
    tally.counted.update(dict.fromkeys(known.kinds, 1_000))
    tally.counted.update(dict.fromkeys(known.situations, 200))
    tally.seeds_with[known.share] = (3 * n_seeds + 9) // 10
    return tally


def test_what_a_soak_must_meet_is_known_to_the_last_one() -> None:
    tally = _enough(20_000)
    assert shortfalls("ecast", tally) == []

    for name in (*INJECTIONS, *SITUATIONS):
        tally.counted[name] -= 1
        assert [text.split(":")[0] for text in shortfalls("ecast", tally)] == [name]
        tally.counted[name] += 1
    tally.seeds_with["fault_during_change"] -= 1
    assert shortfalls("ecast", tally) == ["fault_during_change: in 5999 of 20000 seeds"]


def test_nothing_is_asked_of_a_short_soak() -> None:
    assert shortfalls("ecast", Tally(n_seeds=19_999)) == []
    assert shortfalls("ecast", Tally(n_seeds=20_000)) != []
