"""Clusters of real processes for tests; each is killed when its test ends."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.processes import ClusterProcesses


@pytest.fixture
def make_cluster(tmp_path: Path) -> Iterator[Callable[..., ClusterProcesses]]:
    """Makes clusters and starts them; the arguments are those of `ClusterProcesses`."""
    with ExitStack() as stack:

        def make(**options: Any) -> ClusterProcesses:
            cluster = stack.enter_context(ClusterProcesses(tmp_path / "cluster", **options))
            cluster.start()
            return cluster

        yield make
