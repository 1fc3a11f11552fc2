"""Run SQL logic tests on an engine: statements become operations, neighbours share scans.

Predicates, expressions and constants go through the text front end that users
have (`crescando.sql`, `crescando.client.bind`); only the words around them are read
here. What our dialect does not have is skipped and counted by its reason, and a
table that missed a write is not asked again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import msgspec

from crescando.client.agg import avg, count, count_distinct, sum
from crescando.client.agg import max as max_
from crescando.client.agg import min as min_
from crescando.client.constant import fit, normalise
from crescando.client.expression import ColumnName, Expr, Literal
from crescando.client.template import AggregateCall, Plan, Template, bind_template
from crescando.engine.aggregate import finish
from crescando.engine.base import Partials
from crescando.engine.scan import ScanEngine
from crescando.engine.statement import Kind, Operation, Shape
from crescando.errors import ReadFailedError, StatementError
from crescando.schema import ColumnDef, DataType, TableSchema
from crescando.sql.where import parse_assignments, parse_expression, parse_output, parse_where
from crescando.types import FULL_RING, ProcessId
from tests.engine.generator import as_column
from tests.engine.reports import reports
from tests.engine.sqllogic import Query, Record, Statement, is_right

CLIENT = ProcessId("client", "corpus")
Rows = list[tuple[Any, ...]]

TYPES = {
    "integer": DataType.INT64,
    "int": DataType.INT64,
    "float": DataType.FLOAT64,
    "real": DataType.FLOAT64,
    "text": DataType.STRING,
    "varchar": DataType.STRING,
}

AGGREGATES: dict[str, Callable[..., AggregateCall]] = {
    "count": count,
    "sum": sum,
    "avg": avg,
    "min": min_,
    "max": max_,
}

_SELECT = re.compile(
    r"SELECT (?P<outputs>.+?)(?: FROM (?P<table>\w+)(?: AS (?P<as>\w+)| (?P<alias>cor\w+))?)?"
    r"(?: WHERE (?P<where>.+?))?(?: GROUP BY (?P<group>.+?))?(?: ORDER BY (?P<order>[\w ,]+))?",
    re.IGNORECASE,
)
_CREATE = re.compile(r"CREATE TABLE (?P<table>\w+) ?\((?P<columns>.+)\)", re.IGNORECASE)
_COLUMN = re.compile(r"(?P<name>\w+) (?P<type>\w+)(?: ?\(\d+\))?(?P<rest>[ \w]*)")
_INSERT = re.compile(
    r"(?:(?P<insert>INSERT)|INSERT OR REPLACE|REPLACE) INTO (?P<table>\w+)(?: ?\((?P<names>[\w, ]+)\))?"
    r"(?: VALUES ?(?P<values>.+)| SELECT \* FROM (?P<source>\w+))",
    re.IGNORECASE,
)
_UPDATE = re.compile(r"UPDATE (?P<table>\w+) SET (?P<set>.+?)(?: WHERE (?P<where>.+))?", re.IGNORECASE)
_DELETE = re.compile(r"DELETE FROM (?P<table>\w+)(?: WHERE (?P<where>.+))?", re.IGNORECASE)
_DROP = re.compile(r"DROP TABLE (?P<table>\w+)", re.IGNORECASE)
_VOID = re.compile(r"(CREATE|DROP) (UNIQUE )?INDEX |REINDEX|ANALYZE|PRAGMA ", re.IGNORECASE)
_ROW = re.compile(r"\((?:[^()']|'(?:[^']|'')*')*\)")
_AGGREGATE = re.compile(r"(?P<function>\w+) ?\((?:ALL )?(?P<term>.+)\)(?: AS \w+)?", re.IGNORECASE)

_BARE_ALIAS = re.compile(
    r"(?P<term>.*[\w)])(?<!\bNOT)(?<!\bAND)(?<!\bOR)(?<!\bAS)(?<!\bTHEN)(?<!\bELSE)(?<!\bIS) col\d",
    re.IGNORECASE,
)
"""An output column with a name and no AS."""

HIDDEN = "row_number"
"""Partition key of a table that declares no primary key."""


class Skip(Exception):  # noqa: N818  # Not a fault.
    """A record is not in our dialect; the text is the reason."""


@dataclass
class Tally:
    """What was run, what was skipped and why, and which answers were wrong."""

    queries: int = 0
    statements: int = 0
    scans: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    wrong: list[str] = field(default_factory=list)

    def __add__(self, other: Tally) -> Tally:
        return Tally(
            self.queries + other.queries,
            self.statements + other.statements,
            self.scans + other.scans,
            self.skipped + other.skipped,
            self.wrong + other.wrong,
        )

    def __str__(self) -> str:
        lines = [
            f"{self.queries} queries and {self.statements} statements run in {self.scans} cycles, "
            f"{self.skipped.total()} skipped, {len(self.wrong)} wrong"
        ]
        lines += [f"{n:7} skipped: {reason}" for reason, n in self.skipped.most_common()]
        return "\n".join(lines)


@dataclass
class _Table:
    """One table; `rows` counts what was inserted, `lost` says why it cannot be asked any more."""

    schema: TableSchema
    rows: int = 0
    lost: str = ""

    @property
    def visible(self) -> tuple[str, ...]:
        return tuple(name for name in self.schema.column_names if name != HIDDEN)


@dataclass(frozen=True)
class _Ordering:
    """``ORDER BY 2 DESC``: a place and a direction."""

    place: int
    descending: bool


@dataclass(frozen=True)
class _Reading:
    """A query that waits for its answer."""

    query: Query
    orderings: tuple[_Ordering, ...]
    distinct: bool
    picks: tuple[int, ...] | None
    """Of a read of groups: which of keys and aggregates the output columns are."""


class Store:
    """One engine that runs records of one file.

    Parameters
    ----------
    share : int
        So many queries on one table share a scan, with the writes between them.
    block_rows : int
    """

    def __init__(self, share: int, block_rows: int = 64) -> None:
        self.tally = Tally()
        self._share = share
        self._engine = ScanEngine(block_rows)
        self._engine.set_arcs([FULL_RING])
        self._tables: dict[str, _Table] = {}
        self._n_tables = 0
        self._position = 0
        self._pending: list[Operation] = []
        self._readings: dict[int, _Reading] = {}
        self._queries_of: Counter[int] = Counter()
        self._refused: set[int] = set()
        self._labels: dict[str, Any] = {}
        self._create("one", (ColumnDef("pk", DataType.INT64, False),), ("pk",))
        self._insert_rows(self._tables["one"], ("pk",), [(1,)], Kind.INSERT)

    def run(self, records: Iterable[Record]) -> Tally:
        """Run records in order."""
        for record in records:
            try:
                if isinstance(record, Statement):
                    self._statement(record)
                else:
                    self._query(record)
            except Skip as skip:
                self.tally.skipped[str(skip)] += 1
        self._flush()
        return self.tally

    # Queries.
    def _query(self, query: Query) -> None:
        reading, shape, parameters = self._read(query)
        self._submit(shape, parameters, reading)
        self._queries_of[shape.table] += 1
        if self._queries_of[shape.table] >= self._share:
            self._flush()

    def _read(self, query: Query) -> tuple[_Reading, Shape, tuple[Any, ...]]:
        sql = query.sql
        if re.search(r"\( *SELECT|\bJOIN\b|\bHAVING\b| FROM \w+(?: AS \w+)? *,", sql, re.IGNORECASE):
            raise Skip("a sub-query, join or HAVING")
        found = _SELECT.fullmatch(sql)
        if found is None:
            raise Skip("a SELECT of another form")
        table = self._table(found["table"] or "one")
        outputs = found["outputs"].strip()
        for alias in {found["as"], found["alias"], found["table"]} - {None}:
            outputs = outputs.replace(f"{alias}.", "")
        distinct = outputs.upper().startswith("DISTINCT ")
        outputs = re.sub(r"^(ALL|DISTINCT) ", "", outputs, flags=re.IGNORECASE)
        where = found["where"]
        for alias in {found["as"], found["alias"]} - {None}:
            where = where and where.replace(f"{alias}.", "")
        group = found["group"]
        for alias in {found["as"], found["alias"], found["table"]} - {None}:
            group = group and group.replace(f"{alias}.", "")
        made: Plan | Skip
        picks: tuple[int, ...] | None = None
        if group is None:
            made = prepared(table.schema.columns, outputs, where)
        else:
            made, picks = prepared_groups(table.schema.columns, outputs, where, group)
        if isinstance(made, Skip):
            raise made
        plan = made
        orderings = tuple(map(_ordering, found["order"].split(","))) if found["order"] else ()
        shape = msgspec.structs.replace(plan.shape, table=table.schema.id)
        return _Reading(query, orderings, distinct, picks), shape, plan.fill({})

    # Statements.
    def _statement(self, statement: Statement) -> None:
        sql = statement.sql.strip().rstrip(";").strip()
        if _VOID.match(sql):
            raise Skip("an index or setting, which a scan does not need")
        for pattern, handler in (
            (_CREATE, self._create_table),
            (_INSERT, self._insert),
            (_UPDATE, self._update),
            (_DELETE, self._delete),
            (_DROP, self._drop),
        ):
            found = pattern.fullmatch(sql)
            if found is None:
                continue
            try:
                handler(found)
            except (Skip, StatementError) as refusal:
                if statement.is_error:
                    break  # Refused, as it is to be.
                if pattern is not _CREATE and found["table"] in self._tables:
                    self._tables[found["table"]].lost = "on a table that missed a statement"
                raise refusal if isinstance(refusal, Skip) else Skip(_reason(refusal)) from refusal
            if statement.is_error:
                self._refused.add(self._position)
                self._flush()
            break
        else:
            raise Skip("a statement of another kind")
        self.tally.statements += 1

    def _create_table(self, found: re.Match[str]) -> None:
        columns, keys = [], []
        for part in found["columns"].split(","):
            column = _COLUMN.fullmatch(part.strip())
            if column is None or column["type"].lower() not in TYPES:
                raise Skip("a table with other columns or constraints")
            rest = column["rest"].strip().upper()
            if rest not in ("", "PRIMARY KEY", "NOT NULL", "UNIQUE"):
                raise Skip("a table with other columns or constraints")
            if rest in ("PRIMARY KEY", "UNIQUE"):
                keys.append(column["name"])
            columns.append(ColumnDef(column["name"], TYPES[column["type"].lower()], not rest))
        if len(keys) > 1:
            raise Skip("a table with two unique keys")
        self._create(found["table"], tuple(columns), tuple(keys))

    def _create(self, name: str, columns: tuple[ColumnDef, ...], keys: tuple[str, ...]) -> None:
        if not keys:
            columns += (ColumnDef(HIDDEN, DataType.INT64, False),)
        self._n_tables += 1
        # The next table of a name is another table, so that it need not wait for reads of the last.
        schema = TableSchema(name, columns, (keys or (HIDDEN,))[0], keys).with_ids(self._n_tables)
        self._engine.create_table(schema)
        self._tables[name] = _Table(schema)

    def _drop(self, found: re.Match[str]) -> None:
        if self._tables.pop(found["table"], None) is None:
            raise Skip("a table that is not there")

    def _insert(self, found: re.Match[str]) -> None:
        table = self._table(found["table"])
        kind = Kind.INSERT if found["insert"] or not table.schema.primary_key else Kind.UPSERT
        names = tuple(name.strip() for name in found["names"].split(",")) if found["names"] else table.visible
        if found["source"]:
            rows = self._rows_of(self._table(found["source"]))
        else:
            texts = _ROW.findall(found["values"])
            if re.sub(r"[\s,;]", "", _ROW.sub("", found["values"])):
                raise Skip("VALUES with expressions")
            rows = [_constants(text[1:-1]) for text in texts]
        if any(len(row) != len(names) for row in rows):
            raise Skip("an INSERT of another number of values")
        self._insert_rows(table, names, rows, kind)

    def _rows_of(self, table: _Table) -> Rows:
        self._flush()
        columns = self._engine.export(table.schema.id, FULL_RING)
        visible = columns[: len(table.visible)]
        return list(zip(*(column.to_list() for column in visible), strict=True))

    def _insert_rows(self, table: _Table, names: tuple[str, ...], rows: Rows, kind: Kind) -> None:
        if HIDDEN in table.schema.column_names:
            rows = [(*row, table.rows + place) for place, row in enumerate(rows)]
            names = (*names, HIDDEN)
        columns = [table.schema.column(name) for name in names]
        keys = [names.index(name) for name in table.schema.primary_key]
        if any(row[place] is None for row in rows for place in keys):
            raise Skip("a key that is to be made up")
        values = [[fit(row[place], c.type) for row in rows] for place, c in enumerate(columns)]
        shape = Shape(kind, table.schema.id, 1, columns=tuple(column.id for column in columns))
        parameters = tuple(as_column(c.type, v) for c, v in zip(columns, values, strict=True))
        table.rows += len(rows)
        self._submit(shape, parameters, None)

    def _update(self, found: re.Match[str]) -> None:
        # Of a column that is assigned twice the last counts; ours is a mistake, theirs a rule.
        assignments = tuple(dict(parse_assignments(found["set"])).items())
        where = None if found["where"] is None else parse_where(found["where"])
        self._write(found["table"], Template(Kind.UPDATE, where, assignments=assignments))

    def _delete(self, found: re.Match[str]) -> None:
        where = None if found["where"] is None else parse_where(found["where"])
        self._write(found["table"], Template(Kind.DELETE, where))

    def _write(self, name: str, template: Template) -> None:
        plan = bind_template(template, self._table(name).schema, {})
        self._submit(plan.shape, plan.fill({}), None)

    def _table(self, name: str) -> _Table:
        table = self._tables.get(name)
        if table is None:
            raise Skip("on a table or view that is not there")
        if table.lost:
            raise Skip(table.lost)
        return table

    # Execution.
    def _submit(self, shape: Shape, parameters: tuple[Any, ...], reading: _Reading | None) -> None:
        self._position += 1
        self._pending.append(
            Operation(self._position, CLIENT, self._position, shape, parameters, (FULL_RING,))
        )
        if reading is not None:
            self._readings[self._position] = reading

    def _flush(self) -> None:
        """Execute what waits in one batch, and compare the answers."""
        if not self._pending:
            return
        (results,) = self._engine.execute(self._pending)
        answers: dict[int, Rows | str] = {}
        for rows in results.rows:
            tuples = list(zip(*(column.to_list() for column in rows.columns), strict=True))
            offsets = rows.offsets.tolist()
            for place, position in enumerate(rows.position.tolist()):
                answers[position] = tuples[offsets[place] : offsets[place + 1]]
        for partials in results.partials:
            for place, position in enumerate(partials.position.tolist()):
                answers[position] = _groups(partials, place)
        for failed in results.failed:
            assert failed.kind == "read", failed
            answers[failed.position] = failed.text
        for written in reports(results.written):
            rejected = any(count.rejected for count in written.counts)
            assert rejected is (written.position in self._refused), written
        for position, reading in self._readings.items():
            self._judge(reading, answers[position])
        self.tally.scans += 1
        self._pending, self._readings, self._queries_of = [], {}, Counter()

    def _judge(self, reading: _Reading, answer: Rows | str) -> None:
        query = reading.query
        if isinstance(answer, str):
            self.tally.skipped[f"an error of a row: {answer}"] += 1
            return
        self.tally.queries += 1
        if reading.picks is not None:
            answer = [tuple(row[place] for place in reading.picks) for row in answer]
        rows = list(dict.fromkeys(answer)) if reading.distinct else answer
        for ordering in reversed(reading.orderings):
            rows = sorted(rows, key=_sort_key(ordering.place), reverse=ordering.descending)
        if not is_right(query, rows):
            self.tally.wrong.append(f"line {query.line}: {query.sql}: {rows[:9]}, not {query.expected[:9]}")
        elif query.label:
            # The format's own check, which the files' answers pass already.
            same = self._labels.setdefault(query.label, query.expected)
            assert same == query.expected, query


def _sort_key(place: int) -> Callable[[tuple[Any, ...]], Any]:
    return lambda row: (row[place] is not None, 0 if row[place] is None else row[place])


def _ordering(text: str) -> _Ordering:
    found = re.fullmatch(r"(?P<place>\d+)(?P<desc> DESC)?(?: ASC)?", text.strip(), re.IGNORECASE)
    if found is None:
        raise Skip("ORDER BY of another thing than a column's number")
    return _Ordering(int(found["place"]) - 1, found["desc"] is not None)


def _constants(text: str) -> tuple[Any, ...]:
    """Read the constants of one row."""
    values = []
    for piece in re.findall(r"'(?:[^']|'')*'|[^,']+", text):
        if not piece.strip():
            continue
        expression = parse_expression(piece.strip())
        if not isinstance(expression, Literal):
            raise Skip("VALUES with expressions")
        values.append(normalise(expression.value))
    return tuple(values)


@lru_cache(maxsize=8192)
def prepared(columns: tuple[ColumnDef, ...], outputs: str, where: str | None) -> Plan | Skip:
    """Give the plan of a SELECT on any table with these columns, so that copies share the work."""
    schema = TableSchema("t", columns, columns[0].name, id=0, version=1)
    try:
        predicate = None if where is None else parse_where(where)
        items = [c.name for c in columns if c.name != HIDDEN] if outputs == "*" else _split(outputs)
        aggregates = [_aggregate(item) for item in items]
        if all(aggregates):
            named = tuple((f"a{place}", call) for place, call in enumerate(aggregates) if call is not None)
            return bind_template(Template(Kind.READ, predicate, aggregates=named), schema, {})
        if any(aggregates):
            return Skip("columns beside aggregates")
        named_outputs = tuple(_output(place, item) for place, item in enumerate(items))
        return bind_template(Template(Kind.READ, predicate, named_outputs), schema, {})
    except StatementError as refusal:
        return Skip(_reason(refusal))
    except Skip as skip:
        return skip


@lru_cache(maxsize=8192)
def prepared_groups(
    columns: tuple[ColumnDef, ...], outputs: str, where: str | None, group: str
) -> tuple[Plan | Skip, tuple[int, ...]]:
    """Give the plan of a SELECT with GROUP BY, and which of keys and aggregates its outputs are."""
    schema = TableSchema("t", columns, columns[0].name, id=0, version=1)
    try:
        keys = list(dict.fromkeys(_split(group)))
        if not all(key.isidentifier() for key in keys):
            return Skip("groups of expressions"), ()
        calls: list[tuple[str, AggregateCall]] = []
        picks = []
        terms = [parse_output(key)[1] for key in keys]
        for item in _split(outputs):
            call = _aggregate(item)
            if call is not None:
                picks.append(-1 - len(calls))
                calls.append((f"a{len(calls)}", call))
                continue
            term = parse_output(item)[1]
            if not _names(term) <= set(keys):
                return Skip("columns beside groups"), ()
            # What is computed from the keys divides no group further.
            picks.append(len(terms))
            terms.append(term)
        predicate = None if where is None else parse_where(where)
        named = tuple((f"g{place}", term) for place, term in enumerate(terms))
        picks = [len(terms) - 1 - place if place < 0 else place for place in picks]
        template = Template(Kind.READ, predicate, aggregates=tuple(calls), group_by=named)
        return bind_template(template, schema, {}), tuple(picks)
    except StatementError as refusal:
        return Skip(_reason(refusal)), ()
    except Skip as skip:
        return skip, ()


def _names(term: Expr) -> set[str]:
    """Give the columns of an expression."""
    own = {term.name} if isinstance(term, ColumnName) else set()
    return own.union(*map(_names, term.children()))


def _output(place: int, item: str) -> tuple[str, Expr]:
    return f"c{place}", parse_output(item)[1]


def _aggregate(item: str) -> AggregateCall | None:
    found = _AGGREGATE.fullmatch(item)
    if found is None or found["function"].lower() not in AGGREGATES:
        return None
    function, term = found["function"].lower(), found["term"].strip()
    if term == "*":
        return count()
    if term.upper().startswith("DISTINCT"):
        term = re.sub("^DISTINCT", "", term, flags=re.IGNORECASE)
        if function == "count":
            return count_distinct(parse_expression(term))
        if function in ("sum", "avg"):
            raise Skip("a sum of distinct values")
    return AGGREGATES[function](parse_expression(term))


def _split(text: str) -> Sequence[str]:
    """Cut a list at the commas that stand outside of parentheses."""
    items, depth, start = [], 0, 0
    for place, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if letter == "," and depth == 0:
            items.append(text[start:place].strip())
            start = place + 1
    items.append(text[start:].strip())
    aliased = map(_BARE_ALIAS.fullmatch, items)
    return [item if found is None else found["term"] for item, found in zip(items, aliased, strict=True)]


def _reason(refusal: StatementError) -> str:
    """Give the reason without what differs from statement to statement."""
    text = re.sub(r"'[^']*'|\d[\d.]*", "…", str(refusal).split(" (in ")[0].split(" at position")[0])
    return f"refused: {text[:90]}"


def _groups(partials: Partials, place: int) -> Rows | str:
    """Give the rows of one read of aggregates, keys first."""
    n_groups, keys, states = partials.of_read(place)
    try:
        columns = [column.to_list() for column in (*keys, *(finish(each, n_groups) for each in states))]
    except ReadFailedError:
        return "overflow"
    return list(zip(*columns, strict=True))
