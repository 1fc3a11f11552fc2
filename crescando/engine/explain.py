"""How operations of a shape would be found, told without finding them.

Rules of the file: what is told is what the next cycle would choose if it held this one
operation; in company the choice may differ, since it depends on all operations' constants.
"""

from __future__ import annotations

import numpy as np

from crescando.engine import kernels
from crescando.engine.base import AccessPath, Explained
from crescando.engine.constants import Constants
from crescando.engine.evaluator import Evaluator
from crescando.engine.match import Matcher, Path
from crescando.engine.plan import Access, Computed, Plan, n_nodes
from crescando.engine.statement import Apply, ColumnRef, Parameter, Term
from crescando.engine.table import Table

NODE_COST = 5.0
"""What a node of a predicate costs per row that nothing has ruled out, about."""


def explain(
    table: Table, plan: Plan, parameters: tuple[object, ...], evaluator: Evaluator, block_rows: int | None
) -> Explained:
    """Tell how one operation would be found among a table's rows."""
    schema = table.schema
    names = {column.id: column.name for column in schema.columns}
    paths: list[AccessPath] = []
    if not plan.gives_rows:
        matcher = Matcher(plan, Constants([[parameters]]), np.zeros(1, np.int64), table, evaluator)
        paths = [AccessPath(_text(path, names), _kind(path), cost) for path, cost in matcher.costs()]
    if not paths:
        what = "every row given, by its key" if plan.gives_rows else _conjunction(plan.conjuncts, names)
        cost = NODE_COST * sum(map(n_nodes, plan.conjuncts)) or 1.0
        paths = [AccessPath(what, "key" if plan.gives_rows else "scan", cost)]
    paths.sort(key=lambda path: path.cost)
    n_blocks = sum(1 for _ in table.blocks(block_rows or matcher.block_rows))
    return Explained(
        plan.shape.kind.value, schema.name, table.n_rows, n_blocks, tuple(paths), kernels.active().name
    )


def _kind(path: Path) -> str:
    if isinstance(path, Computed):
        return "computed"
    if not isinstance(path, Access):
        return "composite"
    operator = path.comparisons[0][0]
    return {"=": "point", "in": "list", "like": "prefix"}.get(operator, "range")


def _text(path: Path, names: dict[int, str]) -> str:
    if isinstance(path, Computed):
        left = _render(path.term, names)
        return " and ".join(f"{left} {operator} ?" for operator, _ in path.comparisons)
    return " and ".join(
        f"{names.get(part.column, '?')} {operator} ?"
        for part in path.parts
        for operator, _ in part.comparisons
    )


def _conjunction(terms: tuple[Term, ...], names: dict[int, str]) -> str:
    return " and ".join(_render(term, names) for term in terms) or "every row"


def _render(term: Term, names: dict[int, str]) -> str:
    """Write a term as people would; long ones are cut off."""
    if isinstance(term, ColumnRef):
        return names.get(term.column, "?")
    if isinstance(term, Parameter):
        return "?"
    assert isinstance(term, Apply)
    args = [_render(each, names) for each in term.args[:4]]
    is_word = term.op.isidentifier() and term.op not in ("and", "or", "in", "like")
    if len(term.args) == 2 and not is_word:
        text = f"({args[0]} {term.op} {args[1]})"
    else:
        text = f"{term.op}({', '.join(args)}{', …' if len(term.args) > 4 else ''})"
    return text if len(text) <= 200 else f"{text[:200]}…"
