"""Frames survive any cut of the stream, and nothing is believed before it is checked."""

from __future__ import annotations

import random
import tracemalloc

import pytest

from crescando.errors import RemoteProtocolError
from crescando.transport.framing import HEADER_BYTES, VIEW_BYTES, Body, FrameKind, Framer, header

BODIES = [b"", b"x", b"y" * 15, b"z" * 1000, b"", b"w" * 70_000]
NINE = b"123456789"
STREAM = b"".join(header(FrameKind.MESSAGE, body) + body for body in BODIES)


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
    [(0, 0, "not a frame"), (4, 9, "version"), (6, 99, "unknown kind"), (11, 1, "at most")],
)
def test_a_wrong_header_is_refused_before_its_body_comes(at: int, value: int, text: str) -> None:
    wrong = bytearray(header(FrameKind.MESSAGE, bytes(10)))
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

    framer.feed(header(FrameKind.CONFIRM, b"") + header(FrameKind.MESSAGE, NINE) + NINE, take)

    assert taken == [(FrameKind.CONFIRM, b""), (FrameKind.MESSAGE, NINE)]


def test_nothing_is_taken_behind_a_frame_after_which_none_is_wanted() -> None:
    taken: list[FrameKind] = []

    def take(kind: FrameKind, _: Body) -> bool:
        taken.append(kind)
        return kind is not FrameKind.REFUSE

    kinds = FrameKind.CONFIRM, FrameKind.REFUSE, FrameKind.MESSAGE
    Framer(100).feed(b"".join(header(kind, b"") for kind in kinds), take)

    assert taken == [FrameKind.CONFIRM, FrameKind.REFUSE]


def test_a_short_body_does_not_pin_what_came_with_it() -> None:
    (body,) = frames(Framer(100), header(FrameKind.MESSAGE, b"abc") + b"abc" + b"CRDO"[:3])

    assert type(body) is bytes
    assert len(header(FrameKind.MESSAGE, b"abc")) == HEADER_BYTES


def test_a_long_body_is_not_copied() -> None:
    data = header(FrameKind.MESSAGE, bytes(VIEW_BYTES)) + bytes(VIEW_BYTES)
    (body,) = frames(Framer(VIEW_BYTES), data)

    assert isinstance(body, memoryview)
    assert body.obj is data


@pytest.mark.parametrize("at", [HEADER_BYTES - 1, HEADER_BYTES, HEADER_BYTES + 9])
def test_a_frame_that_was_changed_on_its_way_is_refused(at: int) -> None:
    body = b"0123456789"
    changed = bytearray(header(FrameKind.MESSAGE, body) + body)
    changed[at] ^= 1

    with pytest.raises(RemoteProtocolError, match="checksum"):
        frames(Framer(100), bytes(changed))


def test_a_frame_of_one_kind_is_none_of_another() -> None:
    changed = bytearray(header(FrameKind.MESSAGE, b"") + b"")
    changed[6] = FrameKind.CONFIRM

    with pytest.raises(RemoteProtocolError, match="checksum"):
        frames(Framer(100), bytes(changed))


@pytest.mark.parametrize(
    ("said", "text"),
    [
        (b"\x16\x03\x01\x02\x00", "TLS is spoken to a plain port"),
        (b"\x15\x03\x03\x00\x02\x02\x28", "a TLS port answers"),
        (b"GET / HTTP/1.1\r\n\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"\0", "not a frame"),
    ],
)
def test_what_is_no_frame_is_known_by_its_first_bytes(said: bytes, text: str) -> None:
    with pytest.raises(RemoteProtocolError, match=text):
        frames(Framer(100), said)


def test_what_comes_byte_by_byte_costs_little_more_than_its_bytes() -> None:
    n_bytes = 200_000
    body = bytes(n_bytes)
    framer = Framer(n_bytes)
    stream = header(FrameKind.MESSAGE, body) + body
    tracemalloc.start()
    for at in range(len(stream) - 1):
        framer.feed(stream[at : at + 1], lambda *_: True)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert held < 2 * n_bytes
    assert frames(framer, stream[-1:]) == [body]
