"""What a broker asks of the store for each thing it does, counted, and that docs/costs.md says the same."""

import re
from pathlib import Path
from typing import Any

from tests.fault_s3.tiering_broker import (
    NEVER_MS,
    eventually,
    fill,
    make_topic,
    read_everything,
    tiering_broker,
    uploaded,
)
from tiered.broker.broker import Broker
from tiered.cold.request_counts import PriceClass, upload_requests
from tiered.config import BrokerSettings, TopicConfig
from tiered.testing.faulty_s3 import FaultyS3

COSTS = (Path(__file__).resolve().parents[2] / "docs" / "costs.md").read_text()
GET_USD_PER_1000 = 0.0004
MIB = 1 << 20
QUIET: dict[str, Any] = {
    "tiered_checkpoint_interval_ms": NEVER_MS,
    "tiered_reconcile_interval_ms": -1,
    "log_local_retention_bytes": 0,
}


class Counter:
    """Requests by class and by what they were about, since the last look."""

    def __init__(self, broker: Broker, faults: FaultyS3) -> None:
        self._broker, self._faults = broker, faults
        self._before, self._seen = dict(broker.store.requests), len(faults.seen)

    def since(self) -> dict[tuple[str, str], int]:
        """How many for each method and kind of object; what the broker counted itself is the same in all."""
        seen, self._seen = self._faults.seen[self._seen :], len(self._faults.seen)
        before, self._before = self._before, dict(self._broker.store.requests)
        found: dict[tuple[str, str], int] = {}
        for each in seen:
            kind = next((kind for kind in ("segments", "checkpoints") if f"/{kind}/" in each.path), "list")
            found[each.method, kind] = found.get((each.method, kind), 0) + 1
        by_class = {kind: count - before[kind] for kind, count in self._before.items()}
        puts = sum(count for (method, kind), count in found.items() if method in ("PUT", "POST") or kind == "list")
        assert by_class[PriceClass.PUT] == puts
        assert sum(by_class.values()) == len(seen)
        return found


async def test_what_an_upload_a_cold_read_and_a_deletion_ask_of_the_store(faults: FaultyS3, tmp_path: Path) -> None:
    async with tiering_broker(tmp_path, faults, **QUIET) as broker:
        await broker.checkpoints.write_stale()
        (partition,) = await make_topic(
            broker, "orders", segment_bytes=20_000, tiered_chunk_bytes=4_096, tiered_purge_grace_ms=0
        )
        await broker.checkpoints.write_stale()
        # The first object of a process also finds out what the store can do.
        fill(partition, 40, at_ms=broker.clock.now_ms())
        await eventually(lambda: partition.cold_end_offset == partition.log.active_base_offset)
        await broker.checkpoints.write_stale()

        counter = Counter(broker, faults)
        before = len(partition.committed)
        fill(partition, 200, at_ms=broker.clock.now_ms())
        await eventually(lambda: partition.cold_end_offset == partition.log.active_base_offset)
        objects = len(partition.committed) - before
        assert objects >= 4
        assert counter.since() == {
            ("PUT", "segments"): objects, ("HEAD", "segments"): objects, ("GET", "segments"): objects,
        }  # fmt: skip
        await broker.checkpoints.write_stale()
        assert counter.since() == {("PUT", "checkpoints"): 1, ("GET", "checkpoints"): 1}

        await broker.retention.round()
        cold_end = partition.log.local_log_start_offset
        assert cold_end == partition.cold_end_offset
        assert await read_everything(broker, partition) == list(range(240))
        gets = counter.since()
        assert gets.keys() == {("GET", "segments")}
        # The tail of each and one for all its chunks; the first one's come in requests that double.
        segments = len(partition.committed)
        assert 2 * segments <= gets["GET", "segments"] <= 2 * segments + 3
        assert await read_everything(broker, partition) == list(range(240))
        assert counter.since() == {}, "what is in the cache costs nothing"

        await broker.admin.delete_records(partition, cold_end)
        await broker.checkpoints.write_stale()
        await broker.lifecycle.sweep()
        assert counter.since() == {
            ("PUT", "checkpoints"): 1, ("GET", "checkpoints"): 1, ("DELETE", "segments"): segments,
        }  # fmt: skip
        for _ in range(3):
            await broker.lifecycle.sweep()
            await broker.checkpoints.write_stale()
            await broker.retention.round()
        assert counter.since() == {}, "a broker that has nothing to do asks nothing"
        assert len(uploaded(faults)) == segments


async def test_what_joining_sixteen_small_objects_asks_of_the_store(faults: FaultyS3, tmp_path: Path) -> None:
    async with tiering_broker(tmp_path, faults, **QUIET, tiered_sweep_interval_ms=NEVER_MS) as broker:
        (partition,) = await make_topic(broker, "orders", segment_bytes=2_000)
        fill(partition, 60, at_ms=broker.clock.now_ms())
        await eventually(lambda: partition.cold_end_offset == partition.log.active_base_offset)
        before = len(partition.committed)
        assert 16 < before < 32
        await broker.checkpoints.write_stale()
        counter = Counter(broker, faults)
        partition.configure(TopicConfig.of({}, broker.settings))
        await broker.joining.round()
        assert len(partition.committed) == before - 15
        assert counter.since() == {("GET", "segments"): 2 * 16 + 1, ("HEAD", "segments"): 1, ("PUT", "segments"): 1}
        await broker.checkpoints.write_stale()
        assert counter.since() == {("PUT", "checkpoints"): 1, ("GET", "checkpoints"): 1}
        await broker.joining.round()
        assert counter.since() == {}, "where nothing was uploaded nothing is looked at"


def test_the_cost_page_says_what_a_month_of_segments_closed_early_costs_at_the_most() -> None:
    settings = BrokerSettings()
    a_month = settings.tiering.tiered_disk_only_closes_per_hour * 730
    # Two PUT for each, and of a join's one object and checkpoint a sixteenth; HEAD and GET likewise.
    put_usd = settings.http.tiered_price_upload_usd_per_1000 / 1000
    puts, others = 2 + 2 / 16, 3 + 2 + 3 / 16
    of_all = a_month * (puts * put_usd + others * GET_USD_PER_1000 / 1000)
    words = " ".join(COSTS.split())
    assert f"pays {of_all:.0f} USD" in words
    assert (
        f"at most {a_month * 2 * put_usd:.0f} USD a month, and {a_month * 3 * GET_USD_PER_1000 / 1000:.0f} for" in words
    )


def rows_of(heading: str) -> list[list[str]]:
    """The cells of the table below a heading of the page, without its head."""
    section = COSTS.split(f"## {heading}\n", 1)[1].split("\n## ", 1)[0]
    lines = [line for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


def test_the_cost_page_says_what_uploads_take_and_cost_by_segment_size() -> None:
    put_usd = BrokerSettings().http.tiered_price_upload_usd_per_1000 / 1000
    rows = rows_of("Uploading a GiB")
    assert len(rows) >= 5
    for size, of_segment, per_gib, dollars in rows:
        segment_bytes = int(re.match(r"\d+", size)[0]) * (MIB << 10 if "GiB" in size else MIB)  # type: ignore[index]
        # The tail has 88 bytes for each MiB of batches, and a page more.
        requests = upload_requests(segment_bytes + 88 * segment_bytes // MIB + 4096)
        assert int(of_segment) == requests, size
        with_checkpoint = (requests + 1) * (1 << 30) / segment_bytes
        assert int(per_gib.replace(",", "")) == round(with_checkpoint), size
        gets_usd = 3 * (1 << 30) / segment_bytes * GET_USD_PER_1000 / 1000
        assert float(dollars) == round(with_checkpoint * put_usd + gets_usd, 5), size


def test_the_cost_page_has_the_prices_that_brokers_reckon_with() -> None:
    settings = BrokerSettings()
    prices = {cells[0]: cells[1] for cells in rows_of("The prices")}
    assert float(prices["1,000 PUT, POST or LIST requests"]) == settings.http.tiered_price_upload_usd_per_1000
    assert float(prices["1,000 GET, HEAD and other requests"]) == GET_USD_PER_1000
    assert float(prices["a GiB stored for a month"]) == settings.http.tiered_price_cold_usd_per_gib_month
