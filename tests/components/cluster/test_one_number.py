"""Two processes with one broker id: the one that lives keeps it, and the one that is gone is replaced."""

import signal
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.broker_process import BrokerProcess
from tests.components.tiers import create, fill
from tiered.errors import MetadataUnavailable
from tiered.meta import brokers, coordinator_slots
from tiered.meta.cluster import take_number
from tiered.meta.engine import Database

if TYPE_CHECKING:
    from tests.postgres import PostgresDatabases

pytest_plugins = ["tests.postgres"]

SETTINGS = {"broker.session.timeout.ms": 1_500}
NO_END = {"broker.session.timeout.ms": 600_000}
"""Whoever waits for the end of such a session does not start while a test looks."""


class Number:
    """Processes that all want to be broker 2 of one cluster, each with a data folder of its own."""

    def __init__(self, root: Path, meta_url: str) -> None:
        self._root = root
        self._meta_url = meta_url
        self._made: list[BrokerProcess] = []

    def process(self, name: str, settings: dict[str, int] = SETTINGS) -> BrokerProcess:
        arguments = ["--meta", self._meta_url, "--store", f"file://{self._root}/objects", "--broker-id", "2"]
        self._made.append(BrokerProcess(self._root / name, *arguments, settings=settings))
        return self._made[-1]

    def epoch(self) -> int:
        database = Database.open(self._meta_url)
        try:
            row = database.run_sync(lambda conn: brokers.load(conn, 2))
        finally:
            database.close_sync()
        assert row is not None
        return row.broker_epoch

    def stand_still(self, broker: BrokerProcess) -> None:
        """Stops the process where it holds no lock: in the middle of a transaction it would keep the others from the
        catalogue too, for longer than a start waits."""
        assert broker.process is not None
        for _ in range(50):
            broker.process.send_signal(signal.SIGSTOP)
            if self._is_free():
                return
            broker.process.send_signal(signal.SIGCONT)
            time.sleep(0.1)
        raise AssertionError("it is always in a transaction")

    def _is_free(self) -> bool:
        database = Database.open(self._meta_url, deadline_ms=500)
        try:
            database.run_sync(lambda conn: (coordinator_slots.lock(conn, range(100), alone=True), take_number(conn)))
        except MetadataUnavailable:
            return False
        finally:
            database.close_sync()
        return True

    def close(self) -> None:
        for each in self._made:
            each.ensure_stopped()


@pytest.fixture(params=["sqlite", "postgresql"])
def number(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Number]:
    if request.param == "sqlite":
        made = Number(tmp_path, f"sqlite:///{tmp_path}/meta.db")
        yield made
        made.close()
        return
    databases: PostgresDatabases = request.getfixturevalue("postgres_databases")
    url = databases.create()
    made = Number(tmp_path, url)
    yield made
    made.close()
    databases.drop(url)


def refusal(process: BrokerProcess) -> str:
    with pytest.raises(AssertionError, match="did not get ready"):
        process.start()
    assert process.process is not None
    assert process.process.wait() == 1
    assert "Traceback" not in process.log()
    return process.log().splitlines()[-1]


def test_who_lives_keeps_its_number_from_an_empty_folder_and_is_not_disturbed(number: Number) -> None:
    old = number.process("old").start()
    epoch = number.epoch()
    new = number.process("new")
    said = refusal(new)
    assert f"broker 2 runs at {old.bootstrap}, with another data folder than {new.data}" in said
    assert "--broker-id" in said
    assert "stop that one first" in said
    assert number.epoch() == epoch
    assert create(old, "orders") == 0
    fill(old, "orders", 3)
    assert "registered again" not in old.log()


def test_who_replaced_a_dead_process_keeps_its_number_when_that_one_is_started_again(number: Number) -> None:
    old = number.process("old").start()
    old.kill()
    new = number.process("new").start()
    assert f"is registered from another data folder, at {old.bootstrap}" in new.log()
    epoch = number.epoch()
    assert f"broker 2 runs at {new.bootstrap}" in refusal(old)
    assert number.epoch() == epoch


def test_one_that_stopped_by_itself_is_replaced_at_once(number: Number) -> None:
    number.process("old", NO_END).start().stop()
    new = number.process("new", NO_END).start()
    assert "another data folder" not in new.log()


@pytest.mark.parametrize("lost", [None, "incarnations.json", "registration.json"])
def test_a_killed_broker_starts_again_on_its_folder_without_waiting_for_its_own_session(
    number: Number, lost: str | None
) -> None:
    broker = number.process("data", NO_END)
    for _ in range(2):
        broker.start()
        broker.kill()
        if lost is not None:
            (broker.data / lost).unlink()
    broker.start()
    assert "another data folder" not in broker.log()


def test_one_that_stood_still_is_replaced_and_stops_when_it_goes_on(number: Number) -> None:
    old = number.process("old").start()
    assert old.process is not None
    number.stand_still(old)
    new = number.process("new").start()
    old.process.send_signal(signal.SIGCONT)
    assert old.process.wait(20) == 1
    assert "was registered again" in old.log()
    assert "Traceback" not in old.log()
    assert create(new, "orders") == 0
    fill(new, "orders", 3)


def test_of_two_that_wait_for_a_dead_one_exactly_one_gets_the_number(number: Number) -> None:
    number.process("dead").start().kill()
    rivals = [number.process("left"), number.process("right")]

    def outcome(process: BrokerProcess) -> str:
        try:
            return process.start().ready_line.split()[0]
        except AssertionError:
            return process.log().splitlines()[-1]

    with ThreadPoolExecutor(2) as threads:
        outcomes = sorted(threads.map(outcome, rivals))
    assert outcomes[0] == "ready", outcomes
    assert "no two processes may have one number" in outcomes[1], outcomes


def test_who_waits_for_its_number_can_be_told_to_stop(number: Number) -> None:
    old = number.process("old").start()
    epoch = number.epoch()
    words = number.process("new", NO_END).command()
    with subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as new:
        assert new.stderr is not None
        said = new.stderr.readline()
        new.send_signal(signal.SIGTERM)
        out, after = new.communicate(timeout=30)
    assert "this process takes its place when it has been silent" in said
    assert (new.returncode, out) == (0, "")
    assert after.splitlines()[-1].endswith("stopped")
    assert "Traceback" not in after
    assert number.epoch() == epoch
    assert create(old, "orders") == 0
