"""What an upload costs, beside reading, hashing and putting the same bytes with boto3 directly: both in this process.

Owns the segment file and the S3 server that both talk to: moto, in a process of its own, whose CPU is not counted. Ours
is all that the cold tier does with a segment: describe it (every batch is checked, every chunk hashed), store it, and
look at what the store holds. The other side reads parts of the same size, hashes them and puts them, one after the
other, with a client as boto3 makes it. They alternate. Run as `python -m benchmarks.uploading` it is the server.
"""

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import uuid4

from benchmarks.verification import batch_of, write_segment
from tiered.cold.bucket import uploader
from tiered.cold.object_store import S3Address, parse_store_url
from tiered.cold.request_counts import PART_BYTES, PriceClass
from tiered.cold.s3.store import S3Store
from tiered.testing.moto_s3 import ENVIRON, moto_s3, s3_client

Run = dict[str, float]
BUCKET = "tiered-bench"
GIB = 1 << 30
BATCH_RECORDS = (16, 256)
MAX_SEGMENT_BYTES = 1 << 30


def uploading(folder: Path, *, rounds: int, gb: float, say: Callable[[str], None]) -> dict[str, dict[str, list[Run]]]:
    """MB/s, CPU s/GB and PUT-class requests per GiB of both, for batches of two sizes; the first round only warms."""
    results: dict[str, dict[str, list[Run]]] = {}
    folder.mkdir(parents=True, exist_ok=True)
    log = folder / "segment.log"
    with server() as endpoint_url, patch.dict(os.environ, ENVIRON):
        client, store = s3_client(endpoint_url), _store(endpoint_url)
        # Made beforehand: a client is made once in the life of a broker, and takes as long as a small upload.
        sides: dict[str, Callable[[Path], float]] = {
            "boto3 alone": partial(put_with_boto3, client),
            "tiered": partial(upload, store),
        }
        for batch_records in BATCH_RECORDS:
            with log.open("wb") as file:
                size_bytes = min(MAX_SEGMENT_BYTES, int(gb * 1e9))
                write_segment(file, batch_of(batch_records), batch_records, base_offset=0, size_bytes=size_bytes)
            name = f"batches of {batch_records} KiB"
            for number in range(rounds + 1):
                for side, act in sides.items():
                    run = _timed(act, log)
                    if number > 0:
                        results.setdefault(name, {}).setdefault(side, []).append(run)
                        say(
                            f"upload, {name:22}{side:16}{run['mb_per_s']:8.0f} MB/s{run['cpu_s_per_gb']:8.2f} CPU s/GB"
                            f"{run['puts_per_gib']:8.0f} PUT requests/GiB"
                        )
        store.close()
        client.close()
    return results


def _timed(act: Callable[[Path], float], log: Path) -> Run:
    cpu, started = os.times(), time.perf_counter()
    requests = act(log)
    seconds, used = time.perf_counter() - started, os.times()
    done_bytes = log.stat().st_size
    cpu_seconds = used.user + used.system - cpu.user - cpu.system
    return {
        "mb_per_s": done_bytes / seconds / 1e6,
        "cpu_s_per_gb": cpu_seconds / done_bytes * 1e9,
        "puts_per_gib": requests / done_bytes * GIB,
    }


def put_with_boto3(client: Any, log: Path) -> float:
    """The PUT-class requests that it took. Nothing is checked, and nothing tried again but by boto3."""
    key, whole = f"plain/{uuid4()}", hashlib.sha256()
    parts: list[dict[str, Any]] = []
    made = client.create_multipart_upload(Bucket=BUCKET, Key=key)
    with log.open("rb", buffering=0) as file:
        while data := file.read(PART_BYTES):
            whole.update(data)
            number = len(parts) + 1
            put = client.upload_part(Bucket=BUCKET, Key=key, UploadId=made["UploadId"], PartNumber=number, Body=data)
            parts.append({"PartNumber": number, "ETag": put["ETag"]})
    client.complete_multipart_upload(
        Bucket=BUCKET, Key=key, UploadId=made["UploadId"], MultipartUpload={"Parts": parts}
    )
    whole.digest()
    client.delete_object(Bucket=BUCKET, Key=key)
    return len(parts) + 2


def _store(endpoint_url: str) -> S3Store:
    address = parse_store_url(f"s3://{BUCKET}/ours?endpoint_url={endpoint_url}")
    assert isinstance(address, S3Address)
    return S3Store(address)


def upload(store: S3Store, log: Path) -> float:
    """What a broker does with a closed segment, but for SQL; the PUT-class requests that it took."""
    before = store.state.requests.by_class()[PriceClass.PUT]
    key, size_bytes = f"segments/{uuid4()}.seg", log.stat().st_size
    with log.open("rb", buffering=0) as file:
        described = uploader.describe(
            file.fileno(),
            size_bytes,
            cluster_id="bench",
            topic_id=uuid4(),
            topic="bench",
            partition=0,
            leader_epochs=((1, 0),),
            producer_snapshot=b"",
            previous_root_sha256=bytes(32),
        )
        store.put_segment(key, file.fileno(), size_bytes, described.tail)
    uploader.verify_stored(store, key, described.object_bytes, described.tail)
    requests = store.state.requests.by_class()[PriceClass.PUT] - before
    store.delete(key)
    return requests


@contextmanager
def server() -> Iterator[str]:
    """The endpoint URL of moto in another process."""
    command = [sys.executable, "-m", "benchmarks.uploading"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        if not url:
            raise SystemExit("the S3 server for the benchmark did not start")
        try:
            yield url
        finally:
            process.stdin.close()


def _serve() -> None:
    with moto_s3(BUCKET) as url:
        print(url, flush=True)
        sys.stdin.read()


if __name__ == "__main__":
    _serve()
