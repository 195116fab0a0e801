"""The brokers that are compared: ours and Apache Kafka's, as many of each as a cell asks for.

Owns their start and stop. All are on their defaults, which leave it to the kernel when a record is written to the disk;
all that a cluster of ours needs beside it is a PostgreSQL that syncs.
"""

import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.cold_reading import SMALL_CACHE
from benchmarks.kafka.cells import THREE
from benchmarks.machine import cpu_seconds
from benchmarks.systems import Kafka, Tiered, create_topic, delete_topic
from tests.apache_kafka import ApacheKafka
from tests.certificates import Authority
from tests.postgres import PostgresServer

OURS, KAFKAS = "tiered", "kafka"
RUNNING, TIERED, READ_AGAIN, POLLING = "running", "tiered", "read-again", "polling"
"""Kinds of brokers: on their defaults; that move what is old to a folder, and look for it often; that do so, and our
cache is too small for what is read twice, while Apache Kafka has none; of which ours polls before it sleeps."""
TIERED_JARS = "jars-tiered"
"""Jars of the last Apache Kafka release that loads LocalTieredStorage."""
LISTENER = "SECURE"
KEPT = {"retention.ms": "-1"}
# Deleted records would fill the disk for a minute.
_OFTEN = {"log.retention.check.interval.ms": "500", "tiered.upload.interval.ms": "200"}
_SETTINGS: dict[str, dict[str, str]] = {
    RUNNING: {},
    TIERED: _OFTEN,
    READ_AGAIN: _OFTEN | SMALL_CACHE,
    POLLING: {"tiered.idle.poll.us": "2000"},
}
_COLD = {
    "remote.storage.enable": "true",
    "segment.bytes": str(16 << 20),
    "segment.ms": "2000",
    "retention.ms": "-1",
    "local.retention.ms": "1",
}
_KAFKA_SETTINGS: dict[str, object] = {"log.segment.delete.delay.ms": 1000}


@dataclass(slots=True, kw_only=True)
class Side:
    """What is loaded: the brokers that serve one topic."""

    name: str
    brokers: Sequence[Tiered | Kafka]
    ca: str = ""
    """Who signs for the listener over TLS, if there is one."""
    jars: Path
    """Apache Kafka's, in which its load tools are."""

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def secured(self) -> str:
        broker = self.brokers[0]
        return broker.broker.tls if isinstance(broker, Kafka) else broker.listeners[LISTENER]

    @property
    def pid(self) -> int:
        return self.brokers[0].pid

    def cpu_seconds(self) -> float:
        return sum(cpu_seconds(broker.pid) for broker in self.brokers)

    def create(self, topic: str, partitions: int, *, is_cold: bool = False) -> None:
        configs = _COLD if is_cold else KEPT | ({"remote.storage.enable": "false"} if self.name == OURS else {})
        if len(self.brokers) > 1:
            configs = configs | {"min.insync.replicas": "2"}
        create_topic(self.bootstrap, topic, configs, partitions=partitions, copies=len(self.brokers))

    def local_bytes(self) -> int:
        """How much of all logs is on the broker's own disk."""
        (broker,) = self.brokers
        folder = broker.broker.folder if isinstance(broker, Kafka) else broker.folder
        return sum(path.stat().st_size for path in (folder / "data").rglob("*.log"))

    def delete(self, topic: str) -> None:
        delete_topic(self.bootstrap, topic)


def alone(folder: Path, jars: Path, kind: str = RUNNING) -> list[Side]:
    """One broker of each, on empty folders, that does not run yet. Each has a listener over TLS as well. Ours moves
    what is old to a folder in any case, at leisure."""
    authority = Authority(folder / "certificates")
    key_store = str(authority.sign("broker").both)
    ours = Tiered(
        folder=folder / OURS,
        arguments=("--listener", f"{LISTENER}=SSL://127.0.0.1:0"),
        settings={"ssl.keystore.location": key_store} | _SETTINGS[kind],
    )
    settings = _KAFKA_SETTINGS | (_kafka_tiering(folder) if kind in (TIERED, READ_AGAIN) else {})
    settings |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": key_store}
    kafka = Kafka(broker=ApacheKafka(jars, folder / KAFKAS, settings, over_tls=True))
    ca = str(authority.pem)
    return [Side(name=OURS, brokers=[ours], ca=ca, jars=jars), Side(name=KAFKAS, brokers=[kafka], ca=ca, jars=jars)]


def _kafka_tiering(folder: Path) -> dict[str, object]:
    """The store that Apache Kafka tests its tiers with: plain files, which it reads back as they are."""
    return {
        "log.retention.check.interval.ms": 500,
        "remote.log.manager.task.interval.ms": 500,
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.manager.class.name": "org.apache.kafka.server.log.remote.storage.LocalTieredStorage",
        "remote.log.storage.manager.impl.prefix": "rsm.config.",
        "rsm.config.dir": folder / "kafka-store",
        "remote.log.metadata.manager.listener.name": "PLAINTEXT",
        "remote.log.metadata.manager.impl.prefix": "rlmm.config.",
        "rlmm.config.remote.log.metadata.topic.replication.factor": 1,
        "rlmm.config.remote.log.metadata.topic.num.partitions": 1,
    }


@contextmanager
def running(folder: Path, jars: Path, brokers: int, kind: str = RUNNING) -> Iterator[list[Side]]:
    """Both sides, running: of one broker each, or of three with each record on all of them."""
    with ExitStack() as stack:
        if kind in (TIERED, READ_AGAIN):
            jars = jars.with_name(TIERED_JARS)
        sides = alone(folder, jars, kind) if brokers == 1 else _clusters(folder, jars, stack)
        for side in sides:
            for broker in side.brokers:
                broker.start()
                stack.callback(broker.kill)
        yield sides


def _clusters(folder: Path, jars: Path, stack: ExitStack) -> list[Side]:
    # Unix sockets have short names, and the server's own user must be able to enter the folder.
    postgres_folder = Path(tempfile.mkdtemp(prefix="tiered-pg-"))
    stack.callback(shutil.rmtree, postgres_folder, ignore_errors=True)
    server = PostgresServer(postgres_folder, durable=True)
    stack.callback(server.stop)
    ours = [
        Tiered(
            folder=folder / f"{OURS}-{number}",
            arguments=(
                *("--broker-id", str(number), "--rack", f"rack-{number}"),
                *("--meta", server.url(), "--store", f"file://{folder / 'objects'}"),
            ),
        )
        for number in range(1, THREE + 1)
    ]
    first = ApacheKafka(jars, folder / f"{KAFKAS}-1", _KAFKA_SETTINGS)
    others = [
        ApacheKafka(jars, folder / f"{KAFKAS}-{number}", _KAFKA_SETTINGS | {"node.id": number}, joins=first)
        for number in range(2, THREE + 1)
    ]
    kafkas = [Kafka(broker=each) for each in (first, *others)]
    return [Side(name=OURS, brokers=ours, jars=jars), Side(name=KAFKAS, brokers=kafkas, jars=jars)]
