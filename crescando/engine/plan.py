"""What a shape means for execution: conjuncts, access paths, columns used.

Rules of the file: a plan is a function of shape and schema alone, so it is
made once and kept. An *access path* is a part of the predicate that a
predicate index can serve: it must be TRUE for the whole to be TRUE or ERROR,
and is never an ERROR itself (plain columns and constants only), which is why
rows that fail it may be skipped. A computed term serves too, with more care.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from crescando.engine.statement import Apply, ColumnRef, Kind, Parameter, Shape, Term
from crescando.engine.validate import parameters_in, parameters_of, terms_of, validate_shape
from crescando.schema import TableSchema

PATHS_MAX = 16
"""Paths of columns, and of computed terms, that are thought of: a predicate may have thousands of conjuncts,
and each path has its list of the others."""

_FLIPPED = {"=": "=", "<": ">", "<=": ">=", ">": "<", ">=": "<="}


def _has_point(comparisons: tuple[tuple[str, Parameter], ...]) -> bool:
    return any(op in ("=", "in") for op, _ in comparisons)


@dataclass(frozen=True, slots=True)
class Access:
    """Comparisons of one column with constants, all of which must hold.

    Attributes
    ----------
    column : int
    comparisons : tuple of (str, Parameter)
        Operator as seen from the column; ``in`` and ``like`` stand alone.
    rest : tuple of Term
        The predicate's other conjuncts; with ``like`` all of them.
    others : tuple of Term
        The predicate's other conjuncts, with ``like`` too: what is left where
        the beginning of a pattern says it all.
    is_point : bool
        Whether the column must equal a constant (or one of a list).
    """

    column: int
    comparisons: tuple[tuple[str, Parameter], ...]
    rest: tuple[Term, ...]
    others: tuple[Term, ...]
    is_point: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        # Asked for again and again in each cycle.
        object.__setattr__(self, "is_point", _has_point(self.comparisons))

    @property
    def is_closed(self) -> bool:
        """Whether the column is bounded from both sides by comparisons."""
        operators = {op for op, _ in self.comparisons}
        return not operators.isdisjoint((">", ">=")) and not operators.isdisjoint(("<", "<="))

    @property
    def parts(self) -> tuple[Access, ...]:
        """The path alone; see `Composite.parts`."""
        return (self,)


@dataclass(frozen=True, slots=True)
class Composite:
    """Several columns that are compared with constants at once.

    Attributes
    ----------
    parts : tuple of Access
        Equalities; the last one may be a range with both ends.
    rest : tuple of Term
        The predicate's other conjuncts.
    """

    parts: tuple[Access, ...]
    rest: tuple[Term, ...]


@dataclass(frozen=True, slots=True)
class Computed:
    """Comparisons of one computed term with constants, all of which must hold.

    Unlike a column a term can be an ERROR; see `engine.computed`.

    Attributes
    ----------
    term : Apply
        Of any type but texts; it may have parameters of its own, but no lists.
    comparisons : tuple of (str, Parameter)
        As of `Access`.
    rest, whole : tuple of Term
        The predicate's other conjuncts, and all of them.
    is_point : bool
        Whether the term must equal a constant (or one of a list).
    """

    term: Apply
    comparisons: tuple[tuple[str, Parameter], ...]
    rest: tuple[Term, ...]
    whole: tuple[Term, ...]
    is_point: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "is_point", _has_point(self.comparisons))


@dataclass(frozen=True, slots=True)
class Plan:
    """A shape made ready.

    Attributes
    ----------
    shape : Shape
    conjuncts : tuple of Term
        The predicate, flattened; empty if every row matches.
    accesses : tuple of Access
        Points before intervals.
    composites : tuple of Composite
    computed : tuple of Computed
    parameters : tuple of Parameter
    tests_constants : bool
        Whether the predicate has parameters.
    tested, assigned, used : frozenset of int
        Column ids: in the predicate; written by an update or given by an
        insert or upsert; occurring anywhere.
    """

    shape: Shape
    conjuncts: tuple[Term, ...]
    accesses: tuple[Access, ...]
    composites: tuple[Composite, ...]
    computed: tuple[Computed, ...]
    parameters: tuple[Parameter, ...]
    tests_constants: bool
    tested: frozenset[int]
    assigned: frozenset[int]
    used: frozenset[int]

    @property
    def is_read(self) -> bool:
        """Whether the statement is a read."""
        return self.shape.kind is Kind.READ

    @property
    def gives_rows(self) -> bool:
        """Whether the statement is an insert or an upsert."""
        return self.shape.kind in (Kind.INSERT, Kind.UPSERT)


def make_plan(shape: Shape, schema: TableSchema) -> Plan:
    """Validate a shape and plan it.

    Raises
    ------
    StaleShape, StatementError
        As `engine.validate.validate_shape`.
    """
    validate_shape(shape, schema)
    conjuncts = () if shape.where is None else tuple(_flatten(shape.where))
    assigned = {assignment.column for assignment in shape.assignments} | set(shape.columns)
    used = assigned.union(*(columns_of(term) for term in terms_of(shape)))
    accesses = _accesses(conjuncts)
    return Plan(
        shape=shape,
        conjuncts=conjuncts,
        accesses=tuple(access for access, _ in accesses),
        composites=_composites(accesses, conjuncts),
        computed=_computed(conjuncts),
        parameters=parameters_of(shape),
        tests_constants=shape.where is not None and bool(parameters_in((shape.where,))),
        tested=frozenset().union(*map(columns_of, conjuncts)),
        assigned=frozenset(assigned),
        used=frozenset(used),
    )


def columns_of(term: Term) -> frozenset[int]:
    """Give the ids of the columns that a term reads."""
    found: set[int] = set()
    pending = [term]
    while pending:
        node = pending.pop()
        if isinstance(node, ColumnRef):
            found.add(node.column)
        elif isinstance(node, Apply):
            pending.extend(node.args)
    return frozenset(found)


def n_nodes(term: Term) -> int:
    """Count the operators, columns and parameters of a term."""
    count, pending = 0, [term]
    while pending:
        node = pending.pop()
        count += 1
        if isinstance(node, Apply):
            pending.extend(node.args)
    return count


def _flatten(term: Term) -> list[Term]:
    if isinstance(term, Apply) and term.op == "and":
        return [part for argument in term.args for part in _flatten(argument)]
    return [term]


def _accesses(conjuncts: tuple[Term, ...]) -> list[tuple[Access, frozenset[int]]]:
    """Give the columns' paths, points first, each with the places of its conjuncts."""
    found = [
        (term.column, comparisons, places)
        for term, comparisons, places in _compared(conjuncts)
        if isinstance(term, ColumnRef)
    ]
    found.extend(
        (term.args[0].column, (("like", term.args[1]),), frozenset({place}))
        for place, term in enumerate(conjuncts)
        if isinstance(term, Apply)
        and term.op == "like"
        and isinstance(term.args[0], ColumnRef)
        and isinstance(term.args[1], Parameter)
    )
    found.sort(key=lambda one: not any(op in ("=", "in") for op, _ in one[1]))
    accesses = []
    for column, comparisons, places in found[:PATHS_MAX]:
        others = _without(conjuncts, places)
        # What a pattern begins with is a range; whether the rest matches is seen on the survivors.
        rest = conjuncts if comparisons[0][0] == "like" else others
        accesses.append((Access(column, comparisons, rest, others), places))
    return accesses


def _computed(conjuncts: tuple[Term, ...]) -> tuple[Computed, ...]:
    found = [
        (term, comparisons, places)
        for term, comparisons, places in _compared(conjuncts)
        if isinstance(term, Apply)
        and not term.type.is_textual
        and columns_of(term)
        and not any(parameter.many for parameter in parameters_in((term,)))
    ]
    return tuple(
        Computed(term, comparisons, _without(conjuncts, places), conjuncts)
        for term, comparisons, places in found[:PATHS_MAX]
    )


def _compared(
    conjuncts: tuple[Term, ...],
) -> list[tuple[Term, tuple[tuple[str, Parameter], ...], frozenset[int]]]:
    """Group comparisons with constants by what is compared; an IN is a group of its own.

    Gives for each the term, its comparisons, and their places among the conjuncts.
    """
    by_term: dict[Term, dict[int, tuple[str, Parameter]]] = {}
    lists: list[tuple[int, Term, Parameter]] = []
    for place, conjunct in enumerate(conjuncts):
        found = _comparison(conjunct)
        if found is None:
            continue
        term, op, parameter = found
        if op == "in":
            lists.append((place, term, parameter))
        else:
            by_term.setdefault(term, {})[place] = (op, parameter)
    for term, parts in by_term.items():
        # An equality says it all; ranges beside it are checked on its few survivors.
        points = {place: part for place, part in parts.items() if part[0] == "="}
        by_term[term] = points or parts
    compared = [(term, tuple(parts.values()), frozenset(parts)) for term, parts in by_term.items()]
    compared.extend((term, (("in", parameter),), frozenset({place})) for place, term, parameter in lists)
    return compared


def _composites(
    accesses: list[tuple[Access, frozenset[int]]], conjuncts: tuple[Term, ...]
) -> tuple[Composite, ...]:
    """Combine all equalities, with each of the closed ranges or without one."""
    equalities = [one for one in accesses if one[0].comparisons[0][0] == "="]
    ranges = [one for one in accesses if not one[0].is_point and one[0].is_closed]
    if not equalities:
        return ()
    found = [[*equalities, one] for one in ranges]
    if len(equalities) > 1:
        found.append(equalities)
    return tuple(
        Composite(
            tuple(access for access, _ in parts),
            _without(conjuncts, frozenset().union(*(places for _, places in parts))),
        )
        for parts in found
    )


def _without(conjuncts: tuple[Term, ...], places: frozenset[int]) -> tuple[Term, ...]:
    return tuple(term for place, term in enumerate(conjuncts) if place not in places)


def _comparison(term: Term) -> tuple[Term, str, Parameter] | None:
    """Read ``term op constant``, either way round, as (term, op, constant)."""
    if not isinstance(term, Apply) or len(term.args) != 2:
        return None
    left, right, op = term.args[0], term.args[1], term.op
    if isinstance(left, Parameter) and not isinstance(right, Parameter) and op in _FLIPPED:
        left, right, op = right, left, _FLIPPED[op]
    if not isinstance(left, Parameter) and isinstance(right, Parameter) and (op in _FLIPPED or op == "in"):
        return left, op, right
    return None
