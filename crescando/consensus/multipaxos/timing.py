"""The times and limits of one member."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class PaxosTiming:
    """Times and limits of one member.

    Parameters
    ----------
    heartbeat_s : float
        Spacing of a leader's heartbeats.
    election_s : float
        Silence after which a leader is doubted, longer if its heartbeats are
        irregular; also how long a leader may go without a majority's answers
        before it steps down.
    removal_s : float
        Silence after which a member is removed.
    minimum : int
        Members that the removal of silent ones leaves at least. Two tolerate as
        little as three of which one is dead, and let a third one come.
    window : int
        Instances that may be open at once; also the distance from a change of the
        membership to the first instance that it governs, and so the same at all
        members.
    lag, lag_bytes : int
        Learned instances, and their bytes, kept for members that have not learned
        them; one that lags further gets a snapshot instead.
    """

    heartbeat_s: float = 0.1
    election_s: float = 1.0
    removal_s: float = 5.0
    minimum: int = 2
    window: int = 8
    lag: int = 1024
    lag_bytes: int = 64 << 20
