"""A PostgreSQL that was replaced by its state of before: nobody leads or gives out ids on it, everybody says what to
do, and with the newest state everything goes on. Three real brokers."""

import json
import shutil
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.broker_process import BrokerProcess
from tests.clients.raw import RawConnection
from tests.components.brokers import Brokers
from tests.postgres import PostgresServer
from tests.support.memory import folder_in_memory
from tiered.cli.main import main
from tiered.wire import messages

pytestmark = pytest.mark.slow

CHANGES = 30
INIT_PRODUCER_ID, COORDINATOR_LOAD_IN_PROGRESS = 22, 14


class Database:
    """One server, whose whole state can be kept and brought back while it is stopped."""

    def __init__(self, folder: Path) -> None:
        self.server = PostgresServer(folder / "server")
        self._folder = folder

    def keep(self, name: str) -> None:
        self.server.stop("fast")
        self._copy(self.server.data, self._folder / name)
        self.server.start()

    def bring_back(self, name: str, *, keep: str) -> None:
        self.server.stop("fast")
        self.server.data.rename(self._folder / keep)
        self._copy(self._folder / name, self.server.data)
        self.server.start()

    @staticmethod
    def _copy(source: Path, target: Path) -> None:
        subprocess.run(["cp", "-a", str(source), str(target)], check=True)


@pytest.fixture
def database() -> Iterator[Database]:
    folder = folder_in_memory("tiered-pg-")
    folder.chmod(0o755)
    made = Database(folder)
    yield made
    made.server.stop()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def brokers(database: Database, tmp_path: Path) -> Iterator[Brokers]:
    made = Brokers(tmp_path, database.server.url(), settings={"min.insync.replicas": 2})
    made.start()
    yield made
    made.close()


def ready(broker: BrokerProcess) -> dict[str, Any]:
    try:
        with urllib.request.urlopen(f"{broker.http}/readyz", timeout=10) as answer:
            return {"status": 200, **json.load(answer)}
    except urllib.error.HTTPError as error:
        return {"status": error.code, **json.load(error)}


def init_producer_id(connection: RawConnection) -> Any:
    request = messages.request(INIT_PRODUCER_ID, 1).InitProducerIdRequest(
        transactional_id=None, transaction_timeout=60_000
    )
    return connection.ask(INIT_PRODUCER_ID, 1, request)


def went_back(broker: BrokerProcess) -> bool:
    health = ready(broker)
    return health["status"] == 503 and health["metadata_went_back"] is True


def test_nobody_serves_on_a_database_that_forgot_what_was_seen_in_it(
    database: Database, brokers: Brokers, capsys: pytest.CaptureFixture[str]
) -> None:
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


def _raise(error: object) -> None:
    if error is not None:
        raise KafkaException(error)
