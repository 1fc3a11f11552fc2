"""Conformance suites: what every implementation of a contract must do, as functions to call in a test.

Rules of the package: a suite knows a contract and no implementation; it is
seeded, bounded to seconds, and raises `ConformanceError`, which names the rule
that was broken and how to see it again. A suite that met nothing to check says
so by raising too.
"""

from crescando.testing.conformance.broadcast import BroadcastSubject, check_broadcast
from crescando.testing.conformance.config import ConfigReport, check_config
from crescando.testing.conformance.endpoint import ReadWords
from crescando.testing.conformance.messages import draw_message
from crescando.testing.conformance.multicast import MulticastSubject, check_multicast
from crescando.testing.conformance.rules import ConformanceError

__all__ = [
    "BroadcastSubject",
    "ConfigReport",
    "ConformanceError",
    "MulticastSubject",
    "ReadWords",
    "check_broadcast",
    "check_config",
    "check_multicast",
    "draw_message",
]
