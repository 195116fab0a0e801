"""The Java client in KIP-848 groups, and on its way between the protocols."""

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, NewTopic

from tests.broker_process import BrokerProcess
from tests.clients.java_client import compiled

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
DEADLINE_S = 60.0
ALL = "has [t-0,t-1,t-2,t-3,t-4,t-5]"


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client from Maven Central, and our member compiled against it."""
    return compiled("GroupMember", tmp_path_factory.mktemp("java"))


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    settings = {"group.consumer.heartbeat.interval.ms": 300, "group.initial.rebalance.delay.ms": 300}
    process = BrokerProcess(tmp_path / "data", settings=settings).start()
    admin = AdminClient({"bootstrap.servers": process.bootstrap})
    admin.create_topics([NewTopic("t", 6, 1)])["t"].result(30)
    producer = Producer({"bootstrap.servers": process.bootstrap})
    for number in range(600):
        producer.produce("t", b"%d" % number, partition=number % 6)
    assert producer.flush(30) == 0
    yield process
    process.ensure_stopped()


class JavaMember:
    """A JVM with one consumer; `lines` is what it said so far."""

    def __init__(self, built: Path, broker: BrokerProcess, protocol: str, topic: str) -> None:
        command = ["java", "-cp", f"{built}/*:{built}", "GroupMember", broker.bootstrap, "g", protocol, topic]
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    @property
    def has(self) -> str:
        """Its present assignment."""
        return next((line for line in reversed(self.lines) if line.startswith("has ")), "")

    @property
    def read(self) -> int:
        return sum(int(line.split()[1]) for line in self.lines if line.startswith("read "))

    def leave(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write("\n")
        self.process.stdin.close()
        assert self.process.wait(DEADLINE_S) == 0
        self._reader.join()


def until(condition: Callable[[], bool], *members: JavaMember) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < deadline, [member.lines for member in members]
        time.sleep(0.05)


@pytest.fixture
def member(built: Path, broker: BrokerProcess) -> Iterator[Callable[[str, str], JavaMember]]:
    made: list[JavaMember] = []

    def make(protocol: str, topic: str) -> JavaMember:
        made.append(JavaMember(built, broker, protocol, topic))
        return made[-1]

    yield make
    for each in made:
        each.process.kill()


def test_java_members_share_and_take_over_by_name_and_by_pattern(member: Callable[[str, str], JavaMember]) -> None:
    one = member("consumer", "t")
    until(lambda: one.read == 600, one)
    two = member("consumer", "^t.*")
    until(lambda: one.has.count("t-") == two.has.count("t-") == 3, one, two)
    assert one.lines.count("revoked 3") == 1, "only what moves is revoked"
    one.leave()
    until(lambda: two.has == ALL, two)
    assert two.read == 0, "what the other committed is not read again"
    two.leave()


def test_java_members_of_both_protocols_share_a_group(member: Callable[[str, str], JavaMember]) -> None:
    old = member("classic", "t")
    until(lambda: old.read == 600, old)
    new = member("consumer", "t")
    until(lambda: old.has.count("t-") == new.has.count("t-") == 3, old, new)
    new.leave()
    until(lambda: old.has == ALL, old)
    again = member("consumer", "t")
    until(lambda: again.has.count("t-") == 3, old, again)
    old.leave()
    until(lambda: again.has == ALL, again)
    assert (old.read, new.read, again.read) == (600, 0, 0)
    assert not any(line.startswith("lost") for each in (old, new, again) for line in each.lines)
    again.leave()


def test_a_bad_pattern_is_the_java_clients_own_error(member: Callable[[str, str], JavaMember]) -> None:
    one = member("consumer", "^t(?=x)")
    until(lambda: "failed InvalidRegularExpression" in one.lines, one)
