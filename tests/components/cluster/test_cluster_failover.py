"""Three brokers on one PostgreSQL: whoever dies, pauses, stops or loses its disk, nothing acknowledged is lost.

One cluster for all tests of this file; each begins with all three in service and everything in sync.
"""

import os
import signal
import threading
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Self

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.brokers import Brokers, three_brokers

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases, PostgresServer

pytest_plugins = ["tests.postgres"]
pytestmark = pytest.mark.slow

SETTINGS = {"group.initial.rebalance.delay.ms": 0, "tiered.upload.interval.ms": 100}
OUTAGE_S = 4.0  # Two sessions.
HANDOVERS = 4
OFFSET_OUT_OF_RANGE, NOT_LEADER_OR_FOLLOWER = 1, 6


@pytest.fixture(scope="module")
def cluster(
    postgres_server: "PostgresServer",
    postgres_databases: "PostgresDatabases",
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Brokers]:
    with three_brokers(postgres_databases, tmp_path_factory.mktemp("cluster"), SETTINGS) as made:
        yield made


@pytest.fixture
def brokers(cluster: Brokers) -> Brokers:
    cluster.start()
    cluster.wait(
        lambda: all(not row.fenced for row in cluster.registered().values()), "every broker is in service again"
    )
    return cluster


class Stream(threading.Thread):
    """One producer that writes a record after the other to partition 0, each once the last one was acknowledged.

    Not as fast as it could: it is there to find pauses, and would take both cores from those whom it looks at.
    """

    def __init__(self, brokers: Brokers, topic: str) -> None:
        super().__init__(daemon=True)
        self._brokers = brokers
        self._topic = topic
        self._ended = threading.Event()
        self._told: list[object] = []
        self.acknowledged: list[bytes] = []
        self.longest_pause_s = 0.0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            self._write()
        except BaseException as error:
            self.failure = error

    def _write(self) -> None:
        producer = self._brokers.producer(**{"linger.ms": 0})
        number, last_s = 0, time.monotonic()
        while not self._ended.wait(0.01):
            value = b"%s-%06d" % (self._topic.encode(), number)
            self._told = []
            producer.produce(self._topic, value, partition=0, on_delivery=lambda error, _: self._told.append(error))
            while not self._told:
                producer.poll(0.01)
            assert self._told == [None], self._told
            self.acknowledged.append(value)
            self.longest_pause_s = max(self.longest_pause_s, time.monotonic() - last_s)
            last_s = time.monotonic()
            number += 1

    def __enter__(self) -> Self:
        self.start()
        self._brokers.wait(lambda: len(self.acknowledged) > 20 or self.failure is not None, "the stream flows")
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self.join(40)
        assert not self.is_alive(), self._brokers.logs()
        if self.failure is not None:
            raise AssertionError(self._brokers.logs()) from self.failure

    def wait_more(self, count: int = 50) -> None:
        """Returns once that many more were acknowledged."""
        wanted = len(self.acknowledged) + count
        self._brokers.wait(
            lambda: len(self.acknowledged) >= wanted or self.failure is not None, "the stream goes on", wait_s=40
        )


def test_every_broker_answers_with_the_same_leaders_and_replicas(brokers: Brokers) -> None:
    brokers.create("alike", 6)
    seen = []
    for number in brokers.by_id:
        admin = brokers.admin(number)
        found = admin.list_topics(timeout=30)
        topic = found.topics["alike"]
        seen.append(
            (
                {each.id: each.port for each in found.brokers.values()},
                {each.id: (each.leader, each.replicas, sorted(each.isrs)) for each in topic.partitions.values()},
            )
        )
    assert seen[0] == seen[1] == seen[2]
    ports, held = seen[0]
    assert ports == {number: broker.kafka_port for number, broker in brokers.by_id.items()}
    assert sorted(leader for leader, _, _ in held.values()) == [1, 1, 2, 2, 3, 3]
    assert all(sorted(replicas) == isrs == [1, 2, 3] for _, replicas, isrs in held.values())


def test_killed_leader_is_replaced_within_seconds_and_nothing_acknowledged_is_lost(brokers: Brokers) -> None:
    brokers.create("killed", min_insync_replicas=2)
    before = brokers.row("killed")
    with Stream(brokers, "killed") as stream:
        brokers.by_id[before.leader].kill()
        stream.wait_more()
        after = brokers.row("killed")
        assert after.leader != before.leader
        assert after.leader_epoch == before.leader_epoch + 1
        brokers.by_id[before.leader].start()
        brokers.wait_whole("killed")
        stream.wait_more()
    assert stream.longest_pause_s < 10
    assert brokers.read("killed") == stream.acknowledged


def test_broker_killed_and_back_at_once_goes_on_leading_what_it_led(brokers: Brokers) -> None:
    brokers.create("at-once", replication_factor=1)
    written = brokers.produce("at-once", [b"%d" % number for number in range(100)])
    before = brokers.row("at-once")
    brokers.by_id[before.leader].kill()
    brokers.by_id[before.leader].start()
    brokers.wait_whole("at-once")
    assert brokers.row("at-once").leader == before.leader
    assert brokers.row("at-once").leader_epoch > before.leader_epoch
    assert brokers.read("at-once") == written


def test_controlled_shutdown_hands_over_within_half_a_second(brokers: Brokers) -> None:
    brokers.create("handed", min_insync_replicas=2)
    pauses_s: list[float] = []
    with Stream(brokers, "handed") as stream:
        # The quickest of a few counts: who else uses the machine at that moment says nothing of a handover.
        while len(pauses_s) < HANDOVERS and (not pauses_s or pauses_s[-1] >= 1.0):
            before = brokers.row("handed")
            stream.longest_pause_s = 0.0
            assert brokers.by_id[before.leader].stop() == 0
            stream.wait_more()
            assert brokers.row("handed").leader_epoch == before.leader_epoch + 1
            pauses_s.append(stream.longest_pause_s)
            brokers.start()
            brokers.wait_whole("handed")
    assert brokers.read("handed") == stream.acknowledged
    assert pauses_s[-1] < 1.0, f"{pauses_s}; 0.5 s where nobody else uses the machine"


def test_leader_that_was_paused_finds_itself_replaced_and_follows(brokers: Brokers) -> None:
    brokers.create("paused", min_insync_replicas=2)
    before = brokers.row("paused")
    zombie = brokers.by_id[before.leader]
    with Stream(brokers, "paused") as stream:
        os.kill(zombie.pid, signal.SIGSTOP)
        try:
            brokers.wait(lambda: brokers.row("paused").leader != before.leader, "another one leads")
            stream.wait_more()
        finally:
            os.kill(zombie.pid, signal.SIGCONT)
        brokers.wait_whole("paused")
        stream.wait_more()
    assert brokers.read("paused") == stream.acknowledged
    assert zombie.process is not None
    assert zombie.process.poll() is None, "the process goes on under the same registration"


def test_broker_that_lost_its_marker_is_not_elected_before_it_has_caught_up(brokers: Brokers) -> None:
    brokers.create("unclean", min_insync_replicas=2)
    written = brokers.produce("unclean", [b"%d" % number for number in range(200)])
    leader = brokers.row("unclean").leader
    victim = brokers.by_id[leader]
    victim.kill()
    (victim.data / "registration.json").unlink()
    victim.start()
    assert brokers.row("unclean").leader != leader, "its log may have lost its end"
    brokers.wait_whole("unclean")
    assert brokers.read("unclean") == written


def test_broker_whose_disk_was_wiped_comes_back_and_catches_up(brokers: Brokers) -> None:
    brokers.create("wiped", 3, min_insync_replicas=2)
    written = {
        number: brokers.produce("wiped", [b"%d" % value for value in range(300)], partition=number)
        for number in range(3)
    }
    brokers.by_id[3].kill()
    brokers.wipe(3)
    brokers.start()
    brokers.wait_whole("wiped")
    for number in (1, 2):
        brokers.by_id[number].stop()
    brokers.wait(lambda: all(row.leader == 3 for row in brokers.rows("wiped")), "the one that was wiped leads")
    brokers.by_id[1].start()  # With one broker there are fewer than min.insync.replicas.
    brokers.wait(lambda: all(len(row.isr) >= 2 for row in brokers.rows("wiped")), "two are in sync")
    for number, found in written.items():
        assert brokers.read("wiped", partition=number) == found


def fetch_error(broker: BrokerProcess, topic: str, offset: int) -> int:
    """What the leader answers to a consumer's fetch at `offset`."""
    with RawConnection(broker) as connection:
        return int(connection.fetch(topic, offset).error_code)


def test_produce_and_fetch_go_on_without_sql_and_nobody_is_fenced_for_it(
    brokers: Brokers, postgres_server: "PostgresServer"
) -> None:
    brokers.create("outage", min_insync_replicas=2)
    before, registered = brokers.row("outage"), brokers.registered()
    leader = brokers.by_id[before.leader]
    with Stream(brokers, "outage") as stream:
        postgres_server.stop()
        try:
            stream.wait_more()
            time.sleep(OUTAGE_S)
            stream.wait_more()
            with pytest.raises(KafkaException) as refused:
                wanted, admin = NewTopic("during-the-outage", 1, 3), brokers.admin()
                admin.create_topics([wanted], request_timeout=20)["during-the-outage"].result(30)
            assert refused.value.args[0].code() == KafkaError.REQUEST_TIMED_OUT, "clients ask again"
            assert brokers.read("outage", count=20) == stream.acknowledged[:20]
            # Beyond its end: what follows might be at another leader, of which it cannot hear.
            assert fetch_error(leader, "outage", 10**9) == NOT_LEADER_OR_FOLLOWER
        finally:
            postgres_server.start()
        brokers.wait(lambda: brokers.registered() is not None, "SQL is back")
        stream.wait_more()
        time.sleep(3.0)
        stream.wait_more()
    after = brokers.row("outage")
    assert (after.leader, after.leader_epoch, set(after.isr)) == (before.leader, before.leader_epoch, set(before.isr))
    now = brokers.registered()
    assert {key: (row.broker_epoch, row.fenced) for key, row in now.items()} == {
        key: (row.broker_epoch, row.fenced) for key, row in registered.items()
    }
    assert stream.longest_pause_s < OUTAGE_S, "it waited for SQL"
    assert fetch_error(leader, "outage", 10**9) == OFFSET_OUT_OF_RANGE
    assert brokers.read("outage") == stream.acknowledged


def test_unclean_leader_goes_on_where_the_store_ends(brokers: Brokers) -> None:
    configs: dict[str, Any] = {
        "unclean_leader_election_enable": "true",
        "segment_bytes": 20_000,
        "local_retention_bytes": 1,
    }
    brokers.create("lost", **configs)
    first = brokers.produce("lost", [b"first-%06d" % number + bytes(2_000) for number in range(5)])
    leader = brokers.row("lost").leader
    others = [number for number in brokers.by_id if number != leader]
    for number in others:
        brokers.by_id[number].kill()
    brokers.wait(lambda: len(brokers.row("lost").isr) == 1, "the leader is in sync alone")
    second = brokers.produce("lost", [b"second-%06d" % number + bytes(2_000) for number in range(60)])
    brokers.wait(lambda: brokers.row("lost").cold_end_offset >= 40, "most of it is in the store")
    brokers.by_id[leader].kill()
    brokers.by_id[others[0]].start()
    brokers.wait(lambda: brokers.row("lost").leader == others[0], "one that lacks records leads")
    kept = brokers.row("lost").cold_end_offset
    third = brokers.produce("lost", [b"third-%06d" % number + bytes(2_000) for number in range(60)])
    assert brokers.read("lost") == (first + second)[:kept] + third
    brokers.start()
    brokers.wait_whole("lost")
    brokers.wait(lambda: brokers.row("lost").cold_end_offset >= kept + 40, "uploads go on")
    assert brokers.read("lost") == (first + second)[:kept] + third
