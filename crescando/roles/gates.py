"""What a step that ends a load waits for, where it stands in the queue."""

from __future__ import annotations

from dataclasses import dataclass, field

from crescando.engine.loads import LoadStep


@dataclass(slots=True, eq=False)
class Gate:
    """What a step that ends a load waits for.

    Attributes
    ----------
    lacking : set of bytes
        Digests of bytes that are not here.
    late : list of LoadStep
        Chunks that came meanwhile; executed before the step.
    """

    lacking: set[bytes] = field(default_factory=set)
    late: list[LoadStep] = field(default_factory=list)

    @property
    def is_open(self) -> bool:
        """Whether the step may be executed."""
        return not self.lacking


OPEN = Gate()
"""Of a step that waits for nothing."""
