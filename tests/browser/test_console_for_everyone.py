"""The console works for everyone: by keyboard, with a screen reader, in both colours, on a phone, with much data."""

import re
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Route, expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.axe import CONTRAST, WCAG, barriers
from tests.browser.console import PHONE, Console, focused

VIEWS = [
    "",
    "topics",
    f"topics/{stage.TIERED}",
    f"topics/{stage.TIERED}/records?mode=read&partition=0&offset=-20",
    f"topics/{stage.TIERED}/records?mode=search&way=text&wanted=Quito",
    f"topics/{stage.TIERED}/configs",
    f"topics/{stage.TIERED}/consumers",
    f"topics/{stage.TIERED}/retention?partition=1",
    f"topics/{stage.TIERED}/manage",
    f"topics/{stage.TIERED}/partitions/0",
    "topics/empty",
    "groups",
    f"groups/{stage.LAGGING}",
    "transactions",
    "brokers",
    "brokers/1",
    "brokers/findings",
    "cost",
    "access",
]


@pytest.mark.parametrize(("scheme", "rules"), [("light", WCAG), ("dark", CONTRAST)], ids=["light", "dark"])
def test_no_view_has_a_barrier_that_axe_finds(
    browser: Browser, staged: BrokerProcess, scheme: str, rules: dict[str, object]
) -> None:
    """axe-core's rules of WCAG 2.2 A and AA: names, roles, landmarks, and 4.5 : 1 for text. In dark the colours alone
    are others.
    """
    with Console(browser, staged, scheme=scheme) as console:
        for address in VIEWS:
            console.go(address)
            barriers(console, address, rules)
        page = console.go(f"groups/{stage.IDLE}")
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_role("button", name="Show what would change").click()
        expect(page.get_by_role("table", name="What would change")).to_be_visible()
        barriers(console, "the reset's preview", rules)
        assert console.complaints == []


def test_marks_stand_out_from_their_ground(browser: Browser, staged: BrokerProcess) -> None:
    """What is drawn has 3 : 1 against what it is drawn on, in both themes: axe looks at text alone."""
    script = """
    () => {
      const light = (text) => {
        const [r, g, b] = text.match(/[\\d.]+/g).slice(0, 3).map(Number)
          .map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
      };
      const probe = document.createElement("i");
      document.body.append(probe);
      const value = (name) => { probe.style.color = `var(${name})`; return light(getComputedStyle(probe).color); };
      const ratio = (a, b) => {
        const [x, y] = [value(a), value(b)].sort((m, n) => n - m);
        return (x + 0.05) / (y + 0.05);
      };
      const found = {};
      for (const mark of ["--hot", "--cold", "--bad", "--ink", "--accent", "--good", "--warn", "--line-strong"]) {
        found[mark] = ratio(mark, "--surface");
      }
      for (const mark of ["--hot", "--cold"]) found[`${mark} on lane`] = ratio(mark, "--lane");
      probe.remove();
      return found;
    }
    """
    for scheme in ("light", "dark"):
        with Console(browser, staged, scheme=scheme) as console:
            console.go("")
            faint = {mark: ratio for mark, ratio in console.evaluate(script).items() if ratio < 3}
            assert faint == {}, scheme


def test_everything_is_done_by_keyboard(console: Console) -> None:
    page = console.go("")
    page.keyboard.press("Tab")
    assert focused(page)["id"] == "skip"
    page.keyboard.press("Enter")
    assert focused(page)["id"] == "main"
    # To the topics by their link: the focus goes to the new page's heading.
    page.get_by_role("link", name="Topics", exact=True).focus()
    page.keyboard.press("Enter")
    expect(page.locator("#title")).to_have_text("Topics")
    expect(page.locator("#title")).to_be_focused()
    expect(page.locator("tbody tr").first).to_be_visible()
    page.keyboard.press("/")
    expect(page.get_by_label("Find a topic")).to_be_focused()
    page.keyboard.type(stage.TIERED)
    expect(page.locator("tbody tr")).to_have_count(1)
    # A dialog takes the focus, keeps it, and gives it back.
    page.get_by_role("button", name="Create a topic").focus()
    page.keyboard.press("Enter")
    expect(page.get_by_label("Name")).to_be_focused()
    for _ in range(12):
        page.keyboard.press("Tab")
        assert console.evaluate(
            "document.activeElement === document.body || !!document.activeElement.closest('dialog')"
        )
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_have_count(0)
    expect(page.get_by_role("button", name="Create a topic")).to_be_focused()
    # A record opens with the focus on it, closes with Escape, and the focus returns to its row.
    page = console.go(f"topics/{stage.TIERED}/records?mode=read&partition=0&offset=0")
    row = page.get_by_role("button", name="Show offset 3 of partition 0")
    row.focus()
    page.keyboard.press("Enter")
    expect(page.locator("#viewer-title")).to_be_focused()
    page.keyboard.press("Escape")
    expect(row).to_be_focused()


def test_data_that_ticks_is_not_read_out(console: Console, staged: BrokerProcess) -> None:
    page = console.go("topics/sessions/records?from=latest")
    expect(page.locator(".tail-status")).to_contain_text("Live")
    stage.produce(staged, "sessions", [(b"quiet", b"%d" % number) for number in range(50)])
    expect(page.locator(".record-list tbody tr")).to_have_count(50)
    assert page.locator("#announcer").text_content() == ""
    assert page.locator("[aria-live], [role=status], [role=log]").count() == 1


def test_focus_and_what_was_typed_survive_new_data(console: Console) -> None:
    page = console.go(f"topics/{stage.TIERED}/configs")
    field = page.get_by_label("Find a config")
    field.fill("retention")
    with page.expect_response(lambda answer: answer.url.endswith(f"/topics/{stage.TIERED}")):
        console.come_back()
    expect(field).to_be_focused()
    expect(field).to_have_value("retention")


def test_nothing_is_wider_than_a_phone(browser: Browser, staged: BrokerProcess) -> None:
    with Console(browser, staged, size=PHONE) as console:
        page = console.page
        for address in VIEWS:
            console.go(address)
            expect(page.locator("main .panel").first).to_be_visible()
            assert console.overflow_px() <= 0, address
        tabs = page.get_by_role("navigation", name="Pages of this topic").locator("ul")
        console.go(f"topics/{stage.TIERED}")
        assert tabs.evaluate("list => list.scrollWidth <= list.clientWidth"), "a tab is cut off"
        console.go("")
        page.get_by_role("link", name="Topics", exact=True).click()
        page.get_by_role("button", name="Create a topic").click()
        expect(page.get_by_role("dialog")).to_be_visible()
        assert console.overflow_px() <= 0
        assert console.complaints == []


def test_the_chosen_colours_stay_chosen(console: Console) -> None:
    def ground() -> str:
        return str(console.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    page = console.go("")
    light = ground()
    page.get_by_label("Colours").select_option("dark")
    dark = ground()
    assert dark != light
    page.reload()
    expect(page.locator("#title")).to_be_visible()
    assert ground() == dark
    page.emulate_media(color_scheme="dark")
    page.get_by_label("Colours").select_option("light")
    assert ground() == light


def test_the_head_has_the_mark_of_the_worst_check_and_a_broker_that_beats_is_not_called_away(
    console: Console, staged: BrokerProcess
) -> None:
    answer = staged.get("/api/v1/cluster")
    own = answer["brokers"][0]
    other = {**own, "broker_id": 2, "state": "silent", "health": None, "totals": None, "version": None}
    other |= {"heartbeat_age_ms": 300, "heartbeat_is_late": False, "is_controller": False}
    page = console.go("brokers")

    def shows(changes: dict[str, object], head: str, *words: str, brokers: Sequence[dict[str, object]] = ()) -> None:
        health = {**own["health"], "findings": {}, "stale_checkpoints": 0, **changes}
        cluster = {**answer, "health": health, "brokers": [{**own, "health": health}, *brokers]}
        page.route("**/api/v1/cluster", lambda route: route.fulfill(json=cluster))
        console.come_back()
        expect(page.locator(".health")).to_have_text(head)
        for text in words:
            expect(page.locator("main")).to_contain_text(text)

    shows({}, "Healthy")
    shows({"upload_backlog_bytes": 9, "upload_backlog_age_ms": 660_000}, "Degraded", "Look at the object store")
    shows({"store_trouble": "archived"}, "Degraded", "Object archived", "Restore it")
    shows({"sql_away": True}, "Trouble", "offset commits fail until it answers")
    shows({"serving": False}, "Not serving", "The broker refuses clients")
    beats = "Broker 2 is in service, with a heartbeat just now, but two questions over HTTP had no answer"
    shows({}, "Degraded", beats, "no answer over HTTP", "Kafka clients may well be served", brokers=[other])
    late = {**other, "heartbeat_age_ms": 4_000, "heartbeat_is_late": True}
    shows({}, "Degraded", "Broker 2 does not answer: its last heartbeat was", "Its process hangs", brokers=[late])


def test_one_lost_answer_is_asked_for_again_and_nobody_is_called_away_for_it(console: Console) -> None:
    lost: list[str] = []

    def lose_the_first(route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path in lost:
            route.continue_()
        else:
            lost.append(path)
            route.abort()

    page = console.go("topics")
    page.route("**/healthz", lose_the_first)
    page.route("**/api/v1/**", lose_the_first)
    page.evaluate(
        "new MutationObserver(() => { window.complained ||= !!document.querySelector('.banner, .notice-bad'); })"
        ".observe(document.body, { subtree: true, childList: true })"
    )
    with (
        page.expect_response(lambda answer: answer.url.endswith("/healthz")),
        page.expect_response(lambda answer: "/api/v1/topics" in answer.url),
        page.expect_response(lambda answer: answer.url.endswith("/api/v1/cluster")),
    ):
        console.come_back()
    expect(page.locator(".top")).not_to_contain_text("No answer")
    assert sorted(lost) == ["/api/v1/cluster", "/api/v1/topics", "/healthz"]
    assert not page.evaluate("window.complained")


def test_a_broker_that_is_gone_leaves_its_last_answer_marked_as_old(browser: Browser, tmp_path: Path) -> None:
    broker = BrokerProcess(tmp_path / "data").start()
    try:
        with Console(browser, broker) as console:
            page = console.go("topics")
            broker.kill()
            console.come_back()
            expect(page.locator(".notice-bad").first).to_contain_text("Nothing answers")
            expect(page.locator(".notice-bad").first).to_contain_text("tiered serve")
            expect(page.locator(".freshness")).to_contain_text("Stale")
            expect(page.locator(".top")).to_contain_text("No answer")
            expect(page.locator(".notice-bad")).to_have_count(1)
            expect(page.get_by_role("button", name="Create a topic")).to_be_disabled()
            # What is opened now has no answer of its own, and says nothing a second time.
            for section in ("Overview", "Brokers"):
                page.get_by_role("link", name=section, exact=True).click()
                expect(page.locator("#title")).to_have_text(section)
                expect(page.get_by_role("region", name="Health").get_by_text("last known: reachable")).to_have_count(2)
                expect(page.locator(".state-good, .state-warn")).to_have_count(0)
                expect(page.locator(".notice-bad")).to_have_count(1)
            barriers(console, "nobody answers", WCAG)
            broker.start()
            console.come_back()
            expect(page.locator(".freshness")).to_contain_text("Updated")
            expect(page.locator(".notice-bad")).to_have_count(0)
            expect(page.locator(".state-good").first).to_be_visible()
            assert console.complaints == []
    finally:
        broker.ensure_stopped()


def test_a_store_that_is_away_and_uploads_that_are_late_are_shown(browser: Browser, tmp_path: Path) -> None:
    objects, aside = tmp_path / "objects", tmp_path / "aside"
    objects.mkdir()
    broker = BrokerProcess(
        tmp_path / "data", "--store", f"file://{objects}", settings={"tiered.upload.timeout.ms": 1_000}
    ).start()
    try:
        objects.rename(aside)
        objects.write_text("no folder")
        stage.create(broker, "late", 1, {"segment.bytes": "20000"})
        stage.produce(broker, "late", (stage.order(number) for number in range(400)))
        with Console(browser, broker) as console:
            page = console.go("topics/late/partitions/0")
            strip = page.locator(".strip-large")
            expect(strip).to_have_attribute("aria-label", re.compile("^offsets 0 to .* only on disks, upload overdue"))
            expect(strip.locator("rect.overdue").first).to_be_visible()
            expect(page.get_by_role("table", name="Segments")).to_contain_text("upload overdue")
            expect(page.locator(".top")).to_contain_text("Degraded")
            page = console.go("")
            expect(page.get_by_role("region", name="Health")).to_contain_text("uploads wait on disk")
            objects.unlink()
            aside.rename(objects)
            expect(page.locator(".top")).to_contain_text("Healthy")
            assert console.complaints == []
    finally:
        broker.ensure_stopped()


@pytest.fixture(scope="module")
def crowded() -> tuple[dict[str, object], dict[str, object]]:
    """What a cluster with 5,000 topics answers, and one topic with 1,000 partitions: the page's work is tested here,
    a broker would need minutes to make them.
    """
    partition = {
        "leader": 1, "isr": [1], "replicas": [1], "leader_epoch": 0, "log_start_offset": 0, "failed": None,
        "local_log_start_offset": 40, "cold_end_offset": 60, "overdue_end_offset": 60, "high_watermark": 100,
        "last_stable_offset": 100, "log_end_offset": 100, "local_bytes": 4_096, "cold_bytes": 9_999, "told_by": 1,
        "adding_replicas": [], "removing_replicas": [], "under_replicated": False, "under_min_isr": False,
    }  # fmt: skip
    topic = {
        "topic_id": "x", "internal": False, "partition_count": 1, "replication_factor": 1, "record_count": 100,
        "offline": 0, "under_replicated": 0,
        "local_bytes": 4_096, "cold_bytes": 9_999, "tier_records": {"cold": 40, "both": 20, "overdue": 0, "hot": 40},
    }  # fmt: skip
    topics: dict[str, object] = {"topics": [{**topic, "topic": f"topic-{number:05}"} for number in range(5_000)]}
    large: dict[str, object] = {
        **topic, "topic": "large", "partition_count": 1_000, "configs": [],
        "partitions": [{**partition, "partition": number} for number in range(1_000)],
    }  # fmt: skip
    return topics, large


def test_thousands_of_topics_and_partitions_are_paged_and_searched(
    console: Console, crowded: tuple[dict[str, object], dict[str, object]]
) -> None:
    topics, large = crowded
    console.page.route("**/api/v1/topics?*", lambda route: route.fulfill(json=topics))
    console.page.route("**/api/v1/topics/large", lambda route: route.fulfill(json=large))
    page = console.go("topics")
    rows = page.locator("tbody tr")
    expect(rows).to_have_count(100)
    expect(page.locator(".pager")).to_contain_text("1–100 of 5,000")
    page.get_by_role("button", name="Next").click()
    expect(rows.first).to_contain_text("topic-00100")
    page.get_by_label("Find a topic").fill("4711")
    expect(rows).to_have_count(1)
    assert "q=4711" in page.url
    page = console.go("topics/large")
    expect(rows).to_have_count(100)
    page.get_by_label("Find a partition").fill("999")
    expect(rows).to_have_count(1)
