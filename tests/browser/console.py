"""One open console: where it goes, what it shows, and what the browser complains about.

Owns the page and the list of complaints: an error on the browser's console, an exception, an answer that the
Content-Security-Policy refuses, a request to any other host.
"""

from collections.abc import Mapping
from typing import Any, Self
from urllib.parse import urlsplit

from playwright.sync_api import Browser, ConsoleMessage, Locator, Page, Request, expect

from tests.broker_process import BrokerProcess

FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
DESK = (1280, 900)
PHONE = (390, 844)
WAIT_MS = 30_000
expect.set_options(timeout=WAIT_MS)


class Console:
    """A page of a browser context of its own: nothing is remembered from another test."""

    def __init__(
        self, browser: Browser, broker: BrokerProcess, *, size: tuple[int, int] = DESK, scheme: Any = "light"
    ) -> None:
        self._host = urlsplit(broker.http).netloc
        self._context = browser.new_context(
            viewport={"width": size[0], "height": size[1]}, color_scheme=scheme, reduced_motion="reduce"
        )
        self._context.set_default_timeout(WAIT_MS)
        self.base = broker.http
        self.complaints: list[str] = []
        self.page: Page = self._context.new_page()
        self.page.on("console", self._heard)
        self.page.on("pageerror", lambda error: self.complaints.append(f"exception: {error}"))
        self.page.on("request", self._asked)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._context.close()

    def _heard(self, message: ConsoleMessage) -> None:
        # The browser logs every refused request; what the page makes of it is what tests look at.
        if message.type in ("error", "warning") and "Failed to load resource" not in message.text:
            self.complaints.append(f"{message.type}: {message.text}")

    def _asked(self, request: Request) -> None:
        parts = urlsplit(request.url)
        if parts.scheme not in ("data", "blob") and parts.netloc != self._host:
            self.complaints.append(f"asked another host: {request.url}")

    def go(self, address: str) -> Page:
        """Opens the view at `#/address` and returns once it has its heading and its first data."""
        self.page.goto(f"{self.base}/#/{address}")
        expect(self.page.locator("#title")).to_be_visible()
        expect(self.page.locator(".freshness").first).to_contain_text("Updated")
        return self.page

    def row(self, text: str) -> Locator:
        """The table row that has exactly `text` in its first cell."""
        return self.page.locator("tbody tr").filter(has=self.page.locator("th").get_by_text(text, exact=True))

    def said(self, text: str) -> None:
        """Returns once a screen reader was told `text`."""
        expect(self.page.locator("#announcer")).to_contain_text(text)

    def come_back(self) -> None:
        """As if the reader had looked at another tab: the page asks at once, not at its next turn."""
        self.evaluate("document.dispatchEvent(new Event('visibilitychange'))")

    def evaluate(self, script: str, argument: Any = None) -> Any:
        return self.page.evaluate(script, argument)

    def overflow_px(self) -> int:
        """How far the page is wider than its window."""
        return int(self.evaluate("document.documentElement.scrollWidth - innerWidth"))


def focused(page: Page) -> Mapping[str, str]:
    """The element that has the focus: its id, tag and name."""
    found: Mapping[str, str] = page.evaluate(
        "(() => { const e = document.activeElement;"
        " return { id: e.id, tag: e.tagName, text: (e.getAttribute('aria-label') || e.textContent).trim() }; })()"
    )
    return found
