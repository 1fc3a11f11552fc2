"""Strangers at the door: floods, drips, giants and noise cost them their connection, and nobody else."""

from __future__ import annotations

import asyncio
import logging
import marshal
import mmap
import pickle
import socket
import sys
import time
import tracemalloc
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

pytest.importorskip("cryptography")

from crescando import wire
from crescando.errors import RemoteProtocolError
from crescando.permits import PERMITS
from crescando.transport import connection as connections
from crescando.transport.credentials import FileCredentials
from crescando.transport.framing import Body, FrameKind, Framer, header
from crescando.transport.gate import Gate, Places
from crescando.transport.handshake import (
    PROTOCOL,
    REASON_CHARACTERS_MAX,
    Address,
    Hello,
    Refusal,
    SocketLimits,
    encode_word,
)
from crescando.types import ProcessId
from fuzz.frames import (
    GROWTH_BYTES,
    HostileFrameError,
    Target,
    bombard,
    greeting,
    seeds,
    speakers,
    welcome_of,
)
from tests.transport.forgery import Forger
from tests.transport.test_peers import OTHER, ROUTER, A, Site, until

N_IDLE = 500


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(tmp_path_factory.mktemp("hostile") / "certs")


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


def router(forger: Forger, loop: asyncio.AbstractEventLoop, limits: SocketLimits) -> tuple[Site, Address]:
    site = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")), limits=limits)
    return site, site.listen()


def client(forger: Forger, loop: asyncio.AbstractEventLoop, address: Address, n: int = 1) -> Site:
    process = ProcessId("client", "a", n)
    # One file for all of them: with a new one the sessions of the others would begin anew in a while.
    site = Site(loop, process, FileCredentials(forger.authority.ensure("client/a")))
    site.address = address
    return site


def crowd(address: Address, n: int, stack: ExitStack) -> list[socket.socket]:
    assert isinstance(address, tuple)
    return [stack.enter_context(socket.create_connection(address, timeout=30)) for _ in range(n)]


@pytest.mark.parametrize("said", [b"", b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"])
def test_idle_half_open_connections_keep_nobody_out(
    said: bytes, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    """Idle ones are held, and ended in their time; sessions go on, and begin, meanwhile (K22)."""
    limits = SocketLimits(handshake_s=60.0)
    near, address = router(forger, loop, limits)
    early, late = client(forger, loop, address), client(forger, loop, address, 2)
    early.dial(ROUTER)
    with ExitStack() as stack:
        for idle in crowd(address, N_IDLE, stack):
            idle.sendall(said)
        until(loop, lambda: near.transport.n_half_open >= N_IDLE)
        late.dial(ROUTER)
        early.witness.channel.send(hello_again())
        early.transport.flush()
        until(loop, lambda: bool(near.witness.messages()))

        assert late.witness.log == [("opened", ROUTER)]
        assert early.witness.log == [("opened", ROUTER)]
        assert near.transport.n_half_open == N_IDLE
    until(loop, lambda: near.transport.n_half_open == 0)
    for site in (near, early, late):
        site.transport.close()


def hello_again() -> object:
    from crescando.routing.ecast.messages import Hello as Greeting

    return Greeting()


def test_above_the_bound_the_oldest_makes_room(forger: Forger, loop: asyncio.AbstractEventLoop) -> None:
    limits = SocketLimits(handshake_s=60.0, half_open_of_address_max=50)
    near, address = router(forger, loop, limits)
    good = client(forger, loop, address)
    with ExitStack() as stack:
        crowd(address, N_IDLE, stack)
        until(loop, lambda: near.transport.audit.n_refused >= N_IDLE - 50)
        assert near.transport.n_half_open == 50
        good.dial(ROUTER)

        assert good.witness.log == [("opened", ROUTER)]
        assert near.transport.n_half_open <= 50
    near.transport.close()
    good.transport.close()


def test_whoever_only_looks_whether_somebody_listens_is_not_told_of(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    near, address = router(forger, loop, SocketLimits(handshake_s=60.0))
    with ExitStack() as stack:
        crowd(address, 3, stack)
        until(loop, lambda: near.transport.n_half_open == 3)
    until(loop, lambda: near.transport.n_half_open == 0)

    assert near.transport.audit.n_refused == 0
    assert caplog.text == ""
    near.transport.close()


def test_whoever_drips_is_cut_off_in_time(forger: Forger, loop: asyncio.AbstractEventLoop) -> None:
    """A byte now and then does not put the end off."""
    near, address = router(forger, loop, SocketLimits(handshake_s=0.3))
    with ExitStack() as stack:
        (drip,) = crowd(address, 1, stack)
        drip.setblocking(False)

        async def trickle() -> None:
            async with asyncio.timeout(30):
                while near.transport.audit.n_refused == 0:
                    try:
                        drip.send(b"\x16")
                    except OSError:
                        return
                    await asyncio.sleep(0.02)

        loop.run_until_complete(trickle())
        until(loop, lambda: near.transport.n_half_open == 0)
    assert near.witness.log == []
    near.transport.close()


def test_whoever_says_much_and_not_who_it_is_is_cut_off(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near, address = router(forger, loop, SocketLimits(handshake_s=60.0))
    with ExitStack() as stack:
        (raw,) = crowd(address, 1, stack)
        raw.setblocking(False)
        # A handshake message of 16 MiB, record by record.
        record = b"\x16\x03\x01\x40\x00" + b"\x01\xff\xff\xff" + bytes(16380)

        async def pour() -> None:
            async with asyncio.timeout(30):
                while near.transport.audit.n_refused == 0:
                    try:
                        await loop.sock_sendall(raw, record)
                    except OSError:
                        return

        loop.run_until_complete(pour())
        until(loop, lambda: near.transport.audit.n_refused == 1)
    assert near.witness.log == []
    near.transport.close()


def announced(n_bytes: int, kind: FrameKind = FrameKind.MESSAGE) -> bytes:
    begin = header(kind, b"")
    return begin[:8] + n_bytes.to_bytes(4, "little") + begin[12:]


def test_of_a_client_no_longer_messages_are_taken_than_it_needs(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    """They are refused before they are kept, and the client is told; routers may say more."""
    caplog.set_level(logging.INFO)
    near, address = router(forger, loop, SocketLimits(client_bytes_max=1 << 20))
    far = client(forger, loop, address)
    fellow = Site(loop, OTHER, FileCredentials(forger.authority.issue("router/r1")))
    fellow.address = address
    for site in (far, fellow):
        site.dial(ROUTER)

    for site, n_bytes in ((far, 0), (fellow, 2 << 20)):
        (link,) = site.transport._links.values()
        stream = link.connection._tls
        assert stream is not None
        link.connection._transport.write(stream.seal(announced(2 << 20) + bytes(n_bytes)))
    until(loop, lambda: far.witness.told("closed") == [ROUTER])

    error = far.transport.error_of(ROUTER)
    assert error is not None
    assert "a frame of 2097152 bytes; at most 1048576 are taken of this peer" in error.reason
    assert "at most 1048576 are taken of this peer" in caplog.text
    # What the router announced came to its end, and was looked at: it was only no good.
    until(loop, lambda: fellow.witness.told("closed") == [ROUTER])
    error = fellow.transport.error_of(ROUTER)
    assert error is not None
    assert "checksum" in error.reason
    for site in (near, far, fellow):
        site.transport.close()


@pytest.mark.parametrize("kind", [FrameKind.HELLO, FrameKind.WHO, FrameKind.MESSAGE])
@pytest.mark.parametrize("in_session", [False, True])
def test_an_announced_giant_is_refused_before_anything_is_kept(kind: FrameKind, in_session: bool) -> None:
    target = Target()
    connection, pipe = target.connect()
    if in_session:
        target.say(connection, pipe, greeting(ProcessId("client", "b", 1), ProcessId("router", "a", 1)))
    tracemalloc.start()
    began_s = time.perf_counter()
    for _ in range(100):
        target.say(connection, pipe, announced(2 << 30, kind) + bytes(1000))
    took_s, (_, peak) = time.perf_counter() - began_s, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    target.close()

    assert pipe.is_closed
    assert peak < 1 << 20
    assert took_s < 5.0


def test_what_is_announced_and_allowed_takes_memory_as_it_comes() -> None:
    framer = Framer(512 << 20)
    tracemalloc.start()
    framer.feed(announced(512 << 20) + bytes(1000), lambda *_: True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert peak < 1 << 20


# Noise.


def test_fuzzed_frames_do_no_harm() -> None:
    report = bombard(6_000, seed=7)

    assert report.n_frames == 6_000
    assert report.n_received > 500
    assert report.n_connections > 1_000
    assert report.grown_bytes < GROWTH_BYTES


def test_an_exception_that_nobody_catches_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = wire._decode

    def careless(decoder: object, data: bytes | memoryview) -> object:
        if len(data) == 7:
            raise KeyError("planted")
        return decode(decoder, data)  # type: ignore[arg-type]

    monkeypatch.setattr(wire, "_decode", careless)

    with pytest.raises(HostileFrameError, match=r"seed 7, frame \d+: KeyError"):
        bombard(6_000, seed=7)


def test_a_frame_that_takes_long_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    decode = wire._decode
    clock = [0.0]

    def slow(decoder: object, data: bytes | memoryview) -> object:
        clock[0] += 1.5 if len(data) > 50_000 else 0.0
        return decode(decoder, data)  # type: ignore[arg-type]

    monkeypatch.setattr(wire, "_decode", slow)
    monkeypatch.setattr(time, "perf_counter", lambda: clock[0])

    with pytest.raises(HostileFrameError, match=r"took 1\.50 s"):
        bombard(6_000, seed=7)


def test_memory_that_stays_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[mmap.mmap] = []

    def keep(framer: connections.Framer, data: bytes, take: Callable[[Any], Any]) -> None:
        # Straight from the system: the heap of a process that has run many tests has room for much.
        kept.append(mmap.mmap(-1, 1 << 19))
        kept[-1].write(b"\1" * (1 << 19))

    monkeypatch.setattr(connections.Framer, "feed", keep)

    assert bombard(2_000, seed=7).grown_bytes > GROWTH_BYTES


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=200))
def test_any_input_of_a_connection_is_taken_or_refused(data: bytes) -> None:
    target = Target()
    target.feed(data)
    n_left = len(target.transport._links)
    target.close()

    assert n_left == 0


@settings(max_examples=200, deadline=None)
@given(st.lists(st.binary(max_size=40), max_size=8), st.data())
def test_what_a_framer_takes_does_not_depend_on_how_it_comes(
    pieces: list[bytes], data: st.DataObject
) -> None:
    """Frames, and noise behind them: however they are cut, the same ones are taken, and the same refused."""
    stream = b"".join(header(FrameKind.MESSAGE, body) + body for body in pieces)
    stream += data.draw(st.binary(max_size=30))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=6)))
    parts = [stream[a:b] for a, b in zip([0, *cuts], [*cuts, len(stream)], strict=True)]

    assert taken([part for part in parts if part]) == taken([stream])


def test_a_stranger_is_known_by_its_first_bytes_however_they_come() -> None:
    framer = Framer(1 << 10)
    framer.feed(b"C", lambda kind, body: True)

    with pytest.raises(RemoteProtocolError):
        framer.feed(b"\x00", lambda kind, body: True)


def taken(parts: list[bytes]) -> tuple[list[bytes], bool]:
    bodies: list[bytes] = []

    def take(_: FrameKind, body: Body) -> bool:
        bodies.append(bytes(body))
        return True

    framer = Framer(100)
    try:
        for part in parts:
            framer.feed(part, take)
    except RemoteProtocolError:
        return bodies, True
    return bodies, False


def test_every_seed_of_a_fuzzer_reaches_a_process() -> None:
    target = Target()
    for seed in seeds()[1:]:
        target.feed(seed)
    n_received = target.listener.n_received
    target.close()

    # Those that name another process as their sender do not.
    assert n_received > len(seeds()) / 2


def test_what_carries_code_runs_nowhere() -> None:
    """Pickles and the like cause no import, no compilation and no call of the system (K28)."""
    events: list[str] = []
    is_watching = False

    def watch(event: str, _: object) -> None:
        if is_watching and event.split(".")[0] in {"import", "exec", "compile", "os", "pickle", "subprocess"}:
            events.append(event)

    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, ("__import__('os').system('true')",)

    bodies = [pickle.dumps(Evil(), protocol) for protocol in range(6)] + [
        marshal.dumps(compile("1", "", "eval"))
    ]
    target = Target()
    sys.addaudithook(watch)
    is_watching = True
    for how in range(2 * len(PERMITS)):
        for body in bodies:
            target.feed(bytes((how, 0)) + body)
            target.feed(bytes((how, 1)) + body)
            target.feed(bytes((how, 1)) + b"\xc7" + bytes((len(body) % 256, 1)) + body)
    is_watching = False
    n_received = target.listener.n_received
    target.close()

    assert events == []
    assert n_received == 0
    pickle.loads(bodies[0])  # It would have.


# The gate.


def test_the_gate_gives_up_the_oldest_of_the_largest_crowd() -> None:
    given_up: list[int] = []
    gate: Gate[int] = Gate(5, 3, given_up.append)

    for number, address in enumerate(("x", "y", "x", "x", "x", "z", "z")):
        gate.enter(number, address)

    assert given_up == [0, 2]
    assert len(gate) == 5
    for number in range(7):
        gate.leave(number)
        gate.leave(number)
    assert len(gate) == 0
    assert gate._by_address == {}


def test_places_are_counted_by_certificate_and_for_clients_in_all() -> None:
    limits = SocketLimits(sessions_of_certificate_max=2, client_sessions_max=5)
    places: Places[int] = Places(limits, n_files=1 << 20)
    for number, holder in enumerate("aabbc"):
        assert places.fault_of(holder, holder, is_client=True) == ""
        places.enter(number, holder, is_client=True)

    assert "2 sessions with the certificate of client/a are here" in places.fault_of(
        "a", "client/a", is_client=True
    )
    assert "5 sessions of clients are here" in places.fault_of("d", "client/d", is_client=True)
    assert places.fault_of("r", "router/r", is_client=False) == ""
    places.enter(9, "r", is_client=False)
    places.enter(10, "r", is_client=False)
    assert "certificate of router/r" in places.fault_of("r", "router/r", is_client=False)
    places.leave(0)
    places.leave(0)
    assert places.fault_of("a", "client/a", is_client=True) == ""
    for number in range(11):
        places.leave(number)
    assert (len(places), places._n_clients, dict(places._by_holder)) == (0, 0, {})


def test_few_files_leave_places_for_the_cluster_and_for_other_programs() -> None:
    places: Places[int] = Places(SocketLimits(), n_files=64)
    n = 0
    while not places.fault_of("a", "client/a", is_client=True):
        places.enter(n, "a", is_client=True)
        n += 1
    assert n == 16
    while not places.fault_of(n, "client/b", is_client=True):
        places.enter(n, n, is_client=True)
        n += 1
    assert n == 32
    refusal = places.fault_of("c", "client/c", is_client=True)
    assert "64 files" in refusal
    assert len(refusal) <= REASON_CHARACTERS_MAX
    assert places.fault_of("s", "storage/s", is_client=False) == ""


def test_one_session_too_many_is_refused_and_the_others_go_on(
    forger: Forger, loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
) -> None:
    near, address = router(forger, loop, SocketLimits(sessions_of_certificate_max=3))
    first = [client(forger, loop, address, n) for n in range(1, 4)]
    late = client(forger, loop, address, 4)
    fellow = Site(loop, OTHER, FileCredentials(forger.authority.issue("router/r1")))
    stranger = Site(loop, ProcessId("client", "b", 1), FileCredentials(forger.authority.issue("client/b")))
    fellow.address = stranger.address = address
    for site in first:
        site.dial(ROUTER)
    late.dial(ROUTER)
    error = late.transport.error_of(ROUTER)

    assert error is not None
    assert "3 sessions with the certificate of client/a are here" in error.reason
    assert "give each program a certificate of its own" in error.reason
    assert not error.is_permanent
    assert late.witness.log == [("refused", ROUTER)]
    assert "3 sessions with the certificate of client/a are here" in caplog.text
    for site in (fellow, stranger):
        site.dial(ROUTER)
        assert site.witness.log == [("opened", ROUTER)]
    for site in first:
        site.witness.channel.send(hello_again())
        site.transport.flush()
    until(loop, lambda: len(near.witness.messages()) == 3)
    assert [site.witness.log for site in first] == [[("opened", ROUTER)]] * 3

    # One whose session is lost, and still counted here, is let in again: it has a place.
    for link in first[0].transport._links.values():
        link.channel = None
    first[0].transport._channels[first[0].process].clear()
    first[0].dial(ROUTER)
    assert first[0].witness.told("refused") == []
    first[1].transport.close()
    until(loop, lambda: first[1].process in near.witness.told("closed"))
    until(loop, lambda: len(near.transport._places) == 4)
    late.dial(ROUTER)

    assert late.witness.told("opened") == [ROUTER]
    for site in (near, late, fellow, stranger, *first):
        site.transport.close()
    until(loop, lambda: len(near.transport._places) == 0)


@pytest.mark.parametrize("is_crossed", [False, True])
def test_a_refusal_within_a_session_ends_it_and_nothing_else(
    is_crossed: bool, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near, address = router(forger, loop, SocketLimits())
    far = client(forger, loop, address)
    far.dial(ROUTER)
    until(loop, lambda: near.witness.told("opened") == [far.process])
    (link,) = near.transport._links.values()
    near.transport._turn_down(link, Refusal("enough of that", is_crossed=is_crossed))
    until(loop, lambda: far.witness.told("closed") == [ROUTER])

    error = far.transport.error_of(ROUTER)
    assert error is not None
    assert error.reason == "the peer refuses: enough of that"
    far.dial(ROUTER)
    assert far.witness.told("opened") == [ROUTER, ROUTER]
    for site in (near, far):
        site.transport.close()


def test_who_is_dialled_by_a_crowd_lets_everybody_in_at_last(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    """More good peers at once than may be half-open: whoever had to make room tries again."""
    limits = SocketLimits(handshake_s=60.0, half_open_of_address_max=4)
    near, address = router(forger, loop, limits)
    sites = [client(forger, loop, address, n) for n in range(1, 25)]

    async def all_in() -> None:
        async with asyncio.timeout(60):
            while len(set(near.witness.told("opened"))) < len(sites):
                for site in sites:
                    site.transport.connect(site.process, ROUTER)
                await asyncio.sleep(0.01)

    loop.run_until_complete(all_in())
    assert set(near.witness.told("opened")) == {site.process for site in sites}
    for site in (near, *sites):
        site.transport.close()


def test_a_greeting_that_is_nested_deeply_is_refused() -> None:
    target = Target()
    connection, pipe = target.connect()
    body = b"\x91" * 4000
    target.say(connection, pipe, header(FrameKind.HELLO, body) + body)
    target.close()

    assert pipe.is_closed


def test_whoever_is_silent_in_a_session_is_asked_and_then_given_up(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    limits = SocketLimits(idle_s=0.6)
    near, address = router(forger, loop, limits)
    good, mute = client(forger, loop, address), client(forger, loop, address, 2)
    good.dial(ROUTER)
    mute.dial(ROUTER)
    for link in mute.transport._links.values():
        # It hears the question, and says nothing.
        link.connection.send = lambda kind, body: None  # type: ignore[method-assign]

    until(loop, lambda: bool(near.witness.told("closed")))
    asked = [link.connection for link in good.transport._links.values()]

    assert near.witness.told("closed") == [mute.process]
    assert good.witness.log == [("opened", ROUTER)]
    assert len(asked) == 1
    for site in (near, good, mute):
        site.transport.close()


def test_hello_bytes_are_those_of_a_word() -> None:
    """The greeting that the fuzzers send is one that is taken."""
    target = Target()
    connection, pipe = target.connect()
    target.say(connection, pipe, greeting(A, ProcessId("router", "a", 1)))

    assert not pipe.is_closed
    assert target.transport._links[connection].channel is not None
    assert encode_word(Hello(PROTOCOL, "crescando", A, ROUTER, 1))
    target.close()


def test_whoever_did_not_run_for_long_gives_nobody_up_for_that(
    forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    """What has come meanwhile waits unread, and the look that is late must not be the judge of it."""
    limits = SocketLimits(idle_s=0.3)
    near, address = router(forger, loop, limits)
    good = client(forger, loop, address)
    good.dial(ROUTER)
    until(loop, lambda: bool(near.witness.log))
    (link,) = [link for link in near.transport._links.values() if link.channel is not None]

    for _ in range(3):
        now_s = loop.time()
        near.transport._tending.look(now_s - 10.0)
        link.connection.is_heard = False
        link.heard_s = now_s - 10.0
        near.transport._tending.look(now_s - 10.0)

    assert near.witness.log == [("opened", good.process)]
    link.heard_s = loop.time() - 10.0
    near.transport._tending.look(loop.time())
    until(loop, lambda: bool(near.witness.told("closed")))
    for site in (near, good):
        site.transport.close()


def test_the_fuzzers_answer_to_a_dial_is_one_that_is_taken() -> None:
    target = Target()
    for speaker in speakers():
        connection, pipe = target.dial(speaker)
        body = welcome_of(speaker)
        target.say(connection, pipe, header(FrameKind.WELCOME, body) + body)

        assert target.transport._links[connection].channel is not None
        pipe.close()
        target.say(connection, pipe, b"")
    target.close()
