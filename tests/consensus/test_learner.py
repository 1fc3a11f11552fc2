"""The learner: in order, without gaps, kept as long as others may need it (INV-3)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crescando.consensus.multipaxos.learner import Learner


def learner_of(*values: str) -> Learner[str]:
    learner: Learner[str] = Learner()
    for instance, value in enumerate(values, 1):
        learner.decide(instance, value)
    learner.advance()
    return learner


def test_a_gap_holds_back_what_follows() -> None:
    learner: Learner[str] = Learner()
    learner.decide(2, "b")
    learner.decide(3, "c")

    assert learner.advance() == []

    learner.decide(1, "a")
    assert learner.advance() == [(1, "a"), (2, "b"), (3, "c")]
    assert learner.advance() == []


def test_no_ops_are_given_out_like_values() -> None:
    learner: Learner[str] = Learner()
    learner.decide(1, None)

    assert learner.advance() == [(1, None)]
    assert learner.values_from(1, 9, 1 << 20) == (None,)


@given(st.permutations(range(1, 9)))
def test_whatever_the_order_of_deciding_instances_come_ascending(order: list[int]) -> None:
    learner: Learner[str] = Learner()
    given_out: list[tuple[int, str | None]] = []
    for instance in order:
        learner.decide(instance, str(instance))
        given_out += learner.advance()

    assert given_out == [(i, str(i)) for i in range(1, 9)]


def test_what_was_given_out_is_not_decided_again() -> None:
    learner = learner_of("a")

    learner.decide(1, "other")

    assert learner.advance() == []
    assert learner.values_from(1, 1, 1 << 20) == ("a",)


def test_values_are_limited_in_number_and_to_what_is_learned() -> None:
    learner = learner_of("a", "b", "c")
    learner.decide(5, "e")

    assert learner.values_from(1, 2, 1 << 20) == ("a", "b")
    assert learner.values_from(2, 64, 1 << 20) == ("b", "c")
    assert learner.values_from(4, 64, 1 << 20) == ()


def test_trim_forgets_learned_values_only() -> None:
    learner = learner_of("a", "b")
    learner.decide(4, "d")

    learner.trim(9)

    assert (learner.trimmed, learner.learned) == (2, 2)
    learner.decide(3, "c")
    assert learner.advance() == [(3, "c"), (4, "d")]


def test_a_jump_goes_on_behind_the_snapshot() -> None:
    learner = learner_of("a")
    learner.decide(5, "e")
    learner.decide(8, "h")

    learner.jump(7)

    assert learner.advance() == [(8, "h")]
    assert (learner.trimmed, learner.learned) == (7, 8)
