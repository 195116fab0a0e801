"""The seam between a follower and its leader: one question at a time over whatever connects them.

Owns the protocol, not its implementations: real brokers speak Kafka's Fetch over TCP, the simulation passes
values along. Must never repeat a question: the follower decides when to ask again.
"""

from typing import Protocol

from tiered.meta.brokers import BrokerRow
from tiered.wire.fetch import FetchRequest, FetchResponse


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
