"""Local files compared with the open logs, and due uploads with the objects in the store.

Owns how far the turn through the folders is. A first finding is checked again a moment later, because a log that rolls
or deletes is between two states. Must never remove a file: an unused one is reported, and left.
"""

import asyncio
from pathlib import Path
from uuid import UUID

from tiered.broker.context import BrokerContext
from tiered.broker.one_by_one import OneByOne
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.findings import OF_DISK, OF_UPLOADS, Finding, FindingKind, Findings
from tiered.broker.tiering import tier_plan
from tiered.ids import TopicPartition
from tiered.rules.segments import reconcile
from tiered.rules.segments.reconcile import Cursor, FileDifference
from tiered.rules.segments.tiering import UploadWait
from tiered.runtime import in_turns

FOLDERS_A_ROUND = 200
SECOND_LOOK_MS = 1_000
_STUCK = (UploadWait.MISSING_LOCALLY, UploadWait.MISALIGNED)


class DiskComparison:
    """One broker's turns through its own folders, those of the replicas that follow included."""

    def __init__(self, *, context: BrokerContext, topics: Topics, findings: Findings) -> None:
        self._context = context
        self._topics = topics
        self._findings = findings
        self._at: Cursor | None = None
        self._began_ms: float | None = None
        self._is_under_way = False
        self._seemed_stuck: set[TopicPartition] = set()
        self._comparing = OneByOne("comparing local files", counters=context.counters)
        self.turns = 0
        """Turns that ended."""

    # Uploads

    async def look_at_uploads(self) -> None:
        """Tells which partitions led here have closed segments that are overdue, or can never be uploaded. Asks nobody:
        it is all in memory."""
        self._seemed_stuck = {key for key in self._seemed_stuck if self._topics.hosted(key) is not None}
        async for partition in in_turns(self._topics.partitions()):
            if partition.leadership is not None:
                now_ms = self._context.clock.now_ms()
                self._findings.replace(partition.topic_partition, _is_of_uploads, self._overdue(partition), now_ms)

    def _overdue(self, partition: Partition) -> list[Finding]:
        cold_end_offset, key = partition.cold_end_offset, partition.topic_partition
        if cold_end_offset >= partition.log.active_base_offset:
            return []
        plan = tier_plan.upload_plan(partition, self._context.clock.now_ms())
        was_stuck = key in self._seemed_stuck
        self._seemed_stuck.discard(key)
        if plan.waiting in _STUCK:
            self._seemed_stuck.add(key)
            if not was_stuck:
                return []  # A new leader may not have heard yet of all that is committed.
            return [
                _upload_finding(
                    partition,
                    FindingKind.STUCK_UPLOAD,
                    partition.log.active_base_offset,
                    f"{plan.overdue_bytes} bytes wait and cannot be uploaded: {plan.waiting}",
                    "if the bucket has the offsets (`tiered restore --plan` and `tiered verify --orphans` tell), the "
                    "database has lost commits: bring it back, and delete nothing. Else let a replica lead that has "
                    "them, or give them up (docs/reconcile.md)",
                )
            ]
        end_offset = tier_plan.overdue_end_offset(
            partition, self._context.clock.now_ms(), self._context.settings.tiering.tiered_upload_timeout_ms
        )
        if end_offset <= cold_end_offset:
            return []
        return [
            _upload_finding(
                partition,
                FindingKind.OVERDUE_UPLOAD,
                end_offset,
                f"{plan.overdue_bytes} bytes wait for their upload, the first of them for longer than "
                "tiered.upload.timeout.ms",
                "the log says why uploads fail, `tiered doctor` looks at the store; they are tried again by themselves",
            )
        ]

    # Files

    async def round(self) -> None:
        """Looks at some folders, if a turn is under way or due. Raises OSError."""
        now_ms = self._context.clock.monotonic_ms()
        if not self._is_under_way:
            period_ms = self._context.settings.reconcile.tiered_reconcile_period_ms
            if not reconcile.is_turn_due(began_ms=self._began_ms, now_ms=now_ms, period_ms=period_ms):
                return
            self._began_ms, self._at, self._is_under_way = now_ms, None, True
            await self._look_at_topics()
        hosted = list(self._topics.partitions())
        self._comparing.begin()
        self._comparing.keep(partition.name for partition in hosted)
        keys = [partition.topic_partition for partition in hosted]
        ordered = await self._context.disk.run(reconcile.in_turn, keys)
        for _ in range(FOLDERS_A_ROUND):
            key = reconcile.next_partition(ordered, self._at)
            if key is None:
                self._is_under_way = False
                self.turns += 1
                return
            partition = self._topics.hosted(key)
            if partition is not None:
                try:
                    await self._look_at(partition)
                except OSError as error:
                    self._comparing.failed(partition.name, error)
                else:
                    self._comparing.worked(partition.name)
            self._at = Cursor(topic_id=key.topic_id, partition=key.partition + 1)

    async def _look_at(self, partition: Partition) -> None:
        difference = await self._difference(partition)
        if difference:
            await asyncio.sleep(SECOND_LOOK_MS / 1000.0)
            difference = difference.seen_again(await self._difference(partition))
        told = [_unused(partition, name) for name in sorted(difference.unused)]
        told += [
            _lacking(partition, each.base_offset, each.end_offset, each.path)
            for each in partition.log.segments
            if each.base_offset in difference.lacking
        ]
        self._findings.replace(partition.topic_partition, _is_of_disk, told, self._context.clock.now_ms())

    async def _difference(self, partition: Partition) -> FileDifference:
        if self._is_in_change(partition):
            return FileDifference(unused=frozenset(), lacking=frozenset())
        try:
            sizes = await self._context.disk.run(self._context.files.sizes, partition.log.directory)
        except FileNotFoundError:
            sizes = {}
        if self._is_in_change(partition):
            return FileDifference(unused=frozenset(), lacking=frozenset())
        # After the listing: a segment that was begun before it is known by now.
        return reconcile.compare_files(sizes, partition.log.segments)

    def _is_in_change(self, partition: Partition) -> bool:
        """Whether its files are about to be others, or nobody's here."""
        key = partition.topic_partition
        topic = self._topics.find_id(key.topic_id)
        return (
            topic is None or topic.hosted(key.partition) is not partition or partition.closed or partition.is_truncating
        )

    async def _look_at_topics(self) -> None:
        """Folders of topics that SQL has not: it may be SQL that is wrong, so they stay."""

        async def unknown() -> frozenset[UUID]:
            on_disk = await self._context.disk.run(self._context.data.topics_on_disk)
            return reconcile.unknown_topics(on_disk, {topic.topic_id for topic in self._topics})

        found = await unknown()
        if found:
            await asyncio.sleep(SECOND_LOOK_MS / 1000.0)
            found &= await unknown()
        told = [_unknown_topic(topic_id, self._context.data.log_root / str(topic_id)) for topic_id in sorted(found)]
        self._findings.replace(
            None,
            lambda finding: finding.kind is FindingKind.UNUSED_FILE and finding.partition == -1,
            told,
            self._context.clock.now_ms(),
        )


def _is_of_uploads(finding: Finding) -> bool:
    return finding.kind in OF_UPLOADS


def _is_of_disk(finding: Finding) -> bool:
    return finding.kind in OF_DISK


def _upload_finding(partition: Partition, kind: FindingKind, end_offset: int, message: str, advice: str) -> Finding:
    return Finding(
        kind=kind,
        topic=partition.topic,
        topic_id=partition.topic_partition.topic_id,
        partition=partition.topic_partition.partition,
        message=message,
        advice=advice,
        first_offset=partition.cold_end_offset,
        last_offset=end_offset - 1,
    )


def _unused(partition: Partition, name: str) -> Finding:
    return Finding(
        kind=FindingKind.UNUSED_FILE,
        topic=partition.topic,
        topic_id=partition.topic_partition.topic_id,
        partition=partition.topic_partition.partition,
        message="this segment file is none of the log's",
        advice="move it away if somebody put it there; what an interrupted deletion left goes at the next start",
        name=f"{partition.log.directory}/{name}",
    )


def _lacking(partition: Partition, base_offset: int, end_offset: int, path: str) -> Finding:
    if end_offset <= partition.cold_end_offset:
        advice = "all of it is in the object store: restart this broker, and it is read from there"
    else:
        advice = "put it back from another replica's disk or a backup before this broker is restarted (docs/storage.md)"
    return Finding(
        kind=FindingKind.LACKING_FILE,
        topic=partition.topic,
        topic_id=partition.topic_partition.topic_id,
        partition=partition.topic_partition.partition,
        message="the segment's file is gone, or has another size than was written",
        advice=advice,
        name=path,
        first_offset=base_offset,
        last_offset=end_offset - 1,
    )


def _unknown_topic(topic_id: UUID, path: Path) -> Finding:
    return Finding(
        kind=FindingKind.UNUSED_FILE,
        topic=str(topic_id),
        topic_id=topic_id,
        partition=-1,
        message="the metadata store has no topic of this id",
        advice="if the database is the right one, move the folder away; nobody removes it by itself",
        name=str(path),
    )
