"""Pools of texts against Python's own dict and sort, on both sets of kernels."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from crescando.engine import dictionary
from crescando.engine import table as tables
from crescando.engine.dictionary import Pool
from crescando.engine.heap import Texts, offsets_of
from crescando.engine.kernels import searching
from crescando.engine.kernels import texts as plain
from crescando.engine.kernels.borders import end_of, group_bytes, note_texts, slices_of
from crescando.engine.segment import code_dtype
from crescando.engine.statement import Kind, Shape
from crescando.errors import InvariantError, TypeMismatchError
from crescando.schema import DataType
from tests.engine.compiled import compiled_module, using
from tests.engine.workbench import Bench, apply, par, table

STRING, BYTES, INT64 = DataType.STRING, DataType.BYTES, DataType.INT64

HOSTILE = [
    "",
    "\0",
    "a",
    "a\0",
    "a\0\0",
    "\0a",
    "a" * 8,
    "a" * 7 + "\0",
    "a" * 9,
    "\U0001d11e",
    "\ue000",
    "é",
]

GOLDEN = [
    "3f7023ce48685d62",
    "006e9bb39d927faf",
    "6600be53693bbecb",
    "1a528e0d01a6ab19",
    "5ba92e260af137d6",
    "ba1923da7dacc843",
]


@pytest.fixture(params=["numpy", "numba"])
def _kernels(request: pytest.FixtureRequest) -> Iterator[None]:
    with using(request.param):
        yield


def draw_text(rng: random.Random, binary: bool) -> Any:
    text = "".join(rng.choice("ab\0é\ue000\U0001d11e") for _ in range(rng.choice((0, 1, 2, 7, 8, 9, 17, 40))))
    return text.encode("utf-16-le") if binary else text


@pytest.mark.usefixtures("_kernels")
@pytest.mark.parametrize("binary", [False, True])
@pytest.mark.parametrize("collides", [False, True])
@pytest.mark.parametrize("seed", range(4))
def test_a_pool_is_a_dict_that_knows_its_order(
    seed: int, binary: bool, collides: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if collides:
        few = np.uint64(0x3_0000_0000)
        hashed = dictionary.hash_texts
        monkeypatch.setattr(dictionary, "hash_texts", lambda *slices: hashed(*slices) & few)
    rng = random.Random(seed)
    for _ in range(10):
        pool = Pool(binary=binary)
        codes: dict[Any, int] = {b"" if binary else "": 0}
        for _ in range(rng.randrange(1, 6)):
            texts = [draw_text(rng, binary) for _ in range(rng.randrange(60))]
            for text, code in zip(texts, pool.intern(texts).tolist(), strict=True):
                assert codes.setdefault(text, code) == code
            if rng.random() < 0.6:
                assert pool.sorted_texts() == sorted(codes)
        assert len(pool) == len(codes)
        assert {text: code for code, text in enumerate(pool.texts)} == codes
        compare_with(pool, codes, rng, binary)


def compare_with(pool: Pool, codes: dict[Any, int], rng: random.Random, binary: bool) -> None:
    ordered = sorted(codes)
    ranks = {text: rank for rank, text in enumerate(ordered)}
    assert [ranks[text] for text in pool.texts] == pool.ranks().tolist()
    sought = [draw_text(rng, binary) for _ in range(20)] + ordered[::3]
    other = Pool(dict.fromkeys(sought))
    assert other.codes_in(pool).tolist() == [codes.get(text, -1) for text in other.texts]
    places = [2 * bisect_left(ordered, text) + (text in codes) for text in other.texts]
    assert other.places_in(pool).tolist() == places
    assert [pool.find(text) for text in sought] == [codes.get(text, -1) for text in sought]
    prefixes = [text[: rng.choice((0, 1, 2, 3, 8, 9, 17))] for text in sought]
    listed = Texts.of(prefixes)
    low, high = pool.spans_of(listed, listed.starts, listed.lengths, np.ones(len(listed), np.bool_))
    for prefix, first, last in zip(prefixes, low.tolist(), high.tolist(), strict=True):
        assert first == bisect_left(ordered, prefix)
        assert ordered[first:last] == [text for text in ordered if text.startswith(prefix)]
    kept = sorted(rng.sample(range(len(codes)), rng.randrange(1, len(codes) + 1)))
    rebuilt = pool.rebuilt(np.array(kept))
    assert rebuilt.texts == pool.decode(np.array(kept))
    assert [rebuilt.find(text) for text in rebuilt.texts] == list(range(len(kept)))


@pytest.mark.usefixtures("_kernels")
def test_long_and_hostile_texts_are_told_apart() -> None:
    long = "x" * (1 << 20)
    texts = [*HOSTILE, long, long + "\0", long + "a", "y" + long]
    pool = Pool(texts)
    assert len(pool) == len(texts)
    assert pool.sorted_texts() == sorted(texts)
    assert pool.find(long + "b") == -1
    assert pool.texts.lengths_in_points().tolist() == list(map(len, texts))


@pytest.mark.parametrize("text", ["", "a", "a\0", "ä" * 5_000, b"", b"\xff\0"])
def test_a_pool_may_begin_with_one_text(text: str | bytes) -> None:
    others = [text[:0] + each for each in (["b", "bc"] if isinstance(text, str) else [b"b", b"bc"])]
    among = Texts.of([*others, text, *others])
    within = Texts(among.heap, among.offsets[2:4], among.binary)
    for listed in (Texts.of([text]), among.slice(2, 3), within):
        pool, made = Pool(binary=listed.binary), Pool([text])
        assert pool.begin_with(listed).tolist() == [0]
        assert (len(pool), pool.longest, pool.texts) == (1, made.longest, made.texts)
        assert [pool.find(each) for each in (text, *others)] == [0, -1, -1]
        assert pool.codes_in(Pool([*others, text])).tolist() == [2]
        assert pool.codes_in(Pool(others)).tolist() == [-1]
        assert pool.places_in(Pool(others)).tolist() == made.places_in(Pool(others)).tolist()
        assert pool.intern([*others, text, *others]).tolist() == [1, 2, 0, 1, 2]
        assert pool.decode(np.arange(3)) == [text, *others]


def test_a_pool_begins_with_no_text_of_another_kind() -> None:
    for pool, text in ((Pool(), b"a"), (Pool(binary=True), "a")):
        with pytest.raises(InvariantError, match="do not share"):
            pool.begin_with(Texts.of([text]))


def test_hashes_never_change() -> None:
    texts = Texts.of(["", "a", "a\0", "12345678", "123456789", "\U0001d11e"])
    found = plain.hash_slices(texts.heap, texts.starts, texts.lengths, np.uint64(7))
    assert [f"{word:016x}" for word in found.tolist()] == GOLDEN


def test_both_sets_of_kernels_agree() -> None:
    compiled = compiled_module().KERNELS.texts

    rng = random.Random(5)
    items = [bytes(rng.choice(b"ab\0\xff") for _ in range(rng.randrange(30))) for _ in range(500)]
    texts = Texts.of(items)
    heap, starts, lengths = texts.heap, texts.starts, texts.lengths
    other = np.array(rng.sample(range(500), 500))
    pairs = (heap, starts, lengths, heap, starts[other], lengths[other])
    assert np.array_equal(compiled.equal_slices(*pairs), plain.PLAIN.equal_slices(*pairs))
    expected = plain.compare_slices(*pairs)
    assert expected.tolist() == [(a > items[b]) - (a < items[b]) for a, b in zip(items, other, strict=True)]
    some = np.where(other % 7 == 0, -1, other)
    for made in (plain.PLAIN, compiled):
        assert made.gather_slices(heap, starts[other], lengths[other]).tobytes() == b"".join(
            items[place] for place in other
        )
        assert made.mark_slices(heap, starts[other], lengths[other]).tobytes() == b"".join(
            items[place] + b"\0" for place in other
        )
        for offsets in (texts.offsets, texts.offsets.astype(np.int64)):
            copied, borders = made.take_slices(heap, offsets, some)
            taken = [b"" if place < 0 else items[place] for place in some]
            assert Texts(copied, borders, True).to_list() == taken
            for n_parts in (1, 7, 256):
                part = np.array([rng.randrange(n_parts) for _ in some], np.uint8)
                copied, borders = made.deal_slices(heap, offsets, some, part, n_parts)
                dealt = [taken[row] for row in np.argsort(part, kind="stable").tolist()]
                assert Texts(copied, borders, True).to_list() == dealt
    one, two = (made.hash_slices(heap, starts, lengths, np.uint64(9)) for made in (plain.PLAIN, compiled))
    assert np.array_equal(one, two)
    one, two = (made.fingerprint_slices(heap, starts, lengths) for made in (plain.PLAIN, compiled))
    assert np.array_equal(one, two)
    assert len(set(one.tolist())) == len(set(items))


@pytest.mark.parametrize("collides", [False, True])
@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint8])
def test_both_sets_of_kernels_intern_alike(dtype: type, collides: bool) -> None:
    compiled = compiled_module().KERNELS.texts

    rng = random.Random(8)
    few = np.uint64(0x3_0000_0003 if collides else 0xFFFF_FFFF_FFFF_FFFF)
    sets = (plain.PLAIN, compiled)
    seen = [b"", b"a"]
    held = Texts.of(seen)
    pools = []
    for made in sets:
        table, bits = np.zeros(300, np.uint32), 9
        hashes = made.hash_slices(held.heap, held.starts, held.lengths, np.uint64(9)) & few
        made.place_codes(table, bits, hashes, 0)
        heap, offsets = np.zeros(8_000, np.uint8), np.zeros(600, dtype)
        heap[:1] = held.heap
        note_texts(offsets, 0, 0, held.lengths)
        pools.append((table, bits, heap, offsets))
    for room in (200, 3, 0):
        items = [
            bytes(rng.choice(b"ab\0") for _ in range(rng.choice((0, 1, 3, 8, 15, 16, 40))))
            for _ in range(150)
        ]
        texts = Texts.of([*items, *seen[:20]])
        hashes = plain.hash_slices(texts.heap, texts.starts, texts.lengths, np.uint64(9)) & few
        sought = (hashes, texts.heap, texts.starts, texts.lengths, len(seen), room)
        results = [made.intern_slices(*pool, *sought) for pool, made in zip(pools, sets, strict=True)]
        (codes, n_texts, done), (others, same_n_texts, same_done) = results
        assert (n_texts, done) == (same_n_texts, same_done)
        assert codes.dtype == others.dtype
        assert np.array_equal(codes[:done], others[:done])
        assert n_texts - len(seen) <= room
        assert done == len(texts) or n_texts - len(seen) == room
        for _, _, heap, offsets in pools:
            starts, lengths = slices_of(offsets, np.arange(n_texts))
            held = Texts(heap[: end_of(offsets, n_texts)], offsets_of(lengths), True)
            assert starts.tolist() == held.starts.tolist()
            assert held.to_list()[: len(seen)] == seen
            assert [held[code] for code in codes[:done].tolist()] == list(texts)[:done]
            assert len(set(held)) == n_texts
        seen = held.to_list()


@pytest.mark.parametrize(("n_texts", "n_codes"), [(1, 0), (1, 3), (50, 20), (50, 0), (20, 400), (300, 299)])
def test_both_sets_of_kernels_number_texts_alike(n_texts: int, n_codes: int) -> None:
    compiled = compiled_module().KERNELS.texts

    codes = np.random.default_rng(3).integers(0, n_texts, n_codes).astype(np.int32)
    for made in (plain.PLAIN, compiled):
        renumbered = codes.copy()
        used = made.renumber(renumbered, n_texts)
        assert used.tolist() == sorted(set(codes.tolist()))
        assert used[renumbered].tolist() == codes.tolist()


@pytest.mark.parametrize("name", ["numpy", "numba"])
@pytest.mark.parametrize(
    "texts",
    [[""], ["", ""], ["\0"], ["a", "", "b\0", "ß"], ["\0", "\0\0", ""], ["𝄞" * 9, "a" * 40, "é"], ["x"] * 99],
)
def test_texts_are_given_back_whatever_is_in_them(name: str, texts: list[str]) -> None:
    with using(name):
        held = Texts.of(texts)
        assert held.decode(held.starts, held.lengths) == texts
        assert held.decode(held.starts[::-1].copy(), held.lengths[::-1].copy()) == texts[::-1]
        as_bytes = [text.encode() for text in texts]
        held = Texts.of(as_bytes)
        assert held.decode(held.starts, held.lengths) == as_bytes


def test_neighbours_are_gathered_as_one() -> None:
    compiled = compiled_module().KERNELS.texts

    heap = np.arange(250, dtype=np.uint8)
    for lengths in ([0, 0], [250], [17, 0, 33, 200], [100, 100, 50, 0], [0, 240, 10]):
        sizes = np.array(lengths)
        starts = np.cumsum(sizes) - sizes
        for order in (np.arange(len(sizes)), np.arange(len(sizes))[::-1], np.zeros(3, np.int64)):
            pieces = [heap[starts[i] : starts[i] + sizes[i]].tobytes() for i in order.tolist()]
            for made in (plain.PLAIN, compiled):
                assert made.gather_slices(heap, starts[order], sizes[order]).tobytes() == b"".join(pieces)


@pytest.mark.parametrize("texts", [["a\ud800"], ["a", b"a"], [b"a", "a"], [1]])
def test_what_is_no_text_is_refused(texts: list[Any]) -> None:
    with pytest.raises(TypeMismatchError):
        Texts.of(texts)


@pytest.mark.parametrize(
    ("heap", "offsets"),
    [
        (b"ab", [0, 3]),
        (b"ab", [0, 2, 1, 2]),
        (b"ab", [1, 2]),
        (b"\xff", [0, 1]),
        ("é".encode(), [0, 1, 2]),
        (b"ab", []),
        ("\ud800".encode("utf-8", "surrogatepass"), [0, 3]),
    ],
)
def test_malformed_lists_are_refused(heap: bytes, offsets: list[int]) -> None:
    texts = Texts(np.frombuffer(heap, np.uint8), np.array(offsets, np.int64))
    with pytest.raises(TypeMismatchError):
        texts.check()


def test_lists_travel() -> None:
    for items in ([], HOSTILE, [text.encode("utf-16") for text in HOSTILE]):
        texts = Texts.of(items)
        arrived = Texts.from_wire(texts.to_wire())
        assert arrived == items
        arrived.check()
        for cut in range(len(texts.to_wire())):
            try:
                Texts.from_wire(texts.to_wire()[:cut]).check()
            except (ValueError, TypeMismatchError):
                continue
            pytest.fail(f"{cut} bytes of a list were taken for all of it")


class TestCodes:
    def test_codes_are_as_narrow_as_they_can_be_and_grow(self) -> None:
        bench = Bench(table(("s", STRING)))
        for count in (200, 300, 40_000):
            n_texts = 9 * count // 10
            bench.load(*((count * 100_000 + i, f"text {i % n_texts}") for i in range(count)))
            segment = bench.engine._tables[1].segments[0][-1]
            assert isinstance(segment.data[1], np.ndarray), "too many texts come twice to be counted"
            assert segment.data[1].dtype == code_dtype(n_texts)
            assert bench.engine.statistics()["rows"] == len(bench.read(None, names=("s",)))
        where = apply("=", bench.col("s"), par(0, STRING))
        assert len(bench.read(where, "text 35999", names=("k",))) == 1
        assert len(bench.read(where, "text 7", names=("k",))) == 6

    def test_texts_that_no_row_has_are_dropped_unseen(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(tables, "POOL_TEXTS_MIN", 16)
        still, churned = (Bench(table(("s", STRING), ("t", BYTES))) for _ in range(2))
        rows = [(k, None if k % 7 == 0 else f"row {k % 5}", bytes([k])) for k in range(30)]
        still.load(*rows)
        churned.load(*rows)
        where = apply("=", churned.col("k"), par(0, INT64))
        update = churned.update_shape(where, s=par(1, STRING), t=par(2, BYTES))
        for turn in range(300):
            churned.run(churned.operation(update, turn % 30, f"new {turn}", b"%d" % turn))
            if turn % 50 == 0:
                churned.run(churned.insert((1_000 + turn, "gone", None)))
                assert len(churned.read(None)) == 31
                churned.run(churned.operation(Shape(Kind.DELETE, 1, 1, where), 1_000 + turn))
        for k, s, t in rows:
            churned.run(churned.operation(update, k, s, t))
        owned = churned.engine._tables[1]
        assert owned.n_collections > 5
        assert len(owned.pools[1]) < 100
        assert churned.read(None) == still.read(None)
        digests = [bench.engine.digest(1, bench.engine._arcs[0]) for bench in (still, churned)]
        assert digests[0] == digests[1]
        ranged = apply("<", churned.col("s"), par(0, STRING))
        assert sorted(churned.read(ranged, "row 3")) == sorted(still.read(ranged, "row 3"))


class TestBytes:
    def test_bytes_are_compared_by_bytes_and_keep_every_one(self) -> None:
        values = [b"", b"\0", b"a", b"a\0", b"\xff\xfe", b"\x80", None]
        bench = Bench(table(("b", BYTES)))
        bench.load(*enumerate(values))
        column, given = bench.col("b"), par(0, BYTES)
        for wanted in [value for value in values if value is not None]:
            for op, holds in (("=", bytes.__eq__), ("<", bytes.__lt__), (">=", bytes.__ge__)):
                expected = [v for v in values if v is not None and holds(v, wanted)]
                found = bench.read(apply(op, column, given), wanted, names=("b",))
                assert sorted(found) == sorted(expected), (op, wanted)
        found = bench.read(
            apply("in", column, par(0, BYTES, many=True)), (b"a", b"\xff\xfe", None), names=("b",)
        )
        assert sorted(found) == [b"a", b"\xff\xfe"]
        assert bench.compute(apply("length", column)) == [0, 1, 1, 2, 2, 1, None]
        assert bench.compute(apply("concat", column, given), b"\xc3")[:3] == [b"\xc3", b"\0\xc3", b"a\xc3"]
        second = apply("substr", column, par(0, INT64))
        assert bench.compute(second, 2) == [b"", b"", b"", b"\0", b"\xfe", b"", None]
        assert bench.aggregate("max", column) == b"\xff\xfe"

    @pytest.mark.parametrize("op", ["lower", "upper"])
    def test_text_functions_do_not_take_bytes(self, op: str) -> None:
        bench = Bench(table(("b", BYTES)))
        with pytest.raises(TypeMismatchError):
            apply(op, bench.col("b"))
        with pytest.raises(TypeMismatchError):
            apply("=", bench.col("b"), par(0, STRING))
        with pytest.raises(TypeMismatchError):
            apply("like", bench.col("b"), par(0, STRING))


@pytest.mark.parametrize("dtype", [np.uint32, np.int64, np.uint8])
@pytest.mark.parametrize("seed", range(6))
def test_both_sets_of_kernels_find_the_same_places(seed: int, dtype: Any) -> None:
    search_order = compiled_module().KERNELS.search_order

    rng = random.Random(seed)
    letters = (b"ab", b"a\0", b"ab\0\xff")[seed % 3]
    shared = (b"", b"12345678", b"1234567890")[seed // 2]
    draw = lambda: shared + bytes(rng.choice(letters) for _ in range(rng.choice((0, 1, 3, 8, 9, 20))))  # noqa: E731
    ordered = sorted({draw() for _ in range((0, 1, 2, 200, 400, 400)[seed])})
    shuffled = rng.sample(range(len(ordered)), len(ordered))
    texts = Texts.of([ordered[rank] for rank in shuffled])
    order = np.argsort(shuffled).astype(np.int32)
    heap, offsets = texts.heap, np.zeros(group_bytes(600), dtype)
    note_texts(offsets, 0, 0, texts.lengths)
    prefixes = plain.load_prefixes(heap, texts.starts[order], texts.lengths[order])
    items = (
        [draw()[: rng.choice((0, 1, 2, 8, 9, 30))] for _ in range(150)] + ordered + [b"\xff" * 8, b"\xff" * 9]
    )
    sought = Texts.of(items)
    as_prefix = np.array([rng.random() < 0.5 for _ in items])
    arguments = (heap, offsets, order, prefixes, sought.heap, sought.starts, sought.lengths, as_prefix)
    low, high = searching.search_order(*arguments)
    for item, is_prefix, first, last in zip(
        items, as_prefix.tolist(), low.tolist(), high.tolist(), strict=True
    ):
        assert first == bisect_left(ordered, item)
        found = [text for text in ordered if (text.startswith(item) if is_prefix else text == item)]
        assert ordered[first:last] == found
    for one, other in zip(search_order(*arguments), (low, high), strict=True):
        assert np.array_equal(one, other)
