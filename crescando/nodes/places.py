"""Where processes listen, as far as is known here.

Rules of the file: a place belongs to a role and a name, whatever life of it
runs there; who is really there proves it in the handshake.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from crescando.roles.description import NODE, Place
from crescando.transport.handshake import Address
from crescando.types import ProcessId

if TYPE_CHECKING:
    from crescando.clusterfile import Seat


def places_of(seats: Iterable[Seat]) -> tuple[Place, ...]:
    """Give where the processes of a cluster file listen, and their nodes with them."""
    return tuple(Place(role, seat.node, seat.host, seat.port) for seat in seats for role in (seat.role, NODE))


class AddressBook:
    """Addresses by role and name; later news replaces earlier.

    Parameters
    ----------
    places : iterable of Place, optional
    """

    def __init__(self, places: Iterable[Place] = ()) -> None:
        self._known: dict[tuple[str, str], tuple[str, int]] = {}
        self.learn(places)

    def learn(self, places: Iterable[Place]) -> None:
        """Take what somebody says of where processes listen."""
        self._known.update({(place.role, place.node): (place.host, place.port) for place in places})

    def locate(self, process: ProcessId) -> Address | None:
        """Give a process's address, or None if nobody has said it."""
        return self._known.get((process.role, process.node))

    def places(self) -> tuple[Place, ...]:
        """Give everything that is known."""
        return tuple(Place(role, node, host, port) for (role, node), (host, port) in self._known.items())
