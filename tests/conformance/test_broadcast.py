"""The laws of an atomic broadcast: Multi-Paxos and two tiny orders keep them, broken ones do not."""

from __future__ import annotations

import random

import pytest

from crescando.consensus.multipaxos.replica import Replica
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.consensus.quorum import Membership
from crescando.testing.conformance import ConformanceError
from crescando.testing.conformance.broadcast import BroadcastSubject, Law, check_broadcast, laws_for
from crescando.types import ProcessId
from tests.conformance import sequencers
from tests.conformance.sequencers import WINDOW, Sequencer

TIMING = PaxosTiming(window=4, lag=24, removal_s=60.0)


def multipaxos(me: ProcessId, membership: Membership, rng: random.Random) -> Replica[bytes]:
    return Replica(me, membership, TIMING, rng)


SUBJECTS = {
    "multipaxos": BroadcastSubject(multipaxos, window=TIMING.window, lag=TIMING.lag),
    "multipaxos of five": BroadcastSubject(
        multipaxos, members=5, crashes=2, window=TIMING.window, lag=TIMING.lag
    ),
    "multipaxos of one": BroadcastSubject(
        multipaxos, members=1, crashes=0, window=TIMING.window, lag=TIMING.lag
    ),
    "sequencer": BroadcastSubject(Sequencer, crashes=0, window=WINDOW, changes=False, attests=False),
    "local": BroadcastSubject(Sequencer, members=1, crashes=0, window=WINDOW, changes=False, attests=False),
}
TRIALS = [(name, law) for name, subject in SUBJECTS.items() for law in laws_for(subject)]


@pytest.mark.parametrize(("name", "law"), TRIALS, ids=[f"{name}-{law.__name__}" for name, law in TRIALS])
def test_the_law_is_kept(name: str, law: Law) -> None:
    for seed in range(3):
        law(SUBJECTS[name], seed)


@pytest.mark.parametrize(
    ("kind", "rules"),
    [
        (sequencers.Skipping, {"gaps"}),
        (sequencers.Diverging, {"agreement"}),
        (sequencers.Inventing, {"invention"}),
        (sequencers.Reordering, {"instance"}),
        (sequencers.Boundless, {"window"}),
        (sequencers.Silent, {"termination"}),
        (sequencers.Trusting, {"noise"}),
        (sequencers.Obliging, {"membership"}),
        (sequencers.Leaderless, {"leader"}),
        (sequencers.Restless, {"rest"}),
    ],
)
def test_a_planted_bug_is_found_and_its_rule_named(kind: type[Sequencer], rules: set[str]) -> None:
    subject = BroadcastSubject(kind, crashes=0, window=WINDOW, changes=False, attests=False, settle_s=5.0)

    with pytest.raises(ConformanceError) as caught:
        check_broadcast(subject, seeds=3)

    assert caught.value.rule in rules, str(caught.value)


def test_the_number_of_trials_is_told() -> None:
    assert check_broadcast(SUBJECTS["local"], seeds=2) == 2 * len(laws_for(SUBJECTS["local"])) > 8
