"""A client's reads that go around the order: snapshot and basic ones, and questions to one replica.

Rules of the file: all of them are numbered in one series, and their answers by the same numbers
below 0, so that nobody takes one for a message. Each kind keeps its own; here they are only told apart.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection, Container, Sequence

from crescando.engine.base import Results, Rows
from crescando.errors import ReadLostError
from crescando.process import earliest
from crescando.roles.answers import Answer
from crescando.roles.asked import Waiting
from crescando.roles.basic import WORN_OUT, BasicReads, Turn
from crescando.roles.behind import Behind
from crescando.roles.completion import Completion, Executed, Stable
from crescando.roles.flight import InFlight
from crescando.roles.limits import ClientLimits
from crescando.roles.messages import BasicRefused
from crescando.roles.replica import ReplicaReads
from crescando.roles.snapshot import SnapshotReads
from crescando.routing.base import Config
from crescando.routing.ecast.messages import ReadRefused
from crescando.types import ProcessId

SNAPSHOT_BATCH = 1024
"""Snapshot reads that are asked together at most: less than may be open, so that several batches are on
their way at once."""


class DirectReads:
    """The reads of one client that have no place in the order.

    Parameters
    ----------
    me : ProcessId
    limits : ClientLimits
    config_type : type
        Of the routing configuration.

    Attributes
    ----------
    snapshots : SnapshotReads
    basics : BasicReads
    replicas : ReplicaReads
    numbers : iterator of int
        Gives a number for whatever is asked outside the order, each once.
    """

    def __init__(self, me: ProcessId, limits: ClientLimits, config_type: type[Config]) -> None:
        numbers = self.numbers = itertools.count(1)
        self.replicas = ReplicaReads(numbers)
        self.snapshots = SnapshotReads(
            me,
            numbers,
            open_max=limits.snapshot_reads,
            bytes_max=limits.snapshot_bytes,
            batch_max=min(limits.batch_operations, SNAPSHOT_BATCH),
        )
        self.basics = BasicReads(me, numbers, limits, config_type)

    def __len__(self) -> int:
        """How many have no outcome, questions to one replica apart."""
        return len(self.snapshots) + len(self.basics)

    def request(self, asked: Sequence[Waiting], behind: Behind) -> None:
        """Take reads of one isolation, behind all others of it."""
        reads = self.basics if asked[0][1].isolation == "basic" else self.snapshots
        reads.request(asked, behind)

    def hear(self, results: Results, now_s: float) -> None:
        """Learn how long a process took to answer."""
        self.basics.hear(results, now_s)
        self.snapshots.hear(results, now_s)

    def on_rows(self, rows: Rows) -> tuple[list[Stable | Executed], list[Answer]]:
        """Take the answers of many reads, none of which has parts; as `Runs.on_rows`."""
        # Those of one kind come together; of the others each is looked at by itself.
        reads = self.snapshots if rows.number.item(0) in self.snapshots else self.basics
        return reads.on_rows(rows)

    def find(self, number: int, at: int) -> InFlight | None:
        """Give the open attempt that an answer at a position belongs to."""
        return self.snapshots.find(number, at) or self.basics.find(number)

    def finish(self, number: int) -> None:
        """Forget an attempt whose read has its outcome."""
        if number in self.snapshots:
            self.snapshots.finish(number)
        else:
            self.basics.finish(number)

    def on_refused(
        self, process: ProcessId, refused: ReadRefused | BasicRefused, now_s: float
    ) -> list[InFlight]:
        """Give up refused attempts; gives those that must not be made again."""
        self.basics.on_refused(process, refused, now_s)
        return self.snapshots.on_refused(refused, now_s) if isinstance(refused, ReadRefused) else []

    def end_session(self, peer: ProcessId, now_s: float) -> None:
        """Learn that a session ended which may have carried questions or answers."""
        self.snapshots.lose_session()
        self.basics.end_session(peer, now_s)

    def take_some(self, tokens: Container[int]) -> tuple[list[int], list[InFlight]]:
        """Forget reads that are called off; gives the tokens of those not sent, and open attempts."""
        unsent, attempts = self.snapshots.take_some(tokens)
        more_unsent, more_attempts = self.basics.take_some(tokens)
        return unsent + more_unsent, attempts + more_attempts

    def take_all(self) -> list[int]:
        """Forget every read; gives their tokens."""
        return self.snapshots.take_all() + self.basics.take_all()

    def flush(
        self,
        now_s: float,
        *,
        lead: ProcessId | None,
        lowest: int,
        seen: int,
        reachable: Collection[ProcessId],
        offset: Callable[[], int],
        hopeless: Exception | None,
    ) -> Turn:
        """Give what to send, and what ends; see `SnapshotReads.flush` and `BasicReads.flush`."""
        turn = self.basics.flush(
            now_s, lead=lead, lowest=lowest, seen=seen, reachable=reachable, hopeless=hopeless
        )
        injected = self.snapshots.flush(now_s, lead=lead, seen=seen, offset=offset)
        if lead is not None:
            turn.send += [(lead, message) for message in injected]
        lost = ReadLostError(WORN_OUT)
        turn.ended += [Completion(token, error=lost) for token in self.snapshots.take_expired()]
        return turn

    @property
    def wake_at_s(self) -> float | None:
        """When an attempt is given up or made again."""
        return earliest(self.snapshots.wake_at_s, self.basics.wake_at_s)


def basic_apart(asked: Collection[Waiting]) -> tuple[list[Waiting], list[Waiting]]:
    """Give the basic reads, which storage processes answer for a while without a majority, and the rest."""
    others = [each for each in asked if each[1].isolation != "basic"]
    basic = [each for each in asked if each[1].isolation == "basic"] if len(others) < len(asked) else []
    return basic, others
