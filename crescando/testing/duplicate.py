"""Cheap copies of pure cores, and their exact identity, for exploring many states.

Rules of the file: nothing is known of any core, only of kinds of values. Values
that cannot change are shared between copies; everything else is copied once
per place where it lives, so that aliases stay aliases. Two values have one
identity only if they behave alike: the order of a dict counts, that of a set
does not. A source of chance is shared, so it must be one without a state.
"""

from __future__ import annotations

import enum
import random
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Hashable
from copy import copy
from dataclasses import fields, is_dataclass
from types import BuiltinFunctionType, FunctionType
from typing import Any

import msgspec
import numpy as np

_UNCHANGING = (
    int,
    float,
    str,
    bytes,
    type(None),
    type,
    frozenset,
    enum.Enum,
    random.Random,
    FunctionType,
    BuiltinFunctionType,
)

_Memo = dict[int, Any]
_ATTRIBUTES: dict[type, tuple[str, ...]] = {}
_SHARED: dict[type, bool] = {}


def duplicate(value: Any) -> Any:
    """Give a copy that shares with `value` only what cannot change."""
    return _duplicate(value, {})


def identity(value: Any) -> Hashable:
    """Give something hashable that is equal for values in the same state, and only for those."""
    return _identity(value, {})


def _duplicate(value: Any, memo: _Memo) -> Any:
    kind = type(value)
    if _is_shared(kind):
        return value
    known = memo.get(id(value))
    if known is not None:
        return known
    copier = _COPIERS.get(kind)
    if copier is not None:
        return copier(value, memo)
    if isinstance(value, tuple):
        # A tuple cannot change, but what it holds may.
        parts = [_duplicate(part, memo) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return kind(*parts) if hasattr(value, "_fields") else tuple(parts)
    if isinstance(value, msgspec.Struct):
        made = memo[id(value)] = copy(value)
        for name in kind.__struct_fields__:
            setattr(made, name, _duplicate(getattr(value, name), memo))
        return made
    made = memo[id(value)] = object.__new__(kind)
    for name in _attributes(kind):
        if hasattr(value, name):
            object.__setattr__(made, name, _duplicate(getattr(value, name), memo))
    if hasattr(value, "__dict__"):
        state = vars(made)
        for name, part in vars(value).items():
            state[name] = _duplicate(part, memo)
    return made


def _copy_dict(value: dict[Any, Any], memo: _Memo) -> dict[Any, Any]:
    made: dict[Any, Any]
    made = defaultdict(value.default_factory) if isinstance(value, defaultdict) else type(value)()
    memo[id(value)] = made
    for key, part in value.items():
        made[key] = _duplicate(part, memo)
    return made


def _copy_list(value: list[Any], memo: _Memo) -> list[Any]:
    made: list[Any] = []
    memo[id(value)] = made
    made.extend(_duplicate(part, memo) for part in value)
    return made


def _copy_deque(value: deque[Any], memo: _Memo) -> deque[Any]:
    made: deque[Any] = deque(maxlen=value.maxlen)
    memo[id(value)] = made
    made.extend(_duplicate(part, memo) for part in value)
    return made


def _copy_set(value: set[Any], memo: _Memo) -> set[Any]:
    made = memo[id(value)] = set(value)
    return made


def _copy_array(value: np.ndarray[Any, Any], memo: _Memo) -> np.ndarray[Any, Any]:
    made = memo[id(value)] = value.copy()
    return made


_COPIERS: dict[type, Callable[[Any, _Memo], Any]] = {
    dict: _copy_dict,
    OrderedDict: _copy_dict,
    defaultdict: _copy_dict,
    Counter: _copy_dict,
    list: _copy_list,
    deque: _copy_deque,
    set: _copy_set,
    np.ndarray: _copy_array,
}


def _is_shared(kind: type) -> bool:
    shared = _SHARED.get(kind)
    if shared is None:
        shared = issubclass(kind, _UNCHANGING) or (
            issubclass(kind, msgspec.Struct) and bool(kind.__struct_config__.frozen)
        )
        _SHARED[kind] = shared
    return shared


def _attributes(kind: type) -> tuple[str, ...]:
    """Give the slots of a class; what lies in a ``__dict__`` is not among them."""
    known = _ATTRIBUTES.get(kind)
    if known is None:
        found: dict[str, None] = {}
        for base in kind.__mro__:
            slots = base.__dict__.get("__slots__", ())
            names = (slots,) if isinstance(slots, str) else tuple(slots)
            found.update(dict.fromkeys(name for name in names if not name.startswith("__")))
        known = _ATTRIBUTES[kind] = tuple(found)
    return known


def _identity(value: Any, memo: _Memo) -> Hashable:
    kind = type(value)
    if kind in _PLAIN:
        return value  # type: ignore[no-any-return]
    if issubclass(kind, random.Random):
        return kind.__qualname__
    if issubclass(kind, _UNCHANGING):
        return value  # type: ignore[no-any-return]
    if issubclass(kind, tuple):
        return (kind, *[_identity(part, memo) for part in value])
    if kind is np.ndarray:
        return (value.dtype.str, value.shape, value.tobytes())
    seen = memo.get(id(value))
    if seen is not None:
        return ("alias", seen)
    memo[id(value)] = len(memo)
    if issubclass(kind, dict):
        return (kind, *[(_identity(key, memo), _identity(part, memo)) for key, part in value.items()])
    if kind is set:
        return (set, frozenset(value))
    if kind is list or kind is deque:
        return (kind, *[_identity(part, memo) for part in value])
    if issubclass(kind, msgspec.Struct):
        names: tuple[str, ...] = kind.__struct_fields__
    elif is_dataclass(kind):
        names = tuple(field.name for field in fields(kind))
    else:
        names = (*_attributes(kind), *getattr(value, "__dict__", ()))
    return (kind, *[_identity(getattr(value, name, None), memo) for name in names])


_PLAIN = frozenset({int, float, str, bytes, bool, type(None)})
