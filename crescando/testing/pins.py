"""A simulated cluster in which tables are pinned, and read later, while ranges move and processes die.

Rules of the file: it is `ElasticCluster`, in which clients pin its table now and then, for a short
while, and ask any storage process for any of its ranges at any time. What is answered is
judged by the order alone: the rows of the model at the place of the pin, whoever gives them and
whatever happened since; nothing after the lease of whoever gives them is over; and what each process says
that it owned is what it owned.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from crescando.client.pinned import (
    Fetch,
    Fetched,
    Hold,
    Holding,
    Kept,
    PinFault,
    PinId,
    PinQuestion,
    Release,
    Renew,
)
from crescando.engine.statement import encode_parameters
from crescando.roles.client import Client
from crescando.roles.completion import Completion
from crescando.roles.messages import AskPinned, PinAnswered
from crescando.routing.rubberband.messages import Pin
from crescando.testing.checkers import Violations, interpret
from crescando.testing.elastic import ElasticCluster
from crescando.testing.held import rows_in
from crescando.testing.simulation import SPAN_S, Facts
from crescando.testing.workload import Model, Row
from crescando.types import KeyRange, MessageKind, ProcessId

LEASES_S = (0.4, 1.5, 4.0)
"""Of pins: some end while much happens."""

NEVER_S = float("inf")


@dataclass(slots=True)
class PinScript:
    """One pin, and what is known of it.

    Attributes
    ----------
    pin : PinId
    lease_s : float
    token : int
        Of its message.
    until_s : float
        From when on nobody keeps it who had delivered it when it was stable; never, if that is not known.
    holdings : dict of ProcessId to Holding
    is_released : bool
    """

    pin: PinId
    lease_s: float
    token: int
    until_s: float = NEVER_S
    holdings: dict[ProcessId, Holding] = field(default_factory=dict)
    is_released: bool = False


@dataclass(frozen=True, slots=True)
class Asking:
    """One question on its way."""

    script: PinScript
    process: ProcessId
    question: PinQuestion
    asked_s: float
    rows: tuple[Row, ...] = ()
    """What came of the same part before."""


@dataclass(frozen=True, slots=True)
class Seen:
    """The rows of a range that a process gave of a pin."""

    pin: PinId
    process: ProcessId
    key_range: KeyRange
    rows: tuple[Row, ...]


class PinningCluster(ElasticCluster):
    """A cluster whose table is pinned; see the rules of the file for the parameters of `ElasticCluster`.

    Attributes
    ----------
    pins : list of PinScript
    seen : list of Seen
    """

    def __init__(self, seed: int, **options: Any) -> None:
        self.pins: list[PinScript] = []
        self.seen: list[Seen] = []
        self._late: list[tuple[ProcessId, str]] = []
        self._asked: dict[tuple[ProcessId, int], Asking] = {}
        self._pinning = random.Random(f"{seed}/pinning")
        super().__init__(seed, **options)
        when_s = 0.3
        while when_s < SPAN_S:
            self.time.call_at(when_s, self._pin)
            when_s += self._pinning.expovariate(2.0)
        when_s = 0.4
        while when_s < SPAN_S + 2.0:
            self.time.call_at(when_s, self._look_at_some)
            when_s += self._pinning.expovariate(25.0)

    # What clients do.

    def _someone(self) -> Client | None:
        clients = self.alive("client")
        return self.clients[self._pinning.choice(clients)].core if clients else None

    def _pin(self) -> None:
        core = self._someone()
        if core is None or core.is_over:
            return
        script, lease_s = self.clients[core.me], self._pinning.choice(LEASES_S)
        # What lies around it in the order is executed in the same cycle, now and then.
        self.burst(script, 3)
        token = script.next_token
        number = self.configure(script, Pin((self.workload.schema.id,), lease_s))
        if number is not None:
            self.pins.append(PinScript(PinId(core.me, number), lease_s, token))
            self.count("pins")
        self.burst(script, 6)

    def _look_at_some(self) -> None:
        core, rng = self._someone(), self._pinning
        if core is None or not core.reachable or not self.pins:
            return
        script = rng.choice(self.pins[-6:])
        process = rng.choice(sorted(core.reachable))
        holding = script.holdings.get(process)
        roll = rng.random()
        if holding is None or not holding.arcs:
            question: PinQuestion = Hold(script.pin)
        elif roll < 0.05 and not script.is_released:
            question = Renew(script.pin, rng.choice(LEASES_S))
            # How long it is kept then depends on when the question arrives, if it does.
            script.until_s = NEVER_S
        elif roll < 0.1:
            script.is_released = True
            question = Release(script.pin)
        else:
            question = self._fetch(script, rng.choice(holding.arcs))
        self._ask(core, Asking(script, process, question, self.time.now_s()))

    def _fetch(self, script: PinScript, arc: KeyRange) -> Fetch:
        rng = self._pinning
        shape = self.workload.shapes["read_all"]
        low = arc.low if rng.random() < 0.6 else rng.randint(arc.low, arc.high)
        n_strips = min(rng.choice((1, 3)), arc.high - low + 1)
        encoded = shape.encode(), encode_parameters(shape, ())
        return Fetch(script.pin, *encoded, KeyRange(low, arc.high), n_strips, 0, 0)

    def _ask(self, core: Client, asking: Asking) -> None:
        script = self.clients[core.me]
        token, script.next_token = script.next_token, script.next_token + 1
        self._asked[core.me, token] = asking
        core.ask(token, asking.process, partial(AskPinned, question=asking.question))
        self.nodes[core.me].pump.need_turn()

    def hear(self, core: Client, completion: Completion) -> None:
        for script in self.pins:
            # Whoever had delivered it by now counts its lease from before.
            if (script.pin.client, script.token) == (core.me, completion.token) and not completion.error:
                script.until_s = min(script.until_s, self.time.now_s() + script.lease_s)
        asking = self._asked.pop((core.me, completion.token), None)
        if asking is not None and isinstance(completion.outcome, PinAnswered):
            self._on_answer(core, asking, completion.outcome)

    def _on_answer(self, core: Client, asking: Asking, answered: PinAnswered) -> None:
        script, answer = asking.script, answered.answer
        if isinstance(answer, PinFault):
            self.count(f"pin_{answer.kind}")
            return
        if asking.asked_s >= script.until_s and not isinstance(asking.question, Renew):
            text = f"{asking.process} answers from {script.pin} at {asking.asked_s:.3f} s"
            self._late.append((asking.process, text))
        if isinstance(answer, Kept):
            script.holdings.setdefault(asking.process, answer.holding)
        elif isinstance(answer, Fetched) and isinstance(asking.question, Fetch):
            columns = (column.values.tolist() for column in answer.columns)
            rows = (*asking.rows, *zip(*columns, strict=True))
            question = asking.question
            if answer.strip < question.n_strips:
                parts = question.pin, question.shape, question.parameters, question.key_range
                further = Fetch(*parts, question.n_strips, answer.strip, answer.offset)
                if asking.process in core.reachable:
                    self._ask(core, Asking(script, asking.process, further, self.time.now_s(), rows))
                return
            self.count("pins_seen")
            self.seen.append(Seen(script.pin, asking.process, question.key_range, tuple(sorted(rows))))

    def late_answers(self, facts: Facts) -> list[str]:
        """Give what processes that never failed answered from pins whose lease was over."""
        return [text for process, text in self._late if process not in facts.q.suspected]


def check_pins(world: PinningCluster, facts: Facts) -> Violations:
    """Whatever was given of a pin is what the model had at its place, and nobody keeps one for ever."""
    found: Violations = [f"pins: {late}, though its lease was over" for late in world.late_answers(facts)]
    wanted: dict[PinId, list[Seen]] = {}
    for seen in world.seen:
        wanted.setdefault(seen.pin, []).append(seen)
    scripts = {script.pin: script for script in world.pins}
    model = Model()
    for appended in facts.q.appended:
        pin = PinId(appended.message.sender, appended.message.number)
        script = scripts.get(pin)
        if script is not None:
            found += _check_holdings(script, appended.position, facts)
            for seen in wanted.pop(pin, ()):
                inside = rows_in(model, world.workload, (seen.key_range,))
                if seen.rows != inside:
                    found.append(f"pins: {seen.process} gives {seen.rows} of {pin}, not {inside}")
        if appended.destinations is not None and appended.message.kind is MessageKind.WRITE:
            step = interpret(world.workload, appended)
            if step is not None:
                model.write(step)
    found += [
        f"pins: {pin} is in no order, and {seen[0].process} gives rows of it" for pin, seen in wanted.items()
    ]
    for process, core in world.storages().items():
        if process in facts.correct and len(core.pins):
            found.append(f"pins: {process} keeps {len(core.pins)} of them for ever")
        engine = world.nodes[process].engine
        if process in facts.correct and engine is not None and engine.statistics()["pinned_bytes"]:
            found.append(f"pins: {process} has rows in memory that no pin keeps any more")
    return found


def _check_holdings(script: PinScript, position: int, facts: Facts) -> Violations:
    found: Violations = []
    config = facts.layouts.at(position)
    for process, holding in script.holdings.items():
        if holding.position != position:
            found.append(f"pins: {process} has {script.pin} at {holding.position}, not at {position}")
        if holding.arcs != config.owned_arcs(process):
            found.append(f"pins: {process} says it owned {holding.arcs} at {position}")
    return found
