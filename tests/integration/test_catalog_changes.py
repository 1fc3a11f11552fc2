"""Tables that come and go while others ask for them."""

from __future__ import annotations

import pytest

import crescando
from crescando.consensus.multipaxos.timing import PaxosTiming
from crescando.errors import RefusedError, SpecError, UnknownTableError
from crescando.roles.limits import ClientLimits
from crescando.routing.ecast.limits import RouterLimits
from crescando.spec import ClusterSpec
from tests.integration.stores import standstill

LIKE = {"k": [1], "v": [1]}


def test_a_table_made_and_dropped_at_once_ends_both_waits() -> None:
    with crescando.open() as store:
        # Sent together: what is made by itself may be there before its end is even asked for.
        with standstill(store):
            made = store.create_table_nowait("brief", like=LIKE, primary_key="k")
            dropped = store._desk.backend.drop_table("brief")

        assert dropped.result(10) is None
        with pytest.raises(UnknownTableError):
            made.result(10)
        assert store.tables() == ()


def test_a_table_dropped_and_made_again_is_new_and_empty() -> None:
    with crescando.open() as store:
        first = store.create_table("phoenix", like=LIKE, primary_key="k")
        first.insert({"k": [1], "v": [1]}).result()

        store.drop_table("phoenix")
        second = store.create_table("phoenix", like=LIKE, primary_key="k")

        assert second.count() == 0
        assert first.count() == 0


def test_the_second_of_two_equal_tables_is_refused() -> None:
    with crescando.open() as store:
        store.create_table("twin", like=LIKE, primary_key="k")

        with pytest.raises(RefusedError, match="exists"):
            store.session("other").create_table("twin", like=LIKE, primary_key="k")
        assert store.tables() == ("twin",)


@pytest.mark.parametrize(
    "settings",
    [
        {"client": ClientLimits(open_submissions=0)},
        {"paxos": PaxosTiming(window=0)},
        {"paxos": PaxosTiming(heartbeat_s=-1.0)},
    ],
)
def test_a_limit_that_would_hang_is_refused_at_the_start(settings: dict[str, object]) -> None:
    with pytest.raises(SpecError, match="greater than 0"):
        ClusterSpec(**settings)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"paxos": PaxosTiming(heartbeat_s=0.2, election_s=0.5)}, "paxos.election_s"),
        ({"router": RouterLimits(max_lag_s=1.0)}, "router.max_lag_s"),
        ({"router": RouterLimits(max_lag_s=2.0), "paxos": PaxosTiming(election_s=2.0)}, "router.max_lag_s"),
    ],
)
def test_times_that_contradict_each_other_are_refused(settings: dict[str, object], named: str) -> None:
    with pytest.raises(SpecError, match=named):
        ClusterSpec(**settings)  # type: ignore[arg-type]


def test_closed_sessions_are_forgotten() -> None:
    with crescando.open() as store:
        for number in range(5):
            store.session(f"s{number}").close()

        assert [name for name in store.cluster.statistics() if name.startswith("client/s")] == []
