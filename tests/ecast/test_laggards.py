"""Who owes confirmations for too long, and what is nobody's fault."""

from __future__ import annotations

from crescando.routing.ecast.laggards import Laggards
from crescando.routing.ecast.messages import Batch
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.stability import Window, entry_of
from crescando.routing.rubberband import Rubberband
from crescando.types import position
from tests.ecast.parties import CONFIG, S0, S1, S2, of, point, write


class Watch:
    """A window that the test fills and confirms, looked at every tenth of a second."""

    def __init__(self, max_lag_s: float = 10.0) -> None:
        self.mseq: MSeq[Rubberband] = MSeq(CONFIG)
        self.window: Window[Rubberband] = Window()
        self.laggards = Laggards(max_lag_s)
        self.now_s = 100.0
        self.instance = 0

    def learn(self) -> None:
        self.instance += 1
        learned = self.mseq.learn(self.instance, Batch((of(write(self.instance, point(S0, S1))),)))
        self.window.add(entry_of(self.instance, learned.runs, set()))

    def confirm(self, *processes: object, upto: int | None = None) -> None:
        for process in processes:
            self.window.confirm(process, position(upto or self.instance, 0))  # type: ignore[arg-type]

    def pass_time(self, seconds: float) -> tuple[object, ...]:
        for _ in range(round(seconds * 10)):
            self.now_s += 0.1
            self.laggards.look(self.window, self.now_s)
        return self.laggards.overdue(self.now_s)


def test_one_that_confirms_nothing_is_reported_when_its_time_is_over() -> None:
    watch = Watch()
    watch.learn()
    watch.confirm(S0)

    assert watch.pass_time(10.0) == ()
    assert watch.pass_time(0.3) == (S1,)


def test_any_progress_starts_the_time_anew() -> None:
    watch = Watch()
    for _ in range(3):
        watch.learn()
    watch.pass_time(9.0)
    watch.confirm(S0, S1, upto=1)
    watch.pass_time(9.0)
    watch.confirm(S0, upto=2)

    assert watch.pass_time(2.0) == (S1,)
    watch.confirm(S1)
    assert watch.pass_time(0.1) == ()


def test_a_full_load_on_one_that_keeps_up_is_no_lag() -> None:
    watch = Watch(max_lag_s=2.5)
    for _ in range(50):
        watch.learn()
        if watch.instance > 3:
            watch.confirm(S0, S1, upto=watch.instance - 3)
        assert watch.pass_time(0.5) == ()


def test_a_pause_of_the_router_is_not_held_against_anybody() -> None:
    watch = Watch()
    watch.learn()
    watch.pass_time(1.0)

    watch.now_s += 60.0

    assert watch.pass_time(5.0) == ()
    assert watch.pass_time(10.0) == (S0, S1)


def test_one_that_has_lost_its_state_is_reported_at_once_until_it_is_gone() -> None:
    watch = Watch()
    watch.window.outbox(S2)
    watch.laggards.accuse(S2)

    assert watch.pass_time(0.1) == (S2,)
    watch.window.suspect(S2)
    assert watch.pass_time(0.1) == ()
