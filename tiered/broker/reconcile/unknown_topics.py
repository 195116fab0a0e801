"""Objects of partitions that no broker looks at, because the metadata store has no such topic: told by the controller.

Owns how far the turn through the bucket's segments is. One request lists the objects of many partitions; where a known
one fills a page, the next page begins behind it: its leader compares its objects. Must never delete: what SQL has no
row of is people's to judge.
"""

from collections.abc import Sequence

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.bucket import PAGE, REMOVE_BY_HAND, RequestBudget
from tiered.broker.reconcile.findings import Finding, FindingKind, Findings
from tiered.formats import object_key
from tiered.formats.object_key import SegmentKey
from tiered.meta import segments
from tiered.rules.segments import reconcile
from tiered.rules.segments.reconcile import Listed
from tiered.runtime import BlockingPool

MAX_UNKNOWN_PARTITIONS = 100
"""Partitions that are told in one turn."""
_BEHIND = "~"
"""After every character of a key: where a listing goes on behind a whole partition."""


class UnknownTopicObjects:
    """The controller's turns through all segments of the bucket."""

    def __init__(self, *, context: BrokerContext, topics: Topics, pool: BlockingPool, findings: Findings) -> None:
        self._context = context
        self._topics = topics
        self._pool = pool
        self._findings = findings
        self._after: str | None = None
        self._began_ms: float | None = None
        self._is_under_way = False
        self._told: dict[str, Finding] = {}
        self.turns = 0
        """Turns that ended."""

    async def round(self, requests: RequestBudget) -> None:
        """Goes on with the turn for what is left of the round's requests, on the controller alone. Raises
        StoreUnavailable and MetadataUnavailable: the next round goes on where this one was."""
        now_ms = self._context.clock.monotonic_ms()
        if not self._context.state.is_controller:
            self._is_under_way = False
            return
        if not self._is_under_way:
            period_ms = self._context.settings.reconcile.tiered_reconcile_period_ms
            if not reconcile.is_turn_due(began_ms=self._began_ms, now_ms=now_ms, period_ms=period_ms):
                return
            self._began_ms, self._after, self._is_under_way, self._told = now_ms, None, True, {}
        # Two, so that every round gets behind one unknown partition.
        while requests.left >= 2 and requests.take():
            if not await self._page(requests):
                self._findings.replace(
                    None, is_of_unknown_topic, list(self._told.values()), self._context.clock.now_ms()
                )
                self._is_under_way = False
                self.turns += 1
                return

    async def _page(self, requests: RequestBudget) -> bool:
        """Looks at one page, as far as there are requests for it; False at the end of the bucket."""
        after = self._after
        self._context.counters.reconcile_requests += 1

        def look() -> tuple[list[str], tuple[tuple[Listed, ...], ...]]:
            listed = self._context.store.list(object_key.SEGMENTS_PREFIX, start_after=after, limit=PAGE)
            return [name for name, _ in listed], reconcile.by_partition(reconcile.listed_segments(listed))

        names, partitions = await self._pool.run(look)
        for objects in partitions:
            if not self._is_known(objects[0].key) and not await self._examine(objects, requests):
                return True
            self._after = objects[-1].name
        if len(names) < PAGE:
            return False
        if self._after == names[-1] and self._is_known(partitions[-1][0].key):
            self._after = _prefix(partitions[-1][0].key) + _BEHIND
        else:
            self._after = names[-1]
        return True

    def _is_known(self, key: SegmentKey) -> bool:
        topic = self._topics.find_id(key.topic_id)
        return topic is not None and key.partition < topic.partition_count

    async def _examine(self, objects: Sequence[Listed], requests: RequestBudget) -> bool:
        """Notes what SQL has no row of among one unknown partition's objects; False where no request was left to ask
        for it."""
        if len(self._told) >= MAX_UNKNOWN_PARTITIONS:
            return True
        ids = [listed.key.object_id for listed in objects]
        rows = await self._context.database.read(lambda conn: segments.load_some(conn, ids))
        unknown = [listed for listed in objects if listed.key.object_id not in rows]
        if not unknown:
            return True
        if not requests.take():
            return False
        if await self._is_there(unknown[0].name):
            key, prefix = unknown[0].key, _prefix(unknown[0].key)
            size_bytes = sum(listed.size_bytes for listed in unknown)
            self._told[prefix] = Finding(
                kind=FindingKind.UNKNOWN_OBJECT,
                topic=key.topic,
                topic_id=key.topic_id,
                partition=key.partition,
                message=f"SQL has no such topic; the store has {len(unknown)} objects, {size_bytes} bytes, or more",
                advice=REMOVE_BY_HAND,
                name=prefix,
            )
        return True

    async def _is_there(self, name: str) -> bool:
        """Whether an object is there still: of a topic that was deleted, rows go soon after the objects."""
        self._context.counters.reconcile_requests += 1
        return await self._pool.run(self._context.store.head, name) is not None


def _prefix(key: SegmentKey) -> str:
    return object_key.partition_segments_prefix(key.topic, key.topic_id, key.partition)


def is_of_unknown_topic(finding: Finding) -> bool:
    """Whether it tells of a partition that the metadata store does not have."""
    return finding.kind is FindingKind.UNKNOWN_OBJECT and finding.first_offset == -1
