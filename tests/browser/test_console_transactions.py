"""What an open transaction holds back is seen on the topic's page, and aborted by hand where that has to be."""

from playwright.sync_api import Browser, expect

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.axe import WCAG, barriers
from tests.browser.console import PHONE, Console
from tests.support.transactional_producers import WAIT_S, begun

LONG_ID = f"to-abort-{'x' * 60}"


def test_a_topic_says_which_partitions_are_held_back_since_when_and_by_whom(
    console: Console, staged: BrokerProcess
) -> None:
    stage.create(staged, "waiting", 2, {})
    made = begun(staged.bootstrap, "shop/payments", "waiting", "a", "b")
    page = console.go("topics/waiting")
    panel = page.get_by_role("region", name="Held back", exact=True)
    expect(panel).to_contain_text("shop/payments")
    row = page.get_by_role("table", name="Held back").locator("tbody tr")
    expect(row).to_have_count(1)
    expect(row.locator("th")).to_have_text("0")
    expect(row).to_contain_text(" ago")
    expect(row.locator("td").nth(2)).to_have_text("2")
    expect(console.row("0").last).to_contain_text("readers held back")
    barriers(console, "a topic that is held back", WCAG)
    console.go("topics")
    expect(console.row("waiting")).to_contain_text("readers held back")
    page = console.go("")
    health = page.get_by_role("region", name="Health")
    expect(health).to_contain_text("held back")
    expect(health).not_to_contain_text("None hold readers back")
    expect(page.get_by_role("navigation", name="Sections")).to_contain_text("readers are held back in")
    page = console.go("topics/waiting")
    panel.get_by_role("link", name="shop/payments").click()
    expect(page.get_by_role("table", name="Open transactions").locator("tbody tr")).to_have_count(1)
    expect(console.row("shop/payments").locator(".state-warn")).to_have_text("ongoing, holds readers back")
    made.commit_transaction(WAIT_S)
    page = console.go("topics/waiting")
    expect(page.get_by_role("table", name="Partitions")).to_be_visible()
    expect(page.get_by_role("table", name="Held back")).to_have_count(0)


def test_an_open_transaction_is_aborted_on_a_phone_once_its_id_was_typed(
    browser: Browser, staged: BrokerProcess
) -> None:
    stage.create(staged, "to-abort", 1, {})
    made = begun(staged.bootstrap, LONG_ID, "to-abort")
    with Console(browser, staged, size=PHONE) as console:
        console.go("groups").get_by_role("link", name="Transactions").click()
        abort_on_phone(console, staged)
        assert console.complaints == []
    del made


def abort_on_phone(console: Console, staged: BrokerProcess) -> None:
    page = console.page
    expect(console.row(LONG_ID)).to_contain_text("ongoing")
    button = page.get_by_role("button", name=f"Abort the transaction of {LONG_ID}")
    table = page.get_by_role("region", name="Open transactions, table")
    assert table.evaluate("region => region.scrollWidth <= region.clientWidth"), "the button is out of sight"
    button.click()
    dialog = page.get_by_role("dialog")
    assert dialog.evaluate("dialog => dialog.scrollWidth <= dialog.clientWidth"), "the question is cut off"
    done = dialog.get_by_role("button", name="Abort it")
    field = page.get_by_label("Type the name")
    for typed in ("", LONG_ID[:-1], LONG_ID.upper()):
        field.fill(typed)
        expect(done).to_be_disabled()
    barriers(console, "the abort's question", WCAG)
    field.fill(LONG_ID)
    done.click()
    console.said(f"The transaction of {LONG_ID} is aborted")
    expect(console.row(LONG_ID)).to_have_count(0)
    assert staged.get(f"/api/v1/transactions/{LONG_ID}")["state"] in ("PrepareAbort", "CompleteAbort")
    (partition,) = staged.get("/api/v1/topics/to-abort")["partitions"]
    assert partition["held_back_by"] is None
