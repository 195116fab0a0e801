"""The uploads of one broker: which begins next, how many run at once, and when to leave the store alone.

Owns the waiting uploads and those under way, one task for each and never two of one partition. `rules.segments.tiering`
decides what is due, `rules.pacing.upload_turns` whose turn it is, `rules.pacing.upload_pace` how many run at once;
`segment_lifecycle` uploads a segment. Must never skip a partition because another failed, nor remember that something
is due without asking again before it begins.
"""

import asyncio
import logging
from collections.abc import Callable

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.partition import Partition
from tiered.broker.partitions.topics import Topics
from tiered.broker.tiering import tier_plan
from tiered.broker.tiering.segment_lifecycle import SegmentLifecycle
from tiered.errors import MetadataUnavailable, StoreUnavailable, TieredError
from tiered.ids import TopicPartition
from tiered.rules.pacing import upload_pace, upload_turns
from tiered.rules.pacing.upload_turns import DueUpload, UploadTurns

log = logging.getLogger(__name__)

REFUSED_PARTITIONS = 3
"""So many partitions, refused one after the other, and the store refuses all: fewer may have objects of their own that
it denies."""


class UploadPipeline:
    """Uploads of the partitions that this broker leads, as tasks of its TaskGroup."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        lifecycle: SegmentLifecycle,
        topics: Topics,
        uploaded: Callable[[TopicPartition], None],
    ) -> None:
        self._context = context
        self._uploaded = uploaded
        self._lifecycle = lifecycle
        self._topics = topics
        self._group: asyncio.TaskGroup | None = None
        self._due: dict[TopicPartition, DueUpload] = {}
        self._uploading: dict[TopicPartition, asyncio.Task[None]] = {}
        self._turns = UploadTurns()
        self._pace = upload_pace.full_pace(self._context.settings.tiering.tiered_upload_concurrency)
        # A partition whose own upload failed rests, longer each time.
        self._rest_until_ms: dict[TopicPartition, float] = {}
        self._failures: dict[TopicPartition, int] = {}
        # Partitions that failed while the store or SQL was away: the others have their try before them.
        self._have_tried: set[TopicPartition] = set()
        # Partitions that were refused since the last upload that succeeded.
        self._refused: set[TopicPartition] = set()
        self._stopping = False

    @property
    def allowed(self) -> int:
        """Uploads that may run at once now: fewer than configured after the store or SQL was away."""
        return self._pace.limit.allowed

    @property
    def running(self) -> int:
        return len(self._uploading)

    def start(self, group: asyncio.TaskGroup) -> None:
        self._group = group

    async def stop(self) -> None:
        """Begins nothing new; uploads in progress are left to the sweep of the next start."""
        self._stopping = True
        tasks = list(self._uploading.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def look(self, partition: Partition, now_ms: int) -> None:
        """Notes that the partition has something to upload, if it has."""
        key = partition.topic_partition
        if key in self._due or key in self._uploading:
            return
        if key in self._rest_until_ms and self._context.clock.monotonic_ms() < self._rest_until_ms[key]:
            return
        due = tier_plan.due_upload(partition, now_ms)
        if due is not None:
            self._due[key] = due

    def begin(self) -> None:
        """Begins as many of the noted uploads as may run now."""
        clock = self._context.clock
        while (
            self._due
            and not self._stopping
            and self._context.store.is_ours
            and upload_pace.may_begin(self._pace, running=len(self._uploading), now_ms=clock.monotonic_ms())
        ):
            if self._have_tried.issuperset(self._due):
                self._have_tried.clear()
            untried = (due for where, due in self._due.items() if where not in self._have_tried)
            chosen = upload_turns.next_upload(untried, self._turns)
            assert chosen is not None
            del self._due[chosen.where]
            partition = self._led(chosen.where)
            # Another broker may lead it by now, or its uploads be switched off.
            if partition is not None and (due := tier_plan.due_upload(partition, clock.now_ms())) is not None:
                assert self._group is not None
                self._turns = upload_turns.taken(self._turns, due)
                self._uploading[due.where] = self._group.create_task(self._upload(partition, due))

    async def _upload(self, partition: Partition, due: DueUpload) -> None:
        """Uploads one segment, and begins what comes next."""
        began_ms = self._context.clock.monotonic_ms()
        try:
            await self._lifecycle.upload(partition, due.base_offset)
            self._succeeded(due.where)
            await self._lifecycle.delete_local(partition)
        except (TieredError, OSError) as error:
            rest_ms = self._failed(due.where, error, began_ms)
            log.warning("%s: an upload failed, the next try is in %d ms: %s", partition.name, rest_ms, error)
        except Exception:
            # A tick boundary: one partition's bug must not stop the others' uploads.
            self._rest(due.where, upload_pace.MAX_REST_MS)
            self._context.counters.uploads_failed += 1
            log.exception("%s: an upload failed in an unforeseen way", partition.name)
        finally:
            del self._uploading[due.where]
        again = self._led(due.where)
        if again is not None:
            self.look(again, self._context.clock.now_ms())
        self.begin()

    def _led(self, where: TopicPartition) -> Partition | None:
        """The partition as it is now, if this broker leads it."""
        topic = self._topics.find_id(where.topic_id)
        partition = None if topic is None else topic.hosted(where.partition)
        return partition if partition is not None and partition.leadership is not None else None

    def _succeeded(self, where: TopicPartition) -> None:
        self._uploaded(where)
        self._pace = upload_pace.succeeded(self._pace)
        self._refused.clear()
        self._have_tried.discard(where)
        self._failures.pop(where, None)
        self._rest_until_ms.pop(where, None)

    def _failed(self, where: TopicPartition, error: TieredError | OSError, began_ms: float) -> float:
        """Milliseconds until the next try. While the store or SQL is known to be away, no partition is to blame: each
        has a try before one of them has its next, for it may be that one alone that fails."""
        self._context.counters.uploads_failed += 1
        was_away = self._pace.failures > 0
        if self._is_of_all(where, error):
            now_ms = self._context.clock.monotonic_ms()
            self._pace = upload_pace.failed(self._pace, began_ms=began_ms, now_ms=now_ms)
            if was_away:
                self._have_tried.add(where)
                return max(0.0, self._pace.rest_until_ms - now_ms)
        failures = self._failures[where] = self._failures.get(where, 0) + 1
        return self._rest(where, upload_pace.rest_ms(failures))

    def _is_of_all(self, where: TopicPartition, error: TieredError | OSError) -> bool:
        """Whether the failure is about what all uploads need, and not about this partition's object."""
        if isinstance(error, StoreUnavailable) and error.may_be_of_one_object:
            self._refused.add(where)
            return len(self._refused) >= REFUSED_PARTITIONS
        return isinstance(error, StoreUnavailable | MetadataUnavailable)

    def _rest(self, where: TopicPartition, rest_ms: float) -> float:
        self._rest_until_ms[where] = self._context.clock.monotonic_ms() + rest_ms
        return rest_ms
