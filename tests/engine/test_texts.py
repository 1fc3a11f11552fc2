"""String functions: LIKE, strict parsing, pools."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from crescando.engine.dictionary import DECODED_MAX, Pool, unify_equality, unify_order
from crescando.engine.functions import Cause
from crescando.engine.rejection import failure_of
from crescando.engine.texts import like, like_bounds, like_matcher, literal_heads, parse_text
from crescando.engine.values import Value
from crescando.schema import DataType
from tests.engine import oracle
from tests.engine.oracle import Err

small = st.text(alphabet="ab%_\n\0é\U0001d11e", max_size=8)


@given(small, small)
def test_like_equals_the_regular_expression(text: str, pattern: str) -> None:
    assert like_matcher(pattern)(text) == oracle.like(text, pattern)


def test_for_one_text_a_large_pool_is_not_looked_through(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of thousands of operations that fail tells one key, and the pool may have millions."""
    pool = Pool(["none"])
    for some in range(2):
        pool.intern(f"key {some} {i}" for i in range(DECODED_MAX))
    codes = np.array([7, DECODED_MAX + 3], np.int32)

    def all_texts(_: Pool) -> None:
        raise AssertionError("all texts are asked for")

    monkeypatch.setattr(Pool, "texts", property(all_texts))

    failure = failure_of([Value(DataType.STRING, codes, None, None, pool)], 1, Cause.DUPLICATE_KEY)
    assert failure.key == ("key 1 2",)
    assert like(Pool(["key 0 6"]), np.zeros(1, np.int32), pool, codes[:1]).tolist() == [True]


def test_no_pattern_is_slow() -> None:
    hostile = "%a" * 200 + "%b"
    assert not like_matcher(hostile)("a" * 20_000)
    assert not like_matcher("%" + "_" * 300 + "b")("a" * 20_000)


@pytest.mark.parametrize(
    ("kind", "texts"),
    [
        (DataType.INT8, ["0", "-128", "127", "128", "+5", " 5", "5 ", "", "-", "1_0", "٣", "5.0", "0x1"]),
        (DataType.INT64, ["9223372036854775807", "9223372036854775808", "-9223372036854775808", "1e3"]),
        (DataType.FLOAT64, ["1", "1.", ".5", "-1.5e-3", "1e400", "inf", "-Infinity", "nan", "1,5", "", "."]),
        (DataType.FLOAT32, ["0.1", "1e39", "3.4028235e38", "1e-50"]),
        (DataType.DATE, ["2020-02-29", "2021-02-29", "0001-01-01", "9999-12-31"]),
        (DataType.DATE, ["0000-01-01", "2020-2-9", "20200229", "2020-02-29 ", ""]),
        (
            DataType.TIMESTAMP,
            [
                "2020-02-29T23:59:59.123456Z",
                "2020-02-29 23:59Z",
                "2020-02-29T23:59:59.1+05:30",
                "2020-02-29T23:59:59",
                "2020-02-29T24:00:00Z",
                "2020-02-29T23:59:59.1234567Z",
                "2020-02-29T23:59:60Z",
            ],
        ),
    ],
)
def test_texts_are_read_strictly(kind: DataType, texts: list[str]) -> None:
    for text in texts:
        expected = oracle.parse(text, kind)
        found = parse_text(text, kind)
        if isinstance(expected, Err):
            assert found is expected.cause, text
        else:
            assert repr(found) == repr(expected), text
            assert not isinstance(found, Cause)


@given(st.lists(st.text(max_size=3)), st.lists(st.text(max_size=3)))
def test_codes_of_two_pools_compare_as_their_texts(left: list[str], right: list[str]) -> None:
    one, two = Pool(left), Pool(right)
    a = one.intern(left) if left else np.zeros(0, np.int64)
    b = two.intern(right) if right else np.zeros(0, np.int64)
    pairs = [(i, j) for i in range(len(left)) for j in range(len(right))]
    if not pairs:
        return
    x, y = a[[i for i, _ in pairs]], b[[j for _, j in pairs]]
    p, q = unify_order(one, x, two, y)
    e, f = unify_equality(one, x, two, y)
    for place, (i, j) in enumerate(pairs):
        assert np.sign(p[place] - q[place]) == oracle.order(left[i], right[j])
        assert (e[place] == f[place]) == (left[i] == right[j])


def test_a_growing_pool_keeps_codes_and_renews_ranks() -> None:
    pool = Pool(["m", "a"])
    before = pool.intern(["a", "m"]).tolist()
    assert pool.ranks()[before].tolist() == [0, 1]
    pool.intern(["0", "z", "b"])
    assert pool.intern(["a", "m"]).tolist() == before
    assert [pool.texts[code] for code in np.argsort(pool.ranks())] == sorted(pool.texts)
    assert pool.sorted_texts() == sorted(pool.texts)


def test_full_length_is_compared() -> None:
    pool = Pool()
    assert len(set(pool.intern(["", "\0", "a", "a\0", "\0a", "\U0001d11e"]).tolist())) == 6


@given(st.lists(small, min_size=1), st.lists(small, min_size=1))
def test_matches_lie_within_the_bounds_of_their_pattern(texts: list[str], patterns: list[str]) -> None:
    pool, sought = Pool(texts), Pool(patterns)
    ranks = pool.ranks()
    every = np.arange(len(pool))
    low, high = like_bounds(pool, sought)
    _, _, settled = literal_heads(sought)
    for code, pattern in enumerate(sought.texts):
        expected = [oracle.like(text, pattern) for text in pool.texts]
        assert like(pool, every, sought, np.array([code])).tolist() == expected
        inside = (ranks >= low[code]) & (ranks <= high[code])
        assert not (np.array(expected) & ~inside).any()
        assert settled[code] == (not (set(pattern[:-1]) & {"%", "_"}) and pattern[-1:] != "_")
        if settled[code]:
            assert inside.tolist() == expected
