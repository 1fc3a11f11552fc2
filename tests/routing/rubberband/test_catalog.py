from __future__ import annotations

import pytest

from crescando.errors import UnknownTableError
from crescando.routing.base import Refusal
from crescando.routing.rubberband import AddColumn, Catalog, CreateTable, DropColumn, DropTable
from crescando.schema import COLUMNS_MAX, ColumnDef, DataType, HashPartition, RangePartition, TableSchema
from tests.routing.worlds import schema

NEW = ColumnDef("x", DataType.INT8)
KEY = (ColumnDef("k", DataType.INT64, False),)
WIDE = (*KEY, *(ColumnDef(f"c{place}", DataType.INT8) for place in range(COLUMNS_MAX)))


def catalog(*names: str) -> Catalog:
    made = Catalog()
    for name in names:
        made = made.after(CreateTable(schema(name)))
    return made


def test_created_table_gets_ids_and_version_1() -> None:
    made = catalog("a", "b")

    assert [(table.id, table.name, table.version) for table in made.tables] == [(0, "a", 1), (1, "b", 1)]
    assert [column.id for column in made.table("b").columns] == [0, 1]


def test_ids_a_sender_put_into_a_schema_are_ignored() -> None:
    forged = TableSchema("a", (ColumnDef("k", DataType.INT64, False, id=9),), "k", id=44, version=7)

    made = Catalog().after(CreateTable(forged))

    assert (made.tables[0].id, made.tables[0].version, made.tables[0].columns[0].id) == (0, 1, 0)


def test_table_ids_are_never_used_again() -> None:
    again = catalog("a", "b").after(DropTable("b"))
    again = again.after(CreateTable(schema("b"))).after(CreateTable(schema("c")))

    assert again.table("b").id == 2
    assert again.table("c").id == 3
    assert again.by_id(1) is None
    assert again.by_id(2) == again.table("b")


def test_column_ids_are_never_used_again_and_versions_rise() -> None:
    made = catalog("a").after(AddColumn("a", NEW))
    assert (made.table("a").column("x").id, made.table("a").version) == (2, 2)

    made = made.after(DropColumn("a", "x")).after(AddColumn("a", NEW))

    assert (made.table("a").column("x").id, made.table("a").version) == (3, 4)
    assert made.table("a").column_by_id(2) is None


def test_change_of_one_table_leaves_the_others_and_the_old_catalog_alone() -> None:
    before = catalog("a", "b", "c")

    changed = before.after(AddColumn("b", NEW)).after(DropTable("a"))

    assert before == catalog("a", "b", "c")
    assert changed.table("c") == before.table("c")
    assert changed.after(AddColumn("b", ColumnDef("y", DataType.BOOL))).table("b").column("y").id == 3


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (CreateTable(schema("a")), "'a' exists already"),
        (DropTable("bb"), "did you mean 'b'"),
        (AddColumn("z", NEW), "no table is named 'z'"),
        (DropColumn("z", "v"), "no table is named 'z'"),
        (AddColumn("a", ColumnDef("v", DataType.BOOL)), "'v' is declared twice"),
        (AddColumn("a", ColumnDef("no name", DataType.BOOL)), "not an identifier"),
        (AddColumn("a", ColumnDef("x", DataType.BOOL, False)), "must be nullable"),
        (DropColumn("a", "k"), "part of a key"),
        (DropColumn("a", "w"), "has no column 'w'"),
        (CreateTable(TableSchema("c", (), "k")), "invalid schema"),
        (CreateTable(TableSchema("c", (ColumnDef("k", DataType.BOOL, False),), "q")), "no column 'q'"),
        (CreateTable(TableSchema("c", (ColumnDef("k", DataType.INT64),), "k")), "nullable=False"),
        (CreateTable(TableSchema("c d", (ColumnDef("k", DataType.INT64, False),), "k")), "not an identifier"),
        (
            CreateTable(TableSchema("c", KEY, "k", partition=HashPartition(version=2))),
            "version 2 is not known",
        ),
        (
            CreateTable(TableSchema("c", KEY, "k", partition=RangePartition(0, 9, 0))),
            "version 0 is not known",
        ),
        (CreateTable(TableSchema("c", KEY, "k", ("k", "k"))), "names a column twice"),
        (CreateTable(TableSchema("c", WIDE, "k")), "4097 columns; at most 4096"),
    ],
)
def test_impossible_change_is_refused(message: object, reason: str) -> None:
    with pytest.raises(Refusal) as refused:
        catalog("a", "b").after(message)  # type: ignore[arg-type]

    assert reason in refused.value.reason


def test_unknown_table_suggests_the_nearest_name() -> None:
    with pytest.raises(UnknownTableError, match="did you mean 'flights'"):
        catalog("flights").table("flihgts")


def test_missing_table_says_whether_it_ever_was() -> None:
    made = catalog("a").after(DropTable("a"))

    assert "was dropped" in made.missing(0).reason
    assert made.missing(1).reason == "no table has the id 1"
    assert made.missing(-1).reason == "no table has the id -1"


@pytest.mark.parametrize(("low", "high"), [(0.0, 10.0), (-0.0, 10), (0, 10.0)])
def test_equal_range_bounds_are_kept_alike(low: float, high: float) -> None:
    def with_bounds(low: float, high: float) -> TableSchema:
        return TableSchema(
            "a", (ColumnDef("k", DataType.FLOAT64, False),), "k", partition=RangePartition(low, high)
        )

    made = Catalog().after(CreateTable(with_bounds(low, high)))

    assert repr(made) == repr(Catalog().after(CreateTable(with_bounds(0, 10))))
