"""Faults planted in the protocols, for the simulated order to find."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from crescando.consensus.base import Ballot
from crescando.consensus.multipaxos.acceptor import Acceptor
from crescando.consensus.multipaxos.messages import Promise, Vote
from crescando.consensus.multipaxos.replica import Replica
from crescando.routing.ecast import mseq as mseq_module
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.backlog import Backlog, Refusing
from crescando.routing.ecast.fellows import Fellows
from crescando.routing.ecast.messages import Deliver
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.router import Router
from crescando.testing.factories import Factories
from crescando.types import MessageKind, ProcessId

Plant = Callable[[pytest.MonkeyPatch], Factories]


def let_a_suspicion_share_the_data_credit(_: pytest.MonkeyPatch) -> Factories:
    """A full window of data holds configuration messages back too."""

    class Sharing(Router[Any]):
        def flush(self, now_s: float) -> Any:
            replica: Any = self.broadcast.inner  # type: ignore[attr-defined]
            if self.window.n_bytes >= self.limits.window_bytes:
                replica.can_propose = lambda: False
            try:
                return super().flush(now_s)
            finally:
                replica.__dict__.pop("can_propose", None)

    return Factories(router=Sharing)


def forget_a_promise_at_restart(_: pytest.MonkeyPatch) -> Factories:
    """A member that was paused comes back without promises and votes, as the same member."""

    class Forgetful(Replica[Any]):
        def on_disconnected(self, peer: ProcessId, now_s: float) -> None:
            super().on_disconnected(peer, now_s)
            if self._leader is None and not self._connected:
                self.acceptor = Acceptor(trimmed=self.acceptor.trimmed)

    return Factories(replica=Forgetful)


def count_a_joiner_before_it_holds_the_tail(_: pytest.MonkeyPatch) -> Factories:
    """A joiner says at the first heartbeat that it holds everything, before it has got any of it."""

    class Eager(Replica[Any]):
        def _on_heartbeat(self, peer: ProcessId, message: Any, now_s: float) -> None:
            if not self._is_informed:
                self._is_informed = True
                self.learner.jump(message.chosen)
            super()._on_heartbeat(peer, message, now_s)

    return Factories(replica=Eager)


def promise_without_votes(_: pytest.MonkeyPatch) -> Factories:
    class Forgetful(Replica[Any]):
        def _promise(self, prepare: Any) -> Any:
            promise = super()._promise(prepare)
            return Promise(promise.ballot, (), promise.learned, promise.trimmed)

    return Factories(replica=Forgetful)


def prefer_the_lowest_ballot(_: pytest.MonkeyPatch) -> Factories:
    """Of several votes for an instance a new leader takes the one of the lowest ballot."""

    class Backwards(Replica[Any]):
        def _promise(self, prepare: Any) -> Any:
            promise = super()._promise(prepare)
            votes = tuple(
                replaced if not vote.is_chosen else vote
                for vote in promise.votes
                for upside_down in (Ballot(1000 - vote.ballot.attempt, vote.ballot.node),)
                for replaced in (Vote(vote.instance, upside_down, vote.value),)
            )
            return Promise(promise.ballot, votes, promise.learned, promise.trimmed)

    return Factories(replica=Backwards)


def govern_by_the_newest_membership_at_once(_: pytest.MonkeyPatch) -> Factories:
    """A change is in force in the very next instance, whatever is open."""

    class Hasty(Replica[Any]):
        def _advance(self) -> None:
            before = self.memberships.newest.number
            super()._advance()
            if self.memberships.newest.number != before:
                newest = replace(self.memberships.newest, start=self.learned + 1)
                self.memberships.governing[:] = [newest]

    return Factories(replica=Hasty)


def answer_an_old_ballot(_: pytest.MonkeyPatch) -> Factories:
    """A destination delivers whatever comes, from whichever leader."""

    class Trusting(Application):
        def _on_deliver(self, peer: Any, message: Deliver) -> None:
            self._events.extend(message.parts)
            self.delivered = max(self.delivered, message.last)
            self._confirm_to = peer

    return Factories(application=Trusting)


def forget_watermarks_at_failover(_: pytest.MonkeyPatch) -> Factories:
    class Amnesiac(Router[Any]):
        def _change_leadership(self) -> None:
            if self.broadcast.is_leader:
                self.mseq.learned = dict.fromkeys(self.mseq.learned, 0)
            super()._change_leadership()

    return Factories(router=Amnesiac)


def drop_a_refusal(patch: pytest.MonkeyPatch) -> Factories:
    """What was refused is told to be stable."""
    patch.setattr(MSeq, "_refuse", lambda self, sender, number, refusal: None)
    return Factories()


def name_no_refusing_instance(patch: pytest.MonkeyPatch) -> Factories:
    """A follower drops what was refused together with what is stable: the next leader knows nothing of it."""
    patch.setattr(Refusing, "note", lambda self, instance: None)
    return Factories()


def forget_what_was_kept_unrouted(patch: pytest.MonkeyPatch) -> Factories:
    """A new leader does not route what it learned while it followed."""

    def forget(self: Any) -> dict[int, Any]:
        self._learned = {}
        return {}

    patch.setattr(Backlog, "take", forget)
    return Factories()


def route_a_batch_by_its_first_config(patch: pytest.MonkeyPatch) -> Factories:
    """All of a submission is routed by the Config at its begin."""
    original = mseq_module.MSeq._append

    def stale(self: Any, instance: int, base: int, submission: Any, learned: Any) -> None:
        kinds = submission.kind
        if int(kinds[0]) == MessageKind.CONFIG and len(kinds) > 1:
            before = self.config
            original(self, instance, base, submission.slice(0, 1), learned)
            after, self.config = self.config, before
            original(self, instance, base + 1, submission.slice(1, len(kinds)), learned)
            if self.config is before:
                self.config = after
            return
        original(self, instance, base, submission, learned)

    patch.setattr(mseq_module.MSeq, "_append", stale)
    return Factories()


def confirm_while_holding(_: pytest.MonkeyPatch) -> Factories:
    """A router takes what it has sent for confirmed."""

    class Presuming(Router[Any]):
        def _forward(self) -> None:
            super()._forward()
            for peer, outbox in list(self.window.outboxes.items()):
                if outbox.is_open and outbox.n_sent:
                    self._settle(self.window.confirm(peer, outbox.previous))

    return Factories(router=Presuming)


def never_ask_a_router_again(patch: pytest.MonkeyPatch) -> Factories:
    def leave_it_at_that(*_: Any) -> None:
        """Neither one that refused, nor when it knows no leader."""

    patch.setattr(Fellows, "ask_later", leave_it_at_that)
    patch.setattr(Fellows, "look_around", leave_it_at_that)
    return Factories()


def send_again_only_what_was_never_sent(_: pytest.MonkeyPatch) -> Factories:
    class Optimist(Application):
        def _on_welcome(self, peer: Any, message: Any) -> None:
            sent = self._outgoing.sent
            super()._on_welcome(peer, message)
            self._outgoing.sent = max(sent, self._outgoing.sent)

    return Factories(application=Optimist)


def take_in_numbers_twice(patch: pytest.MonkeyPatch) -> Factories:
    """The proposer forgets what it has taken; and the m-seq does not look for duplicates."""

    def careless(self: Any, instance: int, base: int, submission: Any, learned: Any) -> None:
        known = self.learned.get(submission.sender, 0)
        if submission.sender in self.learned and submission.first <= known:
            self.learned[submission.sender] = submission.first - 1
        original(self, instance, base, submission, learned)

    original = mseq_module.MSeq._append
    patch.setattr(mseq_module.MSeq, "_append", careless)
    return Factories()


ORDER_PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        let_a_suspicion_share_the_data_credit,
        forget_a_promise_at_restart,
        count_a_joiner_before_it_holds_the_tail,
        promise_without_votes,
        prefer_the_lowest_ballot,
        govern_by_the_newest_membership_at_once,
        answer_an_old_ballot,
        forget_watermarks_at_failover,
        drop_a_refusal,
        name_no_refusing_instance,
        forget_what_was_kept_unrouted,
        route_a_batch_by_its_first_config,
        confirm_while_holding,
        never_ask_a_router_again,
        send_again_only_what_was_never_sent,
        take_in_numbers_twice,
    )
}
