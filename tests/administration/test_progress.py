"""How far a change is, as its receivers tell."""

from __future__ import annotations

from crescando.administration.progress import Copying, Progress, progress_of
from crescando.roles.copy_messages import CopyId, CopyProgress
from crescando.routing.rubberband.changes import Change
from crescando.routing.rubberband.keyspace import Copy, Expand
from crescando.routing.rubberband.messages import MessageId
from crescando.types import KeyRange, ProcessId

S1, S2, S3, S4 = (ProcessId("storage", f"s{n}", 1) for n in range(1, 5))
ADMIN = ProcessId("client", "administration", 1)
LOW, HIGH = (KeyRange(0, 9),), (KeyRange(10, 19),)
CHANGE = Change(MessageId(ADMIN, 3), Expand(S4, 5), (Copy(S1, S4, LOW), Copy(S2, S3, HIGH)))
PLANNED = ((100, 6400), (300, 19200))


def copy(number: int, rows: int, n_rows: int, *, rows_s: float = 50.0, blocker: str = "") -> CopyProgress:
    at = CopyId(CHANGE.id, number)
    sender, receiver, scope = CHANGE.copies[number].sender, CHANGE.copies[number].receiver, LOW
    return CopyProgress(
        at, sender, receiver, scope, "copying", blocker, n_rows, 64 * n_rows, rows, 64 * rows, rows_s, 0
    )


def told(*copies: CopyProgress, silent: frozenset[ProcessId] = frozenset()) -> Copying:
    return Copying({each.copy: each for each in copies}, silent)


def test_before_anybody_has_told_anything_the_plan_tells_how_much_there_is() -> None:
    progress = progress_of(CHANGE, 0, told(), PLANNED)

    assert progress == Progress("copying", 2, 0, 0, 400, 0, 25600, None, "")
    assert progress.percent == 0


def test_copies_add_up_and_the_slowest_says_when_it_ends() -> None:
    progress = progress_of(CHANGE, 0, told(copy(0, 50, 110), copy(1, 200, 300, rows_s=10.0)), PLANNED)

    assert (progress.rows, progress.rows_total) == (250, 410)
    assert progress.eta_s == 10.0
    assert round(progress.percent) == 61
    assert str(progress) == "copying, 61 %, 250 of 410 rows, 10 s left"


def test_a_copy_that_has_arrived_counts_whole_and_is_asked_for_no_more() -> None:
    progress = progress_of(CHANGE.readied(0), 0, told(copy(1, 30, 300)), PLANNED)

    assert (progress.ready, progress.rows, progress.rows_total) == (1, 130, 400)


def test_what_one_waits_for_is_told() -> None:
    assert (
        progress_of(CHANGE, 0, told(copy(0, 0, 100, blocker="credit"), copy(1, 0, 300))).blocker == "credit"
    )
    progress = progress_of(CHANGE, 0, told(copy(1, 0, 300), silent=frozenset({S4})))
    assert progress.blocker == "storage/s4#1 does not answer"
    assert progress.eta_s is None
    assert "waits for this: storage/s4#1 does not answer" in str(progress)


def test_a_change_whose_copies_have_all_arrived_waits_for_those_before_it() -> None:
    progress = progress_of(CHANGE.readied(0).readied(1), 2, told(), PLANNED)

    assert (progress.state, progress.blocker) == ("queued", "the change before it")
    assert progress.percent < 100


def test_a_copy_of_nothing_is_done_with_its_last_word() -> None:
    assert progress_of(CHANGE.readied(0), 0, told()).percent == 50
    assert Progress("done").percent == 100
