"""Predicate text: what it means, and what is refused where."""

from __future__ import annotations

import builtins
import sys
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.client import functions as f
from crescando.client.expression import Expr, col, lit, param
from crescando.errors import CrescandoError, PredicateError
from crescando.sql.lexer import LENGTH_MAX, NESTING_MAX
from crescando.sql.where import parse_assignments, parse_expression, parse_output, parse_where

a, b, c = col("a"), col("b"), col("c")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("a = 1", a == 1),
        ("a == 1", a == 1),
        ("a <> 1", a != 1),
        ("a != 1", a != 1),
        ("a = 1 AND b < 2 OR NOT c >= 3", ((a == 1) & (b < 2)) | ~(c >= 3)),
        ("(a = 1 or b = 2) and c", ((a == 1) | (b == 2)) & c),
        ("a BETWEEN 1 AND 2 AND b", a.between(1, 2) & b),
        ("a NOT BETWEEN 1 AND 2", ~a.between(1, 2)),
        ("a IN (1, -2, NULL)", a.isin([1, -2, None])),
        ("a NOT IN ('x')", ~a.isin(["x"])),
        ("a IN ()", a.isin([])),
        ("a IN ?", a.isin(param(0))),
        ("a IN (?, ?)", a.isin(())),
        ("a LIKE 'x%'", a.like("x%")),
        ("a NOT LIKE ?", ~a.like(param(0))),
        ("a IS NULL", a.is_null()),
        ("a IS NOT NULL", a.is_not_null()),
        ("a IS TRUE", a.is_true()),
        ("a IS NOT FALSE", ~a.is_false()),
        ("a > 1 IS UNKNOWN", None),
        ("(a > 1) IS UNKNOWN", (a > 1).is_null()),
        ("a + b * 2 - -1 > 0", (a + b * 2) - -1 > 0),
        ("a / b = 1", f.div(a, b) == 1),
        ("a % 2 = 1", a % 2 == 1),
        ("-a < 1.5e3", -a < 1500.0),
        ("a || 'x' || b = 'y'", f.concat(a, "x", b) == "y"),
        ("a = 'it''s'", a == "it's"),
        ("a = ''", a == ""),
        ("a = 'x\ny'", a == "x\ny"),
        ("a = '-- ; /* no comment */'", a == "-- ; /* no comment */"),
        ("a = TRUE", a == lit(True)),
        ("a = NULL", a == lit(None)),
        ("a = 9223372036854775808", a == 2**63),
        ("a = -9223372036854775808", a == -(2**63)),
        ("a = .5", a == 0.5),
        ("\"order\" = 1 AND year = 2 AND date = DATE '2013-07-04'", None),
        ("CASE WHEN a THEN 1 WHEN b THEN 2 ELSE 3 END = 1", f.when(a, 1).when(b, 2).otherwise(3) == 1),
        ("CASE a WHEN 1 THEN 'x' END = 'x'", f.when(a == 1, "x").end() == "x"),
        ("CAST(a AS double) = 1", a.cast("float64") == 1),
        ("a::text = 'x'", a.cast("string") == "x"),
        ("EXTRACT(year FROM a) = 2013", a.extract("year") == 2013),
        ("date_trunc('hour', a) = b", a.trunc("hour") == b),
        ("date_part('dow', a) = 0", a.extract("dow") == 0),
        ("month(a) = 7", a.extract("month") == 7),
        ("coalesce(a, b, 0) = 0", f.coalesce(a, b, 0) == 0),
        ("ifnull(a, 0) = nullif(b, 1)", f.coalesce(a, 0) == f.nullif(b, 1)),
        ("substr(a, 2, 3) = upper('x')", a.substr(2, 3) == lit("x").upper()),
        ("length(a) = abs(b)", a.length() == abs(b)),
        ("a = ? AND b = ?", (a == param(0)) & (b == param(1))),
        ("a = :x AND b = :x", (a == param("x")) & (b == param("x"))),
        ("été = 1", col("été") == 1),
    ],
)
def test_text_means_what_sql_means(text: str, meant: Expr | None) -> None:
    if text == "a IN (?, ?)":
        assert repr(parse_where(text)) == "col('a').isin([param(0), param(1)])"
    elif text.startswith('"order"'):
        assert repr(parse_where(text)).count("&") == 2
    elif meant is None:
        with pytest.raises(PredicateError, match="parentheses"):
            parse_where(text)
    else:
        assert repr(parse_where(text)) == repr(meant)


@pytest.mark.parametrize(
    ("text", "position", "said"),
    [
        ("", 0, "empty"),
        ("  ", 0, "empty"),
        ("a = 1 AND", 6, "missing"),
        ("a = = 1", 4, "parentheses"),
        ("(a = 1", 5, "expecting"),
        ("a = 1)", 5, "closes nothing"),
        ("a = 'x", 4, "no closing quote"),
        ('"a = 1', 0, "no closing quote"),
        ("a = 1 & b = 2", 6, "AND"),
        ("a = 1 && b = 2", 6, "AND"),
        ("a = 1 | b = 2", 6, "OR"),
        ("~(a = 1)", 0, "NOT"),
        ("1 < a < 3", 6, "chained"),
        ("a = b = c", 6, "chained"),
        ("a = b IS NULL", 6, "chained"),
        ("a = 1; DROP TABLE t", 5, "semicolon"),
        ("a = 1 -- b", 6, "comment"),
        ("a = 1 /* b */", 6, "comment"),
        ("a // 2 = 1", 2, "floor"),
        ("a = $1", 4, r"\?"),
        ("a = @x", 4, r"\?"),
        ("t.a = 1", 1, "qualified"),
        ("`a` = 1", 0, "quoted"),
        ("[a] = 1", 0, "quoted"),
        ("a = 0x1F", 5, "number"),
        ("a = 1_000", 5, "number"),
        ("a = 1 2", 6, "missing"),
        ("a IN ('x' 'y')", 10, "missing"),
        ("a IN b", 5, "list"),
        ("a IN (SELECT 1)", 13, "."),
        ("a = (SELECT 1)", None, "."),
        ("EXISTS (SELECT 1)", None, "."),
        ("nextval() = 1", 0, "no function"),
        ("pow(a, 2) = 1", 0, "no function"),
        ("abs(a, 2) = 1", 0, "takes 1"),
        ("count(*) > 1", None, "."),
        ("CAST(a AS blob) = 1", 10, "not a type"),
        ("CAST(a AS varchar(3)) = 'x'", None, "without arguments"),
        ("d = DATE '2013-7-4'", 9, "YYYY-MM-DD"),
        ("d = TIMESTAMP '2013-07-04 18:00:00'", 14, "naive"),
        ("a LIKE 'x' ESCAPE '!'", 11, "."),
        ("a IS 3", 0, "IS tests"),
        ("EXTRACT(week FROM a) = 1", None, "year, month"),
        ("a = 'x' COLLATE nocase", 8, "."),
        ("a = ANY(?)", 4, "no function"),
        ("a = ? AND b = :x", 14, "not both"),
        ("a b", 2, "."),
        ("a = %s", None, "."),
    ],
)
def test_what_is_not_offered_is_refused_with_its_position(text: str, position: int | None, said: str) -> None:
    with pytest.raises(PredicateError, match=said) as caught:
        parse_where(text)

    assert caught.value.text == text
    if position is None:
        assert caught.value.position is not None
    else:
        assert caught.value.position == position


def test_length_is_bounded() -> None:
    text = "a IN (" + "1," * (LENGTH_MAX // 2) + "1)"
    with pytest.raises(PredicateError, match="bound parameter"):
        parse_where(text)


@pytest.mark.parametrize("opening", ["(", "NOT ", "- ", "CASE WHEN a THEN ", "abs("])
def test_nesting_is_bounded(opening: str) -> None:
    closing = {"(": ")", "abs(": ")", "CASE WHEN a THEN ": " END"}.get(opening, "")
    for depth in (NESTING_MAX + 1, 2_000):
        with pytest.raises(PredicateError, match="nested"):
            parse_where(opening * depth + "a" + closing * depth)
    parse_where(opening * 20 + "a" + closing * 20)


def test_hundreds_of_terms_parse_and_thousands_are_refused() -> None:
    parsed = parse_where(" OR ".join(f"a = {n}" for n in range(250)))

    assert len(parsed.children()) == 250
    with pytest.raises(PredicateError, match="more than 1000 words"):
        parse_where(" OR ".join(f"a = {n}" for n in range(300)))


def test_long_lists_of_constants_are_read_whole() -> None:
    numbers = [*range(-5_000, 5_000)]

    parsed = parse_where(f"a NOT IN ({', '.join(map(str, numbers))}) AND b = 1")

    assert repr(parsed) == repr(~col("a").isin(numbers) & (col("b") == 1))


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("(1)", [1]),
        ("( -1 , +2.50,.5, 1e3 )", [-1, 2.5, 0.5, 1000.0]),
        ("('it''s', NULL, '', ',)')", ["it's", None, "", ",)"]),
        ("(true, False)", [True, False]),
        ("(- 1, 2)", [-1, 2]),
        ("()", []),
    ],
)
def test_lists_of_constants(text: str, values: list[object]) -> None:
    assert repr(parse_where(f"a IN {text}")) == repr(col("a").isin(values))
    assert repr(parse_where(f"NOT a in{text} OR b = 1")) == repr(~col("a").isin(values) | (col("b") == 1))


@pytest.mark.parametrize(
    "text",
    ["a IN (1,)", "a IN (,1)", "a IN (1 2)", "a IN (1x)", "f(a,,b) = 1", "a IN (1) (2)", "a IN ('b'"],
)
def test_faulty_lists_are_refused(text: str) -> None:
    with pytest.raises(PredicateError) as caught:
        parse_where(text)
    assert caught.value.position is not None


def test_a_list_may_hold_expressions() -> None:
    a, b = col("a"), col("b")

    assert repr(parse_where("a IN (b, 1, b + 1, 2)")) == repr(a.isin([1, 2]) | (a == b) | (a == b + 1))
    assert repr(parse_where("a NOT IN (1 + 1)")) == repr(~(a == lit(1) + 1))


@pytest.mark.parametrize(
    "text", ["a = " + "9" * 5_000, "a IN (1, " + "9" * 5_000 + ")", "a = 1e" + "9" * 5_000]
)
def test_endless_numbers_are_refused(text: str) -> None:
    with pytest.raises(PredicateError, match="at most 1100 characters"):
        parse_where(text)


def test_parameters_are_bound_by_order_or_name() -> None:
    assert repr(parse_expression("a = ? AND b IN ? AND c IN (?, 2)", (1, [2, 3], 4))) == repr(
        (a == 1) & b.isin([2, 3]) & c.isin([4, 2])
    )
    assert repr(parse_expression("a = :x OR b = :x", {"x": None})) == repr(
        (a == lit(None)) | (b == lit(None))
    )
    with pytest.raises(PredicateError, match="1 parameters and was given 0"):
        parse_expression("a = ?")


def test_set_lists_and_output_columns() -> None:
    assignments = parse_assignments(
        'a = ?, b = coalesce(b, 0) + ?, "c" = d = 1, e = CASE WHEN a IN (1, 2) THEN 1 END'
    )

    assert [(name, repr(term)) for name, term in assignments] == [
        ("a", "param(0)"),
        ("b", "coalesce(col('b'), 0) + param(1)"),
        ("c", "col('d') == 1"),
        ("e", "case(col('a').isin([1, 2]), 1, None)"),
    ]
    name, term = parse_output("upper(a) AS x")
    assert (name, repr(term)) == ("x", "upper(col('a'))")
    assert parse_output("a+1")[0] == "a+1"


@pytest.mark.parametrize("text", ["a", "a = 1,", "a = 1,, b = 2", "1 = a", "a + 1 = 2", "a = 1 WHERE b", ""])
def test_malformed_set_lists_are_refused(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_assignments(text)


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without_sqlglot(name, *args, **kwargs):
        if name.startswith("sqlglot"):
            raise ImportError(name)
        return real(name, *args, **kwargs)

    monkeypatch.setattr(builtins, "__import__", without_sqlglot)

    with pytest.raises(PredicateError, match=r"crescando\[sql\]"):
        parse_where("a = 1 AND missing_extra = 2")


WORDS = (
    "a b c AND OR NOT IN LIKE BETWEEN IS NULL TRUE UNKNOWN CASE WHEN THEN ELSE END CAST AS FROM date "
    "timestamp SELECT x' 'x' '' \"q\" 1 2.5 .5 1e3 ? :n ( ) , + - * / % || = <> < <= == :: ; -- /* & "
    "| ~ $ @ . [ ] { } \\ abs( coalesce( extract( year interval '1' day exists any collate 0x1 é \x00 "
    "\ud800 🜚"
)


@given(st.lists(st.sampled_from(WORDS.split(" ")), max_size=25).map(" ".join) | st.text(max_size=60))
def test_any_text_gives_an_expression_or_one_error(text: str) -> None:
    refusal: Exception | None = None
    try:
        parse_where(text)
    except CrescandoError as error:
        refusal = error

    if refusal is not None:
        assert isinstance(refusal, PredicateError)
        assert refusal.text == text
        assert refusal.position is None or 0 <= refusal.position <= len(text)


HOSTILE = (
    "__import__('os').system('id') = 0",
    "a = 1 OR exec('x')",
    "eval(a) = 1",
    "a.__class__ = 1",
    "a = 1) OR (1 = 1",
    "(lambda: 1)() = 1",
    "a = 'x' || chr(39) || '; DROP TABLE t'",
    "where(a, b, c) = 1",
)


def test_no_text_is_ever_compiled() -> None:
    """K34: an allow-list on the tree, with an audit hook watching."""
    parse_where("a = 1")
    compiled: list[object] = []
    is_watching = True

    def watch(event: str, arguments: tuple[object, ...]) -> None:
        if is_watching and event in ("compile", "exec", "os.system", "import", "subprocess.Popen"):
            compiled.append((event, arguments))

    sys.addaudithook(watch)
    for text in (*HOSTILE, *(word * 3 for word in WORDS.split(" "))):
        with suppress(PredicateError):
            parse_where(text)
    is_watching = False

    assert compiled == []


@pytest.mark.parametrize("text", HOSTILE)
def test_hostile_text_is_refused_or_harmless(text: str) -> None:
    with pytest.raises(PredicateError):
        parse_where(text)
