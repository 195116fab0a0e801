"""A start that is told to stop while it reads its logs ends soon, and the next one begins again and loses nothing."""

import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import STOP_S, BrokerProcess
from tests.components.brokers import WAIT_S
from tests.support.slow_disk import READ_S, READING, SLOW_DISK
from tiered.broker.host.marker import MARKER_FILE

Make = Callable[..., BrokerProcess]
PARTITIONS = 40
assert PARTITIONS * READ_S > 1.5 * STOP_S, "who reads them all is not done before the test gives up"


@pytest.mark.parametrize("has_marker", [True, False], ids=["recovery", "logs written again"])
def test_a_stop_does_not_wait_for_all_logs_of_an_unclean_start(make_broker: Make, has_marker: bool) -> None:
    broker = make_broker(settings={"num.io.threads": 1}).start()
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    admin.create_topics([NewTopic("orders", PARTITIONS)])["orders"].result(WAIT_S)
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for partition in range(PARTITIONS):
        producer.produce("orders", b"kept", partition=partition)
    assert producer.flush(WAIT_S) == 0
    broker.kill()
    marker = broker.data / MARKER_FILE
    if not has_marker:
        marker.unlink()

    broker.prefix = list(SLOW_DISK)
    said = Path(f"{broker.log_path}.slow")
    with said.open("w") as stderr:
        slow = subprocess.Popen(broker.command(), stdout=subprocess.PIPE, stderr=stderr)
    try:
        deadline = time.monotonic() + WAIT_S
        while READING not in said.read_text():
            assert slow.poll() is None, said.read_text()[-4000:]
            assert time.monotonic() < deadline, "it has begun to read its logs"
            time.sleep(0.05)
        slow.send_signal(signal.SIGTERM)
        out, _ = slow.communicate(timeout=STOP_S)
    finally:
        slow.kill()
    assert (slow.returncode, out) == (0, b"")
    assert "stopping before anybody was served" in said.read_text()
    assert marker.exists() is has_marker, "a start that wrote nothing again must not say so"

    broker.prefix = []
    broker.start()
    ends = [broker.segments("orders", partition)["log_end_offset"] for partition in range(PARTITIONS)]
    assert ends == [1] * PARTITIONS
