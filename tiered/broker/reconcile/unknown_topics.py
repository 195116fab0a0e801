"""Objects of partitions that no broker looks at, because the metadata store has no such topic: told by the controller.

Owns how far the turn through the bucket's segments is. One request for each partition that is known, whose objects its
leader compares: the listing goes on behind them. Must never delete: what SQL has no row of is people's to judge.
"""

from tiered.broker.context import BrokerContext
from tiered.broker.partitions.topics import Topics
from tiered.broker.reconcile.bucket import PAGE, REMOVE_BY_HAND, RequestBudget
from tiered.broker.reconcile.findings import Finding, FindingKind, Findings
from tiered.formats import object_key
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
        # A page may take two.
        while requests.take() and requests.take():
            if not await self._page():
                self._findings.replace(
                    None, is_of_unknown_topic, list(self._told.values()), self._context.clock.now_ms()
                )
                self._is_under_way = False
                self.turns += 1
                return

    async def _page(self) -> bool:
        """Looks at one page; False at the end of the bucket."""
        after = self._after
        self._context.counters.reconcile_requests += 1

        def look() -> tuple[str, tuple[Listed, ...]]:
            listed = self._context.store.list(object_key.SEGMENTS_PREFIX, start_after=after, limit=PAGE)
            return (listed[-1][0] if listed else ""), reconcile.first_partition(reconcile.listed_segments(listed))

        last, found = await self._pool.run(look)
        if not found:
            self._after = last
            return bool(last)
        key = found[0].key
        prefix = object_key.partition_segments_prefix(key.topic, key.topic_id, key.partition)
        # Its objects may fill more than this page.
        self._after = last if found[-1].name == last else prefix + _BEHIND
        topic = self._topics.find_id(key.topic_id)
        if topic is not None and key.partition < topic.partition_count:
            self._after = prefix + _BEHIND
            return True
        ids = [each.key.object_id for each in found]
        known = await self._context.database.read(lambda conn: segments.load_some(conn, ids))
        unknown = [each for each in found if each.key.object_id not in known]
        if unknown and len(self._told) < MAX_UNKNOWN_PARTITIONS and await self._is_there(unknown[0].name):
            size_bytes = sum(each.size_bytes for each in unknown)
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


def is_of_unknown_topic(finding: Finding) -> bool:
    """Whether it tells of a partition that the metadata store does not have."""
    return finding.kind is FindingKind.UNKNOWN_OBJECT and finding.first_offset == -1
