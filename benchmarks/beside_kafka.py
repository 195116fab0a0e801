"""Transactions and groups' offsets beside Apache Kafka, turn by turn: as many at a time as each can answer.

Owns the brokers and the order. Each has its own defaults: Apache Kafka leaves it to the kernel when anything is
written to the disk, and ours syncs each transition of a transaction and each committed offset, in SQL, before it
answers. So there are two more sides: the same Apache Kafka, told to sync these too, and ours on a PostgreSQL that does.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.coordinated import Asked
from benchmarks.scenarios import Run, Say
from benchmarks.systems import Tiered
from tests.apache_kafka import apache_kafka
from tests.postgres import PostgresServer

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

CLIENTS = (1, 100)
TRANSACTIONS, OFFSETS = "transactions", "offsets"
KAFKA, SYNCED_KAFKA = "kafka", "kafka, synced"
STATE_TOPICS = ("__transaction_state", "__consumer_offsets")
"""Where Apache Kafka keeps what ours has in SQL."""
GROUPS_PARTITIONS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """A broker that is asked."""

    name: str
    bootstrap: str
    pid: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scenario:
    """How many clients ask for what; `partitions` are the topic's."""

    what: str
    clients: int
    partitions: int

    @property
    def name(self) -> str:
        if self.what == "transactions":
            return f"transactions, producers: {self.clients}, partitions: {self.partitions}"
        return f"offset {self.what}, groups: {self.clients}"


def scenarios(suites: Collection[str]) -> list[Scenario]:
    """Those of the suites that are asked for."""
    of_transactions = [
        Scenario(what="transactions", clients=clients, partitions=partitions)
        for clients in CLIENTS
        for partitions in (1, 20)
    ]
    of_offsets = [
        Scenario(what=what, clients=clients, partitions=GROUPS_PARTITIONS)
        for what in ("commits", "fetches")
        for clients in CLIENTS
    ]
    return of_transactions * (TRANSACTIONS in suites) + of_offsets * (OFFSETS in suites)


def beside_kafka(
    folder: Path, suites: Collection[str], *, rounds: int, seconds: float, say: Say
) -> dict[str, dict[str, list[Run]]]:
    """By scenario and side, each run's numbers; a first round is dropped."""
    results: dict[str, dict[str, list[Run]]] = {}
    with _sides(folder) as sides:
        for scenario in scenarios(suites):
            for number in range(rounds + 1):
                for side in sides:
                    run = run_asked(
                        side, scenario, f"{scenario.what}-{scenario.clients}-{scenario.partitions}", seconds
                    )
                    if number:
                        results.setdefault(scenario.name, {}).setdefault(side.name, []).append(run)
                        say(f"{scenario.name:46}{side.name:20}{run['answers_per_s']:9,.0f}/s"
                            f"  p50 {run['p50_ms']:7.2f} ms  p99 {run['p99_ms']:7.2f} ms"
                            f"  broker's CPU {run['broker_cpu_ms']:.2f} ms")  # fmt: skip
    return results


def run_asked(side: Side, scenario: Scenario, topic: str, seconds: float) -> Run:
    """One run of the clients; the topic is made if it is not there."""
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": side.bootstrap, "log_level": 3})
    there = admin.list_topics(timeout=30).topics.keys()
    if topic not in there:
        admin.create_topics([NewTopic(topic, scenario.partitions, 1)])[topic].result(30)
    if side.name in (KAFKA, SYNCED_KAFKA):
        # Apache Kafka makes these topics when it is first asked, which the plain side is.
        for state_topic in there & set(STATE_TOPICS):
            _sync_each_record(admin, state_topic, side.name == SYNCED_KAFKA)
    asked = Asked(**asdict(scenario), bootstrap=side.bootstrap, topic=topic, seconds=seconds, pid=side.pid)
    options = [each for name, value in asdict(asked).items() if name != "what" for each in (f"--{name}", str(value))]
    command = [sys.executable, "-m", "benchmarks.coordinated", asked.what, *options]
    run = subprocess.run(command, capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(f"{scenario.name} on {side.name} failed: {run.stderr.strip()[-2000:]}")
    result: Run = json.loads(run.stdout)
    return result


def _sync_each_record(admin: "AdminClient", topic: str, syncs: bool) -> None:
    """Or, as by default, none."""
    from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

    operation = AlterConfigOpType.SET if syncs else AlterConfigOpType.DELETE
    entry = ConfigEntry("flush.messages", "1", incremental_operation=operation)
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(30)


@contextmanager
def _sides(folder: Path) -> Iterator[list[Side]]:
    """All of them, running."""
    # Unix sockets have short names, and the server's own user must be able to enter the folder.
    postgres_folder = Path(tempfile.mkdtemp(prefix="tiered-pg-"))
    with ExitStack() as running:
        running.callback(shutil.rmtree, postgres_folder, ignore_errors=True)
        server = PostgresServer(postgres_folder, durable=True)
        running.callback(server.stop)
        on_sqlite = Tiered(folder=folder / "sqlite")
        on_postgres = Tiered(
            folder=folder / "postgres",
            name="tiered, PostgreSQL",
            arguments=("--meta", server.url(), "--store", f"file://{folder / 'objects'}"),
        )
        kafka = running.enter_context(apache_kafka(folder / "kafka"))
        for broker in (on_sqlite, on_postgres):
            running.callback(broker.kill)
            broker.start()
        yield [
            *(Side(name=each, bootstrap=kafka.bootstrap, pid=kafka.pid) for each in (KAFKA, SYNCED_KAFKA)),
            *(Side(name=each.name, bootstrap=each.bootstrap, pid=each.pid) for each in (on_sqlite, on_postgres)),
        ]
