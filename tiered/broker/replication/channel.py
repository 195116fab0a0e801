"""The seam between a follower and its leader, one question at a time, and what connects real brokers: Kafka's Fetch.

Owns the protocol, and one TCP connection; the simulation passes values along. Must never repeat a question: the
follower decides when to ask again.
"""

from typing import Protocol

from tiered.config.client_security import ClientSecurity
from tiered.meta.brokers import BrokerRow
from tiered.peer.answers import ConnectionLost, broker_error
from tiered.peer.connection import Peer
from tiered.peer.security import PLAINTEXT, PeerSecurity
from tiered.wire.fetch import FetchRequest, FetchResponse

TIMEOUT_MS = 5_000.0
"""Beyond the wait that the question allows: a leader that is this late has stopped, or cannot be reached."""


class ReplicaChannel(Protocol):
    """One follower's connection to one leader."""

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """The leader's answer; its records are contiguous bytes that the caller may change until it asks again.

        Raises TieredError when there is none (unreachable, timed out, cut off); then nothing is known.
        """

    def close(self) -> None:
        """Ends the connection; a question under way raises."""


class Channels(Protocol):
    """Opens channels; a broker has one of these for its life."""

    async def open(self, leader: BrokerRow) -> ReplicaChannel:
        """A channel to the broker at the address of its registration. Raises TieredError."""


class PeerChannel:
    """One follower's connection to one leader."""

    def __init__(self, peer: Peer) -> None:
        self._peer = peer

    async def fetch(self, request: FetchRequest) -> FetchResponse:
        """The leader's answer. Raises ConnectionLost, RequestTimedOut, CorruptAnswer, or what it refused all with."""
        answer = await self._peer.fetch_as_replica(request)
        if answer.error_code:
            raise broker_error(answer.error_code, "a leader refused a follower's Fetch")
        return answer

    def close(self) -> None:
        """Ends the connection."""
        self._peer.close()


class PeerChannels:
    """Opens connections under one broker's name: `broker-<id>-fetcher-<n>`."""

    def __init__(self, broker_id: int, listener: str = "", security: ClientSecurity = PLAINTEXT) -> None:
        """`listener` is the one that brokers have for each other, and `security` how it is entered. Raises
        InvalidConfig when that does not load."""
        self._broker_id = broker_id
        self._listener = listener
        self._security = PeerSecurity(security)
        self._security.context()
        self._opened = 0

    async def open(self, leader: BrokerRow) -> PeerChannel:
        """A connection to the address of the leader's registration. Raises ConnectionLost, RequestTimedOut."""
        address = leader.address(self._listener)
        if address is None:
            raise ConnectionLost(f"broker {leader.broker_id} has no listener {self._listener}: give it one")
        self._opened += 1
        client_id = f"broker-{self._broker_id}-fetcher-{self._opened}"
        peer = await Peer.connect(
            *address, client_id=client_id, timeout_ms=TIMEOUT_MS, keeps_buffer=True, security=self._security
        )
        return PeerChannel(peer)
