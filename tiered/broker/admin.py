"""Changes that people ask for: topics, partitions, configs, deleted records.

Owns their order: check, commit in SQL, then wait until this broker's feed has applied it, as all others' do. A change
that SQL did not commit never happened. Must never touch a segment or an object: it asks `segment_lifecycle`.
"""

import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field
from functools import update_wrapper
from typing import Any, Concatenate, ParamSpec, TypeVar

from tiered.broker.applier import ChangeApplier
from tiered.broker.context import BrokerContext
from tiered.broker.host.resource_configs import Kind, ResourceConfigs
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topic, Topics
from tiered.broker.people.client_metrics import check_client_metrics
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.broker.view.changes import Changes
from tiered.broker.view.feed import ChangeFeed
from tiered.broker.view.image import ClusterImage
from tiered.config import (
    CLIENT_METRICS_SETTINGS,
    GROUP_SETTINGS,
    TOPIC_SETTINGS,
    ConfigChange,
    ConfigEntry,
    TopicConfig,
    changed,
    changed_at_run_time,
    check_group_config,
    describe_broker,
    describe_dynamic_default,
    describe_topic,
)
from tiered.config.setting import ConfigOperation, require_sendable
from tiered.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopic,
    MissingOffsets,
    NotLeader,
    OffsetOutOfRange,
    PolicyViolation,
    TopicExists,
    UnknownTopicOrPartition,
)
from tiered.ids import TopicId, TopicPartition, is_legal_topic_name
from tiered.meta import settings, topics
from tiered.rules.replication import placement
from tiered.runtime import new_uuid

log = logging.getLogger(__name__)

MAX_PARTITIONS_A_TOPIC = 10_000
DEFAULT = -1
HIGH_WATERMARK = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic as it is asked for; -1 means the broker's default. `assignments`: partition to broker ids."""

    name: str
    partition_count: int = DEFAULT
    replication_factor: int = DEFAULT
    assignments: Mapping[int, Sequence[int]] = field(default_factory=dict)
    configs: Mapping[str, str | None] = field(default_factory=dict)


P = ParamSpec("P")
T = TypeVar("T")


def _in_turn(
    change: Callable[Concatenate["Admin", P], Awaitable[T]],
) -> Callable[Concatenate["Admin", P], Coroutine[Any, Any, T]]:
    """The same method, as one of the broker's changes: it waits for its turn, and a client that goes away does
    not stop it halfway."""

    async def run(self: "Admin", /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self._changes.run(lambda: change(self, *args, **kwargs))

    return update_wrapper(run, change)


class Admin:
    """The administrative requests of one broker. One at a time changes something."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        changes: Changes,
        applier: ChangeApplier,
        feed: ChangeFeed,
        image: ClusterImage,
        lifecycle: SegmentLifecycle,
        resource_configs: ResourceConfigs,
        topics: Topics,
    ) -> None:
        self._context = context
        self._changes = changes
        self._applier = applier
        self._feed = feed
        self._image = image
        self._lifecycle = lifecycle
        self._resource_configs = resource_configs
        self._topics = topics

    # Topics

    @_in_turn
    async def create_topic(self, new: NewTopic, *, validate_only: bool = False) -> Topic:
        """The topic as created (or as it would be). Raises TopicExists, InvalidTopic, InvalidPartitions,
        InvalidReplicationFactor, InvalidReplicaAssignment, InvalidConfig, MetadataUnavailable."""
        try:
            assignments = self._assignments(new)
        except (InvalidReplicationFactor, InvalidReplicaAssignment):
            if self._context.is_alone:
                raise
            # A broker that has just said that it is ready may not have been heard of here.
            await self._feed.refresh()
            assignments = self._assignments(new)
        topic = self._checked(new, assignments)
        if validate_only:
            return topic
        now_ms = self._context.clock.now_ms()
        try:
            await self._feed.commit(
                lambda conn: topics.create(
                    conn,
                    name=new.name,
                    topic_id=topic.topic_id,
                    assignments=assignments,
                    configs=topic.overrides,
                    now_ms=now_ms,
                )
            )
        except TopicExists:
            # Another broker was faster: the client's next request must find its topic here.
            await self._feed.refresh()
            raise
        self._applier.check_opened(topic.topic_id)
        created = self._topics.by_id(topic.topic_id)
        log.info("created topic %s with %d partitions", created.name, created.partition_count)
        return created

    async def auto_create(self, name: str) -> Topic:
        """The topic, created with the broker's defaults unless somebody was faster."""
        try:
            return await self.create_topic(NewTopic(name=name))
        except TopicExists:
            return self._topics.by_name(name)

    def _checked(self, new: NewTopic, assignments: Sequence[Sequence[int]]) -> Topic:
        overrides: dict[str, str] = {}
        for name, value in new.configs.items():
            if value is None:
                raise InvalidRequest(f"topic {new.name}: config {name} has no value")
            require_sendable(name, value)
            overrides[name] = value
        return Topic(
            name=new.name,
            topic_id=TopicId(new_uuid()),
            partition_count=len(assignments),
            config=TopicConfig.of(overrides, self._context.settings),
            overrides=overrides,
            partitions=(),
            replication_factor=len(assignments[0]),
        )

    def _assignments(self, new: NewTopic) -> list[tuple[int, ...]]:
        """The replicas of each partition, as asked for or as the rules place them."""
        if self._topics.find(new.name) is not None:
            raise TopicExists(f"Topic '{new.name}' already exists.")
        if not is_legal_topic_name(new.name):
            raise InvalidTopic(f"{new.name[:80]!r} is no topic name: 1 to 249 of a-z, A-Z, 0-9, '.', '_' and '-'")
        if new.assignments:
            if new.partition_count != DEFAULT or new.replication_factor != DEFAULT:
                raise InvalidRequest(f"topic {new.name}: give either assignments or counts, not both")
            if sorted(new.assignments) != list(range(len(new.assignments))):
                raise InvalidReplicaAssignment(f"topic {new.name}: partitions must be numbered from 0 without gaps")
            given = [tuple(new.assignments[number]) for number in range(len(new.assignments))]
            self._check_assignments(new.name, given, replication_factor=len(given[0]))
            self._check_count(new.name, len(given))
            return given
        settings_ = self._context.settings
        count = settings_.topics.num_partitions if new.partition_count == DEFAULT else new.partition_count
        self._check_count(new.name, count)
        replicas = new.replication_factor
        if replicas == DEFAULT:
            replicas = settings_.topics.default_replication_factor
        return self._placed(new.name, count, replicas, start=len(self._image.rows))

    def _check_count(self, name: str, count: int) -> None:
        if not 1 <= count <= MAX_PARTITIONS_A_TOPIC:
            raise InvalidPartitions(f"topic {name}: {count} partitions; 1 to {MAX_PARTITIONS_A_TOPIC} are possible")

    def _placed(self, name: str, count: int, replication_factor: int, *, start: int) -> list[tuple[int, ...]]:
        """New partitions on the brokers that are in service."""
        live = [row.place for row in self._image.live()]
        try:
            return placement.assign(count, replication_factor, live, start=start)
        except InvalidReplicationFactor as error:
            raise InvalidReplicationFactor(f"topic {name}: {error}") from error

    def _check_assignments(self, name: str, assignments: Sequence[Sequence[int]], *, replication_factor: int) -> None:
        registered = self._image.brokers
        for replicas in assignments:
            if not replicas or len(set(replicas)) != len(replicas) or any(each not in registered for each in replicas):
                raise InvalidReplicaAssignment(
                    f"topic {name}: replicas {list(replicas)}; name each broker once, and only registered ones "
                    f"({sorted(registered)})"
                )
            if len(replicas) != replication_factor:
                raise InvalidReplicaAssignment(
                    f"topic {name}: replicas {list(replicas)}; every partition of it has {replication_factor}"
                )

    @_in_turn
    async def delete_topic(self, topic: Topic) -> None:
        """Returns when the topic is gone for clients; its objects follow after the grace period. Raises Pinned where a
        snapshot holds any of it."""
        if topic.is_internal:
            raise InvalidTopic(f"topic {topic.name} is internal and cannot be deleted")
        if not self._context.settings.topics.delete_topic_enable:
            raise PolicyViolation("delete.topic.enable is false on this broker")
        now_ms = self._context.cluster_now_ms
        if self._topics.find_id(topic.topic_id) is None:
            raise UnknownTopicOrPartition(f"topic {topic.name} does not exist")
        await self._feed.commit(
            lambda conn: topics.delete_topic(
                conn,
                topic.topic_id,
                now_ms=now_ms,
                purge_after_ms=now_ms + topic.config.tiered_purge_grace_ms,
            )
        )
        log.info("deleted topic %s", topic.name)

    @_in_turn
    async def create_partitions(
        self, topic: Topic, count: int, assignments: Sequence[Sequence[int]] | None, *, validate_only: bool
    ) -> None:
        """Grows the topic to `count` partitions. Raises InvalidPartitions, InvalidReplicaAssignment."""
        current = self._topics.by_id(topic.topic_id)
        if current.is_internal:
            raise InvalidTopic(f"topic {topic.name} is internal: its partitions are fixed")
        have = current.partition_count
        if not have < count <= MAX_PARTITIONS_A_TOPIC:
            raise InvalidPartitions(
                f"topic {topic.name} has {have} partitions: it can grow to {have + 1} to {MAX_PARTITIONS_A_TOPIC}"
            )
        rows = self._image.rows_of(topic.topic_id)
        # A reassignment may have changed how many.
        replicas = self._image.replication_factor(topic.topic_id) or current.replication_factor
        if assignments is None:
            assignments = self._placed(topic.name, count - have, replicas, start=len(rows))
        elif len(assignments) != count - have:
            raise InvalidReplicaAssignment(f"topic {topic.name}: assign {count - have} new partitions")
        else:
            self._check_assignments(topic.name, assignments, replication_factor=replicas)
        if validate_only:
            return
        added = assignments
        await self._feed.commit(
            lambda conn: topics.add_partitions(conn, topic.topic_id, partition_count=count, assignments=added)
        )
        self._applier.check_opened(topic.topic_id)

    # Configs

    def describe_topic(self, topic: Topic) -> Sequence[ConfigEntry]:
        """Every config of the topic with its source."""
        return describe_topic(topic.overrides, self._context.settings)

    def describe_broker(self, name: str) -> Sequence[ConfigEntry]:
        """Every setting of this broker; for an empty `name` those set for all brokers at run time."""
        if not name:
            return describe_dynamic_default(self._context.settings)
        return describe_broker(self._context.settings, self._context.state.facts)

    @_in_turn
    async def alter_topic(
        self, topic: Topic, steps: Sequence[ConfigChange], *, keep_others: bool, validate_only: bool
    ) -> None:
        """Applies `steps` to the topic's overrides (or to none of them, unless `keep_others`), all or nothing."""
        current = self._topics.by_id(topic.topic_id)
        if current.is_internal:
            raise InvalidTopic(f"topic {topic.name} is internal: its configs are fixed")
        held = current.overrides if keep_others else {}
        overrides = changed(TOPIC_SETTINGS, held, steps, kind="topic config")
        TopicConfig.of(overrides, self._context.settings)
        if validate_only:
            return

        # Only what was asked for: another broker may be changing other configs of this topic.
        values, removed = _difference(held, overrides) if keep_others else (overrides, None)
        await self._feed.commit(lambda conn: topics.alter_configs(conn, topic.topic_id, values=values, removed=removed))

    @_in_turn
    async def alter_broker(
        self, name: str, steps: Sequence[ConfigChange], *, keep_others: bool, validate_only: bool
    ) -> None:
        """The same for this broker (`name` is its id) or for all of them (`name` is empty)."""
        broker_settings = self._context.settings
        held = broker_settings.dynamic if name else broker_settings.dynamic_default
        texts = changed_at_run_time(held if keep_others else {}, steps, for_all=not name)
        wanted = broker_settings.with_dynamic(
            dynamic_default=broker_settings.dynamic_default if name else texts,
            dynamic=texts if name else broker_settings.dynamic,
        )
        for topic in self._topics:
            TopicConfig.of(topic.overrides, wanted)
        if validate_only:
            return
        scope = self._context.broker_id if name else None
        values, removed = _difference(held, texts) if keep_others else (texts, None)
        if removed is not None:
            # One without effect is not among those held, and must be possible to delete.
            removed += [step.name for step in steps if step.operation is ConfigOperation.DELETE]
        await self._feed.commit(lambda conn: settings.alter(conn, broker_id=scope, values=values, removed=removed))

    @_in_turn
    async def alter_resource(
        self, kind: Kind, name: str, steps: Sequence[ConfigChange], *, keep_others: bool, validate_only: bool
    ) -> None:
        """The same for a consumer group or a subscription to clients' metrics, whether it is there or not."""
        held = self._resource_configs.overrides(kind, name) if keep_others else {}
        if kind is Kind.GROUP:
            texts = changed(GROUP_SETTINGS, held, steps, kind="group config")
            check_group_config(texts, self._context.settings)
        else:
            texts = changed(CLIENT_METRICS_SETTINGS, held, steps, kind="client metrics config")
            check_client_metrics(name, texts)
        if validate_only:
            return
        resource = (kind.value, name)
        values, removed = _difference(held, texts) if keep_others else (texts, None)
        await self._feed.commit(lambda conn: settings.alter_resource(conn, resource, values=values, removed=removed))

    # Records

    async def delete_records_of(self, topic: Topic, number: int, offset: int) -> int:
        """As `delete_records`, also of a partition that cannot be opened: there people may give up what is nowhere, up
        to where the local log begins. Raises what `Topic.partition` does."""
        missing = topic.unopened.get(number)
        if isinstance(missing, MissingOffsets) and missing.are_nowhere:
            return await self._accept_loss(topic, number, offset, missing)
        return await self.delete_records(topic.partition(number), offset)

    @_in_turn
    async def _accept_loss(self, topic: Topic, number: int, offset: int, missing: MissingOffsets) -> int:
        row = self._image.row(TopicPartition(topic.topic_id, number))
        if row is None or row.leader != self._context.broker_id:
            raise NotLeader(f"{topic.name}-{number} is not led by this broker; refresh metadata and retry")
        if offset != missing.end_offset:
            raise OffsetOutOfRange(
                f"{topic.name}-{number}: until it is open, its records can be deleted before {missing.end_offset} alone"
            )
        await self._lifecycle.retire(row.topic_partition, row.leader_epoch, topic.config, offset, is_explicit=True)
        return offset

    @_in_turn
    async def delete_records(self, partition: Partition, offset: int) -> int:
        """The new `log_start_offset`; raises OffsetOutOfRange above the high watermark, Pinned, NotLeader."""
        partition.require_leader()
        wanted = partition.high_watermark if offset == HIGH_WATERMARK else offset
        if not 0 <= wanted <= partition.high_watermark:
            raise OffsetOutOfRange(
                f"{partition.name}: records can be deleted up to the high watermark {partition.high_watermark}, "
                f"not to {offset}"
            )
        if wanted > partition.log_start_offset:
            await self._lifecycle.move_log_start(partition, wanted, is_explicit=True)
        return partition.log_start_offset


def _difference(before: Mapping[str, str], after: Mapping[str, str]) -> tuple[dict[str, str], list[str]]:
    """The steps from one to the other: new values, and names without a value now."""
    values = {name: value for name, value in after.items() if before.get(name) != value}
    return values, [name for name in before if name not in after]
