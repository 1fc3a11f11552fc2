"""The acceptor: promises never go back, votes only rise (INV-1, INV-2)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from crescando.consensus.base import NO_BALLOT, Ballot
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.messages import Accept, Accepted, Nack, Prepare, Vote
from tests.consensus.group import R1, R2, R3

LOW, MIDDLE, HIGH = Ballot(4, R1), Ballot(5, R1), Ballot(5, R2)

ballots = st.builds(Ballot, st.integers(1, 4), st.sampled_from([R1, R2, R3]))
accepts = st.builds(Accept, ballots, st.integers(1, 3), st.sampled_from(["x", "y"]), st.just(0))
requests = st.lists(st.one_of(st.builds(Prepare, ballots, st.integers(1, 3)), accepts), max_size=30)


def answer(acceptor: Acceptor[str], request: Prepare | Accept[str]) -> Accepted | Nack | None:
    return acceptor.on_prepare(request) if isinstance(request, Prepare) else acceptor.on_accept(request)


def test_low_ballot_is_answered_with_nack() -> None:
    acceptor: Acceptor[str] = Acceptor(promised=HIGH)

    assert acceptor.on_prepare(Prepare(MIDDLE, 1)) == Nack(HIGH)
    assert acceptor.on_accept(Accept(LOW, 1, "x", 0)) == Nack(HIGH)
    assert acceptor.promised == HIGH
    assert not acceptor.votes


def test_the_promised_ballot_itself_is_served() -> None:
    acceptor: Acceptor[str] = Acceptor(promised=MIDDLE)

    assert acceptor.on_prepare(Prepare(MIDDLE, 1)) is None
    assert acceptor.on_accept(Accept(MIDDLE, 1, "x", 0)) == Accepted(MIDDLE, 1)
    assert acceptor.votes[1] == Vote(1, MIDDLE, "x")


def test_accepting_a_higher_ballot_promises_it() -> None:
    acceptor: Acceptor[str] = Acceptor(promised=LOW)

    acceptor.on_accept(Accept(HIGH, 1, "x", 0))

    assert acceptor.promised == HIGH
    assert acceptor.on_prepare(Prepare(MIDDLE, 1)) == Nack(HIGH)


def test_the_incarnation_breaks_ties_between_equal_attempts() -> None:
    reborn = Ballot(5, R1._replace(incarnation=2))
    acceptor: Acceptor[str] = Acceptor(promised=reborn)

    assert acceptor.on_accept(Accept(MIDDLE, 1, "x", 0)) == Nack(reborn)


@given(requests)
def test_promise_never_goes_back(sequence: list[Prepare | Accept[str]]) -> None:
    acceptor: Acceptor[str] = Acceptor()
    for request in sequence:
        before = acceptor.promised

        answered = answer(acceptor, request)

        assert acceptor.promised == max(before, request.ballot)
        assert isinstance(answered, Nack) == (request.ballot < before)


@given(requests)
def test_a_vote_is_replaced_only_by_one_of_a_ballot_at_least_as_high(
    sequence: list[Prepare | Accept[str]],
) -> None:
    acceptor: Acceptor[str] = Acceptor()
    for request in sequence:
        before = dict(acceptor.votes)

        answer(acceptor, request)

        for instance, vote in before.items():
            assert acceptor.votes[instance].ballot >= vote.ballot
        for instance, vote in acceptor.votes.items():
            assert NO_BALLOT < vote.ballot <= acceptor.promised
            assert vote.instance == instance


def test_votes_are_given_from_an_instance_on_ascending() -> None:
    acceptor: Acceptor[str] = Acceptor()
    for instance in (5, 2, 9, 3):
        acceptor.on_accept(Accept(LOW, instance, str(instance), 0))

    assert [vote.instance for vote in acceptor.votes_from(3)] == [3, 5, 9]


def test_trimmed_votes_are_forgotten_and_stay_so() -> None:
    acceptor: Acceptor[str] = Acceptor()
    for instance in (1, 2, 3):
        acceptor.on_accept(Accept(LOW, instance, "x", 0))

    acceptor.trim(2)
    acceptor.trim(1)

    assert acceptor.trimmed == 2
    assert [vote.instance for vote in acceptor.votes_from(1)] == [3]
    assert acceptor.on_accept(Accept(HIGH, 1, "late", 0)) == Accepted(HIGH, 1)
    assert [vote.instance for vote in acceptor.votes_from(1)] == [3]


def test_a_long_history_is_passed_over_at_once() -> None:
    acceptor: Acceptor[str] = Acceptor()
    far = 1 << 60
    for instance in (1, far, far + 1):
        acceptor.on_accept(Accept(LOW, instance, "x", 0))

    acceptor.trim(far)

    assert acceptor.trimmed == far
    assert list(acceptor.votes) == [far + 1]
