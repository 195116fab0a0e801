"""Records in the console: from a time, those alone that match, those that the broker finds, and as a file."""

import json
import re
from datetime import datetime
from pathlib import Path

import confluent_kafka
import pytest
from playwright.sync_api import Browser, Page, expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.console import PHONE, Console

TOPIC = "searched"
LONG = "x" * 40_000


@pytest.fixture(scope="module")
def searched(staged: BrokerProcess) -> BrokerProcess:
    """1,300 records, of which one in a hundred is an error; the last is long."""
    stage.create(staged, TOPIC, 1, {})
    values = [
        {"level": "ERROR" if number % 100 == 7 else "INFO", "id": 9_007_199_254_740_992 + number, "at": [{"n": number}]}
        for number in range(1_300)
    ]
    stage.produce(staged, TOPIC, [(b"k", json.dumps(each).encode()) for each in values])
    stage.produce(staged, TOPIC, [(b"long", LONG.encode())])
    return staged


def seek(page: Page, way: str, wanted: str) -> None:
    page.get_by_label("Look for", exact=True).select_option(way)
    page.get_by_label("What to look for").fill(wanted)
    page.get_by_role("button", name="Search", exact=True).click()


def test_the_broker_searches_and_says_how_far_it_is_and_what_it_read(console: Console, searched: BrokerProcess) -> None:
    page = console.go(f"topics/{TOPIC}/records")
    page.get_by_text("Search", exact=True).click()
    expect(page.locator("main")).to_contain_text("Nothing was looked for yet")
    rows, status = page.locator(".record-list tbody tr"), page.locator(".tail-status")
    for way, wanted, count in (
        ("text", '"ERROR"', 13),
        ("json", "id = 9007199254740993", 1),
        ("header", "absent", 0),
    ):
        seek(page, way, wanted)
        expect(status).to_contain_text("Searched to the end")
        expect(status).to_contain_text(
            f"{count} record{'s' * (count != 1)} found; 1,301 of 1,301 offsets looked at: 1,301 records"
        )
        expect(rows).to_have_count(count)
    console.said("Searched: 0 records found")
    expect(page.locator("main")).to_contain_text("No record is like that")
    page.get_by_label("To, in your zone").fill("2001-01-01T00:00:00")
    seek(page, "regex", "ERR")
    expect(status).to_contain_text("0 records found; 0 of 0 offsets looked at")
    assert "way=regex" in page.url
    seek(page, "regex", "(")
    expect(page.get_by_role("alert")).to_contain_text("no regular expression")


def test_a_search_goes_on_where_it_ended_and_is_cancelled(browser: Browser, searched: BrokerProcess) -> None:
    with Console(browser, searched, size=PHONE) as console:
        page = console.go(f"topics/{TOPIC}/records?mode=search&way=text&wanted=INFO")
        rows, status = page.locator(".record-list tbody tr"), page.locator(".tail-status")
        expect(rows).to_have_count(100)
        page.get_by_role("button", name="Go on from here").click()
        expect(rows).to_have_count(200)
        expect(rows.nth(100).get_by_role("button")).to_have_text("101")
        assert console.overflow_px() <= 0
        stage.create(searched, "slowly", 2, {})
        stage.produce(searched, "slowly", [(b"k", b"a" * 60_000)] * 12)
        page = console.go("topics/slowly/records?mode=search&way=regex&wanted=(x%3Fa%3F)%7B490%7Db")
        expect(status).to_contain_text("Searching")
        page.get_by_role("button", name="Cancel").click()
        expect(status).to_contain_text("Cancelled")
        expect(page.get_by_role("button", name="Go on from here")).to_be_visible()
        expect(page.get_by_role("button", name="Cancel")).to_have_count(0)
        assert console.complaints == []


def test_the_tail_shows_those_that_match_alone(console: Console, searched: BrokerProcess) -> None:
    page = console.go(f"topics/{TOPIC}/records?from=earliest")
    page.get_by_label("Show", exact=True).select_option("json")
    page.get_by_label("What to look for").fill("level = ERROR")
    page.get_by_label("What to look for").press("Enter")
    expect(page.locator(".record-list tbody tr")).to_have_count(13)
    expect(page.locator(".tail-status")).to_contain_text("1,301 records received, 13 shown")


def test_records_are_read_from_a_time(console: Console, searched: BrokerProcess) -> None:
    record = searched.get(f"/api/v1/topics/{TOPIC}/records?offset=0&limit=1")["records"][0]
    page = console.go(f"topics/{TOPIC}/records?mode=time")
    zone = str(console.evaluate("ms => new Date(ms - new Date(ms).getTimezoneOffset() * 60000).toISOString()",
                                record["timestamp_ms"]))  # fmt: skip
    page.get_by_label("Time, in your zone").fill(datetime.fromisoformat(zone).strftime("%Y-%m-%dT%H:%M:%S"))
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator(".record-list tbody tr").first.get_by_role("button")).to_have_text("0")
    assert re.search("mode=time&at=|at=.*mode=time", page.url)
    page.get_by_label("Time, in your zone").fill("2099-01-01T00:00:00")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.locator("main")).to_contain_text("No records here")


def test_what_is_shown_is_downloaded_whole(console: Console, searched: BrokerProcess, tmp_path: Path) -> None:
    page = console.go(f"topics/{TOPIC}/records?mode=read&offset=-2")
    expect(page.locator(".record-list tbody tr")).to_have_count(2)
    with page.expect_download() as downloading:
        page.get_by_role("button", name="Download").click()
    downloading.value.save_as(tmp_path / "found")
    assert downloading.value.suggested_filename == f"{TOPIC}.jsonl"
    lines = [json.loads(line) for line in (tmp_path / "found").read_text().splitlines()]
    assert [each["offset"] for each in lines] == [1_299, 1_300]
    assert lines[1]["value"] == LONG
    assert lines[0]["headers"] == [["source", "web"], ["trace", {"base64": "AP8Q"}]]


def test_times_that_no_calendar_has_are_shown_as_numbers(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "ahead", 1, {"message.timestamp.after.max.ms": str(2**63 - 1)})
    producer = confluent_kafka.Producer({"bootstrap.servers": staged.bootstrap})
    producer.produce("ahead", value=b"x", timestamp=9_000_000_000_000_000)
    assert producer.flush(20) == 0
    page = console.go("topics/ahead/records?mode=read&offset=0")
    expect(page.locator(".record-list tbody tr").first).to_contain_text("9000000000000000")
    page.locator(".record-list tbody tr").first.get_by_role("button").click()
    expect(page.locator(".viewer")).to_contain_text("9000000000000000")
