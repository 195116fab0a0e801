"""A PostgreSQL that was replaced by its state of before: nobody leads or gives out ids on it, everybody says what to
do, and with the newest state everything goes on. Three real brokers."""

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.brokers import Brokers
from tests.postgres import PostgresDatabases, PostgresServer
from tests.support.database_states import DatabaseStates
from tests.support.memory import folder_in_memory
from tiered.cli.main import main
from tiered.wire import messages

pytestmark = pytest.mark.slow

CHANGES = 30
INIT_PRODUCER_ID, COORDINATOR_LOAD_IN_PROGRESS = 22, 14


@pytest.fixture
def server() -> Iterator[PostgresServer]:
    folder = folder_in_memory("tiered-pg-")
    folder.chmod(0o755)
    made = PostgresServer(folder / "server")
    yield made
    made.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def brokers(server: PostgresServer, tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path, server.url(), settings={"min.insync.replicas": 2})
    made.start()
    yield made
    made.close()


def init_producer_id(connection: RawConnection) -> Any:
    request = messages.request(INIT_PRODUCER_ID, 1).InitProducerIdRequest(
        transactional_id=None, transaction_timeout=60_000
    )
    return connection.ask(INIT_PRODUCER_ID, 1, request)


def went_back(broker: BrokerProcess) -> bool:
    health = broker.health()
    return health["status"] == 503 and health["metadata_went_back"] is True


def test_nobody_serves_on_a_database_that_forgot_what_was_seen_in_it(
    server: PostgresServer, brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
    database = DatabaseStates(server, server.folder.parent)
    brokers.create("orders")
    database.keep("before")
    brokers.wait_whole("orders")
    first = [b"first-%d" % number for number in range(100)]
    assert brokers.produce("orders", first) == first
    for number in range(CHANGES):
        brokers.create(f"later-{number}")
    with RawConnection(brokers.by_id[2]) as connection:
        given = init_producer_id(connection).producer_id

    database.bring_back("before", keep="newest")
    brokers.wait(lambda: all(map(went_back, brokers.by_id.values())), "every broker knows that the database went back")
    one = brokers.by_id[1]
    main(["doctor", "--kafka", one.bootstrap, "--http", one.http.removeprefix("http://"), "--only", "broker"])
    assert "the metadata store has lost commits, so nothing is served" in capsys.readouterr().out
    for broker in brokers.by_id.values():
        assert "has lost commits" in broker.log()
        assert "When the database went back" in broker.log()
        with RawConnection(broker) as connection:
            assert init_producer_id(connection).error_code == COORDINATOR_LOAD_IN_PROGRESS
    with pytest.raises(KafkaException):
        refused = brokers.producer(**{"delivery.timeout.ms": 3_000})
        refused.produce("orders", b"refused", on_delivery=lambda error, _: _raise(error))
        refused.flush(20)
    for broker in brokers.by_id.values():
        broker.stop()
    with pytest.raises(AssertionError, match="has lost commits"):
        brokers.by_id[3].start()
    brokers.by_id[3].ensure_stopped()

    database.bring_back("newest", keep="refused")
    brokers.start()
    brokers.wait_whole("orders")
    assert brokers.read("orders") == first
    second = [b"second-%d" % number for number in range(100)]
    assert brokers.produce("orders", second) == second
    assert brokers.read("orders") == [*first, *second]
    with RawConnection(brokers.by_id[2]) as connection:
        assert init_producer_id(connection).producer_id > given


def test_without_the_newest_state_a_restore_with_the_disks_brings_everything_back(
    server: PostgresServer, brokers: Brokers, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    database = DatabaseStates(server, server.folder.parent)
    brokers.create("orders")
    database.keep("before")
    brokers.wait_whole("orders")
    first = [b"first-%d" % number for number in range(100)]
    assert brokers.produce("orders", first) == first
    brokers.by_id[1].kill()  # The others go on without it: what it has on its disk is not all.
    second = [b"second-%d" % number for number in range(100)]
    assert brokers.produce("orders", second) == second
    with RawConnection(brokers.by_id[2]) as connection:
        given = init_producer_id(connection).producer_id
    database.bring_back("before", keep="newest")
    alive = [brokers.by_id[2], brokers.by_id[3]]
    brokers.wait(lambda: all(map(went_back, alive)), "the brokers know that the database went back")
    for broker in alive:
        broker.stop()

    databases = PostgresDatabases(server.url())
    new_url = databases.create()
    databases.close()
    disks = [word for broker in brokers.by_id.values() for word in ("--disk", str(broker.data))]
    words = ["restore", "--from", f"file://{tmp_path}/objects", "--meta", new_url, *disks]
    words += ["--former-meta", brokers.meta_url, "--take-from-live-brokers"]
    assert main([*words, "--plan"]) == 0
    assert "0..199" in capsys.readouterr().out
    assert main([*words, "--apply"]) == 0
    restored = Brokers(tmp_path, new_url, settings=brokers.settings)
    try:
        restored.start()
        restored.wait_whole("orders")
        assert restored.read("orders") == [*first, *second]
        third = [b"third-%d" % number for number in range(100)]
        assert restored.produce("orders", third) == third
        with RawConnection(restored.by_id[3]) as connection:
            assert init_producer_id(connection).producer_id > given
        restored.by_id[restored.row("orders").leader].kill()
        assert restored.read("orders") == [*first, *second, *third]
    finally:
        restored.close()


def _raise(error: object) -> None:
    if error is not None:
        raise KafkaException(error)
