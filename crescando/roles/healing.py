"""When a super has the ring healed: one at a time, and not all supers at once.

Rules of the file: what a cure is follows from the delivered configuration alone
(see `Healer`), and the order refuses every one that was planned for another; so
that nothing here has to be right for the ring to be. What is decided here is who
acts: the first super in name at once, each other one so much later than the one
before it, should those have failed. Nobody has more than one cure on its way, and
after a refusal there is a pause, so that two who see different things do not
argue for ever. A cure that was begun and dropped is tried again after a while, and
later each time. A cure that is not needed any more is simply not there.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from crescando.errors import SpecError
from crescando.process import earliest
from crescando.routing.base import Config
from crescando.routing.rubberband.messages import Reconfigure
from crescando.types import ProcessId

ACTIONS = ("replace", "shrink", "wait")
"""What may become of a position whose process has failed."""


TRIED_MAX = 1024
"""Transformations of which it is remembered how often they have begun."""

RETRY_S_MAX = 60.0
"""The longest pause before a cure that was dropped is tried again."""


@dataclass(frozen=True, slots=True)
class HealingPolicy:
    """What becomes of a position on the ring whose process has failed.

    Parameters
    ----------
    action : str
        ``replace``: a standby takes it, as soon as there is one. ``shrink``: if there is none
        for `shrink_after_s`, it is given up, unless fewer processes than replicas would be
        left. ``wait``: nothing, until an administrator does something.
    delay_s : float
        How much longer each super waits than the one before it in name.
    shrink_after_s : float
        How long a position stays open for a standby to come.

    Raises
    ------
    SpecError
        If it cannot be: the text names the setting and the mend.
    """

    action: str = "replace"
    delay_s: float = 1.0
    shrink_after_s: float = 30.0

    def __post_init__(self) -> None:
        if self.action not in ACTIONS:
            raise SpecError(f"healing.action must be one of {', '.join(ACTIONS)}, not {self.action!r}")
        for name in ("delay_s", "shrink_after_s"):
            value = getattr(self, name)
            if not value > 0:
                raise SpecError(f"healing.{name} must be greater than 0, not {value!r}")


C = TypeVar("C", bound=Config)
D = TypeVar("D", bound=Config, contravariant=True)


class Healer(Protocol[D]):
    """What is wrong with a ring and what may be done about it, as functions of the configuration."""

    def wounded(self, config: D, /) -> frozenset[ProcessId]:
        """Give the failed processes that hold a position, and whose cure has not begun."""
        ...

    def cure(
        self,
        config: D,
        /,
        *,
        may_shrink: frozenset[ProcessId],
        avoided: frozenset[ProcessId],
        tried: Mapping[Hashable, int],
    ) -> Reconfigure | None:
        """Give the next cure, if any wound can be healed; of several the one tried least often."""
        ...


class Healing(Generic[C]):
    """One super's part in healing.

    Parameters
    ----------
    me : ProcessId
    healer : Healer
    policy : HealingPolicy

    Attributes
    ----------
    wake_at_s : float or None
        When to look again if nothing happens before.
    proposed, refused : int
        Cures that it has submitted, and those that the order refused.
    """

    def __init__(self, me: ProcessId, healer: Healer[C], policy: HealingPolicy) -> None:
        self.me = me
        self.policy = policy
        self.wake_at_s: float | None = None
        self.proposed = 0
        self.refused = 0
        self._healer = healer
        self._open: int | None = None
        self._paused_until_s = 0.0
        self._config: C | None = None
        self._wounded_s: dict[ProcessId, float] = {}
        self._avoided: frozenset[ProcessId] = frozenset()
        self._may_shrink: frozenset[ProcessId] = frozenset()
        self._cure: Reconfigure | None = None
        self._curable_s = 0.0
        self._tried: dict[Hashable, int] = {}

    @property
    def is_idle(self) -> bool:
        """Whether nothing that was submitted is still to be decided upon."""
        return self._open is None

    def look(
        self, config: C, supers: Collection[ProcessId], avoided: frozenset[ProcessId], now_s: float
    ) -> Reconfigure | None:
        """Give the cure to be submitted now, if it is this super's turn; `submitted` must follow.

        Parameters
        ----------
        config : Config
            As delivered so far.
        supers : collection of ProcessId
            Those that are members.
        avoided : frozenset of ProcessId
            Standbys that this super would not take.
        now_s : float
        """
        self.wake_at_s = None
        if self.policy.action == "wait" or self.me not in supers:
            return None
        self._plan(config, avoided, now_s)
        if self._cure is None or self._open is not None:
            return None
        place = sorted(supers).index(self.me)
        due_s = max(self._curable_s + place * self.policy.delay_s, self._paused_until_s)
        if now_s < due_s:
            self.wake_at_s = earliest(self.wake_at_s, due_s)
            return None
        return self._cure

    def _plan(self, config: C, avoided: frozenset[ProcessId], now_s: float) -> None:
        """Find out what would heal, unless that is known, and since when."""
        is_new = config is not self._config or avoided != self._avoided
        if config is not self._config:
            wounded = self._healer.wounded(config)
            self._wounded_s = {process: self._wounded_s.get(process, now_s) for process in wounded}
        may_shrink: frozenset[ProcessId] = frozenset()
        if self.policy.action == "shrink" and self._wounded_s:
            due_s = {
                process: since_s + self.policy.shrink_after_s for process, since_s in self._wounded_s.items()
            }
            may_shrink = frozenset(process for process, at_s in due_s.items() if now_s >= at_s)
            self.wake_at_s = earliest(*(at_s for at_s in due_s.values() if now_s < at_s))
        self._config, self._avoided = config, avoided
        if not is_new and may_shrink == self._may_shrink:
            return
        self._may_shrink = may_shrink
        known, self._cure = self._cure, None
        if self._wounded_s:
            self._cure = self._healer.cure(config, may_shrink=may_shrink, avoided=avoided, tried=self._tried)
        if self._cure is not None and (known is None or known.transformation != self._cure.transformation):
            n_tried = self._tried.get(self._cure.transformation, 0)
            self._curable_s = now_s + (min(self.policy.delay_s * 2**n_tried, RETRY_S_MAX) if n_tried else 0.0)

    def submitted(self, number: int) -> None:
        """Learn under which number the cure goes."""
        self._open = number
        self.proposed += 1

    def began(self, transformation: Hashable) -> None:
        """Learn that a change of the keyspace has begun, whoever wished it."""
        # The one begun last is the last to be forgotten.
        self._tried[transformation] = self._tried.pop(transformation, 0) + 1
        if len(self._tried) > TRIED_MAX:
            del self._tried[next(iter(self._tried))]

    def delivered(self, number: int) -> None:
        """Learn that the order has taken an own message."""
        if self._open is not None and number >= self._open:
            self._open = None

    def settle(self, upto: int, refused: Collection[int], now_s: float) -> None:
        """Learn what is decided upon, and what was refused: somebody was faster, or something changed."""
        if self._open is None:
            return
        if self._open in refused:
            self.refused += 1
            self._paused_until_s = now_s + self.policy.delay_s
            self._open = None
        elif self._open <= upto:
            self._open = None
