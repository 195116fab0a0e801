"""Warnings about clients: what is logged once a minute, and what was left out."""

import pytest

from tests.unit.broker.context import SetClock
from tiered.server.kafka.transport.listener import ONCE_MS, _Complaints


def test_what_a_client_does_again_and_again_is_logged_once_a_minute_with_its_count(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = SetClock()
    complaints = _Complaints(clock)
    for second in range(61):
        clock.waited_ms = second * 1000
        complaints.once(("TLS", "10.0.0.7"), "connection from %s closed", "10.0.0.7")
        complaints.once(("TLS", second), "connection of another client %d", second)
    lines = [record.getMessage() for record in caplog.records if "10.0.0.7" in record.getMessage()]
    assert ONCE_MS == 60_000
    assert lines == [
        "connection from 10.0.0.7 closed",
        "connection from 10.0.0.7 closed (59 times more since the last such line)",
    ]
    assert len(caplog.records) == 2 + 61
