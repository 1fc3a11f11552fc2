"""Faults planted in the protocols: each is found within 200 seeds, so the checkers can fail."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.consensus.multipaxos.messages import Promise
from crescando.consensus.multipaxos.replica import Replica
from crescando.errors import CountUnknownError, LostError, RefusedError
from crescando.roles.client import Client
from crescando.roles.completion import Completion
from crescando.roles.flight import InFlight
from crescando.roles.serving import Serving
from crescando.routing.ecast import record as record_module
from crescando.routing.ecast.application import Application
from crescando.routing.ecast.fellows import Fellows
from crescando.routing.ecast.messages import Deliver, Inject, Resume, Stable, Welcome
from crescando.routing.ecast.mseq import MSeq
from crescando.routing.ecast.router import Router
from crescando.routing.ecast.stability import entry_of
from crescando.testing.factories import Factories
from crescando.testing.faults import KINDS
from crescando.types import FULL_RING
from tests.simulation.runs import run

pytestmark = pytest.mark.simulation

SEEDS = 200

Plant = Callable[[pytest.MonkeyPatch], Factories]


def acknowledge_before_a_majority(_: pytest.MonkeyPatch) -> Factories:
    class Hasty(Replica[Any]):
        def _count_accepted(self, leader: Any, peer: Any, instance: int) -> bool:
            if instance not in leader.open:
                return False
            self.learner.decide(instance, leader.open.pop(instance).value)
            self._advance()
            return True

    return Factories(replica=Hasty)


def promise_without_votes(_: pytest.MonkeyPatch) -> Factories:
    class Forgetful(Replica[Any]):
        def _promise(self, prepare: Any) -> Any:
            promise = super()._promise(prepare)
            return Promise(promise.ballot, (), promise.learned, promise.trimmed)

    return Factories(replica=Forgetful)


def route_by_the_config_before_the_last_change(patch: pytest.MonkeyPatch) -> Factories:
    class Stale(MSeq[Any]):
        def _append_data(self, base: int, submission: Any, start: int, stop: int, learned: Any) -> None:
            now, self.config = self.config, before.get(id(self), self.config)
            super()._append_data(base, submission, start, stop, learned)
            self.config = now

        def _append_config(self, *args: Any) -> None:
            config = self.config
            super()._append_config(*args)
            if self.config is not config:
                before[id(self)] = config

    before: dict[int, Any] = {}
    patch.setattr(record_module, "MSeq", Stale)
    return Factories()


def take_numbers_beyond_a_gap(patch: pytest.MonkeyPatch) -> Factories:
    class Greedy(MSeq[Any]):
        def _append(self, instance: int, base: int, submission: Any, learned: Any) -> None:
            if submission.sender in self.learned:
                expected = self.learned[submission.sender] + 1
                self.learned[submission.sender] = max(expected - 1, submission.first - 1)
            super()._append(instance, base, submission, learned)

    patch.setattr(record_module, "MSeq", Greedy)
    return Factories()


def dedupe_by_the_stable_watermark(_: pytest.MonkeyPatch) -> Factories:
    class ByStable(Router[Any]):
        def _on_learned(self, instance: int, batch: Any) -> None:
            for submission in () if batch is None else batch.submissions:
                sender = submission.sender
                if sender in self.mseq.learned:
                    learned = self.mseq.learned[sender]
                    self.mseq.learned[sender] = self.window.stable_of(sender, learned)
            super()._on_learned(instance, batch)

    return Factories(router=ByStable)


def forget_watermarks_at_failover(_: pytest.MonkeyPatch) -> Factories:
    class Amnesiac(Router[Any]):
        def _change_leadership(self) -> None:
            if self.broadcast.is_leader:
                self.mseq.learned = dict.fromkeys(self.mseq.learned, 0)
            super()._change_leadership()

    return Factories(router=Amnesiac)


def acknowledge_a_void_write(_: pytest.MonkeyPatch) -> Factories:
    class Polite(Router[Any]):
        def _on_route(self, peer: Any, submission: Any) -> None:
            if peer in self.mseq.departed:
                self._out.send.append((peer, Stable(submission.last, ())))
            super()._on_route(peer, submission)

    class Stubborn(Application):
        def _on_expelled(self, message: Any) -> None:
            """Goes on sending, as one that has not heard of its expulsion yet."""

    return Factories(router=Polite, application=Stubborn)


def let_two_scopes_overlap(patch: pytest.MonkeyPatch) -> Factories:

    def wide(instance: int, runs: Any, suspected: Any) -> Any:
        entry = entry_of(instance, runs, suspected)
        entry.deliveries = {
            process: tuple(
                msgspec.structs.replace(part, scopes=tuple((FULL_RING,) for _ in part.scopes))
                for part in parts
            )
            for process, parts in entry.deliveries.items()
        }
        return entry

    patch.setattr(record_module, "entry_of", wide)
    return Factories()


def deliver_to_an_old_leader(_: pytest.MonkeyPatch) -> Factories:
    class Trusting(Application):
        def _on_deliver(self, peer: Any, message: Deliver) -> None:
            # Neither the ballot nor the position of what comes again is looked at.
            self._events.extend(message.parts)
            self.delivered = max(self.delivered, message.last)
            self._confirm_to = peer

    return Factories(application=Trusting)


def resume_where_the_router_stopped(_: pytest.MonkeyPatch) -> Factories:
    class Deaf(Router[Any]):
        def _on_resume(self, peer: Any, message: Resume) -> None:
            # Takes everything waiting for delivered, whatever the destination states.
            outbox = self.window.outbox(peer)
            last = outbox.entries[-1].last[peer] if outbox.entries else message.delivered
            upto = max(message.delivered, last)
            super()._on_resume(peer, Resume(message.ballot, upto, upto))
            outbox.previous = message.delivered

    return Factories(router=Deaf)


def drop_the_window_at_failover(_: pytest.MonkeyPatch) -> Factories:
    class Careless(Router[Any]):
        def _change_leadership(self) -> None:
            if self.broadcast.is_leader:
                self.record.settle(self.window.stabilise(self.broadcast.learned, ()))
                for outbox in self.window.outboxes.values():
                    outbox.trimmed = -1
            super()._change_leadership()

    return Factories(router=Careless)


def answer_before_every_scope_has(patch: pytest.MonkeyPatch) -> Factories:
    def first(self: Any, scope: Any, at: int) -> bool:
        self.missing, self.position = [], at
        return True

    patch.setattr(InFlight, "cover", first)
    return Factories()


def send_again_only_what_was_never_sent(_: pytest.MonkeyPatch) -> Factories:
    class Optimist(Application):
        def _on_welcome(self, peer: Any, message: Welcome) -> None:
            sent = self._outgoing.sent
            super()._on_welcome(peer, message)
            self._outgoing.sent = max(sent, self._outgoing.sent)

    return Factories(application=Optimist)


def call_an_applied_write_refused(patch: pytest.MonkeyPatch) -> Factories:
    def lie(self: Any, operation: Any, completion: Any) -> None:
        if not operation.is_read and operation.number % 5 == 0 and completion.error is None:
            completion = Completion(operation.token, error=RefusedError("a lie"))
        original(self, operation, completion)

    original = Client._complete
    patch.setattr(Client, "_complete", lie)
    return Factories()


def call_everything_stable_at_once(patch: pytest.MonkeyPatch) -> Factories:
    def hasty(self: Any, token: int, request: Any) -> None:
        original(self, token, request)
        self._completions.append(Completion(token, is_stable=True))

    original = Client.request
    patch.setattr(Client, "request", hasty)
    return Factories()


def call_a_confirmed_write_lost(patch: pytest.MonkeyPatch) -> Factories:
    def lie(self: Any, operation: Any, completion: Any) -> None:
        if not operation.is_read and operation.number % 5 == 0 and completion.error is None:
            completion = Completion(operation.token, error=LostError("a lie"))
        original(self, operation, completion)

    original = Client._complete
    patch.setattr(Client, "_complete", lie)
    return Factories()


def call_a_refused_write_durable(patch: pytest.MonkeyPatch) -> Factories:
    def lie(self: Any, operation: Any, completion: Any) -> None:
        if not operation.is_read and isinstance(completion.error, RefusedError):
            completion = Completion(operation.token, error=CountUnknownError("a lie"))
        original(self, operation, completion)

    original = Client._complete
    patch.setattr(Client, "_complete", lie)
    return Factories()


def never_ask_a_router_again(patch: pytest.MonkeyPatch) -> Factories:
    def leave_it_at_that(*_: Any) -> None:
        """Neither one that refused, nor when it knows no leader."""

    patch.setattr(Fellows, "ask_later", leave_it_at_that)
    patch.setattr(Fellows, "look_around", leave_it_at_that)
    return Factories()


def serve_reads_without_asking_whether_it_leads(_: pytest.MonkeyPatch) -> Factories:
    class Vain(Replica[Any]):
        def is_backed(self, now_s: float) -> bool:
            return self.is_leader

        @property
        def answered_round(self) -> int:
            return self.round

    return Factories(replica=Vain)


def serve_reads_by_what_was_answered_before_they_came(_: pytest.MonkeyPatch) -> Factories:
    """The leader believes to lead for an election time after its last answered heartbeat."""

    class Trusting(Replica[Any]):
        now_s = 0.0

        def flush(self, now_s: float) -> Any:
            self.now_s = now_s
            return super().flush(now_s)

        @property
        def answered_round(self) -> int:
            # One more than the last: a read that comes now asks for the next.
            return self.round + 1 if self.is_leader and self.is_backed(self.now_s) else 0

    return Factories(replica=Trusting)


def read_whatever_the_session_has_seen(_: pytest.MonkeyPatch) -> Factories:
    class Deaf(Router[Any]):
        def on_message(self, peer: Any, message: Any, now_s: float) -> None:
            if isinstance(message, Inject):
                message = msgspec.structs.replace(message, seen=-1, written=0)
            super().on_message(peer, message, now_s)

    return Factories(router=Deaf)


def show_whatever_a_basic_reader_has_seen(patch: pytest.MonkeyPatch) -> Factories:
    take = Serving.take

    def deaf(self: Any, client: Any, ask: Any) -> bool:
        return take(self, client, msgspec.structs.replace(ask, seen=-1))

    patch.setattr(Serving, "take", deaf)
    return Factories()


PLANTS: dict[str, Plant] = {
    plant.__name__: plant
    for plant in (
        acknowledge_before_a_majority,
        promise_without_votes,
        route_by_the_config_before_the_last_change,
        take_numbers_beyond_a_gap,
        dedupe_by_the_stable_watermark,
        forget_watermarks_at_failover,
        acknowledge_a_void_write,
        let_two_scopes_overlap,
        deliver_to_an_old_leader,
        resume_where_the_router_stopped,
        drop_the_window_at_failover,
        answer_before_every_scope_has,
        send_again_only_what_was_never_sent,
        call_an_applied_write_refused,
        call_everything_stable_at_once,
        call_a_confirmed_write_lost,
        call_a_refused_write_durable,
        never_ask_a_router_again,
        serve_reads_without_asking_whether_it_leads,
        serve_reads_by_what_was_answered_before_they_came,
        read_whatever_the_session_has_seen,
        show_whatever_a_basic_reader_has_seen,
    )
}


KINDS_OF_INTEREST = {
    "acknowledge_before_a_majority": ("usurp", "partition"),
    "take_numbers_beyond_a_gap": ("usurp",),
    "dedupe_by_the_stable_watermark": ("usurp",),
    "forget_watermarks_at_failover": ("crash_router", "usurp"),
    "acknowledge_a_void_write": ("pause", "partition"),
    "call_everything_stable_at_once": ("crash_client", "partition"),
    "serve_reads_without_asking_whether_it_leads": ("isolate",),
    "serve_reads_by_what_was_answered_before_they_came": ("isolate",),
    "never_ask_a_router_again": ("part_routers", "crash_router"),
}
"""Faults to draw from where most kinds would only pass the time."""

TOLD_OF = {
    "show_whatever_a_basic_reader_has_seen": "basic:",
}
"""How what is found must begin, where something else might be found first."""


@contextmanager
def planted(plant: Plant) -> Iterator[Factories]:
    with pytest.MonkeyPatch.context() as patch:
        yield plant(patch)


@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_fault_is_found(name: str, record_property: Callable[[str, object], None]) -> None:
    with planted(PLANTS[name]) as factories:
        for seed in range(SEEDS):
            violations = _violations(seed, factories, KINDS_OF_INTEREST.get(name, KINDS))
            violations = [each for each in violations if each.startswith(TOLD_OF.get(name, ""))]
            if violations:
                record_property("seed", seed)
                print(f"{name}: found by seed {seed}: {violations[0][:160]}")
                return
    pytest.fail(f"{name} was not found within {SEEDS} seeds")


def _violations(seed: int, factories: Factories, kinds: tuple[str, ...]) -> list[str]:
    """Give what the checkers say; a run that breaks down altogether is found as well.

    That a run goes round in circles is not enough: what is wrong must be named.
    """
    try:
        found = run(seed, factories, kinds).violations
        return [violation for violation in found if not violation.startswith("rest:")]
    except (AssertionError, LookupError, ValueError, np.exceptions.AxisError) as error:
        return [f"the run broke down: {error!r}"]
