"""The console does what it shows: topics, configs, tails, lag and resets, with a real broker in a real browser."""

import json
import re
import urllib.error
import urllib.request

from playwright.sync_api import expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.console import Console


def test_a_topic_is_created_and_teaches_how_to_fill_it(console: Console, staged: BrokerProcess) -> None:
    page = console.go("topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill("not a name")
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("alert")).to_contain_text("letters, digits, dots, underscores or hyphens")
    page.get_by_label("Name").fill("made-here")
    page.get_by_label("Partitions", exact=True).fill("4")
    page.get_by_label("Keep records for (days)").fill("2")
    page.get_by_label("Other configs").fill("local.retention.ms=3600000")
    page.get_by_role("button", name="Create the topic").click()
    expect(page.locator("#title")).to_have_text("made-here")
    console.said("Topic made-here is created")
    expect(page.locator("pre").first).to_have_text(f"echo 'hello' | kcat -b {staged.bootstrap} -t made-here -P")
    made = staged.get("/api/v1/topics/made-here")
    configs = {each["name"]: each["value"] for each in made["configs"]}
    assert made["partition_count"] == 4
    assert (configs["retention.ms"], configs["local.retention.ms"]) == ("172800000", "3600000")
    console.go("topics")
    row = console.row("made-here")
    expect(row).to_contain_text("2 days")
    expect(row).to_contain_text("on disk: 1 hour")
    expect(row).to_contain_text("never")
    expect(console.row(stage.TIERED)).to_contain_text(" ago")


def test_what_the_broker_refuses_is_told_in_its_words(console: Console) -> None:
    page = console.go("topics")
    page.get_by_role("button", name="Create a topic").click()
    page.get_by_label("Name").fill(stage.TIERED)
    page.get_by_role("button", name="Create the topic").click()
    expect(page.get_by_role("alert")).to_contain_text("exists")
    expect(page.get_by_role("dialog")).to_be_visible()


def test_a_config_is_changed_and_given_back(console: Console, staged: BrokerProcess) -> None:
    def value() -> str:
        configs = staged.get("/api/v1/topics/payments")["configs"]
        return str(next(each["value"] for each in configs if each["name"] == "retention.ms"))

    before = value()
    page = console.go("topics/payments/configs")
    page.get_by_label("Find a config").fill("retention.ms")
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    field = page.get_by_label("New value")
    field.fill("soon")
    page.get_by_role("button", name="Change it").click()
    expect(page.get_by_role("alert")).to_contain_text("retention.ms")
    field.fill("86400000")
    expect(page.locator("#config-value-hint")).to_contain_text("24 h")
    page.get_by_role("button", name="Change it").click()
    console.said("retention.ms is now 86400000")
    expect(console.row("retention.ms")).to_contain_text("this topic")
    assert value() == "86400000"
    page.get_by_role("button", name="Change retention.ms", exact=True).click()
    page.get_by_role("button", name="Back to the broker's value").click()
    expect(console.row("retention.ms")).not_to_contain_text("this topic")
    assert value() == before


def test_configs_that_were_set_come_first_and_those_without_effect_last_and_cannot_be_changed(console: Console) -> None:
    page = console.go("topics/audit-log/configs")
    rows = page.get_by_role("table", name="Configs").locator("tbody tr")
    expect(rows.nth(0)).to_contain_text("local.retention.bytes")
    expect(rows.nth(1)).to_contain_text("segment.bytes")
    expect(rows.last).to_contain_text("no effect here")
    expect(rows.last.get_by_role("button")).to_have_count(0)


def test_values_that_can_be_counted_are_chosen(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "chosen", 1, {})
    page = console.go("topics/chosen/configs?q=cleanup")
    page.get_by_role("button", name="Change cleanup.policy").click()
    page.get_by_label("New value").select_option("delete,compact")
    page.get_by_role("button", name="Change it").click()
    console.said("cleanup.policy is now delete,compact")
    expect(page.locator(".subtitle")).to_contain_text("compacted")
    page = console.go("topics")
    expect(console.row("chosen")).to_contain_text("compacted")
    expect(console.row(stage.TIERED)).not_to_contain_text("compacted")


def test_a_minimum_that_no_number_of_replicas_reaches_is_told(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "too-safe", 1, {"min.insync.replicas": "2"})
    page = console.go("topics/too-safe")
    expect(page.locator(".notice-warn")).to_contain_text(
        "min.insync.replicas is 2, and each partition has 1 replica: produce requests"
    )


def test_a_name_is_broken_where_its_words_end(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "customer-addresses.by-country", 1, {})
    console.go("topics")
    pieces = console.row("customer-addresses.by-country").locator("th a").inner_html().split("<wbr>")
    assert pieces == ["customer-", "addresses.", "by-", "country"]


def test_a_topics_name_keeps_its_case_in_an_error(console: Console) -> None:
    console.page.goto(f"{console.base}/#/topics/{stage.TIERED}/partitions/99")
    expect(console.page.locator(".notice-bad")).to_contain_text("The broker says: orders has no partition 99")


def test_the_tail_shows_new_records_of_one_key_in_full(console: Console, staged: BrokerProcess) -> None:
    page = console.go("topics/sessions/records?key=wanted")
    expect(page.locator(".tail-status")).to_contain_text("Live")
    value = json.dumps({"id": 9_007_199_254_740_993, "text": "<b>grüß</b>"}, ensure_ascii=False).encode()
    stage.produce(staged, "sessions", [(b"other", b"no"), (b"wanted", value), (b"other", b"no")])
    expect(page.locator(".record-list tbody tr")).to_have_count(1)
    row = page.locator(".record-list tbody tr")
    expect(row).to_contain_text("wanted")
    row.get_by_role("button").click()
    shown = page.get_by_role("region", name=re.compile("^Offset"))
    # Every digit, though JavaScript's numbers end before it; and markup stays text.
    expect(shown.locator("pre").last).to_contain_text('"id": 9007199254740993')
    expect(shown.locator("pre").last).to_contain_text("<b>grüß</b>")
    assert page.locator(".viewer b").count() == 0
    shown.get_by_text("Hex", exact=True).click()
    expect(shown.locator("pre").last).to_contain_text(
        '00000000  7b 22 69 64 22 3a 20 39  30 30 37 31 39 39 32 35  |{"id": 900719925|'
    )
    expect(shown.locator("pre").last).to_contain_text(f"{len(value):08x}")
    shown.get_by_text("Text", exact=True).click()
    expect(shown.locator("pre").last).to_have_text(value.decode())
    expect(shown).to_contain_text("0x00ff10")
    page.keyboard.press("Escape")
    expect(shown).to_have_count(0)


def test_records_open_with_the_newest_of_all_partitions_and_then_follow(
    console: Console, staged: BrokerProcess
) -> None:
    stage.create(staged, "opened", 2, {})
    stage.produce(staged, "opened", [(b"%d" % number, b"before") for number in range(20)])
    page = console.go("topics/opened/records")
    rows = page.locator(".record-list tbody tr")
    expect(rows).to_have_count(20)
    stage.produce(staged, "opened", [(b"after", b"after")])
    expect(rows).to_have_count(21)
    expect(rows.first).to_contain_text("after")
    times = rows.locator("td time").all_text_contents()
    assert all(re.fullmatch(r"\d\d:\d\d:\d\d\.\d{3}", time) for time in times), times
    assert times == sorted(times, reverse=True)
    expect(rows.first.locator("td time")).to_have_attribute("title", re.compile(r"^20\d\d-.* local time, .* UTC$"))


def test_a_paused_tail_goes_on_where_it_stopped(console: Console, staged: BrokerProcess) -> None:
    page = console.go("topics/sessions/records?partition=0&from=latest")
    expect(page.locator(".tail-status")).to_contain_text("Live")
    rows = page.locator(".record-list tbody tr")
    keys = [key for number in range(400) if (key := b"p%d" % number)]
    first = partition_zero(staged, keys[:60])
    expect(rows).to_have_count(first)
    page.get_by_role("button", name="Pause").click()
    console.said("Tail: Paused")
    second = partition_zero(staged, keys[60:120])
    expect(rows).to_have_count(first)
    page.get_by_role("button", name="Resume").click()
    expect(rows).to_have_count(first + second)
    offsets = [int(text.replace(",", "")) for text in rows.get_by_role("button").all_text_contents()]
    assert offsets == list(range(offsets[0], offsets[0] - len(offsets), -1))


def test_a_tail_that_missed_records_says_which(console: Console, staged: BrokerProcess) -> None:
    stage.create(staged, "shortened", 1, {})
    stage.produce(staged, "shortened", [(b"k", b"1"), (b"k", b"2")])
    page = console.go("topics/shortened/records?from=earliest")
    rows = page.locator(".record-list tbody tr")
    expect(rows).to_have_count(2)
    page.get_by_role("button", name="Pause").click()
    stage.produce(staged, "shortened", [(b"k", b"%d" % number) for number in range(3, 9)])
    stage.delete_before(staged, "shortened", 6)
    page.get_by_role("button", name="Resume").click()
    expect(rows).to_have_count(4)
    expect(page.locator(".notice-warn")).to_contain_text("Behind since")
    assert rows.get_by_role("button").all_text_contents() == ["7", "6", "1", "0"]


def partition_zero(broker: BrokerProcess, keys: list[bytes]) -> int:
    """Produces to `sessions` and returns how many of the records went to partition 0."""

    def end() -> int:
        return int(broker.get("/api/v1/topics/sessions")["partitions"][0]["high_watermark"])

    before = end()
    stage.produce(broker, "sessions", [(key, b"x") for key in keys])
    return end() - before


def test_the_tail_keeps_no_more_than_it_says(console: Console) -> None:
    page = console.go(f"topics/{stage.TIERED}/records?from=earliest")
    expect(page.locator(".tail-status")).to_contain_text("4,500 records received")
    expect(page.locator(".tail-status")).to_contain_text("the newest 500 are kept")
    assert page.locator(".record-list tbody tr").count() == 500


def test_records_are_read_from_any_offset_of_both_tiers(console: Console) -> None:
    page = console.go(f"topics/{stage.TIERED}/records?mode=read&partition=0&offset=0")
    rows = page.locator(".record-list tbody tr")
    expect(rows).to_have_count(100)
    page.get_by_role("button", name="Newer").click()
    expect(rows.first.get_by_role("button")).to_have_text("100")
    page.get_by_label("Offset", exact=True).fill("-5")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(rows).to_have_count(5)
    page.get_by_label("Offset", exact=True).fill("soon")
    page.get_by_role("button", name="Read", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("earliest, latest")


def test_the_strip_says_what_it_draws(console: Console, staged: BrokerProcess) -> None:
    catalogue = staged.segments(stage.TIERED, 0)
    local_start, cold_end = catalogue["local_log_start_offset"], catalogue["cold_end_offset"]
    assert 0 < local_start < cold_end < catalogue["log_end_offset"]
    page = console.go(f"topics/{stage.TIERED}/partitions/0")
    strip = page.locator(".strip-large")
    words = strip.get_attribute("aria-label") or ""
    assert f"offsets 0 to {local_start - 1:,} only in the object store" in words
    assert f"offsets {local_start:,} to {cold_end - 1:,} on disk and in the object store" in words
    assert "only on disks, being written" in words
    expect(strip).to_have_attribute("aria-label", re.compile(r"group reports has committed 900"))
    assert strip.locator("rect.bucket").count() >= 2
    expect(page.get_by_role("table", name="Committed offsets of groups")).to_contain_text("reports")
    expect(page.locator("main")).to_contain_text(
        re.compile(
            r"only on disks \(not yet in the object store\) was written .* ago; within 1 h it is in the object store"
        )
    )


def test_lag_is_shown_now_and_over_time(console: Console, staged: BrokerProcess) -> None:
    found = staged.get(f"/api/v1/groups/{stage.LAGGING}")
    page = console.go("groups")
    expect(console.row(stage.LAGGING)).to_contain_text(f"{found['lag']:,}")
    expect(console.row(stage.LAGGING).locator("td").nth(4)).to_have_text(re.compile(r"^\d+ (s|min)$"))
    page.get_by_role("link", name=stage.LAGGING, exact=True).click()
    expect(page.locator(".figures")).to_contain_text("the oldest has waited for")
    chart = page.locator(".chart svg[role=img]")
    expect(chart).to_have_attribute("aria-label", re.compile(r"^Lag [\d,]+ at \d\d:\d\d:\d\d"))
    page.get_by_text("The samples as a table").click()
    expect(page.get_by_role("table", name="Lag over time")).to_be_visible()
    expect(page.get_by_role("table", name="Members")).to_contain_text("orders: 0–2")
    expect(page.get_by_role("button", name="Reset offsets")).to_be_disabled()
    expect(page.locator("#why-not")).to_contain_text("no members")


def test_an_idle_groups_offsets_are_reset_after_a_look_at_what_would_change(
    console: Console, staged: BrokerProcess
) -> None:
    def committed() -> dict[int, int]:
        offsets = staged.get(f"/api/v1/groups/{stage.IDLE}")["offsets"]
        return {each["partition"]: each["committed_offset"] for each in offsets}

    before = committed()
    page = console.go(f"groups/{stage.IDLE}")
    page.get_by_role("button", name="Reset offsets").click()
    page.get_by_label("Partitions", exact=True).fill("0, 2")
    page.get_by_role("button", name="Show what would change").click()
    preview = page.get_by_role("table", name="What would change")
    expect(preview).to_contain_text(f"{before[0]:,}")
    expect(preview).to_contain_text(f"−{before[2]:,}")
    console.said("Nothing has changed yet")
    assert committed() == before, "the preview must change nothing"
    # An edit asks for a new look: what was shown is no longer what would be done.
    page.get_by_label("an offset").check()
    expect(page.get_by_role("button", name="Reset 2 offsets")).to_have_count(0)
    page.get_by_label("Offset", exact=True).fill("7")
    page.get_by_role("button", name="Show what would change").click()
    page.get_by_role("button", name="Reset 2 offsets").click()
    console.said("2 offsets of group reports were reset")
    assert committed() == {**before, 0: 7, 2: 7}
    expect(page.get_by_role("table", name="Offsets")).to_contain_text("7")
    stage.commit(staged, stage.IDLE, before)


def test_changes_carry_the_token_and_are_refused_without_it(console: Console, staged: BrokerProcess) -> None:
    console.go("topics")
    status = console.evaluate(
        "fetch('api/v1/topics', {method: 'POST', body: JSON.stringify({name: 'forged'})}).then(answer => answer.status)"
    )
    assert status == 403
    assert "forged" not in [each["topic"] for each in staged.get("/api/v1/topics")["topics"]]


def test_cost_and_health_are_shown_with_their_units(console: Console) -> None:
    page = console.go("cost")
    expect(console.row(stage.TIERED)).to_contain_text(re.compile(r"(KiB|MiB).*\$"))
    expect(page.get_by_role("table", name="Prices")).to_contain_text("per GiB and month")
    page = console.go("")
    expect(page.get_by_role("region", name="Health")).to_contain_text("Produce and fetch are answered")
    expect(page.get_by_role("table", name="Brokers")).to_contain_text("controller")


def test_an_address_leads_back_to_the_same_view(console: Console) -> None:
    page = console.go("topics?q=o&sort=-store")
    expect(page.locator("tbody tr").first).to_contain_text(stage.TIERED)
    expect(page.locator("th[aria-sort=descending]")).to_contain_text("Object store")
    page.get_by_role("link", name=stage.TIERED, exact=True).click()
    expect(page.locator("#title")).to_have_text(stage.TIERED)
    page.go_back()
    expect(page.locator("#title")).to_have_text("Topics")
    expect(page.get_by_label("Find a topic")).to_have_value("o")


def test_what_does_not_exist_is_said_with_a_way_out(console: Console) -> None:
    console.page.goto(f"{console.base}/#/topics/nowhere")
    expect(console.page.locator(".notice-bad")).to_contain_text("nowhere")
    expect(console.page.get_by_role("link", name="See the topics that exist")).to_be_visible()


def test_files_are_kept_by_the_browser_and_asked_for_again(staged: BrokerProcess) -> None:
    with urllib.request.urlopen(staged.http + "/") as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        assert answer.headers["Cache-Control"] == "no-cache"
        policy, etag = answer.headers["Content-Security-Policy"], answer.headers["ETag"]
    assert "'unsafe-inline'" not in policy
    assert "script-src 'self'" in policy
    assert status_of(staged, "/", **{"If-None-Match": etag}) == 304
    for path in ("/console/js/../../app.py", "/console/js/app.py", "/console/..%2f/app.py"):
        assert status_of(staged, path) in (400, 404), path


def status_of(broker: BrokerProcess, path: str, **headers: str) -> int:
    try:
        with urllib.request.urlopen(urllib.request.Request(broker.http + path, headers=headers)) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def test_rules_users_and_quotas_are_shown(console: Console) -> None:
    rule = {
        "resource_type": "TOPIC", "resource_name": "logs-", "pattern_type": "PREFIXED", "principal": "User:ann",
        "host": "*", "operation": "ALTER_CONFIGS", "permission": "DENY",
    }  # fmt: skip
    credentials = [{"mechanism": "SCRAM-SHA-512", "iterations": 4096}]
    quota = {"entity": {"user": "ann", "client_id": None}, "values": {"producer_byte_rate": 2048.0}}
    missing = {"sentence": "User:ann lacks the right ALTER on the cluster", "command": "tiered acls add --cluster"}
    answers: dict[str, object] = {
        "acls": {
            "is_on": True,
            "super_users": ["User:root"],
            "principal": "User:ann",
            "missing_right": missing,
            "acls": [{**rule, "resource_name": f"logs-{number:03}"} for number in range(120)],
        },
        "users": {
            "users": [{"name": "ann", "credentials": credentials}],
            "missing_right": None,
            "password_refusal": "this connection has no TLS",
        },
        "quotas": {"quotas": [quota], "missing_right": None},
    }
    console.page.route(
        re.compile("/api/v1/(acls|users|quotas)$"),
        lambda route: route.fulfill(json=answers[route.request.url.rsplit("/", 1)[1]]),
    )
    page = console.go("access")
    expect(page.get_by_role("table", name="Access control lists")).to_contain_text("alter configs")
    expect(page.get_by_role("table", name="Access control lists")).to_contain_text("deny")
    expect(page.get_by_role("table", name="Users")).to_contain_text("SCRAM-SHA-512, 4,096 iterations")
    expect(page.get_by_role("table", name="Quotas")).to_contain_text("user ann, every other client id")
    expect(page.get_by_role("table", name="Quotas")).to_contain_text("2.00 KiB/s")
    # What cannot be done has no button, and says why.
    expect(page.get_by_role("button", name="Remove: ")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("not change them: User:ann lacks the right ALTER on the cluster")
    expect(page.locator("main pre").first).to_have_text("tiered acls add --cluster")
    expect(page.get_by_role("button", name="Create a user")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("No password can be set here: this connection has no TLS")
    # Who would shut itself out is warned.
    page.get_by_role("button", name="Delete user ann").click()
    expect(page.get_by_role("dialog")).to_contain_text("You are this user")
    expect(page.get_by_role("dialog")).to_contain_text("1 quota of it would stay")
    page.keyboard.press("Escape")
    # Long lists come in pages, and are searched as people say it.
    expect(page.locator(".pager")).to_contain_text("1–100 of 120")
    page.get_by_label("Find in access control lists").fill(
        "may not change the configs of every topic that begins with logs-007"
    )
    expect(page.get_by_role("table", name="Access control lists").locator("tbody tr")).to_have_count(1)


def test_without_an_authorizer_the_page_says_that_no_rule_counts(console: Console) -> None:
    page = console.go("access")
    expect(page.locator("main")).to_contain_text("nobody is asked for rights")
    expect(page.get_by_role("button", name="Create a user")).to_be_visible()
    expect(page.get_by_role("button", name="Add rules")).to_have_count(0)
    expect(page.locator("main")).to_contain_text("tiered users create ann")


def test_a_login_that_may_not_see_the_cluster_reads_why_and_no_trouble_is_made_up(console: Console) -> None:
    refusal = "User:ann lacks the right DESCRIBE on the cluster"
    console.page.route("**/api/v1/cluster", lambda route: route.fulfill(status=403, json={"message": refusal}))
    page = console.page
    page.goto(f"{console.base}/#/")
    expect(page.locator(".notice-bad")).to_contain_text(refusal)
    expect(page.locator(".top")).to_contain_text("Not shown to you")
    expect(page.locator(".top")).not_to_contain_text("No answer")
