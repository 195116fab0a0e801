"""Too many connections, connections that speak something else, and what the log says of them."""

import struct
import time

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.batches import batch
from tests.support.hostile_frames import API_VERSIONS, METADATA
from tests.support.topics import create
from tiered.wire import messages


def test_connections_from_one_address_are_capped_by_a_setting_of_their_own(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(settings={"max.connections.per.ip": 2}).start()
    with RawConnection(process) as first, RawConnection(process) as second:
        assert len(first.call(API_VERSIONS, 0, b"")) > 10
        assert len(second.call(API_VERSIONS, 0, b"")) > 10
        with RawConnection(process) as refused:
            assert refused.is_closed_by_broker()
    deadline = time.monotonic() + 30
    while True:  # Places become free again.
        with RawConnection(process) as again:
            try:
                assert len(again.call(API_VERSIONS, 0, b"")) > 10
                return
            except OSError:
                assert time.monotonic() < deadline
                time.sleep(0.05)


def test_connections_leave_open_files_for_the_log(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker(prefix=["prlimit", "--nofile=250:250"]).start()
    create(process, "still-there")
    with RawConnection(process) as early:
        crowd = [RawConnection(process) for _ in range(300)]
        time.sleep(0.5)
        assert early.produce("still-there", batch()).error_code == 0
        create_more = messages.request(METADATA, 4)
        asked = [create_more.MetadataRequestTopic(name="one-more")]
        answer = early.ask(METADATA, 4, create_more.MetadataRequest(topics=asked, allow_auto_topic_creation=True))
        assert int(answer.topics[0].error_code) == 0
        for each in crowd:
            each.close()
        time.sleep(0.5)
        with RawConnection(process) as late:
            assert len(late.call(API_VERSIONS, 0, b"")) > 10
    assert "the limit of open files" in process.log()


@pytest.mark.parametrize(
    ("sent", "said"),
    [(b"GET /metrics HTTP/1.1\r\n\r\n", "this is an HTTP request"), (b"\x16\x03\x01\x02\x00\x01", "speaks TLS")],
)
def test_who_speaks_another_protocol_is_said_to_in_the_log(broker: BrokerProcess, sent: bytes, said: str) -> None:
    with RawConnection(broker) as connection:
        connection.send_bytes(sent)
        assert connection.is_closed_by_broker()
    assert said in broker.log()


def test_complaints_about_clients_do_not_fill_the_log(make_broker) -> None:  # type: ignore[no-untyped-def]
    process = make_broker().start()
    for _ in range(300):
        with RawConnection(process) as connection:
            connection.send_bytes(struct.pack(">i", -1))
            assert connection.is_closed_by_broker()
    assert process.log().count("connection from") <= 80
