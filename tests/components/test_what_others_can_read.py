"""What other users of the machine can read of a broker's data."""

from tests.broker_process import BrokerProcess


def test_the_database_with_the_keys_of_users_is_the_brokers_alone(broker: BrokerProcess) -> None:
    found = {path.name: path.stat().st_mode & 0o777 for path in broker.data.glob("meta.db*")}
    assert "meta.db" in found
    assert set(found.values()) == {0o600}, found
