"""``crescando certs``: an authority, and one file per node.

Rules of the file: arguments in, lines or one JSON object out; what is done is
done in `crescando.certificates`.
"""

from __future__ import annotations

import argparse
import datetime
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from crescando.errors import SpecError

if TYPE_CHECKING:
    from crescando.certificates import Finding

FOLDER = Path("certs")

FIRST_NODE = "client/admin"
"""Issued with a new authority, for whoever set it up."""


def add_to(commands: Any) -> None:
    """Add the command to those of the program."""
    certs = commands.add_parser(
        "certs",
        help="make, check and renew the certificates that processes prove themselves with",
        description="Keeps a certificate authority in one folder and writes one file per node: its key, "
        "its certificate, and the authority it trusts. Running processes take up a new file by themselves.",
    )
    actions = certs.add_subparsers(dest="action", required=True)
    common = argparse.ArgumentParser(add_help=False)
    common.add_argument("--dir", type=Path, default=FOLDER, help=f"the folder (default: {FOLDER})")
    common.add_argument("--json", action="store_true", help="print one JSON object and nothing else")

    init = actions.add_parser("init", parents=[common], help="make a new authority")
    init.add_argument("--cluster", default=None, help="the cluster's name (default: crescando)")
    init.set_defaults(run=_init)

    issue = actions.add_parser("issue", parents=[common], help="write nodes' files, with new keys")
    issue.add_argument("names", nargs="+", metavar="ROLE/NODE", help="such as storage/s1")
    issue.add_argument(
        "--together", type=Path, metavar="FILE", help="one file for a node that runs all of them"
    )
    issue.add_argument(
        "--admin", action="store_true", help="give clients the right to administer the cluster"
    )
    issue.add_argument("--days", type=float, default=None, help="length of life (default: 30)")
    issue.set_defaults(run=_issue)

    check = actions.add_parser(
        "check", parents=[common], help="say what is in the files; exit status 1 if one is of no use"
    )
    check.add_argument("files", nargs="*", type=Path, help="by default those in the folder")
    check.set_defaults(run=_check)

    rotate = actions.add_parser(
        "rotate", parents=[common], help="issue anew what has lived half its life, or is told to be"
    )
    rotate.add_argument("--all", action="store_true", help="all nodes' files, whatever their age")
    rotate.add_argument(
        "--authority",
        action="store_true",
        help="take the next of three steps to a new authority; hand out the files after each",
    )
    rotate.set_defaults(run=_rotate)


def _certificates() -> Any:
    try:
        from crescando import certificates
    except ImportError as error:
        raise SpecError("certificates need the extra [tls]: install crescando[tls]") from error
    return certificates


def _init(parsed: argparse.Namespace) -> int:
    certificates = _certificates()
    given = {} if parsed.cluster is None else {"cluster": parsed.cluster}
    authority = certificates.Authority.create(parsed.dir, **given)
    first = authority.issue(*certificates.with_right(FIRST_NODE))
    _say(
        parsed,
        {"cluster": authority.cluster, "folder": str(parsed.dir), "issued": [str(first)]},
        f"an authority of the cluster {authority.cluster!r} is in {parsed.dir}; keep it to yourself",
        f"{first}: {FIRST_NODE}, which may administer the cluster",
    )
    return 0


def _issue(parsed: argparse.Namespace) -> int:
    certificates = _certificates()
    authority = certificates.Authority(parsed.dir)
    given = {} if parsed.days is None else {"lifetime": datetime.timedelta(days=_days(parsed.days))}
    names = [certificates.with_right(name) if parsed.admin else (name,) for name in parsed.names]
    if parsed.together is not None:
        together = [name for each in names for name in each]
        issued = {authority.issue(*together, path=parsed.together, **given): ", ".join(together)}
    else:
        issued = {authority.issue(*each, **given): ", ".join(each) for each in names}
    _say(
        parsed,
        {"issued": list(map(str, issued))},
        *(f"{path}: {names}" for path, names in issued.items()),
    )
    return 0


def _days(days: float) -> float:
    if not 0 < days <= 3650:
        raise SpecError(f"a certificate lives at least a little and at most 3650 days, not {days:g}")
    return days


def _check(parsed: argparse.Namespace) -> int:
    certificates = _certificates()
    files: list[Path] = parsed.files or certificates.node_files(parsed.dir)
    if not files:
        raise SpecError(f"there are no nodes' files in {parsed.dir}; run: crescando certs issue ROLE/NODE")
    findings: list[Finding] = [certificates.check(path) for path in files]
    _say(parsed, {"files": [_object_of(finding) for finding in findings]}, *map(_line_of, findings))
    return 1 if any(finding.fault for finding in findings) else 0


def _object_of(finding: Finding) -> dict[str, object]:
    return {
        "file": str(finding.path),
        "names": list(finding.names),
        "serial": finding.serial,
        "expires": finding.expires.isoformat() if finding.expires is not None else None,
        "is_due": finding.is_due,
        "fault": finding.fault,
    }


def _line_of(finding: Finding) -> str:
    names = ", ".join(finding.names) or "nobody"
    if finding.fault:
        return f"{finding.path}: {names}: {finding.fault}"
    due = "; time for a new one: crescando certs rotate" if finding.is_due else ""
    return f"{finding.path}: {names}, until {finding.expires:%Y-%m-%d %H:%M} UTC{due}"


_STEPS = {
    "announced": "the nodes' files trust a new authority beside the old one; hand them out, then go on",
    "replaced": "the nodes' files are signed by the new authority; hand them out, then go on",
    "finished": "the nodes' files trust the new authority only; hand them out",
}


def _rotate(parsed: argparse.Namespace) -> int:
    certificates = _certificates()
    authority = certificates.Authority(parsed.dir)
    if parsed.authority:
        step = authority.rotate_authority()
        _say(parsed, {"step": step}, _STEPS[step])
        return 0
    renewed = authority.rotate(is_forced=parsed.all)
    _say(
        parsed,
        {"renewed": list(map(str, renewed))},
        *(map(str, renewed) if renewed else ["nothing is to be renewed yet"]),
    )
    return 0


def _say(parsed: argparse.Namespace, told: dict[str, object], *lines: str) -> None:
    for line in [json.dumps(told)] if parsed.json else lines:
        print(line)
