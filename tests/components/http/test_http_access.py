"""Access over HTTP: rules, users and quotas as they are, and nothing of any password."""

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tests.components.guarded_broker import GuardedBroker, allow
from tiered.cli import main

SALT, PASSWORD = b"salt-of-ann", b"password-of-ann"


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GuardedBroker]:
    with GuardedBroker(tmp_path_factory.mktemp("access") / "data", "super.users=User:ANONYMOUS;User:root") as broker:
        yield broker


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
    assert users == {"users": [{"name": "ann", "credentials": [{"mechanism": "SCRAM-SHA-512", "iterations": 5000}]}]}
    quotas = told(guarded, "quotas")["quotas"]
    assert {"entity": {"user": "ann"}, "values": {"producer_byte_rate": 1024}} in quotas
    assert {"entity": {"client_id": None}, "values": {"request_percentage": 50}} in quotas
