"""Access over HTTP: rules, users and quotas as they are, changes of them, and nothing of any password."""

import asyncio
import json
import logging
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.components.guarded_broker import GuardedBroker, allow
from tests.support.http_logins import ask
from tiered.cli import main
from tiered.meta.security import AclRow
from tiered.rules.security.sasl import scram
from tiered.server.http.api.acls import MAX_RULES
from tiered.server.http.door.browser_guard import CSRF_HEADER
from tiered.server.http.door.rights import ON_BEHALF_OF
from tiered.server.http.messages.origin import SENDER

SALT, PASSWORD = b"salt-of-ann", b"password-of-ann"
SECRET = "Tr0ub4dor-of-bob"
ACLS, USERS, QUOTAS = "/api/v1/acls", "/api/v1/users", "/api/v1/quotas"
AS_CAROL = {SENDER: "2", ON_BEHALF_OF: f"{quote('User:carol', safe='')} 10.0.0.9"}
"""A broker may speak for a client, and this client is a super user, as brokers are."""


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    root = tmp_path_factory.mktemp("access")
    settings = ("super.users=User:ANONYMOUS;User:root", f"tiered.audit.log={root / 'audit.log'}")
    with GuardedBroker(root / "data", *settings) as broker:
        yield broker


def rule(operation: str, resource_type: str, name: str, **others: str) -> dict[str, str]:
    """All seven words of a rule about User:bob."""
    row = allow(operation, resource_type, name, principal="User:bob", **others)
    return {word: getattr(row, word) for word in row.__slots__}


def stored(guarded: GuardedBroker) -> list[dict[str, str]]:
    rules: list[dict[str, str]] = told(guarded, "acls")["acls"]
    return rules


@pytest.fixture
def no_rules(guarded: GuardedBroker) -> None:
    """The database has these rules: those that tests set without it are gone with its next change."""
    ask(guarded, "POST", ACLS, {"acls": [rule("READ", "TOPIC", "first")]})
    ask(guarded, "POST", f"{ACLS}/remove", {"acls": stored(guarded)})
    assert stored(guarded) == []


def audited(guarded: GuardedBroker) -> list[dict[str, Any]]:
    lines = Path(guarded.broker.settings.authorization.tiered_audit_log).read_text().splitlines()
    return [json.loads(line) for line in lines]


def told(guarded: GuardedBroker, name: str) -> Any:
    with urllib.request.urlopen(f"http://127.0.0.1:{guarded.http_port}/api/v1/{name}", timeout=30) as answer:
        return json.load(answer)


def test_rules_are_told_word_by_word(guarded: GuardedBroker) -> None:
    guarded.rules([allow("READ", "TOPIC", "logs-", pattern_type="PREFIXED", principal="User:ann", permission="DENY")])
    found = told(guarded, "acls")
    assert found["is_on"]
    assert found["super_users"] == ["User:ANONYMOUS", "User:root"]
    assert found["acls"] == [
        {
            "resource_type": "TOPIC", "resource_name": "logs-", "pattern_type": "PREFIXED", "principal": "User:ann",
            "host": "*", "operation": "READ", "permission": "DENY",
        }
    ]  # fmt: skip


def test_users_and_quotas_are_told_and_no_secret(guarded: GuardedBroker) -> None:
    bootstrap = f"127.0.0.1:{guarded.kafka_port}"
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 5000)
    upsertion = UserScramCredentialUpsertion("ann", info, PASSWORD, SALT)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.alter_user_scram_credentials([upsertion])["ann"].result(30)
    for words in (["--user", "ann", "producer_byte_rate=1024"], ["--client-id-default", "request_percentage=50"]):
        assert main(["quotas", "set", *words, "-b", bootstrap]) == 0
    users = told(guarded, "users")
    credentials = [{"mechanism": "SCRAM-SHA-512", "iterations": 5000}]
    assert users["users"] == [{"name": "ann", "credentials": credentials, "is_of_brokers": False}]
    assert (users["missing_right"], users["password_refusal"]) == (None, None)
    quotas = told(guarded, "quotas")["quotas"]
    assert {"entity": {"user": "ann"}, "values": {"producer_byte_rate": 1024}} in quotas
    assert {"entity": {"client_id": None}, "values": {"request_percentage": 50}} in quotas


# Rules


@pytest.mark.usefixtures("no_rules")
def test_rules_are_added_and_exactly_those_that_are_named_are_removed(guarded: GuardedBroker) -> None:
    read, group = rule("READ", "TOPIC", "orders"), rule("READ", "GROUP", "bill", pattern_type="PREFIXED")
    short = {word: read[word] for word in ("resource_type", "resource_name", "principal", "operation")}
    status, answer = ask(guarded, "POST", ACLS, {"acls": [short, group]})
    assert (status, answer) == (200, {"own_rights_lost": [], "acls": [read, group]})
    assert stored(guarded) == sorted([read, group], key=lambda words: words["resource_type"])
    absent = rule("WRITE", "TOPIC", "orders")
    assert ask(guarded, "POST", f"{ACLS}/remove", {"acls": [read, absent]})[1]["acls"] == [read]
    assert stored(guarded) == [group]


@pytest.mark.usefixtures("no_rules")
def test_a_rule_is_removed_by_the_words_that_added_it_and_one_of_an_old_form_by_its_own(guarded: GuardedBroker) -> None:
    mapped = rule("READ", "TOPIC", "orders", host="::ffff:1.2.3.4")
    plain = {**mapped, "host": "1.2.3.4"}
    assert ask(guarded, "POST", ACLS, {"acls": [mapped]})[1]["acls"] == [plain]
    assert ask(guarded, "POST", f"{ACLS}/remove", {"acls": [mapped]})[1]["acls"] == [plain]
    assert stored(guarded) == []
    guarded.rules([AclRow(**mapped), AclRow(**plain)])
    answer = ask(guarded, "POST", f"{ACLS}/remove", {"acls": [mapped], "validate_only": True})[1]
    assert answer["acls"] == [mapped], "an earlier version stored hosts as they were given"


@pytest.mark.usefixtures("no_rules")
def test_of_rules_of_which_one_means_nothing_none_is_added(guarded: GuardedBroker) -> None:
    right = rule("READ", "TOPIC", "orders")
    for wrong, words in (
        ({"principal": "bob"}, "bob"),
        ({"resource_type": "CLUSTER", "resource_name": "mine"}, "kafka-cluster"),
        ({"resource_name": ""}, "all of them"),
        ({"operation": "ANY"}, "must be one of"),
        ({"host": "x" * 65}, "64"),
    ):
        status, answer = ask(guarded, "POST", ACLS, {"acls": [right, {**right, **wrong}]})
        assert (status, words in answer["message"]) == (400, True), answer
    for count in (0, MAX_RULES + 1):
        many = [{**right, "resource_name": f"t{number}"} for number in range(count)]
        for path in (ACLS, f"{ACLS}/remove"):
            assert ask(guarded, "POST", path, {"acls": many})[0] == 400
    assert stored(guarded) == []


@pytest.mark.usefixtures("no_rules")
def test_who_asks_is_told_which_of_its_own_rights_a_change_takes_before_it_is_made(guarded: GuardedBroker) -> None:
    alter = rule("ALTER", "CLUSTER", "kafka-cluster") | {"principal": "User:carol"}
    see = rule("DESCRIBE", "CLUSTER", "kafka-cluster") | {"principal": "User:*"}
    deny = rule("ALL", "CLUSTER", "kafka-cluster", permission="DENY", host="10.0.0.9") | {"principal": "User:*"}
    elsewhere = {**deny, "host": "10.0.0.8"}
    ask(guarded, "POST", ACLS, {"acls": [alter, see]})

    def lost(path: str, *rules: dict[str, str]) -> list[str]:
        body = {"acls": [*rules], "validate_only": True}
        status, answer = ask(guarded, "POST", path, body, headers=AS_CAROL)
        assert status == 200, answer
        names: list[str] = answer["own_rights_lost"]
        return names

    assert lost(f"{ACLS}/remove", alter) == ["ALTER"]
    assert lost(f"{ACLS}/remove", alter, see) == ["ALTER", "DESCRIBE"]
    assert lost(f"{ACLS}/remove", see) == []
    assert lost(ACLS, deny) == ["ALTER", "DESCRIBE"]
    assert lost(ACLS, elsewhere) == []
    assert ask(guarded, "POST", ACLS, {"acls": [deny], "validate_only": True})[1]["own_rights_lost"] == []
    assert stored(guarded) == sorted([alter, see], key=lambda words: words["principal"])


@pytest.mark.usefixtures("no_rules")
def test_who_may_only_look_is_told_the_right_that_is_missing_and_changes_nothing(guarded: GuardedBroker) -> None:
    may_look = [rule(right, "CLUSTER", "kafka-cluster") for right in ("DESCRIBE", "DESCRIBE_CONFIGS")]
    ask(guarded, "POST", ACLS, {"acls": [{**words, "principal": "User:carol"} for words in may_look]})
    before = [told(guarded, name) for name in ("acls", "users", "quotas")]
    for path, right in ((ACLS, "alter"), (USERS, "alter"), (QUOTAS, "alter-configs")):
        missing = ask(guarded, "GET", path, headers=AS_CAROL)[1]["missing_right"]
        assert missing["sentence"] == f"User:carol lacks the right {right.upper().replace('-', '_')} on the cluster"
        assert missing["command"] == f"tiered acls add --principal User:carol --operation {right} --cluster"
    assert ask(guarded, "GET", ACLS, headers=AS_CAROL)[1]["principal"] == "User:carol"
    for method, path, body in (
        ("POST", ACLS, {"acls": [rule("READ", "TOPIC", "t")]}),
        ("POST", f"{ACLS}/remove", {"acls": stored(guarded)}),
        ("POST", USERS, {"name": "bob", "password": SECRET}),
        ("PUT", f"{USERS}/ann/password", {"password": SECRET}),
        ("DELETE", f"{USERS}/ann", None),
        ("PATCH", QUOTAS, {"entity": {"user": "bob"}, "set": {"producer_byte_rate": 1}}),
    ):
        status, answer = ask(guarded, method, path, body, headers=AS_CAROL)
        assert (status, "User:carol lacks the right ALTER" in answer["message"]) == (403, True), path
        own_origin = {"Origin": f"http://127.0.0.1:{guarded.http_port}"}
        status, answer = ask(guarded, method, path, body, headers=own_origin)
        assert (status, CSRF_HEADER in answer["message"]) == (403, True), "a page without the token changes nothing"
    assert [told(guarded, name) for name in ("acls", "users", "quotas")] == before


# Users


def is_password(guarded: GuardedBroker, name: str, password: str) -> set[str]:
    """The mechanisms by which the user logs in with it."""
    kept = guarded.run(lambda: guarded.broker.credentials.users().get(name, {}))
    return {str(each) for each, credential in kept.items() if scram.is_password(each, credential, password)}


def test_a_user_is_made_gets_another_password_and_is_deleted(guarded: GuardedBroker) -> None:
    name = "b/o b?ü"
    path = f"{USERS}/{quote(name, safe='')}"
    both = ["SCRAM-SHA-256", "SCRAM-SHA-512"]
    new = {"name": name, "password": SECRET, "mechanisms": both, "iterations": 4096}
    credentials = [{"mechanism": mechanism, "iterations": 4096} for mechanism in both]
    shown = {"name": name, "credentials": credentials, "is_of_brokers": False}
    assert ask(guarded, "POST", USERS, new) == (201, shown)
    assert is_password(guarded, name, SECRET) == set(both)
    status, answer = ask(guarded, "POST", USERS, {**new, "password": "other"})
    assert (status, "exists already" in answer["message"]) == (409, True)
    assert is_password(guarded, name, SECRET) == set(both)
    status, answer = ask(guarded, "PUT", f"{path}/password", {"password": "other"})
    assert [credential["iterations"] for credential in answer["credentials"]] == [8192, 8192]
    assert is_password(guarded, name, "other") == set(both), "the former one counts for neither mechanism"
    assert ask(guarded, "DELETE", path)[0] == 204
    for method, absent, body in (("DELETE", path, None), ("PUT", f"{path}/password", {"password": SECRET})):
        status, answer = ask(guarded, method, absent, body)
        assert (status, "there is no user" in answer["message"]) == (404, True)
    assert name not in [user["name"] for user in told(guarded, "users")["users"]]


def test_of_two_who_create_the_same_user_at_once_one_is_told_that_it_exists(guarded: GuardedBroker) -> None:
    passwords = [f"{SECRET} {number}" for number in range(4)]
    with ThreadPoolExecutor(len(passwords)) as threads:
        statuses = list(
            threads.map(
                lambda password: ask(guarded, "POST", USERS, {"name": "erin", "password": password})[0], passwords
            )
        )
    assert sorted(statuses) == [201, 409, 409, 409]
    assert is_password(guarded, "erin", passwords[statuses.index(201)])
    ask(guarded, "DELETE", f"{USERS}/erin")


def test_the_database_decides_whether_a_user_is_there_and_not_what_this_broker_knows(guarded: GuardedBroker) -> None:
    path = f"{USERS}/erin"
    assert ask(guarded, "POST", USERS, {"name": "erin", "password": SECRET})[0] == 201
    before = guarded.broker.state.security
    ask(guarded, "PUT", f"{path}/password", {"password": SECRET, "mechanisms": ["SCRAM-SHA-256"]})
    guarded.run(lambda: setattr(guarded.broker.state, "security", before))
    assert ask(guarded, "DELETE", path)[0] == 204
    lines = [line["mechanism"] for line in audited(guarded) if line["resource"] == "USER:erin"]
    assert lines[-2:] == [1, 2], "SHA-256 too, of which this broker knew nothing"
    for method, absent, body in (("DELETE", path, None), ("PUT", f"{path}/password", {"password": SECRET})):
        guarded.run(lambda: setattr(guarded.broker.state, "security", before))
        status, answer = ask(guarded, method, absent, body)
        assert (status, "there is no user 'erin'" in answer["message"]) == (404, True)
    ask(guarded, "POST", USERS, {"name": "frank", "password": SECRET})
    ask(guarded, "DELETE", f"{USERS}/frank")
    assert "erin" not in [user["name"] for user in told(guarded, "users")["users"]]


@pytest.mark.usefixtures("no_rules")
def test_a_right_that_went_while_a_password_waited_for_its_turn_is_missing_then(guarded: GuardedBroker) -> None:
    alter = rule("ALTER", "CLUSTER", "kafka-cluster") | {"principal": "User:carol"}
    ask(guarded, "POST", ACLS, {"acls": [alter]})
    credentials, is_free = guarded.broker.credentials, threading.Event()
    waiting: list[Any] = []
    guarded.run(lambda: waiting.extend(asyncio.ensure_future(credentials.in_turn(is_free.wait)) for _ in range(2)))
    try:
        with ThreadPoolExecutor(1) as threads:
            body = {"name": "mallory", "password": SECRET}
            answer = threads.submit(lambda: ask(guarded, "POST", USERS, body, headers=AS_CAROL))
            ended_s = time.monotonic() + 20.0
            while credentials._pool.pending < len(waiting) + 1:
                assert time.monotonic() < ended_s, "no password waits for its turn"
                time.sleep(0.01)
            ask(guarded, "POST", f"{ACLS}/remove", {"acls": [alter]})
            is_free.set()
            assert answer.result()[0] == 403
    finally:
        is_free.set()
    assert "mallory" not in [user["name"] for user in told(guarded, "users")["users"]]


def test_a_password_stands_in_no_answer_no_line_and_no_file(
    guarded: GuardedBroker, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level(logging.DEBUG)
    wrong: list[Any] = [
        {"password": SECRET, "iterations": 1},
        {"password": SECRET, "mechanisms": ["PLAIN"]},
        {"password": SECRET, "user": "bob"},
        {"password": [SECRET]},
        {"password": {"is": SECRET}},
        {"password": f"{SECRET}\x00"},
        {"password": SECRET * 100},
        {"password": "ü" * 600 + SECRET},
        {"password": ""},
        [SECRET],
    ]
    for body in wrong:
        named = {"name": "dave", **body} if isinstance(body, dict) else body
        status, answer = ask(guarded, "POST", USERS, named)
        assert (status, SECRET in json.dumps(answer)) == (400, False), answer
    for name in ("x" * 256, ".", ".."):
        assert ask(guarded, "POST", USERS, {"name": name, "password": SECRET})[0] == 400
    assert ask(guarded, "POST", USERS, {"name": "dave", "password": SECRET})[0] == 201
    assert ask(guarded, "PUT", f"{USERS}/dave/password", {"password": SECRET})[0] == 200
    ask(guarded, "DELETE", f"{USERS}/dave")
    lines = [line for line in audited(guarded) if line["resource"] == "USER:dave"]
    assert [(line["action"], line["outcome"], line["credential"]) for line in lines[-3:]] == [
        ("POST /api/v1/users", "allowed", "set"),
        ("PUT /api/v1/users/{user}/password", "allowed", "set"),
        ("DELETE /api/v1/users/{user}", "allowed", "deleted"),
    ]
    shown = capfd.readouterr()
    assert SECRET not in caplog.text + shown.out + shown.err
    data = Path(guarded.broker.settings.authorization.tiered_audit_log).parent
    holding = [path for path in data.rglob("*") if path.is_file() and SECRET.encode() in path.read_bytes()]
    assert holding == []


# Quotas


def test_quotas_are_set_and_removed_all_or_nothing(guarded: GuardedBroker) -> None:
    entity = {"user": "bob", "client_id": None}

    def change(**body: Any) -> tuple[int, Any]:
        return ask(guarded, "PATCH", QUOTAS, {"entity": entity, **body})

    values = {"producer_byte_rate": 2048, "request_percentage": 12.5}
    assert change(set=values) == (200, {"entity": entity, "values": values})
    for wrong, words in (
        ({"set": {"producer_byte_rate": 1, "burst": 1}}, "no quota of"),
        ({"set": {"producer_byte_rate": 0}}, "greater than 0"),
        ({"set": {"producer_byte_rate": 1}, "reset": ["producer_byte_rate"]}, "stands twice"),
        ({}, "nothing to change"),
    ):
        status, answer = change(**wrong)
        assert (status, words in answer["message"]) == (400, True), answer
    assert ask(guarded, "PATCH", QUOTAS, {"entity": {}, "set": values})[0] == 400
    status, answer = change(set={"ü" * 100_000: 1})
    assert (status, "100000 characters" in answer["message"]) == (400, True)
    assert len(json.dumps(audited(guarded)[-1])) < 1_000
    assert change(set={"consumer_byte_rate": 1}, reset=["producer_byte_rate"])[1]["values"] == {
        "consumer_byte_rate": 1, "request_percentage": 12.5,
    }  # fmt: skip
    assert change(set=None, reset=["consumer_byte_rate", "request_percentage"])[1]["values"] == {}
    assert entity not in [quota["entity"] for quota in told(guarded, "quotas")["quotas"]]
    assert audited(guarded)[-1]["resource"] == "QUOTA:user=bob,client-id=<default>"


@pytest.mark.usefixtures("no_rules")
def test_each_rule_that_is_changed_has_its_line_in_the_audit_log(guarded: GuardedBroker) -> None:
    rules = [rule("READ", "TOPIC", "orders"), rule("READ", "GROUP", "billing")]
    ask(guarded, "POST", ACLS, {"acls": rules})
    ask(guarded, "POST", ACLS, {"acls": rules}, headers={SENDER: "2", ON_BEHALF_OF: "User%3Aeve 10.0.0.9"})
    lines = audited(guarded)[-3:]
    assert [(line["resource"], line["outcome"], line["principal"]) for line in lines] == [
        ("TOPIC:orders", "allowed", "User:ANONYMOUS"),
        ("GROUP:billing", "allowed", "User:ANONYMOUS"),
        ("CLUSTER:kafka-cluster", "denied", "User:eve"),
    ]
    assert lines[0]["rule"] == {
        "pattern": "LITERAL", "for": "User:bob", "from": "*", "operation": "READ", "permission": "ALLOW",
    }  # fmt: skip
