"""What only sockets do: handshakes that cross or stall, hostile bytes, slow readers, certificates."""

from __future__ import annotations

import socket
import sys
import tempfile
from collections.abc import Iterator

import pytest

from crescando.errors import CredentialsError
from crescando.transport import connection as connections
from crescando.transport.credentials import FileCredentials
from crescando.transport.framing import FrameKind, header
from crescando.transport.handshake import PROTOCOL, Hello, SocketLimits, encode_word
from crescando.types import ProcessId
from tests.transport.socket_worlds import SocketWorld, tcp, tls
from tests.transport.witness import A, B, Witness, pair

LIMITS = SocketLimits(handshake_bytes_max=200, handshake_s=0.05, queue_bytes_max=100_000)


@pytest.fixture
def world() -> Iterator[SocketWorld]:
    world = SocketWorld(("127.0.0.1", 0), limits=LIMITS)
    yield world
    world.close()


def stranger(world: SocketWorld) -> socket.socket:
    """Give a connection of somebody who speaks for himself."""
    assert isinstance(world.address, tuple)
    raw = socket.create_connection(world.address)
    raw.settimeout(2.0)
    world.settle()
    return raw


def frame(kind: FrameKind, body: bytes = b"") -> bytes:
    return header(kind, body) + body


def announced(kind: FrameKind, n_bytes: int) -> bytes:
    """Give the header of a frame that is said to have a body of some length."""
    begin = header(kind, b"")
    return begin[:8] + n_bytes.to_bytes(4, "little") + begin[12:]


def hello(sender: ProcessId, receiver: ProcessId, attempt: int = 1) -> bytes:
    return frame(FrameKind.HELLO, encode_word(Hello(PROTOCOL, "crescando", sender, receiver, attempt)))


def is_closed(raw: socket.socket) -> bool:
    """Say whether the other side has ended the connection, reading what it said before."""
    try:
        while raw.recv(4096):
            pass
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize(
    "said",
    [
        b"GET / HTTP/1.1\r\n\r\n",
        frame(FrameKind.MESSAGE, b"too early"),
        frame(FrameKind.CONFIRM),
        frame(FrameKind.WELCOME),
        frame(FrameKind.REFUSE, b"you?"),
        frame(FrameKind.HELLO, b"\xc1 malformed"),
        frame(FrameKind.HELLO, b"x" * 201),
        announced(FrameKind.HELLO, 2 << 30),
        hello(A, B) + hello(A, B),
        hello(A, B) + frame(FrameKind.MESSAGE, b"unconfirmed"),
    ],
)
def test_whoever_breaks_the_handshake_is_cut_off(world: SocketWorld, said: bytes) -> None:
    b = Witness(world, B)
    with stranger(world) as raw:
        raw.sendall(said)
        world.settle()

        assert is_closed(raw)
    assert b.log == []


def test_whoever_says_nothing_is_cut_off_in_time(world: SocketWorld) -> None:
    Witness(world, B)
    with stranger(world) as raw:
        world.loop.run_until_complete(_pass(world, 2 * LIMITS.handshake_s))

        assert is_closed(raw)


async def _pass(world: SocketWorld, seconds: float) -> None:
    """Let a time limit run out on the loop's own clock."""
    world.transport.flush()
    done = world.loop.create_future()
    world.loop.call_later(seconds, done.set_result, None)
    await done


def test_a_dial_that_nobody_answers_is_refused_in_time(world: SocketWorld) -> None:
    a = Witness(world, A)
    with socket.create_server(("127.0.0.1", 0)) as mute:
        world.address = mute.getsockname()
        world.transport.connect(A, B)
        world.loop.run_until_complete(_pass(world, 2 * LIMITS.handshake_s))
    world.settle()

    assert a.log == [("refused", B)]


def test_a_peer_that_cannot_be_found_is_refused(world: SocketWorld) -> None:
    a = Witness(world, A)
    world.sockets._locate = lambda peer: None

    world.transport.connect(A, B)
    world.settle()

    assert a.log == [("refused", B)]


def test_a_peer_that_does_not_listen_is_refused(world: SocketWorld) -> None:
    a = Witness(world, A)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        world.address = gone.getsockname()

    world.transport.connect(A, B)
    world.settle()

    assert a.log == [("refused", B)]


def test_a_malformed_message_ends_its_session_at_both_ends(world: SocketWorld) -> None:
    a, b = pair(world)
    world.sockets._encode = lambda message: b"\xc1"

    a.channel.send("x")
    world.settle()

    assert b.messages() == []
    assert (a.told("closed"), b.told("closed")) == ([B], [A])


def test_somebody_who_dials_anew_has_lost_the_old_session(world: SocketWorld) -> None:
    b = Witness(world, B)
    with stranger(world) as first, stranger(world) as second:
        first.sendall(hello(A, B, 1) + frame(FrameKind.CONFIRM))
        world.settle()
        second.sendall(hello(A, B, 2))
        world.settle()
        assert b.log == [("opened", A)]
        second.sendall(frame(FrameKind.CONFIRM) + frame(FrameKind.MESSAGE, b"\x07"))
        world.settle()

        assert is_closed(first)
    assert b.told("opened") == [A, A]
    assert b.told("closed") == [A]
    assert b.messages() == [7]


def test_a_dial_that_was_given_up_does_not_end_a_session(world: SocketWorld) -> None:
    a, b = pair(world)
    with stranger(world) as raw:
        raw.sendall(hello(A, B, 99))
        world.settle()
    world.settle()
    a.channel.send("still here")
    world.settle()

    assert b.log == [("opened", A), ("received", A, "still here")]


def test_a_late_older_dial_is_turned_down(world: SocketWorld) -> None:
    b = Witness(world, B)
    with stranger(world) as newer, stranger(world) as older:
        newer.sendall(hello(A, B, 2))
        world.settle()
        older.sendall(hello(A, B, 1) + frame(FrameKind.CONFIRM))
        world.settle()
        assert is_closed(older)
        assert b.log == []
        newer.sendall(frame(FrameKind.CONFIRM))
        world.settle()

    assert b.told("opened") == [A]


def test_a_reader_that_does_not_keep_up_has_its_session_closed(world: SocketWorld) -> None:
    b = Witness(world, B)
    with stranger(world) as raw:
        raw.sendall(hello(A, B) + frame(FrameKind.CONFIRM))
        world.settle()
        for _ in range(200):
            b.channel.send("x" * 100_000)
            world.loop.run_until_complete(_pass(world, 0.0))
        world.settle()

    assert b.told("closed") == [A]


def test_a_message_longer_than_the_bound_gets_through_and_what_is_behind_it(world: SocketWorld) -> None:
    a, b = pair(world)
    long = "x" * (200 * LIMITS.queue_bytes_max)
    sent = [1, long, *range(100), long, 2]

    for message in sent[:-2]:
        a.channel.send(message)
        world.transport.flush()
    while len(b.messages()) < len(sent) - 2 and not b.told("closed"):
        world.settle()
    for message in sent[-2:]:
        a.channel.send(message)
        world.transport.flush()
    while len(b.messages()) < len(sent) and not b.told("closed"):
        world.settle()

    assert b.messages() == sent


def test_behind_a_long_message_the_bound_holds_as_before(world: SocketWorld) -> None:
    b = Witness(world, B)
    with stranger(world) as raw:
        raw.sendall(hello(A, B) + frame(FrameKind.CONFIRM))
        world.settle()
        connection = b.channel._connection  # type: ignore[attr-defined]
        b.channel.send("x" * (200 * LIMITS.queue_bytes_max))
        world.transport.flush()
        n_sent = 0
        while not connection._is_ended:
            b.channel.send("y" * 1000)
            world.transport.flush()
            n_sent += 1
            assert n_sent <= LIMITS.queue_bytes_max
        world.settle()

    # What the system's own buffers took of the long one is room for others.
    assert n_sent * 1000 >= LIMITS.queue_bytes_max
    assert connection._n_queued == 0
    assert b.told("closed") == [A]


def test_a_message_that_no_peer_takes_ends_the_session_and_says_so(
    world: SocketWorld, caplog: pytest.LogCaptureFixture
) -> None:
    a, b = pair(world)
    a.channel._connection._sent_max = 1000  # type: ignore[attr-defined]

    with caplog.at_level("INFO", "crescando.transport.sockets"):
        a.channel.send("x" * 1001)
        world.settle()

    assert b.messages() == []
    assert (a.told("closed"), b.told("closed")) == ([B], [A])
    assert "a frame of 1004 bytes; peers take at most 1000" in caplog.text


def test_a_frame_before_the_session_is_short_whatever_follows(world: SocketWorld) -> None:
    b = Witness(world, B)
    with stranger(world) as raw:
        raw.sendall(hello(A, B) + announced(FrameKind.CONFIRM, LIMITS.handshake_bytes_max + 1))
        world.settle()

        assert is_closed(raw)
    assert b.log == []


def test_what_was_sent_is_not_remembered_beyond_its_turn(world: SocketWorld) -> None:
    a, _ = pair(world)
    message = ["large"]
    n_known = sys.getrefcount(message)

    a.channel.send(message)
    world.transport.flush()

    assert sys.getrefcount(message) == n_known


def test_a_turn_leaves_nothing_to_do_in_the_loop(world: SocketWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair(world)
    later = []
    monkeypatch.setattr(world.loop, "call_soon", lambda *args, **_: later.append(args))

    a.channel.send("at once")
    world.transport.flush()

    monkeypatch.undo()
    assert later == []
    world.settle()
    assert b.messages() == ["at once"]


def test_frames_of_one_turn_leave_in_one_write(world: SocketWorld, monkeypatch: pytest.MonkeyPatch) -> None:
    a, b = pair(world)
    writes = []
    connection = a.channel._connection  # type: ignore[attr-defined]
    transport = connection._transport

    class Counting:
        def write(self, data: bytes) -> None:
            writes.append(data)
            transport.write(data)

        def __getattr__(self, name: str) -> object:
            return getattr(transport, name)

    monkeypatch.setattr(connection, "_transport", Counting())
    for n in range(50):
        a.channel.send(n)
    world.settle()

    assert len(writes) == 1
    assert b.messages() == list(range(50))


def test_what_goes_to_several_peers_is_encoded_once() -> None:
    world = tcp()
    encoded = []
    world.sockets._encode = lambda message: encoded.append(message) or b"\x01"
    a, b = pair(world)
    message = ["the same"]

    for channel in (a.channel, b.channel):
        channel.send(message)
    world.settle()

    assert encoded == [message]
    assert (a.messages(), b.messages()) == ([1], [1])
    world.close()


def test_long_messages_are_sealed_piece_by_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("cryptography")
    monkeypatch.setattr(connections, "SEAL_BYTES", 1000)
    world = tls()
    a, b = pair(world)
    sent = ["x" * n for n in (999, 1000, 1001, 250_000, 3)]

    for message in sent:
        a.channel.send(message)
        world.transport.flush()
    world.settle()

    assert b.messages() == sent
    world.close()


def test_a_process_needs_a_certificate_of_its_own_name() -> None:
    pytest.importorskip("cryptography")
    from crescando.certificates import Authority

    authority = Authority.create(tempfile.mkdtemp())
    world = SocketWorld(("127.0.0.1", 0), FileCredentials(authority.issue(f"{A.role}/{A.node}")))
    Witness(world, A)

    with pytest.raises(CredentialsError, match=r"names crescando://.*/client/a, not .*/client/b"):
        Witness(world, B)
    world.close()
