"""``crescando expand`` and its like: who holds what, planned, changed and followed.

Rules of the file: arguments in, lines or one JSON object out; everything is
asked of ``store.cluster``, as any program could.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from crescando.cli.clusters import WATCH_S, add_file, connected, find_file, seconds
from crescando.errors import DeadlineError, SpecError
from crescando.types import KeyRange, ProcessId

MOVE_S = 3600.0
"""How long a move is followed; it goes on without us."""

LOOK_S = 0.5

ACTIONS = ("expand", "contract", "replace", "rebalance")


def add_to(commands: Any) -> None:
    """Add the commands to those of the program."""
    plan = _command(commands, "plan", _plan, "tell what a change of the ring would do, and change nothing")
    plan.add_argument("action", choices=ACTIONS)
    plan.add_argument("process", nargs="?", help="such as s4")
    plan.add_argument("--at", type=_position, help="a ring position")
    plan.add_argument("--by", help="who takes the place")
    plan.add_argument("--force", action="store_true", default=None, help="as of contract")

    expand = _move(commands, "expand", "give a storage process on standby a place on the ring")
    expand.add_argument("process", nargs="?", help="by default the first on standby")
    expand.add_argument("--at", type=_position, help="its ring position")
    contract = _move(commands, "contract", "take a storage process off the ring")
    contract.add_argument("process", help="such as s4")
    contract.add_argument(
        "--force", action="store_true", default=None, help="even if fewer copies are left than promised"
    )
    replace = _move(commands, "replace", "give a storage process's place to one on standby")
    replace.add_argument("process", help="such as s4")
    replace.add_argument("--by", help="by default the first on standby")
    rebalance = _move(commands, "rebalance", "give a storage process another place on the ring")
    rebalance.add_argument("process", nargs="?", help="by default the one by which most is won")
    rebalance.add_argument("--at", type=_position, help="its ring position")

    remove = _command(commands, "remove", _remove, "let a process on standby, or a super, leave")
    remove.add_argument("process", help="such as s5")
    routers = _command(commands, "routers", _routers, "show the routers, or have one more or one less")
    routers.add_argument("action", nargs="?", choices=("add", "remove"))
    routers.add_argument("process", nargs="?", help="such as r4: to be added, it must run and stand by")
    _command(commands, "ring", _ring, "show the ring, its ranges and their owners")
    _command(commands, "moves", _moves, "show the changes of the ring that are under way")
    events = _command(commands, "events", _events, "show what happened to the cluster, and what happens")
    events.add_argument("--after", type=int, default=-1, help="a position; by default from the beginning")
    top = _command(commands, "top", _top, "show what every node does, again and again")
    top.add_argument(
        "--every", type=seconds, default=WATCH_S, metavar="SECONDS", help=f"pause (default: {WATCH_S:g})"
    )
    top.add_argument("--times", type=int, default=0, help="how often; by default until Ctrl-C")


def _command(
    commands: Any, name: str, run: Callable[[argparse.Namespace], int], text: str
) -> argparse.ArgumentParser:
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=text, description=f"{text.capitalize()}."
    )
    add_file(parser)
    parser.set_defaults(run=run)
    return parser


def _move(commands: Any, name: str, text: str) -> argparse.ArgumentParser:
    parser = _command(commands, name, _change, text)
    parser.add_argument("--timeout", type=seconds, default=MOVE_S, help="seconds to follow it")
    return parser


def _position(text: str) -> int:
    try:
        return int(text, 0)
    except ValueError:
        raise argparse.ArgumentTypeError("must be a whole number, or 0x and hexadecimal digits") from None


@contextmanager
def _cluster(parsed: argparse.Namespace) -> Iterator[Any]:
    file, folder = find_file(parsed.file)
    with connected(file, folder) as store:
        yield store.cluster


def _given(parsed: argparse.Namespace, *names: str) -> dict[str, Any]:
    return {name: getattr(parsed, name) for name in names if getattr(parsed, name, None) is not None}


def _plan(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        plan = cluster.plan(parsed.action, **_given(parsed, "process", "at", "by", "force"))
    print(_json(plan) if parsed.json else plan)
    return 1 if plan.refusal else 0


def _change(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        move = getattr(cluster, parsed.command)(**_given(parsed, "process", "at", "by", "force"))
        told = ""
        deadline_s = time.monotonic() + parsed.timeout
        while not move.outcome.done() and time.monotonic() < deadline_s:
            if not parsed.json and str(move.progress) != told:
                told = str(move.progress)
                print(told, file=sys.stderr, flush=True)
            try:
                move.result(LOOK_S)
            except DeadlineError:
                continue
        moved = move.result(0.0)
    print(_json(moved) if parsed.json else moved)
    return 0


def _remove(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        gone = cluster.remove(parsed.process)
    print(_json({"removed": gone}) if parsed.json else f"{gone} has left")
    return 0


def _routers(parsed: argparse.Namespace) -> int:
    if (parsed.action is None) != (parsed.process is None):
        raise SpecError(f"{parsed.action} which router? name one, such as r4")
    with _cluster(parsed) as cluster:
        if parsed.action is not None:
            change = cluster.add_router if parsed.action == "add" else cluster.remove_router
            changed = change(parsed.process)
            if not parsed.json:
                print(f"{changed} is {'a member' if parsed.action == 'add' else 'no member any more'}")
        members = cluster.members()
    print(_json({"routers": members}) if parsed.json else "\n".join(map(str, members)))
    return 0


def _ring(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        status = cluster.status()
    print(_json(status) if parsed.json else status)
    return 1 if status.failed or status.unavailable else 0


def _moves(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        status = cluster.status()
    if parsed.json:
        print(_json({"moves": status.changes}))
    else:
        print("\n".join(map(str, status.changes)) or "no change of the ring is under way")
    return 0


def _events(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        for event in cluster.events(parsed.after):
            print(_json(event) if parsed.json else event, flush=True)
    return 0


def _top(parsed: argparse.Namespace) -> int:
    with _cluster(parsed) as cluster:
        before: dict[str, dict[str, int]] = {}
        shown = 0
        since_s = time.monotonic()
        while True:
            counted, now_s = cluster.statistics(), time.monotonic()
            if parsed.json:
                print(_json(counted), flush=True)
            else:
                print(_table(before, counted, now_s - since_s), flush=True)
            before, since_s, shown = counted, now_s, shown + 1
            if shown == parsed.times:
                return 0
            time.sleep(parsed.every)


def _table(before: dict[str, dict[str, int]], counted: dict[str, dict[str, int]], took_s: float) -> str:
    """Give what storage processes, routers and supers count, each kind under its own heads."""
    heads = f"{'process':<24} {'rows':>12} {'MiB':>8} {'pins':>5} {'their MiB':>9}"
    storages = [f"{heads} {'operations/s':>13} {'cycles/s':>9} {'queued':>8}"]
    routers = [f"{'process':<24} {'leads':>12} {'instances/s':>13} {'pending':>9} {'unstable MiB':>13}"]
    supers = [f"{'process':<24} {'watched':>12} {'silent':>13} {'suspicions':>11}"]
    for name, now in counted.items():
        then = before.get(name, now)
        if "rows" in now:
            rates = [(now[key] - then[key]) / took_s for key in ("operations", "cycles")]
            storages.append(
                f"{name:<24} {now['rows']:>12,} {now['bytes'] / 2**20:>8,.1f} {now['pins']:>5,} "
                f"{now['pinned_bytes'] / 2**20:>9,.1f} {rates[0]:>13,.0f} {rates[1]:>9,.0f} "
                f"{now['queued']:>8,}"
            )
        elif "learned_instances" in now:
            rate = (now["learned_instances"] - then["learned_instances"]) / took_s
            routers.append(
                f"{name:<24} {'yes' if now['leads'] else 'no':>12} {rate:>13,.0f} {now['pending']:>9,} "
                f"{now['unstable_bytes'] / 2**20:>13,.1f}"
            )
        elif "watched" in now:
            supers.append(f"{name:<24} {now['watched']:>12,} {now['silent']:>13,} {now['suspicions']:>11,}")
    kinds = [lines for lines in (storages, routers, supers) if len(lines) > 1]
    return "\n\n".join("\n".join(lines) for lines in kinds)


def _json(value: Any) -> str:
    return json.dumps(_plain(value))


def _plain(value: Any) -> Any:
    """Give a value as JSON has them; processes as people write them."""
    if isinstance(value, ProcessId):
        return str(value)
    if isinstance(value, KeyRange):
        return [value.low, value.high]
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, tuple | list | set | frozenset):
        return [_plain(item) for item in value]
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return str(value)
