"""How a suite tells what was broken."""

from __future__ import annotations


class ConformanceError(AssertionError):
    """An implementation does not keep its contract.

    Parameters
    ----------
    rule : str
        The rule that it breaks, by a short name.
    text : str
        What happened.
    where : str
        How to see it again: seed, step, message.
    """

    def __init__(self, rule: str, text: str, where: str = "") -> None:
        super().__init__(rule, text, where)
        self.rule = rule
        self.text = text
        self.where = where

    def __str__(self) -> str:
        at = f" ({self.where})" if self.where else ""
        return f"{self.rule}: {self.text}{at}"
