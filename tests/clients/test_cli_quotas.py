"""`tiered quotas` against a broker: what it sets it lists, and what cannot be set it says."""

import pytest

from tests.broker_process import BrokerProcess
from tests.support.command_line import Tiered


@pytest.fixture(scope="module")
def tiered(broker: BrokerProcess) -> Tiered:
    return Tiered(broker)


def test_quotas_are_set_listed_and_removed(tiered: Tiered) -> None:
    said = tiered.out("quotas", "set", "--user", "alice", "--client-id-default", "producer_byte_rate=1MiB")
    assert said == b"producer_byte_rate of user alice, client-id <default> set\n"
    tiered.out("quotas", "set", "--ip", "::1", "connection_creation_rate=5")
    tiered.out("quotas", "set", "--client-id", "app", "request_percentage=12.5", "consumer_byte_rate=10")
    assert tiered.json("quotas", "list", "--user", "alice") == [
        {"entity": {"user": "alice", "client-id": None}, "quotas": {"producer_byte_rate": 1048576.0}}
    ]
    lines = tiered.out("quotas", "list").decode().splitlines()
    assert [line.split() for line in lines] == [
        ["USER", "CLIENT-ID", "IP", "QUOTA", "VALUE"],
        ["-", "-", "::1", "connection_creation_rate", "5"],
        ["-", "app", "-", "consumer_byte_rate", "10"],
        ["-", "app", "-", "request_percentage", "12.5"],
        ["alice", "<default>", "-", "producer_byte_rate", "1048576"],
    ]
    tiered.out("quotas", "remove", "--client-id", "app", "request_percentage", "consumer_byte_rate")
    tiered.out("quotas", "remove", "--ip", "::1", "connection_creation_rate")
    assert tiered.out("quotas", "list", "--client-id", "app") == b"no quotas; `tiered quotas set` makes one\n"


def test_what_cannot_be_a_quota_is_said_and_not_set(tiered: Tiered) -> None:
    assert "greater than 0" in tiered.failure("quotas", "set", "--user", "bob", "producer_byte_rate=0")
    assert "producer_byte_rate" in tiered.failure("quotas", "set", "--user", "bob", "bytes=1")
    assert "say whose quotas" in tiered.failure("quotas", "set", "producer_byte_rate=1", code=2)
    with pytest.raises(SystemExit, match="2"):
        tiered.run("quotas", "set", "--user", "bob", "producer_byte_rate")
    tiered.out("quotas", "set", "--user", "bob", "producer_byte_rate=1", "--validate-only")
    assert tiered.json("quotas", "list", "--user", "bob") == []
