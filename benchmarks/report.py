"""What every benchmark prints, and how it is asked: one JSON object, a table, and a word of progress."""

from __future__ import annotations

import argparse
import json
import os
import platform
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


def progress(what: str) -> None:
    """Tell on the error stream what is about to be measured."""
    print(f"{time.strftime('%H:%M:%S')} {what}", file=sys.stderr, flush=True)


def machine() -> dict[str, Any]:
    """Say on what the measures are taken."""
    return {
        "cores": os.cpu_count(),
        "machine": platform.machine(),
        "python": platform.python_version(),
        "load_before": [round(load, 2) for load in os.getloadavg()],
    }


def parser_of(
    prog: str, description: str | None, keys: Sequence[str], metavar: str
) -> argparse.ArgumentParser:
    """Give the command line that every benchmark has."""
    parser = argparse.ArgumentParser(prog=prog, description=description)
    parser.add_argument("--quick", action="store_true", help="fewer and shorter runs: at most four minutes")
    parser.add_argument("--json", action="store_true", help="print only the JSON object")
    parser.add_argument("--out", type=Path, help="write the JSON object to a file; plots go beside it")
    parser.add_argument(
        "--only", nargs="+", choices=keys, default=keys, metavar=metavar, help="some measures"
    )
    return parser


def out_path(chosen: Path | None, name: str) -> Path:
    """Give where the JSON object goes; its folder is made."""
    out = chosen or ROOT / "benchmarks" / "results" / name
    out.parent.mkdir(parents=True, exist_ok=True)
    return out


def table(told: dict[str, Any]) -> str:
    """Give the outcomes as lines of text, with what is missed below each."""
    lines = [f"{'':4}{'value':>14}  {'ok':4}target"]
    for key, entry in told.items():
        value = "-" if entry["value"] is None else f"{entry['value']:,}"
        verdict = {True: "yes", False: "NO", None: "-"}[entry["ok"]]
        lines.append(f"{key:4}{value:>14}  {verdict:4}{entry['target']}")
        lines.extend(f"{'':24}missed: {text}" for text in entry.get("missed_by", ()))
    return "\n".join(lines)


def publish(told: dict[str, Any], setting: dict[str, Any], out: Path, *, only_json: bool) -> None:
    """Write the JSON object, and print it below a table."""
    text = json.dumps({**told, "setting": setting}, indent=2)
    out.write_text(text + "\n", encoding="utf-8")
    if not only_json:
        print(table(told))
    print(text)
