"""Hostile predicates: texts, expressions, trees and bytes that no honest client sends, and honest ones.

Every attack is made from a seed. An attack is a *text* or expression as it comes
from a caller, or the bytes of a shape with parameters as they come off the wire. It
may be refused or answered; `valid_text` gives texts that must be answered.
"""

from __future__ import annotations

import datetime as dt
import math
import re
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

import msgspec

from crescando.client.expression import Expr, col
from crescando.engine.statement import Apply, ColumnRef, Kind, Parameter, Projection, Shape, Term
from crescando.schema import DataType
from tests.engine.generator import World

MIB = 1 << 20
EPOCH = dt.date(1970, 1, 1)

NAMES = (
    "__class__", "__import__", "__builtins__", "a.__class__.__bases__", "().__class__", "eval", "exec",
    "open", "os.system", "lambda: 0", "sys", "globals()", "__import__('os').system('true')", "x0", "_",
    "__", "None", "[x for x in ().__class__.__base__.__subclasses__()]", "where(i > 0, 1, 2)", "sum(i)",
    "prod(i)", "arange(9)", "complex(i, 1)", "real(f)", "sqlite_version()", "load_extension('x')",
    "pg_sleep(9)", "i; DROP TABLE t", "(SELECT 1)", "i UNION SELECT 1", "i -- x", "i /* x */", "\"i", "'",
    "`i`", "[i]", "i.j", "@i", "$1", "%s", "{i}", "i := 1", "i ~ 'x'", "i && i", "EXISTS (SELECT 1)",
    "CAST(i AS pickle)", "i::regclass", "i COLLATE C",
)  # fmt: skip
"""What has no business in a predicate."""

PIECES = (
    "i", "f", "s", "b", "d", "1", "-1", "0", "2.5", "1e308", "'x'", "''", "NULL", "TRUE", "(", ")", ",",
    "+", "-", "*", "/", "%", "=", "<>", "<", ">=", "AND", "OR", "NOT", "IN", "BETWEEN", "IS", "LIKE",
    "CASE", "WHEN", "THEN", "ELSE", "END", "CAST", "AS", "int64", "abs", "substr", "||", "?", ":x",
    "coalesce", "round", "DATE", "EXTRACT",
)  # fmt: skip
"""Words of the dialect, for texts that are nearly right."""


@dataclass(frozen=True)
class Attack:
    """One hostile input: `source` is a text or a maker of an expression, or `body` the bytes of a shape."""

    name: str
    source: str | Callable[[], Expr] = ""
    body: bytes = b""
    parameters: tuple[Any, ...] = ()


def attack(random: Random, columns: dict[str, ColumnRef]) -> Attack:
    """Give a random attack on a table with these columns."""
    make = random.choice((*_TEXTS, *_TEXTS, _expression, *_TREES, *_TREES))
    made = make(random, columns) if make in _TREES else make(random)
    if isinstance(made, Attack):
        return made
    return Attack(make.__name__.strip("_"), made)


# Texts.
def _size(random: Random, most: int) -> int:
    """Give a size of any order of magnitude."""
    return int(math.exp(random.uniform(0, math.log(most))))


def _nested(random: Random) -> str:
    opening, middle, closing = random.choice(
        (
            ("(", "i = 1", ")"),
            ("NOT ", "i = 1", ""),
            ("- ", "i = 1", ""),
            ("+", "i = 1", ""),
            ("abs(", "i", ") = 1"),
            ("coalesce(i, ", "i", ") = 1"),
            ("CASE WHEN ", "b", " THEN b END"),
            ("CASE ", "b", " WHEN b THEN b WHEN NOT b THEN b END"),
            ("CASE WHEN b THEN ", "b", " ELSE b END"),
            ("(", "i", " BETWEEN 0 AND 1)"),
            ("(", "b", " IN (b, NOT b))"),
            ("CAST(", "i", " AS int64)"),
            ("(i = 1 AND ", "b", ")"),
            ("(", "i", " + i)"),
        )
    )
    depth = _size(random, 100_000)
    return opening * depth + middle + closing * (depth if random.random() < 0.9 else max(depth - 1, 0))


def _literal(random: Random) -> str:
    size = _size(random, 70_000)
    digits = "".join(random.choices("0123456789", k=min(size, 50))).ljust(size, "7")
    return random.choice(
        (
            f"i = {digits}",
            f"f < {digits}.{digits}",
            f"f = 1e{digits[:6]}",
            f"f > 0.{'0' * size}1",
            f"i + {digits} > 0",
            f"s = '{digits}'",
            f"s LIKE '{'%a' * (size // 2)}'",
            f"s = '{chr(0x1D11E) * (size // 4)}'",
            f"i IN ({digits}, 1)",
            f"d = '{digits[:12]}'",
        )
    )


def _list(random: Random) -> str:
    count = random.choice((0, 1, 10, 10_000, _size(random, 30_000)))
    constant = random.choice(
        (
            lambda n: str(n),
            lambda n: str(-n),
            lambda n: f"{n}.5",
            lambda n: f"'{n}'",
            lambda n: f"'{chr(97 + n % 26)}'",
            lambda n: "NULL" if n % 7 == 0 else str(n),
            lambda n: f"'{n}'" if n % 2 else str(n),
            lambda n: f"i + {n}",
            lambda n: f"({n})",
            lambda n: f"DATE '2020-01-{1 + n % 28:02}'",
        )
    )
    column = random.choice("ifsdb")
    text = f"{column} {random.choice(('IN', 'NOT IN', 'in'))} ({', '.join(map(constant, range(count)))})"
    return text if random.random() < 0.7 else text[: random.randrange(len(text))]


def _tower(random: Random) -> str:
    height = _size(random, 9_000)
    return random.choice(
        (
            "**".join(["9"] * height) + " = i",
            "^".join(["9"] * height) + " = i",
            "*".join(["99999999"] * height) + " = i",
            "*".join(["f"] * height) + " > 0",
            "+".join(["i"] * height) + " > 0",
            "||".join(["s"] * height) + " = 'x'",
            "pow(9, " * height + "9" + ")" * height + " = i",
            " || ".join(["'aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa'"] * height) + " > s",
            " % ".join(["i"] * height) + " = 0",
            "i / " * height + "0 = 1",
        )
    )


def _chain(random: Random) -> str:
    count = _size(random, 8_000)
    link = random.choice(
        ("i = {}", "f < {}.5", "s = '{}'", "i BETWEEN {} AND 7", "(b OR i <> {})", "s LIKE '%{}'")
    )
    joint = random.choice((" AND ", " OR ", " and ", ") OR ("))
    return joint.join(link.format(n) for n in range(count))


def _name(random: Random) -> str:
    name = random.choice(NAMES)
    return random.choice(
        ("{}", "{} = 1", "i = {}", "{}(i)", "i = 1 AND {}", '"{}" = 1', "abs({}) = 1")
    ).format(name)


def _megabyte(random: Random) -> str:
    piece = random.choice(
        ("(", ")", " ", "a", "'", '"', "1", "i = 1 OR ", "\0", "é", "NOT ", "-", "i,", "\n", "''")
    )
    return piece * (MIB // len(piece)) + random.choice(("", "i = 1", "'"))


def _soup(random: Random) -> str:
    return " ".join(random.choices(PIECES, k=_size(random, 60)))


def _noise(random: Random) -> str:
    top = random.choice((0x7F, 0x7F, 0x3FF, 0x10FFFF))
    return "".join(chr(random.randrange(top + 1)) for _ in range(_size(random, 400)))


def _mutant(random: Random) -> str:
    text = (
        "(i + 1) * 2 <= 7 AND s LIKE 'a%' OR NOT b IS TRUE AND f BETWEEN -1.5 AND 2e3 OR i IN (1, -2, NULL)"
    )
    letters = list(text)
    for _ in range(random.choice((1, 1, 2, 5))):
        at = random.randrange(len(letters))
        match random.randrange(4):
            case 0:
                del letters[at]
            case 1:
                letters.insert(at, random.choice("()'\"=<>-+*/%.,:?0eE \0;_"))
            case 2:
                letters[at : at + 1] = random.choice(PIECES)
            case _:
                stop = min(len(letters), at + random.randrange(1, 20))
                letters[at:at] = letters[at:stop]
    return "".join(letters)


_TEXTS: tuple[Callable[[Random], str], ...] = (
    _nested,
    _literal,
    _list,
    _tower,
    _chain,
    _name,
    _megabyte,
    _soup,
    _noise,
    _mutant,
)


def _expression(random: Random) -> Callable[[], Expr]:
    """Give a maker of an expression: the making itself is under attack."""
    style = random.randrange(7)
    # Those that grow by factors are small or endless: what is between is the work of honest clients
    # too, and takes the time that its size says.
    steps = _size(random, 400) if style in (2, 4, 5) else random.choice((1, 2, 4, 40, 400))

    def make() -> Expr:
        tree = col("i")
        for _ in range(steps):
            tree = (
                tree + tree if style == 0
                else tree.between(0, 1) if style == 1
                else tree + 1 if style == 2
                else (tree == tree) & (tree != tree) if style == 3
                else tree + 10**4_300 if style == 4
                else tree.isin([tree.depth, None]) if style == 5
                else tree.cast("string").concat(tree.cast("string"))
            )  # fmt: skip
        return tree == 1

    return make


# Trees, as bytes that need not come from our encoder.
def _encode(term: Any, kind: Kind = Kind.READ) -> bytes:
    """Give the bytes of a shape with any predicate."""
    outputs = (Projection("k", ColumnRef(0, DataType.INT64)),)
    empty = Shape(kind, 1, 1, None, outputs).encode()
    return empty.replace(msgspec.msgpack.encode(None), _pack(term), 1)


def _pack(term: Any) -> bytes:
    """Encode without recursion: lists of any depth."""
    pieces: list[bytes] = []
    pending = [term]
    while pending:
        node = pending.pop()
        if isinstance(node, list) and any(isinstance(each, list) for each in node):
            pieces.append(b"\xdd" + len(node).to_bytes(4, "big"))
            pending.extend(reversed(node))
        else:
            pieces.append(msgspec.msgpack.encode(node))
    return b"".join(pieces)


def _column(reference: ColumnRef) -> list[Any]:
    return ["c", reference.column, reference.type.value]


def _tall(random: Random, columns: dict[str, ColumnRef]) -> Attack:
    op, leaf, kind = random.choice(
        (("not", "b", "bool"), ("neg", "i", "int64"), ("abs", "f", "float64"), ("lower", "s", "string"))
    )
    term: list[Any] = _column(columns[leaf])
    for _ in range(_size(random, 20_000)):
        term = ["a", op, [term], kind]
    if kind != "bool":
        term = ["a", "is_null", [term], "bool"]
    return Attack("tall", body=_encode(term))


def _wide(random: Random, columns: dict[str, ColumnRef]) -> Attack:
    count = _size(random, 60_000)
    if count > 700:
        # Such trees are the work of honest clients too, and take the time their size says.
        count = max(count, 20_001)
    leaf = ["a", random.choice(("=", "<", ">=")), [_column(columns["i"]), ["p", 0, "int64", False]], "bool"]
    return Attack(
        "wide", body=_encode(["a", random.choice(("and", "or")), [leaf] * count, "bool"]), parameters=(1,)
    )


def _tower_tree(random: Random, columns: dict[str, ColumnRef]) -> Attack:
    name, kind, op = random.choice(
        (("i", "int64", "*"), ("f", "float64", "*"), ("f", "float64", "+"), ("s", "string", "concat"))
    )
    leaf = _column(columns[name])
    term = leaf
    for _ in range(_size(random, 190)):
        term = ["a", op, random.choice(([term, leaf], [leaf, term])), kind]
    return Attack(
        "tower",
        body=_encode(["a", ">", [term, ["p", 0, kind, False]], "bool"]),
        parameters=({"int64": 1, "float64": 1.0}.get(kind, "x"),),
    )


def _strange(random: Random, columns: dict[str, ColumnRef]) -> Attack:
    """Give a small tree with one thing in it that no binder writes."""
    i, s = _column(columns["i"]), _column(columns["s"])
    one = ["p", 0, "int64", False]
    term: Any = random.choice(
        (
            ["a", random.choice((*NAMES, "", "x0**x1", "case", "in", "like", "cast")), [i, one], "bool"],
            ["a", "=", [i] * random.randrange(6), "bool"],
            ["a", "=", [i, s], "bool"],
            ["a", "=", [i, one], random.choice(("int64", "string", "pickle", "", "float64"))],
            ["a", "=", [["c", random.choice((-1, 99, 2**63, -(2**63), 1.5, None)), "int64"], one], "bool"],
            ["a", "=", [["c", columns["i"].column, "string"], one], "bool"],
            ["a", "=", [i, ["p", random.choice((-1, 19_999, 20_000, 2**64 - 1)), "int64", False]], "bool"],
            ["a", "=", [i, ["p", 0, "int64", True]], "bool"],
            ["a", "in", [i, ["p", 0, "int64", random.random() < 0.5]], "bool"],
            ["a", "in", [i, i], "bool"],
            ["a", "like", [s, s], "bool"],
            ["a", "round", [i, one], "bool"],
            ["a", "case", [["a", "is_null", [i], "bool"]] * random.randrange(5), "bool"],
            random.choice((i, s, one, 7, "x", [], ["a"], ["z", 1], {"node": "a"}, b"\0", [[]], True)),
        )
    )  # fmt: skip
    return Attack(
        "strange",
        body=_encode(term, random.choice(list(Kind)) if random.random() < 0.1 else Kind.READ),
        parameters=_parameters(random),
    )


def _parameters(random: Random) -> tuple[Any, ...]:
    return random.choice(
        (
            (1,), (), (None,), (True,), (1.5,), ("x",), (2**63,), (-(2**63) - 1,), (2**4000,), (math.nan,),
            (b"x",), ((1, 2),), ((),), (tuple(range(10_000)),), (((1,),),), ("x" * MIB,), (1,) * 1_000,
            ([1],), ({},), (object,),
        )
    )  # fmt: skip


def _corrupt(random: Random, columns: dict[str, ColumnRef]) -> Attack:
    """Give the bytes of an honest shape with some of them changed."""
    data = bytearray(honest_shape(columns).encode())
    for _ in range(random.choice((1, 1, 2, 4))):
        at = random.randrange(len(data))
        match random.randrange(4):
            case 0:
                data[at] ^= 1 << random.randrange(8)
            case 1:
                del data[at : at + random.randrange(1, 9)]
            case 2:
                data[at:at] = data[at : at + random.randrange(1, 40)]
            case _:
                data[at] = random.randrange(256)
    return Attack("corrupt", body=bytes(data), parameters=(1, 2.5, "a%", (1, None)))


def honest_shape(columns: dict[str, ColumnRef]) -> Shape:
    """Give a shape with most kinds of nodes in it."""
    i, f, s, b = (columns[name] for name in "ifsb")
    whole = Apply("+", (i, Parameter(0, DataType.INT64)), DataType.INT64)
    tests: tuple[Term, ...] = (
        Apply("<=", (whole, Parameter(0, DataType.INT64)), DataType.BOOL),
        Apply("<", (f, Parameter(1, DataType.FLOAT64)), DataType.BOOL),
        Apply("like", (s, Parameter(2, DataType.STRING)), DataType.BOOL),
        Apply("not", (b,), DataType.BOOL),
        Apply("in", (i, Parameter(3, DataType.INT64, many=True)), DataType.BOOL),
    )
    where = Apply("or", (Apply("and", tests[:3], DataType.BOOL), *tests[3:]), DataType.BOOL)
    return Shape(Kind.READ, 1, 1, where, (Projection("k", columns["k"]), Projection("v", whole)))


_TREES: tuple[Callable[[Random, dict[str, ColumnRef]], Attack], ...] = (
    _tall,
    _wide,
    _tower_tree,
    _strange,
    _corrupt,
)


# Honest texts.
INFIX = {"=", "<>", "<", "<=", ">", ">=", "+", "-", "*"}
SUFFIX = {"is_null": "IS NULL", "is_unknown": "IS UNKNOWN", "is_true": "IS TRUE", "is_false": "IS FALSE"}


def valid_text(world: World) -> tuple[str, Term, tuple[Any, ...]]:
    """Give a predicate as a text of our dialect, and as a tree with its parameters."""
    while True:
        world._begin()
        term = world.predicate(2)
        # Decimals are whole numbers to SQLite, which texts write with a point; bytes no text can write.
        if not re.search("decimal|bytes", repr(term), re.IGNORECASE):
            break
    parameters = tuple(make() for make in world._makers)
    names = {column.id: column.name for column in world.columns}
    return _text(term, parameters, names), term, parameters


def _text(term: Term, parameters: tuple[Any, ...], names: dict[int, str]) -> str:
    if isinstance(term, ColumnRef):
        return names[term.column]
    if isinstance(term, Parameter):
        value = parameters[term.index]
        if term.many:
            return "(" + ", ".join("NULL" if v is None else _constant(term.type, v) for v in value) + ")"
        return _constant(term.type, value)
    args = [_text(argument, parameters, names) for argument in term.args]
    op = term.op
    if op in INFIX:
        return f"({args[0]} {op} {args[1]})"
    if op in ("and", "or"):
        return "(" + f" {op.upper()} ".join(args) + ")"
    if op in SUFFIX:
        return f"({args[0]} {SUFFIX[op]})"
    if op in ("in", "like"):
        return f"({args[0]} {op.upper()} {args[1]})"
    if op in ("not", "neg"):
        return f"({'NOT' if op == 'not' else '-'} ({args[0]}))"
    if op == "case":
        branches = zip(args[:-1:2], args[1:-1:2], strict=True)
        return "(CASE " + " ".join(f"WHEN {c} THEN {v}" for c, v in branches) + f" ELSE {args[-1]} END)"
    return f"{op}({', '.join(args)})"


def _constant(kind: DataType, value: Any) -> str:
    if value is None:
        return f"CAST(NULL AS {kind.value})"
    if kind is DataType.STRING:
        return "'" + value.replace("'", "''") + "'"
    if kind is DataType.DATE:
        return f"DATE '{EPOCH + dt.timedelta(value)}'"
    if kind is DataType.TIMESTAMP:
        moment = dt.datetime(1970, 1, 1, tzinfo=dt.UTC) + dt.timedelta(microseconds=value)
        return f"TIMESTAMP '{moment.isoformat()}'"
    return str(value).upper() if kind is DataType.BOOL else repr(value)
