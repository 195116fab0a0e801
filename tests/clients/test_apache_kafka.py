"""The Apache Kafka that others are compared with and mirrored from."""

import time
from pathlib import Path

import pytest

from tests.apache_kafka import apache_kafka
from tests.clients.clients import Sent, confluent_produce, confluent_read

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]


def test_it_keeps_what_a_client_produced_over_a_restart(tmp_path: Path) -> None:
    sent = [Sent(None, f"{number}".encode(), (), int(time.time() * 1000)) for number in range(10)]
    with apache_kafka(tmp_path) as kafka:
        confluent_produce(kafka.bootstrap, "t", "none", sent)
        kafka.stop()
        kafka.start()
        assert confluent_read(kafka.bootstrap, "t", len(sent)) == sent
