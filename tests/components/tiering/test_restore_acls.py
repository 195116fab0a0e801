"""Access control lists and the configs of groups come back with a restore, at once, and no password does."""

import json
import shutil
import time
from pathlib import Path

import pytest

from tests.components.guarded_broker import GuardedBroker, allow
from tests.support.http_logins import ask
from tiered.cli import main
from tiered.meta import security, settings
from tiered.meta.security import AclRow

RULES = (
    allow("READ", "TOPIC", "orders", principal="User:ann"),
    allow("ALL", "TOPIC", "secret", principal="User:*", pattern_type="PREFIXED", permission="DENY", host="10.0.0.1"),
)
KEPT = "super.users=User:ANONYMOUS"


def held(broker: GuardedBroker) -> set[AclRow]:
    return broker.run(lambda: set(broker.broker.security.acls))


def test_rules_and_group_configs_come_back_from_a_bucket(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    data, bucket = tmp_path / "data", tmp_path / "data" / "objects"
    with GuardedBroker(data, KEPT) as broker:
        assert ask(broker, "POST", "/api/v1/topics", {"name": "orders"})[0] == 201
        database = broker.broker.database
        group, configs = ("GROUP", "a:b"), {"consumer.session.timeout.ms": "50000"}
        database.run_sync(lambda conn: settings.alter_resource(conn, group, values=configs))
        database.run_sync(lambda conn: security.create_acls(conn, RULES, now_ms=1))
        broker.run(broker.broker.feed.wake)
        while held(broker) != set(RULES):
            time.sleep(0.01)
    restored = tmp_path / "restored"
    kept = restored / "objects"
    shutil.copytree(bucket, kept)
    meta = f"sqlite:///{restored}/meta.db"
    capfd.readouterr()
    assert main(["restore", "--from", f"file://{kept}", "--meta", meta, "--brokers", "1", "--plan", "--json"]) == 0
    rules = json.loads(capfd.readouterr().out)["access_rules"]
    assert {AclRow(**each) for each in rules} == set(RULES)
    assert main(["restore", "--from", f"file://{kept}", "--meta", meta, "--brokers", "1", "--apply"]) == 0
    with GuardedBroker(restored, KEPT) as broker:
        assert held(broker) == set(RULES)
        assert broker.run(lambda: broker.broker.resource_configs.group("a:b")).consumer_session_timeout_ms == 50_000
