"""What other users of the machine can read of a broker's data."""

from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tiered.cold.chunks import files


def test_the_database_with_the_keys_of_users_is_the_brokers_alone(broker: BrokerProcess) -> None:
    found = {path.name: path.stat().st_mode & 0o777 for path in broker.data.glob("meta.db*")}
    assert "meta.db" in found
    assert set(found.values()) == {0o600}, found


def test_records_on_the_disk_are_the_brokers_alone(broker: BrokerProcess) -> None:
    assert (broker.data / "log").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("name", ["incarnations.json", "owner.json"])
def test_the_proof_of_being_this_broker_is_the_brokers_alone(broker: BrokerProcess, name: str) -> None:
    assert (broker.data / name).stat().st_mode & 0o777 == 0o600


def test_chunks_in_the_cache_are_the_brokers_alone(tmp_path: Path) -> None:
    files.wiped(tmp_path / "cache")
    assert (tmp_path / "cache").stat().st_mode & 0o777 == 0o700
