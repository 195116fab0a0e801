"""Passes over the cold tier in this process: what the Spark job does, for as much as fits into a dictionary."""

import tempfile
from collections.abc import Callable, Mapping, Sequence
from uuid import UUID

from tiered.broker.tiering.cold_compaction import ColdCompaction, ColdCompactionState, DuePartition, Order
from tiered.cold.bucket.rewrite import Rewritten, batches, rewrite
from tiered.cold.bucket.segments import load_tail
from tiered.cold.object_store import ObjectStore
from tiered.cold.opening import open_store
from tiered.formats.aborted_ranges import AbortedRanges
from tiered.formats.batch_filter import keyed_records
from tiered.meta.engine import Database
from tiered.rules.segments.compaction import is_aborted
from tiered.testing import LocalCluster

SMALL_WAVE_BYTES = 8_000


def newest_offsets(store: ObjectStore, partition: DuePartition) -> set[int]:
    """The last offset of each key in the segments that the pass looks at."""
    newest: dict[bytes, int] = {}
    for row in partition.rows:
        place = partition.place_of(row)
        tail = load_tail(store, place)
        aborted = AbortedRanges(tail.aborted)
        for data, position, header in batches(store, place, tail.chunks):
            if header.record_count and not header.is_control and not is_aborted(header, aborted):
                newest |= {each.key: each.offset for each in keyed_records(data, position) if each.key is not None}
    return set(newest.values())


def rewritten_of(
    store: ObjectStore, orders: Sequence[Order], newest: Mapping[str, set[int]]
) -> dict[UUID, Rewritten | None]:
    found: dict[UUID, Rewritten | None] = {}
    for order in orders:
        row = order.row
        offsets = [each for each in newest[order.partition.name] if row.base_offset <= each < row.end_offset]
        with tempfile.TemporaryFile() as scratch:
            found[order.object_id] = rewrite(store, order.rewrite, offsets, scratch)
    return found


def compact(
    c: LocalCluster,
    topic: str,
    *,
    wave_bytes: int = SMALL_WAVE_BYTES,
    before_swap: Callable[[int], None] = lambda _wave: None,
) -> ColdCompactionState:
    """One pass over the topic, due or not. `before_swap` is called with a wave's number when its objects are stored."""
    return compact_store(c.sql_url, c.store_url, topic, wave_bytes=wave_bytes, before_swap=before_swap)


def compact_store(
    sql_url: str,
    store_url: str,
    topic: str,
    *,
    wave_bytes: int = SMALL_WAVE_BYTES,
    before_swap: Callable[[int], None] = lambda _wave: None,
) -> ColdCompactionState:
    """The same of a cluster whose addresses alone are known, as in a process of its own."""
    database, store = Database.open(sql_url), open_store(store_url)
    try:
        job = ColdCompaction(database, store)
        found = job.look([topic])
        # Before the first swap: what it replaces may be purged at once.
        newest = {partition.name: newest_offsets(store, partition) for partition in found.partitions}
        for number, wave in enumerate(job.waves(found.partitions, wave_bytes=wave_bytes)):
            orders = job.begin(found, wave)
            rewritten = rewritten_of(store, orders, newest)
            before_swap(number)
            job.finish(orders, rewritten)
        return job.state
    finally:
        store.close()
        database.close_sync()
