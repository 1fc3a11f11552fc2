"""The right to administer: who has it, what takes it, and that nothing changes without it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest

pytest.importorskip("cryptography")

from crescando import rights, wire
from crescando.errors import CredentialsError
from crescando.permits import PERMITS
from crescando.roles.description import ChangeRouters
from crescando.roles.messages import Retire
from crescando.routing.base import Refusal
from crescando.routing.ecast.messages import Route
from crescando.routing.rubberband.keyspace import Expand
from crescando.routing.rubberband.messages import (
    ConfigMessage,
    Denied,
    DropChange,
    DropTable,
    Join,
    MessageId,
    Reconfigure,
    decode_message,
)
from crescando.transport.credentials import FileCredentials
from crescando.transport.identity import ADMINISTRATOR, Certificate, Identity
from crescando.types import MessageKind, ProcessId
from tests.ecast.parties import CLIENT, CONFIG, S0, configure, of, write
from tests.transport.forgery import Forger, Forgery, Shown
from tests.transport.test_peers import ROUTER, A, Site, claims, until, uri

DENIAL = "no right"
ROUTED = ProcessId("router", "r1")
EXPAND = Reconfigure(Expand(S0, 7), (), None)
ORDERS: tuple[ConfigMessage, ...] = (EXPAND, DropChange(MessageId(CLIENT, 3), "since I say so"))


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture(scope="module")
def forger(tmp_path_factory: pytest.TempPathFactory) -> Forger:
    return Forger(tmp_path_factory.mktemp("rights") / "certs")


def arrived(message: Any, denial: str = DENIAL, receiver: ProcessId = ROUTED) -> Any:
    decode = wire.decoder_for(CLIENT, receiver, denial)
    assert decode is not None
    return decode(wire.encode(message))


def bodies(message: Route) -> list[ConfigMessage]:
    batch = message.submission
    return [
        decode_message(batch.payload_of(index))
        for index in range(len(batch))
        if batch.kind[index] == MessageKind.CONFIG
    ]


# What takes the right.


def test_whoever_adds_a_configuration_message_says_whether_it_takes_the_right() -> None:
    known = set(get_args(ConfigMessage)) - {Denied}

    assert known - set(rights.FREE) == {Reconfigure, DropChange}
    assert set(rights.FREE) <= known


def test_what_is_asked_without_the_right_comes_with_the_denial() -> None:
    node, super_ = ProcessId("node", "n"), ProcessId("super", "u")

    assert arrived(ChangeRouters(remove=ROUTED), receiver=node).denial == DENIAL
    assert arrived(Retire(3), receiver=super_).denial == DENIAL
    assert arrived(Retire(3), receiver=S0) == Retire(3, DENIAL)
    assert arrived(Retire(3), denial="", receiver=S0) == Retire(3)


def test_everything_that_carries_a_denial_takes_the_right() -> None:
    """And nothing else does: a field that nobody fills would promise what is not so."""
    kinds = {kind for (sender, _), kinds in PERMITS.items() if sender == "client" for kind in kinds}

    assert {kind for kind in kinds if "denial" in kind.__struct_fields__} == set(rights.ASKED)


@pytest.mark.parametrize("order", ORDERS, ids=lambda order: type(order).__name__)
def test_an_order_without_the_right_is_replaced_in_its_place(order: ConfigMessage) -> None:
    join, drop = Join(CLIENT), DropTable("t")
    batch = of(
        configure(1, join), write(2), configure(3, order), configure(4, drop), write(5), configure(6, order)
    )

    found = arrived(Route(batch))

    assert bodies(found) == [join, Denied(DENIAL), drop, Denied(DENIAL)]
    assert [found.submission.payload_of(n) for n in (1, 4)] == [batch.payload_of(n) for n in (1, 4)]
    assert (found.submission.first, len(found.submission)) == (1, 6)
    assert found.submission.kind.tolist() == batch.kind.tolist()
    assert bodies(arrived(Route(batch), denial="")) == [join, order, drop, order]


def test_what_takes_no_right_stays_as_it_is() -> None:
    batch = of(configure(1, Join(CLIENT)), write(2), configure(3, DropTable("t")))

    assert wire.encode(arrived(Route(batch))) == wire.encode(Route(batch))


def test_a_denied_order_is_refused_with_the_denial_and_changes_nothing() -> None:
    message = configure(9, Denied(DENIAL))

    assert CONFIG.apply(message) is CONFIG
    with pytest.raises(Refusal, match=DENIAL):
        CONFIG.destset(message)


def test_a_denial_of_ones_own_is_of_no_use() -> None:
    assert bodies(arrived(Route(of(configure(1, Denied("I may")))))) == [Denied(DENIAL)]


# Who has it.


def certificate(*identities: Identity) -> Certificate:
    return Certificate(frozenset(identities), "1f", 0.0, 0.0)


def test_a_client_has_the_right_whose_certificate_names_it_so() -> None:
    client, right = Identity("c", "client", "a"), Identity("c", ADMINISTRATOR, "a")
    a = ProcessId("client", "a", 4)

    assert certificate(client, right).right_fault_of("c", a) == ""
    for other in (
        certificate(client),
        certificate(client, Identity("c", ADMINISTRATOR, "b")),
        certificate(client, Identity("d", ADMINISTRATOR, "a")),
        certificate(client, Identity("c", "client", ADMINISTRATOR)),
    ):
        assert other.right_fault_of("c", a) == (
            "the certificate 1f of client/a gives no right to administer the cluster 'c'; one that does is "
            "made by: crescando certs issue --admin client/a"
        )


def test_the_right_is_none_of_a_process(tmp_path: Path, forger: Forger) -> None:
    assert not any(ADMINISTRATOR in roles for roles in PERMITS)
    with pytest.raises(CredentialsError, match="admin/a is a right and no process; name client/a too"):
        forger.authority.issue("admin/a", path=tmp_path / "a.pem")
    with pytest.raises(CredentialsError, match="admin/b is a right"):
        forger.authority.issue("client/a", "admin/b", path=tmp_path / "a.pem")


@pytest.mark.parametrize(
    ("uris", "is_denied"),
    [
        ([uri(A)], True),
        ([uri(A), "crescando://crescando/admin/b"], True),
        ([uri(A), "crescando://other/admin/a"], True),
        ([uri(A), "crescando://crescando/admin/a"], False),
    ],
)
def test_a_session_has_the_right_of_the_certificate_that_began_it(
    uris: list[str], is_denied: bool, forger: Forger, loop: asyncio.AbstractEventLoop
) -> None:
    near = Site(loop, ROUTER, FileCredentials(forger.authority.issue("router/r0")))
    far = Site(loop, A, Shown(forger.make(Forgery(uris)), forger.trusted, claims(A)))
    far.address = near.listen()
    far.dial(ROUTER)

    far.witness.channel.send(Route(of(configure(1, EXPAND, sender=A))))
    far.transport.flush()
    until(loop, lambda: bool(near.witness.messages()))

    (body,) = bodies(near.witness.messages()[0])
    if is_denied:
        assert isinstance(body, Denied)
        assert "crescando certs issue --admin client/a" in body.reason
    else:
        assert body == EXPAND
    near.transport.close()
    far.transport.close()
