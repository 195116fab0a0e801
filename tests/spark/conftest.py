"""One Spark session for all of tests/spark, on two threads and little memory, and stores to read."""

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from unittest.mock import patch

import pytest
from pyspark.sql import SparkSession

from tests.fault_s3.moto_server import aws_environment, moto_s3, store_url
from tests.spark.bucket import Bucket
from tiered.cold.opening import open_store


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Whichever test comes first waits for the JVM, which takes minutes where ten others want the same two cores.

    The long ones take as long as they are told to.
    """
    for item in items:
        if item.path.parent == Path(__file__).parent and item.get_closest_marker("soak") is None:
            item.add_marker(pytest.mark.timeout(300))


@pytest.fixture(scope="session")
def spark(java: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    warehouse = tmp_path_factory.mktemp("warehouse")
    # Workers inherit what the JVM had when it began: the first `python3` on its path has no package of ours.
    other = tmp_path_factory.mktemp("other-python") / "python3"
    other.write_text(f'#!/bin/sh\nexec {sys._base_executable} -I "$@"\n')  # type: ignore[attr-defined]
    other.chmod(0o755)
    path = f"{other.parent}{os.pathsep}{os.environ['PATH']}"
    with aws_environment(), patch.dict(os.environ, {"PYSPARK_PYTHON": sys.executable}):
        with patch.dict(os.environ, {"PATH": path}):
            session = (
                SparkSession.builder.master("local[2, 2]")  # A task that fails has a second attempt, as on a cluster.
                .appName("tiered-tests")
                .config("spark.ui.enabled", "false")
                .config("spark.python.daemon.module", "tests.spark.warm_daemon")
                .config("spark.driver.memory", "1g")
                # Most of such short a life would go into compiling well what runs twice.
                .config("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
                .config("spark.driver.host", "127.0.0.1")
                .config("spark.driver.bindAddress", "127.0.0.1")
                .config("spark.sql.shuffle.partitions", "2")
                .config("spark.sql.session.timeZone", "UTC")
                .config("spark.sql.warehouse.dir", str(warehouse))
                .config("spark.sql.streaming.metricsEnabled", "false")
                .getOrCreate()
            )
        session.sparkContext.setLogLevel("ERROR")
        yield session
        session.stop()


@pytest.fixture
def bucket(tmp_path: Path) -> Bucket:
    """An empty store in a local folder."""
    return Bucket(store=open_store(f"file://{tmp_path}/store"))


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    with moto_s3() as endpoint_url:
        yield store_url(endpoint_url, "spark")


@pytest.fixture
def s3_bucket(s3_url: str) -> Bucket:
    """An S3 store behind a real HTTP server."""
    return Bucket(store=open_store(s3_url))
