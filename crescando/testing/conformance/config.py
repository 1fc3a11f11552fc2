"""The laws that every Config must keep, tried on random messages (RB13 §5.6, §6.3).

Rules of the file: what a router may come to rely on is checked where the
router would be harmed, and each broken law is told by its name. The Config
meets what routers let through: messages of members, numbered without gaps, and
joins; never a message of a process that was declared failed.

=====================  =========================================================
rule                   what breaks it
=====================  =========================================================
determinism            equal questions get different answers, here
second process         … or in another interpreter, with another hash seed
immutability           a Config's encoding changes when it is asked something
prefix                 a Config decides otherwise once a later message is known
encoding               what `decode` gives from `encode` is not the same Config
canonical encoding     equal Configs encode to different bytes
digest                 digests are not 16 bytes, or do not differ with the bytes
unknown process        a destination or suspect is not part of the system
scopes                 ranges malformed, or where none may be, or missing to read
overlapping scopes     two destinations answer for one position
missing scope          no destination answers for a position of the message
suspects               not those whom `apply` removes, or one comes back
members                `members` and `is_member` disagree
apply                  gives an equal copy where nothing changed, or another type
route                  the vectorised form differs from `destset`
refusal                another exception than `Refusal`
slow                   one call takes longer than the limit, three times in a row
=====================  =========================================================
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from msgspec.structs import replace

from crescando.routing.base import Config, Refusal, VectorConfig
from crescando.routing.batch import Message, submission
from crescando.testing.conformance.decisions import Decision, Target, decide, target_of, told
from crescando.testing.conformance.elsewhere import Walked, replay_elsewhere
from crescando.testing.conformance.messages import Draw, draw_message
from crescando.testing.conformance.rules import ConformanceError
from crescando.testing.conformance.scopes import fault_of_scopes
from crescando.types import MessageKind, ProcessId

MEMORY = 6
"""Earlier Configs that are asked again after each message."""

TRIES = 3
"""A call is slow if it is so often too slow in a row: a paused machine is not the plug-in's fault."""


@dataclass(slots=True)
class ConfigReport:
    """What a check met, so that a test can see that it met something.

    Attributes
    ----------
    routed, refused : int
        Data messages with destinations, and messages refused.
    changes : int
        Configuration messages that changed the Config.
    suspected : int
        Processes declared failed.
    swapped : int
        Pairs of changes that commuted, so that two paths led to one value.
    slowest_s : float
        The longest call, the best of its tries.
    """

    routed: int = 0
    refused: int = 0
    changes: int = 0
    suspected: int = 0
    swapped: int = 0
    slowest_s: float = 0.0


def check_config(
    make_genesis: Callable[[], Config],
    draw: Draw = draw_message,
    *,
    seeds: int = 20,
    steps: int = 80,
    limit_s: float = 0.05,
    elsewhere: bool = True,
) -> ConfigReport:
    """Try a Config's laws on random messages.

    Parameters
    ----------
    make_genesis : callable
        Gives the Config to begin with, anew and equal each time.
    draw : callable, optional
        Gives a message, given a generator, the present Config, a sender and the
        sender's next number. The default speaks the vocabulary of
        `crescando.routing.rubberband.messages`.
    seeds, steps : int
        How many walks, and messages in each.
    limit_s : float
        Seconds that one call may take. It holds up every router and therefore
        everybody's messages.
    elsewhere : bool
        Whether to repeat the walks in a second Python process, which imports
        the plug-in's class by its module and name.

    Returns
    -------
    ConfigReport

    Raises
    ------
    ConformanceError
        If a law is broken; its `rule` says which.
    ValueError
        If no data message was routed or no message changed anything, so that
        nothing was shown; or if `elsewhere` and the class cannot be imported.
    """
    report = ConfigReport()
    walks = []
    for seed in range(seeds):
        walk = _Walk(make_genesis, draw, seed, limit_s, report)
        for _ in range(steps):
            walk.step()
        walk.end()
        walks.append(walk.walked)
    if not report.routed or not report.changes:
        raise ValueError(
            f"{report.routed} data messages were routed and {report.changes} messages changed the Config, "
            "which shows nothing; give a `draw` that speaks the plug-in's language"
        )
    if elsewhere:
        replay_elsewhere(type(make_genesis()), walks)
    return report


@dataclass(slots=True)
class _Memory:
    """A Config of the past, and what it once decided."""

    config: Any
    encoded: bytes
    message: Message
    target: Target


@dataclass(slots=True)
class _Walk:
    """One seed: a Config, its senders, and what must stay true of the past."""

    make_genesis: Callable[[], Config]
    draw: Draw
    seed: int
    limit_s: float
    report: ConfigReport
    config: Any = field(init=False)
    walked: Walked = field(init=False)
    _rng: random.Random = field(init=False)
    _numbers: dict[ProcessId, int] = field(default_factory=dict)
    _gone: set[ProcessId] = field(default_factory=set)
    _memory: list[_Memory] = field(default_factory=list)
    _run: list[tuple[Message, Target]] = field(default_factory=list)
    _by_bytes: dict[bytes, bytes] = field(default_factory=dict)
    _message: Message | None = None
    _n_newcomers: int = 0

    def __post_init__(self) -> None:
        self._rng = random.Random(self.seed)
        self.config = self.make_genesis()
        encoded = self._ask(self.config.encode)
        if self.make_genesis().encode() != encoded:
            raise self._broken("determinism", "two geneses encode to different bytes")
        self.walked = Walked(encoded)
        self._check_copy(self.config, encoded)

    def step(self) -> None:
        """Put one message to the Config, and to its past."""
        rng, config = self._rng, self.config
        sender = self._draw_sender()
        number = self._numbers.get(sender, 0) + 1
        message = self._message = self.draw(rng, config, sender, number)
        if message.kind is not MessageKind.CONFIG and not config.is_member(sender):
            return  # Routers skip it.
        decision = self._decide(config, message)
        self._check_target(config, message, decision)
        self._check_suspects(config, decision)
        self._check_again(config, message, decision)
        self._check_past()
        self._remember(config, message, decision)
        if message.kind is MessageKind.CONFIG:
            self._check_order_of_two(config, message, decision)
        if config.is_member(sender) or decision.after.is_member(sender):
            self._numbers[sender] = number
        self._advance(decision)

    def end(self) -> None:
        """Check what waits for more messages."""
        self._check_route()

    def _draw_sender(self) -> ProcessId:
        """Give a member, often a client, or a newcomer."""
        rng = self._rng
        members: list[ProcessId] = sorted(self.config.members())
        clients = [process for process in members if process.role == "client"]
        # Not every Config lets processes join, and some walks lose theirs.
        if not members or rng.random() < (0.06 if len(clients) > 1 else 0.4):
            self._n_newcomers += 1
            role = rng.choice(("client", "storage", "super") if len(clients) > 1 else ("client",))
            return ProcessId(role, f"new{self._n_newcomers}", 1)
        return rng.choice(clients if clients and rng.random() < 0.5 else members)

    # Questions.

    def _broken(self, rule: str, text: str) -> ConformanceError:
        return ConformanceError(rule, text, f"seed {self.seed}, {self._message}")

    def _ask(self, question: Callable[[], Any]) -> Any:
        """Give an answer, or tell that it raised or took too long."""
        for attempt in range(1, TRIES + 1):
            began_s = time.perf_counter()
            try:
                answer = question()
            except Refusal:
                raise
            except Exception as error:
                raise self._broken("refusal", f"the plug-in raised {error!r}, which is no Refusal") from error
            took_s = time.perf_counter() - began_s
            if took_s <= self.limit_s:
                self.report.slowest_s = max(self.report.slowest_s, took_s)
                return answer
            if attempt == TRIES:
                raise self._broken("slow", f"one call took {took_s:.3f} s; the limit is {self.limit_s} s")
        raise AssertionError("unreachable")

    @contextmanager
    def _no_refusal(self, name: str) -> Iterator[None]:
        try:
            yield
        except Refusal as refusal:
            raise self._broken("refusal", f"{name} refused ({refusal.reason}); only destset may") from refusal

    def _target(self, config: Any, message: Message) -> Target:
        target: Target = self._ask(lambda: target_of(config, message))
        return target

    def _decide(self, config: Any, message: Message) -> Decision:
        """Ask everything, twice where `apply` does not come between."""
        encoded = self._ask(config.encode)
        target = self._target(config, message)
        if told(self._target(config, message)) != told(target):
            raise self._broken("determinism", "destset gave two answers to one message")
        if isinstance(target, str) or message.kind is not MessageKind.CONFIG:
            self._check_unchanged(config, encoded, "destset")
            return Decision(target, frozenset(), config)
        with self._no_refusal("suspects"):
            suspects = frozenset(self._ask(lambda: config.suspects(message)))
            if frozenset(self._ask(lambda: config.suspects(message))) != suspects:
                raise self._broken("determinism", "suspects gave two answers to one message")
        self._check_unchanged(config, encoded, "destset or suspects")
        with self._no_refusal("apply"):
            after = self._ask(lambda: config.apply(message))
        self._check_unchanged(config, encoded, "apply")
        if type(after) is not type(config):
            raise self._broken("apply", f"gave a {type(after).__qualname__}")
        if after is not config and after.encode() == encoded:
            raise self._broken("apply", "gave an equal copy of a Config that did not change")
        if told(self._target(config, message)) != told(target):
            raise self._broken("prefix", "destset decides otherwise once apply was asked")
        return Decision(target, suspects, after)

    # Laws.

    def _check_unchanged(self, config: Any, encoded: bytes, asked: str) -> None:
        if self._ask(config.encode) != encoded:
            raise self._broken("immutability", f"the encoding changed when {asked} was asked")

    def _check_target(self, config: Any, message: Message, decision: Decision) -> None:
        target = decision.target
        if isinstance(target, str):
            self.report.refused += 1
            return
        known = config.members() | decision.after.members()
        for process in target:
            if process not in known:
                raise self._broken("unknown process", f"{process} is a destination and no member")
        if not config.is_member(message.sender) and message.kind is not MessageKind.CONFIG:
            return
        fault = fault_of_scopes(message, target)
        if fault is not None:
            raise self._broken(*fault)
        if message.kind is not MessageKind.CONFIG:
            self.report.routed += 1

    def _check_suspects(self, config: Any, decision: Decision) -> None:
        before, after = config.members(), decision.after.members()
        for process in sorted(decision.suspects):
            if process not in before | after:
                raise self._broken("unknown process", f"{process} is suspected and no member")
        gone = before - after
        if decision.suspects != gone:
            raise self._broken(
                "suspects", f"suspects names {_names(decision.suspects)}, but apply removes {_names(gone)}"
            )
        back = self._gone & after
        if back:
            raise self._broken("suspects", f"{_names(back)} was declared failed and is a member again")
        for process in sorted(before | after | self._gone):
            if decision.after.is_member(process) != (process in after):
                raise self._broken("members", f"members and is_member disagree about {process}")

    def _check_again(self, config: Any, message: Message, decision: Decision) -> None:
        """Ask once more: the same Config, and a copy that went through its encoding."""
        encoded = self._ask(config.encode)
        if self._decide(config, message).text() != decision.text():
            raise self._broken("determinism", "the same message led elsewhere when asked again")
        copy = self._check_copy(config, encoded)
        try:
            again = decide(copy, message).text()
        except Exception as error:
            raise self._broken("encoding", f"a decoded copy raised {error!r}") from error
        if again != decision.text():
            raise self._broken("encoding", f"a decoded copy decides {again}, not {decision.text()}")

    def _check_copy(self, config: Any, encoded: bytes) -> Any:
        """Give the Config that its encoding decodes to, which must encode and digest alike."""
        try:
            copy = type(config).decode(encoded)
        except Exception as error:
            raise self._broken("encoding", f"decode raised {error!r}") from error
        if copy.encode() != encoded:
            raise self._broken("canonical encoding", "a decoded copy encodes to other bytes")
        if copy.members() != config.members():
            raise self._broken("encoding", "a decoded copy has other members")
        digest = self._ask(config.digest)
        if not isinstance(digest, bytes) or len(digest) != 16 or digest != copy.digest():
            raise self._broken("digest", f"{digest!r} is not 16 bytes that a decoded copy gives too")
        if self._by_bytes.setdefault(digest, encoded) != encoded:
            raise self._broken("digest", "two Configs with different bytes have one digest")
        return copy

    def _check_past(self) -> None:
        for memory in self._memory:
            if memory.config.encode() != memory.encoded:
                raise self._broken("immutability", "the encoding of an earlier Config changed")
            if told(self._target(memory.config, memory.message)) != told(memory.target):
                raise self._broken("prefix", f"an earlier Config routes {memory.message} otherwise by now")

    def _check_order_of_two(self, config: Any, message: Message, decision: Decision) -> None:
        """Let two changes come in either order; where they commute, the bytes must be the same."""
        members = sorted(config.members() - {message.sender})
        if not members or decision.after is config:
            return
        sender = self._rng.choice(members)
        other = self.draw(self._rng, config, sender, self._numbers.get(sender, 0) + 1)
        if other.kind is not MessageKind.CONFIG:
            return
        self._message = other
        first_other = self._decide(config, other).after
        if not decision.after.is_member(sender) or not first_other.is_member(message.sender):
            return  # Routers would not ask.
        one = self._decide(decision.after, other).after
        two = self._decide(first_other, message).after
        self._message = message
        if one is config or two is config or one != two:
            return
        self.report.swapped += 1
        if one.encode() != two.encode():
            raise self._broken("canonical encoding", f"two paths to one value differ; the other is {other}")

    def _check_route(self) -> None:
        """Compare the vectorised form with `destset` on the data messages since the last change."""
        run, self._run = self._run, []
        config = self.config
        if not run or not isinstance(config, VectorConfig):
            return
        by_sender: dict[ProcessId, list[tuple[Message, Target]]] = {}
        for message, target in run:
            by_sender.setdefault(message.sender, []).append((message, target))
        for some in by_sender.values():
            batch = submission([replace(message, number=index) for index, (message, _) in enumerate(some, 1)])
            with self._no_refusal("route"):
                routes = self._ask(partial(config.route, batch, 0, len(batch)))
            for group, (message, target) in zip(routes.group.tolist(), some, strict=True):
                found = routes.routes[group]
                text = told(found.reason if isinstance(found, Refusal) else found)
                if text != told(target):
                    self._message = message
                    raise self._broken("route", f"gives {text}, but destset {told(target)}")

    def _remember(self, config: Any, message: Message, decision: Decision) -> None:
        self._memory.append(_Memory(config, config.encode(), message, decision.target))
        del self._memory[:-MEMORY]
        self.walked.messages.append(message)
        self.walked.decisions.append(decision.text())
        if message.kind is not MessageKind.CONFIG:
            self._run.append((message, decision.target))

    def _advance(self, decision: Decision) -> None:
        if decision.after is self.config:
            return
        self._check_route()
        self.report.changes += 1
        self.report.suspected += len(decision.suspects)
        self._gone |= decision.suspects
        self.config = decision.after


def _names(processes: frozenset[ProcessId] | set[ProcessId]) -> str:
    return "{" + ", ".join(map(str, sorted(processes))) + "}"
