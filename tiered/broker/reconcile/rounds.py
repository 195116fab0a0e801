"""Reconcile and scrub of one broker: their rounds, one at a time, for the partitions that it leads, so that a cluster
looks at everything once; each broker looks at its own folders itself.

Owns the task, its thread and the list of findings. `rules.segments.reconcile` decides what is wrong. Must never delete
an object unless SQL says that it was deleted, and never hold up a request: one thread, a bound on requests and bytes.
"""

import asyncio
import logging
from functools import partial

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.bucket import BucketComparison, RequestBudget
from tiered.broker.reconcile.disk import DiskComparison
from tiered.broker.reconcile.findings import OF_DISK, OF_OBJECTS, Finding, FindingKind, Findings
from tiered.broker.reconcile.scrub import Scrub
from tiered.broker.reconcile.unknown_topics import UnknownTopicObjects, is_of_unknown_topic
from tiered.broker.view.image import ClusterImage
from tiered.errors import TieredError
from tiered.runtime import BlockingPool, QuietFailures, Worker, every

log = logging.getLogger(__name__)

JITTER = 0.2


class Reconciler:
    """Compares disk, metadata store and bucket, and scrubs, from `start` to `stop`."""

    def __init__(
        self,
        *,
        context: BrokerContext,
        topics: Topics,
        image: ClusterImage,
        findings: Findings,
    ) -> None:
        """Makes the comparisons as well, which share one thread."""
        self._context = context
        self._topics = topics
        self._pool = pool = BlockingPool("reconcile", threads=1, max_waiting=10)
        self._worker = Worker()
        self._failures = QuietFailures(log, "%(name)s failed and goes on when it can: %(error)s")
        self.findings = findings
        self.bucket = BucketComparison(context=context, topics=topics, image=image, pool=pool, findings=findings)
        self.unknown_topics = UnknownTopicObjects(context=context, topics=topics, pool=pool, findings=findings)
        self.disk = DiskComparison(context=context, topics=topics, findings=findings)
        self.scrub = Scrub(context=context, topics=topics, pool=pool, findings=findings)

    @property
    def is_enabled(self) -> bool:
        return self._context.settings.reconcile.tiered_reconcile_interval_ms > 0

    def start(self, tasks: asyncio.TaskGroup) -> None:
        interval_ms = self._context.settings.reconcile.tiered_reconcile_interval_ms
        if self.is_enabled:
            self._worker.start(tasks, every(interval_ms, self.round, name="reconciling", jitter=JITTER))

    async def stop(self) -> None:
        """Ends the round under way; a request to the store ends by itself."""
        await self._worker.stop()
        self._pool.close(wait=False)

    async def round(self) -> None:
        """One round of everything. Work that SQL, the store or the disk refuses goes on in the next round."""
        requests = RequestBudget(self._context.settings.reconcile.tiered_reconcile_max_requests)
        self.findings.begin_round()
        self.findings.forget(self._is_gone)
        for name, part in (
            ("looking at uploads", self.disk.look_at_uploads),
            ("comparing local files", self.disk.round),
            ("comparing the bucket with the metadata store", partial(self.bucket.round, requests)),
            ("looking for objects of unknown topics", partial(self.unknown_topics.round, requests)),
            ("scrubbing", self.scrub.round),
        ):
            try:
                await part()
            except Exception as error:  # noqa: BLE001 - a tick boundary for each part; the name says which
                self._context.counters.housekeeping_failures += 1
                self._failures.failed(error if isinstance(error, TieredError | OSError) else repr(error), name)
            else:
                self._failures.worked(name)

    def _is_gone(self, finding: Finding) -> bool:
        """Whether it is nobody's here any more: others lead the partition, or what it is about was deleted."""
        if finding.partition == -1:
            return False
        if is_of_unknown_topic(finding):
            return not self._context.state.is_controller
        topic = self._topics.find_id(finding.topic_id)
        partition = None if topic is None else topic.hosted(finding.partition)
        if partition is None:
            return True
        if finding.kind in OF_DISK:
            return False
        if partition.leadership is None:
            return True
        if finding.kind not in OF_OBJECTS or finding.kind is FindingKind.CATALOGUE:
            return False
        segment = partition.committed_segment_at(finding.first_offset)
        return segment is None or segment.object_key != finding.name
