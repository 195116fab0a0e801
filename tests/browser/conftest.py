"""A headless Chromium and a broker with a story, for the console's tests.

All files share the broker and the browser, and so one process: a test changes topics and groups of its own alone.
Chromium comes from the system (`make test` installs it where it may); Playwright only steers it, so no browser is
downloaded. A missing Chromium fails the tests, it never skips them.
"""

import shutil
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, sync_playwright

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.console import FLAGS, Console


@pytest.fixture(scope="session")
def chromium() -> str:
    """The path of Chromium."""
    found = find_chromium()
    if found is None:
        pytest.fail("Chromium is not on PATH: install it (Debian: apt-get install chromium)", pytrace=False)
    return found


def find_chromium() -> str | None:
    """Debian's names, of which the first has no window and costs half as much, Ubuntu's, and Google's own build."""
    names = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")
    return next((found for name in names if (found := shutil.which(name)) is not None), None)


@pytest.fixture(scope="session")
def browser(chromium: str) -> Iterator[Browser]:
    """As long as Playwright runs, no other event loop can run in this process: these tests have one of their own."""
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        yield browser
        browser.close()


@pytest.fixture(scope="session")
def staged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker with data in every place, and a member of `billing` that has read some of it."""
    broker = BrokerProcess(tmp_path_factory.mktemp("browser") / "data", settings=stage.SETTINGS).start()
    try:
        stage.set_up(broker)
        consumer = stage.LaggingConsumer(broker)
        consumer.read(700)
        yield broker
        consumer.close()
    finally:
        broker.ensure_stopped()


@pytest.fixture
def console(browser: Browser, staged: BrokerProcess) -> Iterator[Console]:
    """The console at the width of a desk, in light. Fails when the page reports an error or asks another host."""
    with Console(browser, staged) as found:
        yield found
    assert found.complaints == []
