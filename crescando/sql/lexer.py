"""Tokens of predicate text, checked before any parser sees them.

Rules of the file: only the characters and words that the dialect has get
through, each token knows where it stood, and sizes and nesting are bounded, so
that the parser behind can neither be led into other statements nor be kept
busy. It never sees a name that means something to it, nor any text: columns are
handed on in quotes, functions, types and placeholders under names of ours,
constant texts as numbers.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from itertools import pairwise
from typing import TypeVar

from crescando.client.constant import Numeral
from crescando.errors import PredicateError

T = TypeVar("T")

LENGTH_MAX = 64 * 1024
"""Characters of one text; longer lists belong into a bound parameter."""

TOKENS_MAX = 1_000
"""Tokens of one text, where a list of constants after IN is one: the parser takes some 10 µs for each,
and a scan some 20 µs for what each of them says."""

NUMBER_MAX = 1_100
"""Characters of one number; the longest float written out in full has some 1,080."""

NESTING_MAX = 32
"""Parentheses, CASE and prefix operators inside each other; the parser needs some twenty frames a level."""

# fmt: off
KEYWORDS = frozenset({
    "and", "as", "between", "case", "cast", "date", "else", "end", "extract", "false", "from", "in",
    "is", "like", "not", "null", "or", "then", "timestamp", "true", "unknown", "when",
})
# fmt: on

TYPES = {
    "bool": "bool",
    "boolean": "bool",
    "int8": "int8",
    "tinyint": "int8",
    "int16": "int16",
    "smallint": "int16",
    "int32": "int32",
    "int": "int32",
    "integer": "int32",
    "int64": "int64",
    "bigint": "int64",
    "decimal": "decimal",
    "numeric": "decimal",
    "float32": "float32",
    "real": "float32",
    "float64": "float64",
    "double": "float64",
    "float": "float64",
    "string": "string",
    "text": "string",
    "varchar": "string",
    "date": "date",
    "timestamp": "timestamp",
    "timestamptz": "timestamp",
}
"""What may stand after AS in a CAST, and the type it names."""

COMPARISONS = frozenset({"=", "==", "<>", "!=", "<", "<=", ">", ">="})

_TOKEN = re.compile(
    r"""
    (?P<space>\s+)
  | (?P<string>'(?:[^']|'')*')
  | (?P<quoted>"(?:[^"\n]|"")+")
  | (?P<number>(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?)
  | (?P<named>(?<!:):[A-Za-z_]\w*)
  | (?P<positional>\?)
  | (?P<word>[^\W\d]\w*)
  | (?P<operator><>|<=|>=|==|!=|\|\||::|[-+*/%=<>(),])
    """,
    re.VERBOSE,
)

_ITEM = r"""
    (?: [-+]?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)? | '(?:[^']|'')*+' | (?i:null|true|false) ) (?=\s*[,)])
"""
_LIST = re.compile(rf"\s*+(?P<list>\(\s*+{_ITEM}(?:\s*+,\s*+{_ITEM})*+\s*+\))", re.VERBOSE)
"""Constants in parentheses, which need no parser."""

_EACH = re.compile(_ITEM, re.VERBOSE)

_HINTS: tuple[tuple[str, str], ...] = (
    ("--", "comments are not part of a predicate"),
    ("/*", "comments are not part of a predicate"),
    ("&&", "write AND"),
    ("&", "write AND (the & operator belongs to Python expressions)"),
    ("|", "write OR (the | operator belongs to Python expressions)"),
    ("~", "write NOT (the ~ operator belongs to Python expressions)"),
    ("//", "write floor(a / b), or use Python expressions"),
    (";", "one predicate ends without a semicolon"),
    ("'", "the text that begins here has no closing quote"),
    ('"', "the name that begins here has no closing quote"),
    ("!", "write NOT or <>"),
    ("$", "write ? or :name for a parameter"),
    ("@", "write ? or :name for a parameter"),
    ("`", 'names are quoted as "name"'),
    ("[", 'names are quoted as "name", and lists are written (a, b)'),
    (".", "names are not qualified; write the column alone"),
)


@dataclass(slots=True)
class Token:
    """One token: its class, its text and where it stood."""

    kind: str
    text: str
    start: int

    def is_word(self, *words: str) -> bool:
        """Say whether it is one of these keywords, in any case."""
        return self.kind == "word" and self.text.lower() in words


def tokenize(text: str) -> list[Token]:
    """Cut a text into tokens, without white space.

    Raises
    ------
    PredicateError
        With the position of the first fault.
    """
    if not isinstance(text, str):
        raise PredicateError(f"a predicate is a str or an expression, not {text!r}")
    if len(text) > LENGTH_MAX:
        raise PredicateError(
            f"the text has {len(text)} characters and at most {LENGTH_MAX} are read; "
            "pass long lists as one bound parameter",
            text,
            LENGTH_MAX,
        )
    tokens: list[Token] = []
    at = 0
    while at < len(text):
        found = None
        if tokens and tokens[-1].is_word("in"):
            found = _LIST.match(text, at)
        if found is None and not text.startswith(("--", "/*", "//"), at):
            found = _TOKEN.match(text, at)
        if found is None:
            raise PredicateError(_hint(text, at), text, at)
        kind = str(found.lastgroup)
        if kind != "space":
            tokens.append(Token(kind, found.group(kind), found.start(kind)))
        at = found.end()
        if len(tokens) > TOKENS_MAX:
            break
    if not tokens:
        raise PredicateError("the text is empty", text, 0)
    _check_neighbours(tokens, text)
    _check_nesting(tokens, text)
    if len(tokens) > TOKENS_MAX:
        raise PredicateError(
            f"the text has more than {TOKENS_MAX} words and signs; "
            "compare with a list of constants by IN, or build long predicates from expressions",
            text,
            tokens[-1].start,
        )
    return tokens


def number(text: str) -> int | float:
    """Give the number that a token stands for.

    Without point and exponent it is an integer; with a point only, it is exact beside decimals.

    Raises
    ------
    PredicateError
        If it is written with more than `NUMBER_MAX` characters.
    """
    if len(text) > NUMBER_MAX:
        raise PredicateError(f"a number has at most {NUMBER_MAX} characters, not {len(text)}")
    digits = text[1:] if text[0] in "+-" else text
    if digits.isdecimal():
        return int(text)
    return float(text) if "e" in text.lower() else Numeral(Decimal(text))


def listed(text: str) -> tuple[int | float | str | bool | None, ...]:
    """Give the constants of a list token.

    Raises
    ------
    PredicateError
        As `number`.
    """
    return tuple(map(_constant, _EACH.findall(text)))


def _constant(text: str) -> int | float | str | bool | None:
    if text[0] == "'":
        return text[1:-1].replace("''", "'")
    word = text.lower()
    return _WORDS[word] if word in _WORDS else number(text)


_WORDS: dict[str, bool | None] = {"null": None, "true": True, "false": False}


def _hint(text: str, at: int) -> str:
    for start, hint in _HINTS:
        if text.startswith(start, at):
            return f"{start!r} is not understood: {hint}"
    return f"{text[at]!r} is not understood"


def _check_neighbours(tokens: Sequence[Token], text: str) -> None:
    for left, right in pairwise(tokens):
        values = ("string", "number", "named", "positional", "quoted", "list")
        if left.kind in values and right.kind in values:
            raise PredicateError("an operator or comma is missing", text, right.start)
        if (left.text in ("(", ",") and right.text == ",") or (left.text == "," and right.text == ")"):
            raise PredicateError("a comma too many", text, right.start)
        if left.kind == "number" and right.kind == "word" and right.start == left.start + len(left.text):
            raise PredicateError("a number ends before this letter", text, right.start)


def _check_nesting(tokens: Sequence[Token], text: str) -> None:
    depth = prefixes = 0
    for token in tokens:
        # A run of NOT or of signs nests like parentheses do.
        prefixes = prefixes + 1 if token.is_word("not") or token.text in ("-", "+") else 0
        if token.text == "(" or token.is_word("case"):
            depth += 1
        elif token.text == ")" or token.is_word("end"):
            depth -= 1
        if max(depth + prefixes, 0) > NESTING_MAX:
            raise PredicateError(f"the text is nested more than {NESTING_MAX} deep", text, token.start)
        if depth < 0:
            raise PredicateError(f"{token.text!r} closes nothing", text, token.start)


def check_chains(tokens: Sequence[Token], text: str) -> None:
    """Refuse ``a < b < c`` and ``a = b IS NULL``: SQL dialects read them differently.

    Raises
    ------
    PredicateError
        With the position of the second comparison.
    """
    compared = [False]
    betweens = [0]
    for token in tokens:
        if token.text == "(" or token.is_word("case"):
            compared.append(False)
            betweens.append(0)
        elif (token.text == ")" or token.is_word("end")) and len(compared) > 1:
            compared.pop()
            betweens.pop()
        elif token.is_word("and") and betweens[-1]:
            betweens[-1] -= 1
        elif token.is_word("and", "or", "when", "then", "else") or token.text == ",":
            compared[-1] = False
        elif token.text in COMPARISONS or token.is_word("is", "in", "like", "between"):
            if compared[-1]:
                raise PredicateError(
                    "comparisons are not chained: join two with AND, or put one in parentheses",
                    text,
                    token.start,
                )
            compared[-1] = True
            betweens[-1] += token.is_word("between")


@dataclass(frozen=True, slots=True)
class Source:
    """Tokens written out for the parser, with the way back to the user's text.

    Attributes
    ----------
    text : str
        What the parser reads.
    original : str
    keys : tuple
        Placeholder n of `text`, named ``p<n>``, is the user's ``keys[n]``.
    strings : tuple of str
        The constant text written as ``'n'`` in `text` is ``strings[n]``.
    lists : tuple of tuple
        The constants of the list written as ``(:l<n>)`` in `text` are ``lists[n]``.
    """

    text: str
    original: str
    keys: tuple[int | str, ...]
    strings: tuple[str, ...]
    lists: tuple[tuple[int | float | str | bool | None, ...], ...]
    _written: tuple[int, ...]
    _stood: tuple[int, ...]

    def position(self, written: int) -> int:
        """Give the offset in the user's text of an offset in `text`."""
        index = bisect_right(self._written, written) - 1
        return self._stood[max(index, 0)]


def write_out(tokens: Sequence[Token], original: str, first_positional: int = 0) -> Source:
    """Write tokens for the parser.

    Parameters
    ----------
    tokens : sequence of Token
    original : str
        The text they come from.
    first_positional : int
        Number of the first ``?``.

    Raises
    ------
    PredicateError
        If ``?`` and ``:name`` are mixed.
    """
    keys: list[int | str] = []
    strings: list[str] = []
    lists: list[tuple[int | float | str | bool | None, ...]] = []
    pieces: list[str] = []
    written: list[int] = []
    length = 0
    for index, token in enumerate(tokens):
        piece = token.text
        if token.kind in ("named", "positional"):
            is_named = token.kind == "named"
            if keys and is_named is not isinstance(keys[0], str):
                raise PredicateError("use either ? or :name for parameters, not both", original, token.start)
            keys.append(piece[1:] if is_named else first_positional + len(keys))
            piece = f":p{len(keys) - 1}"
        elif token.kind == "string":
            strings.append(piece[1:-1].replace("''", "'"))
            piece = f"'{len(strings) - 1}'"
        elif token.kind == "list":
            lists.append(_at(token, original, listed))
            piece = f"(:l{len(lists) - 1})"
        elif token.kind == "number":
            _at(token, original, number)
        elif token.kind == "word":
            piece = _word(tokens, index, original)
        pieces.append(piece)
        written.append(length)
        length += len(piece) + 1
    stood = tuple(token.start for token in tokens)
    return Source(
        " ".join(pieces), original, tuple(keys), tuple(strings), tuple(lists), tuple(written), stood
    )


def _at(token: Token, original: str, read: Callable[[str], T]) -> T:
    """Read a token; what is wrong with it is told with its position."""
    try:
        return read(token.text)
    except PredicateError as error:
        raise PredicateError(error.message, original, token.start) from None


FUNCTION, TYPE = "fn_", "type_"
"""What the names of functions and types begin with in front of the parser."""


def _word(tokens: Sequence[Token], index: int, original: str) -> str:
    """Write out a keyword as it is, a type or function under our name, and a column in quotes."""
    token = tokens[index]
    word = token.text.lower()
    previous = tokens[index - 1] if index else None
    following = tokens[index + 1] if index + 1 < len(tokens) else None
    if previous is not None and (previous.is_word("as") or previous.text == "::"):
        if word not in TYPES:
            known = ", ".join(dict.fromkeys(TYPES.values()))
            raise PredicateError(
                f"{token.text!r} is not a type; the types are {known}", original, token.start
            )
        return TYPE + TYPES[word]
    if word in ("date", "timestamp"):
        # A typed constant, or else a column or function of this name.
        is_keyword = following is not None and following.kind == "string"
    else:
        is_keyword = word in KEYWORDS
    if is_keyword:
        return word
    if following is not None and following.text == "(":
        return FUNCTION + word
    in_extract = index >= 2 and tokens[index - 1].text == "(" and tokens[index - 2].is_word("extract")
    return word if in_extract else f'"{token.text}"'
