"""Coverage: scopes alone prove that an answer is complete."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crescando.engine.base import Failed
from crescando.errors import ReadFailedError
from crescando.roles.flight import InFlight
from crescando.scopes import subtract
from crescando.types import FULL_RING, RING_MAX, KeyRange, Scope
from tests.roles.test_storage import add, read_all

SMALL = 24


@st.composite
def scopes(draw: st.DrawFn) -> Scope:
    """Draw disjoint, ascending ranges over a small ring."""
    ends = sorted(draw(st.sets(st.integers(0, SMALL), max_size=8)))
    return tuple(KeyRange(low, high) for low, high in zip(ends[::2], ends[1::2], strict=False))


def points(ranges: Scope | list[KeyRange]) -> set[int]:
    return {point for low, high in ranges for point in range(low, high + 1)}


@given(scopes(), scopes())
def test_subtracting_equals_the_difference_of_sets(ranges: Scope, scope: Scope) -> None:
    left = subtract(list(ranges), scope)

    assert points(left) == points(ranges) - points(scope)
    assert left == sorted(left)
    assert sum(high - low + 1 for low, high in left) == len(points(left)), "the rest is disjoint"


@given(scopes())
def test_what_is_subtracted_from_itself_leaves_nothing(ranges: Scope) -> None:
    assert subtract(list(ranges), ranges) == []
    assert subtract(list(ranges), ()) == list(ranges)


def test_the_ends_of_the_ring_are_no_exception() -> None:
    assert subtract([FULL_RING], (KeyRange(0, 0), KeyRange(RING_MAX, RING_MAX))) == [
        KeyRange(1, RING_MAX - 1)
    ]
    assert subtract([FULL_RING], (KeyRange(0, RING_MAX),)) == []


def test_a_scope_that_covers_nothing_new_is_a_duplicate() -> None:
    flight = InFlight(1, 1, read_all(), [KeyRange(0, 9)])

    assert flight.cover((KeyRange(0, 4),), 7)
    assert not flight.cover((KeyRange(0, 4),), 8)
    assert not flight.cover((KeyRange(50, 60),), 9)
    assert (flight.position, flight.missing) == (7, [KeyRange(5, 9)])


def test_a_read_is_done_when_covered_and_a_write_when_stable_too() -> None:
    read, write = InFlight(1, 1, read_all(), [FULL_RING]), InFlight(2, 2, add(1, 1), [FULL_RING])
    for flight in (read, write):
        assert not flight.is_done
        flight.cover((FULL_RING,), 5)

    assert read.is_done
    assert not write.is_done
    write.is_stable = True
    assert write.is_done


def test_of_several_failures_the_smallest_key_is_told_null_first() -> None:
    flight = InFlight(1, 1, read_all(), [])
    keys = [(7, "b"), (None, "z"), (7, "a")]
    flight.failures = [Failed(1, 5, (), "read", key, f"at {key}") for key in keys]

    texts = []
    for _ in keys:
        try:
            flight.outcome()
        except ReadFailedError as error:
            texts.append(str(error))
        flight.failures = [f for f in flight.failures if f"{f.key!r}" not in texts[-1]]

    assert ["None, 'z'" in texts[0], "7, 'a'" in texts[1], "7, 'b'" in texts[2]] == [True] * 3
