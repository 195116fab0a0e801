"""PostgreSQL away: produce and fetch go on with the replicas that there were, all else is refused in a way that can be
tried again, and everything goes on afterwards without a restart. All of it, five minutes included, is part of
`make soak-tests`; `make test` has a short outage in tests/components/cluster/test_cluster_failover.py.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

import confluent_kafka
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cluster.processes import ClusterProcesses
from tests.cluster.traffic import Traffic, create_topic

TOPIC = "outage"
PARTITIONS = 3
PER_SECOND = 40.0
BEFORE_S = 5.0
# Beside other tests a broker may be starved for two seconds, and is then fenced with good reason.
PATIENT = {"broker.session.timeout.ms": 8000}


class Follower(threading.Thread):
    """Consumes the topic from its end on, and counts."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(daemon=True)
        self.consumed = 0
        self._halt = threading.Event()
        self._consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, "group.id": "f", "log_level": 0})
        self._consumer.assign([TopicPartition(TOPIC, each, 0) for each in range(PARTITIONS)])

    def run(self) -> None:
        while not self._halt.is_set():
            self.consumed += sum(message.error() is None for message in self._consumer.consume(500, 0.1))
        self._consumer.close()

    def finish(self) -> None:
        self._halt.set()
        self.join()


def control_state(cluster: ClusterProcesses) -> list[Any]:
    """What elections and ISR changes would change."""
    return [(row.leader, row.leader_epoch, row.partition_epoch, row.isr) for row in cluster.partition_rows(TOPIC)]


def commit(bootstrap: str, offset: int) -> int:
    """The error code of a commit, 0 for none; a client's time-out is the retriable one that it stands for."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "commits", "socket.timeout.ms": 8000, "log_level": 0}
    )
    try:
        answers = consumer.commit(offsets=[TopicPartition(TOPIC, 0, offset)], asynchronous=False)
        errors = [each.error for each in answers or [] if each.error is not None]
        return errors[0].code() if errors else 0
    except confluent_kafka.KafkaException as error:
        return int(error.args[0].code())
    finally:
        consumer.close()


def refusal_of_a_topic(bootstrap: str, name: str) -> confluent_kafka.KafkaError | None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    future = admin.create_topics([NewTopic(name, 1, 3)], operation_timeout=5, request_timeout=10)[name]
    try:
        future.result(30)
    except confluent_kafka.KafkaException as error:
        refusal: confluent_kafka.KafkaError = error.args[0]
        return refusal
    return None


RETRIABLE = {
    confluent_kafka.KafkaError.REQUEST_TIMED_OUT,
    confluent_kafka.KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    confluent_kafka.KafkaError.COORDINATOR_NOT_AVAILABLE,
    confluent_kafka.KafkaError.NOT_COORDINATOR,
    confluent_kafka.KafkaError._TIMED_OUT,
    confluent_kafka.KafkaError._WAIT_COORD,
    confluent_kafka.KafkaError._TRANSPORT,
}


def run_outage(
    cluster: ClusterProcesses,
    away: Callable[[], None],
    back: Callable[[], None],
    seconds: float,
    *,
    full_speed: float = 0.5,
) -> None:
    """With others on the same cores, half the speed is all that can be held; alone, nine tenths."""
    create_topic(cluster, TOPIC, PARTITIONS)
    follower = Follower(cluster.bootstrap)
    with Traffic(cluster, TOPIC, PARTITIONS, per_second=PER_SECOND, value_bytes=200) as traffic:
        follower.start()
        assert commit(cluster.bootstrap, 1) == 0
        state = control_state(cluster)
        processes = {each: broker.pid for each, broker in cluster.brokers.items()}
        acknowledged, consumed = traffic.sender.acknowledged, follower.consumed
        time.sleep(BEFORE_S)
        before = (traffic.sender.acknowledged - acknowledged) / BEFORE_S
        before_consumed = (follower.consumed - consumed) / BEFORE_S
        away()
        began, began_us = time.monotonic(), time.monotonic_ns() // 1000
        acknowledged, consumed = traffic.sender.acknowledged, follower.consumed
        refusals = {commit(cluster.bootstrap, 2)}
        refusal = refusal_of_a_topic(cluster.bootstrap, "never")
        assert refusal is not None
        refusals.add(refusal.code())
        time.sleep(max(0.0, seconds - (time.monotonic() - began)))
        lasted = time.monotonic() - began
        during = (traffic.sender.acknowledged - acknowledged) / lasted
        during_consumed = (follower.consumed - consumed) / lasted
        silence = max(traffic.silence_s(index, began_us) for index in range(PARTITIONS))
        back()
        healed = time.monotonic()
        print(
            f"SQL away for {lasted:.0f} s: {during:.0f} of {before:.0f} records/s acknowledged,"
            f" {during_consumed:.0f} of {before_consumed:.0f} consumed, longest silence {silence:.2f} s,"
            f" refusals {sorted(refusals)}"
        )
        assert refusals <= RETRIABLE, f"clients would give up on {refusals - RETRIABLE}"
        assert during >= full_speed * before
        assert during_consumed >= full_speed * before_consumed
        cluster.wait_until(lambda: commit(cluster.bootstrap, 3) == 0, "commits succeed again", timeout_s=30)
        cluster.wait_until(
            lambda: refusal_of_a_topic(cluster.bootstrap, "later") is None, "topics can be created", timeout_s=30
        )
        print(f"commits and new topics again after {time.monotonic() - healed:.1f} s")
        time.sleep(5.0)  # Who would be fenced for the outage is fenced by now.
        assert control_state(cluster) == state, "the outage changed leaders or in-sync replicas"
        assert {each: broker.pid for each, broker in cluster.brokers.items()} == processes
    follower.finish()
    assert traffic.unknown() == 0
    assert traffic.check_all_read_back() > 0


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_produce_and_fetch_go_on_while_postgres_is_stopped(make_cluster: Callable[..., ClusterProcesses]) -> None:
    cluster = make_cluster(settings=PATIENT)
    run_outage(cluster, cluster.stop_sql, cluster.start_sql, 20.0)


@pytest.mark.soak
@pytest.mark.timeout(300)
def test_produce_and_fetch_go_on_while_postgres_hangs(make_cluster: Callable[..., ClusterProcesses]) -> None:
    cluster = make_cluster(settings=PATIENT)
    run_outage(cluster, cluster.postgres.freeze_all, cluster.postgres.thaw_all, 12.0)


@pytest.mark.soak
def test_produce_and_fetch_go_on_for_five_minutes_without_postgres(
    make_cluster: Callable[..., ClusterProcesses],
) -> None:
    cluster = make_cluster()
    run_outage(cluster, cluster.stop_sql, cluster.start_sql, 300.0, full_speed=0.9)
