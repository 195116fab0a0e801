"""What is measured: a broker of ours and two references, Apache Kafka and librdkafka's mock broker, in processes of
their own.

Owns their start and stop. All keep what they are sent in memory that the kernel may write back later, on
loopback, and serve the same client.
"""

import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from tests.apache_kafka import ApacheKafka

_START_SECONDS = 60
_MOCK = """
import sys
from confluent_kafka import Producer
producer = Producer({"test.mock.num.brokers": 1})
broker = next(iter(producer.list_topics(timeout=10).brokers.values()))
print(f"{broker.host}:{broker.port}", flush=True)
sys.stdin.read()
"""


class System(Protocol):
    """Something that speaks Kafka's protocol, in one process."""

    name: str
    bootstrap: str

    @property
    def pid(self) -> int: ...

    def start(self) -> float:
        """Starts it; gives the seconds until it said that it serves."""

    def create_topic(self, topic: str, configs: dict[str, str], *, partitions: int = 1) -> None: ...

    def delete_topic(self, topic: str) -> None: ...

    def stop(self) -> None: ...


def create_topic(bootstrap: str, topic: str, configs: dict[str, str], *, partitions: int = 1, copies: int = 1) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})
    new = NewTopic(topic, num_partitions=partitions, replication_factor=copies, config=configs)
    admin.create_topics([new], operation_timeout=30)[topic].result(60)


def delete_topic(bootstrap: str, topic: str) -> None:
    from confluent_kafka.admin import AdminClient

    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 3})  # Named: it must outlive the wait.
    admin.delete_topics([topic])[topic].result(30)


@dataclass(slots=True, kw_only=True)
class Tiered:
    """`tiered serve` on its defaults, with its data under `folder`."""

    folder: Path
    name: str = "tiered"
    bootstrap: str = ""
    http: str = ""
    listeners: dict[str, str] = field(default_factory=dict)
    """Where its further listeners are, by name."""
    settings: dict[str, str] = field(default_factory=dict)
    module: tuple[str, ...] = ("tiered.cli",)
    """What `python -m` runs, with leading arguments: the product, or a variant of it for measurements."""
    arguments: tuple[str, ...] = ()
    """More options of `tiered serve`."""
    _process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        argv = [sys.executable, "-m", *self.module, "serve", "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0"]
        argv += ["--data", str(self.folder / "data"), *self.arguments]
        for name, value in self.settings.items():
            argv += ["--set", f"{name}={value}"]
        self.folder.mkdir(parents=True, exist_ok=True)
        started = time.perf_counter()
        with (self.folder / "broker.log").open("ab") as log:
            self._process = subprocess.Popen(argv, stdout=subprocess.PIPE, stderr=log, text=True)
        assert self._process.stdout is not None
        words = self._process.stdout.readline().split()
        seconds = time.perf_counter() - started
        if not words or words[0] != "ready":
            self.kill()
            raise SystemExit(f"the broker did not start: see {self.folder / 'broker.log'}")
        facts = dict(word.split("=", 1) for word in words[1:])
        self.bootstrap, self.http = facts["kafka"], facts["http"]
        self.listeners = {
            name.removeprefix("listener."): where for name, where in facts.items() if name.startswith("listener.")
        }
        return seconds

    def create_topic(self, topic: str, configs: dict[str, str], *, partitions: int = 1) -> None:
        create_topic(self.bootstrap, topic, configs, partitions=partitions)

    def delete_topic(self, topic: str) -> None:
        delete_topic(self.bootstrap, topic)

    def stop(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(60)
        self._process = None

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None


@dataclass(slots=True, kw_only=True)
class Kafka:
    """Apache Kafka on its defaults."""

    broker: ApacheKafka
    name: str = "kafka"

    @property
    def bootstrap(self) -> str:
        return self.broker.bootstrap

    @property
    def pid(self) -> int:
        return self.broker.pid

    def start(self) -> float:
        started = time.perf_counter()
        self.broker.start()
        return time.perf_counter() - started

    def stop(self) -> None:
        self.broker.stop()

    def kill(self) -> None:
        self.broker.kill()


@dataclass(slots=True, kw_only=True)
class MockBroker:
    """librdkafka's mock cluster with one broker: C, in memory, keeps the newest 5 MB of each partition."""

    name: str = "mock"
    bootstrap: str = ""
    _process: subprocess.Popen[str] | None = None

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> float:
        started = time.perf_counter()
        self._process = subprocess.Popen(
            [sys.executable, "-c", _MOCK],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        self.bootstrap = self._process.stdout.readline().strip()
        if not self.bootstrap:
            raise SystemExit("librdkafka's mock broker did not start")
        return time.perf_counter() - started

    def create_topic(self, topic: str, configs: dict[str, str], *, partitions: int = 1) -> None:
        """It creates topics as they are asked for, and knows no configs."""

    def delete_topic(self, topic: str) -> None:
        """It forgets by itself."""

    def stop(self) -> None:
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None
