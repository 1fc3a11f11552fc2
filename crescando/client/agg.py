"""Aggregates of a read: ``table.aggregate(n=agg.count(), late=agg.avg("dep_delay"))``.

Every function but ``count()`` takes a column name, a text expression (with the
extra ``crescando[sql]``) or an `Expr`. NULL is left out; over no rows, counts
are 0 and everything else is NULL. Integer sums are exact and fail beyond int64;
sums and averages of floats are rounded once.
"""

from __future__ import annotations

from crescando.client.template import AggregateCall
from crescando.client.textual import ExpressionLike, expression_of


def count(value: ExpressionLike | None = None) -> AggregateCall:
    """Count the rows, or the values that are not NULL."""
    return AggregateCall("count", None if value is None else expression_of(value))


def count_distinct(value: ExpressionLike) -> AggregateCall:
    """Count the different values that are not NULL."""
    return AggregateCall("count_distinct", expression_of(value))


def sum(value: ExpressionLike) -> AggregateCall:
    """Add the values up."""
    return AggregateCall("sum", expression_of(value))


def min(value: ExpressionLike) -> AggregateCall:
    """Give the least value."""
    return AggregateCall("min", expression_of(value))


def max(value: ExpressionLike) -> AggregateCall:
    """Give the greatest value."""
    return AggregateCall("max", expression_of(value))


def avg(value: ExpressionLike) -> AggregateCall:
    """Give the arithmetic mean, a float."""
    return AggregateCall("avg", expression_of(value))
