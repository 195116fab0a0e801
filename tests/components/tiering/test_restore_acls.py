"""Access control lists come back with a restore when they are accepted, configs of groups always, and no password does.

Who can write to the bucket can put rules and settings there: nothing of them takes effect unasked, and all is named.
"""

import json
import shutil
import time
from dataclasses import asdict, replace
from pathlib import Path
from uuid import UUID

import pytest

from tests.components.guarded_broker import GuardedBroker, allow
from tests.support.http_logins import ask
from tiered.cli import main
from tiered.formats.acl_entries import AclEntry
from tiered.formats.checkpoint import TopicEntry, decode_cluster_checkpoint, encode_cluster_checkpoint
from tiered.formats.object_key import cluster_checkpoint_key
from tiered.meta import security, settings, topics
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
    plan = json.loads(capfd.readouterr().out)
    assert {AclRow(**each) for each in plan["left_out_access_rules"]} == set(RULES)
    restore = ["restore", "--from", f"file://{kept}", "--meta", meta, "--apply", "--accept-rights"]
    assert main([*restore, plan["rights_digest"]]) == 0
    with GuardedBroker(restored, KEPT) as broker:
        assert held(broker) == set(RULES)
        assert broker.run(lambda: broker.broker.resource_configs.group("a:b")).consumer_session_timeout_ms == 50_000


FORGED = {
    "": {
        "log.retention.ms": "86400000",
        "super.users": "User:mallory",
        "tiered.http.allowed.hosts": "evil.example\nproblems:",
        "tiered.http.authentication": "none",
        "num.partitions": "many",
        "max.connections.per.ip.overrides": "nonsense",
        "x" * 400: "longer than a name may be",
    },
    "1": {"sasl.oauthbearer.jwks.endpoint.url": "https://evil.example/keys"},
    "01": {"log.retention.ms": "1"},
}
NAMED = """
settings that were altered at run time come back (1):
  log.retention.ms=86400000

configs of topics come back (1):
  retention.ms=1 (topic orders)

ignored, for no broker takes them at run time (7):
  max.connections.per.ip.overrides
  num.partitions
  super.users
  tiered.http.authentication
  LONG
  log.retention.ms (broker 01)
  sasl.oauthbearer.jwks.endpoint.url (broker 1)

settings that give rights are left out, for whoever can write to the bucket could have put them there (1):
  tiered.http.allowed.hosts=evil.example\\nproblems:

access rules are left out, for whoever can write to the bucket could have put them there (1):
  ALLOW User:mallory from *: ALL on CLUSTER kafka-cluster (LITERAL)
--accept-rights DIGEST
brings these back, and no others.""".replace("LONG", "x" * 400)
MALLORY = AclEntry(**asdict(allow("ALL", "CLUSTER", "kafka-cluster", principal="User:mallory")))


def test_a_forged_checkpoint_gives_no_rights_unasked_and_everything_in_it_is_named(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with GuardedBroker(data, KEPT):
        pass
    head = data / "objects" / cluster_checkpoint_key()
    own = decode_cluster_checkpoint(head.read_bytes())
    cluster_id = f"{own.cluster_id}\naccess rules come back: none"
    configs = {"retention.ms": "1", "preallocate": "true"}
    topic = TopicEntry(name="orders", topic_id=UUID(int=5), partition_count=1, configs=configs)
    forged = replace(own, cluster_id=cluster_id, topics=(topic,), settings=FORGED, acls=(MALLORY,))
    head.write_bytes(encode_cluster_checkpoint(forged))
    restore = ["restore", "--from", f"file://{data}/objects"]
    capfd.readouterr()
    assert main(restore) == 0
    words = capfd.readouterr().out
    digest = words.partition("--accept-rights ")[2].partition("\n")[0]
    assert NAMED.replace("DIGEST", digest) in words
    assert "\naccess rules come back" not in words
    assert main([*restore, "--json"]) == 0
    plan = json.loads(capfd.readouterr().out)
    assert plan["settings"] == {"": {"log.retention.ms": "86400000"}}
    assert plan["left_out_settings"] == {"": {"tiered.http.allowed.hosts": "evil.example\nproblems:"}}
    assert plan["ignored_settings"] == {
        "": [
            "max.connections.per.ip.overrides",
            "num.partitions",
            "super.users",
            "tiered.http.authentication",
            "x" * 400,
        ],
        "01": ["log.retention.ms"],
        "1": ["sasl.oauthbearer.jwks.endpoint.url"],
    }
    assert plan["rights_digest"] == digest
    assert plan["access_rules"] == []
    assert plan["left_out_access_rules"] == [asdict(MALLORY)]
    restored = tmp_path / "restored"
    restored.mkdir()
    shutil.move(data / "objects", restored / "objects")
    meta = f"sqlite:///{restored}/meta.db"
    assert main(["restore", "--from", f"file://{restored}/objects", "--meta", meta, "--apply"]) == 0
    with GuardedBroker(restored, KEPT) as broker:
        assert held(broker) == set()
        in_force = broker.run(lambda: broker.broker.settings)
        assert dict(in_force.dynamic_default) == {"log.retention.ms": "86400000"}
        assert dict(in_force.dynamic) == {}


def test_rights_that_came_after_the_plan_are_refused_with_the_new_list_and_nothing_is_changed(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    data = tmp_path / "data"
    with GuardedBroker(data, KEPT):
        pass
    head, meta = data / "objects" / cluster_checkpoint_key(), tmp_path / "new.db"
    own = decode_cluster_checkpoint(head.read_bytes())
    restore = ["restore", "--from", f"file://{data}/objects", "--meta", f"sqlite:///{meta}"]
    seen = replace(own, acls=tuple(AclEntry(**asdict(each)) for each in RULES))
    head.write_bytes(encode_cluster_checkpoint(seen))
    capfd.readouterr()
    assert main([*restore, "--json"]) == 0
    digest = json.loads(capfd.readouterr().out)["rights_digest"]
    forged = encode_cluster_checkpoint(replace(seen, acls=(*seen.acls, MALLORY)))
    head.write_bytes(forged)
    assert main([*restore, "--apply", "--accept-rights", digest]) == 1
    refusal = capfd.readouterr().err
    assert f"--accept-rights {digest}: the bucket's access rules" in refusal
    assert "ALLOW User:mallory from *: ALL on CLUSTER kafka-cluster (LITERAL)" in refusal
    assert head.read_bytes() == forged
    assert not meta.exists()
    with pytest.raises(SystemExit):
        main([*restore, "--apply", "--accept-rights"])
    assert "run the plan, look at its list" in capfd.readouterr().err


def test_what_a_writer_of_the_database_sets_at_run_time_that_is_read_at_start_takes_no_effect_and_can_be_deleted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    values = {"tiered.http.authentication": "basic", "super.users": "User:mallory", "num.partitions": "3"}
    with GuardedBroker(tmp_path, KEPT) as broker:
        database = broker.broker.database

        def stored() -> dict[str, str]:
            texts: dict[str, str] = database.run_sync(settings.load_all).get(None, {})
            return texts

        database.run_sync(lambda conn: settings.alter(conn, broker_id=None, values=values))
        broker.run(broker.broker.feed.wake)
        while broker.run(lambda: broker.broker.settings.topics.num_partitions) != 3:
            time.sleep(0.01)
        cluster = f"/v3/clusters/{ask(broker, 'GET', '/v3/clusters')[1]['data'][0]['cluster_id']}"
        described = ask(broker, "GET", f"{cluster}/brokers/1/configs")[1]["data"]
        shown = {config["name"]: config["value"] for config in described}
        assert (shown["tiered.http.authentication"], shown["super.users"]) == ("none", "User:ANONYMOUS")
        assert "can be deleted as others are: super.users, tiered.http.authentication" in caplog.text
        assert ask(broker, "DELETE", f"{cluster}/broker-configs/super.users")[0] == 204
        assert stored() == {name: text for name, text in values.items() if name != "super.users"}


def test_a_topics_config_that_somebody_wrote_into_the_database_closes_that_topic_alone(tmp_path: Path) -> None:
    with GuardedBroker(tmp_path, KEPT) as broker:
        for name in ("orders", "other"):
            assert ask(broker, "POST", "/api/v1/topics", {"name": name})[0] == 201
        topic_id = broker.run(lambda: broker.broker.topics.by_name("orders").topic_id)
        wrong = {"retention.ms": "soon\0"}
        broker.broker.database.run_sync(lambda conn: topics.alter_configs(conn, topic_id, values=wrong))
    with GuardedBroker(tmp_path, KEPT) as broker:
        assert ask(broker, "GET", "/readyz")[1]["failed_partitions"] == ["orders-0"]
        known = broker.broker.topics
        assert broker.run(lambda: known.by_name("other").partition(0).leadership) is not None
        assert broker.run(lambda: str(known.by_name("orders").unopened[0])).startswith("retention.ms=soon")
