"""Apache Flink's exactly-once sink: each order is copied once and in its order, whatever is killed.

Flink leaves its transactions open while it makes a checkpoint, and commits them afterwards. After a kill another
process does, under the producer ids and epochs that the checkpoint names; what was begun since, it aborts.
"""

import random
import re
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.foreign_tools import tool
from tests.clients.java_client import compiled
from tests.clients.orders import Order, Orders

pytestmark = [pytest.mark.interop, pytest.mark.timeout(900)]
PARTITIONS = 4
KEYS = 12
KILLS = 2
MAX_KILLS = 10
"""Until one came between a checkpoint and its commits, as about half of them do."""
SUBTASKS = 2
"""The job's parallelism."""
DEADLINE_S = 180.0
"""Far below the job's `transaction.timeout.ms`, so that no time-out ends what Flink should."""
RESUMED = re.compile(r"resume transaction (\S+) with producerId (\d+) and epoch (\d+)")


@dataclass(frozen=True, slots=True)
class Release:
    """Of Flink and its connector; `naming` is how the sink names transactional ids, empty where it knows one way."""

    flink: str
    connector: str
    naming: str = ""


@dataclass(frozen=True, slots=True)
class Open:
    """A transaction that is open."""

    transactional_id: str
    producer_id: int
    producer_epoch: int


@pytest.fixture(
    scope="module",
    params=[
        Release("2.2.0", "5.0.0-2.2", "INCREMENTING"),
        Release("2.2.0", "5.0.0-2.2", "POOLING"),
        Release("1.20.3", "3.4.0-1.20"),
    ],
    ids=lambda each: f"{each.flink}-{each.naming}",
)
def release(request: pytest.FixtureRequest) -> Release:
    found: Release = request.param
    return found


@pytest.fixture(scope="module")
def built(release: Release, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Flink from Maven Central, and our job compiled against it."""
    options = f"-Dflink.version={release.flink}", f"-Dconnector.version={release.connector}"
    return compiled("FlinkJob", tmp_path_factory.mktemp("flink"), *options, project="flink.xml")


class Job:
    """A job in a process of its own, with its checkpoints in a folder that outlives it."""

    def __init__(self, built: Path, bootstrap: str, naming: str, folder: Path) -> None:
        folder.mkdir()
        self._folder = folder
        self._log = folder.with_suffix(".log")
        opened = [f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in ("java.lang", "java.util")]
        self._command = [tool("java"), "-Xmx512m", "-XX:+UseSerialGC", *opened, "-cp", f"{built}/*:{built}"]
        self._command += [f"-Djava.io.tmpdir={folder}", "FlinkJob", bootstrap, str(folder), naming]
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def _newest(self) -> Path | None:
        """Its newest complete checkpoint: each process goes on counting where the one that it began from was."""
        found = (each.parent for each in self._folder.glob("*/chk-*/_metadata"))
        return max(found, key=lambda each: int(each.name.removeprefix("chk-")), default=None)

    def start(self) -> None:
        """From its newest checkpoint."""
        command = [*self._command, str(self._newest or "")]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=log, stderr=log)

    def await_checkpoint(self) -> None:
        """Returns in the moment in which another one is complete, with what it has prepared still to be committed."""
        before, deadline = self._newest, time.monotonic() + DEADLINE_S
        while self._newest == before:
            self.check_goes_on(deadline)
            time.sleep(0.0005)

    def fail(self) -> None:
        """A record does not go through: Flink itself begins again, from the newest checkpoint."""
        told, deadline = self._folder / "fail", time.monotonic() + DEADLINE_S
        told.touch()
        while told.exists():
            self.check_goes_on(deadline)
            time.sleep(0.01)

    def check_goes_on(self, deadline: float) -> None:
        assert self._process is not None
        assert self._process.poll() is None, self.log[-4000:]
        assert time.monotonic() < deadline, self.log[-4000:]

    def kill(self) -> None:
        """kill -9."""
        assert self._process is not None
        self._process.kill()
        self._process.communicate()

    def stop(self) -> None:
        """It commits what it has done, and ends."""
        assert self._process is not None
        self._process.communicate(timeout=DEADLINE_S)
        assert self._process.returncode == 0, self.log[-4000:]

    def ensure_stopped(self) -> None:
        if self._process is not None and self._process.poll() is None:
            self.kill()

    @property
    def resumed(self) -> set[Open]:
        """What its processes have found in checkpoints, to be committed."""
        return {Open(name, int(producer_id), int(epoch)) for name, producer_id, epoch in RESUMED.findall(self.log)}

    @property
    def log(self) -> str:
        return self._log.read_text()


def order(number: int) -> Order:
    key = f"k{number % KEYS}"
    return Order(key=key, value=f"{key}:{number}")


class Committed:
    """What a read_committed reader gets of the copies, from their beginning."""

    def __init__(self, bootstrap: str) -> None:
        self.values: dict[str, list[int]] = defaultdict(list)
        """Of each key, in their order."""
        self.count = 0
        self._consumer = Consumer(
            {"bootstrap.servers": bootstrap, "group.id": "reader", "isolation.level": "read_committed"}
        )
        self._consumer.assign([TopicPartition("copied", number, OFFSET_BEGINNING) for number in range(PARTITIONS)])

    def await_count(self, count: int, job: Job) -> None:
        deadline = time.monotonic() + DEADLINE_S
        while self.count < count:
            job.check_goes_on(deadline)
            self.read(0.5)

    def read(self, timeout_s: float) -> None:
        for message in self._consumer.consume(1000, timeout_s):
            assert message.error() is None, message.error()
            self.values[(message.key() or b"").decode()].append(int(message.value() or b""))
            self.count += 1

    def go_on(self, job: Job) -> None:
        """Returns once the job has committed something more."""
        self.read(0.0)
        self.await_count(self.count + 1, job)


@pytest.fixture
def broker(make_broker: Callable[..., BrokerProcess]) -> BrokerProcess:
    return make_broker(settings={"log.segment.bytes": 262_144}).start()


@pytest.fixture
def orders(broker: BrokerProcess) -> Iterator[Orders]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap})
    for made in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in ("orders", "copied")]).values():
        made.result(30)
    found = Orders(broker.bootstrap, order)
    yield found
    found.abandon()


@pytest.fixture
def job(built: Path, release: Release, broker: BrokerProcess, tmp_path: Path) -> Iterator[Job]:
    made = Job(built, broker.bootstrap, release.naming, tmp_path / "job")
    yield made
    made.ensure_stopped()


def test_each_order_is_copied_once_when_job_and_broker_are_killed(
    release: Release, broker: BrokerProcess, orders: Orders, job: Job
) -> None:
    chance, copied = random.Random(1), Committed(broker.bootstrap)
    left: set[Open] = set()
    job.start()
    copied.go_on(job)
    for kills in range(MAX_KILLS):
        if kills >= KILLS and left & job.resumed:
            break
        job.await_checkpoint()
        job.kill()
        left |= opened(broker)
        job.start()
        copied.go_on(job)
        await_none_of(left, broker)
    assert left & job.resumed, "no kill came before a commit"
    for _ in range(KILLS):
        time.sleep(chance.uniform(0.1, 2.0))
        job.fail()
        copied.go_on(job)
    for _ in range(KILLS):
        job.await_checkpoint()
        broker.kill()
        time.sleep(chance.uniform(0.0, 0.5))
        broker.start()
        copied.go_on(job)
    job.await_checkpoint()
    broker.kill()
    job.kill()
    broker.start()
    job.start()
    copied.go_on(job)

    orders.finish()
    copied.await_count(orders.count, job)
    job.stop()
    copied.read(1.0)
    assert copied.values == {f"k{key}": list(range(key, orders.count, KEYS)) for key in range(KEYS)}
    await_none_of(opened(broker), broker)
    names = {each["transactional_id"] for each in broker.get("/api/v1/transactions")["transactions"]}
    resumed = len(left & job.resumed)
    print(f"{release}: {orders.count} orders, {resumed} of {len(left)} transactions resumed, {len(names)} names")
    # One is committed while the next is open, and a few more where checkpoints failed.
    assert len(names) <= 5 * SUBTASKS or release.naming != "POOLING"


def opened(broker: BrokerProcess) -> set[Open]:
    """What is open, or decided and not carried out."""
    found = broker.get("/api/v1/transactions?open_for_ms=0")["transactions"]
    return {Open(each["transactional_id"], each["producer_id"], each["producer_epoch"]) for each in found}


def await_none_of(left: set[Open], broker: BrokerProcess) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while still := left & opened(broker):
        assert time.monotonic() < deadline, still
        time.sleep(0.1)
