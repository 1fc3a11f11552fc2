"""Checkers over a recorded run: Correct Routing, Quiescence, durability, isolation.

Each gives the violations it finds as sentences; none found means none given.
The predicates and their names are those of RB13, Appendix 1 (§9.1.2), and
EC11 §4.6. `Q` is the judge's own computation of the m-seq.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Set
from itertools import pairwise

from crescando import wire
from crescando.client.base import ReadOutcome, WriteOutcome
from crescando.engine.statement import decode_call, decode_shapes
from crescando.errors import LostError, OperationError
from crescando.routing.batch import Message
from crescando.testing.judge import Appended, Judgement
from crescando.testing.trace import Trace
from crescando.testing.workload import Model, Step, Workload, counts_of, rows_of
from crescando.types import KeyRange, MessageKind, ProcessId

Violations = list[str]


def check_agreement(trace: Trace) -> Violations:
    """All routers learned the same value in the same instance, in order, without gaps."""
    found: Violations = []
    chosen: dict[int, bytes] = {}
    for router, learned in trace.learned.items():
        jumps = set(trace.installed.get(router, ()))
        previous = 0
        for instance, batch in learned:
            if instance != previous + 1 and instance - 1 not in jumps:
                found.append(f"{router} learned instance {instance} after {previous}")
            previous = instance
            value = wire.encode_any(batch)
            if chosen.setdefault(instance, value) != value:
                found.append(f"{router} learned another value in instance {instance}")
    return found


def check_order(trace: Trace, q: Judgement) -> Violations:
    """Valid, gap-free and submit-ordered: Q holds what was submitted, in causal order."""
    found: Violations = []
    submitted: dict[tuple[ProcessId, int], tuple[Message, int]] = {}
    for record in trace.submitted:
        for index in range(len(record.batch)):
            message = record.batch.message(index)
            submitted[message.sender, message.number] = (message, record.delivered)
    high: dict[ProcessId, int] = {}
    for appended in q.appended:
        message = appended.message
        known = submitted.get((message.sender, message.number))
        if known is None or known[0] != message:
            found.append(f"valid: {message.sender}:{message.number} is in Q as nobody submitted it")
            continue
        if message.number != high.get(message.sender, 0) + 1:
            found.append(f"gap-free: {message.sender} jumps to {message.number}")
        high[message.sender] = message.number
        if known[1] >= appended.position:
            found.append(
                f"submit-ordered: {message.sender}:{message.number} lies at {appended.position}, "
                f"though its sender had delivered {known[1]} before it submitted"
            )
    return found


def check_delivery(trace: Trace, q: Judgement, *, correct: set[ProcessId]) -> Violations:
    """Minimal, complete and delivery-ordered, each delivery against the judge's destset and scope."""
    found: Violations = []
    by_position: dict[int, Appended] = {appended.position: appended for appended in q.appended}
    for process, delivered in trace.delivered.items():
        previous = -1
        for record in delivered:
            if record.position <= previous:
                found.append(f"delivery-ordered: {process} delivers {record.position} after {previous}")
            previous = record.position
            appended = by_position.get(record.position)
            if appended is None:
                found.append(f"valid: {process} delivers {record.position}, which is not in Q")
                continue
            message, destinations = appended.message, appended.destinations or {}
            if (message.sender, message.number, message.payload) != (
                record.sender,
                record.number,
                record.payload,
            ):
                found.append(f"valid: {process} delivers another message at {record.position}")
            if process not in destinations:
                found.append(f"minimal: {process} is no destination of {record.position}")
            elif tuple(destinations[process]) != tuple(record.scope):
                found.append(
                    f"scope: {process} has {record.scope} at {record.position}, not {destinations[process]}"
                )
    for process in sorted(correct):
        has = {record.position for record in trace.delivered.get(process, ())}
        for appended in q.appended:
            if process in (appended.destinations or {}) and appended.position not in has:
                found.append(f"complete: {process} never delivers {appended.position}")
    return found


def check_scopes(q: Judgement) -> Violations:
    """The scopes of each data message are disjoint and cover its ranges."""
    found: Violations = []
    for appended in q.appended:
        if appended.destinations is None or appended.message.kind is MessageKind.CONFIG:
            continue
        pieces = sorted(piece for scope in appended.destinations.values() for piece in scope)
        for (_, high), (low, _) in pairwise(pieces):
            if low <= high:
                found.append(f"scopes of {appended.position} overlap at {low}")
        for low, high in appended.message.ranges:
            reached = low
            for a, b in pieces:
                if a <= reached <= b:
                    reached = b + 1
            if reached <= high:
                found.append(f"scopes of {appended.position} leave {reached} out")
    return found


def check_liveness(trace: Trace, q: Judgement, *, correct: set[ProcessId]) -> Violations:
    """Terminated and quiescent: all of a correct sender is in Q, and it knows what became of it."""
    found: Violations = []
    in_q = {(appended.message.sender, appended.message.number) for appended in q.appended}
    for record in trace.submitted:
        sender = record.process
        if sender not in correct:
            continue
        told = trace.stable.get(sender, {})
        for number in range(record.batch.first, record.batch.last + 1):
            if (sender, number) not in in_q:
                found.append(f"terminated: {sender}:{number} is not in Q")
            elif number not in told:
                found.append(f"quiescence: {sender} never learns what became of {number}")
    return found


def check_verdicts(trace: Trace, q: Judgement) -> Violations:
    """What senders were told is what happened: nothing void or refused is acknowledged."""
    found: Violations = []
    by_number = {(a.message.sender, a.message.number): a for a in q.appended}
    holders: dict[int, set[ProcessId]] = {}
    for process, delivered in trace.delivered.items():
        for record in delivered:
            holders.setdefault(record.position, set()).add(process)
    for sender, told in trace.stable.items():
        for number, verdict in told.items():
            appended = by_number.get((sender, number))
            if appended is None:
                found.append(f"{sender}:{number} is told {verdict}, but is not in Q")
            elif verdict == "refused" and appended.destinations is not None:
                found.append(f"{sender}:{number} is told refused, but was routed")
            elif verdict == "stable" and appended.destinations is None:
                found.append(f"{sender}:{number} is acknowledged, but was refused")
            elif verdict == "stable" and appended.destinations:
                missing = [
                    process
                    for process in appended.destinations
                    if process not in holders.get(appended.position, ()) and process not in q.suspected
                ]
                if missing:
                    found.append(f"{sender}:{number} is acknowledged, but {missing} never delivered it")
    for sender, event in trace.expelled.items():
        for number, verdict in trace.stable.get(sender, {}).items():
            if number > event.learned and verdict == "stable":
                found.append(f"{sender}:{number} is void, but was acknowledged")
    return found


def check_outcomes(
    q: Judgement,
    workload: Workload,
    outcomes: Mapping[tuple[ProcessId, int], ReadOutcome | WriteOutcome | Exception],
    steps: Mapping[tuple[ProcessId, int], Step],
) -> tuple[Violations, Model]:
    """Every answer equals the model executing Q one operation at a time.

    Parameters
    ----------
    outcomes, steps : mapping of (client, token)
        What each operation gave, and what it meant.
    """
    found: Violations = []
    model = Model()
    at: dict[int, list[tuple[tuple[ProcessId, int], ReadOutcome | WriteOutcome]]] = {}
    for key, outcome in outcomes.items():
        if not isinstance(outcome, Exception):
            at.setdefault(outcome.position, []).append((key, outcome))
    seen: set[int] = set()
    for appended in q.appended:
        step = interpret(workload, appended)
        if step is None:
            continue
        expected_rows = model.matching(step) if step.is_read else []
        expected_counts = (0, 0) if step.is_read else model.write(step)
        told = at.get(appended.position, [])
        if len(told) > 1:
            found.append(f"{[key for key, _ in told]} all say they are at {appended.position}")
        for key, outcome in told:
            seen.add(appended.position)
            if steps[key] != step:
                found.append(f"{key} says it is at {appended.position}, where {step} stands")
            elif key[0] != appended.message.sender:
                found.append(f"{key} says it is at {appended.position}, where {appended.message.sender} is")
            elif isinstance(outcome, ReadOutcome):
                if rows_of(outcome) != expected_rows:
                    found.append(
                        f"{key} {step} at {appended.position} answers {rows_of(outcome)}, not {expected_rows}"
                    )
            elif counts_of(outcome) != expected_counts:
                found.append(
                    f"{key} {step} at {appended.position} counts {counts_of(outcome)}, not {expected_counts}"
                )
    for missing in at.keys() - seen:
        found.append(f"an outcome names position {missing}, where Q has no operation")
    return found, model


def check_acknowledgements(
    trace: Trace,
    q: Judgement,
    *,
    numbers: Mapping[tuple[ProcessId, int], int],
    stable: Set[tuple[ProcessId, int]],
    outcomes: Mapping[tuple[ProcessId, int], ReadOutcome | WriteOutcome | Exception],
    held: Callable[[int, ProcessId], tuple[KeyRange, ...]],
) -> Violations:
    """What users were told, beside answers, is what happened.

    Told *stable*: it is in Q, and every destination of a write has delivered
    it or is suspected. Told *applied no*: it is refused or not in Q. Told
    *applied yes*, though its count is unknown: it is in Q and was routed. Told
    *lost*: some scope of it was delivered by nobody who was to hold it and was not suspected later.

    Parameters
    ----------
    held : callable
        Gives what a process owns or is to own at a position.
    """
    found: Violations = []
    by_number = {(a.message.sender, a.message.number): a for a in q.appended}
    holders: dict[int, set[ProcessId]] = {}
    for process, delivered in trace.delivered.items():
        for record in delivered:
            holders.setdefault(record.position, set()).add(process)
    for key, number in numbers.items():
        appended = by_number.get((key[0], number))
        outcome = outcomes.get(key)
        if key in stable:
            if appended is None or appended.destinations is None:
                found.append(f"{key} is told stable, but is not in Q or was refused")
            elif appended.message.kind is MessageKind.WRITE:
                missing = appended.destinations.keys() - holders.get(appended.position, set())
                if missing - q.suspected.keys():
                    found.append(f"{key} is told stable, but {missing} never delivered it")
        if isinstance(outcome, OperationError):
            found += check_verdict_of(key, outcome, appended)
        if appended is None or appended.destinations is None or not isinstance(outcome, LostError):
            continue
        is_write = appended.message.kind is MessageKind.WRITE
        if is_write and not _is_lost(appended, holders, held, q.suspected.keys()):
            found.append(f"{key} is told lost, but every range of it was delivered")
    return found


def check_verdict_of(
    key: tuple[ProcessId, int], error: OperationError, appended: Appended | None
) -> Violations:
    """What an error says of an operation's effect is what became of it; `appended` is its place in Q."""
    if appended is None or appended.destinations is None:
        return [f"{key} is told {error!r}, but is not in Q or was refused"] if error.applied == "yes" else []
    if error.applied == "no" and appended.message.kind is MessageKind.WRITE:
        return [f"{key} is told {error!r}, but was routed"]
    return []


def _is_lost(
    appended: Appended,
    holders: Mapping[int, Set[ProcessId]],
    held: Callable[[int, ProcessId], tuple[KeyRange, ...]],
    suspected: Set[ProcessId],
) -> bool:
    destinations = appended.destinations or {}
    # Whoever was suspected may have delivered it, and nobody has been told.
    delivered = destinations.keys() & holders.get(appended.position, set()) - suspected
    has = sorted(arc for process in delivered for arc in held(appended.position, process))
    for scope in destinations.values():
        for low, high in scope:
            reached = low
            for a, b in has:
                if a <= reached <= b:
                    reached = b + 1
            if reached <= high:
                return True
    return False


def interpret(workload: Workload, appended: Appended) -> Step | None:
    """Give the workload's step that an appended message carries, or the end of a load that it is."""
    message = appended.message
    shown = workload.shown.get((message.sender, message.number))
    if shown is not None or appended.destinations is None or message.kind is MessageKind.CONFIG:
        return shown
    if decode_call(message.payload).shape < 0:
        return None
    calls, bodies = decode_call(appended.message.payload).steps, decode_shapes(appended.shared)
    return workload.interpret_all([(bodies[call.shape], call.parameters) for call in calls])
