"""Many texts at once: digits, words and sentences as Arrow arrays, without a Python loop over rows.

Rules of the file: texts are written into matrices of bytes, or picked from
short lists by code; the same numbers give the same texts on every machine.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

U64 = NDArray[np.uint64]

DIGITS = b"0123456789"
HEX = b"0123456789abcdef"
LOCATOR = b"ABCDEFGHIJKLMNOPQRSTUVWXYZ234567"
"""What record locators are made of: no digit that looks like a letter."""


def mixed(numbers: U64, salt: int) -> U64:
    """Scramble numbers one to one (the finaliser of splitmix64)."""
    with np.errstate(over="ignore"):
        z = numbers + np.uint64(salt) * np.uint64(0x9E3779B97F4A7C15)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))


def fixed(matrix: NDArray[np.uint8]) -> pa.Array:
    """Give the rows of a matrix of ASCII bytes, shape (n, width), as texts."""
    n, width = matrix.shape
    offsets = np.arange(0, (n + 1) * width, width, dtype=np.int32)
    data = np.ascontiguousarray(matrix)
    return pa.StringArray.from_buffers(n, pa.py_buffer(offsets), pa.py_buffer(data))


def spelled(numbers: U64, width: int, alphabet: bytes) -> NDArray[np.uint8]:
    """Write numbers in the base of an alphabet, `width` characters each, the last digits of longer ones."""
    letters = np.frombuffer(alphabet, np.uint8)
    matrix = np.empty((len(numbers), width), np.uint8)
    rest, base = numbers.copy(), np.uint64(len(alphabet))
    for place in range(width - 1, -1, -1):
        matrix[:, place] = letters[(rest % base).astype(np.intp)]
        rest //= base
    return matrix


def picked(codes: NDArray[Any], words: Sequence[str] | pa.Array) -> pa.Array:
    """Give the words that codes stand for."""
    values = words if isinstance(words, pa.Array) else pa.array(words, pa.string())
    return pa.DictionaryArray.from_arrays(pa.array(codes.astype(np.int32)), values).dictionary_decode()


def joined(*parts: pa.Array | str) -> pa.Array:
    """Put texts together, row by row."""
    scalars = [pa.scalar(part) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*scalars, pa.scalar(""))


@cache
def words(count: int, syllables: int, salt: int) -> tuple[str, ...]:
    """Give distinct capitalised words that can be pronounced."""
    found: dict[str, None] = {}
    number = 0
    while len(found) < count:
        number += 1
        value = int(mixed(np.array([number], np.uint64), salt)[0])
        text = ""
        for _ in range(syllables):
            value, consonant = divmod(value, len(_CONSONANTS))
            value, vowel = divmod(value, len(_VOWELS))
            text += _CONSONANTS[consonant] + _VOWELS[vowel]
        found[text.capitalize()] = None
    return tuple(found)


_CONSONANTS = ("b", "d", "f", "g", "h", "j", "k", "l", "m", "n", "p", "r", "s", "t", "v", "w", "st", "ch")
_VOWELS = ("a", "e", "i", "o", "u", "ai", "er", "on")
