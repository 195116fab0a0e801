"""Brokers and commands of ours log in as any client does, and log in again before a session ends."""

import asyncio
import time
from collections.abc import Iterator

import confluent_kafka
import pytest
from confluent_kafka.admin import AdminClient, ScramCredentialInfo, ScramMechanism, UserScramCredentialUpsertion

from tiered.config.client_security import client_security
from tiered.peer.connection import Peer
from tiered.peer.security import LoginFailed, PeerSecurity
from tiered.testing import LocalCluster, cluster
from tiered.wire.fetch import FetchRequest

SESSION_MS = 600
CLUSTER_AUTHORIZATION_FAILED, STALE_BROKER_EPOCH = 31, 77
NEVER_REGISTERED = 1 << 40
"""An epoch that no broker has."""
BROKERS_PASSWORD = "swordfish of brokers"


@pytest.fixture(scope="module")
def three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    password = tmp_path_factory.mktemp("secrets") / "brokers"
    password.write_text(BROKERS_PASSWORD + "\n")
    settings = {
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "tiered.sasl.plain.without.tls": "true",
        "tiered.sasl.inter.broker.username": "brokers",
        "tiered.sasl.inter.broker.password": f"file:{password}",
        "connections.max.reauth.ms": SESSION_MS,
        "default.replication.factor": 3,
        "min.insync.replicas": 2,
    }
    listeners = {"GUARDED": "SASL_PLAINTEXT"}
    with cluster(brokers=3, listeners=listeners, inter_broker_listener="GUARDED", settings=settings) as c:
        admin = AdminClient({"bootstrap.servers": c.bootstrap, "log_level": 0})
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        users = {"brokers": BROKERS_PASSWORD, "alice": "secret of alice"}
        changes = [UserScramCredentialUpsertion(name, info, password.encode()) for name, password in users.items()]
        for answer in admin.alter_user_scram_credentials(list(changes)).values():
            answer.result(10)
        yield c


def address(c: LocalCluster) -> tuple[str, int]:
    host, _, port = c.bootstrap_at("GUARDED").split(",")[0].rpartition(":")
    return host, int(port)


def plain_address(c: LocalCluster) -> tuple[str, int]:
    host, _, port = c.bootstrap.split(",")[0].rpartition(":")
    return host, int(port)


def security(mechanism: str, password: str = "secret of alice", name: str = "alice") -> PeerSecurity:
    return PeerSecurity(
        client_security(
            {
                "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": mechanism,
                "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
                f'username="{name}" password="{password}";',
            }
        )
    )


def test_what_is_acknowledged_by_all_was_fetched_by_brokers_that_logged_in(three: LocalCluster) -> None:
    topic = three.create_topic()
    producer = confluent_kafka.Producer(
        {
            "bootstrap.servers": three.bootstrap_at("GUARDED"), "security.protocol": "SASL_PLAINTEXT", "acks": "all",
            "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "secret of alice",
        }
    )  # fmt: skip
    until = time.monotonic() + 2 * SESSION_MS / 1000
    sent, failed = 0, list[object]()
    while sent < 20 or time.monotonic() < until:
        producer.produce(topic, b"x", on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(30) == 0
        sent += 1
        time.sleep(0.02)
    assert not failed
    admin = AdminClient({"bootstrap.servers": three.bootstrap, "log_level": 0})
    partition = admin.list_topics(topic, timeout=10).topics[topic].partitions[0]
    assert len(partition.isrs) == 3


def test_transactions_go_on_between_brokers_that_logged_in(three: LocalCluster) -> None:
    """Leaders ask coordinators, and those send markers: with six ids, nearly always to another broker."""
    topic = three.create_topic(partitions=3)
    for name in "abcdef":
        producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": three.bootstrap_at("GUARDED"), "security.protocol": "SASL_PLAINTEXT",
                "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": "alice", "sasl.password": "secret of alice",
                "transactional.id": name,
            }
        )  # fmt: skip
        producer.init_transactions(30)
        for _ in range(2):
            producer.begin_transaction()
            for number in range(3):
                producer.produce(topic, name, partition=number)
            producer.commit_transaction(30)
            time.sleep(SESSION_MS / 1000)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
async def test_a_peer_logs_in_again_before_its_session_ends(three: LocalCluster, mechanism: str) -> None:
    async with await Peer.connect(*address(three), security=security(mechanism)) as peer:
        for _ in range(4):
            answer = await peer.request(
                60, lambda make: make.DescribeClusterRequest(include_cluster_authorized_operations=False), at_most=0
            )
            assert answer.error_code == 0
            await asyncio.sleep(0.4)


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512", "SCRAM-SHA-256"])
async def test_a_peer_that_is_not_let_in_is_told_and_no_password_is_shown(three: LocalCluster, mechanism: str) -> None:
    with pytest.raises(LoginFailed) as failed:
        await Peer.connect(*address(three), security=security(mechanism, "hunter2"))
    assert "hunter2" not in str(failed.value)
    assert ("PLAIN, SCRAM-SHA-512" in str(failed.value)) == (mechanism == "SCRAM-SHA-256")


async def test_only_brokers_fetch_as_replicas(three: LocalCluster) -> None:
    codes = {}
    asked = FetchRequest(
        replica_id=2, replica_epoch=NEVER_REGISTERED, max_wait_ms=0, min_bytes=0, max_bytes=1, isolation_level=0,
        session_id=0, session_epoch=-1, topics=[],
    )  # fmt: skip
    for name, password in (("alice", "secret of alice"), ("brokers", BROKERS_PASSWORD)):
        async with await Peer.connect(*address(three), security=security("SCRAM-SHA-512", password, name)) as peer:
            codes[name] = (await peer.fetch_as_replica(asked)).error_code
    async with await Peer.connect(*plain_address(three)) as peer:
        codes["anybody"] = (await peer.fetch_as_replica(asked)).error_code
    assert (codes["alice"], codes["anybody"]) == (CLUSTER_AUTHORIZATION_FAILED, CLUSTER_AUTHORIZATION_FAILED)
    assert codes["brokers"] == STALE_BROKER_EPOCH, "it may ask, and is not the process that registered"
