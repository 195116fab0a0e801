"""What moto cannot show: the store's contract, a broker and terraform/envs/local on LocalStack."""

import json
import os
import re
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

from tests.broker_process import BrokerProcess
from tests.components.tiers import NONE, create, fill, read
from tests.localstack.server import BUCKET, ROOT, Emulator, install, localstack
from tests.terraform.installed import WorkingCopy, missing

pytestmark = [pytest.mark.localstack, pytest.mark.timeout(900)]

KEYS = {"AWS_ACCESS_KEY_ID": "test", "AWS_SECRET_ACCESS_KEY": "test", "AWS_REGION": "us-east-1"}


@pytest.fixture(scope="module")
def emulator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Emulator]:
    if reason := install():
        pytest.skip(reason)
    with localstack(tmp_path_factory.mktemp("localstack") / "log") as running:
        yield running


def client(emulator: Emulator, service: str) -> Any:
    session = boto3.session.Session(aws_access_key_id="test", aws_secret_access_key="test", region_name="us-east-1")
    return session.client(service, endpoint_url=emulator.url)  # type: ignore[call-overload]


def test_it_listens_on_loopback_alone(emulator: Emulator) -> None:
    addresses = emulator.listens_on()
    assert ("127.0.0.1", emulator.port) in addresses
    assert {host for host, _ in addresses} == {"127.0.0.1"}


def test_the_bucket_is_there_when_it_is_ready(emulator: Emulator) -> None:
    assert [each["Name"] for each in client(emulator, "s3").list_buckets()["Buckets"]] == [BUCKET]
    scripts = emulator.get("init/ready")
    assert scripts["completed"]
    assert [each["state"] for each in scripts["scripts"]] == ["SUCCESSFUL"]


def test_the_contract_of_object_stores_holds(emulator: Emulator) -> None:
    store = f"s3://{BUCKET}/contract?region=us-east-1&endpoint_url={emulator.url}"
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-k", "[own]",
         "tests/contracts/test_object_store.py"],
        cwd=ROOT, env={**os.environ, **KEYS, "TIERED_TEST_S3": store}, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-8000:]
    (passed,) = re.findall(r"(\d+) passed", done.stdout)
    assert int(passed) > 15, done.stdout
    assert " skipped" not in done.stdout


def test_what_does_not_fit_its_checksum_is_refused(emulator: Emulator) -> None:
    s3 = client(emulator, "s3")
    with pytest.raises(ClientError, match=r"CRC32C|checksum"):
        s3.put_object(Bucket=BUCKET, Key="wrong", Body=b"one", ChecksumCRC32C="AAAAAA==")
    assert "Contents" not in s3.list_objects_v2(Bucket=BUCKET, Prefix="wrong")


def test_a_put_that_breaks_off_leaves_no_object(emulator: Emulator) -> None:
    with socket.create_connection(("127.0.0.1", emulator.port), timeout=10) as raw:
        head = f"PUT /{BUCKET}/torn HTTP/1.1\r\nHost: 127.0.0.1:{emulator.port}\r\nContent-Length: 1000000\r\n\r\n"
        raw.sendall(head.encode() + b"x" * 1000)
    # It has seen the end of the connection before it takes the next request.
    urllib.request.urlopen(f"{emulator.url}/_localstack/health", timeout=10).close()
    assert "Contents" not in client(emulator, "s3").list_objects_v2(Bucket=BUCKET, Prefix="torn")


def test_a_broker_gives_back_from_localstack_what_it_took(emulator: Emulator, tmp_path: Path) -> None:
    store = f"s3://{BUCKET}/broker?region=us-east-1&endpoint_url={emulator.url}"
    settings = {
        "log.segment.bytes": 20_000,  # ten records
        "log.retention.check.interval.ms": 200,
        "tiered.sweep.interval.ms": 300,
        "log.local.retention.bytes": 1,  # cold as soon as it is committed
    }
    broker = BrokerProcess(tmp_path / "data", "--store", store, settings=settings, environ=KEYS).start()
    try:
        assert create(broker, "orders") == NONE
        written = fill(broker, "orders", 35)
        broker.wait_cold("orders", end_offset=30, only=True)
        assert read(broker, "orders") == written
        assert client(emulator, "s3").list_objects_v2(Bucket=BUCKET, Prefix="broker/segments/")["KeyCount"] >= 3
        assert broker.stop() == 0
    finally:
        broker.ensure_stopped()


@pytest.fixture
def terraform(tmp_path: Path) -> WorkingCopy:
    if reason := missing():
        pytest.skip(reason)
    return WorkingCopy(tmp_path)


def test_the_local_environment_is_applied_and_destroyed(emulator: Emulator, terraform: WorkingCopy) -> None:
    if (version := emulator.get("info")["version"].split(":")[0]) < "4.14":
        pytest.skip(f"LocalStack {version} knows no EC2 here; the newer one needs Python 3.12 or 3.13")
    where = "terraform/envs/local"
    words = ("-auto-approve", "-input=false", "-no-color", f"-var=endpoint={emulator.url}")
    terraform.init(where)
    try:
        terraform.run(where, "apply", *words)
        s3 = client(emulator, "s3")
        bucket = "tiered-local-segments"
        assert set(s3.get_public_access_block(Bucket=bucket)["PublicAccessBlockConfiguration"].values()) == {True}
        (rule,) = s3.get_bucket_encryption(Bucket=bucket)["ServerSideEncryptionConfiguration"]["Rules"]
        assert rule["ApplyServerSideEncryptionByDefault"]["SSEAlgorithm"] == "aws:kms"
        (statement,) = json.loads(s3.get_bucket_policy(Bucket=bucket)["Policy"])["Statement"]
        assert statement["Condition"] == {"Bool": {"aws:SecureTransport": "false"}}
        rules = s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
        assert rules
        assert all(set(each.get("Expiration", {})) <= {"ExpiredObjectDeleteMarker"} for each in rules)
        ids = json.loads(terraform.run(where, "output", "-json", "subnet_ids").stdout)
        subnets = client(emulator, "ec2").describe_subnets(SubnetIds=list(ids.values()))["Subnets"]
        assert len({each["AvailabilityZone"] for each in subnets}) == 3
        assert not any(each["MapPublicIpOnLaunch"] for each in subnets)
    finally:
        terraform.run(where, "destroy", *words)
    assert json.loads((terraform.folder / where / "terraform.tfstate").read_text())["resources"] == []
    assert [each["Name"] for each in client(emulator, "s3").list_buckets()["Buckets"]] == [BUCKET]
