"""Records that come to somebody who listens over HTTP."""

import base64
from collections.abc import Iterator

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.listener import Event, Listener
from tests.clients.raw import RawConnection
from tiered.formats.record_batch import Record, encode_batch

MIB = 1 << 20


@pytest.fixture(scope="module")
def quick(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    """A broker that shows soon that a tail lives, and soon cuts off who does not read."""
    settings = {"tiered.tail.heartbeat.interval.ms": 200, "tiered.tail.stall.timeout.ms": 1500}
    process = BrokerProcess(tmp_path_factory.mktemp("quick") / "data", settings=settings).start()
    yield process
    process.ensure_stopped()


def produce(broker: BrokerProcess, topic: str, *values: bytes, partition: int = 0, key: bytes | None = None) -> None:
    records = [Record(offset=index, timestamp_ms=1, key=key, value=value) for index, value in enumerate(values)]
    with RawConnection(broker, timeout_s=60) as connection:
        answer = connection.produce(topic, encode_batch(records), partition=partition)
        assert answer.error_code == 0


def values_of(events: list[Event]) -> list[bytes]:
    return [base64.b64decode(event.data["value"]["base64"]) for event in events]


def next_event(listener: Listener, name: str) -> Event:
    """The next event, which must be of that name."""
    event = next(listener.events())
    assert event.name == name, event
    return event
