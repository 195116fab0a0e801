"""Names and addresses that others made up stay text in the console of whoever looks at them."""

from urllib.parse import quote

from playwright.sync_api import expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.console import Console

MARKUP = "\"'><img src=x onerror=\"document.title='owned'\"><svg onload=\"document.title='owned'\">"


def holds_no_markup(console: Console) -> None:
    assert console.page.locator("img[src=x], svg[onload]").count() == 0
    assert console.page.title() != "owned"


def test_a_groups_name_is_text_wherever_it_stands(console: Console, staged: BrokerProcess) -> None:
    stage.commit(staged, MARKUP, {0: 1})
    page = console.go("groups")
    expect(console.row(MARKUP)).to_be_visible()
    holds_no_markup(console)
    page.get_by_role("link", name=MARKUP, exact=True).click()
    expect(page.locator("#title")).to_have_text(MARKUP)
    holds_no_markup(console)
    page = console.go(f"topics/{stage.TIERED}")
    expect(page.locator("#title")).to_have_text(stage.TIERED)
    holds_no_markup(console)


def test_an_address_that_somebody_sent_is_text(console: Console) -> None:
    for address in (
        f"topics?q={quote(MARKUP)}",
        f"topics/{quote(MARKUP, safe='')}",
        f"groups/{quote(MARKUP, safe='')}",
    ):
        console.page.goto(f"{console.base}/#/{address}")
        expect(console.page.locator("#title")).to_be_visible()
        console.page.wait_for_load_state("networkidle")
        holds_no_markup(console)
