"""The pytest plugin as its users meet it: projects of their own, run in a process of their own."""

import os
import re
import subprocess
import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
README = ROOT / "README.md"
DOCUMENT = ROOT / "docs/testing-with-tiered.md"

ROUND_TRIP = """
from confluent_kafka import Consumer, Producer, TopicPartition


def round_trip(bootstrap, topic):
    producer = Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "log_level": 0})
    producer.produce(topic, b"one")
    assert producer.flush(20) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "g", "log_level": 0})
    consumer.assign([TopicPartition(topic, 0, 0)])
    assert consumer.poll(20).value() == b"one"
    consumer.close()
"""


INI = """[pytest]
filterwarnings = error
addopts = --strict-markers
asyncio_mode = auto
asyncio_default_fixture_loop_scope = function
"""


# They take two seconds of every start, and have no part in these tests.
WITHOUT = ("-p", "no:schemathesis", "-p", "no:hypothesispytest", "-p", "no:cacheprovider")


def run_project(folder: Path, files: dict[str, str], *arguments: str, ini: str = "") -> str:
    """What pytest says of a project with these files; every warning that it could give is an error there."""
    for name, text in files.items():
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    (folder / "pytest.ini").write_text(f"{INI}{ini}\n")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", *WITHOUT, *arguments, str(folder)],
        cwd=folder, env=environment, capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    return run.stdout + run.stderr


def test_the_plugin_is_registered_with_pytest() -> None:
    text = (ROOT / "pyproject.toml").read_text()
    (name, value) = re.findall(r'^\[project\.entry-points\.pytest11\]\n(\w+) = "(.+)"$', text, re.MULTILINE)[0]
    plugin = EntryPoint(name=name, value=value, group="pytest11").load()
    assert plugin.tiered_broker is not None


# Each session of pytest takes the processor as long as three brokers, so one runs all that can stand side by side.
SIDE_BY_SIDE = {
    "test_own.py": ROUND_TRIP
    + """
import pytest
seen = []


@pytest.mark.parametrize("number", [1, 2])
def test_it(tiered_broker, number):
    seen.append(tiered_broker.bootstrap)
    tiered_broker.create_topic("orders")
    round_trip(tiered_broker.bootstrap, "orders")


def test_they_differed():
    assert len(set(seen)) == 2
""",
    "options/conftest.py": """
import pytest


@pytest.fixture
def tiered_broker_options():
    return {"topics": {"orders": 1}, "settings": {"num.partitions": 4}}
""",
    "options/test_options.py": ROUND_TRIP
    + """
import pytest


@pytest.mark.tiered_broker(topics={"payments": 1})
def test_the_mark_wins(tiered_broker):
    round_trip(tiered_broker.bootstrap, "payments")


def test_conftest(tiered_broker, tiered_cluster):
    round_trip(tiered_broker.bootstrap, "orders")
    other = tiered_cluster(topics={"more": 1})
    round_trip(other.bootstrap, "more")
""",
    "test_loops.py": """
import asyncio
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer


async def test_it(tiered_broker):
    topic = await asyncio.to_thread(tiered_broker.create_topic)
    async with AIOKafkaProducer(bootstrap_servers=tiered_broker.bootstrap) as producer:
        await producer.send_and_wait(topic, b"one")
    async with AIOKafkaConsumer(
        topic, bootstrap_servers=tiered_broker.bootstrap, auto_offset_reset="earliest"
    ) as consumer:
        assert (await asyncio.wait_for(consumer.getone(), 20)).value == b"one"
""",
    "test_wrong_mark.py": """
import pytest


@pytest.mark.tiered_broker(1)
def test_it(tiered_broker): ...
""",
}
FOR_THE_SESSION = {
    "test_session.py": ROUND_TRIP
    + """
import pytest
seen = []


@pytest.mark.parametrize("number", [1, 2])
def test_it(tiered_broker, number):
    seen.append(tiered_broker.bootstrap)
    round_trip(tiered_broker.bootstrap, tiered_broker.create_topic())


def test_it_was_one():
    assert len(set(seen)) == 1


@pytest.mark.tiered_broker(s3="moto")
def test_shared(tiered_broker): ...
""",
}


@pytest.fixture(scope="module")
def side_by_side(tmp_path_factory: pytest.TempPathFactory) -> str:
    return run_project(tmp_path_factory.mktemp("side-by-side"), SIDE_BY_SIDE, "-rA")


@pytest.fixture(scope="module")
def for_the_session(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("for-the-session")
    return run_project(folder, FOR_THE_SESSION, "-rA", ini="tiered_broker_scope = session")


def ends(said: str, file: str) -> list[str]:
    """How each test of a file ended, by the lines of `-rA`."""
    return re.findall(rf"^([A-Z]+) {re.escape(file)}::", said, re.MULTILINE)


def test_each_test_has_a_broker_of_its_own(side_by_side: str) -> None:
    assert ends(side_by_side, "test_own.py") == ["PASSED"] * 3, side_by_side


def test_options_come_from_conftest_and_from_the_mark(side_by_side: str) -> None:
    assert ends(side_by_side, "options/test_options.py") == ["PASSED"] * 2, side_by_side


def test_tests_with_loops_of_their_own(side_by_side: str) -> None:
    assert ends(side_by_side, "test_loops.py") == ["PASSED"], side_by_side


def test_a_mark_with_what_is_no_keyword_is_refused(side_by_side: str) -> None:
    assert ends(side_by_side, "test_wrong_mark.py") == ["ERROR"], side_by_side
    assert "takes keywords only" in side_by_side


def test_one_broker_for_the_session_and_a_topic_for_each_test(for_the_session: str) -> None:
    assert "3 passed, 1 error" in for_the_session


def test_a_mark_cannot_change_the_broker_of_the_session(for_the_session: str) -> None:
    assert "ERROR test_session.py::test_shared" in for_the_session
    assert "is shared" in for_the_session


def test_a_scope_that_is_not_known_is_refused(tmp_path: Path) -> None:
    said = run_project(tmp_path, {"test_it.py": "def test_it(): ..."}, ini="tiered_broker_scope = forever")
    assert "tiered_broker_scope=forever is not known" in said


def test_parallel_workers_do_not_disturb_each_other(tmp_path: Path) -> None:
    tests = (
        ROUND_TRIP
        + """
import pytest


@pytest.mark.parametrize("number", range(4))
def test_it(tiered_broker, number):
    tiered_broker.create_topic("orders")
    round_trip(tiered_broker.bootstrap, "orders")
    tiered_broker.broker.kill()
    tiered_broker.broker.start()
"""
    )
    assert "4 passed" in run_project(tmp_path, {"test_it.py": tests}, "-n", "2")


def test_a_failing_test_fails_with_its_own_error_alone(tmp_path: Path) -> None:
    tests = "def test_it(tiered_broker):\n    tiered_broker.broker.kill()\n    assert 1 == 2\n"
    output = run_project(tmp_path, {"test_it.py": tests})
    assert "1 failed" in output
    assert "error" not in output.lower().replace("assertionerror", ""), output


def examples() -> list[str]:
    """The blocks of the documentation that are tests."""
    return [code for code in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL) if "def test_" in code]


def test_the_example_of_the_readme_passes_and_its_clients_are_gone_before_the_broker(tmp_path: Path) -> None:
    (code,) = (
        each for each in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "def test_" in each
    )
    said = run_project(tmp_path, {"test_readme.py": code}, "-s")
    assert "1 passed" in said
    assert "rdkafka" not in said, "a client outlived its broker and complained"


def test_the_examples_of_the_documentation_pass(tmp_path: Path) -> None:
    found = examples()
    assert len(found) >= 3
    files = {f"test_example_{number}.py": code for number, code in enumerate(found)}
    count = sum(len(re.findall(r"^(?:async )?def test_", code, re.MULTILINE)) for code in found)
    output = run_project(tmp_path, files)
    assert f"{count} passed" in output, output
