"""Frames survive any cut of the stream, and nothing is believed before it is checked."""

from __future__ import annotations

import random

import pytest

from crescando.errors import RemoteProtocolError
from crescando.transport.framing import HEADER_BYTES, VIEW_BYTES, Body, FrameKind, Framer, header

BODIES = [b"", b"x", b"y" * 15, b"z" * 1000, b"", b"w" * 70_000]
STREAM = b"".join(header(FrameKind.MESSAGE, len(body)) + body for body in BODIES)


def frames(framer: Framer, *pieces: bytes) -> list[Body]:
    taken: list[Body] = []

    def take(_: FrameKind, body: Body) -> bool:
        taken.append(body)
        return True

    for piece in pieces:
        framer.feed(piece, take)
    return taken


def test_many_frames_in_one_piece() -> None:
    assert frames(Framer(1 << 20), STREAM) == BODIES


def test_one_byte_at_a_time() -> None:
    assert frames(Framer(1 << 20), *(STREAM[at : at + 1] for at in range(len(STREAM)))) == BODIES


@pytest.mark.parametrize("seed", range(20))
def test_any_cut_gives_the_same_frames(seed: int) -> None:
    rng = random.Random(seed)
    cuts = sorted(rng.sample(range(len(STREAM)), rng.randint(1, 40)))
    pieces = [STREAM[a:b] for a, b in zip([0, *cuts], [*cuts, len(STREAM)], strict=True)]

    assert frames(Framer(1 << 20), *pieces) == BODIES, seed


@pytest.mark.parametrize(
    ("at", "value", "text"),
    [(0, 0, "not a frame"), (4, 9, "version"), (6, 99, "unknown kind"), (12, 1, "at most")],
)
def test_a_wrong_header_is_refused_before_its_body_comes(at: int, value: int, text: str) -> None:
    wrong = bytearray(header(FrameKind.MESSAGE, 10))
    wrong[at] = value

    with pytest.raises(RemoteProtocolError, match=text):
        frames(Framer(100), bytes(wrong))


def test_the_limit_may_be_raised_between_two_frames_of_one_piece() -> None:
    framer = Framer(4)
    taken = []

    def take(kind: FrameKind, body: Body) -> bool:
        taken.append((kind, body))
        framer.body_bytes_max = 100
        return True

    framer.feed(header(FrameKind.CONFIRM, 0) + header(FrameKind.MESSAGE, 9) + b"123456789", take)

    assert taken == [(FrameKind.CONFIRM, b""), (FrameKind.MESSAGE, b"123456789")]


def test_nothing_is_taken_behind_a_frame_after_which_none_is_wanted() -> None:
    taken: list[FrameKind] = []

    def take(kind: FrameKind, _: Body) -> bool:
        taken.append(kind)
        return kind is not FrameKind.REFUSE

    kinds = FrameKind.CONFIRM, FrameKind.REFUSE, FrameKind.MESSAGE
    Framer(100).feed(b"".join(header(kind, 0) for kind in kinds), take)

    assert taken == [FrameKind.CONFIRM, FrameKind.REFUSE]


def test_a_short_body_does_not_pin_what_came_with_it() -> None:
    (body,) = frames(Framer(100), header(FrameKind.MESSAGE, 3) + b"abc" + b"CRDO"[:3])

    assert type(body) is bytes
    assert len(header(FrameKind.MESSAGE, 3)) == HEADER_BYTES


def test_a_long_body_is_not_copied() -> None:
    data = header(FrameKind.MESSAGE, VIEW_BYTES) + bytes(VIEW_BYTES)
    (body,) = frames(Framer(VIEW_BYTES), data)

    assert isinstance(body, memoryview)
    assert body.obj is data
