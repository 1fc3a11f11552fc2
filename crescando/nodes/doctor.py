"""What is wrong, or will be, with a cluster and its host: each finding with what mends it.

Rules of the file: nothing is changed and nothing is started. What cannot be
looked at from here is a finding too; what belongs to other hosts is looked at
there. A finding is a *fault* if the cluster cannot run with it, a *warning* if it
can, for now.
"""

from __future__ import annotations

import datetime
import importlib.util
import os
import re
import resource
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from crescando.clusterfile import ClusterFile, Seat
from crescando.errors import CrescandoError
from crescando.nodes.files import certificate_for, client_credentials, file_of
from crescando.nodes.health import Health, NodeHealth, look
from crescando.nodes.looks import VERSION
from crescando.nodes.runs import FOLDER
from crescando.transport.credentials import FileCredentials
from crescando.warming import VARIABLE, compiling

Grade = Literal["good", "warning", "fault"]

FILES_MIN = 4096
"""Each client has a session with every process: a thousand of them need a thousand sockets at each."""

CLOCK_S = 2.0
"""Clocks may differ by so much: certificates are valid to the minute, and people read logs side by side."""

EXPIRES_SOON = datetime.timedelta(days=3)

JAVA_MIN = 17
"""The oldest that the present Spark runs on."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at.

    Attributes
    ----------
    what : str
        Of what kind it is, such as ``certificates``.
    grade : str
    text : str
    mend : str
        What to do about it; empty if nothing need be done.
    """

    what: str
    grade: Grade
    text: str
    mend: str = ""

    def __str__(self) -> str:
        mend = f"\n           {self.mend}" if self.mend else ""
        return f"{self.grade:<8} {self.what}: {self.text}{mend}"


def examine(file: ClusterFile, *, client: str) -> tuple[Finding, ...]:
    """Look at everything.

    Parameters
    ----------
    file : ClusterFile
    client : str
        The client as which nodes are asked.
    """
    return (
        *_host(),
        *_shape(file),
        *_certificates(file),
        *_nodes(file, client),
    )


# This host.


def _host() -> Iterator[Finding]:
    python = ".".join(map(str, sys.version_info[:3]))
    yield Finding("versions", "good", f"crescando {VERSION}, Python {python}")
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if 0 <= soft < FILES_MIN:
        most = "unlimited" if hard == resource.RLIM_INFINITY else f"{hard:,}"
        yield Finding(
            "file limit",
            "warning",
            f"a process may have {soft:,} files and sockets open",
            f"raise it to {FILES_MIN:,} or more (the hard limit is {most}): ulimit -n {FILES_MIN}, "
            f"or LimitNOFILE={FILES_MIN} in a systemd unit",
        )
    else:
        yield Finding("file limit", "good", f"{soft:,} files and sockets")
    if importlib.util.find_spec("numba") is None:
        yield Finding(
            "kernels", "warning", "numba is not installed: scans are slower", "install crescando[kernels]"
        )
    elif os.environ.get(VARIABLE) == "numpy":
        yield Finding("kernels", "good", f"NumPy's, since {VARIABLE} asks for them")
    elif compiling() is not None:
        yield Finding("kernels", "good", "not compiled yet; `crescando up` does it once, in the background")
    else:
        yield Finding("kernels", "good", "compiled")
    if importlib.util.find_spec("uvloop") is None:
        yield Finding(
            "sockets", "warning", "uvloop is not installed: the network costs more", "install crescando[tls]"
        )
    yield java()


def java() -> Finding:
    """Look for the Java that Spark would run on."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    mend = f"install a Java of version {JAVA_MIN} or newer, or set JAVA_HOME; nothing else needs it"
    if java is None or not Path(java).exists():
        where = f"JAVA_HOME is {home}, and there is no {java}" if home else "there is no java"
        return Finding("Java", "warning", f"{where}: Spark cannot be used on this host", mend)
    try:
        told = subprocess.run([java, "-version"], capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired) as error:
        return Finding("Java", "warning", f"{java} does not run: {error}", mend)
    found = re.search(r'version "(\d+)(?:\.(\d+))?', told.stderr + told.stdout)
    if found is None:
        return Finding("Java", "warning", f"{java} does not say its version", mend)
    # Before 9 it was called 1.8 and the like.
    version = int(found[2] or 0) if found[1] == "1" else int(found[1])
    if version < JAVA_MIN:
        return Finding("Java", "warning", f"{java} is of version {version}", mend)
    return Finding("Java", "good", f"{java} is of version {version}")


# The file.


def _shape(file: ClusterFile) -> Iterator[Finding]:
    spec = file.spec
    yield Finding(
        "cluster",
        "good",
        f"{spec.routers} routers, {spec.storages} storage processes, {spec.supers} supers, "
        f"{spec.replication} copies",
    )
    for what, n in (("routers", spec.routers), ("supers", spec.supers)):
        if n < 3:
            yield Finding(
                "cluster",
                "warning",
                f"with {n} {what} no failure of one is survived",
                f"set {what}.count to 3",
            )
        elif n % 2 == 0:
            yield Finding(
                "cluster",
                "warning",
                f"{n} {what} tolerate no more failures than {n - 1}",
                f"set {what}.count to {n - 1} or {n + 1}",
            )
    if spec.replication < 2:
        yield Finding(
            "cluster",
            "warning",
            "each row is kept once: what a storage process holds is lost with it",
            "set cluster.replication to 3",
        )
    hosts = {seat.host for seat in file.seats}
    if len(hosts) == 1:
        yield Finding("cluster", "good", f"all on {next(iter(hosts))}: the host's failure is everybody's")


# Certificates.


def _certificates(file: ClusterFile) -> Iterator[Finding]:
    what = "certificates"
    folder = file.certificates
    if not folder.is_dir():
        yield Finding(
            what, "fault", f"there is no folder {folder}", f"run: crescando certs init --dir {folder}"
        )
        return
    try:
        from crescando.certificates import AUTHORITY_KEY_FILE, check
    except ImportError:
        yield Finding(what, "warning", "cryptography is not installed", "install crescando[tls]")
        return
    has_authority = (folder / AUTHORITY_KEY_FILE).exists()
    n_good = 0
    elsewhere = []
    now = datetime.datetime.now(datetime.UTC)
    for seat in file.seats:
        path = file_of(folder, seat.role, seat.node)
        if not path.exists():
            if not _is_here(seat):
                elsewhere.append(seat.node)
            elif not has_authority:
                yield Finding(what, "fault", f"{path} is missing", _said_mend(file, seat.node))
            # Else it is issued when the node starts.
            continue
        found = check(path)
        names = f"{seat.role}/{seat.node}", f"node/{seat.node}"
        if found.fault:
            yield Finding(what, "fault", f"{path}: {found.fault}")
        elif not set(names) <= set(found.names):
            together = f"crescando certs issue --dir {folder} --together {path} {' '.join(names)}"
            yield Finding(what, "fault", f"{path} names {', '.join(found.names)}", f"run: {together}")
        elif found.expires is not None and found.expires - now < EXPIRES_SOON:
            yield Finding(
                what,
                "warning",
                f"{path} expires at {found.expires:%Y-%m-%d %H:%M} UTC",
                f"run: crescando certs rotate --dir {folder}",
            )
        else:
            n_good += 1
    if n_good:
        yield Finding(what, "good", f"{n_good} nodes' files in {folder}")
    if elsewhere:
        yield Finding(
            what, "good", f"the files of {', '.join(elsewhere)} are not here, and neither are their addresses"
        )
    elif has_authority:
        yield Finding(what, "good", f"the authority is in {folder}; nodes' files are made when they start")


def _said_mend(file: ClusterFile, node: str) -> str:
    try:
        certificate_for(file, file.seat(node))
    except CrescandoError as error:
        return str(error).rpartition("; ")[2]
    return ""


# Nodes and ports.


def _nodes(file: ClusterFile, client: str) -> Iterator[Finding]:
    credentials: FileCredentials | None = None
    try:
        credentials = client_credentials(file.certificates, client)
    except CrescandoError as error:
        yield Finding("nodes", "warning", f"they cannot be asked: {error}")
    health = look(file, credentials) if credentials is not None else None
    if health is None or not any(node.described for node in health.nodes):
        yield from _free_ports(file)
        return
    for node in health.nodes:
        if node.fault:
            where = f"{node.seat.node} at {node.seat.address}"
            yield Finding("nodes", "fault", f"{where} {node.fault}", _node_mend(file, node))
    yield from _agreement(health)
    if health.config is not None and health.config.failed:
        failed = ", ".join(map(str, sorted(health.config.failed)))
        yield Finding(
            "nodes",
            "fault",
            f"{failed} failed, and nobody has its place on the ring",
            "start a process on standby and run: "
            + " and ".join(f"crescando replace {process.node}" for process in sorted(health.config.failed))
            + "; or set healing.action to replace",
        )


def _node_mend(file: ClusterFile, node: NodeHealth) -> str:
    if node.described is None:
        own = FOLDER / file.name / f"{node.seat.node}.log"
        log = f"look into {own}" if own.exists() else "look into its log"
        return f"{log}; where nobody starts it again: crescando up -f {file.path} --node {node.seat.node}"
    if node.host is None:
        return "it begins when the others have begun: start them, or look into its log"
    if not node.host.is_running:
        return "start its node again: it comes back as a later life"
    return "a majority of the routers must run, and it must reach them: look at these first"


def _agreement(health: Health) -> Iterator[Finding]:
    """Tell of versions and clocks that differ."""
    asked = [node for node in health.nodes if node.described is not None]
    versions = {node.described.version for node in asked if node.described is not None}
    if versions == {VERSION}:
        yield Finding("versions", "good", f"all {len(asked)} nodes that answer run crescando {VERSION}")
    else:
        for node in asked:
            if node.described is not None and node.described.version != VERSION:
                yield Finding(
                    "versions",
                    "warning",
                    f"{node.seat.node} runs crescando {node.described.version}, and here is {VERSION}",
                    "bring all nodes to one version, one after another",
                )
    off = [node for node in asked if abs(node.clock_s) > CLOCK_S]
    for node in off:
        direction = "ahead" if node.clock_s > 0 else "behind"
        yield Finding(
            "clocks",
            "warning",
            f"the clock of {node.seat.node} is {abs(node.clock_s):.1f} s {direction} of this host's",
            "keep all clocks by NTP (chrony or systemd-timesyncd)",
        )
    if not off:
        yield Finding("clocks", "good", f"no node's differs by more than {CLOCK_S:.0f} s")


def _is_here(seat: Seat) -> bool:
    """Say whether a process is to listen on this host, as far as its address tells."""
    with socket.socket(_family(seat), socket.SOCK_STREAM) as probe:
        try:
            probe.bind((seat.host, 0))
        except OSError:
            return False
    return True


def _family(seat: Seat) -> socket.AddressFamily:
    return socket.AF_INET6 if ":" in seat.host else socket.AF_INET


def _free_ports(file: ClusterFile) -> Iterator[Finding]:
    """Tell of ports that somebody else has, while no node answers."""
    n_free = 0
    here = [seat for seat in file.seats if file.listen or _is_here(seat)]
    for seat in here:
        with socket.socket(_family(seat), socket.SOCK_STREAM) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((file.listen or seat.host, seat.port))
            except OSError as error:
                yield Finding(
                    "ports",
                    "fault",
                    f"{seat.node} cannot listen at {seat.address}: {error.strerror}",
                    f"end what listens there, or choose another address in {file.path}",
                )
            else:
                n_free += 1
    if n_free:
        yield Finding("ports", "good", f"no node runs; {n_free} of {len(here)} ports are free here")
