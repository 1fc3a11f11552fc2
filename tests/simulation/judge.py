"""A judge that shares nothing with the routers: the brute-force twin, with tables by hand."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from crescando.routing.batch import Message
from crescando.routing.rubberband import (
    AddColumn,
    CreateTable,
    DropColumn,
    DropTable,
    Rubberband,
    decode_message,
)
from crescando.schema import ColumnDef, TableSchema
from crescando.types import MessageKind, ProcessId, Scope
from tests.routing.twin import (
    REFUSED,
    View,
    replace_columns,
    twin_after,
    twin_destset,
    twin_suspects,
    view_of,
)


@dataclass(frozen=True)
class World:
    """The twin's view, and how many tables were ever made."""

    view: View
    tables_made: int


def world_of(config: Rubberband) -> World:
    """Begin with a configuration whose tables were never dropped."""
    return World(view_of(config), len(config.tables))


class TwinJudge:
    """A `crescando.testing.judge.Judge` over `World`."""

    def is_member(self, world: World, process: ProcessId) -> bool:
        return process in world.view.everyone

    def destset(self, world: World, message: Message) -> Mapping[ProcessId, Scope] | None:
        found = twin_destset(world.view, message)
        return None if found == REFUSED else found

    def suspects(self, world: World, message: Message) -> frozenset[ProcessId]:
        return twin_suspects(world.view, message)

    def after(self, world: World, message: Message) -> World:
        if message.kind is not MessageKind.CONFIG or self.destset(world, message) is None:
            return world
        view, made = twin_after(world.view, message), world.tables_made
        tables = {table.name: table for table in view.tables}
        match decode_message(message.payload):
            case CreateTable(schema):
                tables[schema.name] = replace_id(schema, made)
                made += 1
            case DropTable(name):
                del tables[name]
            case AddColumn(name, column):
                old = tables[name]
                tables[name] = replace_id(replace_columns(old, (*old.columns, column)), old.id)
            case DropColumn(name, gone):
                old = tables[name]
                kept = tuple(c for c in old.columns if isinstance(c, ColumnDef) and c.name != gone)
                tables[name] = replace_id(replace_columns(old, kept), old.id)
        return World(replace(view, tables=tuple(tables.values())), made)


def replace_id(schema: TableSchema, table: int) -> TableSchema:
    """Give a table under an id; only name, columns and id matter to the twin."""
    return TableSchema(
        schema.name, schema.columns, schema.partition_key, schema.primary_key, schema.partition, table
    )
