"""The tail and the search over HTTP in a cluster: one stream of what several brokers lead, whoever does."""

import os
import signal
import time

from tests.clients.listener import Event, Listener
from tests.components.brokers import Brokers
from tests.components.http.http_brokers import PARTITIONS, brokers, cluster, create, scattered, value_of
from tests.components.http.searches import SearchResult

__all__ = ["brokers", "cluster"]

pytest_plugins = ["tests.postgres"]


def positions(event: Event) -> dict[int, int]:
    return {int(part.split(":")[0]): int(part.split(":")[1]) for part in event.id.split(",")}


def test_tail_of_a_topic_with_several_leaders_is_one_stream_that_can_be_resumed(brokers: Brokers) -> None:
    written = scattered(brokers, "tailed", records=40)
    everything = sorted(value for values in written.values() for value in values)
    for broker in brokers.by_id.values():
        seen: list[bytes] = []
        last_id = ""
        while len(seen) < len(everything):
            with Listener(broker, "tailed", last_id=last_id, from_="earliest") as listener:
                events = listener.records(min(37, len(everything) - len(seen)))
                seen += [value_of(event.data) for event in events]
                for event in events:
                    assert positions(event)[event.data["partition"]] == event.data["offset"] + 1
                last_id = events[-1].id
        assert sorted(seen) == everything


def test_tail_from_now_on_sees_new_records_of_every_partition_and_only_the_keys_that_are_wanted(
    brokers: Brokers,
) -> None:
    scattered(brokers, "fresh")
    with Listener(brokers.by_id[2], "fresh") as listener, Listener(brokers.by_id[3], "fresh", key="k4") as keyed:
        assert next(listener.events()).name == "start"
        assert next(keyed.events()).name == "start"
        producer = brokers.producer()
        for number in range(PARTITIONS):
            producer.produce("fresh", key=b"k%d" % number, value=b"new-%d" % number, partition=number)
        assert producer.flush(20) == 0
        assert sorted(value_of(each.data) for each in listener.records(PARTITIONS)) == [
            b"new-%d" % number for number in range(PARTITIONS)
        ]
        assert [value_of(each.data) for each in keyed.records(1)] == [b"new-4"]


def test_tail_goes_on_at_the_new_leader_without_loss_or_repeats(brokers: Brokers) -> None:
    create(brokers, "moved", 3, 3, min_insync_replicas=2)
    first = [
        value for number in range(3) for value in brokers.produce("moved", [b"a%d" % number] * 20, partition=number)
    ]
    leaders = [row.leader for row in brokers.rows("moved")]
    asked = brokers.by_id[leaders[0]]
    victim = brokers.by_id[leaders[1]]
    with Listener(asked, "moved", from_="earliest", timeout_s=40) as listener:
        seen = [value_of(event.data) for event in listener.records(len(first))]
        victim.kill()
        second = [
            value for number in range(3) for value in brokers.produce("moved", [b"b%d" % number] * 20, partition=number)
        ]
        for event in listener.events():
            if event.name == "record":
                seen.append(value_of(event.data))
            else:
                assert event.name == "behind"
                assert event.data["reason"] == "unavailable", event
            if len(seen) == len(first) + len(second):
                break
    assert sorted(seen) == sorted(first + second)


def test_listener_above_what_is_committed_holds_no_broker_up(brokers: Brokers) -> None:
    """Whoever may read can claim to have seen what the leader alone has; so has each listener after a failover."""
    create(brokers, "ahead", 1, 3, min_insync_replicas=2)
    brokers.produce("ahead", [b"committed"] * 5)
    leader = brokers.by_id[brokers.row("ahead").leader]
    others = [broker for broker in brokers.by_id.values() if broker is not leader]
    for broker in others:
        os.kill(broker.pid, signal.SIGSTOP)
    try:
        producer = brokers.producer(**{"acks": 1, "enable.idempotence": False})
        producer.produce("ahead", b"not committed", partition=0)
        assert producer.flush(20) == 0
        with Listener(leader, "ahead", last_id="0:6") as listener:
            assert next(listener.events()).name == "start"
            for _ in range(5):
                began = time.monotonic()
                leader.get("/healthz")
                assert time.monotonic() - began < 2
            for broker in others:
                os.kill(broker.pid, signal.SIGCONT)
            after = brokers.produce("ahead", [b"after"])
            assert [value_of(event.data) for event in listener.records(1)] == after
    finally:
        for broker in others:
            os.kill(broker.pid, signal.SIGCONT)


# The search


def test_every_broker_searches_what_the_others_lead_and_goes_on_where_another_ended(brokers: Brokers) -> None:
    values = scattered(brokers, "wide")
    expected = sorted(value for some in values.values() for value in some)
    for broker in brokers.by_id.values():
        result = SearchResult(broker, "wide")
        assert (result.values, result.end["reason"]) == (expected, "done")
        assert result.end["looked_records"] == len(expected)
        assert [place["partition"] for place in result.end["partitions"]] == list(range(PARTITIONS))
    values_by_turns: list[bytes] = []
    last_id = ""
    for number in range(100):
        part = SearchResult(brokers.by_id[1 + number % 3], "wide", limit=7, last_id=last_id)
        values_by_turns += part.values
        last_id = part.last_id
        if part.end["reason"] == "done":
            break
    assert sorted(values_by_turns) == expected
