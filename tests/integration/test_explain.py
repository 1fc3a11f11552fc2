"""What storage processes say of an operation that they do not execute."""

from __future__ import annotations

import crescando
from crescando import col
from crescando.spec import ClusterSpec
from tests.integration.stores import N_COUNTERS, with_counters


def test_the_path_that_is_told_first_costs_least_and_names_columns() -> None:
    with with_counters(storages=2, replication=2) as store:
        table = store.table("counters")

        told = table.explain((col("k") == 7) & (col("v") >= 0) & (col("v") < 100))

        assert [each.process.node for each in told] == ["s1", "s2"]
        for each in told:
            found = each.explained
            assert (found.statement, found.table, found.n_rows) == ("read", "counters", N_COUNTERS)
            assert {path.kind for path in found.paths} == {"point", "range", "composite"}
            assert [path.cost for path in found.paths] == sorted(path.cost for path in found.paths)
            assert found.paths[0].text == "k = ?"
            assert found.kernels in ("numpy", "numba")
            assert each.expected_s > 0
            assert "by point: k = ?" in str(each)


def test_what_no_index_serves_is_a_scan_and_writes_are_explained_too() -> None:
    with with_counters() as store:
        table = store.table("counters")
        (told,) = table.explain("k = 1 or v = 2")
        assert [path.kind for path in told.explained.paths] == ["scan"]
        assert "((k = ?) or (v = ?))" in str(told)

        (told,) = table.prepare_update("k in (1, 2, ?)", "v = v + 1").explain((3,))
        assert (told.explained.statement, told.explained.paths[0].kind) == ("update", "list")
        assert table.count("v <> 0") == 0, "nothing was executed"
        (told,) = table.explain()
        assert told.explained.paths[0].text == "every row"


def test_costs_are_those_of_this_very_shape() -> None:
    with with_counters() as store:
        count = store.table("counters").prepare_aggregate("k = ?", n=crescando.agg.count())
        (before,) = count.explain((1,))
        for _ in range(50):
            count((1,)).result()
        (after,) = count.explain((1,))
        assert (after.scan_s, after.each_s) != (before.scan_s, before.each_s)
        assert after.cycle_operations >= 1


def test_the_simple_engine_explains_too_and_a_table_that_is_gone_is_a_fault() -> None:
    with crescando.open(spec=ClusterSpec(engine="kv")) as store:
        table = store.create_table("t", like={"k": [1]}, primary_key="k", partition_key="k")
        (told,) = table.explain("k = 1")
        assert told.explained.kernels == "python"
        statement = table.prepare_select(["k"], "k = 1")
        other = store.session("other")
        other.drop_table("t")
        (told,) = statement.explain()
        assert "does not exist" in told.explained.fault
        assert "not executed" in str(told)
