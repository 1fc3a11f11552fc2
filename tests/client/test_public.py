"""What ``import crescando`` gives, and what it does not load."""

from __future__ import annotations

import doctest
import importlib
import subprocess
import sys

import pytest

import crescando

MODULES = (
    "crescando.client.expression",
    "crescando.client.functions",
    "crescando.sql.where",
)


def test_every_public_name_exists() -> None:
    for name in crescando.__all__:
        if name != "open":
            assert getattr(crescando, name) is not None
    with pytest.raises(AttributeError):
        crescando.opne  # noqa: B018


def test_extras_are_loaded_only_when_needed() -> None:
    program = (
        "import sys, crescando\n"
        "from crescando import col, agg, functions, schema_from\n"
        "schema_from('t', {'k': [1]}, primary_key='k')\n"
        "print(sorted({'pandas', 'pyarrow', 'sqlglot', 'polars'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True
    )

    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", MODULES)
def test_examples_in_docstrings_run(name: str) -> None:
    failed, tried = doctest.testmod(importlib.import_module(name))

    assert tried > 0
    assert failed == 0
