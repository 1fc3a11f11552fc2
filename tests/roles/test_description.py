"""What a node says of itself: asked over a session, answered once, and no answer is told too."""

from __future__ import annotations

import msgspec

from crescando.roles.description import (
    Asker,
    ChangeRouters,
    Describe,
    Described,
    Describer,
    Hosts,
    Place,
    RoutersChanged,
    node_of,
)
from crescando.types import ProcessId
from crescando.wire import decoder_for, encode

ME, NODE, OTHER = ProcessId("client", "app", 7), node_of("r1"), node_of("r2")
ROUTER = ProcessId("router", "r1", 2)
SAID = Described(
    version="1",
    pid=4711,
    now_s=1.5,
    hosts=(
        Hosts(ROUTER, True, True, "", ROUTER, 17, {"rows": 3}),
        Hosts(ROUTER, False, False, "why", None, -1, {}),
    ),
    routers=(ROUTER,),
    config=b"config",
    places=(Place("router", "r1", "127.0.0.1", 7401),),
)


OTHER_SAID = msgspec.structs.replace(SAID, pid=4712)


def test_a_question_waits_for_its_session_and_is_answered_once() -> None:
    asker, told = Asker(ME), list[Described | None]()
    asker.ask(NODE, told.append)
    asker.ask(NODE, told.append)
    assert asker.flush(0.0).connect == [NODE, NODE]

    asker.on_connected(NODE, 0.0)
    assert asker.flush(0.0).send == [(NODE, Describe()), (NODE, Describe())]
    asker.on_message(NODE, SAID, 0.0)
    assert told == [SAID]
    asker.on_message(NODE, OTHER_SAID, 0.0)
    assert told == [SAID, OTHER_SAID]
    asker.on_message(NODE, SAID, 0.0)
    assert told == [SAID, OTHER_SAID]

    asker.ask(NODE, told.append)
    output = asker.flush(0.0)
    assert (output.connect, output.send) == ([], [(NODE, Describe())])


def test_who_cannot_be_asked_or_goes_away_is_told_as_none() -> None:
    asker, told = Asker(ME), list[Described | None]()
    asker.ask(NODE, told.append)
    asker.on_refused(NODE, 0.0)
    assert told == [None]

    asker.on_connected(OTHER, 0.0)
    asker.ask(OTHER, told.append)
    asker.on_disconnected(OTHER, 0.0)
    assert told == [None, None]
    asker.ask(OTHER, told.append)
    assert asker.flush(0.0).connect == [NODE, OTHER]


def test_a_node_answers_and_asks() -> None:
    wishes, told = list[ChangeRouters](), list[Described | None]()

    def change(wish: ChangeRouters) -> str:
        wishes.append(wish)
        return "no"

    node = Describer(NODE, lambda: SAID, change)

    node.on_message(ME, ChangeRouters(add=ROUTER), 0.0)
    assert node.flush(0.0).send == [(ME, RoutersChanged("no"))]
    assert wishes == [ChangeRouters(add=ROUTER)]
    node.on_message(ME, Describe(), 0.0)
    node.ask(OTHER, told.append)
    node.on_message(OTHER, SAID, 0.0)

    assert node.flush(0.0).send == [(ME, SAID)]
    assert told == [SAID]


def test_it_travels_between_clients_and_nodes_alone() -> None:
    answer = decoder_for(NODE, ME)
    question = decoder_for(ME, NODE)
    assert answer is not None
    assert question is not None
    assert answer(encode(SAID)) == SAID
    assert question(encode(Describe())) == Describe()
    assert decoder_for(ProcessId("storage", "s1"), NODE) is None
    assert decoder_for(NODE, ROUTER) is None
