"""What writes did, one by one."""

from __future__ import annotations

from collections.abc import Iterable

from crescando.engine.written import Report, Written


def reports(pieces: Iterable[Written]) -> list[Report]:
    """Give what each write or transaction did."""
    return [report for written in pieces for report in written.reports()]
