"""Debezium from a PostgreSQL: each change of a table is a record once, whatever is killed.

The change events of one poll and the position in PostgreSQL's log go into one transaction of Kafka Connect (KIP-618).
"""

import json
import random
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition

from tests.broker_process import BrokerProcess, free_port
from tests.clients.connect_worker import DEADLINE_S, Worker
from tests.clients.java_client import fetch_jars
from tests.postgres import PostgresServer
from tests.support.memory import folder_in_memory

pytestmark = [pytest.mark.interop, pytest.mark.timeout(600)]
KILLS = 3
ITEMS = 40
MANY_ITEMS = 5000
TOPIC = "shop.public.item"
DOCUMENT = Path(__file__).parents[2] / "docs/connect.md"
DOCUMENTED = json.loads(DOCUMENT.read_text().split("```json\n")[1].split("```")[0])["config"]
Change = tuple[str, int, int | None]
"""What was done (Debezium's letters, and `-` for a tombstone), to which item, and the version that this gave it."""


@pytest.fixture(scope="module")
def jars(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("debezium")
    fetch_jars("debezium.xml", folder)
    return folder


class Shop:
    """A table in a PostgreSQL of its own, with a login that may read its changes over loopback."""

    PASSWORD = "only-for-this-test"

    def __init__(self, folder: Path) -> None:
        self.port = free_port()
        access = folder / "pg_hba.conf"
        access.write_text("local all all trust\nhost all debezium 127.0.0.1/32 scram-sha-256\n")
        self._server = PostgresServer(
            folder,
            settings={"wal_level": "logical", "listen_addresses": "127.0.0.1", "port": self.port, "hba_file": access},
        )
        self._url = f"{self._server.url()}&port={self.port}"
        with self.connect() as conn:
            conn.execute("CREATE TABLE item (id int PRIMARY KEY, version int)")
            conn.execute("CREATE PUBLICATION dbz_publication FOR TABLE item")
            conn.execute(f"CREATE ROLE debezium LOGIN REPLICATION PASSWORD '{self.PASSWORD}'")
            conn.execute("GRANT SELECT ON item TO debezium")

    def connect(self) -> psycopg.Connection:
        """As its superuser."""
        return psycopg.connect(self._url)

    def stop(self) -> None:
        self._server.stop()

    def connector(self, **more: object) -> dict[str, object]:
        """What docs/connect.md tells Connect, for this server, and more."""
        return {
            **DOCUMENTED,
            "database.hostname": "127.0.0.1",
            "database.port": self.port,
            "database.password": self.PASSWORD,
            "database.dbname": "postgres",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "key.converter.schemas.enable": False,
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter.schemas.enable": False,
            **more,
        }


class Changes:
    """Inserts, updates and deletes items in small transactions until told to stop; some are rolled back."""

    def __init__(self, shop: Shop) -> None:
        self.done: list[Change] = []
        self._shop = shop
        self._versions: dict[int, int] = {}
        self._chance = random.Random(2)
        self._next = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._write)
        self._thread.start()

    def _write(self) -> None:
        with self._shop.connect() as conn:
            while not self._stopping.wait(0.02):
                versions, done = dict(self._versions), list[Change]()
                for _ in range(self._chance.randint(1, 5)):
                    done += self._change(conn, versions)
                if self._chance.random() < 0.2:
                    conn.rollback()
                else:
                    conn.commit()
                    self.done += done
                    self._versions = versions

    def _change(self, conn: psycopg.Connection, versions: dict[int, int]) -> list[Change]:
        item, version = self._chance.randrange(MANY_ITEMS, MANY_ITEMS + ITEMS), self._next
        self._next += 1
        if item not in versions:
            conn.execute("INSERT INTO item VALUES (%s, %s)", (item, version))
            versions[item] = version
            return [("c", item, version)]
        if self._chance.random() < 0.7:
            conn.execute("UPDATE item SET version = %s WHERE id = %s", (version, item))
            versions[item] = version
            return [("u", item, version)]
        conn.execute("DELETE FROM item WHERE id = %s", (item,))
        del versions[item]
        return [("d", item, None), ("-", item, None)]

    def finish(self) -> list[Change]:
        self._stopping.set()
        self._thread.join()
        return self.done


class Committed:
    """What a read_committed reader gets, from the beginning."""

    def __init__(self, bootstrap: str) -> None:
        self.changes: list[Change] = []
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition(TOPIC, 0, OFFSET_BEGINNING)])

    def await_count(self, count: int, worker: Worker) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while len(self.changes) < count:
            assert time.monotonic() < deadline, (len(self.changes), worker.ask("/connectors/shop/status"))
            self.read(0.5)

    def read(self, timeout_s: float) -> None:
        for message in self._consumer.consume(1000, timeout_s):
            if message.error() is None:
                self.changes.append(change(message.key() or b"", message.value()))


def change(key: bytes, value: bytes | None) -> Change:
    item = json.loads(key)["id"]
    if value is None:
        return "-", item, None
    event = json.loads(value)
    return event["op"], item, (event["after"] or {}).get("version")


@pytest.fixture
def shop() -> Iterator[Shop]:
    # Unix sockets have short names (107 bytes), pytest's folders long ones that only their owner enters.
    folder = folder_in_memory("tiered-pg-")
    made = None
    try:
        made = Shop(folder)
        yield made
    finally:
        if made is not None:
            made.stop()
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(settings={"group.initial.rebalance.delay.ms": 300}).start()


@pytest.fixture
def worker(jars: Path, broker: BrokerProcess, tmp_path: Path) -> Iterator[Worker]:
    made = Worker(jars, broker.bootstrap, tmp_path)
    made.start()
    yield made
    made.ensure_stopped()


def test_each_change_is_a_record_once_when_worker_and_broker_are_killed(
    shop: Shop, broker: BrokerProcess, worker: Worker
) -> None:
    with shop.connect() as conn:
        conn.execute("INSERT INTO item SELECT number, 0 FROM generate_series(0, 99) number")
    worker.ask("/connectors", {"name": "shop", "config": shop.connector()})
    found = Committed(broker.bootstrap)
    found.await_count(100, worker)
    changes = Changes(shop)
    try:
        chance = random.Random(1)
        for _ in range(KILLS):
            found.await_count(len(found.changes) + 1, worker)
            time.sleep(chance.uniform(0.1, 2.0))
            worker.kill()
            worker.start()
            found.read(0.0)
        found.await_count(len(found.changes) + 1, worker)
        time.sleep(chance.uniform(0.1, 2.0))
        broker.kill()
        broker.start()
    finally:
        done = changes.finish()
    found.await_count(100 + len(done), worker)
    found.read(1.0)
    assert found.changes == [("r", item, 0) for item in range(100)] + done


def test_a_snapshot_that_is_killed_begins_anew_and_loses_nothing(
    shop: Shop, broker: BrokerProcess, worker: Worker
) -> None:
    with shop.connect() as conn:
        conn.execute(f"INSERT INTO item SELECT number, 0 FROM generate_series(0, {MANY_ITEMS - 1}) number")
    slow = shop.connector(**{"max.batch.size": 20, "max.queue.size": 40})
    worker.ask("/connectors", {"name": "shop", "config": slow})
    found = Committed(broker.bootstrap)
    found.await_count(1, worker)
    worker.kill()
    found.read(1.0)
    before = len(found.changes)
    assert before < MANY_ITEMS, "it was not killed within the snapshot"

    changes = Changes(shop)
    try:
        worker.start()
        found.await_count(before + MANY_ITEMS, worker)
    finally:
        changes.finish()
    with shop.connect() as conn:
        rows: dict[int, int] = dict(conn.execute("SELECT id, version FROM item").fetchall())
        last = conn.execute("INSERT INTO item VALUES (-1, 0) RETURNING id").fetchone()
    assert last == (-1,)
    while found.changes[-1] != ("c", -1, 0):
        found.await_count(len(found.changes) + 1, worker)

    replayed = {item: version for _, item, version in found.changes[:-1]}
    assert {item: version for item, version in replayed.items() if version is not None} == rows
    assert [each for each in found.changes[before:] if each[0] == "r" and each[1] < MANY_ITEMS] == [
        ("r", item, 0) for item in range(MANY_ITEMS)
    ]
