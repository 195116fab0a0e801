"""Checkpoints: small JSON objects that make the bucket enough by itself.

Owns their values, their bytes and the rule by which old segments move into sealed pages (decision 0001, golden
files `*_checkpoint.v1.json`). Must never be the authority while SQL answers: a checkpoint follows SQL.

The bytes are one JSON object in canonical form (keys sorted, no spaces, ASCII) with the members `format`
(`tiered.partition-checkpoint/1`, ...), the value's own, and `sha256`: the hash of the canonical form without
that member (`checkpoint_bytes`). Offsets are numbers, hashes hexadecimal, ids in the usual text form of UUIDs.

Migration: a reader refuses formats that it does not know. Members it does not know are hashed and skipped, so
what readers can do without is added within `/1`. Such a member is left out where nothing is known, and a checkpoint
without it is read as one that knows nothing: `high_watermark` of a partition; `uploaded_root_sha256`, `joined_count`
and `max_timestamp_is_proven` of a segment; `replication_factor` of a topic; `settings`, `previous_cluster_ids`, `pins`,
`acls` and `resource_configs` of a cluster.
"""

from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeVar
from uuid import UUID

from tiered.errors import CorruptObject
from tiered.formats.acl_entries import AclEntry, acls_from
from tiered.formats.checkpoint_bytes import encode_checkpoint, encode_in_pieces, read_members
from tiered.formats.json_fields import MAX_EPOCH, MAX_INT, MAX_SHORT, MAX_VERSION, Fields
from tiered.formats.object_key import partition_page_key
from tiered.formats.pin_entries import PinEntry, pins_from

PAGE_ENTRIES: Final = 1000

MAX_PARTITIONS_A_TOPIC: Final = 100_000
MAX_PARTITIONS: Final = 1_000_000
"""Of a whole cluster. Readers walk through as many as a checkpoint claims: one number must not keep them forever."""

_PARTITION_FORMAT: Final = "tiered.partition-checkpoint/1"
_PAGE_FORMAT: Final = "tiered.checkpoint-page/1"
_CLUSTER_FORMAT: Final = "tiered.cluster-checkpoint/1"
_MAX_KEY_CHARS: Final = 1024
_MAX_TEXT_CHARS: Final = 32 * 1024

T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedSegment:
    """A committed row of the metadata store: one object that readers may use. `end_offset` is exclusive.

    `size_bytes` is the whole object, `log_bytes` the batches in it; hashes are 64 hexadecimal digits.
    Timestamps bound the records' times only where they are proven, see `ChunkRow`; `max_timestamp_is_proven` is None
    where nobody has proven it.
    `uploaded_root_sha256` is the root of the object that a broker uploaded for these offsets, where another was put in
    its place; None where it is still that one. An object to which several uploads were joined has the root of the last
    of them there, and their number in `joined_count`; that of a compacted one is None.
    """

    base_offset: int
    end_offset: int
    leader_epoch: int
    object_key: str
    object_id: UUID
    size_bytes: int
    log_bytes: int
    min_timestamp_ms: int
    max_timestamp_ms: int
    min_timestamp_is_proven: bool = False
    record_count: int
    root_sha256: str
    previous_root_sha256: str
    committed_at_ms: int
    uploaded_root_sha256: str | None = None
    max_timestamp_is_proven: bool | None = None
    joined_count: int | None = None

    @property
    def is_compacted(self) -> bool:
        """Whether a pass over the store has removed from it what newer records replace, or has looked for it."""
        return self.uploaded_root_sha256 is not None and self.joined_count is None

    @property
    def chain_root_sha256(self) -> str:
        """What the next segment names as its previous root: it stays when the object is replaced (decision 0016)."""
        return self.root_sha256 if self.uploaded_root_sha256 is None else self.uploaded_root_sha256

    @property
    def proven_min_timestamp_ms(self) -> int | None:
        """No record of the segment is earlier; None where no bound is proven."""
        return self.min_timestamp_ms if self.min_timestamp_is_proven and self.max_timestamp_is_proven else None

    @property
    def proven_max_timestamp_ms(self) -> int | None:
        """No record of the segment is later; None where no bound is proven."""
        return self.max_timestamp_ms if self.max_timestamp_is_proven else None

    def may_hold(self, timestamp_ms: int) -> bool:
        """Whether a record of the segment may have this time or a later one."""
        return not (self.max_timestamp_is_proven and self.max_timestamp_ms < timestamp_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class PageRef:
    """Where a sealed page is, and what is in it: `count` segments from `first_base_offset` to `end_offset`."""

    first_base_offset: int
    end_offset: int
    key: str
    sha256: str
    count: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointPage:
    """Sealed segments of one partition, oldest first. Never changes once written."""

    topic_id: UUID
    partition: int
    segments: tuple[CommittedSegment, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCheckpoint:
    """The head of a partition: `pages` hold the older segments, `segments` the newest, both in order of offsets.

    Segments may end at or below `log_start_offset`: they are retired and their objects may be gone. A writer
    replaces a head only by one of a greater `version`. `high_watermark` is what the log had then, uploaded or not: a
    restore tells by it what is lost.
    """

    version: int
    cluster_id: str
    topic: str
    topic_id: UUID
    partition: int
    partition_count: int
    log_start_offset: int
    cold_end_offset: int
    leader_epoch: int
    pages: tuple[PageRef, ...]
    segments: tuple[CommittedSegment, ...]
    high_watermark: int | None = None

    @property
    def latest_upload_ms(self) -> int | None:
        """When the newest segment was committed; None where the store has no record."""
        if self.cold_end_offset <= self.log_start_offset or not self.segments:
            return None
        return self.segments[-1].committed_at_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    """A topic; `configs` are those that differ from the broker's."""

    name: str
    topic_id: UUID
    partition_count: int
    configs: dict[str, str]
    replication_factor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterCheckpoint:
    """Every topic of a cluster, the settings that were altered at run time, by broker id ("" is for all), what pins and
    snapshots hold, and who may do what. `resource_configs`: what was set for others, by kind and name ("GROUP:orders").

    A restored cluster has an id of its own: `previous_cluster_ids` are those it continues, the oldest first. Objects
    from their times name them.
    """

    version: int
    cluster_id: str
    topics: tuple[TopicEntry, ...]
    settings: dict[str, dict[str, str]] = field(default_factory=dict)
    previous_cluster_ids: tuple[str, ...] = ()
    pins: tuple[PinEntry, ...] = ()
    acls: tuple[AclEntry, ...] = ()
    resource_configs: dict[str, dict[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sealed:
    """A head, and the pages that must be in the store before it: each with its reference and its bytes."""

    checkpoint: PartitionCheckpoint
    pages: tuple[tuple[PageRef, bytes], ...]


def sealed(checkpoint: PartitionCheckpoint, page_entries: int = PAGE_ENTRIES) -> Sealed:
    """The same checkpoint with at most `page_entries` segments of its own; the oldest of the others in new pages.

    Pages have exactly `page_entries` segments each, so a head is written again with few of them. References to
    pages that lie wholly below `log_start_offset` are dropped.
    """
    assert page_entries > 0, page_entries
    kept = [page for page in checkpoint.pages if page.end_offset > checkpoint.log_start_offset]
    segments = checkpoint.segments
    new: list[tuple[PageRef, bytes]] = []
    while len(segments) > page_entries:
        chosen, segments = segments[:page_entries], segments[page_entries:]
        page = CheckpointPage(topic_id=checkpoint.topic_id, partition=checkpoint.partition, segments=chosen)
        new.append((page_ref(page), encode_checkpoint_page(page)))
    pages = (*kept, *(reference for reference, _ in new))
    return Sealed(checkpoint=replace(checkpoint, pages=pages, segments=segments), pages=tuple(new))


def page_ref(page: CheckpointPage) -> PageRef:
    """The reference to a page of one segment or more."""
    content = read_members(encode_checkpoint_page(page), _PAGE_FORMAT)
    sha256 = content.hexadecimal("sha256")
    first_base_offset = page.segments[0].base_offset
    return PageRef(
        first_base_offset=first_base_offset,
        end_offset=page.segments[-1].end_offset,
        key=partition_page_key(page.topic_id, page.partition, first_base_offset, sha256),
        sha256=sha256,
        count=len(page.segments),
    )


def encode_partition_checkpoint(checkpoint: PartitionCheckpoint) -> bytes:
    """The bytes of a head."""
    return encode_checkpoint(_PARTITION_FORMAT, checkpoint)


def decode_partition_checkpoint(data: bytes | bytearray | memoryview) -> PartitionCheckpoint:
    """The head in an object's bytes. Raises CorruptObject: not one, altered, cut off, or segments out of order."""
    fields = read_members(data, _PARTITION_FORMAT)
    checkpoint = PartitionCheckpoint(
        version=fields.integer("version", maximum=MAX_VERSION),
        cluster_id=fields.text("cluster_id", max_chars=_MAX_KEY_CHARS),
        topic=fields.topic("topic"),
        topic_id=fields.uuid("topic_id"),
        partition=fields.integer("partition", maximum=MAX_INT),
        partition_count=fields.integer("partition_count", minimum=1, maximum=MAX_PARTITIONS_A_TOPIC),
        log_start_offset=fields.integer("log_start_offset"),
        cold_end_offset=fields.integer("cold_end_offset"),
        leader_epoch=fields.integer("leader_epoch", minimum=-1, maximum=MAX_EPOCH),
        pages=tuple(_page_ref_from(each) for each in fields.objects("pages")),
        segments=_segments_from(fields),
        high_watermark=fields.integer("high_watermark") if "high_watermark" in fields else None,
    )
    _require_order(checkpoint.pages, lambda page: (page.first_base_offset, page.end_offset))
    if checkpoint.pages and checkpoint.segments:
        sealed_end, start = checkpoint.pages[-1].end_offset, checkpoint.segments[0].base_offset
        if start < sealed_end:
            raise CorruptObject(f"a checkpoint's segments begin at {start}, within its pages that end at {sealed_end}")
    return checkpoint


def encode_checkpoint_page(page: CheckpointPage) -> bytes:
    """The bytes of a page of one segment or more; equal pages give equal bytes."""
    assert page.segments, "a page is sealed when it is full"
    return encode_checkpoint(_PAGE_FORMAT, page)


def decode_checkpoint_page(data: bytes | bytearray | memoryview, reference: PageRef | None = None) -> CheckpointPage:
    """The page in an object's bytes. Raises CorruptObject also when it is not the one that `reference` means."""
    fields = read_members(data, _PAGE_FORMAT)
    page = CheckpointPage(
        topic_id=fields.uuid("topic_id"),
        partition=fields.integer("partition", maximum=MAX_INT),
        segments=_segments_from(fields),
    )
    if not page.segments:
        raise CorruptObject("a checkpoint page without segments")
    if reference is not None and fields.hexadecimal("sha256") != reference.sha256:
        raise CorruptObject(f"{reference.key} is another page than the checkpoint says: it was swapped or altered")
    extent = (page.segments[0].base_offset, page.segments[-1].end_offset, len(page.segments))
    if reference is not None and extent != (reference.first_base_offset, reference.end_offset, reference.count):
        raise CorruptObject(f"{reference.key} has other offsets than the checkpoint says")
    return page


def encode_cluster_checkpoint(checkpoint: ClusterCheckpoint) -> bytes:
    """The bytes of a cluster's checkpoint."""
    return encode_checkpoint(_CLUSTER_FORMAT, checkpoint)


def encode_cluster_checkpoint_in_pieces(checkpoint: ClusterCheckpoint) -> Generator[None, None, bytes]:
    """The same, half a millisecond at a time."""
    return encode_in_pieces(_CLUSTER_FORMAT, checkpoint)


def decode_cluster_checkpoint(data: bytes | bytearray | memoryview) -> ClusterCheckpoint:
    """The cluster's checkpoint in an object's bytes. Raises CorruptObject."""
    fields = read_members(data, _CLUSTER_FORMAT)
    checkpoint = ClusterCheckpoint(
        version=fields.integer("version", maximum=MAX_VERSION),
        cluster_id=fields.text("cluster_id", max_chars=_MAX_KEY_CHARS),
        topics=tuple(
            TopicEntry(
                name=each.topic("name"),
                topic_id=each.uuid("topic_id"),
                partition_count=each.integer("partition_count", minimum=1, maximum=MAX_PARTITIONS_A_TOPIC),
                configs=each.texts("configs", max_chars=_MAX_TEXT_CHARS),
                replication_factor=(
                    each.integer("replication_factor", minimum=1, maximum=MAX_SHORT)
                    if "replication_factor" in each
                    else None
                ),
            )
            for each in fields.objects("topics")
        ),
        settings=fields.tables("settings", max_chars=_MAX_TEXT_CHARS) if "settings" in fields else {},
        previous_cluster_ids=(
            fields.list_of_texts("previous_cluster_ids", max_chars=_MAX_KEY_CHARS)
            if "previous_cluster_ids" in fields
            else ()
        ),
        pins=pins_from(fields, "pins") if "pins" in fields else (),
        acls=acls_from(fields, "acls") if "acls" in fields else (),
        resource_configs=(
            fields.tables("resource_configs", max_chars=_MAX_TEXT_CHARS) if "resource_configs" in fields else {}
        ),
    )
    for names in ({topic.name for topic in checkpoint.topics}, {topic.topic_id for topic in checkpoint.topics}):
        if len(names) != len(checkpoint.topics):
            raise CorruptObject("a cluster's checkpoint names a topic twice")
    partitions = sum(topic.partition_count for topic in checkpoint.topics)
    if partitions > MAX_PARTITIONS:
        raise CorruptObject(f"a cluster's checkpoint names {partitions} partitions; {MAX_PARTITIONS} are possible")
    return checkpoint


def _segments_from(fields: Fields) -> tuple[CommittedSegment, ...]:
    segments = tuple(
        CommittedSegment(
            base_offset=each.integer("base_offset"),
            end_offset=each.integer("end_offset"),
            leader_epoch=each.integer("leader_epoch", minimum=-1, maximum=MAX_EPOCH),
            object_key=each.text("object_key", max_chars=_MAX_KEY_CHARS),
            object_id=each.uuid("object_id"),
            size_bytes=each.integer("size_bytes"),
            log_bytes=each.integer("log_bytes"),
            min_timestamp_ms=each.integer("min_timestamp_ms", minimum=-(2**63)),
            max_timestamp_ms=each.integer("max_timestamp_ms", minimum=-(2**63)),
            min_timestamp_is_proven=each.boolean("min_timestamp_is_proven"),
            record_count=each.integer("record_count"),
            root_sha256=each.hexadecimal("root_sha256"),
            previous_root_sha256=each.hexadecimal("previous_root_sha256"),
            committed_at_ms=each.integer("committed_at_ms"),
            max_timestamp_is_proven=each.boolean("max_timestamp_is_proven")
            if "max_timestamp_is_proven" in each
            else None,
            uploaded_root_sha256=(each.hexadecimal("uploaded_root_sha256") if "uploaded_root_sha256" in each else None),
            joined_count=each.integer("joined_count", minimum=2) if "joined_count" in each else None,
        )
        for each in fields.objects("segments")
    )
    _require_order(segments, lambda segment: (segment.base_offset, segment.end_offset))
    return segments


def _page_ref_from(fields: Fields) -> PageRef:
    return PageRef(
        first_base_offset=fields.integer("first_base_offset"),
        end_offset=fields.integer("end_offset"),
        key=fields.text("key", max_chars=_MAX_KEY_CHARS),
        sha256=fields.hexadecimal("sha256"),
        count=fields.integer("count", minimum=1),
    )


def _require_order(items: Sequence[T], extent: Callable[[T], tuple[int, int]]) -> None:
    """Overlaps are corruption. Gaps are for the reader to report: it knows what was deleted."""
    before = 0
    for base_offset, end_offset in map(extent, items):
        if not before <= base_offset < end_offset:
            raise CorruptObject(f"a checkpoint has offsets {base_offset} to {end_offset} after {before}")
        before = end_offset
