"""Conformance suites: what every implementation of a contract must do, as functions to call in a test.

Rules of the package: a suite knows a contract and no implementation; it is
seeded, bounded to seconds, and raises `ConformanceError`, which names the rule
that was broken and how to see it again. A suite that met nothing to check says
so by raising too.
"""

from crescando.testing.conformance.config import ConfigReport, check_config
from crescando.testing.conformance.messages import draw_message
from crescando.testing.conformance.rules import ConformanceError

__all__ = ["ConfigReport", "ConformanceError", "check_config", "draw_message"]
