"""Clusters of real processes for tests; each is killed when its test ends, and heard first where the test failed."""

from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import ClusterProcesses

CLUSTERS = pytest.StashKey[list[ClusterProcesses]]()


@pytest.fixture
def make_cluster(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., ClusterProcesses]]:
    """Makes clusters and starts them; the arguments are those of `ClusterProcesses`."""
    made = request.node.stash.setdefault(CLUSTERS, [])
    with ExitStack() as stack:

        def make(**options: Any) -> ClusterProcesses:
            cluster = stack.enter_context(ClusterProcesses(tmp_path / "cluster", **options))
            made.append(cluster)
            cluster.start()
            return cluster

        yield make


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A test that failed shows what its brokers said last, while their folders are there."""
    report = yield
    if report.when == "call" and report.failed:
        for cluster in item.stash.get(CLUSTERS, []):
            report.sections.append(("The brokers' last words", cluster.last_words()))
    return report
