"""Clients of other languages do what their users do first, in one program each that says the same lines."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.foreign_tools import go_programs, node_programs, tool

pytestmark = [pytest.mark.interop, pytest.mark.timeout(1200)]

STEPS = {
    "brokers": "1",
    "created": "3",
    "created again": "36",
    "produced": "30",
    "read": "30",
    "listed": "true",
    "described": "Empty",
    "committed": "[10 10 10]",
    "reset": "[0 0 0]",
    "read again": "30",
    "altered": "3600000",
    "refused": "40",
    "deleted": "true",
}
"""Error 36: the topic exists. 40: the config's value is none."""
DIFFERS = {
    # -2 is "earliest", stored as it came. kafkajs takes a topic that exists for an answer, not for an error.
    "kafkajs": {"created again": "false", "reset": "[-2 -2 -2]"},
    "platformatic": {"described": "EMPTY"},
    "sarama": {"reset": "[-2 -2 -2]"},
    "segmentio": {"reset": "[-2 -2 -2]"},
}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BrokerProcess]:
    settings = {"group.initial.rebalance.delay.ms": 0}
    process = BrokerProcess(tmp_path_factory.mktemp("first") / "data", settings=settings).start()
    yield process
    process.ensure_stopped()


@pytest.fixture(scope="module")
def of_go(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return go_programs(tmp_path_factory.mktemp("go"))


@pytest.fixture(scope="module")
def of_node(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return node_programs(tmp_path_factory.mktemp("node"))


@pytest.mark.parametrize("client", ["franz", "sarama", "segmentio"])
def test_a_go_client_does_what_its_users_do_first(client: str, broker: BrokerProcess, of_go: Path) -> None:
    assert said(client, [str(of_go / client)], broker) == STEPS | DIFFERS.get(client, {})


@pytest.mark.parametrize("client", ["kafkajs", "platformatic"])
def test_a_node_client_does_what_its_users_do_first(client: str, broker: BrokerProcess, of_node: Path) -> None:
    assert said(client, [tool("node"), str(of_node / f"{client}.mjs")], broker) == STEPS | DIFFERS[client]


def said(client: str, program: list[str], broker: BrokerProcess) -> dict[str, str]:
    """Each of its lines: the last word or the list, by the words before."""
    done = subprocess.run(
        [*program, broker.bootstrap, f"topic-{client}", f"group-{client}"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr[-4000:]
    lines = (line.partition(" [") if "[" in line else line.rpartition(" ") for line in done.stdout.splitlines())
    return {step: separator.strip() + answer for step, separator, answer in lines}
