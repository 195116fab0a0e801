"""Requests that are as long as they may be: nobody else waits for them."""

import asyncio
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch, patched
from tests.components.guarded_broker import GuardedBroker, allow
from tests.support.hostile_frames import MIB, bystander
from tests.support.topics import create
from tiered.rules.security.acl import Operation, ResourceType
from tiered.rules.security.principal import ANONYMOUS
from tiered.server.kafka.dispatch import LARGE_BODY_BYTES
from tiered.wire import fetch, messages, produce

CONSUMER_GROUP_HEARTBEAT = 68
INVALID_REQUEST = 42


def test_a_fetch_of_as_many_partitions_as_can_be_is_answered_in_turns(broker: BrokerProcess) -> None:
    create(broker, "long-fetch")
    count = 49_000
    with RawConnection(broker, timeout_s=60) as connection:
        connection.produce("long-fetch", batch())
        with bystander(broker, longest_s=1.5):
            body = (
                struct.pack(">iiiibiiih", -1, 100, 1, MIB, 0, 0, -1, 1, 10) + b"long-fetch" + struct.pack(">i", count)
            )
            body += struct.pack(">iiqqi", 0, -1, 0, -1, 100) * count + struct.pack(">ih", 0, 0)
            answer = connection.call(1, 11, body)
            told = fetch.decode_fetch_response(answer, 0, len(answer), 11).topics[0].partitions
            assert len(told) == count
            assert told[0].records is not None


def test_a_produce_request_of_as_many_batches_as_can_be_is_appended_in_turns(broker: BrokerProcess) -> None:
    create(broker, "long-produce")
    count = 20_000
    body = produce.encode_produce_request(
        [produce.TopicBatches("long-produce", None, [(0, batch())] * count)], 9, acks=1, timeout_ms=60_000
    )
    with bystander(broker, longest_s=0.8), RawConnection(broker, timeout_s=60) as connection:
        answer = connection.call(0, 9, body)
        told = produce.decode_produce_response(answer, 0, len(answer), 9).topics[0].partitions
        assert [each.base_offset for each in told] == list(range(count))


def test_producers_that_clients_make_up_are_forgotten_and_those_of_other_topics_are_not(
    make_broker: Callable[..., BrokerProcess],
) -> None:
    process = make_broker(settings={"tiered.max.producers": 100}).start()
    create(process, "honest", partitions=1)
    create(process, "flooded", partitions=1)
    first = batch(producer_id=7, producer_epoch=0, base_sequence=0)
    made_up = [patched(first, 43, struct.pack(">q", number)) for number in range(1000, 2000)]
    with RawConnection(process) as connection:
        assert connection.produce("honest", first).base_offset == 0
        body = produce.encode_produce_request(
            [produce.TopicBatches("flooded", None, [(0, each) for each in made_up])], 9, acks=1, timeout_ms=5000
        )
        connection.call(0, 9, body)
        deadline = time.monotonic() + 30
        while "idempotent producers were forgotten" not in process.log():
            assert time.monotonic() < deadline
            time.sleep(0.1)
        assert connection.produce("honest", first).base_offset == 0, "it is still known, and so this is a duplicate"
        assert connection.produce("flooded", made_up[-1]).base_offset == 999
        assert connection.produce("flooded", made_up[0]).base_offset == 1000, "it is not known any more"
    assert "901 idempotent" in process.log()


def test_a_heartbeat_with_too_many_topics_is_refused_before_rights_are_asked_for_each(tmp_path: Path) -> None:
    with GuardedBroker(tmp_path / "data") as guarded, RawConnection(guarded) as connection:
        guarded.rules([allow("READ", "GROUP", "g"), allow("DESCRIBE", "TOPIC", "t-", pattern_type="PREFIXED")])
        make = messages.request(CONSUMER_GROUP_HEARTBEAT, 0)

        def beat(count: int) -> tuple[int, int]:
            """The error code, and how many decisions about rights were new."""
            request = make.ConsumerGroupHeartbeatRequest(
                group_id="g", member_id="", member_epoch=0, instance_id=None, rack_id=None, rebalance_timeout=1000,
                subscribed_topic_names=[f"t-{number}" for number in range(count)], subscribed_topic_regex=None,
                server_assignor=None, topic_partitions=[],
            )  # fmt: skip
            code = connection.ask(CONSUMER_GROUP_HEARTBEAT, 0, request).error_code
            rights = guarded.broker.access.rights(ANONYMOUS, "127.0.0.1")
            return code, len(rights.by_name(Operation.DESCRIBE, ResourceType.TOPIC))

        assert beat(10_001) == (INVALID_REQUEST, 0)
        assert beat(3) == (0, 3)


def elections(count: int) -> tuple[int, int, Any]:
    make = messages.request(43, 2)
    asked = [make.TopicPartitions(topic="none", partitions=list(range(count)))]
    return 43, 2, make.ElectLeadersRequest(election_type=0, topic_partitions=asked, timeout=5000)


def moves(count: int) -> tuple[int, int, Any]:
    make = messages.request(45, 1)
    moved = [make.ReassignablePartition(partition_index=index, replicas=[1]) for index in range(count)]
    topics = [make.ReassignableTopic(name="none", partitions=moved)]
    asked = make.AlterPartitionReassignmentsRequest(timeout=5000, allow_replication_factor_change=True, topics=topics)
    return 45, 1, asked


def quotas(count: int) -> tuple[int, int, Any]:
    make = messages.request(49, 1)
    entity = [make.EntityData(entity_type=each, entity_name=None) for each in ("nobody", "neither")]
    entries = [make.EntryData(entity=entity, ops=[])] * count
    return 49, 1, make.AlterClientQuotasRequest(entries=entries, validate_only=False)


@contextmanager
def turns_of(guarded: GuardedBroker) -> Iterator[Callable[[], int]]:
    """How many turns the broker's event loop has taken since."""
    taken, is_over = 0, False

    def count() -> None:
        nonlocal taken
        if not is_over:
            taken += 1
            asyncio.get_running_loop().call_soon(count)

    guarded.run(count)
    try:
        yield lambda: taken
    finally:
        is_over = True


@pytest.mark.parametrize(("asked", "times"), [(elections, 3), (moves, 4), (quotas, 5)])
def test_changes_of_many_partitions_and_quotas_give_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, asked: Callable[[int], tuple[int, int, Any]], times: int
) -> None:
    """Where no step may take any time, each item has a turn of the loop whenever all are gone through: when they are
    counted, looked at, answered, encoded."""
    count = 3_000
    monkeypatch.setattr("tiered.runtime.TURN_MS", 0.0)
    with GuardedBroker(tmp_path / "data") as guarded, RawConnection(guarded) as connection:
        guarded.rules([allow("ALTER", "CLUSTER", "kafka-cluster"), allow("ALTER_CONFIGS", "CLUSTER", "kafka-cluster")])
        key, version, request = asked(count)
        with turns_of(guarded) as turns:
            connection.ask(key, version, request)
            assert turns() >= times * count


def test_a_long_list_of_what_has_configs_gives_others_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    count = 3_000
    monkeypatch.setattr("tiered.runtime.TURN_MS", 0.0)
    with GuardedBroker(tmp_path / "data") as guarded, RawConnection(guarded) as connection:
        guarded.rules([allow("DESCRIBE_CONFIGS", "CLUSTER", "kafka-cluster")])
        stored = {("GROUP", f"g-{number}"): {"consumer.session.timeout.ms": "45000"} for number in range(count)}
        guarded.run(lambda: guarded.broker.resource_configs.take(stored))
        asked = messages.request(74, 1).ListConfigResourcesRequest(resource_types=[32])
        with turns_of(guarded) as turns:
            assert len(connection.ask(74, 1, asked).config_resources) == count
            # Named, and encoded.
            assert turns() >= 2 * count


def test_a_large_request_is_carried_out_when_its_client_hangs_up_and_ends_with_the_broker(tmp_path: Path) -> None:
    """To give it up in the middle stopped everybody for 40 ms, where it had 100,000 names."""
    make = messages.request(44, 1)
    config = make.AlterableConfig(name="consumer.session.timeout.ms", value="50000", config_operation=0)

    def send_and_hang_up(count: int, prefix: str) -> None:
        resources = [
            make.AlterConfigsResource(resource_type=32, resource_name=f"{prefix}-{number:200}", configs=[config])
            for number in range(count)
        ]
        before = done()
        with RawConnection(guarded) as connection:
            body = messages.encode(make.IncrementalAlterConfigsRequest(resources=resources, validate_only=False))
            assert len(body) > LARGE_BODY_BYTES
            connection.send(44, 1, body)
            while done() == before:
                time.sleep(0.01)

    def done() -> int:
        return len(guarded.run(lambda: guarded.broker.resource_configs.stored))

    with GuardedBroker(tmp_path / "data") as guarded:
        guarded.rules([allow("ALTER_CONFIGS", "GROUP", "*")])
        send_and_hang_up(100, "small")
        deadline = time.monotonic() + 30
        while done() < 100:
            assert time.monotonic() < deadline, done()
            time.sleep(0.01)
        send_and_hang_up(5_000, "large")
        left_s = time.monotonic()
    assert time.monotonic() - left_s < 5.0, "it ends with the broker"
    assert 100 < len(guarded.broker.resource_configs.stored) < 5_100
