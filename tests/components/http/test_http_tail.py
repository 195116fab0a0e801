"""The tail over HTTP: resumed without loss or repeats, bounded for listeners that do not read, and honest to them."""

import base64
import random
import threading
import time
from collections.abc import Callable

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.http_api import ask
from tests.clients.listener import Listener
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.components.http.tails import MIB, next_event, produce, quick, values_of
from tests.components.tiers import create, eventually, topic_id
from tiered.formats.record_batch import Compression
from tiered.wire import messages

__all__ = ["quick"]

CREATE_PARTITIONS, DELETE_RECORDS = 37, 21
Seen = dict[int, list[tuple[int, bytes]]]


def delete_records(broker: BrokerProcess, topic: str, before_offset: int) -> None:
    namespace = messages.request(DELETE_RECORDS, 1)
    partition = namespace.DeleteRecordsPartition(partition_index=0, offset=before_offset)
    asked = namespace.DeleteRecordsTopic(name=topic, partitions=(partition,))
    with RawConnection(broker, timeout_s=30) as connection:
        connection.ask(DELETE_RECORDS, 1, namespace.DeleteRecordsRequest(topics=(asked,), timeout=30_000))


# Resuming


@pytest.mark.parametrize("seed", [1, 2])
def test_tail_broken_at_random_points_loses_nothing_and_repeats_nothing(
    make_broker: Callable[..., BrokerProcess], seed: int
) -> None:
    """Meanwhile segments roll, go to the object store and leave the disk."""
    broker = make_broker(settings={"tiered.upload.interval.ms": 20, "log.retention.check.interval.ms": 50}).start()
    create(broker, "broken", 3, remote_copy_lag_ms=0, segment_bytes=4000, local_retention_bytes=1, retention_ms=-1)
    written: Seen = {0: [], 1: [], 2: []}
    choice = random.Random(seed)
    done = threading.Event()

    def write(first: int, end: int) -> None:
        with RawConnection(broker, timeout_s=60) as connection:
            for number in range(first, end):
                partition = number * 7 % 3
                values = [b"%d-%d-" % (number, each) + b"x" * 300 for each in range(1 + number % 3)]
                codec = Compression(number % 5)
                answer = connection.produce("broken", batch(values, compression=codec), partition=partition)
                assert answer.error_code == 0
                written[partition] += [(answer.base_offset + each, value) for each, value in enumerate(values)]

    def write_the_rest() -> None:
        write(250, 500)
        done.set()

    write(0, 250)
    # Its beginning can only be read from the object store.
    broker.wait_cold("broken", end_offset=50, only=True)
    writer = threading.Thread(target=write_the_rest)
    writer.start()
    seen: Seen = {0: [], 1: [], 2: []}
    last_id, broken = "", 0
    deadline = time.monotonic() + 60
    while not done.is_set() or sum(map(len, seen.values())) < sum(map(len, written.values())):
        assert time.monotonic() < deadline, "not all of it came"
        with Listener(broker, "broken", last_id=last_id, from_="earliest") as listener:
            # Until the connection is cut in the middle of something.
            left_bytes = choice.randrange(1, 40_000)
            while left_bytes > 0 and sum(map(len, seen.values())) < sum(map(len, written.values())):
                before = left_bytes
                left_bytes -= listener.receive(min(left_bytes, 8192))
                for event in listener.received():
                    assert event.name in ("start", "record"), event
                    if event.name == "record":
                        value = base64.b64decode(event.data["value"]["base64"])
                        so_far = seen[event.data["partition"]]
                        assert event.data["offset"] == len(so_far), "lost or repeated"
                        so_far.append((event.data["offset"], value))
                assert left_bytes < before, "the broker closed the connection"
            last_id = listener.last_id
            broken += 1
    writer.join()
    assert seen == written
    assert broken >= 10
    assert broker.metric("tiered_fetched_cold_bytes_total") > 0, "nothing was read from the object store"


def test_listener_that_saw_no_record_resumes_from_where_it_began(quick: BrokerProcess) -> None:
    create(quick, "unseen", 2)
    produce(quick, "unseen", b"before")
    with Listener(quick, "unseen") as listener:
        start = next_event(listener, "start")
        assert start.id == "0:1,1:0"
    produce(quick, "unseen", b"meanwhile")
    produce(quick, "unseen", b"there", partition=1)
    with Listener(quick, "unseen", last_id=start.id) as listener:
        assert sorted(values_of(listener.records(2))) == [b"meanwhile", b"there"]


def test_record_arrives_at_every_listener_with_partition_and_position(quick: BrokerProcess) -> None:
    create(quick, "heard", 2)
    with Listener(quick, "heard") as first, Listener(quick, "heard", partition=1) as second:
        next_event(first, "start")
        start = next_event(second, "start").data
        assert start["positions"] == [{"partition": 1, "offset": 0}]
        assert start["topic_id"] == str(topic_id(quick, "heard"))
        produce(quick, "heard", b"zero", key=b"k")
        produce(quick, "heard", b"one", partition=1)
        heard = first.records(2)
        assert {each.data["partition"]: each.data["value"]["text"] for each in heard} == {0: "zero", 1: "one"}
        assert heard[-1].id == "0:1,1:1"
        (only,) = second.records(1)
        assert (only.data["offset"], only.data["value"]["text"], only.id) == (0, "one", "1:1")


def test_position_that_was_deleted_is_told_and_the_tail_goes_on(quick: BrokerProcess) -> None:
    create(quick, "deleted")
    produce(quick, "deleted", *(b"%d" % number for number in range(10)))
    delete_records(quick, "deleted", 6)
    with Listener(quick, "deleted", last_id="0:2") as listener:
        next_event(listener, "start")
        told = next_event(listener, "behind")
        assert (told.data["reason"], told.data["skipped"]) == ("deleted", True)
        assert told.data["partitions"] == [{"partition": 0, "from_offset": 2, "to_offset": 6}]
        assert told.id == "0:6"
        assert values_of(listener.records(4)) == [b"6", b"7", b"8", b"9"]


def test_position_beyond_the_end_is_told_and_the_tail_goes_on(quick: BrokerProcess) -> None:
    create(quick, "beyond")
    produce(quick, "beyond", b"only")
    with Listener(quick, "beyond", last_id="0:99") as listener:
        next_event(listener, "start")
        told = next_event(listener, "behind")
        assert told.data["reason"] == "truncated"
        assert told.id == "0:1"
        produce(quick, "beyond", b"next")
        assert values_of(listener.records(1)) == [b"next"]


def test_batch_that_cannot_be_shown_is_told_and_passed(quick: BrokerProcess) -> None:
    create(quick, "bomb")
    with RawConnection(quick, timeout_s=60) as connection:
        for data in (batch([b"before"]), batch([bytes(40 * MIB)], compression=Compression.ZSTD), batch([b"after"])):
            assert connection.produce("bomb", data).error_code == 0
    with Listener(quick, "bomb", from_="earliest") as listener:
        assert values_of(listener.records(1)) == [b"before"]
        told = next_event(listener, "behind")
        assert told.data["reason"] == "undecodable"
        assert told.data["partitions"] == [{"partition": 0, "from_offset": 1, "to_offset": 2}]
        assert values_of(listener.records(1)) == [b"after"]


# Filters


def test_filter_lets_exactly_its_keys_through(quick: BrokerProcess) -> None:
    create(quick, "filtered")
    for number in range(300):
        produce_key = [b"user-1", b"user-12", b"other", None][number % 4]
        produce(quick, "filtered", b"%d" % number, key=produce_key)
    with Listener(quick, "filtered", key="user-1", from_="earliest") as listener:
        assert values_of(listener.records(75)) == [b"%d" % number for number in range(0, 300, 4)]
    with Listener(quick, "filtered", key_prefix="user-", from_="earliest") as listener:
        assert values_of(listener.records(150)) == [b"%d" % number for number in range(300) if number % 4 < 2]


def test_heartbeat_moves_the_position_past_what_the_filter_held_back(quick: BrokerProcess) -> None:
    create(quick, "held")
    with Listener(quick, "held", key="wanted") as listener:
        next_event(listener, "start")
        produce(quick, "held", b"a", b"b", b"c", key=b"unwanted")
        while listener.last_id != "0:3":
            listener.receive(100)
            assert listener.received() == []
    produce(quick, "held", b"d", key=b"wanted")
    with Listener(quick, "held", key="wanted", last_id="0:3") as listener:
        (found,) = listener.records(1)
        assert found.data["offset"] == 3


# What happens to the topic


def test_new_partitions_are_followed_from_their_start(quick: BrokerProcess) -> None:
    create(quick, "growing", 1)
    with Listener(quick, "growing") as listener:
        next_event(listener, "start")
        namespace = messages.request(CREATE_PARTITIONS, 1)
        asked = namespace.CreatePartitionsTopic(name="growing", count=2, assignments=None)
        with RawConnection(quick, timeout_s=30) as connection:
            request = namespace.CreatePartitionsRequest(topics=(asked,), timeout=30_000, validate_only=False)
            assert connection.ask(CREATE_PARTITIONS, 1, request).results[0].error_code == 0
        produce(quick, "growing", b"first", partition=1)
        (found,) = listener.records(1)
        assert (found.data["partition"], found.data["offset"], found.id) == (1, 0, "0:0,1:1")
    with Listener(quick, "growing", last_id="0:0") as listener:
        assert values_of(listener.records(1)) == [b"first"]


def test_deleted_topic_ends_the_tail_and_says_so(quick: BrokerProcess) -> None:
    create(quick, "doomed")
    with Listener(quick, "doomed") as listener:
        next_event(listener, "start")
        ask(quick, "DELETE", "/topics/doomed")
        *_, last = listener.events()
        assert (last.name, last.data["reason"]) == ("end", "topic_deleted")


def test_stopping_broker_ends_the_tail_and_the_next_one_resumes_it(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker().start()
    create(broker, "stopped")
    with Listener(broker, "stopped") as listener:
        next_event(listener, "start")
        produce(broker, "stopped", b"one")
        listener.records(1)
        assert broker.stop() == 0
        *_, last = listener.events()
        assert (last.name, last.data["reason"], last.id) == ("end", "shutting_down", "0:1")
    broker.start()
    produce(broker, "stopped", b"two")
    with Listener(broker, "stopped", last_id=last.id) as listener:
        assert values_of(listener.records(1)) == [b"two"]


# Limits and bad input


def test_listeners_in_all_are_bounded_and_a_place_comes_free(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.http.max.streams": 3}).start()
    create(broker, "full")
    first, second = Listener(broker, "full"), Listener(broker, "full")
    with Listener(broker, "full") as third:
        assert third.status in (429, 503)
        assert "Retry-After" in third.headers
    assert broker.get("/readyz")["serving"]
    first.close()

    def has_room() -> bool:
        with Listener(broker, "full") as again:
            return again.status == 200

    eventually(has_room, "a listener that left makes room", broker)
    second.close()


@pytest.mark.parametrize(
    ("query", "names"),
    [
        ({"partition": "x"}, "partition"),
        ({"partition": "-1"}, "partition"),
        ({"partition": ""}, "partition"),
        ({"partition": "0,0"}, "partition"),
        ({"partition": "5"}, "partition"),
        ({"from_": "middle"}, "from"),
        ({"key": "a", "key_prefix": "a"}, "key_prefix"),
        ({"isolation": "none"}, "isolation"),
        ({"when_behind": "wait"}, "when_behind"),
        ({"field_bytes": "-1"}, "field_bytes"),
        ({"field_bytes": str(MIB)}, "field_bytes"),
        ({"last_event_id": "x"}, "Last-Event-ID"),
        ({"last_event_id": "0:-1"}, "Last-Event-ID"),
        ({"last_event_id": "0:1,0:2"}, "Last-Event-ID"),
        ({"last_event_id": "0:9223372036854775808"}, "Last-Event-ID"),
        ({"last_event_id": "7:0"}, "partition 7"),
    ],
)
def test_query_that_means_nothing_is_refused_by_name(
    quick: BrokerProcess, query: dict[str, object], names: str
) -> None:
    if ask(quick, "GET", "/topics/asked").status == 404:
        create(quick, "asked")
    with Listener(quick, "asked", **query) as listener:  # type: ignore[arg-type]
        assert listener.status in (400, 404)
        assert names in listener.body().decode()


def test_tail_of_too_many_partitions_asks_for_a_choice(quick: BrokerProcess) -> None:
    create(quick, "wide", 101)
    with Listener(quick, "wide") as listener:
        assert listener.status == 400
        assert "partition=" in listener.body().decode()
    with Listener(quick, "wide", partition="100,3") as listener:
        assert next_event(listener, "start").id == "3:0,100:0"


def test_internal_and_unknown_topics_have_no_tail(quick: BrokerProcess) -> None:
    for topic, status in (("__consumer_offsets", 400), ("unheard", 404)):
        with Listener(quick, topic) as listener:
            assert listener.status == status
