"""Access from the console: a user, its rights and its quota are made, count for a real client, and are taken away."""

import json
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Consumer
from playwright.sync_api import Browser, Page, expect

from tests.broker_process import BrokerProcess, free_port
from tests.browser import stage
from tests.browser.axe import WCAG, barriers
from tests.browser.console import PHONE, Console
from tests.components.guarded_broker import allow
from tiered.meta import cluster, security
from tiered.meta.engine import Database
from tiered.rules.security.sasl import scram
from tiered.rules.security.sasl.mechanism import ScramMechanism
from tiered.rules.security.sasl.scram import CredentialChange
from tiered.server.http.api.acls import MAX_RULES

TOPIC, GROUP, HOSTILE = "orders", "billing", "\"'><img src=x>"
OF_BROKERS = "of-brokers"
WAIT_S = 20.0


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[BrokerProcess, str]]:
    """A broker with an authorizer, and the address where it asks for passwords. Who opens the console may do everything
    by rules, and is no super user."""
    data = tmp_path_factory.mktemp("guarded") / "data"
    prepare(data)
    (data.parent / "password").write_text("swordfish")
    login = f"127.0.0.1:{free_port()}"
    settings = {
        **stage.SETTINGS,
        "tiered.authorizer": "acl",
        "super.users": "User:root",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512",
        "connection.failed.authentication.delay.ms": 10,
        "tiered.sasl.inter.broker.username": OF_BROKERS,
        "tiered.sasl.inter.broker.password": f"file:{data.parent / 'password'}",
    }
    broker = BrokerProcess(data, "--listener", f"LOGIN=SASL_PLAINTEXT://{login}", settings=settings).start()
    try:
        stage.create(broker, TOPIC, 1, {})
        stage.produce(broker, TOPIC, [(b"k", b"v")])
        yield broker, login
    finally:
        broker.ensure_stopped()


def prepare(data: Path) -> None:
    """The rights of who opens the console, and users whom it cannot create or has to warn of."""
    data.mkdir()
    database = Database.open(f"sqlite:///{data}/meta.db")
    try:
        database.migrate()
        rules = [allow("ALL", "TOPIC", "*"), allow("ALL", "GROUP", "*"), allow("ALL", "CLUSTER", "kafka-cluster")]
        database.run_sync(lambda conn: cluster.ensure(conn, cluster_id="0" * 22, now_ms=1))
        database.run_sync(lambda conn: security.create_acls(conn, rules, now_ms=1))
        credential = scram.new_credential(ScramMechanism.SHA_512, "swordfish", b"salt", 4096)
        changes = [
            CredentialChange(user_name=name, mechanism=ScramMechanism.SHA_512, credential=credential)
            for name in (OF_BROKERS, "ANONYMOUS", "..")
        ]
        database.run_sync(lambda conn: security.alter_credentials(conn, changes, secret=b"secret"))
    finally:
        database.close_sync()


def read(guarded: tuple[BrokerProcess, str], name: str, password: str) -> str:
    """The first record that a consumer of this user reads, or why it reads none."""
    consumer = Consumer(
        {
            "bootstrap.servers": guarded[1],
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": name,
            "sasl.password": password,
            "group.id": GROUP,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    try:
        consumer.subscribe([TOPIC])
        message = consumer.poll(WAIT_S)
        assert message is not None, "neither a record nor a refusal"
        error = message.error()
        return str(error.name()) if error is not None else bytes(message.value() or b"").decode()
    finally:
        consumer.close()


def test_a_user_is_made_may_read_a_topic_and_loses_it_again(
    browser: Browser, guarded: tuple[BrokerProcess, str]
) -> None:
    with Console(browser, guarded[0]) as console:
        page = console.go("access")
        page.get_by_role("button", name="Create a user").click()
        barriers(console, "a new user", WCAG)
        page.get_by_label("Name", exact=True).fill("ann")
        page.get_by_role("button", name="Create the user").click()
        password = page.get_by_label("Password", exact=True).input_value()
        assert len(password) == 24
        page.get_by_role("button", name="Done").click()
        assert password not in page.content()
        assert read(guarded, "ann", password) in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")

        page.get_by_role("button", name="Add rules").click()
        page.get_by_label("Who", exact=True).fill("User:ann")
        page.get_by_label("Topic", exact=True).fill(TOPIC)
        page.get_by_role("button", name="Add the rules").click()
        expect(page.get_by_role("alert")).to_contain_text("Name the consumer group")
        page.get_by_label("Consumer group", exact=True).fill(GROUP)
        expect(page.get_by_role("dialog")).to_contain_text(f"User:ann may read with consumer group {GROUP}")
        barriers(console, "new rules", WCAG)
        page.get_by_role("button", name="Add the rules").click()
        console.said("3 rules are added")
        assert read(guarded, "ann", password) == "v"

        page.get_by_role("button", name=f"Remove: User:ann may read topic {TOPIC}", exact=True).click()
        page.get_by_label("all 3 rules of User:ann").check()
        expect(page.get_by_role("dialog").get_by_role("listitem")).to_have_count(3)
        page.get_by_role("button", name="Remove the rules").click()
        console.said("3 rules are removed")
        expect(page.get_by_role("button", name="Add rules")).to_be_focused()
        assert read(guarded, "ann", password) in ("TOPIC_AUTHORIZATION_FAILED", "GROUP_AUTHORIZATION_FAILED")
        assert console.complaints == []


def test_a_password_that_is_typed_a_quota_and_the_end_of_a_user(
    browser: Browser, guarded: tuple[BrokerProcess, str]
) -> None:
    with Console(browser, guarded[0], size=PHONE) as console:
        page = console.go("access")
        create_with_typed_password(page, HOSTILE)
        console.said(f"User {HOSTILE} is created")
        page.get_by_role("button", name="Set a quota").click()
        page.get_by_label("The name", exact=True).fill(HOSTILE)
        page.get_by_label("Written, in bytes a second").fill("2048")
        page.get_by_role("button", name="Set the quota").click()
        expect(page.get_by_role("table", name="Quotas")).to_contain_text("2.00 KiB/s")
        page.get_by_role("button", name="Add rules").click()
        page.get_by_label("something else").check()
        page.get_by_label("Who", exact=True).fill(f"User:{HOSTILE}")
        page.get_by_label("deny", exact=True).check()
        page.get_by_label("Its name").fill("*")
        page.get_by_label("everything", exact=True).check()
        expect(page.get_by_role("dialog")).to_contain_text("A rule that denies wins")
        assert console.overflow_px() <= 0
        page.get_by_role("button", name="Add the rule").click()
        console.said("1 rule is added")
        page.get_by_role("button", name=f"Delete user {HOSTILE}").click()
        expect(page.get_by_role("dialog")).to_contain_text("may not do everything to every topic")
        page.get_by_label("Remove this rule too").check()
        page.get_by_label("Type the name").fill(HOSTILE)
        barriers(console, "the end of a user", WCAG)
        page.get_by_role("button", name="Delete the user").click()
        console.said("is deleted, and 1 rule with it")
        page.get_by_role("button", name=f"Change the quota of user {HOSTILE}").click()
        page.get_by_role("button", name="Remove the quota").click()
        expect(page.locator("main")).to_contain_text("Nobody has a quota")
        assert console.overflow_px() <= 0
        assert page.locator("img[src=x]").count() == 0
        assert console.complaints == []


def create_with_typed_password(page: Page, name: str) -> None:
    page.get_by_role("button", name="Create a user").click()
    page.get_by_label("Name", exact=True).fill(name)
    page.get_by_label("typed by me").check()
    page.get_by_label("Password", exact=True).fill("one password")
    page.get_by_label("The same again").fill("another")
    page.get_by_role("button", name="Create the user").click()
    expect(page.get_by_role("alert")).to_contain_text("The two passwords differ")
    page.get_by_label("The same again").fill("one password")
    page.get_by_role("button", name="Create the user").click()


def test_users_whose_change_would_end_replication_or_the_page_are_warned_of(
    browser: Browser, guarded: tuple[BrokerProcess, str]
) -> None:
    with Console(browser, guarded[0]) as console:
        page = console.go("access")
        dialog = page.get_by_role("dialog")
        for button, done in (("Set a password of", "Set the password"), ("Delete user", "Delete the user")):
            page.get_by_role("button", name=f"{button} {OF_BROKERS}").click()
            expect(dialog).to_contain_text("After this change replication ends")
            expect(dialog.get_by_role("button", name=done)).to_be_disabled()
            page.get_by_label("Type the name").fill(OF_BROKERS)
            expect(dialog.get_by_role("button", name=done)).to_be_enabled()
            dialog.get_by_role("button", name="Cancel").click()
        page.get_by_role("button", name="Delete user ANONYMOUS").click()
        expect(dialog).to_contain_text("Another administrator has to remove them")
        expect(dialog.get_by_role("checkbox")).to_have_count(0)
        dialog.get_by_role("button", name="Cancel").click()
        row = page.get_by_role("row").filter(has=page.get_by_text("..", exact=True))
        expect(row).to_contain_text("Only by tiered users")
        expect(row.get_by_role("button")).to_have_count(0)
        assert console.complaints == []


def test_of_more_rules_than_go_at_once_the_chosen_one_goes(
    browser: Browser, guarded: tuple[BrokerProcess, str]
) -> None:
    names = [f"many-{number:03}" for number in range(MAX_RULES + 1)]
    for part in (names[:1], names[1:]):
        rules = [
            {"resource_type": "TOPIC", "resource_name": name, "principal": "User:many", "operation": "READ"}
            for name in part
        ]
        request = urllib.request.Request(f"{guarded[0].http}/api/v1/acls", data=json.dumps({"acls": rules}).encode())
        urllib.request.urlopen(request, timeout=30).close()
    with Console(browser, guarded[0]) as console:
        page = console.go("access")
        page.get_by_label("Find in access control lists").fill(names[-1])
        page.get_by_role("button", name=f"Remove: User:many may read topic {names[-1]}", exact=True).click()
        page.get_by_label(f"{MAX_RULES} of the {MAX_RULES + 1} rules of User:many, this one among them").check()
        page.get_by_role("button", name="Remove the rules").click()
        console.said(f"{MAX_RULES} rules are removed")
        expect(page.get_by_role("button", name=f"Remove: User:many may read topic {names[-1]}")).to_have_count(0)
        assert console.complaints == []


def test_who_would_shut_itself_out_is_warned_and_who_may_do_little_reads_why(
    browser: Browser, guarded: tuple[BrokerProcess, str]
) -> None:
    """Last of this file: it takes the console's own right."""
    with Console(browser, guarded[0]) as console:
        page = console.go("access")
        page.get_by_role("button", name="Remove: User:ANONYMOUS may do everything to the cluster", exact=True).click()
        dialog = page.get_by_role("dialog")
        expect(dialog).to_contain_text("You could not take this back")
        done = dialog.get_by_role("button", name="Remove the rule")
        expect(done).to_be_disabled()
        page.get_by_label("Type the name").fill("User:ANONYMOUS")
        done.click()
        console.said("1 rule is removed")
        expect(page.locator("main").get_by_text("lacks the right DESCRIBE on the cluster")).to_have_count(2)
        expect(page.locator("main").get_by_text("lacks the right DESCRIBE_CONFIGS on the cluster")).to_have_count(1)
        expect(page.locator("main").get_by_role("button")).to_have_count(0)
        expect(page.locator(".notice-bad")).to_have_count(0)
        assert console.complaints == []
        asked: list[str] = []
        page.on("request", lambda request: asked.append(request.method))
        refusal = page.evaluate(
            "async () => (await import('./console/js/api.js')).send('DELETE', 'api/v1/users/ann').catch(String)"
        )
        assert "lacks the right ALTER" in refusal
        assert asked.count("DELETE") == 1, "a refusal for want of a right is no reason to ask again"
