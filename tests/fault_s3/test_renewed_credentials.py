"""Credentials that expire, or were replaced, are read again from where they come from: no restart is needed."""

import logging
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.fault_s3.tiering_broker import eventually, fill, make_topic, tiering_broker, uploaded
from tests.support.credentials_file import CredentialsFile
from tiered.broker.people.partition_totals import PartitionTotals
from tiered.cold.s3 import credentials
from tiered.cold.s3.store import S3Store
from tiered.errors import StoreRefused, StoreTrouble
from tiered.testing.faulty_s3 import FaultyS3


@pytest.fixture
def file(faults: FaultyS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CredentialsFile:
    """With the session of `FIRST`. Nothing else of the chain gives this process any credentials."""
    made = CredentialsFile(tmp_path / "credentials")
    made.write("FIRST")
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(made.path))
    return made


def keys_of(faults: FaultyS3) -> list[str]:
    """The access keys that requests came with, each once, in the order of their first requests."""
    found = [seen.headers["authorization"].split("Credential=")[1].split("/")[0] for seen in faults.seen]
    return list(dict.fromkeys(found))


def refusal(store: S3Store) -> StoreRefused:
    with pytest.raises(StoreRefused) as refused:
        store.put("k", b"x")
    return refused.value


async def test_uploads_resume_with_renewed_credentials_without_a_restart(
    tmp_path: Path, faults: FaultyS3, file: CredentialsFile, caplog: pytest.LogCaptureFixture
) -> None:
    async with tiering_broker(tmp_path, faults) as broker:
        (partition,) = await make_topic(broker, "t")
        fill(partition, 2, at_ms=1)
        await eventually(lambda: len(uploaded(faults)) == 1)
        faults.expired_keys.add("FIRST")
        fill(partition, 2, at_ms=2)
        await eventually(lambda: "ExpiredToken" in caplog.text)
        health = broker.health(PartitionTotals())
        assert (health["serving"], health["store_away"], health["store_trouble"]) == (True, False, "expired")
        assert len(uploaded(faults)) == 1

        file.write("SECOND")
        await eventually(lambda: len(uploaded(faults)) == 3)
        await eventually(lambda: broker.health(PartitionTotals())["store_trouble"] is None)
    assert "renew the credentials where they come from" in caplog.text
    assert "token-of" not in caplog.text
    assert "SECOND" not in caplog.text


async def test_credentials_that_have_expired_refuse_no_start(
    tmp_path: Path, faults: FaultyS3, file: CredentialsFile, caplog: pytest.LogCaptureFixture
) -> None:
    faults.expired_keys.add("FIRST")
    async with tiering_broker(tmp_path, faults) as broker:
        assert broker.serving
        (partition,) = await make_topic(broker, "t")
        fill(partition, 2, at_ms=1)
        file.write("SECOND")
        await eventually(lambda: len(uploaded(faults)) == 1)
    assert "starting without the store, uploads wait for it" in caplog.text


def test_a_file_that_was_replaced_is_read_before_the_old_session_expires(
    faults: FaultyS3, store: S3Store, file: CredentialsFile
) -> None:
    store.put("k", b"x")
    file.write("SECOND")
    store.put("k", b"y")
    assert keys_of(faults) == ["FIRST", "SECOND"]
    assert store.state.retries == 0


def test_a_file_without_credentials_leaves_those_from_before(
    faults: FaultyS3, store: S3Store, file: CredentialsFile, caplog: pytest.LogCaptureFixture
) -> None:
    store.put("k", b"x")
    for text in ("", "[default]\naws_access_key_id=SECOND\n", "no file of this kind"):
        file.path.write_text(text)
        store.put("k", b"y")
    assert keys_of(faults) == ["FIRST"]
    assert "(PartialCredentialsError); those from before stay" in caplog.text
    file.write("THIRD")
    store.put("k", b"z")
    assert keys_of(faults) == ["FIRST", "THIRD"]


def test_a_process_that_gives_credentials_is_asked_again_after_a_refusal(
    faults: FaultyS3, store: S3Store, file: CredentialsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The request that was refused is made once more, whatever it is: an answer to HEAD names no error."""
    monkeypatch.setattr(credentials, "PAUSE_MS", 0.0)
    file.path.write_text("")
    key = tmp_path / "key"
    program = tmp_path / "gives.py"
    program.write_text(
        "import json, pathlib\n"
        f"key = pathlib.Path({str(key)!r}).read_text()\n"
        "print(json.dumps({'Version': 1, 'AccessKeyId': key, 'SecretAccessKey': 's', 'SessionToken': 't'}))\n"
    )
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = {sys.executable} {program}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    key.write_text("FIRST")
    store.put("k", b"x")
    for old, new in (("FIRST", "SECOND"), ("SECOND", "THIRD")):
        faults.expired_keys.add(old)
        key.write_text(new)
        if new == "SECOND":
            store.put("k", b"y")
        else:
            assert store.head("k") is not None
    assert keys_of(faults) == ["FIRST", "SECOND", "THIRD"]
    assert store.state.retries == 2


def test_many_threads_with_expired_credentials_have_them_read_once(
    faults: FaultyS3, store: S3Store, file: CredentialsFile, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    store.put("k", b"x")
    faults.expired_keys.add("FIRST")
    file.write("SECOND")
    all_ready = threading.Barrier(8)

    def put(number: int) -> None:
        all_ready.wait()
        store.put(f"k{number}", b"y")

    with ThreadPoolExecutor(8) as threads:
        list(threads.map(put, range(8)))
    assert caplog.text.count("the store is used with new credentials") == 1
    assert set(keys_of(faults)) == {"FIRST", "SECOND"}


@pytest.mark.parametrize(("pause_ms", "reads"), [(1e9, 1), (0.0, 11)])
def test_where_there_are_no_others_no_request_is_repeated_and_the_file_is_read_after_a_pause(
    faults: FaultyS3,
    store: S3Store,
    file: CredentialsFile,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    pause_ms: float,
    reads: int,
) -> None:
    monkeypatch.setattr(credentials, "PAUSE_MS", pause_ms)
    caplog.set_level(logging.INFO)
    store.put("k", b"x")
    faults.expired_keys.add("FIRST")
    for _ in range(10):
        assert refusal(store).trouble is StoreTrouble.EXPIRED
    assert caplog.text.count("Found credentials in shared credentials file") == reads
    assert len(faults.seen) == 11


def test_a_source_that_only_has_expired_credentials_is_no_bug_of_ours(
    faults: FaultyS3, store: S3Store, file: CredentialsFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """botocore raises RuntimeError there."""
    file.path.write_text("")
    given = '{"Version": 1, "AccessKeyId": "FIRST", "SecretAccessKey": "s", "SessionToken": "t", '
    (tmp_path / "given").write_text(given + '"Expiration": "2020-01-01T00:00:00Z"}')
    config = tmp_path / "config"
    config.write_text(f"[default]\ncredential_process = cat {tmp_path / 'given'}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    error = refusal(store)
    assert error.trouble is StoreTrouble.EXPIRED
    assert "CredentialRetrievalError" in str(error)
    assert not faults.seen
