"""Before it serves a broker looks at its bucket: what only a person can put right refuses the start."""

from pathlib import Path

import pytest

from tests.fault_s3.tiering_broker import tiering_broker
from tiered.broker.tiering import store_look
from tiered.errors import StoreRefused
from tiered.testing.faulty_s3 import FaultyS3, S3FaultKind


async def refusal(tmp_path: Path, faults: FaultyS3) -> str:
    with pytest.raises(ExceptionGroup) as refused:
        async with tiering_broker(tmp_path, faults):
            pass
    (error,) = refused.value.exceptions
    assert isinstance(error, StoreRefused)
    return str(error)


async def test_a_bucket_that_lets_nobody_in_refuses_the_start(tmp_path: Path, faults: FaultyS3) -> None:
    faults.inject(S3FaultKind.ACCESS_DENIED, method="GET", times=100)
    said = await refusal(tmp_path, faults)
    assert said.endswith("(403 AccessDenied): check the bucket's name, the credentials and their permissions")


async def test_a_bucket_that_is_not_there_refuses_the_start(
    tmp_path: Path, faults: FaultyS3, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tests.fault_s3.moto_server.BUCKET", "no-such-bucket")
    assert (await refusal(tmp_path, faults)).endswith("(404 NoSuchBucket): create the bucket, or name another")


@pytest.mark.parametrize("kind", [S3FaultKind.SERVER_ERROR, S3FaultKind.SLOW_DOWN, S3FaultKind.RESET])
async def test_a_store_that_is_away_refuses_no_start(tmp_path: Path, faults: FaultyS3, kind: S3FaultKind) -> None:
    faults.inject(kind, times=1_000)
    async with tiering_broker(tmp_path, faults) as broker:
        assert broker.serving
        faults.heal()
    assert faults.count("GET", query_contains="list-type=2") > 0


async def test_a_store_that_says_nothing_is_not_waited_for(
    tmp_path: Path, faults: FaultyS3, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(store_look, "LOOK_MS", 50.0)
    faults.inject(S3FaultKind.DELAY, method="GET", times=1, seconds=2)
    async with tiering_broker(tmp_path, faults) as broker:
        assert broker.serving
    assert "did not answer in 0.05 s" in caplog.text
