"""Hostile frames for a listening process, by the hundred thousand: ``python -m fuzz.frames``.

Whoever breaks the protocol may lose his connection, and nothing else may
happen: no exception that is not caught, no frame that takes long, no memory
that stays. Everything from the first byte of a connection to the decoded
message is the product's own; only the socket is missing.

Rules of the file: everything is drawn from one seed; a failure names the seed,
the number of the frame and its bytes.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from crescando import wire
from crescando.permits import PERMITS, ROLES, SENDERS
from crescando.transport.base import Channel, Endpoint
from crescando.transport.connection import Connection
from crescando.transport.framing import FrameKind, header
from crescando.transport.handshake import (
    PROTOCOL,
    Hello,
    Here,
    Refusal,
    SocketLimits,
    Welcome,
    encode_word,
)
from crescando.transport.link import Dial, Link
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId
from tests.transport.test_wire import ENCODED, MESSAGES

SLOW_S = 1.0
GROWTH_BYTES = 64 << 20
LISTENERS = tuple(ProcessId(role, "a", 1) for role in ROLES)

LIMITS = SocketLimits(message_bytes_max=1 << 20, client_bytes_max=1 << 20)


@dataclass(frozen=True, slots=True)
class Speaker:
    """A peer, whom it speaks to, and what it may say there."""

    sender: ProcessId
    receiver: ProcessId
    good: tuple[bytes, ...]


class Pipe(asyncio.Transport):
    """The near end of a connection whose far end throws everything away."""

    def __init__(self) -> None:
        super().__init__()
        self.n_written = 0
        self.is_closed = False

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return ("192.0.2.1", 1) if name == "peername" else default

    def write(self, data: bytes | bytearray | memoryview) -> None:
        self.n_written += len(data)

    def get_write_buffer_size(self) -> int:
        return 0

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self.is_closed = True

    abort = close


class Listener(Endpoint):
    """A process that only counts what reaches it."""

    def __init__(self) -> None:
        self.n_received = 0

    def opened(self, channel: Channel) -> None:
        """Nothing is said to strangers."""

    def received(self, channel: Channel, message: Any) -> None:
        self.n_received += 1

    def closed(self, channel: Channel) -> None:
        """Strangers come and go."""

    def refused(self, peer: ProcessId) -> None:
        """Nobody is dialled."""


def _without_right(sender: ProcessId, receiver: ProcessId, _: str) -> wire.Decode | None:
    """Let every message be looked at for what its sender may not ask for."""
    return wire.decoder_for(sender, receiver, "no right")


class Target:
    """A transport with a process of every role, and connections made of bytes."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        self.listener = Listener()
        self.transport = SocketTransport(
            self.loop, codec=(wire.encode, _without_right), locate=lambda peer: None, limits=LIMITS
        )
        for process in LISTENERS:
            self.transport.attach(process, self.listener)

    def connect(self) -> tuple[Connection, Pipe]:
        """Give a new connection of a stranger's."""
        connection, pipe = self.transport._accept(), Pipe()
        connection.connection_made(pipe)
        return connection, pipe

    def dial(self, speaker: Speaker) -> tuple[Connection, Pipe]:
        """Give a connection that a process here asked for, to somebody who will answer as he likes."""
        pair = speaker.receiver, speaker.sender
        link = Link(pair, 1)
        self.transport._dials[pair] = Dial(link, self.loop.call_later(60.0, lambda: None))
        connection, pipe = self.transport._connection(link), Pipe()
        connection.connection_made(pipe)
        return connection, pipe

    def say(self, connection: Connection, pipe: Pipe, data: bytes) -> None:
        """Let bytes arrive, and what follows from them happen."""
        if not pipe.is_closed:
            connection.data_received(data)
        if pipe.is_closed:
            connection.connection_lost(None)
            self.settle()

    def settle(self) -> None:
        """Let happen what was put off."""
        self.loop.call_soon(self.loop.stop)
        self.loop.run_forever()

    def close(self) -> None:
        self.transport.close()
        self.settle()
        self.loop.close()

    def feed(self, data: bytes) -> None:
        """Take one input of a fuzzer.

        The first byte says how far the connection has come, the second one
        whether the rest is a stream, or the body of one frame, whose checksum a
        fuzzer would hardly guess.
        """
        connection, pipe = self.connect()
        how, form, rest = data[:1] or b"\0", data[1:2] or b"\0", data[2:]
        kind = FrameKind.HELLO
        if how[0] % 2:
            sender, receiver = list(PERMITS)[how[0] // 2 % len(PERMITS)]
            self.say(connection, pipe, greeting(ProcessId(sender, "b", 1), ProcessId(receiver, "a", 1)))
            kind = FrameKind.MESSAGE
        self.say(connection, pipe, framed(kind, rest) if form[0] % 2 else rest)
        if not pipe.is_closed:
            pipe.close()
            connection.connection_lost(None)
        self.settle()


def seeds() -> list[bytes]:
    """Give inputs for `Target.feed` from which a fuzzer may start: every message, from a sender of it."""
    found = [b"\0\1" + encode_word(Hello(PROTOCOL, "crescando", LISTENERS[-1], LISTENERS[0], 1))]
    for message, data in zip(MESSAGES, ENCODED, strict=True):
        place = next(place for place, kinds in enumerate(PERMITS.values()) if type(message) in kinds)
        found.append(bytes((2 * place + 1, 1)) + data)
    return found


def framed(kind: FrameKind, body: bytes) -> bytes:
    """Give a frame."""
    return header(kind, body) + body


def greeting(sender: ProcessId, receiver: ProcessId) -> bytes:
    """Give what begins a session."""
    hello = encode_word(Hello(PROTOCOL, "crescando", sender, receiver, 1))
    return framed(FrameKind.HELLO, hello) + framed(FrameKind.CONFIRM, b"")


# What is sent.


def mutated(rng: random.Random, data: bytes) -> bytes:
    """Give some bytes with a few changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 2, 4, 16))):
        at = rng.randrange(len(changed) + 1)
        match rng.randrange(6):
            case 0 if at < len(changed):
                changed[at] = rng.randrange(256)
            case 1 if at < len(changed):
                changed[at] ^= 1 << rng.randrange(8)
            case 2:
                del changed[at : at + rng.randrange(1, 9)]
            case 3:
                changed[at:at] = rng.randbytes(rng.randrange(1, 9))
            case 4:
                changed[at:at] = rng.choice(HOSTILE)
            case _:
                other = rng.choice(ENCODED)
                begin = rng.randrange(len(other))
                changed[at:at] = other[begin : begin + rng.randrange(1, 40)]
    return bytes(changed)


HOSTILE = [
    b"\xdd\xff\xff\xff\xff",
    b"\xdf\xff\xff\xff\xff",
    b"\xc6\xff\xff\xff\xff",
    b"\xdb\xff\xff\xff\xff",
    b"\xc9\xff\xff\xff\xff\x01",
    b"\xc9\x7f\xff\xff\xff\x40",
    b"\xcf\xff\xff\xff\xff\xff\xff\xff\xff",
    b"\xd3\x80\x00\x00\x00\x00\x00\x00\x00",
    b"\xcb\x7f\xf8\x00\x00\x00\x00\x00\x00",
    b"\x91" * 40,
    b"\xc1",
    b"\xc0",
    b"\x80",
]


def speakers() -> list[Speaker]:
    """Give a peer of every pair of roles, and those whom messages name as their senders."""
    found = []
    for sender, receiver in PERMITS:
        stranger = ProcessId(sender, "b", 1)
        permitted = [
            (SENDERS[type(message)](message) if type(message) in SENDERS else None, data)
            for message, data in zip(MESSAGES, ENCODED, strict=True)
            if type(message) in PERMITS[sender, receiver]
        ]
        named = {process for process, _ in permitted if process is not None and process.role == sender}
        for process in {stranger, *named}:
            good = tuple(data for name, data in permitted if name in (None, process))
            if good:
                found.append(Speaker(process, ProcessId(receiver, "a", 1), good))
    return sorted(found, key=lambda speaker: (speaker.sender, speaker.receiver))


def message(rng: random.Random, speaker: Speaker) -> bytes:
    """Give a frame that says it is a message."""
    match rng.randrange(14):
        case 0:
            body = rng.choice(ENCODED)
        case 4 | 5 | 6 | 7 | 8 | 9:
            body = rng.choice(speaker.good)
        case 10 | 11:
            body = mutated(rng, rng.choice(speaker.good))
        case 1:
            body = rng.randbytes(rng.randrange(60))
        case 2:
            body = rng.choice((b"\x91", b"\x81\xa1a", b"\x92\xa5route")) * rng.choice((50, 2_000, 100_000))
        case 3:
            raw = msgspec.msgpack.decode(rng.choice(ENCODED))
            raw[rng.randrange(len(raw))] = rng.choice((None, -1, 1 << 63, [], {}, "x", b"\xff", 1.5, [[[]]]))
            body = msgspec.msgpack.encode(raw)
        case _:
            body = mutated(rng, rng.choice(ENCODED))
    return framed(FrameKind.MESSAGE, body)


def welcome_of(speaker: Speaker) -> bytes:
    """Give what the peer of a dial answers."""
    return encode_word(Welcome(PROTOCOL, "crescando", speaker.sender))


def word(rng: random.Random, speaker: Speaker) -> bytes:
    """Give a frame of a handshake, changed a little."""
    sender = ProcessId(rng.choice(ROLES), "b", rng.randrange(3))
    said = rng.choice(
        (
            encode_word(Hello(PROTOCOL, "crescando", sender, rng.choice(LISTENERS), rng.randrange(9))),
            welcome_of(speaker),
            encode_word(Refusal("no", rng.random() < 0.5, rng.random() < 0.5)),
            encode_word(Here(PROTOCOL, "crescando", LISTENERS)),
            b"",
        )
    )
    kind = rng.choice(list(FrameKind))
    return framed(kind, mutated(rng, said) if said and rng.random() < 0.7 else said)


def noise(rng: random.Random, speaker: Speaker) -> bytes:
    """Give what is no frame, or one that lies about itself."""
    match rng.randrange(6):
        case 0:
            return rng.randbytes(rng.randrange(1, 80))
        case 1:
            n_bytes = rng.choice((1 << 20, (1 << 20) + 1, 2 << 30, (1 << 32) - 1))
            begin = header(rng.choice(list(FrameKind)), b"")
            return begin[:8] + n_bytes.to_bytes(4, "little") + begin[12:]
        case 2:
            return rng.choice(
                (b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"SSH-2.0\r\n")
            )
        case 3:
            frame = bytearray(message(rng, speaker))
            frame[rng.randrange(16)] ^= 1 << rng.randrange(8)
            return bytes(frame)
        case 4:
            return message(rng, speaker)[: -rng.randrange(1, 20)]
        case _:
            return b"\x80\x05cos\nsystem\n(S'true'\ntR." + rng.randbytes(4)


@dataclass(frozen=True, slots=True)
class Report:
    """What became of the frames."""

    n_frames: int
    n_connections: int
    n_received: int
    elapsed_s: float
    slowest_s: float
    grown_bytes: int


class HostileFrameError(Exception):
    """A frame did what no frame may do."""


def bombard(n_frames: int, seed: int, tick: Callable[[int], None] = lambda _: None) -> Report:
    """Send so many frames.

    Raises
    ------
    HostileFrameError
        If one took long, or raised what was not caught; names the seed and the frame.
    """
    rng, target = random.Random(seed), Target()
    began_s, before = time.perf_counter(), resident_bytes()
    n_connections, slowest_s = 0, 0.0
    known = speakers()
    speaker = known[0]
    connection, pipe = target.connect()
    pipe.close()
    for number in range(n_frames):
        draw = rng.random()
        if pipe.is_closed:
            n_connections += 1
            speaker = rng.choice(known)
            if draw < 0.6:
                connection, pipe = target.connect()
                target.say(connection, pipe, greeting(speaker.sender, speaker.receiver))
            elif draw < 0.7:
                connection, pipe = target.connect()
            else:
                connection, pipe = target.dial(speaker)
                if draw < 0.9:
                    target.say(connection, pipe, framed(FrameKind.WELCOME, welcome_of(speaker)))
        kind = message if draw < 0.8 else word if draw < 0.9 else noise
        frame = kind(rng, speaker)
        cut = rng.randrange(len(frame)) if frame and rng.random() < 0.3 else len(frame)
        sent_s = time.perf_counter()
        try:
            target.say(connection, pipe, frame[:cut])
            if cut < len(frame):
                target.say(connection, pipe, frame[cut:])
        except Exception as error:  # Whatever it is, it was not caught where it should be.
            raise HostileFrameError(f"seed {seed}, frame {number}: {error!r}: {frame[:200].hex()}") from error
        took_s = time.perf_counter() - sent_s
        slowest_s = max(slowest_s, took_s)
        if took_s > SLOW_S:
            raise HostileFrameError(f"seed {seed}, frame {number} took {took_s:.2f} s: {frame[:200].hex()}")
        if rng.random() < 0.1 and not pipe.is_closed:
            pipe.close()
            target.say(connection, pipe, b"")
        tick(number)
    target.close()
    return Report(
        n_frames=n_frames,
        n_connections=n_connections,
        n_received=target.listener.n_received,
        elapsed_s=time.perf_counter() - began_s,
        slowest_s=slowest_s,
        grown_bytes=resident_bytes() - before,
    )


def resident_bytes() -> int:
    """Give how much memory this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * 4096


def main() -> int:
    """Bombard a transport, and say how it went."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=200_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--seconds", type=float, default=60.0, help="the most it may take")
    parsed = parser.parse_args()
    logging.disable(logging.CRITICAL)
    try:
        bombard(5_000, parsed.seed + 1)  # What is kept once for all is not what stays of a frame.
        report = bombard(parsed.frames, parsed.seed)
    except HostileFrameError as failure:
        print(failure)
        return 1
    print(
        f"{report.n_frames:,} frames on {report.n_connections:,} connections in {report.elapsed_s:.1f} s; "
        f"{report.n_received:,} messages came through; the slowest frame took "
        f"{report.slowest_s * 1e3:.1f} ms; memory grew by {report.grown_bytes / 2**20:.1f} MiB"
    )
    is_good = report.grown_bytes <= GROWTH_BYTES and report.elapsed_s <= parsed.seconds
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
