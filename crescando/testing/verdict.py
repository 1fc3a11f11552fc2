"""What one seed gave."""

from __future__ import annotations

from dataclasses import dataclass, field

from crescando.testing.checkers import Violations
from crescando.testing.faults import Fault


@dataclass(slots=True)
class Verdict:
    """What a seed gave.

    Attributes
    ----------
    violations : list of str
        Empty if the run is correct.
    faults : list of Fault
        The schedule.
    counted : dict of str to int
        Faults that took effect, and other things that happened.
    """

    seed: int
    violations: Violations
    faults: list[Fault]
    counted: dict[str, int] = field(default_factory=dict)
    trace_digest: str = ""
    virtual_s: float = 0.0

    @property
    def is_correct(self) -> bool:
        """Whether no checker found anything."""
        return not self.violations
