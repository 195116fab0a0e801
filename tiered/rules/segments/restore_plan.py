"""Plans a restore from a bucket's checkpoints: all rows of the new cluster, and what is lost.

Owns the decisions: which topics come back, where each partition goes on, where groups stand, and the numbers from which
the new cluster counts. Pure and without chance: the same bucket and the same brokers give the same plan.

The new cluster has an id of its own, so that brokers and data folders of the old one, if any are left, are refused by
the bucket and by each other. Its numbers (changes, leader epochs, producer ids) begin a new life: at the next multiple
of a step that no life uses up. So none of them was ever given out by the old cluster, not even after the last
checkpoint that we can see.
"""

import hashlib
import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field, replace
from itertools import chain, islice
from typing import Final
from uuid import NAMESPACE_OID, UUID, uuid5

from tiered.formats.acl_entries import AclEntry
from tiered.formats.checkpoint import (
    MAX_PARTITIONS_A_TOPIC,
    ClusterCheckpoint,
    CommittedSegment,
    PartitionCheckpoint,
    TopicEntry,
)
from tiered.formats.disk_report import DiskReport
from tiered.formats.group_checkpoint import GroupCheckpoint, GroupEntry, StoredOffset
from tiered.formats.json_fields import MAX_EPOCH
from tiered.formats.pin_entries import PinEntry
from tiered.ids import KeptDisk, TopicId, TopicPartition
from tiered.rules.groups.coordinator_slot import coordinator_slot
from tiered.rules.replication import placement
from tiered.rules.security.quotas import QuotaEntity
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import ScramCredential
from tiered.rules.segments import former_database
from tiered.rules.segments.former_database import FormerDatabase
from tiered.rules.segments.restored_logs import LogChoice, ReplicaLog, UnendedTransaction, choose, unended

CHANGES_A_LIFE: Final = 1 << 30
LEADER_EPOCHS_A_LIFE: Final = 100_000
PRODUCER_IDS_A_LIFE: Final = 1 << 32
SLOT_TENURE_BITS: Final = 20
"""As `meta.coordinator_slots` counts: a slot's epoch is a change's number, and these bits."""

Key = tuple[UUID, int]
"""Topic id and partition."""
Settings = Mapping[str, Mapping[str, str]]
"""Texts by scope and name; a scope is a broker's id in decimal, or "" for all brokers."""
_DIGEST_CHARS: Final = 40
"""Who writes to the bucket may choose both lists: of two with the same digest one would be shown, the other accepted.
160 bits leave nobody the time to find such a pair."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredSettings:
    """The settings and configs of a checkpoint with which brokers would start."""

    settings: Settings = field(default_factory=dict)
    giving_rights: Settings = field(default_factory=dict)
    """Not among `settings`."""
    resource_configs: Settings = field(default_factory=dict)
    """By kind and name, as in "GROUP:orders"."""
    ignored: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Names by scope or resource: no broker takes them at run time, or they are too many."""
    contradictory: Settings = field(default_factory=dict)
    """Each is allowed by itself; beside the others it would stop a broker at its start."""
    topic_faults: Mapping[str, str] = field(default_factory=dict)
    """What is wrong with a topic's configs, by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundPartition:
    """A partition's head with its etag, all its segments above the log start, and what the newest of them knows: the
    largest producer id and the leader epoch of its last record (-1: none). `fault` says why the checkpoint cannot be
    used; then the rest is empty.

    The last `taken_back` of the segments are uploads that the stored head does not name: `head` is extended by them.
    Where none is stored, `etag` is None."""

    head: PartitionCheckpoint | None = None
    etag: str | None = None
    segments: tuple[CommittedSegment, ...] = ()
    newest_producer_id: int = -1
    newest_leader_epoch: int = -1
    taken_back: int = 0
    fault: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundGroups:
    """A slot's checkpoint with its etag."""

    checkpoint: GroupCheckpoint
    etag: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundBucket:
    """All that checkpoints say. `unlisted` are heads of topics that the cluster's checkpoint does not name."""

    cluster: ClusterCheckpoint
    cluster_etag: str
    partitions: Mapping[Key, FoundPartition]
    groups: Mapping[int, FoundGroups]
    unlisted: tuple[Key, ...] = ()
    group_faults: tuple[str, ...] = ()
    settings: RestoredSettings = field(default_factory=RestoredSettings)
    """Of those that the cluster's checkpoint names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredPartition:
    """Where a partition goes on. `end_offset` is that of the log on the disk which leads, that of the first replica's
    broker; where `has_log` is false, no disk has more than the store. `lost_before` is the end of what is known to be
    lost; None where nothing is known."""

    partition: int
    log_start_offset: int
    cold_end_offset: int
    end_offset: int
    has_log: bool
    leader_epoch: int
    replicas: tuple[int, ...]
    segments: tuple[CommittedSegment, ...]
    has_head: bool
    taken_back: int
    """As in `FoundPartition`."""
    lost_before: int | None

    @property
    def is_loss_unknown(self) -> bool:
        """Whether neither a checkpoint nor a disk says how far the log reached, and no group's commit does."""
        return not self.has_head and not self.has_log and self.lost_before is None


@dataclass(frozen=True, slots=True, kw_only=True)
class RestoredTopic:
    """A topic with all its partitions by number. `former_replication_factor` is None where no checkpoint says it."""

    topic_id: UUID
    name: str
    configs: Mapping[str, str]
    replication_factor: int
    former_replication_factor: int | None
    partitions: tuple[RestoredPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovedOffset:
    """A group had committed beyond what can be restored: it goes on at the restored end."""

    group_id: str
    topic: str
    partition: int
    committed_offset: int
    restored_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RestorePlan:
    """All that is to be written. With `problems` nothing may be."""

    former_cluster_id: str
    cluster_id: str
    previous_cluster_ids: tuple[str, ...]
    change_number: int
    next_producer_id: int
    brokers: tuple[int, ...]
    settings: Settings
    ignored_settings: Mapping[str, tuple[str, ...]]
    """As in `RestoredSettings`."""
    contradictory_settings: Settings
    """As in `RestoredSettings`."""
    left_out_settings: Settings
    """Those that give rights, unless they are accepted."""
    resource_configs: Settings
    topics: tuple[RestoredTopic, ...]
    slot_count: int | None
    groups: tuple[GroupEntry, ...]
    moved_offsets: tuple[MovedOffset, ...]
    pins: tuple[PinEntry, ...]
    acls: tuple[AclEntry, ...]
    left_out_acls: tuple[AclEntry, ...]
    """All rules of the bucket, unless they are accepted, or those of the former database count."""
    rights_digest: str | None
    """Stands for all that gives rights, accepted or not; None where nothing does."""
    kept_disks: tuple[KeptDisk, ...]
    """Of brokers that keep their data folders."""
    unended: tuple[UnendedTransaction, ...]
    has_former_database: bool
    """Rules, credentials and quotas are those of the former database."""
    credentials: Mapping[tuple[str, ScramMechanism], ScramCredential]
    """As in `FormerDatabase`."""
    quotas: Mapping[tuple[QuotaEntity, str], float]
    warnings: tuple[str, ...]
    problems: tuple[str, ...]

    @property
    def slot_epoch(self) -> int:
        """Below every epoch that the new cluster gives a slot, above every one that the old cluster gave."""
        return self.change_number << SLOT_TENURE_BITS

    @property
    def segment_count(self) -> int:
        return sum(len(partition.segments) for topic in self.topics for partition in topic.partitions)


def next_life(number: int, step: int) -> int:
    """The next multiple of `step` above `number`."""
    return (max(0, number) // step + 1) * step


def opens_first_after_restore(*, leader_epoch: int, newest_stored_epoch: int) -> bool:
    """Whether this leader is the first one since a restore: an empty log is then what the restore has planned.

    The restore gives the first epoch of a life to nobody, and whoever registers first gets the next one. The store has
    records of the former life alone.
    """
    first_epoch = leader_epoch - leader_epoch % LEADER_EPOCHS_A_LIFE
    return newest_stored_epoch < first_epoch and leader_epoch <= first_epoch + 1


def plan_restore(
    found: FoundBucket,
    brokers: Sequence[int],
    left_out: Collection[str] = (),
    *,
    accept_rights: str | None = None,
    disks: Sequence[DiskReport] = (),
    former: FormerDatabase | None = None,
) -> RestorePlan:
    """The rows for a cluster of these brokers, which begin with empty disks, but for those whose `disks` are taken
    along. Topics that are `left_out` do not come back, and whatever is wrong with them is no problem. Access rules, and
    settings that give rights, come back only where `accept_rights` is their digest: whoever can write to the bucket
    could have put them there, or could have replaced them since a person saw the plan. With a `former` database the
    rules are those of that database, unasked: nobody but its owner could write there."""
    cluster, settings = found.cluster, found.settings
    bucket_acls = cluster.acls if former is None else ()
    rights_digest = _rights_digest(bucket_acls, settings.giving_rights)
    is_accepted = rights_digest is not None and accept_rights == rights_digest
    entries = sorted((each for each in cluster.topics if each.name not in left_out), key=lambda each: each.name)
    groups, slot_count = _groups_of(found)
    groups = former_database.merged_groups(groups, former)
    committed = _furthest_commits(groups)
    problems = [
        f"there is no topic {name} to leave out"
        for name in sorted({*left_out} - {each.name for each in cluster.topics})
    ]
    if accept_rights is not None and not is_accepted:
        problems.append(_other_rights(accept_rights, rights_digest))
    problems += _disk_problems(disks, brokers, _lineage(found), entries)
    problems += former_database.problems(former, _lineage(found))
    logs = _logs_of(disks)
    warnings: list[str] = []
    topics = tuple(
        _topic(entry, found, tuple(brokers), committed, logs, problems, warnings, start=index)
        for index, entry in enumerate(entries)
    )
    faults = settings.topic_faults
    problems += [f"{entry.name}: {faults[entry.name]}" for entry in entries if entry.name in faults]
    restored_groups, moved = _clamped(groups, topics)
    pins = _restored_pins(cluster.pins, topics)
    transactions = former_database.with_decisions(_unended(topics, logs), former)
    newest_slot_epoch = max((each.checkpoint.slot_epoch for each in found.groups.values()), default=0)
    change_number = next_life(max(cluster.version, newest_slot_epoch >> SLOT_TENURE_BITS), CHANGES_A_LIFE)
    newest_producer_id = max(
        chain(
            (its.newest_producer_id for its in found.partitions.values()),
            (log.newest_producer_id for disk in disks for log in disk.logs),
        ),
        default=-1,
    )
    return RestorePlan(
        former_cluster_id=cluster.cluster_id,
        cluster_id=str(uuid5(NAMESPACE_OID, f"tiered restore of {cluster.cluster_id} at {cluster.version}")),
        previous_cluster_ids=(*cluster.previous_cluster_ids, cluster.cluster_id),
        change_number=change_number,
        # Also where no log and no object has an id: a life of the cluster is one of its ids.
        next_producer_id=max(
            next_life(newest_producer_id, PRODUCER_IDS_A_LIFE), change_number // CHANGES_A_LIFE * PRODUCER_IDS_A_LIFE
        ),
        brokers=tuple(brokers),
        settings=_merged(settings.settings, settings.giving_rights) if is_accepted else settings.settings,
        ignored_settings=settings.ignored,
        contradictory_settings=settings.contradictory,
        left_out_settings={} if is_accepted else settings.giving_rights,
        resource_configs=settings.resource_configs,
        topics=topics,
        slot_count=slot_count,
        groups=restored_groups,
        moved_offsets=moved,
        pins=pins,
        acls=former.acls if former is not None else bucket_acls if is_accepted else (),
        left_out_acls=() if is_accepted else bucket_acls,
        rights_digest=rights_digest,
        kept_disks=tuple(KeptDisk(disk.broker_id, disk.cluster_id, disk.broker_epoch) for disk in disks),
        unended=transactions,
        has_former_database=former is not None,
        credentials={} if former is None else former.credentials,
        quotas={} if former is None else former.quotas,
        warnings=(
            *_left_out(cluster, left_out),
            *warnings,
            *_unknown_losses(topics),
            *_warnings(found, topics, pins),
            *_disk_warnings(disks, brokers, cluster),
            *former_database.warnings(former, cluster.acls, transactions),
        ),
        problems=tuple(problems),
    )


# Rights


def _rights_digest(acls: Sequence[AclEntry], settings: Settings) -> str | None:
    """Independent of the order of the rules."""
    if not acls and not settings:
        return None
    text = json.dumps([sorted(map(astuple, acls)), settings], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:_DIGEST_CHARS]


def _other_rights(accepted: str, rights_digest: str | None) -> str:
    if rights_digest is None:
        return f"--accept-rights {accepted}: nothing in the bucket gives rights (any more); leave the option out"
    return (
        f"--accept-rights {accepted}: the bucket's access rules and settings that give rights are others, those of "
        f"{rights_digest}: look at the list again, then accept that digest, and find out who changed the bucket"
    )


def _merged(settings: Settings, others: Settings) -> Settings:
    return {scope: {**settings.get(scope, {}), **others.get(scope, {})} for scope in sorted({*settings, *others})}


# Topics


def _topic(
    entry: TopicEntry,
    found: FoundBucket,
    brokers: tuple[int, ...],
    committed: Mapping[Key, int],
    logs: Mapping[Key, Sequence[ReplicaLog]],
    problems: list[str],
    warnings: list[str],
    *,
    start: int,
) -> RestoredTopic:
    count = partition_count(entry, found.partitions, logs)
    replication_factor = min(entry.replication_factor or 1, len(brokers))
    replicas = placement.assign(count, replication_factor, [(each, None) for each in brokers], start=start)
    lineage = _lineage(found)
    partitions = []
    for number in range(count):
        key = (entry.topic_id, number)
        its = found.partitions.get(key, FoundPartition())
        choice = choose(
            logs.get(key, ()),
            cold_end_offset=0 if its.head is None else its.head.cold_end_offset,
            cold_leader_epoch=its.newest_leader_epoch,
            preferred=replicas[number],
        )
        name = f"{entry.name}-{number}"
        problems += [
            f"{name}: {problem}" for problem in (_problem(its, lineage), choice.problem) if problem is not None
        ]
        warnings += [f"{name}: {warning}" for warning in choice.warnings]
        placed = _placed(choice, (*choice.brokers, *replicas[number], *brokers))[:replication_factor]
        if placed[0] in choice.unfit:
            problems.append(f"{name}: the log on every disk contradicts the store: leave one broker's disk out")
        newest_epoch = max((replica.log.reach[0] for replica in logs.get(key, ())), default=0)
        partitions.append(_partition(number, its, placed, choice, newest_epoch, committed.get(key)))
        if partitions[-1].leader_epoch > MAX_EPOCH:
            problems.append(f"{name}: leader epoch {newest_epoch} leaves no room for new ones: leave that disk out")
        if its.segments and partitions[-1].log_start_offset >= its.segments[0].end_offset:
            warnings.append(
                f"{name}: the disk of broker {placed[0]} says that what is below {partitions[-1].log_start_offset} is "
                "deleted, so objects that the bucket still names will be deleted"
            )
    return RestoredTopic(
        topic_id=entry.topic_id,
        name=entry.name,
        configs=entry.configs,
        replication_factor=replication_factor,
        former_replication_factor=entry.replication_factor,
        partitions=tuple(partitions),
    )


def partition_count(
    entry: TopicEntry, partitions: Mapping[Key, FoundPartition], logs: Mapping[Key, Sequence[ReplicaLog]]
) -> int:
    """How many the topic has: partitions may have been added after the cluster's checkpoint was written. One of which a
    disk has a log must come back: made anew under the same topic id, it would meet that log again."""
    seen = [number + 1 for topic_id, number in logs if topic_id == entry.topic_id and number < MAX_PARTITIONS_A_TOPIC]
    seen += [
        max(number + 1, each.head.partition_count if each.head is not None else 0)
        for (topic_id, number), each in partitions.items()
        if topic_id == entry.topic_id and (each.head is not None or each.fault is not None)
    ]
    return max(entry.partition_count, *seen) if seen else entry.partition_count


def _placed(choice: LogChoice, candidates: Sequence[int]) -> tuple[int, ...]:
    """Each broker once, first who leads, then the others in their order."""
    may_lead = (
        (broker_id for broker_id in candidates if broker_id not in choice.unfit)
        if choice.leading is None
        else iter((choice.leading.broker_id,))
    )
    return tuple(dict.fromkeys((*islice(may_lead, 1), *candidates)))


def _partition(
    number: int,
    found: FoundPartition,
    replicas: tuple[int, ...],
    choice: LogChoice,
    newest_epoch: int,
    committed_offset: int | None,
) -> RestoredPartition:
    head, leading = found.head, choice.leading
    log_start_offset, stored_end_offset = (0, 0) if head is None else (head.log_start_offset, head.cold_end_offset)
    if leading is not None:
        # Where the store has nothing, what is below the disk's first record is nowhere.
        own = leading.log.log_start_offset if stored_end_offset else leading.log.local_log_start_offset
        log_start_offset = max(log_start_offset, own)
    cold_end_offset = max(log_start_offset, stored_end_offset)
    end_offset = cold_end_offset if leading is None else leading.log.log_end_offset
    epochs = [newest_epoch, *(each.leader_epoch for each in found.segments), 0 if head is None else head.leader_epoch]
    known_end = max(committed_offset or 0, (head.high_watermark or 0) if head is not None else 0)
    return RestoredPartition(
        partition=number,
        log_start_offset=log_start_offset,
        cold_end_offset=cold_end_offset,
        end_offset=end_offset,
        has_log=leading is not None,
        leader_epoch=next_life(max(epochs), LEADER_EPOCHS_A_LIFE),
        replicas=replicas,
        segments=found.segments,
        has_head=head is not None,
        taken_back=found.taken_back,
        lost_before=known_end if known_end > end_offset else None,
    )


def _problem(found: FoundPartition, lineage: set[str]) -> str | None:
    """Why the partition cannot be restored from what its checkpoint says."""
    head = found.head
    if found.fault is not None or head is None:
        return found.fault
    if head.cluster_id not in lineage:
        return f"its checkpoint was written by another cluster, {head.cluster_id}: two clusters use this store"
    reached = head.log_start_offset
    for position, segment in enumerate(found.segments):
        if segment.base_offset != reached and (position or segment.base_offset > reached):
            return f"its checkpoint names nothing for the offsets from {reached} to {segment.base_offset - 1}"
        reached = segment.end_offset
    if reached != head.cold_end_offset:
        return f"its checkpoint names segments up to {reached}, where {head.cold_end_offset} should be the end"
    return None


def _lineage(found: FoundBucket) -> set[str]:
    return {found.cluster.cluster_id, *found.cluster.previous_cluster_ids}


# Disks


def _logs_of(disks: Sequence[DiskReport]) -> dict[Key, list[ReplicaLog]]:
    logs: dict[Key, list[ReplicaLog]] = {}
    for disk in disks:
        for log in disk.logs:
            logs.setdefault((log.topic_id, log.partition), []).append(ReplicaLog(broker_id=disk.broker_id, log=log))
    return logs


def _disk_problems(
    disks: Sequence[DiskReport], brokers: Sequence[int], lineage: Collection[str], entries: Sequence[TopicEntry]
) -> list[str]:
    ids = [disk.broker_id for disk in disks]
    twice = sorted({broker_id for broker_id in ids if ids.count(broker_id) > 1})
    return [
        *(f"two disks are those of broker {broker_id}: give the one that it had last" for broker_id in twice),
        *(
            f"the disk of broker {disk.broker_id} is given, and it is not among --brokers"
            for disk in disks
            if disk.broker_id not in brokers
        ),
        *(
            f"the disk of broker {disk.broker_id} belongs to cluster {disk.cluster_id}, which is not the store's"
            for disk in disks
            if disk.cluster_id not in lineage
        ),
        # Its broker may open it all the same, for it knows what the store has.
        *(
            f"{entry.name}: a log on the disk of broker {disk.broker_id} cannot be opened: put back what is missing, "
            f"or leave that disk out: {fault}"
            for disk in disks
            for fault in disk.faults
            for entry in entries
            if fault.startswith(str(entry.topic_id))
        ),
    ]


def _disk_warnings(disks: Sequence[DiskReport], brokers: Sequence[int], cluster: ClusterCheckpoint) -> list[str]:
    known = {topic.topic_id for topic in cluster.topics}
    unknown = sorted({log.topic_id for disk in disks for log in disk.logs if log.topic_id not in known})
    warnings = []
    if disks:
        given = {disk.broker_id for disk in disks}
        warnings += [
            f"no disk of broker {broker_id} is given: what it alone has does not come back"
            for broker_id in brokers
            if broker_id not in given
        ]
    if unknown:
        warnings.append(
            "the disks have logs of topics that the store does not name, and that stay where they are: deleted topics, "
            f"or new ones of its last minute ({', '.join(map(str, unknown[:10]))}{', …' if len(unknown) > 10 else ''})"
        )
    return warnings


def _unended(
    topics: Sequence[RestoredTopic], logs: Mapping[Key, Sequence[ReplicaLog]]
) -> tuple[UnendedTransaction, ...]:
    return unended(
        (TopicPartition(TopicId(topic.topic_id), its.partition), replica.log)
        for topic in topics
        for its in topic.partitions
        if its.has_log
        for replica in logs[topic.topic_id, its.partition]
        if replica.broker_id == its.replicas[0]
    )


# Groups


def _groups_of(found: FoundBucket) -> tuple[tuple[GroupEntry, ...], int | None]:
    """Every group once, by id, and the number of slots. Checkpoints of another number of slots count only where the
    group's present slot was not written yet."""
    checkpoints = sorted(
        (each.checkpoint for each in found.groups.values()), key=lambda each: (each.slot_epoch, each.slot)
    )
    if not checkpoints:
        return (), None
    slot_count = checkpoints[-1].slot_count
    written = {each.slot for each in checkpoints if each.slot_count == slot_count}
    groups: dict[str, GroupEntry] = {}
    for checkpoint in checkpoints:
        for group in checkpoint.groups:
            if checkpoint.slot_count == slot_count or coordinator_slot(group.group_id, slot_count) not in written:
                groups[group.group_id] = group
    return tuple(groups[group_id] for group_id in sorted(groups)), slot_count


def _furthest_commits(groups: Sequence[GroupEntry]) -> dict[Key, int]:
    """How far any group had read: so far the log went at least."""
    furthest: dict[Key, int] = {}
    for group in groups:
        for each in group.offsets:
            key = (each.topic_id, each.partition)
            furthest[key] = max(each.offset, furthest.get(key, 0))
    return furthest


def _clamped(
    groups: Sequence[GroupEntry], topics: Sequence[RestoredTopic]
) -> tuple[tuple[GroupEntry, ...], tuple[MovedOffset, ...]]:
    """The groups with offsets of restored partitions alone, none of which is beyond the restored end.

    One below the log start stays: the old cluster would have answered with it too.
    """
    ends = {(topic.topic_id, each.partition): (topic.name, each) for topic in topics for each in topic.partitions}
    moved: list[MovedOffset] = []
    restored = []
    for group in groups:
        offsets: list[StoredOffset] = []
        for each in group.offsets:
            known = ends.get((each.topic_id, each.partition))
            if known is None:
                continue
            topic, partition = known
            if each.offset > partition.end_offset:
                moved.append(
                    MovedOffset(
                        group_id=group.group_id,
                        topic=topic,
                        partition=each.partition,
                        committed_offset=each.offset,
                        restored_offset=partition.end_offset,
                    )
                )
                # The epoch that had written there is not in the restored log.
                offsets.append(replace(each, offset=partition.end_offset, leader_epoch=-1))
            else:
                offsets.append(each)
        restored.append(replace(group, offsets=tuple(offsets)))
    return tuple(restored), tuple(moved)


# Pins and snapshots


def _restored_pins(pins: Sequence[PinEntry], topics: Sequence[RestoredTopic]) -> tuple[PinEntry, ...]:
    """The offsets of topics that come back. They end where the log does: lost offsets are written anew."""
    ends = {(topic.topic_id, each.partition): each.end_offset for topic in topics for each in topic.partitions}
    return tuple(
        replace(
            each,
            ranges=tuple(
                its._replace(end_offset=min(its.end_offset, ends[each.topic_id, its.partition]))
                for its in each.ranges
                if its.start_offset <= ends.get((each.topic_id, its.partition), -1)
            ),
        )
        for each in pins
        if (each.topic_id, 0) in ends
    )


# What people should know


def _left_out(cluster: ClusterCheckpoint, names: Collection[str]) -> list[str]:
    return [
        f"{name}: left out as you asked, with what groups had committed of it and snapshots of it; its objects stay in "
        "the bucket, and no later restore from there knows it"
        for name in sorted({*names} & {each.name for each in cluster.topics})
    ]


def _unknown_losses(topics: Sequence[RestoredTopic]) -> list[str]:
    names = [f"{topic.name}-{its.partition}" for topic in topics for its in topic.partitions if its.is_loss_unknown]
    if not names:
        return []
    named = f"{', '.join(names[:10])}{', …' if len(names) > 10 else ''}"
    partitions = "1 partition" if len(names) == 1 else f"{len(names):,} partitions"
    return [
        f"the store has no checkpoint of {partitions} ({named}), so how much is lost there is not known: records that "
        "were never uploaded are on the brokers' disks alone, which --disk brings back"
    ]


def _warnings(found: FoundBucket, topics: Sequence[RestoredTopic], pins: Sequence[PinEntry]) -> list[str]:
    warnings = []
    for topic in topics:
        former = topic.former_replication_factor
        if former is None:
            warnings.append(f"{topic.name}: how many replicas it had is not known, it gets {topic.replication_factor}")
        elif former > topic.replication_factor:
            warnings.append(f"{topic.name}: it had {former} replicas and gets {topic.replication_factor}")
        wanted = topic.configs.get("min.insync.replicas", "1")
        if wanted.isdigit() and int(wanted) > topic.replication_factor:
            warnings.append(
                f"{topic.name}: min.insync.replicas is {wanted}, so that acks=all is refused until it has as many"
            )
    former_pins = {each.pin_id: each for each in found.cluster.pins}
    cut = [each.name for each in pins if each.name is not None and each.ranges != former_pins[each.pin_id].ranges]
    warnings += [f"snapshot {name} held offsets that are lost: it holds the others" for name in cut]
    unlisted = sorted({topic_id for topic_id, _ in found.unlisted})
    if unlisted:
        warnings.append(
            f"checkpoints of topics that are no longer part of the cluster are left alone: deleted topics "
            f"({', '.join(map(str, unlisted[:10]))}{', …' if len(unlisted) > 10 else ''})"
        )
    warnings += [f"{fault}; they begin anew" for fault in found.group_faults]
    left_out = sum(each.checkpoint.left_out for each in found.groups.values())
    if left_out:
        warnings.append(f"{left_out} consumer groups were too many for their checkpoints: they begin anew")
    return warnings
