"""A router's state as a message, for a router that is too far behind the others.

Holds the configs in use, the learned watermarks and the unstable window; the
deliveries of the window are computed anew at the receiver, since routing is a
function of a run and its Config.
"""

from __future__ import annotations

from typing import TypeVar

import msgspec
import numpy as np

from crescando.routing.base import Config, Refusal, Routes, destset
from crescando.routing.batch import Submission
from crescando.routing.ecast.mseq import Departure, MSeq, Run
from crescando.routing.ecast.stability import Window, entry_of
from crescando.types import Position, ProcessId

C = TypeVar("C", bound=Config)


class RunState(msgspec.Struct, frozen=True, array_like=True):
    """A run of the window; indexes its entry's submissions and the snapshot's configs.

    `refusal` is the reason for which a configuration message was refused, or
    empty. It cannot be computed anew from `destset`: a plug-in may also have
    failed in `apply`.
    """

    base: int
    submission: int
    start: int
    stop: int
    config: int
    refusal: str = ""


class EntryState(msgspec.Struct, frozen=True, array_like=True):
    """An unstable instance and the destinations it still awaits."""

    instance: int
    submissions: tuple[Submission, ...]
    runs: tuple[RunState, ...]
    awaited: tuple[ProcessId, ...]
    confirmed: tuple[ProcessId, ...]


class RouterSnapshot(msgspec.Struct, frozen=True, array_like=True, tag="router-snapshot"):
    """The m-seq's state and the send window of one router."""

    configs: tuple[bytes, ...]
    position: int
    learned: tuple[tuple[ProcessId, int], ...]
    departed: tuple[tuple[ProcessId, int, int], ...]
    refused: tuple[tuple[ProcessId, int, str], ...]
    lost: tuple[tuple[ProcessId, int], ...]
    trimmed: tuple[tuple[ProcessId, int], ...]
    entries: tuple[EntryState, ...]


def take_snapshot(mseq: MSeq[C], window: Window[C]) -> RouterSnapshot:
    """Give the state of a router as a value. The present config is the first of `configs`."""
    codes: dict[int, int] = {id(mseq.config): 0}
    configs = [mseq.config.encode()]
    entries = []
    for instance in sorted(window.entries):
        entry = window.entries[instance]
        # Runs of one submission share it here and at the receiver, or it would weigh several times.
        submissions = list({id(run.submission): run.submission for run in entry.runs}.values())
        indices = {id(submission): index for index, submission in enumerate(submissions)}
        runs = []
        for run in entry.runs:
            if id(run.config) not in codes:
                codes[id(run.config)] = len(configs)
                configs.append(run.config.encode())
            index, config = indices[id(run.submission)], codes[id(run.config)]
            runs.append(RunState(run.base, index, run.start, run.stop, config, _refusal(run)))
        awaited, confirmed = tuple(sorted(entry.awaited)), tuple(sorted(entry.confirmed))
        entries.append(EntryState(instance, tuple(submissions), tuple(runs), awaited, confirmed))
    return RouterSnapshot(
        configs=tuple(configs),
        position=mseq.position,
        learned=tuple(mseq.learned.items()),
        departed=tuple((p, d.position, d.learned) for p, d in mseq.departed.items()),
        refused=tuple((p, n, why) for p, known in mseq.refused.items() for n, why in sorted(known.items())),
        lost=tuple((p, n) for p, numbers in window.lost.items() for n in sorted(numbers)),
        trimmed=tuple((p, box.trimmed) for p, box in window.outboxes.items()),
        entries=tuple(entries),
    )


def restore(
    snapshot: RouterSnapshot, config_type: type[C], window: Window[C] | None = None
) -> tuple[MSeq[C], Window[C]]:
    """Give the m-seq and window that `take_snapshot` saw; the latter in an empty `window`, if given."""
    configs = [config_type.decode(data) for data in snapshot.configs]
    mseq: MSeq[C] = MSeq(
        config=configs[0],
        position=Position(snapshot.position),
        learned=dict(snapshot.learned),
        departed={p: Departure(at, learned) for p, at, learned in snapshot.departed},
    )
    for process, number, why in snapshot.refused:
        mseq.refused.setdefault(process, {})[number] = why
    window = window if window is not None else Window()
    for process, number in snapshot.lost:
        window.lost.setdefault(process, set()).add(number)
    for process, trimmed in snapshot.trimmed:
        window.outbox(process).trimmed = trimmed
    for state in snapshot.entries:
        runs = [_run(run, state.submissions[run.submission], configs[run.config]) for run in state.runs]
        entry = entry_of(state.instance, runs, set())
        entry.restore(set(state.awaited), set(state.confirmed))
        window.add(entry)
    return mseq, window


def _run(state: RunState, submission: Submission, config: C) -> Run[C]:
    run = Run(state.base, submission, state.start, state.stop, config)
    if not run.is_config:
        return run
    target = Refusal(state.refusal) if state.refusal else destset(config, submission.message(state.start))
    routes = Routes(np.zeros(1, np.int64), (target,))
    return Run(state.base, submission, state.start, state.stop, config, routes)


def _refusal(run: Run[C]) -> str:
    if not run.is_config:
        return ""
    target = run.routes.routes[0]
    return target.reason if isinstance(target, Refusal) else ""
