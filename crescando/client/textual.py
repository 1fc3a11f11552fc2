"""What users may write where an expression is meant: names, text and constants.

Rules of the file: a str that is an identifier names a column, any other str is
text for `crescando.sql` (which is imported only then); in SET a str is a
constant, since that is what people store. ``?`` are numbered through a
statement as it would be written in SQL: columns, then SET, then WHERE.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from crescando.client.constant import INT64_MAX
from crescando.client.expression import Aliased, ColumnName, Expr, Operand, Ordering, lit
from crescando.client.slot import placeholders
from crescando.client.template import AggregateCall, Params, ReturnedColumn, Template
from crescando.engine.statement import Kind
from crescando.errors import PredicateError
from crescando.schema import TableSchema

ExpressionLike = Expr | str
"""An expression, a column name, or text."""

Where = Expr | str | None
"""A predicate; None is every row."""

Columns = Sequence[ExpressionLike] | ExpressionLike | None
"""Output columns; None is every column of the table."""

SetList = Mapping[str, Operand] | str
"""Assignments: column to expression or constant, or the text of a SET list."""

Returning = Sequence[str] | str | None
"""Columns that a write returns, such as ``"id"``, ``"old.price"``, ``"new.price"``; ``"*"`` is all."""

OrderBy = Sequence[ExpressionLike | Ordering] | ExpressionLike | Ordering | None


def expr(text: str, params: Params = ()) -> Expr:
    """Give the expression that a text stands for: ``expr("dep_delay + ?", (5,))``.

    Needs the extra ``crescando[sql]``.

    Raises
    ------
    PredicateError
        With text and position, if it is malformed, or parameters are missing.
    """
    from crescando.sql.where import parse_expression

    return parse_expression(text, params)


def expression_of(value: ExpressionLike, first_positional: int = 0) -> Expr:
    """Give what a column name, text or expression stands for.

    Raises
    ------
    PredicateError
        If it is malformed text, or something else.
    """
    if isinstance(value, Expr):
        return value
    if not isinstance(value, str):
        raise PredicateError(f"a column name, text or expression is needed, not {value!r}")
    if value.isidentifier():
        return ColumnName(value)
    from crescando.sql.where import parse_where

    return parse_where(value, first_positional)


def read_template(columns: Columns, where: Where) -> Template:
    """Give the template of a SELECT."""
    outputs = _outputs(columns)
    if columns is not None and not outputs:
        raise PredicateError("a read has at least one column; pass None for all")
    return Template(Kind.READ, predicate_of(where, _n_positional(outputs)), outputs)


def distinct_template(columns: Columns, where: Where, schema: TableSchema) -> Template:
    """Give the template of a SELECT DISTINCT: grouping by every output column."""
    template = read_template(columns, where)
    outputs = template.outputs or tuple((name, ColumnName(name)) for name in schema.column_names)
    return Template(Kind.READ, template.where, group_by=outputs)


def aggregate_template(
    where: Where, aggregates: Mapping[str, AggregateCall], group_by: Columns = None
) -> Template:
    """Give the template of a SELECT of aggregates."""
    keys = _outputs(group_by)
    if not aggregates and not keys:
        raise PredicateError("name at least one aggregate, such as n=agg.count()")
    for name, aggregate in aggregates.items():
        if not isinstance(aggregate, AggregateCall):
            raise PredicateError(f"{name} is not an aggregate; write {name}=agg.sum(...), for example")
    _refuse_twice([*(name for name, _ in keys), *aggregates], "output column")
    where = predicate_of(where, _n_positional(keys))
    return Template(Kind.READ, where, aggregates=tuple(aggregates.items()), group_by=keys)


def update_template(
    where: Where, assignments: SetList, returning: tuple[ReturnedColumn, ...] = ()
) -> Template:
    """Give the template of an UPDATE."""
    if isinstance(assignments, str):
        from crescando.sql.where import parse_assignments

        listed = parse_assignments(assignments)
    elif isinstance(assignments, Mapping):
        listed = tuple((name, lit(value)) for name, value in assignments.items())
    else:
        raise PredicateError(f"set is a dict of columns and values, or text, not {assignments!r}")
    if not listed:
        raise PredicateError("an update assigns at least one column")
    _refuse_twice([name for name, _ in listed], "assigned column")
    where = predicate_of(where, _n_positional(listed))
    return Template(Kind.UPDATE, where, assignments=listed, returning=returning)


def delete_template(where: Where, returning: tuple[ReturnedColumn, ...] = ()) -> Template:
    """Give the template of a DELETE."""
    return Template(Kind.DELETE, predicate_of(where), returning=returning)


def returning_of(returning: Returning, schema: TableSchema, *, is_delete: bool) -> tuple[ReturnedColumn, ...]:
    """Give what a write returns: names of columns, with ``old.`` or ``new.`` before them or plain.

    A plain name is the row's last image: after the write, or before a delete.

    Raises
    ------
    UnknownColumnError
        With the nearest name.
    """
    if returning is None:
        return ()
    listed = [returning] if isinstance(returning, str) else list(returning)
    if returning == "*":
        listed = list(schema.column_names)
    found = []
    for name in listed:
        if not isinstance(name, str):
            raise PredicateError(f"returning takes names of columns, such as 'old.price', not {name!r}")
        image, dot, column = name.partition(".")
        if name in schema.column_names or not dot or image not in ("old", "new"):
            image, column = "old" if is_delete else "new", name
        schema.column(column)
        found.append(ReturnedColumn(name, column, image == "old"))
    if not found:
        raise PredicateError("returning names at least one column; pass None for none")
    _refuse_twice([each.name for each in found], "returned column")
    return tuple(found)


def predicate_of(where: Where, first_positional: int = 0) -> Expr | None:
    """Give a WHERE as an expression; None for every row.

    Raises
    ------
    PredicateError
        If it is malformed text, or something else.
    """
    if where is None:
        return None
    if isinstance(where, bool):
        raise PredicateError(
            f"the predicate is {where}, not an expression: was a comparison evaluated by Python, "
            "for example by 'and', 'in' or a column's name instead of col(name)?"
        )
    if isinstance(where, str) and where.lower() in ("true", "false"):
        return lit(where.lower() == "true")
    return expression_of(where, first_positional)


def having_of(having: Where) -> Expr | None:
    """Give a HAVING as an expression over output columns; None keeps every group."""
    found = predicate_of(having)
    if found is not None and placeholders([found]):
        raise PredicateError("having takes no parameters; write the constants into it")
    return found


def orderings_of(order_by: OrderBy) -> tuple[Ordering, ...]:
    """Give ORDER BY items; text may end in ``asc`` or ``desc``."""
    if order_by is None:
        return ()
    listed = [order_by] if isinstance(order_by, (Expr, str, Ordering)) else order_by
    orderings = tuple(_ordering(item) for item in listed)
    if placeholders(ordering.term for ordering in orderings):
        raise PredicateError("order_by takes no parameters")
    return orderings


def with_sort_keys(
    template: Template, orderings: Sequence[Ordering], schema: TableSchema
) -> tuple[Template, tuple[tuple[int, bool], ...]]:
    """Add sort keys to a read as its last output columns, the primary key as the last of them.

    Columns that are output anyway are not added.

    Returns
    -------
    Template
    tuple of (int, bool)
        For each sort key its output column, and whether it is descending.
    """
    outputs = list(template.outputs or ((name, ColumnName(name)) for name in schema.column_names))
    terms = dict(outputs)
    places = {term.name: place for place, (_, term) in enumerate(outputs) if isinstance(term, ColumnName)}
    order: list[tuple[int, bool]] = []

    def add(name: str, term: Expr, is_descending: bool) -> None:
        place = places.get(term.name) if isinstance(term, ColumnName) else None
        if place is None:
            place = len(outputs)
            outputs.append((name, term))
        order.append((place, is_descending))

    for index, ordering in enumerate(orderings):
        term = ordering.term
        # A name that stands for an output column means that column, as in SQL.
        if isinstance(term, ColumnName):
            term = terms.get(term.name, term)
        add(f"order by {index}", term, ordering.is_descending)
    for name in schema.primary_key:
        add(f"key {name}", ColumnName(name), False)
    return replace(template, outputs=tuple(outputs)), tuple(order)


def limit_of(limit: int | None, offset: int) -> Expr | None:
    """Give how many rows storages are asked for: those that are left out count too.

    Raises
    ------
    PredicateError
        If one of them is no number of rows.
    """
    for name, number in (("limit", limit), ("offset", offset)):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise PredicateError(f"{name} is a number of rows, not {number!r}")
    return None if limit is None else lit(min(limit + offset, INT64_MAX))


def _outputs(columns: Columns) -> tuple[tuple[str, Expr], ...]:
    outputs: list[tuple[str, Expr]] = []
    listed = () if columns is None else [columns] if isinstance(columns, (Expr, str)) else columns
    for column in listed:
        outputs.append(_output(column, _n_positional(outputs)))
    _refuse_twice([name for name, _ in outputs], "output column")
    return tuple(outputs)


def _ordering(item: ExpressionLike | Ordering) -> Ordering:
    if isinstance(item, Ordering):
        return item
    if isinstance(item, str):
        head, _, direction = item.strip().rpartition(" ")
        if head and direction.lower() in ("asc", "desc"):
            return Ordering(expression_of(head.strip()), direction.lower() == "desc")
        item = item.strip()
    return Ordering(expression_of(item), False)


def _output(column: ExpressionLike, first_positional: int) -> tuple[str, Expr]:
    if isinstance(column, str) and not column.isidentifier():
        from crescando.sql.where import parse_output

        return parse_output(column, first_positional)
    expression = expression_of(column)
    if isinstance(expression, Aliased):
        return expression.name, expression.term
    return expression.name if isinstance(expression, ColumnName) else repr(expression), expression


def _n_positional(named: Sequence[tuple[str, Expr]]) -> int:
    return sum(isinstance(key, int) for key in placeholders(term for _, term in named))


def _refuse_twice(names: Sequence[str], what: str) -> None:
    for name in names:
        if names.count(name) > 1:
            raise PredicateError(f"the {what} {name!r} is named twice")
