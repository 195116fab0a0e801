"""Kafka's own admin client, which kafka-reassign-partitions and kafka-leader-election use, with three brokers."""

import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.clients.java_client import compiled

if TYPE_CHECKING:
    from tests.clients.three_brokers import ThreeBrokers

pytest_plugins = ["tests.clients.three_brokers"]
pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client from Maven Central, and our program compiled against it."""
    return compiled("ClusterAdmin", tmp_path_factory.mktemp("java"))


def test_the_java_admin_client_moves_and_elects(three_brokers: "ThreeBrokers", built: Path) -> None:
    done = subprocess.run(
        ["java", "-cp", f"{built}/*:{built}", "ClusterAdmin", three_brokers.bootstrap, "java-moves"],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    assert done.stdout.splitlines() == [
        "brokers [1, 2, 3]",
        "created [1, 2]",
        "moved [3, 1]",
        "elected",
        "leader 3",
        "refused InvalidReplicaAssignmentException",
        "nothing to cancel NoReassignmentInProgressException",
        "kept PolicyViolationException",
    ]
