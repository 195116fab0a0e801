"""Records over HTTP: pages of both tiers, by offset and by time, within limits whatever a producer sent."""

import base64
import contextlib
import json
import socket
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.http_api import Answer, ask
from tests.clients.listener import Listener
from tests.clients.raw import RawConnection
from tests.components.batches import FIRST_MS, batch
from tests.components.tiers import create, eventually, fill
from tiered.formats.record_batch import Compression, Record, encode_batch

MIB = 1 << 20


def produce(broker: BrokerProcess, topic: str, data: bytes, partition: int = 0) -> None:
    with RawConnection(broker, timeout_s=60) as connection:
        assert connection.produce(topic, data, partition=partition).error_code == 0


def page(broker: BrokerProcess, topic: str, query: str = "") -> Answer:
    return ask(broker, "GET", f"/topics/{topic}/records?{query}")


def offsets(answer: Answer) -> list[int]:
    assert answer.status == 200, answer
    return [each["offset"] for each in answer.body["records"]]


def all_records(broker: BrokerProcess, topic: str, query: str) -> list[dict[str, Any]]:
    """Every record, page by page."""
    found: list[dict[str, Any]] = []
    offset = 0
    while True:
        answer = page(broker, topic, f"offset={offset}&{query}")
        assert answer.status == 200, answer
        found += answer.body["records"]
        if answer.body["is_end"]:
            return found
        assert answer.body["next_offset"] > offset, "a page makes no progress"
        offset = answer.body["next_offset"]


def test_record_is_shown_with_all_that_it_has(broker: BrokerProcess) -> None:
    create(broker, "shown")
    headers = (("trace", b"\x00\xff"), ("empty", None), ("trace", b"again"))
    records = [
        Record(offset=0, timestamp_ms=FIRST_MS, key="schlüssel".encode(), value=b'{"a": 1}', headers=headers),
        Record(offset=1, timestamp_ms=FIRST_MS + 1, key=None, value=None),
        Record(offset=2, timestamp_ms=FIRST_MS + 2, key=b"\xc3\x28", value=b""),
    ]
    produce(broker, "shown", encode_batch(records, compression=Compression.ZSTD))
    found = page(broker, "shown").body
    first, second, third = found["records"]
    assert (found["next_offset"], found["high_watermark"], found["log_start_offset"]) == (3, 3, 0)
    assert (first["offset"], first["timestamp_ms"], first["timestamp_type"]) == (0, FIRST_MS, "CreateTime")
    assert first["key"]["text"] == "schlüssel"
    assert first["key"]["size_bytes"] == 10
    assert base64.b64decode(first["value"]["base64"]) == b'{"a": 1}'
    assert [each["key"] for each in first["headers"]] == ["trace", "empty", "trace"]
    assert first["headers"][0]["value"]["text"] is None
    assert base64.b64decode(first["headers"][0]["value"]["base64"]) == b"\x00\xff"
    assert first["headers"][1]["value"] is None
    assert second["key"] is second["value"] is None
    assert third["key"]["text"] is None
    assert third["value"] == {"text": "", "base64": "", "size_bytes": 0, "truncated": False}


def test_offset_may_be_a_number_a_name_a_count_from_the_end_or_a_time(broker: BrokerProcess) -> None:
    create(broker, "where", 2)
    for _ in range(3):
        produce(broker, "where", batch([b"a", b"b", b"c", b"d"]), partition=1)
    assert offsets(page(broker, "where", "partition=1")) == list(range(12))
    assert offsets(page(broker, "where", "partition=1&offset=earliest&limit=2")) == [0, 1]
    assert offsets(page(broker, "where", "partition=1&offset=5&limit=2")) == [5, 6]
    assert offsets(page(broker, "where", "partition=1&offset=-3")) == [9, 10, 11]
    assert offsets(page(broker, "where", "partition=1&offset=-300&limit=1")) == [0]
    assert offsets(page(broker, "where", "partition=1&offset=latest")) == []
    assert offsets(page(broker, "where", "partition=1&offset=12")) == []
    assert offsets(page(broker, "where", f"partition=1&timestamp_ms={FIRST_MS + 1500}&limit=1")) == [2]
    assert offsets(page(broker, "where", f"partition=1&timestamp_ms={FIRST_MS + 10**9}")) == []
    assert offsets(page(broker, "where", "partition=1&isolation=read_committed&offset=-1")) == [11]
    assert offsets(page(broker, "where", "partition=0")) == []


@pytest.mark.parametrize(
    ("query", "status", "names"),
    [
        ("offset=x", 400, "offset"),
        ("offset=1.5", 400, "offset"),
        ("offset=99999999999999999999", 400, "offset"),
        ("offset=9223372036854775808", 400, "offset"),
        ("offset=--1", 400, "offset"),
        ("offset=%D9%A1", 400, "offset"),
        ("offset=4", 416, "0 to 3"),
        ("offset=9223372036854775807", 416, "0 to 3"),
        ("offset=1&offset=2", 400, "offset"),
        ("offset=1&timestamp_ms=5", 400, "timestamp_ms"),
        ("timestamp_ms=-1", 400, "timestamp_ms"),
        ("limit=0", 400, "limit"),
        ("limit=1001", 400, "limit"),
        ("limit=many", 400, "limit"),
        ("isolation=serializable", 400, "isolation"),
        ("field_bytes=-1", 400, "field_bytes"),
        (f"field_bytes={MIB + 1}", 400, "field_bytes"),
        ("partition=1", 404, "partition"),
        ("partition=-1", 400, "partition"),
        ("partition=2147483648", 400, "partition"),
        ("partition=", 400, "partition"),
    ],
)
def test_query_that_means_nothing_is_refused_by_name(
    broker: BrokerProcess, query: str, status: int, names: str
) -> None:
    if ask(broker, "GET", "/topics/asked").status == 404:
        create(broker, "asked")
        produce(broker, "asked", batch([b"a", b"b", b"c"]))
    answer = page(broker, "asked", query)
    assert answer.status == status, answer
    assert names in answer.message


def test_internal_and_unknown_topics_have_no_records(broker: BrokerProcess) -> None:
    assert page(broker, "__consumer_offsets").status == 400
    assert page(broker, "unheard").status == 404


def test_pages_cross_both_tiers_without_a_seam(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.upload.interval.ms": 50}).start()
    create(broker, "tiers", remote_copy_lag_ms=0, segment_bytes=4000, local_retention_bytes=1)
    written = fill(broker, "tiers", 30)
    broker.wait_cold("tiers", end_offset=broker.segments("tiers")["segments"][-1]["base_offset"], only=True)
    state = broker.segments("tiers")
    assert 0 < state["local_log_start_offset"] < 30
    for limit in (1, 7, 1000):
        found = all_records(broker, "tiers", f"limit={limit}")
        assert [(each["offset"], base64.b64decode(each["value"]["base64"])) for each in found] == written
    assert offsets(page(broker, "tiers", f"offset={state['local_log_start_offset'] - 1}&limit=2")) == [
        state["local_log_start_offset"] - 1,
        state["local_log_start_offset"],
    ]


def test_catalogue_goes_on_after_any_segment_of_either_tier(make_broker: Callable[..., BrokerProcess]) -> None:
    broker = make_broker(settings={"tiered.upload.interval.ms": 50}).start()
    create(broker, "tiers", remote_copy_lag_ms=0, segment_bytes=4000, local_retention_bytes=12_000)
    fill(broker, "tiers", 30)
    broker.wait_cold("tiers", end_offset=broker.segments("tiers")["segments"][-1]["base_offset"])
    eventually(lambda: broker.segments("tiers")["local_log_start_offset"] > 0, "the oldest are only cold", broker)
    whole = broker.segments("tiers")["segments"]
    assert [each["base_offset"] for each in whole[1:]] == [each["end_offset"] for each in whole[:-1]]
    assert {each["tier"] for each in whole} == {"cold", "both", "hot"}
    for start_offset in range(31):
        rest = broker.get(f"/api/v1/topics/tiers/partitions/0/segments?start_offset={start_offset}")["segments"]
        assert rest == [each for each in whole if each["end_offset"] > start_offset]


def test_page_is_bounded_in_bytes_and_goes_on_where_it_ended(broker: BrokerProcess) -> None:
    create(broker, "large")
    values = [bytes([65 + number]) * 400_000 for number in range(20)]
    for value in values:
        produce(broker, "large", batch([value]))
    first = page(broker, "large", f"field_bytes={MIB}")
    assert 1 <= len(first.body["records"]) < 20
    assert not first.body["is_end"]
    found = all_records(broker, "large", f"field_bytes={MIB}")
    assert [base64.b64decode(each["value"]["base64"]) for each in found] == values


def test_batch_of_very_many_records_is_paged_within_it(broker: BrokerProcess) -> None:
    create(broker, "many")
    produce(broker, "many", batch([b"%d" % number for number in range(5000)], compression=Compression.LZ4))
    found = all_records(broker, "many", "limit=1000")
    assert [each["value"]["text"] for each in found] == [str(number) for number in range(5000)]


def test_record_that_decompresses_beyond_the_bound_is_named_and_can_be_passed(broker: BrokerProcess) -> None:
    create(broker, "bomb")
    produce(broker, "bomb", batch([b"before"]))
    produce(broker, "bomb", batch([bytes(40 * MIB)], compression=Compression.ZSTD))
    produce(broker, "bomb", batch([b"after"]))
    assert offsets(page(broker, "bomb")) == [0]
    answer = page(broker, "bomb", "offset=1")
    assert answer.status == 500
    assert "offset 2" in answer.message
    assert offsets(page(broker, "bomb", "offset=2")) == [2]


def test_time_that_the_broker_stamped_is_shown_as_its_own(broker: BrokerProcess) -> None:
    create(broker, "stamped", message_timestamp_type="LogAppendTime")
    before_ms = int(time.time() * 1000)
    produce(broker, "stamped", batch([b"now"]))
    (record,) = page(broker, "stamped").body["records"]
    assert record["timestamp_type"] == "LogAppendTime"
    assert record["timestamp_ms"] >= before_ms


def test_page_that_nobody_fetches_is_dropped_at_the_deadline(make_broker: Callable[..., BrokerProcess]) -> None:
    # Long enough for a busy machine to make the page: only its delivery is to pass the deadline.
    broker = make_broker(settings={"tiered.http.request.timeout.ms": 4000}).start()
    create(broker, "unfetched")
    # As JSON it is seven times as large: more than the sockets hold between us.
    produce(broker, "unfetched", batch([bytes(1_000_000)]))
    with socket.socket() as client:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        client.settimeout(20)
        client.connect(("127.0.0.1", broker.http_port))
        path = f"/api/v1/topics/unfetched/records?field_bytes={MIB}"
        client.sendall(f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        # In its own time the broker gives up; what we have not fetched by then is not kept for us.
        time.sleep(6)
        received = 0
        with contextlib.suppress(ConnectionResetError):
            while piece := client.recv(1 << 20):
                received += len(piece)
    whole = len(json.dumps(page(broker, "unfetched", f"field_bytes={MIB}").body))
    assert 0 < received < whole
    assert "Traceback" not in broker.log()


def test_records_are_deleted_before_an_offset_and_never_above_the_high_watermark(broker: BrokerProcess) -> None:
    create(broker, "shorter")
    fill(broker, "shorter", 5)
    end = ask(broker, "GET", "/topics/shorter").body["partitions"][0]["high_watermark"]
    path = "/topics/shorter/partitions/0/delete-records"
    for before, status in ((end + 1, 416), (-2, 400), ("x", 400)):
        assert ask(broker, "POST", path, {"before_offset": before}).status == status
    assert ask(broker, "POST", "/topics/shorter/partitions/7/delete-records", {"before_offset": 1}).status == 404
    assert offsets(page(broker, "shorter"))[0] == 0
    for before, start in ((2, 2), (1, 2), (-1, end)):
        assert ask(broker, "POST", path, {"before_offset": before}).body["log_start_offset"] == start
    assert offsets(page(broker, "shorter")) == []


# The newest of all partitions


def test_the_newest_of_all_partitions_come_in_order_of_time_and_a_tail_goes_on_behind_them(
    broker: BrokerProcess,
) -> None:
    create(broker, "newest", 3)
    assert ask(broker, "GET", "/topics/newest/newest").body["records"] == []
    for number in range(9):
        produce(broker, "newest", batch([b"%d" % number], first_ms=FIRST_MS + 1000 * number), partition=number % 3)
    answer = ask(broker, "GET", "/topics/newest/newest?limit=4").body
    assert [record["value"]["text"] for record in answer["records"]] == ["5", "6", "7", "8"]
    assert [record["partition"] for record in answer["records"]] == [2, 0, 1, 2]
    assert (answer["last_event_id"], answer["problems"]) == ("0:3,1:3,2:3", [])
    with Listener(broker, "newest", last_id=answer["last_event_id"]) as listener:
        produce(broker, "newest", batch([b"later"]), partition=1)
        (event,) = listener.records(1)
    assert (event.data["partition"], event.data["value"]["text"]) == (1, "later")
    some = ask(broker, "GET", "/topics/newest/newest?partition=0,2&limit=2").body
    assert [record["value"]["text"] for record in some["records"]] == ["6", "8"]
    assert some["last_event_id"] == "0:3,2:3"


def test_the_newest_are_bounded_in_bytes_and_none_is_lost_between_them_and_the_tail(broker: BrokerProcess) -> None:
    create(broker, "wide", 2)
    for number in range(12):
        produce(broker, "wide", batch([b"x" * 200_000], first_ms=FIRST_MS + number), partition=number % 2)
    answer = ask(broker, "GET", "/topics/wide/newest?field_bytes=262144").body
    last = {record["partition"]: record["offset"] for record in answer["records"]}
    assert 0 < len(answer["records"]) < 6
    assert sum(len(json.dumps(record)) for record in answer["records"]) < 2 * MIB
    for position in answer["last_event_id"].split(","):
        partition, offset = map(int, position.split(":"))
        assert last.get(partition, offset - 1) == offset - 1, answer["last_event_id"]


def test_a_batch_that_cannot_be_shown_is_named_beside_the_newest(broker: BrokerProcess) -> None:
    create(broker, "spoilt")
    produce(broker, "spoilt", batch([bytes(40 * MIB)], compression=Compression.ZSTD))
    produce(broker, "spoilt", batch([b"after"]))
    answer = ask(broker, "GET", "/topics/spoilt/newest").body
    assert [record["value"]["text"] for record in answer["records"]] == ["after"]
    assert "offsets 0 to 0" in answer["problems"][0]["message"]
