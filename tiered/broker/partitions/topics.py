"""The topics this broker knows, by name and by id: what Metadata answers from memory.

Owns the image and nothing else. Must never ask SQL: `feed` applies here what SQL has committed.
"""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from operator import attrgetter
from uuid import UUID

from tiered.broker.partitions.batch_checks import AS_SENT
from tiered.broker.partitions.partition import Partition
from tiered.config import TopicConfig
from tiered.errors import (
    InvalidTopic,
    LogDirFailed,
    NotLeader,
    TieredError,
    UnknownTopicId,
    UnknownTopicOrPartition,
)
from tiered.ids import TopicId, TopicPartition, is_legal_topic_name

OFFSETS_TOPIC = "__consumer_offsets"
Unopened = TieredError | OSError
"""Why a partition that this broker is to hold is not open."""
_NAME = attrgetter("name")


@dataclass(frozen=True, slots=True, kw_only=True)
class Topic:
    """One topic as it is now. `overrides` are the configs set on it, `config` the effective ones.

    `partition_count` is the true one; `partitions` are those that this broker holds a replica of, by number: all of
    them where it is alone. `unopened` says of the others that it is to hold why they cannot be opened. An internal
    topic's records live in SQL, so it has no log: what reads it asks the group coordinator.
    """

    name: str
    topic_id: TopicId
    partition_count: int
    config: TopicConfig
    overrides: Mapping[str, str]
    partitions: tuple[Partition, ...]
    replication_factor: int = 1
    is_internal: bool = False
    unopened: Mapping[int, Unopened] = field(default_factory=dict)
    _by_number: Mapping[int, Partition] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        by_number = {each.topic_partition.partition: each for each in self.partitions}
        object.__setattr__(self, "_by_number", by_number)

    def partition(self, index: int) -> Partition:
        """The partition. Raises NotLeader when only others hold it, LogDirFailed where it cannot be opened here, and
        UnknownTopicOrPartition when there is none."""
        found = self._by_number.get(index)
        if found is not None:
            return found
        if index in self.unopened:
            raise LogDirFailed(f"{self.name}-{index} cannot be opened, and is tried again: {self.unopened[index]}")
        if 0 <= index < self.partition_count and not self.is_internal:
            raise NotLeader(f"{self.name}-{index} is not held by this broker; refresh metadata")
        raise UnknownTopicOrPartition(f"{self.name} has no partition {index}; refresh metadata")

    def hosted(self, index: int) -> Partition | None:
        """The partition if this broker holds a replica of it."""
        return self._by_number.get(index)


class Topics:
    """The image: replaced topic by topic, read by every request."""

    def __init__(self) -> None:
        self.version = 0
        """Another one after each topic that was created, deleted or given more partitions."""
        self.hosted_count = 0
        """How many partitions this broker holds a replica of."""
        self._by_name: dict[str, Topic] = {}
        self._in_order: list[Topic] = []
        """By name. To sort 100,000 names for each list of them would take 50 ms in one step, to copy them 20."""
        self._by_id: dict[int, Topic] = {}
        """By `UUID.int`: a UUID's own hash and comparison are Python code, and every request comes by here."""
        self._with_codec: set[UUID] = set()
        self._with_unopened: dict[int, Topic] = {}

    @property
    def have_codecs(self) -> bool:
        """Whether any topic has a codec of its own, so that batches may have to be compressed anew."""
        return bool(self._with_codec)

    def __iter__(self) -> Iterator[Topic]:
        """The topics in the order of their names, which is the same at every broker. Topics may come and go meanwhile:
        every other one is there once, and of those behind the last one each that is there when its turn comes."""
        return self.from_name("")

    def from_name(self, name: str) -> Iterator[Topic]:
        """The same without those whose names stand before `name`."""
        place, version = self._place(name), self.version
        while place < len(self._in_order):
            topic = self._in_order[place]
            yield topic
            place += 1
            if version != self.version:
                place, version = bisect_right(self._in_order, topic.name, key=_NAME), self.version

    def __len__(self) -> int:
        return len(self._by_name)

    def put(self, topic: Topic) -> None:
        before = self._by_name.get(topic.name)
        if before is None or (before.topic_id, before.partition_count) != (topic.topic_id, topic.partition_count):
            self.version += 1
        self.hosted_count += len(topic.partitions) - (0 if before is None else len(before.partitions))
        place = self._place(topic.name)
        if before is None:
            self._in_order.insert(place, topic)
        else:
            self._in_order[place] = topic
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id.int] = topic
        if topic.config.compression_type == AS_SENT:
            self._with_codec.discard(topic.topic_id)
        else:
            self._with_codec.add(topic.topic_id)
        self._with_unopened.pop(topic.topic_id.int, None)
        if topic.unopened:
            self._with_unopened[topic.topic_id.int] = topic

    def remove(self, topic: Topic) -> None:
        self.version += 1
        removed = self._by_name.pop(topic.name, None)
        if removed is not None:
            del self._in_order[self._place(topic.name)]
            self.hosted_count -= len(removed.partitions)
        self._by_id.pop(topic.topic_id.int, None)
        self._with_codec.discard(topic.topic_id)
        self._with_unopened.pop(topic.topic_id.int, None)

    def _place(self, name: str) -> int:
        return bisect_left(self._in_order, name, key=_NAME)

    def find(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def find_id(self, topic_id: UUID | None) -> Topic | None:
        """The topic. An id of zeros, which a client may send, comes as None."""
        return None if topic_id is None else self._by_id.get(topic_id.int)

    def by_name(self, name: str) -> Topic:
        """The topic; InvalidTopic for an illegal name, UnknownTopicOrPartition for one that is not there."""
        topic = self._by_name.get(name)
        if topic is not None:
            return topic
        if not is_legal_topic_name(name):
            raise InvalidTopic(f"{name[:80]!r} is no topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
        raise UnknownTopicOrPartition(f"topic {name} does not exist")

    def by_id(self, topic_id: UUID | None) -> Topic:
        """The topic, or UnknownTopicId: deleted, or recreated with another id."""
        topic = self._by_id.get(topic_id.int) if topic_id is not None else None
        if topic is None:
            raise UnknownTopicId(f"no topic has the id {topic_id}; refresh metadata")
        return topic

    def hosted(self, key: TopicPartition) -> Partition | None:
        """The partition if this broker holds a replica of it."""
        topic = self._by_id.get(key.topic_id.int)
        return None if topic is None else topic.hosted(key.partition)

    def hosts(self, partition: Partition) -> bool:
        """Whether this is the replica that this broker holds, and not one that it held before or is about to hold."""
        return self.hosted(partition.topic_partition) is partition

    def with_unopened(self) -> tuple[Topic, ...]:
        """The topics of which this broker is to hold a partition that cannot be opened."""
        return tuple(self._with_unopened.values())

    def unopened_names(self) -> list[str]:
        """The partitions that cannot be opened, for people."""
        return [f"{topic.name}-{index}" for topic in self._with_unopened.values() for index in sorted(topic.unopened)]

    def partitions(self) -> Iterator[Partition]:
        return chain.from_iterable(map(attrgetter("partitions"), self))
