"""The coordinator, as a group and the modules that find a group see it.

Owns the names alone: with them the groups stand below the coordinator that makes them.
"""

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Protocol

from tiered.broker.context import BrokerContext
from tiered.broker.groups.committed_offsets import CommittedOffsets
from tiered.broker.groups.group import Group
from tiered.broker.groups.memory import GroupMemory
from tiered.broker.host.resource_configs import ResourceConfigs
from tiered.broker.partitions.topics import Topics
from tiered.broker.security.access import Access
from tiered.rules.groups.assignors import Partitions
from tiered.rules.groups.consumer_group import KnownTopics, Matches
from tiered.rules.groups.consumer_heartbeat import Heartbeat
from tiered.rules.groups.consumer_member import Pattern

if TYPE_CHECKING:
    from tiered.broker.groups.consumer_group import ConsumerGroup


class Consumers(Protocol):
    """All groups of the new protocol, and the topics that they mean."""

    @property
    def shown_version(self) -> int: ...
    def opened(self, group: "ConsumerGroup") -> None: ...
    def closed(self, group: "ConsumerGroup") -> None: ...
    def turn_classic(self, group: "ConsumerGroup", *, generation: int) -> object: ...
    def pattern_of(self, heartbeat: Heartbeat) -> Pattern: ...
    def topics_of(self, patterns: Iterable[Pattern]) -> tuple[KnownTopics, Matches]: ...
    def named(self, partitions: Partitions) -> Mapping[str, tuple[int, ...]]: ...
    def by_id(self, partitions: Mapping[str, Iterable[int]]) -> Partitions: ...


class Surroundings(Protocol):
    """The coordinator, as its groups see it."""

    context: BrokerContext
    topics: Topics
    access: Access
    resource_configs: ResourceConfigs
    memory: GroupMemory
    offsets: CommittedOffsets

    @property
    def consumer(self) -> Consumers: ...
    def slot(self, group_id: str) -> int: ...
    def check_ours(self, group_id: str) -> None: ...
    def find(self, group_id: str) -> Group | None: ...
    def is_loading(self, group_id: str) -> bool: ...
    async def load(self, group_id: str) -> Group | None: ...
    def adopt(self, group: Group) -> Group: ...
    def count_new(self) -> None: ...
