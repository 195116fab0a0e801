"""What cannot be taken back is done from the console once its name was typed, and nothing but what was shown."""

import pytest
from playwright.sync_api import Page, expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.axe import WCAG, barriers
from tests.browser.console import Console


def confirm(page: Page, name: str, button: str) -> None:
    """Types the name, a wrong one first."""
    done = page.get_by_role("dialog").get_by_role("button", name=button)
    field = page.get_by_label("Type the name")
    for typed in ("", name[:-1], name.upper() + "x"):
        field.fill(typed)
        expect(done).to_be_disabled()
    field.fill(name)
    done.click()


def bounds(broker: BrokerProcess, topic: str) -> list[tuple[int, int]]:
    partitions = broker.get(f"/api/v1/topics/{topic}")["partitions"]
    return [(each["log_start_offset"], each["high_watermark"]) for each in partitions]


def test_a_topic_is_emptied_after_a_look_at_what_would_go(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "to-empty", 2, {})
    stage.produce(staged, "to-empty", [(b"%d" % number, b"x") for number in range(40)])
    before = bounds(staged, "to-empty")
    page = console.go("topics/to-empty/manage")
    page.get_by_role("button", name="Delete records").click()
    page.get_by_role("button", name="Show what would be deleted").click()
    expect(page.get_by_role("table", name="What would be deleted")).to_contain_text(str(before[0][1]))
    console.said("40 records would be deleted. Nothing has changed yet")
    barriers(console, "the plan of a deletion", WCAG)
    # What comes in between was not shown, and stays.
    stage.produce(staged, "to-empty", [(b"%d" % number, b"late") for number in range(40)])
    confirm(page, "to-empty", "Delete 40 records")
    console.said("Records of 2 partitions were deleted")
    assert [start for start, _ in bounds(staged, "to-empty")] == [end for _, end in before]
    assert sum(end - start for start, end in bounds(staged, "to-empty")) == 40


def test_records_before_an_offset_or_a_time_are_deleted_from_some_partitions(
    console: Console, staged: BrokerProcess
) -> None:
    stage.create(staged, "to-cut", 1, {})
    stage.produce(staged, "to-cut", [(b"k", b"x")] * 20)
    page = console.go("topics/to-cut/manage")
    page.get_by_role("button", name="Delete records").click()
    page.get_by_label("those before an offset").check()
    page.get_by_label("First offset to keep").fill("7")
    page.get_by_label("Partitions", exact=True).fill("0")
    page.get_by_role("button", name="Show what would be deleted").click()
    confirm(page, "to-cut", "Delete 7 records")
    console.said("Records of 1 partition were deleted")
    assert bounds(staged, "to-cut") == [(7, 20)]
    page.get_by_role("button", name="Delete records").click()
    page.get_by_label("those before a time").check()
    page.get_by_label("Keep records from this time on").fill("2001-01-01T00:00:00")
    page.get_by_role("button", name="Show what would be deleted").click()
    expect(page.get_by_role("dialog")).to_contain_text("Nothing would be deleted")
    page.get_by_label("Partitions", exact=True).fill("9")
    page.get_by_role("button", name="Show what would be deleted").click()
    expect(page.get_by_role("alert")).to_contain_text("numbers that the topic has")


def test_partitions_are_added_and_the_topic_is_deleted(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "to-delete", 1, {})
    page = console.go("topics/to-delete/manage")
    page.get_by_role("button", name="Add partitions").click()
    page.get_by_label("Number of partitions").fill("1")
    page.get_by_role("button", name="Add them").click()
    expect(page.get_by_role("alert")).to_contain_text("above 1")
    page.get_by_label("Number of partitions").fill("4")
    page.get_by_role("button", name="Add them").click()
    expect(page.locator(".subtitle")).to_contain_text("4 partitions")
    page.get_by_role("button", name="Delete the topic").click()
    confirm(page, "to-delete", "Delete the topic")
    expect(page.locator("#title")).to_have_text("Topics")
    assert "to-delete" not in [each["topic"] for each in staged.get("/api/v1/topics")["topics"]]


def test_an_idle_group_is_deleted_and_one_with_members_cannot_be(console: Console, staged: BrokerProcess) -> None:
    stage.commit(staged, "to-forget", {0: 1})
    page = console.go(f"groups/{stage.LAGGING}")
    expect(page.get_by_role("button", name="Delete the group")).to_be_disabled()
    page = console.go("groups/to-forget")
    page.get_by_role("button", name="Delete the group").click()
    confirm(page, "to-forget", "Delete the group")
    expect(page.locator("#title")).to_have_text("Consumer groups")
    assert "to-forget" not in [each["group_id"] for each in staged.get("/api/v1/groups")["groups"]]


@pytest.mark.parametrize("kind", ["text", "json", "none"])
def test_a_record_is_produced_as_it_was_typed(console: Console, staged: BrokerProcess, kind: str) -> None:
    topic = f"typed-{kind}"
    stage.create(staged, topic, 2, {})
    page = console.go(f"topics/{topic}/records")
    page.get_by_role("button", name="Produce a record").click()
    page.get_by_label("Key", exact=True).last.fill("grüß")
    page.get_by_label("Value is").select_option(kind)
    if kind != "none":
        page.get_by_label("Value", exact=True).fill("{nothing")
    if kind == "json":
        page.get_by_role("button", name="Produce it").click()
        expect(page.get_by_role("alert")).to_contain_text("not JSON")
        page.get_by_label("Value", exact=True).fill('{"n":  9007199254740993}')
    page.get_by_label("Headers").fill("source=console\ntrace=ä=1")
    page.get_by_label("Partition", exact=True).last.fill("1")
    page.get_by_role("button", name="Produce it").click()
    console.said("The record has offset 0 of partition 1")
    expect(page.locator(".record-list tbody tr")).to_have_count(1)
    (record,) = staged.get(f"/api/v1/topics/{topic}/records?partition=1")["records"]
    expected = {"text": "{nothing", "json": '{"n":  9007199254740993}', "none": None}[kind]
    assert (record["value"] and record["value"]["text"]) == expected
    assert record["key"]["text"] == "grüß"
    assert [(each["key"], each["value"]["text"]) for each in record["headers"]] == [
        ("source", "console"), ("trace", "ä=1"),
    ]  # fmt: skip
