"""The command line: ``crescando demo``, ``certs``, and what runs, shows and changes a cluster.

Rules of the file: arguments in, an exit status out; the work is done elsewhere
and imported when a command needs it, so that ``--help`` is quick.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext, suppress
from dataclasses import replace

from crescando.cli import certs, clusters, elastic
from crescando.errors import CrescandoError

QUICK_ROWS, QUICK_OPERATIONS = 20_000, 3_000


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command.

    Parameters
    ----------
    arguments : sequence of str or None
        The words after the program's name; None takes the process's own.

    Returns
    -------
    int
        0 if all went well, 1 if a check failed, 2 if it could not be run; `docs/operations.md` has all.
    """
    parsed = _parser().parse_args(arguments)
    try:
        status: int = parsed.run(parsed)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        # What is still to be written must not be tried again at the end.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except (CrescandoError, OSError) as error:
        print(f"crescando: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="crescando", description="A main-memory, scan-only, elastic and strongly consistent store."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    demo = commands.add_parser(
        "demo",
        help="run real flights through a small cluster, kill two of its processes, check every answer",
        description="Loads a year of flights into an embedded cluster, lets several clients work on them, "
        "kills the lead router and a storage process meanwhile, and compares every answer and every replica "
        "with SQLite.",
    )
    demo.add_argument("--seed", type=int, default=1, help="decides every operation (default: 1)")
    demo.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    demo.add_argument(
        "--operations", type=_positive, default=None, help="how many operations (default: 8,000)"
    )
    demo.add_argument(
        "--quick",
        action="store_true",
        help=f"only {QUICK_ROWS:,} flights, and {QUICK_OPERATIONS:,} operations if not told otherwise",
    )
    demo.add_argument(
        "--cluster",
        action="store_true",
        help="on the cluster that was started here with `crescando up`: real processes are killed",
    )
    demo.set_defaults(run=_demo)
    certs.add_to(commands)
    clusters.add_to(commands)
    elastic.add_to(commands)
    return parser


def _positive(text: str) -> int:
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def _demo(parsed: argparse.Namespace) -> int:
    try:
        import rich  # noqa: F401
    except ImportError:
        print("crescando: the demo needs the extra [demo]: install crescando[demo]", file=sys.stderr)
        return 2
    from crescando.demo.progress import Silence, bars
    from crescando.demo.report import print_report
    from crescando.demo.story import Plan, run
    from crescando.demo.verbs import TABLE

    standard = Plan(seed=parsed.seed)
    quick: bool = parsed.quick
    plan = Plan(
        seed=parsed.seed,
        operations=parsed.operations or (QUICK_OPERATIONS if quick else standard.operations),
        rows=QUICK_ROWS if quick else None,
    )
    with ExitStack() as stack:
        open_store, kill = None, None
        if parsed.cluster:
            store, replication, kill = stack.enter_context(clusters.demonstrated(TABLE))
            plan, open_store = replace(plan, replication=replication), lambda **_: nullcontext(store)
        progress = stack.enter_context(nullcontext(Silence()) if parsed.json else bars())
        report = run(plan, progress, open_store, kill)
    if parsed.json:
        print(report.to_json())
    else:
        print_report(report)
    return 1 if report.failures() else 0
