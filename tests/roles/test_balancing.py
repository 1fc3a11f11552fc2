"""A super that evens out the ring: when it weighs, and what it makes of the answers."""

from __future__ import annotations

import pytest

from crescando.errors import SpecError
from crescando.roles.balancing import BalancingPolicy
from crescando.roles.messages import Weigh, Weighs
from crescando.routing.rubberband import Rebalance, Reconfigure
from crescando.types import ProcessId
from tests.roles.stage import sent
from tests.roles.test_super import EVERYBODY, FIRST, ME, Watch
from tests.routing.worlds import simple, storage

POLICY = BalancingPolicy(is_on=True, every_s=10.0, gain=0.2, rows_min=100)
RING = simple(4, 1, n_supers=3)
ALIVE = tuple(dict.fromkeys((*EVERYBODY, *(storage(n) for n in range(4)), ME)))


class Scales:
    """A super and what storage processes answer it."""

    def __init__(self, me: ProcessId = FIRST, policy: BalancingPolicy = POLICY) -> None:
        self.watch = Watch(RING, me=me, balancing=policy)
        self.alive = tuple(process for process in ALIVE if process != me)

    def questions(self, seconds: float) -> dict[ProcessId, Weigh]:
        found: dict[ProcessId, Weigh] = {}
        for _ in range(round(seconds * 2)):
            output = self.watch.pass_time(0.5, alive=self.alive)
            found |= {peer: message for peer, message in output.send if isinstance(message, Weigh)}
        return found

    def answer(self, questions: dict[ProcessId, Weigh], heavy: ProcessId, rows: int = 1_000) -> None:
        for process, question in questions.items():
            weights = tuple((rows if process == heavy else 1, 1) for _ in question.ranges)
            self.watch.core.on_message(process, Weighs(question.request, weights), self.watch.now_s)
        self.watch.core.flush(self.watch.now_s)

    def moves(self) -> list[Reconfigure]:
        return [vote for vote in self.watch.votes() if isinstance(vote, Reconfigure)]


def test_it_is_off_by_default() -> None:
    assert Scales(policy=BalancingPolicy()).questions(200.0) == {}


def test_only_the_first_super_weighs_and_not_too_often() -> None:
    assert Scales(ME).questions(60.0) == {}

    scales = Scales()
    assert scales.questions(9.0) == {}
    assert set(scales.questions(2.0)) == {storage(n) for n in range(4)}
    assert scales.questions(8.0) == {}
    assert scales.questions(2.0)


def test_a_light_process_is_moved_beside_the_heaviest_one() -> None:
    scales = Scales()

    scales.answer(scales.questions(11.0), storage(2))

    (body,) = scales.moves()
    assert isinstance(body.transformation, Rebalance)
    assert body.transformation.process != storage(2)
    low, high = RING.owned_arcs(storage(2))[0]
    assert low < body.transformation.at <= high


def test_nothing_is_moved_for_little() -> None:
    scales = Scales()
    scales.answer(scales.questions(11.0), storage(2), rows=1)
    assert scales.moves() == []

    # Much is uneven, but of few rows.
    scales.answer(scales.questions(11.0), storage(2), rows=5)
    assert scales.moves() == []


def test_a_weighing_of_another_layout_is_forgotten() -> None:
    scales = Scales()
    questions = scales.questions(11.0)
    scales.answer(questions, storage(2))
    (body,) = scales.moves()
    scales.watch.deliver(FIRST, body)
    assert scales.questions(11.0) == {}

    late = Scales()
    questions = late.questions(11.0)
    late.watch.deliver(ME, body)
    late.watch.core.flush(late.watch.now_s)
    late.answer(questions, storage(2))
    assert late.moves() == []


def test_what_is_no_answer_to_the_question_is_ignored() -> None:
    scales = Scales()
    questions = scales.questions(11.0)
    core, now_s = scales.watch.core, scales.watch.now_s
    for process, question in questions.items():
        core.on_message(process, Weighs(question.request - 1, ((10**6, 1),) * len(question.ranges)), now_s)
        core.on_message(process, Weighs(question.request, ()), now_s)
        core.on_message(process, Weighs(question.request, ((10**6, 1),)), now_s)
    core.on_message(storage(9), Weighs(1, ((1, 1),)), now_s)
    core.flush(now_s)

    assert scales.moves() == []
    assert not sent(core.flush(now_s), Weigh)


@pytest.mark.parametrize(
    ("wrong", "text"),
    [
        ({"gain": 0}, "balancing.gain is a share between 0 and 1, not 0"),
        ({"gain": 1.0}, "balancing.gain is a share between 0 and 1"),
        ({"every_s": 0}, "balancing.every_s must be greater than 0"),
        ({"rows_min": -1}, "balancing.rows_min must be at least 0"),
    ],
)
def test_what_cannot_be_is_refused_by_name(wrong: dict[str, float], text: str) -> None:
    with pytest.raises(SpecError, match=text):
        BalancingPolicy(**wrong)  # type: ignore[arg-type]
