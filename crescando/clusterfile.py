"""The cluster file: what a cluster is made of and where its processes listen, in TOML.

Rules of the file: text in, one frozen value out; nothing is started or
looked up here. A key that does not exist is refused with the one that is
nearest, so that no setting is ever silently without effect.
"""

from __future__ import annotations

import math
import re
import tomllib
import warnings
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from crescando.assembly import Names
from crescando.errors import SpecError, nearest_name
from crescando.spec import ClusterSpec
from crescando.transport.addresses import parse_address
from crescando.transport.handshake import CLIENT_BYTES_MIN, SocketLimits
from crescando.transport.identity import is_name
from crescando.types import ProcessId

HOST = "127.0.0.1"
PORTS = {"routers": 7401, "storages": 7421, "supers": 7461}
"""Where the first process of each kind listens if the file does not say; the others follow."""

GROUP_MAX = 10_000
"""Processes of one kind; whoever asks for more has mistyped."""

_KINDS = {"routers": "router", "storages": "storage", "supers": "super"}
_LETTERS = {"routers": "r", "storages": "s", "supers": "u"}
_PARTS = {
    "consensus": "paxos",
    "ordering": "router",
    "storage": "storage",
    "supervision": "super_",
    "healing": "healing",
    "balancing": "balancing",
    "client": "client",
}
"""Tables of the file, and the part of the specification that each sets."""

_POLICIES = ("healing", "balancing")

_CLUSTER = {
    "name": str,
    "replication": int,
    "engine": str,
    "certificates": str,
    "restart": bool,
    "listen": str,
    "meter": bool,
}
_GROUP: dict[str, type] = {"count": int, "standby": int, "host": str, "port": int}
_TYPES: dict[str, type] = {"int": int, "float": float, "str": str, "bool": bool}
_SAID = {int: "a whole number", float: "a number", str: "a text", bool: "true or false"}


@dataclass(frozen=True, slots=True)
class Seat:
    """A process of the file: its role and name, and where it listens."""

    role: str
    node: str
    host: str
    port: int
    is_founding: bool = True
    """Whether the cluster begins with it; others stand by, and join later."""

    @property
    def process(self) -> ProcessId:
        """The process in its first life."""
        return ProcessId(self.role, self.node, 1)

    @property
    def address(self) -> str:
        """Host and port."""
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class ClusterFile:
    """What a cluster file says.

    Attributes
    ----------
    path : Path
    name : str
        The cluster's; certificates bear it.
    spec : ClusterSpec
        Of the processes with which the cluster begins, and everybody's times and limits.
    seats : tuple of Seat
        Every process: routers, storage processes, supers, by their numbers.
    certificates : Path
        The folder with the nodes' files, as ``crescando certs`` makes it.
    restart : bool
        Whether the launcher starts a node again that ended by itself.
    listen : str
        Where nodes listen, if not at the address under which others find them:
        inside a container, ``0.0.0.0``. Empty otherwise.
    meter : bool
        Whether each node counts the CPU time of its layers, for one or two percent of it.
    network : SocketLimits
        Bounds of each node's transport.
    """

    path: Path
    name: str
    spec: ClusterSpec
    seats: tuple[Seat, ...]
    certificates: Path
    restart: bool
    listen: str = ""
    meter: bool = False
    network: SocketLimits = field(default_factory=SocketLimits)

    def seat(self, node: str) -> Seat:
        """Give a process by name.

        Raises
        ------
        SpecError
            With the nearest name, if the file has none.
        """
        for seat in self.seats:
            if node in (seat.node, f"{seat.role}/{seat.node}"):
                return seat
        names = tuple(seat.node for seat in self.seats)
        raise SpecError(f"{self.path} has no process {node!r}{_or(node, names)}; it has {', '.join(names)}")


def read_cluster_file(path: Path | str) -> ClusterFile:
    """Read a cluster file.

    Paths in it are relative to the folder in which the program was started.

    Raises
    ------
    SpecError
        If there is none, or it says something that cannot be: the text names the key and the mend.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            tables = tomllib.load(file)
    except OSError as error:
        raise SpecError(f"{path} cannot be read: {error.strerror}; give another file with -f") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise SpecError(f"{path} is no TOML: {error}") from error
    try:
        return _made(path, tables)
    except SpecError as error:
        raise SpecError(f"{path}: {error}") from error


def _made(path: Path, tables: Mapping[str, Any]) -> ClusterFile:
    known = ("cluster", *_KINDS, "addresses", "network", *_PARTS)
    for name, table in tables.items():
        if name not in known:
            raise SpecError(f"there is no table [{name}]{_or(name, known)}; there are {', '.join(known)}")
        if not isinstance(table, dict):
            raise SpecError(f"{name} must be a table: write [{name}]")
    cluster = _checked("cluster", tables.get("cluster", {}), _CLUSTER)
    groups = {
        kind: _checked(
            kind, tables.get(kind, {}), _GROUP | ({"scan_threads": int} if kind == "storages" else {})
        )
        for kind in _KINDS
    }
    for kind, group in groups.items():
        for key, least in (("count", 1), ("standby", 0), ("scan_threads", 1)):
            number = group.get(key, least)
            if number > GROUP_MAX:
                raise SpecError(f"{kind}.{key} must be at most {GROUP_MAX:,}, not {number:,}")
            if number < least:
                raise SpecError(f"{kind}.{key} must be at least {least}, not {number}")
    spec = _spec(cluster, groups, tables)
    name = cluster.get("name", "crescando")
    if not is_name(name):
        raise SpecError(
            f"cluster.name must be of letters, digits, dots, hyphens and underscores, not {name!r}"
        )
    return ClusterFile(
        path=path,
        name=name,
        spec=spec,
        seats=_seats(groups, spec, tables.get("addresses", {})),
        certificates=Path(cluster.get("certificates", "certs")),
        restart=cluster.get("restart", True),
        listen=cluster.get("listen", ""),
        meter=cluster.get("meter", False),
        network=_network(tables.get("network", {})),
    )


def _network(table: Mapping[str, Any]) -> SocketLimits:
    given = _above_zero("network", _checked("network", table, _types_of(SocketLimits())))
    limits = replace(SocketLimits(), **given)
    if not CLIENT_BYTES_MIN <= limits.client_bytes_max <= limits.message_bytes_max:
        raise SpecError(
            f"network.client_bytes_max must be at least {CLIENT_BYTES_MIN} and at most "
            f"network.message_bytes_max, {limits.message_bytes_max}, not {limits.client_bytes_max}"
        )
    return limits


def _spec(
    cluster: Mapping[str, Any], groups: Mapping[str, Mapping[str, Any]], tables: Mapping[str, Any]
) -> ClusterSpec:
    defaults = {part: field for part, field in _PARTS.items() if part in tables}
    parts = {}
    for part, name in defaults.items():
        default = getattr(ClusterSpec(), name)
        given = _checked(part, tables[part], _types_of(default))
        # Policies look at themselves, and have keys that may be 0.
        parts[name] = replace(default, **(given if part in _POLICIES else _above_zero(part, given)))
    with warnings.catch_warnings():
        # A file is read by many commands; its writer is told once, by `doctor`.
        warnings.simplefilter("ignore")
        try:
            return ClusterSpec(
                routers=groups["routers"].get("count", 3),
                standby_routers=groups["routers"].get("standby", 0),
                storages=groups["storages"].get("count", 4),
                supers=groups["supers"].get("count", 3),
                replication=cluster.get("replication", 3),
                engine=cluster.get("engine", "scan"),
                scan_threads=groups["storages"].get("scan_threads", 1),
                **parts,
            )
        except SpecError as error:
            raise SpecError(_in_the_file(str(error))) from error


def _in_the_file(text: str) -> str:
    """Give an error of the specification with the names that its settings have in a file."""
    for table, part in _PARTS.items():
        text = re.sub(rf"\b{part}\.", f"{table}.", text)
    return text


def _types_of(part: Any) -> dict[str, type]:
    """Give the keys of a table that sets a part, and what each takes."""
    return {key.name: _TYPES.get(str(key.type), str) for key in fields(part)}


def _seats(
    groups: Mapping[str, Mapping[str, Any]], spec: ClusterSpec, addresses: Mapping[str, Any]
) -> tuple[Seat, ...]:
    names = Names.of(spec)
    founding = {"routers": names.routers, "storages": names.storages, "supers": names.supers}
    seats: list[Seat] = []
    for kind, role in _KINDS.items():
        group = groups[kind]
        n_standby = group.get("standby", 0)
        nodes = [process.node for process in founding[kind]]
        nodes += [f"{_LETTERS[kind]}{len(nodes) + i}" for i in range(1, n_standby + 1)]
        host, port = group.get("host", HOST), group.get("port", PORTS[kind])
        for place, node in enumerate(nodes):
            at = addresses.get(node, f"{host}:{port + place}")
            seats.append(Seat(role, node, *parse_address(at, node), place < len(founding[kind])))
    known = tuple(seat.node for seat in seats)
    for node in addresses:
        if node not in known:
            raise SpecError(f"[addresses] names {node!r}, which is no process{_or(node, known)}")
    taken: dict[str, Seat] = {}
    for seat in seats:
        other = taken.setdefault(seat.address, seat)
        if other is not seat:
            raise SpecError(f"{other.node} and {seat.node} both listen at {seat.address}; change one port")
    return tuple(seats)


def _checked(table: str, values: Mapping[str, Any], types: Mapping[str, type]) -> dict[str, Any]:
    """Give the values of a table; raises for unknown keys and wrong types."""
    known = tuple(types)
    for key, value in values.items():
        if key not in types:
            raise SpecError(f"[{table}] has no key {key!r}{_or(key, known)}; it has {', '.join(known)}")
        wanted = types[key]
        fits = type(value) is wanted or (wanted is float and type(value) is int)
        if not fits:
            raise SpecError(f"{table}.{key} must be {_SAID[wanted]}, not {value!r}")
        if wanted is float and not math.isfinite(value):
            raise SpecError(f"{table}.{key} must be a finite number, not {value!r}")
    return dict(values)


def _above_zero(table: str, given: dict[str, Any]) -> dict[str, Any]:
    """Give the values of a table back; raises if one is not above 0."""
    for key, value in given.items():
        if not value > 0:
            raise SpecError(f"{table}.{key} must be greater than 0, not {value!r}")
    return given


def _or(name: str, known: tuple[str, ...]) -> str:
    nearest = nearest_name(name, known)
    return f" (did you mean {nearest!r}?)" if nearest else ""
