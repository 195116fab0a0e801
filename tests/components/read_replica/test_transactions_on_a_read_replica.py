"""A read replica names aborted transactions to consumers, and leaves their records out of the pages for people."""

import random
from pathlib import Path

import pytest

from tests.clients.raw import RawConnection
from tests.components.read_replicas import ReplicaThread
from tests.support.stored_transactions import store_transactions
from tests.support.transactional_logs import consumed, offset_after, random_log
from tests.unit.cold.stored_segments import PARTITION, TOPIC, StoredSegment
from tests.unit.cold.verified_store import VerifiedStore, cluster_checkpoint
from tests.unit.read_replica.buckets import Bucket
from tiered.cold.bucket import checkpoints
from tiered.cold.local import LocalStore
from tiered.formats.record_batch import Record


@pytest.mark.parametrize("seed", range(3))
def test_readers_of_committed_records_get_what_was_decided(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    log = random_log(chance, steps=150)
    store = LocalStore(tmp_path / "bucket")
    segments = store_transactions(store, tmp_path, log, chance, chunk_bytes=4096)
    stored = [StoredSegment(committed=each, log=b"", timestamps=()) for each in segments]
    made = VerifiedStore(root=tmp_path / "bucket", store=store, segments=stored)
    made.write_head()
    checkpoints.write_cluster_checkpoint(store, cluster_checkpoint())
    end_offset = segments[-1].end_offset
    committed = log.committed(end_offset)
    assert log.aborted.intersection(range(end_offset)), "this says nothing without aborted records"
    with ReplicaThread(tmp_path / "replica", Bucket(made.root)) as replica:
        everything: dict[int, Record] = {}
        with RawConnection(replica) as connection:
            offset = 0
            while offset < end_offset:
                answer = connection.fetch(TOPIC, offset, partition=PARTITION, isolation_level=1)
                assert (answer.error_code, answer.last_stable_offset) == (0, end_offset)
                assert answer.aborted_transactions is not None
                assert isinstance(answer.records, bytes | memoryview)
                named = [(each.producer_id, each.first_offset) for each in answer.aborted_transactions]
                everything |= consumed(bytes(answer.records), named, offset)
                offset = offset_after(bytes(answer.records))
            assert connection.fetch(TOPIC, 0, partition=PARTITION, isolation_level=0).aborted_transactions is None
        assert everything == committed

        pages = f"/api/v1/topics/{TOPIC}/records?partition={PARTITION}&limit=1000"
        _, page = replica.ask(pages)
        assert [each["offset"] for each in page["records"]] == list(committed)
        _, page = replica.ask(f"{pages}&isolation=read_uncommitted")
        assert [each["offset"] for each in page["records"]] == [each for each in log.records if each < end_offset]
