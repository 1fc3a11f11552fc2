"""Hosts of one network on this machine: network namespaces, joined by a bridge in one of their own.

Rules of the file: addresses, links and routes exist in the namespaces made here and
nowhere else; whatever was made is removed, in whatever way the test ends. What runs
on a host is ended by whoever started it.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

SUBNET = "10.77.0"
"""Nobody outside the namespaces sees it."""

CARD, BRIDGE = "e0", "b0"


class HostsError(Exception):
    """Namespaces cannot be made here; the text says why."""


@dataclass(frozen=True, slots=True)
class Host:
    """A namespace, and its address in the network of all.

    Attributes
    ----------
    namespace, address : str
    hub : str
        The namespace with the bridge.
    port : str
        This host's end there.
    """

    namespace: str
    address: str
    hub: str
    port: str

    def command(self, *arguments: str) -> list[str]:
        """Give a command as one that runs on this host."""
        return ["ip", "netns", "exec", self.namespace, *arguments]

    def part(self) -> None:
        """Pull its cable."""
        _run("ip", "-n", self.hub, "link", "set", self.port, "down")

    def join(self) -> None:
        """Plug its cable in again."""
        _run("ip", "-n", self.hub, "link", "set", self.port, "up")

    def delay(self, delay_ms: int) -> bool:
        """Let everything that it sends come later; False if this kernel cannot do that."""
        delay = ("netem", "delay", f"{delay_ms}ms")
        done = subprocess.run(
            ["tc", "-n", self.namespace, "qdisc", "add", "dev", CARD, "root", *delay],
            capture_output=True,
            check=False,
        )
        return done.returncode == 0


def why_not() -> str:
    """Say why hosts cannot be made here; empty if they can."""
    if shutil.which("ip") is None or shutil.which("tc") is None:
        return "network namespaces need iproute2: the commands ip and tc"
    if os.geteuid() != 0:
        return "network namespaces need root"
    try:
        with hosts(2):
            return ""
    except HostsError as error:
        return str(error)


@contextmanager
def hosts(n: int) -> Iterator[Sequence[Host]]:
    """Make hosts that reach each other, and nobody else.

    Raises
    ------
    HostsError
        If this machine does not let us.
    """
    hub = f"crescando-{os.getpid()}-hub"
    made = [Host(f"crescando-{os.getpid()}-h{i}", f"{SUBNET}.{i}", hub, f"p{i}") for i in range(1, n + 1)]
    with ExitStack() as stack:
        for namespace in (hub, *(host.namespace for host in made)):
            _run("ip", "netns", "add", namespace)
            # Its ends of links go with it.
            stack.callback(subprocess.run, ["ip", "netns", "del", namespace], check=False)
        _run("ip", "-n", hub, "link", "add", BRIDGE, "type", "bridge")
        _run("ip", "-n", hub, "link", "set", BRIDGE, "up")
        for host in made:
            name = host.namespace
            _run(
                "ip", "-n", hub, "link", "add", host.port, "type", "veth", "peer", "name", CARD, "netns", name
            )
            _run("ip", "-n", hub, "link", "set", host.port, "master", BRIDGE, "up")
            _run("ip", "-n", name, "addr", "add", f"{host.address}/24", "dev", CARD)
            _run("ip", "-n", name, "link", "set", CARD, "up")
            _run("ip", "-n", name, "link", "set", "lo", "up")
        yield made


def _run(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HostsError(f"{' '.join(command)}: {done.stderr.strip()}")
