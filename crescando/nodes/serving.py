"""An embedded store as a server: its processes behind one port, over mutual TLS.

Rules of the file: one certificate names all of them, and is issued anew when
another one comes; one node answers for them, so that clients find them as they
find any cluster's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from pathlib import Path

from crescando import wire
from crescando.errors import CredentialsError, SpecError
from crescando.hosting import Processes
from crescando.loop import LoopThread
from crescando.nodes.looks import describe_processes
from crescando.pump import Pump
from crescando.roles.description import NODE, ChangeRouters, Described, Describer, Place, node_of
from crescando.transport.addresses import parse_address
from crescando.transport.credentials import FileCredentials
from crescando.transport.joint import JointTransport
from crescando.transport.sockets import SocketTransport
from crescando.types import ProcessId

NAME = "store"
"""Of the node that answers for the processes."""

LISTEN_S = 10.0


class Server:
    """Lets clients outside use the processes of an event loop.

    Parameters
    ----------
    loop : LoopThread
    transport : JointTransport
        Of the processes.
    processes : Processes
    routers : callable
        Gives the members of the ordering group, in the loop's thread.
    tls : path
        A file that names every process and ``node/store``; or the folder of an
        authority, which then issues one.

    Attributes
    ----------
    cluster : str
        The name in the certificate.
    """

    def __init__(
        self,
        loop: LoopThread,
        transport: JointTransport,
        processes: Processes,
        routers: Callable[[], tuple[ProcessId, ...]],
        tls: Path | str,
    ) -> None:
        self._loop = loop
        self._near = transport
        self._processes = processes
        self._routers = routers
        self._tls = Path(tls)
        self._credentials = self._credentials_for(loop.call(lambda: tuple(processes)))
        self.cluster = next(iter(self._credentials.certificate.identities)).cluster
        self._address = ("", 0)
        self._far: SocketTransport | None = None
        self._pump: Pump | None = None

    def start(self, address: str) -> str:
        """Listen, and give the URL at which clients find the store.

        Raises
        ------
        SpecError
            If that cannot be listened at.
        CredentialsError
            If the certificate does not name every process.
        """
        host, port = parse_address(address, "the address to serve at", may_be_free=True)

        async def begin() -> None:
            far = self._far = SocketTransport(
                self._loop.loop,
                codec=(wire.encode, self._decoder_for),
                locate=lambda _: None,
                cluster=self.cluster,
                credentials=self._credentials,
            )
            self._address = _as_pair(await far.listen((host, port)))
            self._near.join(far, self._admit)
            describer = Describer(node_of(NAME), self._describe, self._change_routers)
            self._pump = Pump(describer, far, self._loop.agenda)
            self._pump.start()

        try:
            asyncio.run_coroutine_threadsafe(begin(), self._loop.loop).result(LISTEN_S)
        except OSError as error:
            raise SpecError(f"the store cannot listen at {address}: {error}") from error
        except CredentialsError:
            self._loop.call(self.stop)
            raise
        return f"crescando://{self._address[0]}:{self._address[1]}"

    def stop(self) -> None:
        """Listen no more, and end every session with the outside; in the loop's thread."""
        self._near.part()
        if self._pump is not None:
            self._pump.stop()
        if self._far is not None:
            self._far.close()

    def _decoder_for(self, sender: ProcessId, receiver: ProcessId, denial: str) -> wire.Decode | None:
        """Have nobody outside taken for a client inside, which has a name and no certificate."""
        return None if self._near.is_inside(sender) else wire.decoder_for(sender, receiver, denial)

    def _change_routers(self, wish: ChangeRouters) -> str:
        return self._processes.change_routers(add=wish.add, remove=wish.remove)

    def _describe(self) -> Described:
        known = {(process.role, process.node) for process in self._processes}
        places = [Place(role, node, *self._address) for role, node in sorted(known | {(NODE, NAME)})]
        assert self._far is not None
        return describe_processes(self._processes, self._routers(), places, self._far.limits.request_bytes)

    # The certificate.

    def _credentials_for(self, processes: Iterable[ProcessId]) -> FileCredentials:
        if not self._tls.is_dir():
            return FileCredentials(self._tls)
        return FileCredentials(self._issue(processes))

    def _issue(self, processes: Iterable[ProcessId]) -> Path:
        try:
            from crescando.certificates import Authority
        except ImportError as error:
            raise SpecError("certificates need the extra [tls]: install crescando[tls]") from error

        names = sorted(
            {f"{process.role}/{process.node}" for process in processes if process.role != "client"}
        )
        return Authority(self._tls).ensure(f"{NODE}/{NAME}", *names)

    def _admit(self, process: ProcessId) -> None:
        """Have the certificate name a process that comes later, if the authority is here."""
        if self._credentials.certificate.fault_of(self.cluster, process) and self._tls.is_dir():
            self._issue((*self._processes, process))
            self._credentials.refresh()


def _as_pair(address: tuple[str, int] | str) -> tuple[str, int]:
    assert not isinstance(address, str)
    return address
