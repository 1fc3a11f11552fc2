"""Text in, expressions out: WHERE predicates, SET lists and output columns.

Rules of the file: text becomes a tree here and travels no further; constants
in it end up as parameters like any others. Parsing is the work of sqlglot, an
extra (``crescando[sql]``), behind the lexer's checks in front and an allow-list
behind (`crescando.sql.translate`). Text that is refused says where.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any

from crescando.client.expression import Call, Expr, Literal, Membership, Placeholder
from crescando.client.slot import bindings, placeholders
from crescando.errors import PredicateError
from crescando.sql.lexer import Source, Token, check_chains, tokenize, write_out
from crescando.sql.translate import Translator


@lru_cache(maxsize=4096)
def parse_where(text: str, first_positional: int = 0) -> Expr:
    """Give the expression that a text stands for, its placeholders unbound.

    Parameters
    ----------
    text : str
        ``?`` stands for the next value of a sequence, ``:name`` for a value of
        a mapping; a parameter after IN may be bound to a list.
    first_positional : int
        Number of the first ``?``.

    Raises
    ------
    PredicateError
        With text and position, if it is malformed or not offered; without a
        position, if the extra is not installed.

    Examples
    --------
    >>> parse_where("origin = ? AND dep_delay > 60")
    (col('origin') == param(0)) & (col('dep_delay') > 60)
    """
    return _parse(tokenize(text), text, first_positional)


def parse_expression(text: str, params: Sequence[object] | Mapping[str, object] = ()) -> Expr:
    """Give the expression that a text and its parameters stand for.

    Raises
    ------
    PredicateError
        As `parse_where`; also if parameters are missing or left over.
    """
    expression = parse_where(text)
    return substitute(expression, params)


def parse_assignments(text: str) -> tuple[tuple[str, Expr], ...]:
    """Give the columns and expressions of a SET list: ``status = ?, delay = delay + 5``.

    Raises
    ------
    PredicateError
        As `parse_where`.
    """
    assignments: list[tuple[str, Expr]] = []
    n_positional = 0
    for tokens in _split(tokenize(text), text):
        if len(tokens) < 3 or tokens[0].kind not in ("word", "quoted") or tokens[1].text != "=":
            raise PredicateError("SET is a list of: column = expression", text, tokens[0].start)
        assignments.append((_name(tokens[0]), _parse(tokens[2:], text, n_positional)))
        n_positional += sum(token.kind == "positional" for token in tokens)
    return tuple(assignments)


def parse_output(text: str, first_positional: int = 0) -> tuple[str, Expr]:
    """Give name and expression of an output column: ``upper(origin) AS o``, or without a name.

    Raises
    ------
    PredicateError
        As `parse_where`.
    """
    tokens = tokenize(text)
    if len(tokens) > 2 and tokens[-2].is_word("as") and tokens[-1].kind in ("word", "quoted"):
        return _name(tokens[-1]), _parse(tokens[:-2], text, first_positional)
    return text, _parse(tokens, text, first_positional)


def substitute(expression: Expr, params: Sequence[object] | Mapping[str, object]) -> Expr:
    """Give the expression with its placeholders replaced by values.

    Raises
    ------
    PredicateError
        If values are missing or left over.
    """
    values = bindings(placeholders([expression]), params)
    return _substituted(expression, values) if values else expression


def _substituted(expression: Expr, values: Mapping[int | str, Any]) -> Expr:
    match expression:
        case Placeholder():
            return Literal(values[expression.key])
        case Call():
            return Call(
                expression.op, tuple(_substituted(arg, values) for arg in expression.args), expression.target
            )
        case Membership():
            source = expression.values
            listed = (
                values[source.key]
                if isinstance(source, Placeholder)
                else tuple(values[each.key] if isinstance(each, Placeholder) else each for each in source)
            )
            return _substituted(expression.term, values).isin(listed)
    return expression


def _split(tokens: Sequence[Token], text: str) -> list[list[Token]]:
    """Cut a token list at the commas that stand outside of parentheses."""
    items: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and depth == 0:
            items.append([])
        else:
            items[-1].append(token)
    for item in items:
        if not item:
            raise PredicateError("a comma too many in the list", text, tokens[-1].start)
    return items


def _name(token: Token) -> str:
    return token.text if token.kind == "word" else token.text[1:-1].replace('""', '"')


def _parse(tokens: Sequence[Token], text: str, first_positional: int) -> Expr:
    check_chains(tokens, text)
    source = write_out(tokens, text, first_positional)
    try:
        return Translator(source).expression(_tree(source))
    except RecursionError:
        raise PredicateError("the text is nested too deeply", text, 0) from None


def _tree(source: Source) -> Any:
    try:
        import sqlglot
        from sqlglot import expressions
        from sqlglot.errors import ParseError, SqlglotError
    except ImportError as error:
        raise PredicateError(
            "predicates as text need the extra 'sql' (pip install 'crescando[sql]'); "
            "expressions such as col('origin') == 'JFK' need nothing",
            source.original,
        ) from error
    try:
        return sqlglot.parse_one(source.text, into=expressions.Condition)
    except ParseError as error:
        found = error.errors[0] if error.errors else {}
        description = str(found.get("description") or "the text is malformed")
        # The parser names its own classes for what is missing; users know none of them.
        if description.startswith("Required keyword"):
            description = "something is missing after this"
        at = int(found.get("col") or 1) - len(str(found.get("highlight") or " "))
        raise PredicateError(
            _first_lower(description), source.original, source.position(max(at, 0))
        ) from error
    except SqlglotError as error:
        raise PredicateError("the text is malformed", source.original, 0) from error


def _first_lower(text: str) -> str:
    return text[:1].lower() + text[1:]
