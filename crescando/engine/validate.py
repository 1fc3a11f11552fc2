"""Distrust: every shape and parameter list from outside is checked before use.

Rules of the file: what passes here cannot make the engine raise, loop or read
what it should not. Both sides run the same checks: clients, to answer a
mistake at once; storages, because clients may lie. A faulty *shape* raises
`StatementError`; a shape that merely names a column the schema no longer has
is `StaleShape`, which asks the client to prepare again. Only allow-listed
operators pass, and sizes are bounded by our own limits.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from crescando.engine import kernels
from crescando.engine.base import Piece
from crescando.engine.constants import is_single
from crescando.engine.functions import CAST, OPERATORS, aggregate_type, is_assignable, result_type
from crescando.engine.kernels.coding import NO_MASK
from crescando.engine.loads import Begin, LoadWrite
from crescando.engine.statement import (
    PHYSICAL,
    Apply,
    Column,
    ColumnRef,
    Kind,
    Parameter,
    Shape,
    Term,
)
from crescando.errors import (
    InvariantError,
    KeyUpdateError,
    PredicateError,
    StatementError,
    TypeMismatchError,
)
from crescando.schema import ColumnDef, DataType, TableSchema

DEPTH_MAX = 200
"""Nesting of one term; keeps every recursive walk far from the interpreter's limit."""

NODES_MAX = 20_000
"""Nodes of one shape; a predicate of 5,000 comparisons has 15,001."""

OUTPUTS_MAX = 4_096
"""Projections, aggregates or assignments of one shape."""

NAMES_MAX = 64 * 1024
"""Characters of all outputs' names: with them a valid shape is below `statement.SHAPE_BYTES_MAX`."""

PARAMETERS_MAX = NODES_MAX
"""Parameters of one operation (an IN list is one)."""


class StaleShape(Exception):  # noqa: N818  # A signal to prepare again, not a fault.
    """The shape names a table or column that does not exist (any more), or has another type."""


def validate_shape(shape: Shape, schema: TableSchema) -> None:
    """Check a shape against the allow-list and a table's schema.

    Parameters
    ----------
    shape : Shape
    schema : TableSchema
        The table that ``shape.table`` names, with catalog ids.

    Raises
    ------
    StaleShape
        If it names another table, or a column that the schema lacks or types
        differently.
    StatementError
        If it is malformed whatever the schema.
    """
    if shape.table != schema.id:
        raise StaleShape(f"table {shape.table} is not {schema.id}")
    _Walk(schema).shape(shape)


def validate_parameters(shape: Shape, schema: TableSchema, parameters: tuple[Any, ...]) -> None:
    """Check an operation's parameters against its (already valid) shape.

    Raises
    ------
    StatementError
        If a parameter is missing, or has another type than the shape states.
    """
    if shape.kind in (Kind.INSERT, Kind.UPSERT):
        validate_rows(shape.columns, schema, parameters)
        return
    for parameter in parameters_of(shape):
        if parameter.index >= len(parameters):
            raise PredicateError(f"parameter {parameter.index} is missing")
        value = parameters[parameter.index]
        if not parameter.many:
            _validate_scalar(parameter, value)
            if parameter == shape.limit and (value is None or value < 0):
                raise StatementError(f"a limit is a number of rows, not {value}")
            continue
        if not isinstance(value, tuple):
            raise TypeMismatchError(f"parameter {parameter.index} must be a tuple of values")
        for item in value:
            _validate_scalar(parameter, item)


def parameters_of(shape: Shape) -> tuple[Parameter, ...]:
    """Give every distinct parameter of a shape, by index."""
    return parameters_in(terms_of(shape))


def parameters_in(terms: tuple[Term, ...]) -> tuple[Parameter, ...]:
    """Give every distinct parameter of some terms, by index."""
    found: dict[Parameter, None] = {}
    pending: list[Term] = list(terms)
    while pending:
        term = pending.pop()
        if isinstance(term, Parameter):
            found[term] = None
        elif isinstance(term, Apply):
            pending.extend(term.args)
    return tuple(sorted(found, key=lambda parameter: parameter.index))


def terms_of(shape: Shape) -> tuple[Term, ...]:
    """Give every root term of a shape: predicate, outputs, assignments and limit."""
    roots: list[Term] = [] if shape.where is None else [shape.where]
    roots.extend(shape.group_by)
    roots.extend(returned.column for returned in shape.returning)
    if shape.limit is not None:
        roots.append(shape.limit)
    roots.extend(projection.term for projection in shape.projections)
    roots.extend(aggregate.term for aggregate in shape.aggregates if aggregate.term is not None)
    roots.extend(assignment.term for assignment in shape.assignments)
    return tuple(roots)


_PYTHON_TYPES: dict[DataType, tuple[type, ...]] = {
    DataType.BOOL: (bool,),
    DataType.FLOAT32: (float,),
    DataType.FLOAT64: (float,),
    DataType.STRING: (str,),
    DataType.BYTES: (bytes,),
}


def _validate_scalar(parameter: Parameter, value: Any) -> None:
    if value is None:
        return
    accepted = _PYTHON_TYPES.get(parameter.type, (int,))
    if type(value) not in accepted:
        raise TypeMismatchError(
            f"parameter {parameter.index} is {type(value).__qualname__}, not {parameter.type.value}"
        )
    if accepted == (int,):
        bounds = np.iinfo(PHYSICAL[parameter.type])
        fits = bounds.min <= value <= bounds.max
        if parameter.type.is_decimal:
            fits = abs(value) < 10**parameter.type.precision
        if not fits:
            raise TypeMismatchError(f"parameter {parameter.index} does not fit {parameter.type.value}")
    # A float32 is one already; a longer float is compared as a float64, and rounded by a cast.
    if parameter.type is DataType.FLOAT32 and not is_single(value):
        raise TypeMismatchError(f"parameter {parameter.index} does not fit {parameter.type.value}")


def validate_rows(column_ids: tuple[int, ...], schema: TableSchema, parameters: tuple[Any, ...]) -> None:
    """Check the columns of some rows.

    Raises
    ------
    StaleShape
        If the schema lacks one.
    StatementError
        If they are not of its types, or of different lengths.
    """
    if len(parameters) != len(column_ids):
        raise StatementError(f"{len(column_ids)} columns are named and {len(parameters)} given")
    length = None
    for column_id, values in zip(column_ids, parameters, strict=True):
        definition = schema.column_by_id(column_id)
        if definition is None:
            raise StaleShape(f"column {column_id} does not exist")
        if not isinstance(values, Column) or values.type is not definition.type:
            raise TypeMismatchError(f"column {definition.name!r} takes {definition.type.value} values")
        _validate_column(definition.name, values)
        if length is not None and len(values) != length:
            raise StatementError("columns of one insert have different lengths")
        length = len(values)


def validate_piece(piece: Piece, schema: TableSchema) -> None:
    """Check what another process's engine gave of a table.

    Raises
    ------
    InvariantError
        If it follows another version of the schema, or its columns are not those of this one.
    """
    what = f"a piece of table {schema.name!r}"
    _check_version(what, piece, schema)
    kinds = [(column.name, column.type) for column in schema.columns]
    if not schema.primary_key:
        kinds += [("hidden key", DataType.INT64)] * 2
    _validate_kinds(what, piece, kinds)


def validate_staged(piece: Piece, schema: TableSchema, kinds: list[tuple[int, DataType]]) -> None:
    """Check rows that a load has staged in another process's engine, whose columns are of some ids and types.

    Raises
    ------
    InvariantError
        If it follows another version of the schema, or its columns are not those.
    """
    what = f"a staged piece of table {schema.name!r}"
    _check_version(what, piece, schema)
    _validate_kinds(what, piece, [(str(column_id), kind) for column_id, kind in kinds])


def _check_version(what: str, piece: Piece, schema: TableSchema) -> None:
    if piece.version != schema.version:
        raise InvariantError(
            f"{what} follows version {piece.version} of the schema, where {schema.version} is in force"
        )


def _validate_kinds(what: str, piece: Piece, kinds: list[tuple[str, DataType]]) -> None:
    positions, columns = piece.position, piece.columns
    if len(columns) != len(kinds) or positions.dtype != np.uint64 or positions.ndim != 1:
        raise InvariantError(f"{what} has {len(columns)} columns of {len(kinds)}, or no ring positions")
    for (name, kind), column in zip(kinds, columns, strict=True):
        if column.type is not kind or len(column) != len(positions):
            raise InvariantError(f"{what} has a column {name!r} of another type or length")
        try:
            _validate_column(name, column)
        except TypeMismatchError as fault:
            raise InvariantError(f"{what} is malformed: {fault}") from fault


def _validate_column(name: str, column: Column) -> None:
    values, valid = column.values, column.valid
    if values.dtype != PHYSICAL[column.type] or values.ndim != 1:
        raise TypeMismatchError(f"column {name!r} holds {values.dtype}, not {PHYSICAL[column.type]}")
    if valid is not None and (valid.dtype != np.bool_ or valid.shape != values.shape):
        raise TypeMismatchError(f"column {name!r} has a validity mask of another shape")
    if not column.type.is_textual:
        return
    try:
        column.texts.check()
    except TypeMismatchError as fault:
        raise TypeMismatchError(f"column {name!r}: {fault}") from fault
    if len(column.texts) and column.texts.binary is not (column.type is DataType.BYTES):
        raise TypeMismatchError(f"column {name!r} has a dictionary of other things than {column.type.value}")
    mask = NO_MASK if valid is None else np.ascontiguousarray(valid)
    if not kernels.active().codes.are_within(np.ascontiguousarray(values), mask, len(column.dictionary)):
        raise TypeMismatchError(f"column {name!r} has codes outside its dictionary")


def validate_load(begin: Begin, schema: TableSchema) -> None:
    """Check what a load is to give of a table.

    Raises
    ------
    StaleShape
        If the schema lacks one of its columns.
    StatementError
        If a row could not be what the load says.
    """
    if len(set(begin.columns)) != len(begin.columns):
        raise StatementError("a column is given twice")
    given = set()
    for column_id in begin.columns:
        column = schema.column_by_id(column_id)
        if column is None:
            raise StaleShape(f"column {column_id} does not exist")
        given.add(column.name)
    name, write = f"table {schema.name!r}", begin.write
    missing = schema.key_columns - given
    if missing:
        raise StatementError(f"key column {min(missing)!r} of {name} is not given")
    if not schema.primary_key and write not in (LoadWrite.INSERT, LoadWrite.OVERWRITE):
        raise StatementError(f"{name} has no primary key to {write.value} by")
    if write is LoadWrite.DELETE and given != schema.key_columns:
        raise StatementError(f"rows of {name} are deleted by their keys; other columns are not given")
    if write is LoadWrite.UPDATE and given == schema.key_columns:
        raise StatementError(f"nothing but keys of {name} is given, which are not updated")
    if write in (LoadWrite.INSERT, LoadWrite.OVERWRITE):
        lacking = [each.name for each in schema.columns if not each.nullable and each.name not in given]
        if lacking:
            raise StatementError(f"column {lacking[0]!r} of {name} is not nullable and not given")


class _Walk:
    """One pass over a shape, counting nodes as it goes."""

    def __init__(self, schema: TableSchema) -> None:
        self.schema = schema
        self.n_nodes = 0
        self.projecting = False

    def shape(self, shape: Shape) -> None:
        self._fields(shape)
        if shape.where is not None and self.term(shape.where) is not DataType.BOOL:
            raise TypeMismatchError("a predicate must be of type bool")
        for returned in shape.returning:
            self.term(returned.column)
        for assignment in shape.assignments:
            column = self._column(assignment.column)
            if column.name in self.schema.key_columns:
                raise KeyUpdateError(f"key column {column.name!r} cannot be updated; delete and insert")
            kind = self.term(assignment.term)
            if not is_assignable(column.type, kind):
                raise TypeMismatchError(
                    f"column {column.name!r} is {column.type.value} and cannot take {kind.value}; use cast"
                )
        self.projecting = True
        for projection in shape.projections:
            self.term(projection.term)
        for key in shape.group_by:
            self.term(key)
        for aggregate in shape.aggregates:
            aggregate_type(aggregate.function, None if aggregate.term is None else self.term(aggregate.term))

    def _fields(self, shape: Shape) -> None:
        """Check that the shape has the parts its kind needs and no others."""
        outputs = (shape.projections, shape.aggregates, shape.group_by, shape.assignments, shape.columns)
        if max(map(len, (*outputs, shape.order, shape.returning))) > OUTPUTS_MAX:
            raise StatementError(f"a statement has at most {OUTPUTS_MAX} outputs")
        names = [projection.name for projection in shape.projections]
        names += [aggregate.name for aggregate in shape.aggregates]
        names += [returned.name for returned in shape.returning]
        if sum(map(len, names)) > NAMES_MAX:
            raise StatementError(f"the names of the outputs have more than {NAMES_MAX} characters together")
        wanted = {
            Kind.READ: (bool(shape.projections), bool(shape.aggregates), bool(shape.group_by), False, False),
            Kind.UPDATE: (False, False, False, True, False),
            Kind.DELETE: (False, False, False, False, False),
            Kind.INSERT: (False, False, False, False, True),
            Kind.UPSERT: (False, False, False, False, True),
        }[shape.kind]
        if tuple(map(bool, outputs)) != wanted or (shape.projections and shape.is_grouped):
            raise StatementError(f"a {shape.kind.value} statement has other parts than its kind takes")
        if shape.kind is Kind.READ:
            self._read(shape)
        elif shape.order or shape.limit is not None:
            raise StatementError("only a read has an order or a limit")
        if shape.kind in (Kind.INSERT, Kind.UPSERT):
            self._insert(shape)
        assigned = [assignment.column for assignment in shape.assignments]
        if len(set(assigned)) != len(assigned):
            raise StatementError("a column is assigned twice")

    def _read(self, shape: Shape) -> None:
        if not (shape.projections or shape.is_grouped):
            raise StatementError("a read has no output column")
        if shape.returning:
            raise StatementError("only a write returns what it changed")
        if shape.order and shape.limit is None:
            raise StatementError("an order without a limit is the client's business")
        if any(not 0 <= sort.output < len(shape.projections) for sort in shape.order):
            raise StatementError("an order names an output column that there is not")
        if shape.limit is None:
            return
        if shape.is_grouped:
            raise StatementError("groups are limited by the client, when it has them all")
        if self._parameter(shape.limit, many=False) is not DataType.INT64:
            raise TypeMismatchError("a limit is an int64")

    def _insert(self, shape: Shape) -> None:
        if shape.where is not None:
            raise StatementError(f"{shape.kind.value} has no predicate")
        if len(set(shape.columns)) != len(shape.columns):
            raise StatementError("a column is given twice")
        names = {self._column(column_id).name for column_id in shape.columns}
        missing = self.schema.key_columns - names
        if missing:
            raise StatementError(f"key column {min(missing)!r} is not given")
        if shape.kind is Kind.UPSERT and not self.schema.primary_key:
            raise StatementError(f"table {self.schema.name!r} has no primary key to upsert by")

    def term(self, term: Term, depth: int = 1) -> DataType:
        """Check one term and give its type."""
        self.n_nodes += 1
        if self.n_nodes > NODES_MAX:
            raise PredicateError(f"a statement has at most {NODES_MAX} nodes")
        if depth > DEPTH_MAX:
            raise PredicateError(f"a term nests at most {DEPTH_MAX} deep")
        if isinstance(term, ColumnRef):
            if self._column(term.column).type is not term.type:
                raise StaleShape(f"column {term.column} is not {term.type.value}")
            return term.type
        if isinstance(term, Parameter):
            return self._parameter(term, many=False)
        return self._apply(term, depth)

    def _column(self, column_id: int) -> ColumnDef:
        column = self.schema.column_by_id(column_id)
        if column is None:
            raise StaleShape(f"column {column_id} does not exist")
        return column

    def _parameter(self, term: Parameter, *, many: bool) -> DataType:
        if term.many is not many:
            raise PredicateError("a list of values stands only at the right of IN")
        if not 0 <= term.index < PARAMETERS_MAX:
            raise PredicateError(f"parameter {term.index} is out of bounds")
        return term.type

    def _apply(self, term: Apply, depth: int) -> DataType:
        kinds = []
        for place, argument in enumerate(term.args):
            if term.op == "in" and place == 1:
                self.n_nodes += 1
                if not isinstance(argument, Parameter):
                    raise PredicateError("IN takes a list of constants")
                kinds.append(self._parameter(argument, many=True))
            else:
                kinds.append(self.term(argument, depth + 1))
        found = result_type(term.op, kinds, term.type if term.op == CAST else None)
        if found is not term.type:
            raise TypeMismatchError(f"{term.op!r} gives {found.value}, not {term.type.value}")
        if term.op == "like" and not isinstance(term.args[1], Parameter):
            raise PredicateError("LIKE takes a constant pattern")
        if term.op != CAST and OPERATORS[term.op].projection_only and not self.projecting:
            raise PredicateError(f"{term.op!r} may stand only in the output of a read")
        if term.op == "round" and len(term.args) == 2 and not isinstance(term.args[1], Parameter):
            raise PredicateError("round takes a constant number of digits")
        return found
