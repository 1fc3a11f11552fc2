"""What comes from outside is checked: shapes against the allow-list, parameters against shapes."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest

from crescando.engine.functions import OPERATORS, Cause, aggregate_type, result_type
from crescando.engine.statement import (
    Aggregate,
    Apply,
    Assignment,
    Column,
    ColumnRef,
    Kind,
    Parameter,
    Projection,
    Shape,
    Term,
)
from crescando.engine.validate import DEPTH_MAX, NODES_MAX, StaleShape, validate_parameters, validate_shape
from crescando.errors import KeyUpdateError, PredicateError, StatementError, TypeMismatchError
from crescando.schema import DataType
from tests.engine.workbench import apply, par, table

BOOL, INT64, STRING = DataType.BOOL, DataType.INT64, DataType.STRING
SCHEMA = table(("s", STRING), ("x", DataType.INT32), ("f", DataType.FLOAT64))
K, S, X, F = (ColumnRef(column.id, column.type) for column in SCHEMA.columns)
TEST = Apply("=", (X, Parameter(0, INT64)), BOOL)

ROUNDED = Apply("round", (F,), F.type)


def read(where: Term | None, *outputs: Term) -> Shape:
    projections = tuple(Projection(f"p{i}", term) for i, term in enumerate(outputs or (X,)))
    return Shape(Kind.READ, 1, 1, where, projections)


def nest(depth: int) -> Term:
    term: Term = TEST
    for _ in range(depth - 2):
        term = Apply("not", (term,), BOOL)
    return term


GOOD = [
    read(None),
    read(TEST, S, apply("lower", S), apply("round", F, par(0, INT64))),
    read(Apply("or", (TEST,) * 5_000, BOOL)),
    read(nest(DEPTH_MAX)),
    read(apply("in", F, par(0, INT64, True))),
    Shape(Kind.READ, 1, 99, None, aggregates=(Aggregate("count", None, "n"), Aggregate("avg", X, "a"))),
    Shape(Kind.UPDATE, 1, 1, TEST, assignments=(Assignment(2, apply("+", X, par(1, INT64))),)),
    Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(3, X),)),
    Shape(Kind.DELETE, 1, 1, TEST),
    Shape(Kind.INSERT, 1, 1, columns=(3, 0)),
    Shape(Kind.UPSERT, 1, 1, columns=(0, 1, 2, 3)),
]


@pytest.mark.parametrize("shape", GOOD, ids=range(len(GOOD)))
def test_good_shapes_pass_and_survive_the_wire(shape: Shape) -> None:
    validate_shape(shape, SCHEMA)
    assert Shape.decode(shape.encode()) == shape


BAD: list[tuple[Shape, type[Exception]]] = [
    (read(X), TypeMismatchError),
    (read(Apply("system", (X,), BOOL)), TypeMismatchError),
    (read(Apply("__import__('os')", (), BOOL)), TypeMismatchError),
    (read(Apply("=", (X,), BOOL)), TypeMismatchError),
    (read(Apply("=", (X, S), BOOL)), TypeMismatchError),
    (read(Apply("=", (X, X), INT64)), TypeMismatchError),
    (read(Apply("and", (TEST,), BOOL)), TypeMismatchError),
    (read(Apply("cast", (X, X), INT64)), TypeMismatchError),
    (read(Apply("=", (Apply("cast", (F,), STRING), S), BOOL)), TypeMismatchError),
    (read(Apply("=", (Apply("round", (F,), DataType.FLOAT64), F), BOOL)), PredicateError),
    (read(Apply("=", (X, Parameter(0, INT64, True)), BOOL)), PredicateError),
    (read(Apply("in", (X, X), BOOL)), PredicateError),
    (read(Apply("in", (X, Parameter(0, INT64)), BOOL)), PredicateError),
    (read(Apply("like", (S, S), BOOL)), PredicateError),
    (read(Apply("=", (X, Parameter(-1, INT64)), BOOL)), PredicateError),
    (read(Apply("=", (X, Parameter(1 << 40, INT64)), BOOL)), PredicateError),
    (read(nest(DEPTH_MAX + 1)), PredicateError),
    (read(Apply("or", (TEST,) * (NODES_MAX // 3 + 1), BOOL)), PredicateError),
    (read(None, Apply("round", (F, X), DataType.FLOAT64)), PredicateError),
    (Shape(Kind.READ, 1, 1), StatementError),
    (Shape(Kind.READ, 1, 1, None, (Projection("a", X),), (Aggregate("count", None, "n"),)), StatementError),
    (Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate("median", X, "m"),)), TypeMismatchError),
    (Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate("sum", S, "m"),)), TypeMismatchError),
    (Shape(Kind.READ, 1, 1, None, aggregates=(Aggregate("sum", None, "m"),)), TypeMismatchError),
    (Shape(Kind.READ, 1, 1, None, (Projection("a", X),), columns=(0,)), StatementError),
    (Shape(Kind.DELETE, 1, 1, None, (Projection("a", X),)), StatementError),
    (Shape(Kind.UPDATE, 1, 1, None), StatementError),
    (Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(0, X),)), KeyUpdateError),
    (Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(2, F),)), TypeMismatchError),
    (Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(2, X), Assignment(2, X))), StatementError),
    (
        Shape(Kind.UPDATE, 1, 1, None, assignments=(Assignment(3, Apply("round", (F,), F.type)),)),
        PredicateError,
    ),
    (Shape(Kind.INSERT, 1, 1, columns=(1, 2)), StatementError),
    (Shape(Kind.INSERT, 1, 1, columns=(0, 0)), StatementError),
    (Shape(Kind.INSERT, 1, 1, TEST, columns=(0,)), StatementError),
    (read(Apply("=", (ColumnRef(9, INT64), Parameter(0, INT64)), BOOL)), StaleShape),
    (read(Apply("=", (ColumnRef(2, INT64), Parameter(0, INT64)), BOOL)), StaleShape),
    (Shape(Kind.INSERT, 1, 1, columns=(0, 9)), StaleShape),
    (Shape(Kind.DELETE, 5, 1, TEST), StaleShape),
]


@pytest.mark.parametrize(("shape", "error"), BAD, ids=range(len(BAD)))
def test_bad_shapes_are_refused(shape: Shape, error: type[Exception]) -> None:
    with pytest.raises(error):
        validate_shape(shape, SCHEMA)


def test_an_upsert_needs_a_primary_key() -> None:
    with pytest.raises(StatementError, match="no primary key"):
        validate_shape(Shape(Kind.UPSERT, 1, 1, columns=(0,)), table(primary_key=()))


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (INT64, "1"),
        (INT64, 1.0),
        (INT64, True),
        (INT64, 1 << 63),
        (DataType.INT8, 128),
        (DataType.FLOAT64, 1),
        (STRING, 1),
        (STRING, b"a"),
        (BOOL, 1),
        (INT64, (1,)),
        (INT64, [1]),
    ],
)
def test_parameters_of_another_type_are_refused(kind: DataType, value: Any) -> None:
    shape = read(Apply("is_null", (Parameter(0, kind),), BOOL))
    with pytest.raises(TypeMismatchError):
        validate_parameters(shape, SCHEMA, (value,))
    with pytest.raises(StatementError):
        validate_parameters(shape, SCHEMA, ())
    validate_parameters(shape, SCHEMA, (None,))


@pytest.mark.parametrize(
    "column",
    [
        5,
        Column(DataType.INT64, np.array([1])),
        Column(DataType.INT32, np.array([1])),
        Column(DataType.INT32, np.array([[1]], np.int32)),
        Column(DataType.INT32, np.array([1], np.int32), np.array([1])),
        Column(DataType.INT32, np.array([1], np.int32), np.array([True, False])),
        Column(DataType.INT32, np.array([1, 2], np.int32)),
    ],
)
def test_rows_of_another_form_are_refused(column: Any) -> None:
    shape = Shape(Kind.INSERT, 1, 1, columns=(0, 2))
    with pytest.raises(StatementError):
        validate_parameters(shape, SCHEMA, (Column(INT64, np.array([1])), column))


@pytest.mark.parametrize(("codes", "dictionary"), [([1], ("a",)), ([-1], ("a",)), ([0], (b"a",)), ([0], ())])
def test_faulty_codes_and_dictionaries_are_refused(codes: list[int], dictionary: tuple[Any, ...]) -> None:
    shape = Shape(Kind.INSERT, 1, 1, columns=(0, 1))
    text = Column(STRING, np.array(codes, np.int32), None, dictionary)
    with pytest.raises(TypeMismatchError):
        validate_parameters(shape, SCHEMA, (Column(INT64, np.array([1])), text))


def test_a_faulty_encoding_is_refused_by_the_decoder() -> None:
    good = GOOD[1].encode()
    for cut in range(len(good)):
        with pytest.raises((msgspec.DecodeError, msgspec.ValidationError)):
            Shape.decode(good[:cut])


def test_every_operator_refuses_types_it_does_not_take() -> None:
    takes_anything = {"is_null", "coalesce"}
    for name, operator in OPERATORS.items():
        least, _ = operator.arity
        with pytest.raises(TypeMismatchError):
            result_type(name, [])
        kinds = [DataType.TIMESTAMP, STRING, BOOL, INT64][: max(least, 1)]
        if name not in takes_anything and len(kinds) > 1:
            with pytest.raises(TypeMismatchError):
                result_type(name, kinds)


def test_every_cause_has_a_text() -> None:
    assert len({cause.text for cause in Cause}) == len(Cause)
    assert aggregate_type("sum", DataType.FLOAT32) is DataType.FLOAT64
