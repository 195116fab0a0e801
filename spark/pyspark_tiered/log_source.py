"""Finds what there is to read: topics, partitions, their offsets and segments, from the bucket and the brokers.

Owns how the two answers become one: the bucket's checkpoints say what is cold, the brokers (where given) say
which topics exist and where the log begins and ends. Runs on the driver. Must never read records, except the
one chunk that a lookup by timestamp needs.
"""

import difflib
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import lru_cache
from typing import TYPE_CHECKING, Literal, Self
from uuid import UUID

from pyspark_tiered.cold_read import first_offset_at, store_of
from pyspark_tiered.options import (
    EARLIEST_OFFSET,
    LATEST_OFFSET,
    Assign,
    AtEarliest,
    AtLatest,
    AtOffsets,
    AtTimestamps,
    Isolation,
    Options,
    Position,
    Selection,
    Subscribe,
    SubscribePattern,
)
from pyspark_tiered.plan import OffsetRange, PartitionView, TopicAndPartition
from tiered.cold.bucket.checkpoints import (
    read_cluster_checkpoint,
    read_own_page,
    read_partition_checkpoint,
    require_own,
)
from tiered.cold.object_store import ObjectStore
from tiered.errors import CorruptObject, InvalidConfig, ObjectMissing, UnknownTopicOrPartition
from tiered.formats.checkpoint import ClusterCheckpoint, CommittedSegment, PageRef, PartitionCheckpoint
from tiered.formats.object_key import cluster_checkpoint_key, partition_checkpoint_key

if TYPE_CHECKING:
    from pyspark_tiered.brokers import Brokers

_HEADS_IN_FLIGHT = 16
_PAGES_KEPT = 64
_INTERNAL_TOPICS = frozenset({"__consumer_offsets", "__transaction_state"})


def open_log_source(options: Options) -> "LogSource":
    """The source that `options` names. Reads nothing yet."""
    store, brokers = None, None
    if options.store is not None:
        store = store_of(options.store)
    if options.bootstrap_servers is not None:
        from pyspark_tiered.brokers import Brokers

        brokers = Brokers(
            options.bootstrap_servers,
            read_committed=options.isolation is Isolation.READ_COMMITTED,
            client=options.client,
            retries=options.fetch_offset_retries,
            pause_ms=options.fetch_offset_pause_ms,
        )
    return LogSource(options.selection, store, brokers)


class LogSource:
    """Answers from the checkpoints and brokers as they are at each call; close it, or use it with `with`."""

    def __init__(self, selection: Selection, store: ObjectStore | None, brokers: "Brokers | None") -> None:
        assert store is not None or brokers is not None, "there is something to read from"
        self._selection = selection
        self._store = store
        self._brokers = brokers
        self._heads: dict[TopicAndPartition, PartitionCheckpoint] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Lets the brokers go; the store stays open for the process's next query."""
        if self._brokers is not None:
            self._brokers.close()

    # Partitions

    def views(self) -> dict[TopicAndPartition, PartitionView]:
        """Every selected partition as it is now, sorted by topic and partition.

        Raises `UnknownTopicOrPartition` for a topic or partition that was named and is not there, `CorruptObject`
        for a bad checkpoint, and what store and brokers raise.
        """
        if self._brokers is None:
            return self._views_of_store()
        return self._views_of_brokers(self._brokers)

    def _views_of_store(self) -> dict[TopicAndPartition, PartitionView]:
        topics = {entry.name: (entry.topic_id, entry.partition_count) for entry in self._cluster().topics}
        wanted = select(self._selection, {name: count for name, (_, count) in topics.items()}, where="the store")
        self._heads = self._read_heads({key: topics[key[0]][0] for key in wanted})
        views = {}
        for topic, partition in wanted:
            head = self._heads.get((topic, partition))
            views[topic, partition] = PartitionView(
                topic=topic,
                topic_id=topics[topic][0],
                partition=partition,
                log_start_offset=head.log_start_offset if head else 0,
                cold_end_offset=head.cold_end_offset if head else 0,
                end_offset=head.cold_end_offset if head else 0,
                is_store_alone=True,
                known_log_end=head.high_watermark if head else None,
                latest_upload_ms=head.latest_upload_ms if head else None,
            )
        return views

    def _views_of_brokers(self, brokers: "Brokers") -> dict[TopicAndPartition, PartitionView]:
        topics = brokers.topics(self._selection)
        counts = {name: found.partition_count for name, found in topics.items()}
        wanted = select(self._selection, counts, where="the brokers")
        # The heads go first: an offset that they call cold stays below the end that the brokers say afterwards.
        self._heads = {}
        if self._store is not None:
            ids = {entry.name: entry.topic_id for entry in self._cluster().topics}
            cold = {name: ids[name] for name in counts if name in ids and topics[name].topic_id in (None, ids[name])}
            self._heads = self._read_heads({key: cold[key[0]] for key in wanted if key[0] in cold})
        earliest = brokers.list_offsets(dict.fromkeys(wanted, EARLIEST_OFFSET))
        latest = brokers.list_offsets(dict.fromkeys(wanted, LATEST_OFFSET))
        views = {}
        for key in wanted:
            head = self._heads.get(key)
            start = max(earliest[key], head.log_start_offset if head else 0)
            views[key] = PartitionView(
                topic=key[0],
                topic_id=head.topic_id if head else topics[key[0]].topic_id,
                partition=key[1],
                log_start_offset=start,
                cold_end_offset=min(head.cold_end_offset, latest[key]) if head else 0,
                end_offset=max(latest[key], start),
            )
        return views

    # Segments

    def segments(self, wanted: OffsetRange) -> tuple[CommittedSegment, ...]:
        """The committed segments that touch the range, in order, as the checkpoint of the last `views` has them."""
        assert self._store is not None, "a cold range comes from a store"
        head = self._heads[wanted.view.key]
        found: list[CommittedSegment] = []
        for page in head.pages:
            if page.first_base_offset < wanted.end_offset and page.end_offset > wanted.start_offset:
                found += _own_page(self._store.url, page, head.topic_id, head.partition)
        found += require_own(head.segments, head.topic_id, head.partition)
        return tuple(
            each for each in found if each.base_offset < wanted.end_offset and each.end_offset > wanted.start_offset
        )

    # Positions

    def resolve(
        self,
        position: Position,
        views: Mapping[TopicAndPartition, PartitionView],
        *,
        option: str,
        no_match: Literal["error", "latest"],
    ) -> dict[TopicAndPartition, int]:
        """An offset for every partition. Raises `InvalidConfig` when `option` leaves one out, or names one too many."""
        match position:
            case AtEarliest():
                return {key: view.log_start_offset for key, view in views.items()}
            case AtLatest():
                return {key: view.end_offset for key, view in views.items()}
            case AtOffsets(offsets=offsets):
                _check_named(offsets, views, option)
                special = {EARLIEST_OFFSET: "log_start_offset", LATEST_OFFSET: "end_offset"}
                return {
                    key: getattr(view, special[offsets[key]]) if offsets[key] in special else offsets[key]
                    for key, view in views.items()
                }
            case AtTimestamps():
                if position.timestamp_ms is None:
                    _check_named(position.timestamps_ms, views, f"{option}ByTimestamp")
                return self._at_timestamps(position, views, option=option, no_match=no_match)

    def _at_timestamps(
        self,
        position: AtTimestamps,
        views: Mapping[TopicAndPartition, PartitionView],
        *,
        option: str,
        no_match: Literal["error", "latest"],
    ) -> dict[TopicAndPartition, int]:
        wanted = {}
        for key in views:
            timestamp_ms = position.of(*key)
            assert timestamp_ms is not None, "checked by the caller"
            wanted[key] = timestamp_ms
        if self._brokers is not None:
            found = self._brokers.list_offsets(wanted)
        else:
            with ThreadPoolExecutor(_HEADS_IN_FLIGHT, thread_name_prefix="timestamps") as threads:
                offsets = threads.map(self._cold_offset_at, views.values(), wanted.values())
                found = dict(zip(wanted, offsets, strict=True))
        resolved = {}
        for key, view in views.items():
            offset = found[key]
            if offset < 0 and no_match == "error":
                raise InvalidConfig(
                    f"option {option}: partition {view} has no record at or after timestamp {wanted[key]}; choose an "
                    "earlier one, or set startingOffsetsByTimestampStrategy=latest"
                )
            resolved[key] = view.end_offset if offset < 0 else max(offset, view.log_start_offset)
        return resolved

    def _cold_offset_at(self, view: PartitionView, timestamp_ms: int) -> int:
        """The first cold offset whose record's timestamp is that or later; -1 when there is none."""
        assert self._store is not None, "without brokers there is a store"
        if view.cold_end_offset <= view.log_start_offset:
            return -1
        everything = OffsetRange(view=view, start_offset=view.log_start_offset, end_offset=view.cold_end_offset)
        return first_offset_at(self._store, view, self.segments(everything), timestamp_ms)

    # Checkpoints

    def _cluster(self) -> ClusterCheckpoint:
        assert self._store is not None, "there is a store"
        found = read_cluster_checkpoint(self._store)
        if found is None:
            raise ObjectMissing(
                f"the store {self._store.url} has no {cluster_checkpoint_key()}: nothing of Tiered is there, or the "
                "prefix in option store is another one"
            )
        return found

    def _read_heads(self, wanted: Mapping[TopicAndPartition, UUID]) -> dict[TopicAndPartition, PartitionCheckpoint]:
        """The partitions' checkpoints; none for a partition of which nothing is in the bucket yet."""
        with ThreadPoolExecutor(_HEADS_IN_FLIGHT, thread_name_prefix="checkpoints") as threads:
            heads = threads.map(self._read_head, wanted, wanted.values())
            return {key: head for key, head in zip(wanted, heads, strict=True) if head is not None}

    def _read_head(self, key: TopicAndPartition, topic_id: UUID) -> PartitionCheckpoint | None:
        assert self._store is not None, "there is a store"
        stored = read_partition_checkpoint(self._store, topic_id, key[1])
        if stored is not None and stored.checkpoint.topic != key[0]:
            raise CorruptObject(
                f"checkpoint {partition_checkpoint_key(topic_id, key[1])} is that of topic {stored.checkpoint.topic}, "
                f"where {key[0]} belongs: it was swapped"
            )
        return None if stored is None else stored.checkpoint


@lru_cache(maxsize=_PAGES_KEPT)
def _own_page(store_url: str, page: PageRef, topic_id: UUID, partition: int) -> tuple[CommittedSegment, ...]:
    """A sealed page never changes, and its key holds its hash: once read, it is known."""
    return read_own_page(store_of(store_url), page, topic_id, partition)


def select(selection: Selection, counts: Mapping[str, int], *, where: str) -> list[TopicAndPartition]:
    """The selected partitions of topics with so many partitions, sorted. Raises `UnknownTopicOrPartition`."""
    chosen: dict[str, Sequence[int]]
    match selection:
        case Subscribe(topics=topics):
            missing = [topic for topic in topics if topic not in counts]
            if missing:
                close = difflib.get_close_matches(missing[0], counts, n=1)
                hint = f"did you mean {close[0]}?" if close else "check option subscribe"
                raise UnknownTopicOrPartition(f"topic {missing[0]} is not in {where}; {hint}")
            chosen = {topic: range(counts[topic]) for topic in topics}
        case SubscribePattern(pattern=pattern):
            matching = [name for name in counts if pattern.fullmatch(name) and name not in _INTERNAL_TOPICS]
            chosen = {topic: range(counts[topic]) for topic in matching}
        case Assign(partitions=partitions):
            for topic, numbers in partitions.items():
                if topic not in counts or max(numbers) >= counts[topic]:
                    raise UnknownTopicOrPartition(
                        f"partition {topic}-{max(numbers)} is not in {where}; check option assign"
                    )
            chosen = dict(partitions)
    return [(topic, partition) for topic in sorted(chosen) for partition in chosen[topic]]


def _check_named(
    given: Mapping[TopicAndPartition, int], views: Mapping[TopicAndPartition, PartitionView], option: str
) -> None:
    missing, extra = sorted(views.keys() - given.keys()), sorted(given.keys() - views.keys())
    if missing:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in missing)
        raise InvalidConfig(f"option {option} must name every partition; it leaves out {names}")
    if extra:
        names = ", ".join(f"{topic}-{partition}" for topic, partition in extra)
        raise InvalidConfig(f"option {option} names {names}, which this read does not take")
