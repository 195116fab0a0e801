"""The console says what retention would do and what reconciling has found, as `tiered` does on the command line."""

import re
from pathlib import Path

from playwright.sync_api import Browser, expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.console import Console
from tiered.cli import main


def test_what_retention_would_do_is_shown_with_its_reason(console: Console, staged: BrokerProcess) -> None:
    told = staged.get(f"/api/v1/topics/{stage.TIERED}/partitions/1/retention")
    page = console.go(f"topics/{stage.TIERED}")
    page.get_by_role("link", name="Retention", exact=True).click()
    page.get_by_label("Partition", exact=True).fill("1")
    page.get_by_label("Partition", exact=True).blur()
    rows = page.get_by_role("table", name="Segments of partition 1")
    expect(rows).to_contain_text(told["runs"][0]["why"])
    expect(rows.get_by_text("kept").first).to_be_visible()
    expect(page.get_by_role("table", name="Copies on the leader's disk")).to_be_visible()
    expect(page.get_by_role("table", name="Configs that decide this")).to_contain_text("retention.ms")
    assert "partition=1" in page.url


def test_a_snapshot_is_shown_as_what_holds_a_segment(browser: Browser, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data", settings={"log.retention.check.interval.ms": 10**9}).start()
    try:
        stage.create(broker, "held", 1, {"segment.bytes": "20000", "retention.bytes": "1"})
        stage.produce(broker, "held", (stage.order(number) for number in range(400)))
        broker.wait_cold("held", end_offset=100)
        with Console(browser, broker) as console:
            page = console.go("topics/held/retention")
            expect(
                page.get_by_role("table", name="Segments of partition 0").get_by_text("deleted").first
            ).to_be_visible()
            assert main(["snapshot", "create", "audit", "held", "--http", broker.http]) == 0
            console.come_back()
            expect(page.get_by_role("table", name="Kept for snapshots and readers")).to_contain_text("snapshot audit")
            expect(page.get_by_role("table", name="Segments of partition 0")).to_contain_text("snapshot audit")
            assert console.complaints == []
    finally:
        broker.ensure_stopped()


def test_a_missing_object_is_a_finding_with_what_to_do(browser: Browser, tmp_path: Path) -> None:
    objects = tmp_path / "objects"
    settings = {"tiered.reconcile.interval.ms": 100, "tiered.reconcile.period.ms": 0}
    broker = BrokerProcess(tmp_path / "data", "--store", f"file://{objects}", settings=settings).start()
    try:
        with Console(browser, broker) as console:
            page = console.go("brokers/findings")
            expect(page.locator("main")).to_contain_text("No findingsDisks, metadata store and object store agree")
            stage.create(broker, "lost", 1, {"segment.bytes": "20000"})
            stage.produce(broker, "lost", (stage.order(number) for number in range(200)))
            broker.wait_cold("lost", end_offset=50)
            sorted(objects.rglob("*.seg"))[0].unlink()
            row = page.get_by_role("table", name="Findings").locator("tbody tr").first
            for _ in range(60):
                console.come_back()
                if row.count():
                    break
                page.wait_for_timeout(200)
            expect(row).to_contain_text("missing")
            expect(row).to_contain_text("put the object back")
            expect(row.get_by_role("link", name="lost-0")).to_have_attribute("href", "#/topics/lost/partitions/0")
            page = console.go("brokers")
            expect(page.get_by_role("region", name="Health")).to_contain_text("1 finding")
            expect(page.locator(".top")).to_contain_text("Trouble")
            page.get_by_role("link", name=re.compile("disagree about")).click()
            expect(page.locator("#title")).to_have_text("Findings")
            section = page.get_by_role("navigation", name="Sections").locator("a[aria-current=page]")
            expect(section).to_have_text("Findings 1 (1 finding)")
            assert console.complaints == []
    finally:
        broker.ensure_stopped()
