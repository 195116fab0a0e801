"""The console of a cluster: who leads, what is in sync, and what a broker's death looks like, from any broker."""

import os
import re
import signal
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect

from tests.browser import stage
from tests.browser.axe import CONTRAST, WCAG, barriers
from tests.browser.console import PHONE, Console
from tests.components.brokers import Brokers
from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]

VIEWS = [
    "",
    "brokers",
    "brokers/3",
    "topics",
    f"topics/{stage.TIERED}",
    f"topics/{stage.TIERED}/partitions/0",
    f"groups/{stage.IDLE}",
]
FAST = {"broker.heartbeat.interval.ms": 300, "broker.session.timeout.ms": 3_000}


@pytest.fixture(scope="module")
def trio(postgres_databases: PostgresDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Three brokers with data; whoever stops one starts it again."""
    url = postgres_databases.create()
    brokers = Brokers(tmp_path_factory.mktemp("trio"), url, settings={**stage.SETTINGS, **FAST})
    try:
        brokers.start()
        stage.set_up_cluster(brokers)
        yield brokers
    finally:
        brokers.close()
        postgres_databases.drop(url)


@pytest.mark.parametrize("number", [1, 2, 3])
def test_every_broker_shows_all_brokers_and_replicas(browser: Browser, trio: Brokers, number: int) -> None:
    with Console(browser, trio.by_id[number]) as console:
        page = console.go("brokers")
        expect(page.locator(".subtitle")).to_contain_text("3 of 3 brokers in service, controller")
        expect(page.locator(".subtitle")).to_contain_text(f"this page comes from broker {number}")
        table = page.get_by_role("table", name="Brokers")
        for each in (1, 2, 3):
            expect(table).to_contain_text(f"rack-{each}")
        expect(table.get_by_text("live", exact=True)).to_have_count(3)
        expect(table.get_by_text("controller", exact=True)).to_have_count(1)
        expect(page.get_by_role("region", name="Health")).to_contain_text("All in sync")
        expect(page.locator(".top")).to_contain_text("Healthy")
        page.get_by_role("link", name="Broker 2").click()
        expect(page.locator("#title")).to_have_text("Broker 2")
        figures = page.locator(".figures")
        expect(figures).to_contain_text("live")
        expect(figures).to_contain_text(re.compile("Memory[0-9.]+MiB"))
        expect(figures).to_contain_text(re.compile("Disk[0-9.]+.iBused of"))
        expect(page.get_by_role("region", name="About this broker")).to_contain_text(trio.by_id[2].bootstrap)
        partitions = page.get_by_role("table", name="Partitions")
        rows = [row for topic in (stage.TIERED, "payments", "sessions") for row in trio.rows(topic)]
        expect(partitions.locator("tbody tr")).to_have_count(sum(2 in row.replicas for row in rows))
        page.locator(".panel").get_by_text("Leads", exact=True).click()
        expect(partitions.locator("tbody tr")).to_have_count(sum(row.leader == 2 for row in rows))
        expect(partitions.get_by_text("follows")).to_have_count(0)
        page = console.go(f"topics/{stage.TIERED}")
        expect(page.locator(".subtitle")).to_contain_text("3 replicas each")
        expect(page.locator(".figures")).to_contain_text("Read by consumersnothing")
        expect(console.row("0")).to_contain_text("3 of 3")
        page = console.go(f"topics/{stage.TIERED}/partitions/0")
        replicas = page.get_by_role("table", name="Replicas")
        expect(replicas.get_by_text("leader", exact=True)).to_have_count(1)
        expect(replicas.get_by_text("in sync", exact=True)).to_have_count(3)
        page = console.go(f"groups/{stage.IDLE}")
        expect(page.locator(".subtitle")).to_contain_text("coordinated by broker")
        assert console.complaints == []


def test_tail_and_changes_work_at_a_broker_that_leads_and_coordinates_nothing_of_it(
    browser: Browser, trio: Brokers
) -> None:
    coordinator = trio.by_id[1].get(f"/api/v1/groups/{stage.IDLE}")["coordinator"]
    other = next(each for number, each in trio.by_id.items() if number != coordinator)
    with Console(browser, other) as console:
        page = console.go(f"topics/{stage.TIERED}/records?from=earliest")
        expect(page.locator(".record-list tbody tr")).to_have_count(500)
        page = console.go(f"groups/{stage.IDLE}")
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_role("button", name="Show what would change").click()
        expect(page.get_by_role("table", name="What would change")).to_be_visible()
        assert console.complaints == []


@pytest.mark.parametrize(("scheme", "rules"), [("light", WCAG), ("dark", CONTRAST)], ids=["light", "dark"])
def test_dead_broker_is_seen_in_words_shapes_and_colours_without_a_barrier(
    browser: Browser, trio: Brokers, scheme: str, rules: dict[str, object]
) -> None:
    trio.by_id[3].kill()
    try:
        with Console(browser, trio.by_id[1], scheme=scheme) as console:
            page = console.go("brokers")
            expect(page.get_by_role("table", name="Brokers")).to_contain_text("fenced")
            health = page.get_by_role("region", name="Health")
            expect(health).to_contain_text("2 of 3")
            expect(page.locator(".banner")).to_contain_text(
                "Broker 3 is fenced: out of service, with its last heartbeat"
            )
            expect(health.get_by_text("Of the brokers that answer")).to_have_count(6)
            # payments has two replicas and needs both.
            expect(health).to_contain_text("below minimum")
            expect(page.locator(".top")).to_contain_text("Trouble")
            expect(health.get_by_role("link", name=re.compile("^payments-[0-9]$")).first).to_be_visible()
            page = console.go(f"topics/{stage.TIERED}")
            expect(console.row("0")).to_contain_text("under-replicated")
            expect(console.row("0")).to_contain_text("2 of 3")
            page = console.go(f"topics/{stage.TIERED}/partitions/0")
            replicas = page.get_by_role("table", name="Replicas")
            expect(replicas).to_contain_text("not in sync")
            expect(replicas).to_contain_text("fenced")
            for address in VIEWS:
                console.go(address)
                barriers(console, address, rules)
            assert console.complaints == []
    finally:
        trio.start()
        for topic in (stage.TIERED, "payments", "sessions"):
            trio.wait_whole(topic)


def test_broker_that_hangs_is_shown_as_such_by_others_and_by_its_own_page(browser: Browser, trio: Brokers) -> None:
    with Console(browser, trio.by_id[1]) as console, Console(browser, trio.by_id[3]) as own:
        page = console.go("brokers/3")
        expect(page.locator(".figures")).to_contain_text("live")
        own.go("topics")
        os.kill(trio.by_id[3].pid, signal.SIGSTOP)
        console.come_back()
        own.come_back()
        try:
            # Its own page: the browser's patience of 15 s with ordinary requests is not what counts.
            expect(own.page.locator(".banner")).to_contain_text("did not answer within 3.5 s")
            expect(own.page.locator(".top")).to_contain_text("No answer")
            expect(page.locator(".figures")).to_contain_text(re.compile("no answer|fenced"))
            expect(page.locator(".notice").last).to_contain_text("Its own figures below are from")
            expect(page.get_by_role("region", name="Health")).to_contain_text("last known: reachable")
            expect(page.locator(".banner")).to_contain_text(re.compile("Broker 3 .* missing here, or [0-9]+ s old"))
            expect(page.locator(".top")).not_to_contain_text("Healthy")
        finally:
            os.kill(trio.by_id[3].pid, signal.SIGCONT)
        own.come_back()
        expect(own.page.locator(".top")).not_to_contain_text("No answer")
        assert console.complaints + own.complaints == []
    for topic in (stage.TIERED, "payments", "sessions"):
        trio.wait_whole(topic)


def test_cluster_fits_a_phone_and_still_says_what_lacks(browser: Browser, trio: Brokers) -> None:
    trio.by_id[2].kill()
    try:
        with Console(browser, trio.by_id[3], size=PHONE) as console:
            for address in VIEWS:
                console.go(address)
                assert console.overflow_px() <= 0, address
            page = console.go("brokers")
            expect(page.get_by_role("table", name="Brokers")).to_contain_text("fenced")
            page = console.go(f"topics/{stage.TIERED}")
            expect(console.row("0")).to_contain_text("under-replicated")
            assert console.complaints == []
    finally:
        trio.start()
