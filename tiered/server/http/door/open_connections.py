"""The open connections of the HTTP door, by the address that they come from.

Owns who has a place, and who gives one up. An address takes a free place only while as many stay free as it has: half
of all where nobody else has any. Where it may not, a connection without a request in progress gives up its own: one of
the address that has the most, if that is more than the newcomer's has, else one of the newcomer's. Of an address those
go first that brought no request for longest. Must never end a connection whose request is in progress.
"""

from collections.abc import Callable
from typing import Protocol

from tiered.account import OwnersShares


class OpenConnection(Protocol):
    """One that counts, from the moment that it is accepted: it may shake hands first."""

    @property
    def address(self) -> str: ...

    @property
    def has_request(self) -> bool:
        """Whether a request of it is in progress."""

    def hang_up(self) -> None: ...


class OpenConnections:
    """All that are open; `most` is how many there may be."""

    def __init__(self, most: Callable[[], int]) -> None:
        self._most = most
        self._shares = OwnersShares()
        self._by_address: dict[str, dict[OpenConnection, None]] = {}

    def make_room(self, address: str) -> bool:
        """Whether one more may come from there; it takes its place by `add`, without a wait in between."""
        most = self._most()
        if self._shares.has_room(address, 1, most):
            return True
        dispensable = self._dispensable(address)
        if dispensable is not None:
            self.remove(dispensable)
            dispensable.hang_up()
        return dispensable is not None and self._shares.total < most

    def _dispensable(self, address: str) -> OpenConnection | None:
        """Looks at all of them in the worst case, which costs less than to accept one: there are some hundreds."""
        own = self._by_address.get(address, {})
        others = [connections for connections in self._by_address.values() if len(connections) > len(own)]
        for connections in (*sorted(others, key=len, reverse=True), own):
            for connection in connections:
                if not connection.has_request:
                    return connection
        return None

    def add(self, connection: OpenConnection) -> None:
        self._shares.take(connection.address, 1)
        self._by_address.setdefault(connection.address, {})[connection] = None

    def remove(self, connection: OpenConnection) -> None:
        """Does nothing where it has no place any more."""
        connections = self._by_address.get(connection.address, {})
        if connection not in connections:
            return
        del connections[connection]
        if not connections:
            del self._by_address[connection.address]
        self._shares.take(connection.address, -1)

    def brought_request(self, connection: OpenConnection) -> None:
        """It is the last of its address to give up its place."""
        connections = self._by_address.get(connection.address, {})
        if connection in connections:
            del connections[connection]
            connections[connection] = None

    def __contains__(self, connection: OpenConnection) -> bool:
        return connection in self._by_address.get(connection.address, ())
