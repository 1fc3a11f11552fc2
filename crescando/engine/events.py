"""Events of a replay: which operation meets which row image, and when.

Rules of the file: events are parallel arrays, ordered by image and then by
time, so that an image's next event, or all up to a time, are found by binary
search on one number.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from crescando.engine.keys import I64
from crescando.engine.values import Errors

Part = tuple[I64, I64, int, I64, Errors | None]
"""Events of one group: images, times, the group, items, causes."""


@dataclass(frozen=True, slots=True)
class Events:
    """Pairs of image and time, ascending by both, with what happens there.

    Attributes
    ----------
    image, time : ndarray of int64, shape (n,)
    group, item : ndarray of int64
        The group, and the local operation in it (or, for inserts and upserts,
        the index of the incoming row).
    error : ndarray of uint8
        Cause, if the predicate is an ERROR on the image.
    code : ndarray of int64
        ``image * span + time``: one number that sorts as the pair does.
    """

    image: I64
    time: I64
    group: I64
    item: I64
    error: Errors
    code: I64

    def pick(self, places: I64 | slice) -> Events:
        """Give some of the events."""
        return Events(
            self.image[places],
            self.time[places],
            self.group[places],
            self.item[places],
            self.error[places],
            self.code[places],
        )


_NONE: I64 = np.zeros(0, np.int64)
NOTHING = Events(_NONE, _NONE, _NONE, _NONE, np.zeros(0, np.uint8), _NONE)


def join_events(parts: Sequence[Part], span: int) -> Events:
    """Put events (image, time, group, item, errors) of many groups into one order."""
    if not parts:
        return NOTHING
    image = np.concatenate([part[0] for part in parts])
    time = np.concatenate([part[1] for part in parts])
    group = np.repeat([part[2] for part in parts], [len(part[0]) for part in parts])
    item = np.concatenate([part[3] for part in parts])
    error = np.concatenate([np.zeros(len(p[0]), np.uint8) if p[4] is None else p[4] for p in parts])
    code = image * span + time
    events = Events(image, time, group, item, error, code)
    if (code[1:] >= code[:-1]).all():
        return events  # One broad operation: its rows come in order.
    return events.pick(np.argsort(code, kind="stable"))


def merge(left: Events, right: Events) -> Events:
    """Merge two ordered lists of events."""
    if len(left.code) == 0 or len(right.code) == 0:
        return right if len(left.code) == 0 else left
    both = chain(left, right)
    return both.pick(np.argsort(both.code, kind="stable"))


def chain(left: Events, right: Events) -> Events:
    """Put two lists of events end to end."""
    return Events(
        np.concatenate((left.image, right.image)),
        np.concatenate((left.time, right.time)),
        np.concatenate((left.group, right.group)),
        np.concatenate((left.item, right.item)),
        np.concatenate((left.error, right.error)),
        np.concatenate((left.code, right.code)),
    )


def by_group(groups: I64) -> Iterator[tuple[int, I64 | slice]]:
    """Give each distinct group and where it occurs."""
    if len(groups) == 0:
        return
    first = int(groups[0])
    if (groups == first).all():
        yield first, slice(None)
        return
    for group in np.unique(groups).tolist():
        yield group, (groups == group).nonzero()[0]
