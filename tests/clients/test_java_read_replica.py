"""The Java client on a read replica: it assigns its partition, and asks for offsets and times like any consumer."""

import subprocess
from pathlib import Path

import pytest

from tests.broker_process import BrokerProcess
from tests.clients.java_client import compiled
from tests.components.tiers import create, fill, wait_checkpoint
from tiered.cold.local import LocalStore

pytestmark = [pytest.mark.interop, pytest.mark.timeout(300)]
BATCHES, FIRST_MS = 50, 1_600_000_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The client from Maven Central, and our reader compiled against it."""
    return compiled("AssignedReader", tmp_path_factory.mktemp("java"))


def test_the_java_consumer_reads_everything_that_is_cold_and_finds_times(built: Path, tmp_path: Path) -> None:
    settings = {"tiered.upload.interval.ms": 50, "tiered.checkpoint.interval.ms": 50}
    writer = BrokerProcess(tmp_path / "writer", settings=settings).start()
    store = LocalStore(tmp_path / "writer" / "objects")
    replica = BrokerProcess(
        tmp_path / "replica",
        *("--read-only", "--broker-id", "7", "--store", store.url),
        settings={"tiered.read.replica.refresh.interval.ms": 100},
    )
    try:
        assert create(writer, "orders", segment_bytes=20_000, retention_ms=-1) == 0
        written = fill(writer, "orders", BATCHES // 2, first_ms=FIRST_MS)
        written += fill(writer, "orders", BATCHES // 2, first=BATCHES // 2, first_ms=FIRST_MS + 1)
        writer.wait_cold("orders", end_offset=BATCHES - 10)
        wait_checkpoint(writer, f"sqlite:///{writer.data}/meta.db", store, "orders")
        replica.start()
        command = [
            "java",
            "-cp",
            f"{built}/*:{built}",
            "AssignedReader",
            replica.bootstrap,
            "orders",
            str(FIRST_MS + 1),
        ]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr[-3000:]
        offsets, at, *records = done.stdout.splitlines()
        start, end = map(int, offsets.removeprefix("offsets ").split())
        assert start == 0
        assert BATCHES - 10 <= end < BATCHES
        assert at == f"at {BATCHES // 2}"
        assert records == [f"record {offset} {value.decode()}" for offset, value in written[:end]]
    finally:
        replica.ensure_stopped()
        writer.ensure_stopped()
