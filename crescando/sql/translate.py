"""From the parser's tree to an expression, by an allow-list.

Rules of the file: a node is translated only if its class is listed *and* all
its arguments are understood; everything else is refused with its position, so
that a newer parser can add syntax but never meaning. SQL's ``/`` is the
dividing of SQL (two integers give an integer), unlike Python's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from crescando.client import functions as f
from crescando.client.constant import parse_date, parse_timestamp
from crescando.client.expression import (
    Call,
    ColumnName,
    Expr,
    Literal,
    Membership,
    Placeholder,
    call,
    connect,
)
from crescando.errors import PredicateError, SpecError, TypeMismatchError
from crescando.schema import DataType
from crescando.sql.lexer import FUNCTION, TYPE, Source, number

Node = Any
"""A sqlglot expression; its package is an extra and ships types that change."""

_BINARY = {
    "EQ": "=",
    "NEQ": "<>",
    "LT": "<",
    "LTE": "<=",
    "GT": ">",
    "GTE": ">=",
    "Add": "+",
    "Sub": "-",
    "Mul": "*",
    "Mod": "%",
    "Div": "div",
    "DPipe": "concat",
}

_UNIT_FUNCTIONS = ("year", "month", "day", "hour", "minute", "second", "dow")

_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Expr]]] = {
    "abs": (1, 1, lambda x: call("abs", x)),
    "floor": (1, 1, lambda x: call("floor", x)),
    "round": (1, 2, lambda *args: call("round", *args)),
    "lower": (1, 1, lambda x: call("lower", x)),
    "upper": (1, 1, lambda x: call("upper", x)),
    "length": (1, 1, lambda x: call("length", x)),
    "char_length": (1, 1, lambda x: call("length", x)),
    "substr": (2, 3, lambda *args: call("substr", *args)),
    "substring": (2, 3, lambda *args: call("substr", *args)),
    "concat": (1, 64, f.concat),
    "coalesce": (1, 64, f.coalesce),
    "ifnull": (2, 2, f.coalesce),
    "nullif": (2, 2, f.nullif),
    "mod": (2, 2, lambda x, y: call("%", x, y)),
    "div": (2, 2, f.div),
    "truediv": (2, 2, lambda x, y: call("truediv", x, y)),
    "floordiv": (2, 2, lambda x, y: call("floordiv", x, y)),
    "date_add": (2, 2, f.date_add),
    "date_diff": (2, 2, f.date_diff),
    **{unit: (1, 1, lambda x, unit=unit: x.extract(unit)) for unit in _UNIT_FUNCTIONS},
}


class Translator:
    """Translates one parsed text.

    Parameters
    ----------
    source : Source
        The text that was parsed, for positions and placeholders.
    """

    def __init__(self, source: Source) -> None:
        self._source = source

    def expression(self, node: Node) -> Expr:
        """Give a node as an expression.

        Raises
        ------
        PredicateError
            With the position of what is not offered.
        """
        name = type(node).__name__
        if name in _BINARY:
            # Flags of the parser's own: it writes the same text whatever they say.
            self._only(node, "this", "expression", "typed", "safe")
            return call(_BINARY[name], self.expression(node.this), self.expression(node.expression))
        handler = _HANDLERS.get(name)
        if handler is None:
            raise self._refusal(node, f"{name.upper()} is not offered in a predicate")
        return handler(self, node)

    # Logic.
    def _logic(self, node: Node) -> Expr:
        """Walk down the left spine of a chain, which may be thousands long."""
        kind = type(node)
        terms: list[Expr] = []
        while type(node) is kind:
            self._only(node, "this", "expression")
            terms.append(self.expression(node.expression))
            node = node.this
        terms.append(self.expression(node))
        return connect("and" if kind.__name__ == "And" else "or", *reversed(terms))

    def _not(self, node: Node) -> Expr:
        self._only(node, "this")
        return ~self.expression(node.this)

    def _paren(self, node: Node) -> Expr:
        self._only(node, "this")
        return self.expression(node.this)

    # Predicates.
    def _is(self, node: Node) -> Expr:
        self._only(node, "this", "expression")
        tested, what = self.expression(node.this), node.expression
        if type(what).__name__ == "Null":
            return tested.is_null()
        if type(what).__name__ == "Boolean":
            return tested.is_true() if what.this else tested.is_false()
        raise self._refusal(node, "IS tests for NULL, TRUE, FALSE or UNKNOWN; write = to compare")

    def _between(self, node: Node) -> Expr:
        self._only(node, "this", "low", "high")
        tested = self.expression(node.this)
        return tested.between(self.expression(node.args["low"]), self.expression(node.args["high"]))

    def _like(self, node: Node) -> Expr:
        self._only(node, "this", "expression", "negate")
        matched = call("like", self.expression(node.this), self.expression(node.expression))
        return ~matched if node.args.get("negate") else matched

    def _in(self, node: Node) -> Expr:
        self._only(node, "this", "expressions", "field")
        tested = self.expression(node.this)
        field = node.args.get("field")
        if field is not None:
            listed = self.expression(field)
            if not isinstance(listed, Placeholder):
                raise self._refusal(field, "IN takes a list in parentheses, or one parameter bound to a list")
            return Membership(tested, listed)
        items: list[Node] = list(node.args.get("expressions") or ())
        if len(items) == 1 and type(items[0]).__name__ == "Placeholder" and items[0].this[0] == "l":
            return Membership(tested, self._source.lists[int(items[0].this[1:])])
        constants: list[Any] = []
        others: list[Expr] = []
        for item in map(self.expression, items):
            if isinstance(item, (Literal, Placeholder)):
                constants.append(item.value if isinstance(item, Literal) else item)
            else:
                others.append(call("=", tested, item))
        if constants or not others:
            others.insert(0, Membership(tested, tuple(constants)))
        return connect("or", *others)

    # Values.
    def _column(self, node: Node) -> Expr:
        self._only(node, "this")
        self._only(node.this, "this", "quoted")
        return ColumnName(node.this.this)

    def _literal(self, node: Node) -> Expr:
        text = node.this
        if node.is_string:
            return Literal(self._source.strings[int(text)])
        return Literal(number(text))

    def _boolean(self, node: Node) -> Expr:
        return Literal(bool(node.this))

    def _null(self, node: Node) -> Expr:
        return Literal(None)

    def _placeholder(self, node: Node) -> Expr:
        return Placeholder(self._source.keys[int(node.this[1:])])

    def _neg(self, node: Node) -> Expr:
        self._only(node, "this")
        return -self.expression(node.this)

    def _case(self, node: Node) -> Expr:
        self._only(node, "this", "ifs", "default")
        subject = None if node.this is None else self.expression(node.this)
        branches: list[Expr] = []
        for branch in node.args["ifs"]:
            self._only(branch, "this", "true")
            condition = self.expression(branch.this)
            branches.append(condition if subject is None else call("=", subject, condition))
            branches.append(self.expression(branch.args["true"]))
        default = node.args.get("default")
        return Call("case", (*branches, Literal(None) if default is None else self.expression(default)))

    def _cast(self, node: Node) -> Expr:
        self._only(node, "this", "to")
        target = node.args["to"]
        kind, operand = target.args.get("kind"), node.this
        if isinstance(kind, str) and kind == f"{TYPE}decimal":
            return self.expression(operand).cast(self._decimal(node, target.args.get("expressions") or ()))
        if isinstance(kind, str) and kind.startswith(TYPE) and not target.args.get("expressions"):
            return self.expression(operand).cast(DataType(kind.removeprefix(TYPE)))
        if type(operand).__name__ != "Literal" or not operand.is_string:
            raise self._refusal(node, "CAST takes a type without arguments")
        read = parse_date if target.this.name == "DATE" else parse_timestamp
        try:
            return Literal(read(self._source.strings[int(operand.this)]))
        except TypeMismatchError as error:
            raise self._refusal(operand, str(error)) from error

    def _decimal(self, node: Node, listed: Sequence[Node]) -> DataType:
        literals = [each.this for each in listed]
        # A text in front of the parser is a number between quotes.
        numbers = [str(each.this) for each in literals if not getattr(each, "is_string", True)]
        if (
            len(numbers) != len(listed)
            or not 1 <= len(numbers) <= 2
            or not all(each.isdecimal() and len(each) < 4 for each in numbers)
        ):
            raise self._refusal(node, "write DECIMAL(precision, scale), for example DECIMAL(9, 2)")
        try:
            return DataType.decimal(*map(int, numbers))
        except SpecError as error:
            raise self._refusal(node, str(error)) from error

    def _extract(self, node: Node) -> Expr:
        self._only(node, "this", "expression")
        operand = self.expression(node.expression)
        return self._in_unit(node, operand.extract, str(node.this.name))

    def _function(self, node: Node) -> Expr:
        self._only(node, "this", "expressions")
        name = str(node.this).removeprefix(FUNCTION)
        args = [self.expression(arg) for arg in node.args.get("expressions") or ()]
        if name in ("date_trunc", "date_part") and len(args) == 2 and isinstance(args[0], Literal):
            apply = args[1].trunc if name == "date_trunc" else args[1].extract
            return self._in_unit(node, apply, str(args[0].value))
        if name not in _FUNCTIONS:
            known = ", ".join(sorted([*_FUNCTIONS, "date_part", "date_trunc"]))
            raise self._refusal(node, f"there is no function {name}(); the functions are {known}")
        least, most, build = _FUNCTIONS[name]
        if not least <= len(args) <= most:
            wanted = str(least) if least == most else f"{least} to {most}"
            raise self._refusal(node, f"{name}() takes {wanted} arguments, not {len(args)}")
        return build(*args)

    def _in_unit(self, node: Node, apply: Callable[[str], Expr], unit: str) -> Expr:
        try:
            return apply(unit)
        except PredicateError as error:
            raise self._refusal(node, error.message) from error

    # Refusals.
    def _only(self, node: Node, *understood: str) -> None:
        for name, value in node.args.items():
            if name not in understood and value not in (None, False, [], "") and not name.startswith("_"):
                raise self._refusal(node, f"{type(node).__name__.upper()} with {name!r} is not offered")

    def _refusal(self, node: Node, message: str) -> PredicateError:
        starts = list(_starts(node))
        position = self._source.position(min(starts)) if starts else 0
        return PredicateError(message, self._source.original, position)


def _starts(node: Node) -> Iterator[int]:
    for each in node.walk():
        start = each.meta.get("start")
        if isinstance(start, int):
            yield start


_HANDLERS: dict[str, Callable[[Translator, Node], Expr]] = {
    "And": Translator._logic,
    "Or": Translator._logic,
    "Not": Translator._not,
    "Paren": Translator._paren,
    "Is": Translator._is,
    "Between": Translator._between,
    "Like": Translator._like,
    "In": Translator._in,
    "Column": Translator._column,
    "Literal": Translator._literal,
    "Boolean": Translator._boolean,
    "Null": Translator._null,
    "Placeholder": Translator._placeholder,
    "Neg": Translator._neg,
    "Case": Translator._case,
    "Cast": Translator._cast,
    "Extract": Translator._extract,
    "Anonymous": Translator._function,
}
