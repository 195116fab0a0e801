"""Takes the pictures of docs/console.md: `make screenshots`. Look at each before it is committed.

Owns which views are shown in which theme and at which width. Uses the tests' own story, so what is shown is real.
"""

import sys
import tempfile
import threading
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialAlteration,
    UserScramCredentialUpsertion,
)
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.broker_process import BrokerProcess
from tests.browser import stage
from tests.browser.conftest import find_chromium
from tests.browser.console import DESK, FLAGS, PHONE, Console
from tests.components.brokers import Brokers
from tests.postgres import PostgresServer
from tests.support.transactional_producers import WAIT_S, begun

PICTURES = Path(__file__).resolve().parents[2] / "docs/images"
MAX_BYTES = 200_000
TAIL = f"topics/{stage.TIERED}/records?from=earliest"
LOW = (1280, 660)
BEFORE_S = 30.0
ROUND_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Picture:
    name: str
    address: str
    size: tuple[int, int] = DESK
    scheme: str = "light"


SHOWN = [
    Picture(name="overview-light", address=""),
    Picture(name="overview-dark", address="", scheme="dark"),
    Picture(name="topic-light", address=f"topics/{stage.TIERED}", size=LOW),
    Picture(name="partition-light", address=f"topics/{stage.TIERED}/partitions/0"),
    Picture(name="partition-dark", address=f"topics/{stage.TIERED}/partitions/0", scheme="dark"),
    Picture(name="records-dark", address=TAIL, scheme="dark"),
    Picture(name="group-light", address=f"groups/{stage.LAGGING}"),
    Picture(name="reset-light", address=f"groups/{stage.IDLE}"),
    Picture(name="delete-light", address="topics/payments/manage", size=LOW),
    Picture(name="empty-dark", address="topics/empty", size=LOW, scheme="dark"),
    Picture(name="cost-light", address="cost", size=LOW),
    Picture(name="topics-light", address="topics", size=LOW),
    Picture(name="access-light", address="access", size=LOW),
    Picture(name="search-light", address=f"topics/{stage.TIERED}/records?mode=search&way=text&wanted=Vienna", size=LOW),
    Picture(name="retention-light", address=f"topics/{stage.TIERED}/retention", size=LOW),
    Picture(name="held-light", address="topics/invoices", size=LOW),
    Picture(name="phone-topic-light", address=f"topics/{stage.TIERED}", size=PHONE),
    Picture(name="phone-record-dark", address=TAIL, size=PHONE, scheme="dark"),
    Picture(name="phone-group-light", address=f"groups/{stage.LAGGING}", size=PHONE),
]


CLUSTER_SHOWN = [
    Picture(name="brokers-light", address="brokers"),
    Picture(name="broker-light", address="brokers/1"),
    Picture(name="replicas-dark", address=f"topics/{stage.TIERED}/partitions/0", size=LOW, scheme="dark"),
    Picture(name="phone-brokers-dark", address="brokers", size=PHONE, scheme="dark"),
    Picture(name="phone-replicas-light", address=f"topics/{stage.TIERED}", size=PHONE),
]
"""Of three brokers, one of which was killed."""


def main() -> int:
    """Writes every picture; 1 when one is too large for the repository."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    chromium = find_chromium()
    if chromium is None:
        print("Chromium is not on PATH: install it (Debian: apt-get install chromium)")
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        try:
            show_one(browser, Path(folder))
            show_cluster(browser, Path(folder))
        finally:
            browser.close()
    large = [path.name for path in PICTURES.glob("console-*.png") if path.stat().st_size > MAX_BYTES]
    count = len(SHOWN) + len(CLUSTER_SHOWN)
    print(f"{count} pictures in {PICTURES}" + (f"; too large: {', '.join(large)}" if large else ""))
    return 1 if large else 0


def show_one(browser: Browser, folder: Path) -> None:
    """The pictures of one broker, under traffic."""
    guarded = {"tiered.authorizer": "acl", "super.users": "User:ANONYMOUS", "tiered.lag.sample.interval.ms": 1_000}
    broker = BrokerProcess(folder / "data", settings={**stage.SETTINGS, **guarded})
    broker.start()
    try:
        stage.set_up(broker)
        consumer = stage.LaggingConsumer(broker)
        consumer.read(700)
        stage.create(broker, "invoices", 3, {})
        add_rules(broker)
        held = begun(
            broker.bootstrap, "shop/payments", "invoices", *map(str, range(40)), transaction_timeout_ms=600_000
        )
        over = threading.Event()
        traffic = threading.Thread(target=keep_busy, args=(broker, consumer, over))
        traffic.start()
        try:
            over.wait(BEFORE_S)
            take(browser, broker, SHOWN)
        finally:
            over.set()
            traffic.join()
            consumer.close()
            held.abort_transaction(WAIT_S)
    finally:
        broker.ensure_stopped()


def add_rules(broker: BrokerProcess) -> None:
    """Whom the page of access shows."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
    rules = [
        AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", operation, AclPermissionType.ALLOW)
        for user, kind, name, operation in (
            ("billing", ResourceType.TOPIC, stage.TIERED, AclOperation.READ),
            ("billing", ResourceType.GROUP, stage.LAGGING, AclOperation.READ),
            ("shop", ResourceType.TOPIC, stage.TIERED, AclOperation.WRITE),
        )
    ]
    for added in admin.create_acls(rules).values():
        added.result(WAIT_S)
    password = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 8192)
    users: list[UserScramCredentialAlteration] = [
        UserScramCredentialUpsertion(user, password, b"of the picture") for user in ("billing", "shop")
    ]
    for changed in admin.alter_user_scram_credentials(users).values():
        changed.result(WAIT_S)


def show_cluster(browser: Browser, folder: Path) -> None:
    """The pictures of three brokers, after one was killed."""
    root = folder / "cluster"
    root.mkdir()
    # Unix sockets have short names.
    with tempfile.TemporaryDirectory(prefix="tiered-pg-") as sql_folder:
        server = PostgresServer(Path(sql_folder))
        brokers = Brokers(root, server.url(), settings=stage.SETTINGS)
        try:
            brokers.start()
            stage.set_up_cluster(brokers)
            brokers.by_id[3].kill()
            brokers.wait(lambda: brokers.registered()[3].fenced, "the dead broker is fenced")
            take(browser, brokers.by_id[1], CLUSTER_SHOWN)
        finally:
            brokers.close()
            server.stop()


def take(browser: Browser, broker: BrokerProcess, pictures: list[Picture]) -> None:
    for picture in pictures:
        with Console(browser, broker, size=picture.size, scheme=picture.scheme) as console:
            page = console.go(picture.address)
            settle(page, picture.name)
            page.screenshot(path=PICTURES / f"console-{picture.name}.png")


def keep_busy(broker: BrokerProcess, consumer: stage.LaggingConsumer, over: threading.Event) -> None:
    """Traffic in which lag rises and falls, so that there is something to see."""
    first, turn = 100_000, 0
    while not over.wait(ROUND_S):
        records = 260 if turn % 5 == 0 else 120
        stage.produce(broker, stage.TIERED, (stage.order(first + each) for each in range(records)))
        consumer.read(90 if turn % 9 < 6 else 240)
        first, turn = first + records, turn + 1


def settle(page: Page, name: str) -> None:
    """Opens what the picture is about."""
    if "record" in name:
        expect(page.locator(".record-list tbody tr")).to_have_count(500)
        page.get_by_role("button", name="Pause").click()
        page.locator(".record-list tbody button").nth(4).click()
        expect(page.locator("#viewer-title")).to_be_focused()
    if "reset" in name:
        page.get_by_role("button", name="Reset offsets").click()
        page.get_by_role("button", name="Show what would change").click()
        expect(page.get_by_role("table", name="What would change")).to_be_visible()
    if "delete" in name:
        page.get_by_role("button", name="Delete records").click()
        page.get_by_label("those before an offset").check()
        page.get_by_label("First offset to keep").fill("250")
        page.get_by_role("button", name="Show what would be deleted").click()
        page.get_by_label("Type the name").fill("pay")
    if "held" in name:
        expect(page.get_by_role("table", name="Held back")).to_contain_text("shop/payments")
    if "search" in name:
        expect(page.locator(".tail-status")).to_contain_text("found")
    if name == "broker-light":
        page.wait_for_timeout(12_000)
    if "overview" in name:
        expect(page.locator(".spark").first).to_be_visible()
        page.wait_for_timeout(12_000)
    page.wait_for_timeout(600)


if __name__ == "__main__":
    sys.exit(main())
